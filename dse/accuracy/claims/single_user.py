"""More bandwidth at the same FLOP/s, for one user."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows, ends
from dse.accuracy.claims.matched import matched
from dse.accuracy.claims.points import Point, billions, models, predict, smallest
from dse.accuracy.claims.sram import OUTPUT, PROMPT, fitted
from dse.answer.numbers import times

FEW = 8.0  # requests in flight up to which a measured row counts as nearly one user
GROQ = "groq_lpu_v1"
SMALL = ("llama-3.2-1b", "llama-3.2-3b", "llama-3-8b", "gemma-2-9b", "phi-4")


def find(given: Given) -> Measured:
    base = smallest(list(models()), ["h100_sxm"], most=8)
    slow = predict(base)
    fast = predict([point._replace(chip="h200_sxm") for point in base])
    decode, prefill = (slow[name] / fast[name] for name in ("tpot_s", "prefill_s"))
    pairs = matched()
    pairs = pairs[(pairs["chip_a"] == "h100_sxm") & (pairs["chip_b"] == "h200_sxm")]
    few = pairs[(pairs["metric"].isin(["tpot_s", "decode_step_s"])) & (pairs["concurrency"] <= FEW)]
    groq, groq_table = _groq()
    figures = {
        "predicted_h200_over_h100": float(np.median(decode)),
        **ends("predicted", decode),
        "measured_h200_over_h100": float(few["speed"].median()),
        "measured_pairs": float(len(few)),
        "predicted_of_the_measured": float(few["predicted"].median()),
        "prefill_h200_over_h100": float(np.median(prefill)),
        "groq_over_h100": groq,
    }
    said = "no small model fits Groq v1" if groq is None else f"Groq v1 {times(groq)} H100"
    sizes = slow["total_parameters"]
    by_size = [
        (
            billions(low, high),
            inside.sum(),
            *np.quantile(decode[inside], (0.0, 0.5, 1.0)),
            np.median(prefill[inside]),
        )
        for low, high in ((0.0, 4e9), (4e9, 20e9), (20e9, 100e9), (100e9, np.inf))
        for inside in ((sizes >= low) & (sizes < high),)
        if inside.any()
    ]
    facts = {"said": said, "models": len(base)}
    return Measured(figures, (by_size, _measured(pairs), groq_table), facts)


def _groq() -> tuple[float | None, Rows]:
    """Speed of one user on the fastest number of Groq v1 chips over that on the best group of up to
    8 H100, median of small models."""
    rows, ratios = [], []
    for model in SMALL:
        found = fitted(model, GROQ, "8 bits")["fastest"]
        if found is None:
            rows.append((model, "does not fit", *(None,) * 5))
            continue
        points = [Point(model, "h100_sxm", tp, weight="fp8") for tp in (1.0, 2.0, 4.0, 8.0)]
        answer = predict(points, PROMPT, OUTPUT)
        seconds = answer["tpot_s"][answer.feasible]
        own, one, best = found["tpot_s"], seconds[0], min(seconds)
        ratios.append(best / own)
        rows.append((model, found["chips"], own, one, best, one / own, best / own))
    return (float(np.median(ratios)) if ratios else None), rows


def _measured(pairs: pd.DataFrame) -> Rows:
    return [
        (
            f"{serving}, {metric}",
            name,
            len(chosen),
            chosen["speed"].median(),
            chosen["predicted"].median(),
            (chosen["speed"] > 1.0).mean(),
        )
        for (serving, metric), part in pairs.groupby(["serving", "metric"])
        for name, chosen in _loads(part)
        if len(chosen)
    ]


def _loads(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    load = part["concurrency"]
    if load.isna().all():
        return [("all queued", part)]
    return [(f"up to {FEW:g}", part[load <= FEW]), (f"above {FEW:g}", part[load > FEW])]
