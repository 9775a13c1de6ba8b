"""Claim 20: more bandwidth at the same FLOP/s, for one user."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.matched import matched
from dse.accuracy.claims.points import Point, models, predict, smallest
from dse.accuracy.claims.sram import OUTPUT, PROMPT, fitted
from dse.answer.numbers import in_ms, percent, times

FEW = 8.0  # requests in flight up to which a measured row counts as nearly one user
MATTERS = 1.05
GROQ_TIMES = 10.0
GROQ = "groq_lpu_v1"
SMALL = ("llama-3.2-1b", "llama-3.2-3b", "llama-3-8b", "gemma-2-9b", "phi-4")


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
            groq_table,
        ),
        "H100 and H200: predicted with kernels fitted to either, measured in pairs that share all "
        "but the chip. Groq: kernel laws assumed (docs/tiers.md has published speeds beside them).",
        "What the larger memory of H200 saves (fewer chips for a model) is not in these ratios. "
        "Small models gain less: launches and the host's work do not shorten with bandwidth.",
    )


def _groq() -> tuple[float | None, Table]:
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
                model, f"{found['chips']:,}", in_ms(found["tpot_s"]),
                in_ms(seconds[0]), in_ms(min(seconds)),
                times(seconds[0] / found["tpot_s"]), times(ratios[-1]),
            )
        )  # fmt: skip
    head = ("model", "Groq v1 chips", "per token", "one H100", "best of up to 8 H100",
            "Groq over one", "Groq over the best")  # fmt: skip
    table = Table("Groq v1 (int8) against H100 (fp8), one user, predicted", head, tuple(rows))
    return (float(np.median(ratios)) if ratios else None), table


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
