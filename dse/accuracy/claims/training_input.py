"""Claim 19: the input pipeline as a ceiling."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.training_runs import RUNS, run
from dse.answer.numbers import digits, percent, times
from dse.physics.training.input_pipeline import TOKEN_BYTES, delivered_tokens_per_s

CHIPS_PER_HOST = 8
# Bytes that a host must read or make for each token, and how many it can a second: assumed.
SUPPLY = {
    "tokenised text from storage": (TOKEN_BYTES, 1e9),
    "images, 150 kB for 576 tokens, from storage": (150e3 / 576, 1e9),
    "the same, decoded by 32 cores of 100 a second": (150e3 / 576, 32 * 100 * 150e3),
    "text tokenised on the way, 32 cores of 1 MB a second": (4.5, 32 * 1e6),
}
HALF = 0.5


def judge(margins: list[float], slowed: list[float]) -> str:
    """`margins`: what hosts deliver over what the chips take, by kind of data, the least; `slowed`:
    what is left of the rate where half is delivered."""
    if any(rate > HALF * 1.01 for rate in slowed):
        return CONTRADICTED
    return CONFIRMED if min(margins) < 1.0 else QUALIFIED


def find() -> Finding:
    rows, slowed = [], []
    margins: dict[str, list[float]] = {name: [] for name in SUPPLY}
    for model, chip, chips in RUNS:
        free = run(model, chip, chips).as_json()
        rate = free["tokens_per_s"]
        half = run(model, chip, chips, input_tokens_per_s=f"{HALF * rate:.0f}").as_json()
        slowed.append(half["tokens_per_s"] / rate)
        cells = []
        for name, (per_token, per_host) in SUPPLY.items():
            hosts = np.array([chips / CHIPS_PER_HOST])
            delivered = delivered_tokens_per_s(hosts, np.array([per_host]), np.array([per_token]))
            margins[name].append(float(delivered[0]) / rate)
            cells.append(times(margins[name][-1]))
        rows.append(
            (
                f"{model}, {chips:,} x {chip}",
                f"{digits(rate / 1e6)}M",
                percent(half["mfu"]),
                percent(half["loss_shares"]["input_pipeline"]),
                *cells,
            )
        )
    least = {name: min(found) for name, found in margins.items()}
    worst = min(least, key=lambda name: least[name])
    figures = {
        "rate_left_at_half_the_input": max(slowed),
        "least_margin": least[worst],
        "least_margin_tokenised_text": least["tokenised text from storage"],
    }
    return Finding(
        judge(list(least.values()), slowed),
        f"half the input leaves {percent(max(slowed))} of the rate; but a host of "
        f"{CHIPS_PER_HOST} chips delivers tokenised text at "
        f"{times(least['tokenised text from storage'])} what its chips take or more, and at the "
        f"least {times(least[worst])} ({worst})",
        figures,
        "Best plans in bf16, sequences of 8,192; a slow pipeline delivers half the tokens.",
        (
            Table(
                "With half the input, and what ordinary hosts deliver over what the chips take",
                ("run", "tokens/s", "MFU at half", "waiting", *SUPPLY),
                tuple(rows),
            ),
        ),
        "The ceiling is a maximum of two times, exact where prefetch hides what it can. What hosts "
        "deliver is assumed: 1 GB/s of storage; 32 cores, each 100 images or 1 MB of text a "
        "second.",
        "Jitter of the pipeline, shuffling across storage, video and audio.",
    )


CLAIMS = (
    Claim(
        19,
        "A slow input pipeline starves the accelerator.",
        (
            "dse claims 19",
            "dse train llama-3-8b --chip h100_sxm --chips 1024 --tokens 15T --input-tokens-per-s "
            "5M",
        ),
        "Contradicted where half the input leaves more than half the rate; else confirmed where "
        "ordinary hosts deliver less than the chips take for some kind of data, and qualified "
        "where they keep up with all of them.",
        find,
    ),
)
