"""A step takes the slower of its memory and its compute time."""

from __future__ import annotations

from functools import cache

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.accuracy.claims.points import (
    PARTS,
    Answer,
    Point,
    is_sparse,
    models,
    predict,
    predicted_rows,
    smallest,
    usable_chips,
)
from dse.answer.numbers import percent, times

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


def _decode_row(batch: float, answer: Answer) -> tuple[str, ...]:
    fits = answer.feasible
    sparse = np.array([is_sparse(point.model) for point in answer.points])
    memory = answer.decode["memory"] > answer.decode["compute"]
    largest = answer.largest("decode")[fits]
    return (
        f"{batch:g}",
        f"{fits.sum():,}",
        *(percent(float(memory[fits & rows].mean())) for rows in (~sparse, sparse)),
        *(percent(float((largest == part).mean())) for part in PARTS),
    )


def _prefill_row(prompt: float, answer: Answer) -> tuple[str, ...]:
    fits = answer.feasible
    compute = (answer.prefill["compute"] > answer.prefill["memory"])[fits]
    largest = answer.largest("prefill")[fits]
    shares = (percent(float((largest == part).mean())) for part in PARTS)
    return (f"{prompt:g}", f"{fits.sum():,}", percent(float(compute.mean())), *shares)


def _measured() -> tuple[Rows, dict[str, float]]:
    rows, figures, cells = predicted_rows(), {}, []
    for name, metrics in (("decode", ("decode_step_s", "tpot_s")), ("prefill", ("prefill_s",))):
        mine = rows[rows["metric"].isin(metrics)]
        over = (mine["value"] / mine["floor"]).to_numpy()
        middle = [float(np.quantile(over, share)) for share in (0.1, 0.5, 0.9)]
        figures[f"measured_{name}_over_floor"] = middle[1]
        cells.append((name, f"{len(over):,}", *(times(value) for value in middle)))
    return (tuple(cells), figures)


def find(given: Given) -> Measured:
    answers = {batch: at_batch(batch) for batch in BATCHES}
    one, some = answers[1.0], answers[32.0]

    def share(answer: Answer, truth: np.ndarray) -> float:
        return float(truth[answer.feasible].mean())

    figures = {
        "decode_memory_share_batch_1": share(one, one.decode["memory"] > one.decode["compute"]),
        "decode_memory_share_batch_32": share(some, some.decode["memory"] > some.decode["compute"]),
        "prefill_compute_share": share(one, one.prefill["compute"] > one.prefill["memory"]),
        "decode_largest_is_roofline_batch_1": share(one, _roofline(one, "decode")),
        "decode_largest_is_roofline_batch_32": share(some, _roofline(some, "decode")),
        "prefill_largest_is_roofline": share(one, _roofline(one, "prefill")),
    }
    measured, more = _measured()
    prefills = [(prompt, one if prompt == PROMPT else at_batch(1.0, prompt)) for prompt in PROMPTS]
    tuple(f"{part} is largest" for part in PARTS)
    return Measured(
        figures | more,
        (
            tuple((_decode_row(batch, answer) for batch, answer in answers.items())),
            tuple((_prefill_row(prompt, answer) for prompt, answer in prefills)),
            measured,
        ),
        {
            "decode_least": min(
                figures["decode_memory_share_batch_1"], figures["decode_memory_share_batch_32"]
            ),
            "largest_least": min((value for name, value in figures.items() if "largest" in name)),
            "neither": 1.0 - figures["decode_largest_is_roofline_batch_1"],
            "models": len(models()),
            "chips": len({point.chip for point in fitting()}),
        },
    )


def _roofline(answer: Answer, phase: str) -> np.ndarray:
    """(n,) whether memory or compute is the largest cause."""
    return np.isin(answer.largest(phase), ("compute", "memory"))
