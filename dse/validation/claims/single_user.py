"""Claim 20: more bandwidth at the same FLOP/s, for one user."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.validation.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.validation.claims.matched import matched
from dse.validation.claims.points import models, predict, smallest
from dse.validation.claims.words import percent, times

FEW = 8.0  # requests in flight up to which a measured row counts as nearly one user
MATTERS = 1.05
GROQ_TIMES = 10.0


def judge(predicted: float, measured: float, groq: float | None) -> str:
    """Median speed of H200 over H100, and that of Groq over H100 for small models (None where the
    model has no Groq). The second half holds within a factor of two of what is claimed."""
    first = min(predicted, measured) >= MATTERS
    if max(predicted, measured) < MATTERS:
        return CONTRADICTED
    second = groq is not None and GROQ_TIMES / 2.0 <= groq <= GROQ_TIMES * 2.0
    return CONFIRMED if first and second else QUALIFIED


def find() -> Finding:
    base = smallest(list(models()), ["h100_sxm"], most=8)
    slow = predict(base)
    fast = predict([point._replace(chip="h200_sxm") for point in base])
    ratio = slow["tpot_s"] / fast["tpot_s"]
    sizes = slow["total_parameters"]
    pairs = matched()
    pairs = pairs[(pairs["chip_a"] == "h100_sxm") & (pairs["chip_b"] == "h200_sxm")]
    few = pairs[(pairs["metric"].isin(["tpot_s", "decode_step_s"])) & (pairs["concurrency"] <= FEW)]
    groq = groq_over_h100()
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
    said = "Groq v1 over H100 is not predicted yet" if groq is None else f"Groq {times(groq)} H100"
    return Finding(
        judge(figures["predicted_h200_over_h100"], figures["measured_h200_over_h100"], groq),
        f"H200 decodes {times(figures['predicted_h200_over_h100'])} as fast as H100 for one user "
        f"(median of {len(base)} models; bandwidth 1.43x), measured "
        f"{times(figures['measured_h200_over_h100'])} in {len(few)} pairs of up to {FEW:g} users; "
        f"prefill {times(figures['prefill_h200_over_h100'])}; {said}",
        figures,
        "One request, prompt 2,048, output 512, the checkpoint's formats, the smallest group of up "
        "to 8 chips that holds the model on H100, the same on H200.",
        (
            _by_size(sizes, ratio, slow["prefill_s"] / fast["prefill_s"]),
            _measured(pairs),
        ),
        "Predicted with kernels fitted to either chip; measured pairs share all but the chip.",
        "What the larger memory of H200 saves (fewer chips for a model) is not in these ratios. "
        "Small models gain less: launches and the host's work do not shorten with bandwidth.",
    )


def groq_over_h100() -> float | None:
    """Speed of Groq v1 over H100 for a small model; None while Groq v1 lacks figures."""
    return None


def _by_size(sizes: np.ndarray, decode: np.ndarray, prefill: np.ndarray) -> Table:
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
    head = ("billion parameters", "models", "least", "median", "most", "prefill, median")
    return Table("H200 over H100, one user, predicted", head, tuple(rows))


def _measured(pairs: pd.DataFrame) -> Table:
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
    head = ("rows", "in flight", "pairs", "measured", "predicted", "H200 is faster in")
    return Table("H200 over H100, measured", head, tuple(rows))


def _loads(part: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    load = part["concurrency"]
    if load.isna().all():
        return [("all queued", part)]
    return [(f"up to {FEW:g}", part[load <= FEW]), (f"above {FEW:g}", part[load > FEW])]


CLAIMS = (
    Claim(
        20,
        "H200, with more bandwidth at the same FLOP/s, is faster than H100 for a single user; Groq "
        "is about ten times faster than H100 for small models.",
        (
            "dse claims 20",
            "dse estimate --model llama-3-70b --chip h200_sxm --tp 4 --concurrency 1",
        ),
        f"Contradicted where H200 is less than {MATTERS - 1:.0%} faster both predicted and "
        "measured; confirmed where it is faster in both and Groq over H100 lies within a factor of "
        f"two of {GROQ_TIMES:g}; else qualified.",
        find,
    ),
)
