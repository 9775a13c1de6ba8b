"""One request over pipeline stages: what they give it, and what the same chips give as tensor
parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dse.problem.describe import number
from dse.problem.instances import Subject, evaluated
from dse.questions.scale.sizes import rows_of
from dse.space.deployments import Deployments, divisors

STAGES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Stages:
    """One request on `pipeline_parallel` stages of `tensor_parallel` chips. `fits`: its weights and
    cache fit. `tpot_ratio` is the time per output token over that of the first row.
    `tensor_tpot_s` is the time where the same chips are one tensor-parallel group; None where that
    is not legal."""

    tensor_parallel: int
    pipeline_parallel: int
    chips: int
    fits: bool
    tpot_s: float
    tpot_ratio: float
    ttft_s: float
    memory_bytes_per_chip: float
    tensor_tpot_s: float | None


def pipeline_latency(
    subject: Subject, *, stages: Sequence[int] = STAGES, tensor_parallel: int | None = None
) -> list[Stages]:
    """One request at a fixed tensor parallelism over 1, 2, 4, 8 stages; those beyond the layers, or
    that need a link of unknown bandwidth, are left out. The tensor parallelism is the smallest at
    which the model fits without stages, else the largest legal one in the domain."""
    tensor = tensor_parallel or _smallest(subject)
    layers = int(subject.one.layers[0])
    counts = [
        count
        for count in stages
        if count <= layers and subject.catalog.refusal(subject.chip, tensor * count) is None
    ]
    stages_of = Deployments.of(
        tensor_parallel=tensor, pipeline_parallel=counts, redundant_experts=0
    )
    staged = evaluated(subject, stages_of)
    flat = evaluated(subject, _tensor_alone(stages_of.chips))
    return rows_of(
        Stages,
        tensor_parallel=[tensor] * len(counts),
        pipeline_parallel=counts,
        chips=[tensor * count for count in counts],
        fits=staged.memory <= 0.0,
        tpot_s=staged.tpot_s,
        tpot_ratio=staged.tpot_s / staged.tpot_s[0],
        ttft_s=staged.ttft_s,
        memory_bytes_per_chip=staged.memory_bytes,
        tensor_tpot_s=[number(tpot_s) for tpot_s in np.where(flat.rule < 0, flat.tpot_s, np.nan)],
    )


def _smallest(subject: Subject) -> int:
    choices = [
        chips
        for chips in divisors(subject.domain).tolist()
        if subject.catalog.refusal(subject.chip, chips) is None
    ]
    found = evaluated(subject, _tensor_alone(choices))
    legal, fit = found.rule < 0, np.flatnonzero(found.runs)
    return choices[int(fit[0] if len(fit) else np.flatnonzero(legal)[-1])]


def _tensor_alone(sizes: ArrayLike) -> Deployments:
    return Deployments.of(tensor_parallel=sizes, redundant_experts=0)
