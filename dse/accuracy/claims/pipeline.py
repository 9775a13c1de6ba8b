"""Pipeline stages give memory, not speed, to one request."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.points import Point, models, predict, smallest, usable_chips
from dse.answer.numbers import digits, in_ms
from dse.catalog import load_catalog

STAGES = (1.0, 2.0, 4.0, 8.0)
BASE = Point("llama-3-70b", "h100_sxm", 4)
LONG_PROMPT, MANY = 131_072.0, 128.0


def find(given: Given) -> Measured:
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
    return Measured(
        figures,
        (rows,),
        {
            "elsewhere": min(
                figures["tpot_ratio_8_stages_128_requests"],
                figures["prefill_ratio_8_stages_131072_tokens"],
            ),
            "weights_1_bytes": float(short["memory_weights_bytes_per_chip"][0]),
            "weights_8_bytes": float(short["memory_weights_bytes_per_chip"][3]),
        },
    )


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
