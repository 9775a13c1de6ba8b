"""A step takes the slower of its memory and its compute time."""

from __future__ import annotations

from functools import cache

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import (
    Answer,
    Point,
    is_sparse,
    models,
    predict,
    predicted_rows,
    smallest,
    usable_chips,
)

PROMPT = 2048.0
BATCHES = (1.0, 8.0, 32.0, 128.0, 512.0)
PROMPTS = (128.0, 512.0, 2048.0, 8192.0)


@cache
def fitting() -> tuple[Point, ...]:
    """Every model on every chip, on the smallest group that holds it."""
    return tuple(smallest(list(models()), usable_chips()))


def at_batch(batch: float, prompt: float = PROMPT) -> Answer:
    points = [point._replace(concurrency=batch) for point in fitting()]
    return predict(points, prompt, serving="static")


def find(given: Given) -> Measured:
    sparse = np.array([is_sparse(point.model) for point in fitting()])
    figures, decodes, prefills = {}, [], []
    roofline = {}
    for batch in BATCHES:
        answer = at_batch(batch)
        memory, shares = _slower(answer, "decode", "memory"), answer.largest_shares("decode")
        each = (answer.share(memory, ~sparse), answer.share(memory, sparse))
        decodes.append((batch, answer.feasible.sum(), *each, *shares))
        if batch in (1.0, 32.0):
            figures[f"decode_memory_share_batch_{batch:g}"] = answer.share(memory)
            roofline[f"decode_largest_is_roofline_batch_{batch:g}"] = _roofline(answer, "decode")
    for prompt in PROMPTS:
        answer = at_batch(1.0, prompt)
        compute = answer.share(_slower(answer, "prefill", "compute"))
        shares = answer.largest_shares("prefill")
        prefills.append((prompt, answer.feasible.sum(), compute, *shares))
        if prompt == PROMPT:
            figures["prefill_compute_share"] = compute
            roofline["prefill_largest_is_roofline"] = _roofline(answer, "prefill")
    measured, more = _measured()
    least = min(share for name, share in figures.items() if name.startswith("decode"))
    return Measured(
        figures | roofline | more,
        (decodes, prefills, measured),
        {
            "decode_least": least,
            "largest_least": min(roofline.values()),
            "neither": 1.0 - roofline["decode_largest_is_roofline_batch_1"],
            "models": len(models()),
            "chips": len({point.chip for point in fitting()}),
        },
    )


def _slower(answer: Answer, phase: str, part: str) -> np.ndarray:
    """(n,) whether memory takes longer than compute, or compute than memory."""
    parts = getattr(answer, phase)
    other = "compute" if part == "memory" else "memory"
    return parts[part] > parts[other]


def _roofline(answer: Answer, phase: str) -> float:
    """The share in which memory or compute is the largest cause."""
    return answer.share(np.isin(answer.largest(phase), ("compute", "memory")))


def _measured() -> tuple[Rows, dict[str, float]]:
    rows, figures, cells = predicted_rows(), {}, []
    for name, metrics in (("decode", ("decode_step_s", "tpot_s")), ("prefill", ("prefill_s",))):
        mine = rows[rows["metric"].isin(metrics)]
        over = (mine["value"] / mine["floor"]).to_numpy()
        middle = np.quantile(over, (0.1, 0.5, 0.9))
        figures[f"measured_{name}_over_floor"] = float(middle[1])
        cells.append((name, len(over), *middle))
    return cells, figures
