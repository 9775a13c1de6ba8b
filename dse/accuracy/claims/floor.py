"""Claim 2: a decode step is never faster than reading what it must touch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.points import (
    Point,
    models,
    predict,
    predicted_rows,
    smallest,
    usable_chips,
)
from dse.answer.numbers import digits, in_ms, percent, times

SAMPLE, SEED = 20_000, 5
BATCHES = (1.0, 8.0, 64.0, 512.0)
ROUNDING = 1e-9
RARE = 0.01
EXAMPLES = (Point("llama-3-70b", "h200_sxm", 8), Point("deepseek-v3", "h200_sxm", 8, ep=8))


def judge(below: float, lowered: float, measured_below: float) -> str:
    """`below`: share of predicted steps faster than their floor; `lowered`: share of points whose
    floor a larger batch lowers; `measured_below`: share of measured steps below their floor."""
    if below > 0.0 or lowered > 0.0:
        return CONTRADICTED
    return CONFIRMED if measured_below <= RARE else QUALIFIED


def sample() -> list[Point]:
    """Random points: a model and chip, a group from the smallest that holds it to eight times as
    many chips, a batch up to 512."""
    rng = np.random.default_rng(SEED)
    fit = smallest(list(models()), usable_chips())
    picks = rng.integers(len(fit), size=SAMPLE)
    batches, more = 2.0 ** rng.integers(10, size=SAMPLE), 2.0 ** rng.integers(4, size=SAMPLE)
    points = []
    for pick, batch, wider in zip(picks, batches, more, strict=True):
        point = fit[pick]
        ep = point.ep * wider if point.ep > 1.0 else 1.0
        points.append(point._replace(tp=point.tp * wider, ep=ep, concurrency=float(batch)))
    return points


def find() -> Finding:
    points = sample()
    answer = predict(points, serving="static")
    alone = predict([point._replace(concurrency=1.0) for point in points], serving="static")
    ok = answer.feasible
    over = (answer["decode_step_s"] / answer["latency_floor_s"])[ok]
    floors = (answer["latency_floor_s"] / alone["latency_floor_s"])[ok]
    rows = predicted_rows()
    rows = rows[rows["metric"].isin(["decode_step_s", "tpot_s"])]
    lower = rows[rows["value"] < rows["floor"]]
    figures = {
        "sampled": float(ok.sum()),
        "below_floor": float((over < 1.0 - ROUNDING).mean()),
        "least_step_over_floor": float(over.min()),
        "median_step_over_floor": float(np.median(over)),
        "floor_lowered_by_batch": float((floors < 1.0 - ROUNDING).mean()),
        "measured_rows": float(len(rows)),
        "measured_below_floor": len(lower) / len(rows),
        "measured_median_over_floor": float((rows["value"] / rows["floor"]).median()),
    }
    verdict = judge(
        figures["below_floor"], figures["floor_lowered_by_batch"], figures["measured_below_floor"]
    )
    return Finding(
        verdict,
        f"of {ok.sum():,} sampled steps none is faster than "
        f"{digits(figures['least_step_over_floor'])} times its floor and no larger batch lowers a "
        f"floor; {len(lower)} of {len(rows):,} measured steps "
        f"({percent(figures['measured_below_floor'])}) lie below theirs",
        figures,
        "Per step, not per token under speculative decoding. The floor is that of the busiest "
        "chip: its share of the weights and caches that the step touches over its own bandwidth; "
        "what is replicated (KV heads beyond their number, latent caches) is read by each chip. "
        "Sample: models x chips of the catalog, groups of 1 to 8 times the smallest that fits, "
        f"batches of 1 to 512, seed {SEED}; prompt 2,048, output 512.",
        (_batches(), _speculation(), _below(lower)),
        "The floor is derived from specifications; steps are predictions of fitted, derived or "
        "assumed kernels; measured rows are closed loops and static batches.",
        "Measured rows below their floor: their sources do not say whether tokens were drafted, or "
        "their lengths and formats are ambiguous; no cause is proved. Weights that stay in a cache "
        "on the chip from step to step are not modelled.",
    )


def _batches() -> Table:
    points = [point._replace(concurrency=batch) for point in EXAMPLES for batch in BATCHES]
    answer = predict(points, serving="static")
    rows = tuple(
        (
            f"{point.model}, {point.tp:g} x {point.chip}",
            f"{point.concurrency:g}",
            _experts(point),
            f"{digits(answer.decode['touched_bytes'][k] / 1e9)} GB",
            in_ms(answer["latency_floor_s"][k]),
            in_ms(answer["decode_step_s"][k]),
        )
        for k, point in enumerate(points)
    )
    head = (
        "model and chips",
        "batch",
        "distinct experts a layer",
        "touched a chip",
        "floor",
        "step",
    )
    return Table("Batching does not lower the floor; with experts it raises it", head, rows)


def _experts(point: Point) -> str:
    """E T k / (E - k + T k) of E experts that T tokens touch, k each (docs/physics.md)."""
    for block in models()[point.model].blocks:
        if block.kind == "moe":
            experts, top = block.sizes["experts"], block.sizes["experts_per_token"]
            routed = point.concurrency * top
            return f"{digits(experts * routed / (experts - top + routed))} of {experts:g}"
    return "–"


def _speculation() -> Table:
    """A step yields several tokens where drafts pass: the floor holds for the step."""
    rows = []
    for accepted in (0.0, 0.6, 0.8):
        tokens = (1.0 - accepted**4) / (1.0 - accepted)
        base = predict([EXAMPLES[0]], serving="static")
        floor = float(base["latency_floor_s"][0])
        rows.append((f"{accepted:g}", digits(tokens), in_ms(floor), in_ms(floor / tokens)))
    head = ("acceptance", "tokens a step", "floor of a step", "the same per token, at best")
    return Table("Three drafted tokens (llama-3-70b, 8 x h200_sxm, batch 1)", head, tuple(rows))


def _below(lower: pd.DataFrame) -> Table:
    rows = tuple(
        (str(group), str(len(part)), times(float((part["value"] / part["floor"]).min())))
        for group, part in lower.groupby("group")
    )
    return Table(
        "Measured below the floor", ("model and chip", "rows", "lowest, of the floor"), rows
    )


CLAIMS = (
    Claim(
        2,
        "A decode step cannot be faster than loading the weights it must touch, and batching does "
        "not lower that floor.",
        (
            "dse claims 2",
            "dse estimate --model llama-3-70b --chip h200_sxm --tp 8 --concurrency 1",
        ),
        "Contradicted where one sampled step is predicted below its floor, or a larger batch "
        f"lowers a floor; else confirmed where at most {RARE:.0%} of the measured steps lie below "
        "theirs, qualified where more do.",
        find,
    ),
)
