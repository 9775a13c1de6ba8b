"""Claim 1: a step takes the slower of its memory and its compute time."""

from __future__ import annotations

from functools import cache

import numpy as np

from dse.accuracy.claims.frame import (
    CONFIRMED,
    CONTRADICTED,
    QUALIFIED,
    Claim,
    Finding,
    Table,
)
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
USUALLY, NEARLY_ALWAYS = 0.75, 0.9


def judge(decode: float, prefill: float, explained: float) -> str:
    """`decode`, `prefill`: shares on the expected side of the roofline; `explained`: share of steps
    in which memory or compute, not overhead or network, is the largest cause."""
    if decode < USUALLY or prefill < USUALLY:
        return CONTRADICTED
    return CONFIRMED if explained >= NEARLY_ALWAYS else QUALIFIED


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


def _measured() -> tuple[Table, dict[str, float]]:
    rows, figures, cells = predicted_rows(), {}, []
    for name, metrics in (("decode", ("decode_step_s", "tpot_s")), ("prefill", ("prefill_s",))):
        mine = rows[rows["metric"].isin(metrics)]
        over = (mine["value"] / mine["floor"]).to_numpy()
        middle = [float(np.quantile(over, share)) for share in (0.1, 0.5, 0.9)]
        figures[f"measured_{name}_over_floor"] = middle[1]
        cells.append((name, f"{len(over):,}", *(times(value) for value in middle)))
    head = ("step", "measured rows", "10th percentile", "median", "90th percentile")
    return Table("Measured time over the roofline floor", head, tuple(cells)), figures


def find() -> Finding:
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
    verdict = judge(
        min(figures["decode_memory_share_batch_1"], figures["decode_memory_share_batch_32"]),
        figures["prefill_compute_share"],
        min(value for name, value in figures.items() if "largest" in name),
    )
    measured, more = _measured()
    prefills = [(prompt, one if prompt == PROMPT else at_batch(1.0, prompt)) for prompt in PROMPTS]
    parts = tuple(f"{part} is largest" for part in PARTS)
    return Finding(
        verdict,
        f"memory time exceeds compute time in {percent(figures['decode_memory_share_batch_1'])} of "
        f"decode steps at batch 1, {percent(figures['decode_memory_share_batch_32'])} at batch 32; "
        f"compute exceeds memory in {percent(figures['prefill_compute_share'])} of prefills; at "
        f"batch 1, {percent(1.0 - figures['decode_largest_is_roofline_batch_1'])} of steps are set "
        "by neither, but by launches or the network",
        figures | more,
        f"{len(models())} models on {len({point.chip for point in fitting()})} chips, each on the "
        "smallest tensor-parallel group of its scale-up domain that holds it (up to 64 chips), in "
        "the checkpoint's formats; prompt 2,048, output 512 tokens; a static batch.",
        (
            Table(
                "Decode steps: memory time above compute time, and the largest of four causes",
                ("batch", "pairs that fit", "memory-bound, dense", "memory-bound, sparse", *parts),
                tuple(_decode_row(batch, answer) for batch, answer in answers.items()),
            ),
            Table(
                "Prefill of one prompt",
                ("prompt tokens", "pairs that fit", "compute-bound", *parts),
                tuple(_prefill_row(prompt, answer) for prompt, answer in prefills),
            ),
            measured,
        ),
        "Peaks and bandwidths are specifications, kernel efficiencies fitted, derived or assumed "
        "by chip; no measured row says which side of the roofline bound it, only its time does.",
        "Where it does not hold: small models on fast chips (launches), groups on slow links "
        "(network), large batches of short contexts (compute), short prompts of sparse models "
        "(memory). Overlap of the two times is in the kernel laws, of network and kernels nowhere.",
    )


def _roofline(answer: Answer, phase: str) -> np.ndarray:
    """(n,) whether memory or compute is the largest cause."""
    return np.isin(answer.largest(phase), ("compute", "memory"))


CLAIMS = (
    Claim(
        1,
        "The time of a language model is the slower of memory time and compute time; decode is "
        "usually bound by memory, prefill by compute.",
        ("dse claims 1", "dse explain --model llama-3-70b --chip h100_sxm --tp 8"),
        f"Confirmed where memory time exceeds compute time in at least {USUALLY:.0%} of decode "
        f"steps at batch 1 and 32, compute time exceeds memory time in {USUALLY:.0%} of prefills "
        f"of 2,048 tokens, and one of the two is the largest cause in {NEARLY_ALWAYS:.0%} of each; "
        "qualified where the last fails; contradicted where one of the first two fails.",
        find,
    ),
)
