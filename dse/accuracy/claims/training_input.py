"""The input pipeline as a ceiling."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.training_runs import RUNS, run
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


def find(given: Given) -> Measured:
    rows, slowed = [], []
    margins: dict[str, list[float]] = {name: [] for name in SUPPLY}
    for model, chip, chips in RUNS:
        free = run(model, chip, chips).as_json()
        rate = free["tokens_per_s"]
        half = run(model, chip, chips, input_tokens_per_s=f"{HALF * rate:.0f}").as_json()
        slowed.append(half["tokens_per_s"] / rate)
        for name, (per_token, per_host) in SUPPLY.items():
            hosts = np.array([chips / CHIPS_PER_HOST])
            delivered = delivered_tokens_per_s(hosts, np.array([per_host]), np.array([per_token]))
            margins[name].append(float(delivered[0]) / rate)
        waiting = half["loss_shares"]["input_pipeline"]
        cells = (found[-1] for found in margins.values())
        rows.append((f"{model}, {chips:,} x {chip}", rate / 1e6, half["mfu"], waiting, *cells))
    least = {name: min(found) for name, found in margins.items()}
    worst = min(least, key=lambda name: least[name])
    figures = {
        "rate_left_at_half_the_input": max(slowed),
        "least_margin": least[worst],
        "least_margin_tokenised_text": least["tokenised text from storage"],
    }
    return Measured(figures, (rows,), {"worst": worst})
