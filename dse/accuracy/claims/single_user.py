"""More bandwidth at the same FLOP/s, for one user."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.matched import matched
from dse.accuracy.claims.points import Point, models, predict, smallest
from dse.accuracy.claims.sram import OUTPUT, PROMPT, fitted
from dse.answer.numbers import in_ms, percent, times

FEW = 8.0  # requests in flight up to which a measured row counts as nearly one user
GROQ = "groq_lpu_v1"
SMALL = ("llama-3.2-1b", "llama-3.2-3b", "llama-3-8b", "gemma-2-9b", "phi-4")


def find(given: Given) -> Measured:
    base = smallest(list(models()), ["h100_sxm"], most=8)
    slow = predict(base)
    fast = predict([point._replace(chip="h200_sxm") for point in base])
    ratio = slow["tpot_s"] / fast["tpot_s"]
    sizes = slow["total_parameters"]
    pairs = matched()
    pairs = pairs[(pairs["chip_a"] == "h100_sxm") & (pairs["chip_b"] == "h200_sxm")]
    few = pairs[(pairs["metric"].isin(["tpot_s", "decode_step_s"])) & (pairs["concurrency"] <= FEW)]
    groq, groq_table = _groq()
    figures = {
        "predicted_h200_over_h100": float(np.median(ratio)),
        "predicted_least": float(ratio.min()),
        "predicted_most": float(ratio.max()),
        "measured_h200_over_h100": float(few["speed"].median()),
        "measured_pairs": float(len(few)),
        "predicted_of_the_measured": float(few["predicted"].median()),
        "prefill_h200_over_h100": float(np.median(slow["prefill_s"] / fast["prefill_s"])),
        "groq_over_h100": groq,
    }
    said = "no small model fits Groq v1" if groq is None else f"Groq v1 {times(groq)} H100"
    return Measured(
        figures,
        (
            _by_size(sizes, ratio, slow["prefill_s"] / fast["prefill_s"]),
            _measured(pairs),
            groq_table,
        ),
        {"said": said, "models": len(base)},
    )


def _groq() -> tuple[float | None, Rows]:
    """Speed of one user on the fastest number of Groq v1 chips over that on the best group of up to
    8 H100, median of small models."""
    rows, ratios = [], []
    for model in SMALL:
        found = fitted(model, GROQ, "8 bits")["fastest"]
        points = [Point(model, "h100_sxm", tp, weight="fp8") for tp in (1.0, 2.0, 4.0, 8.0)]
        answer = predict(points, PROMPT, OUTPUT)
        seconds = [float(s) for s, ok in zip(answer["tpot_s"], answer.feasible, strict=True) if ok]
        if found is None:
            rows.append((model, "does not fit", *("–",) * 5))
            continue
        ratios.append(min(seconds) / found["tpot_s"])
        rows.append(
            (
                model,
                f"{found['chips']:,}",
                in_ms(found["tpot_s"]),
                in_ms(seconds[0]),
                in_ms(min(seconds)),
                times(seconds[0] / found["tpot_s"]),
                times(ratios[-1]),
            )
        )
    table = rows
    return (float(np.median(ratios)) if ratios else None), table


def _by_size(sizes: np.ndarray, decode: np.ndarray, prefill: np.ndarray) -> Rows:
    rows = []
    for low, high in ((0.0, 4e9), (4e9, 20e9), (20e9, 100e9), (100e9, np.inf)):
        inside = (sizes >= low) & (sizes < high)
        if inside.any():
            name = (
                f"{low / 1e9:g} to {high / 1e9:g}" if np.isfinite(high) else f"from {low / 1e9:g}"
            )
            parts = [np.quantile(decode[inside], share) for share in (0.0, 0.5, 1.0)]
            rows.append(
                (
                    name,
                    str(inside.sum()),
                    *(times(float(part)) for part in parts),
                    times(float(np.median(prefill[inside]))),
                )
            )
    return rows


def _measured(pairs: pd.DataFrame) -> Rows:
    rows = []
    for (serving, metric), part in pairs.groupby(["serving", "metric"]):
        for name, chosen in _loads(part):
            if len(chosen):
                rows.append(
                    (
                        f"{serving}, {metric}",
                        name,
                        str(len(chosen)),
                        times(float(chosen["speed"].median())),
                        times(float(chosen["predicted"].median())),
                        percent(float((chosen["speed"] > 1.0).mean())),
                    )
                )
    return rows


def _loads(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    load = part["concurrency"]
    if load.isna().all():
        return [("all queued", part)]
    return [(f"up to {FEW:g}", part[load <= FEW]), (f"above {FEW:g}", part[load > FEW])]
