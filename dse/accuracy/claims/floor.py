"""A decode step is never faster than reading what it must touch."""

from __future__ import annotations

import numpy as np

from dse.accuracy.claims.engine import Cell, Given, Measured, Rows
from dse.accuracy.claims.points import (
    Point,
    models,
    predict,
    predicted_rows,
    smallest,
    usable_chips,
)

SAMPLE, SEED = 20_000, 5
BATCHES = (1.0, 8.0, 64.0, 512.0)
ROUNDING = 1e-9
EXAMPLES = (Point("llama-3-70b", "h200_sxm", 8), Point("deepseek-v3", "h200_sxm", 8, ep=8))


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


def find(given: Given) -> Measured:
    points = sample()
    answer = predict(points, serving="static")
    alone = predict([point._replace(concurrency=1.0) for point in points], serving="static")
    ok = answer.feasible
    over = (answer["decode_step_s"] / answer["latency_floor_s"])[ok]
    floors = (answer["latency_floor_s"] / alone["latency_floor_s"])[ok]
    rows = predicted_rows()
    rows = rows[rows["metric"].isin(["decode_step_s", "tpot_s"])]
    measured = rows["value"] / rows["floor"]
    lower = measured[measured < 1.0].groupby(rows["group"])
    figures = {
        "sampled": float(ok.sum()),
        "below_floor": float((over < 1.0 - ROUNDING).mean()),
        "least_step_over_floor": float(over.min()),
        "median_step_over_floor": float(np.median(over)),
        "floor_lowered_by_batch": float((floors < 1.0 - ROUNDING).mean()),
        "measured_rows": float(len(rows)),
        "measured_below_floor": float((measured < 1.0).mean()),
        "measured_median_over_floor": float(measured.median()),
    }
    below = [(group, len(part), part.min()) for group, part in lower]
    return Measured(
        figures,
        (_batches(), _speculation(), below),
        {"lower": sum(count for _, count, _ in below)},
    )


def _batches() -> Rows:
    points = [point._replace(concurrency=batch) for point in EXAMPLES for batch in BATCHES]
    answer = predict(points, serving="static")
    return [
        (
            f"{point.model}, {point.tp:g} x {point.chip}",
            point.concurrency,
            _experts(point),
            answer.decode["touched_bytes"][k],
            answer["latency_floor_s"][k],
            answer["decode_step_s"][k],
        )
        for k, point in enumerate(points)
    ]


def _experts(point: Point) -> Cell:
    """E T k / (E - k + T k) of E experts that T tokens touch, k each (docs/physics.md)."""
    for block in models()[point.model].blocks:
        if "experts" in block.sizes:
            experts, top = block.sizes["experts"], block.sizes["experts_per_token"]
            routed = point.concurrency * top
            return experts * routed / (experts - top + routed), experts
    return None


def _speculation() -> Rows:
    """A step yields several tokens where drafts pass: the floor holds for the step."""
    floor = predict([EXAMPLES[0]], serving="static")["latency_floor_s"][0]
    return [
        (accepted, tokens, floor, floor / tokens)
        for accepted in (0.0, 0.6, 0.8)
        for tokens in ((1.0 - accepted**4) / (1.0 - accepted),)
    ]
