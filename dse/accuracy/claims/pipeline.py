"""Claim 3: pipeline stages give memory, not speed, to one request."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.points import Point, models, predict, smallest, usable_chips
from dse.answer.numbers import digits, in_ms, times
from dse.catalog import load_catalog

STAGES = (1.0, 2.0, 4.0, 8.0)
BASE = Point("llama-3-70b", "h100_sxm", 4)
LONG_PROMPT, MANY = 131_072.0, 128.0
MATTERS = 0.02


def judge(alone: float, elsewhere: float) -> str:
    """The best latency with more stages over that with one: of a decode step of a single request
    (`alone`), and in other conditions (`elsewhere`). 1 is no benefit, less is a benefit."""
    if alone < 1.0 - MATTERS:
        return CONTRADICTED
    return QUALIFIED if elsewhere < 1.0 - MATTERS else CONFIRMED


def find() -> Finding:
    one = [BASE._replace(pp=stages) for stages in STAGES]
    many = [point._replace(concurrency=MANY) for point in one]
    short, loaded = predict(one), predict(many)
    # A prompt this long holds more cache than four chips have beside the weights: eight a stage.
    wide = [point._replace(tp=8.0) for point in one]
    long = predict(wide, LONG_PROMPT, serving="static")
    everywhere = _everywhere()
    figures = {
        "least_step_ratio_any_pair": float(everywhere.min()),
        "pairs": float(len(everywhere)),
        "tpot_ratio_8_stages_1_request": float(short["tpot_s"][3] / short["tpot_s"][0]),
        "tpot_ratio_8_stages_128_requests": float(loaded["tpot_s"][3] / loaded["tpot_s"][0]),
        "prefill_ratio_8_stages_131072_tokens": float(long["prefill_s"][3] / long["prefill_s"][0]),
    }
    verdict = judge(
        figures["least_step_ratio_any_pair"],
        min(
            figures["tpot_ratio_8_stages_128_requests"],
            figures["prefill_ratio_8_stages_131072_tokens"],
        ),
    )
    rows = tuple(
        (
            f"{stages:g}",
            f"{stages * BASE.tp:g}",
            f"{digits(short['memory_weights_bytes_per_chip'][k] / 1e9)} GB",
            in_ms(short["tpot_s"][k]),
            in_ms(short["ttft_s"][k]),
            in_ms(loaded["tpot_s"][k]),
            f"{digits(long['prefill_s'][k])} s",
        )
        for k, stages in enumerate(STAGES)
    )
    return Finding(
        verdict,
        f"8 stages against 1 at one request: {times(figures['tpot_ratio_8_stages_1_request'])} the "
        f"time per token, {digits(short['memory_weights_bytes_per_chip'][3] / 1e9)} for "
        f"{digits(short['memory_weights_bytes_per_chip'][0] / 1e9)} GB of weights a chip; but with "
        f"{MANY:g} requests in flight {times(figures['tpot_ratio_8_stages_128_requests'])}, and "
        f"{times(figures['prefill_ratio_8_stages_131072_tokens'])} the prefill of 131,072 tokens",
        figures,
        "Stages of equal tensor parallelism (4; 8 for the long prompt), llama-3-70b in bf16 on "
        f"h100_sxm, prompt 2,048, output 512; the least ratio over {len(everywhere):,} models x "
        "chips at one request, 2 and 4 stages of the smallest group that holds the model.",
        (
            Table(
                "llama-3-70b on h100_sxm by pipeline stages",
                (
                    "stages", "chips", "weights a chip", "per token, 1 request",
                    "first token, 1 request", "per token, 128 requests",
                    "prefill of 131,072 tokens (tp 8)",
                ),
                rows,
            ),
        ),
        "Derived: a step is the path through all stages plus a hop a stage; kernels of H100 are "
        "fitted. Rows with pipeline stages that were measured are few and not matched by one "
        "without.",
        "The prefill of a long prompt overlaps its chunks over the stages (static serving); the "
        "closed loop takes them one after the other. Imbalance beyond whole layers and the "
        "schedule of micro-batches of a real server. Throughput needs as many micro-batches as "
        "stages.",
    )  # fmt: skip


def _everywhere() -> np.ndarray:
    """(n,) decode step with 2 and with 4 stages over that with one, at one request."""
    base = smallest(list(models()), usable_chips(), most=8)
    catalog_layers = {name: model.num_hidden_layers for name, model in models().items()}
    wider = []
    for stages in (2.0, 4.0):
        wider += [point._replace(pp=stages) for point in base if catalog_layers[point.model] >= 4]
    kept = [point for point in base if catalog_layers[point.model] >= 4]
    wider = _reachable(wider)
    one = {(p.model, p.chip): k for k, p in enumerate(kept)}
    before, after = predict(kept), predict(wider)
    rows = np.array([one[point.model, point.chip] for point in wider])
    ratio = after["decode_step_s"] / before["decode_step_s"][rows]
    return ratio[after.feasible]


def _reachable(points: list[Point]) -> list[Point]:
    """Those whose chips have the links that they need."""
    catalog = load_catalog()
    refused = {
        (chip, size): catalog.refusal(chip, size) is not None
        for chip, size in {(point.chip, point.tp * point.pp) for point in points}
    }
    return [point for point in points if not refused[point.chip, point.tp * point.pp]]


CLAIMS = (
    Claim(
        3,
        "Pipeline parallelism gives inference no latency benefit, only memory capacity.",
        (
            "dse claims 3",
            "dse estimate --model llama-3-70b --chip h100_sxm --tp 4 --pp 8 --concurrency 1",
        ),
        "Contradicted where stages make the decode step of a single request of any model and chip "
        f"more than {MATTERS:.0%} faster; else qualified where they shorten a step at a fixed "
        "number of requests in flight, or the prefill of a long prompt, by more than "
        f"{MATTERS:.0%}; else confirmed.",
        find,
    ),
)
