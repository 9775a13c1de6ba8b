"""Pipeline stages give memory, not speed, to one request."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.points import Point, models, predict, smallest, usable_chips
from dse.catalog import load_catalog

STAGES = (1.0, 2.0, 4.0, 8.0)
BASE = Point("llama-3-70b", "h100_sxm", 4)
LONG_PROMPT, MANY = 131_072.0, 128.0


def find(given: Given) -> Measured:
    one = [BASE._replace(pp=stages) for stages in STAGES]
    short, loaded = predict(one), predict([point._replace(concurrency=MANY) for point in one])
    # A prompt this long holds more cache than four chips have beside the weights: eight a stage.
    long = predict([point._replace(tp=8.0) for point in one], LONG_PROMPT, serving="static")
    everywhere = _everywhere()
    weights = short["memory_weights_bytes_per_chip"]
    slower = {
        "tpot_ratio_8_stages_1_request": short["tpot_s"],
        "tpot_ratio_8_stages_128_requests": loaded["tpot_s"],
        "prefill_ratio_8_stages_131072_tokens": long["prefill_s"],
    }
    ratios = {name: float(seconds[3] / seconds[0]) for name, seconds in slower.items()}
    figures = {
        "least_step_ratio_any_pair": float(everywhere.min()),
        "pairs": float(len(everywhere)),
        **ratios,
    }
    columns = (weights, short["tpot_s"], short["ttft_s"], loaded["tpot_s"], long["prefill_s"])
    rows = [
        (stages, stages * BASE.tp, *cells) for stages, *cells in zip(STAGES, *columns, strict=True)
    ]
    return Measured(
        figures,
        (rows,),
        {
            "elsewhere": min(list(ratios.values())[1:]),
            "weights_1_bytes": float(weights[0]),
            "weights_8_bytes": float(weights[3]),
        },
    )


def _everywhere() -> np.ndarray:
    """(n,) decode step with 2 and with 4 stages over that with one, at one request, where the chips
    have the links that the stages need."""
    base = smallest(list(models()), usable_chips(), most=8)
    base = [point for point in base if models()[point.model].num_hidden_layers >= 4]
    refusal = load_catalog().refusal
    wider = [
        (k, point._replace(pp=stages))
        for stages in (2.0, 4.0)
        for k, point in enumerate(base)
        if refusal(point.chip, point.tp * stages) is None
    ]
    after = predict([point for _, point in wider])
    before = predict(base)["decode_step_s"][[k for k, _ in wider]]
    return (after["decode_step_s"] / before)[after.feasible]
