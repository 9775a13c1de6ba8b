"""One instance in parts: pipeline stages, and pools of their own for prefill and decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dse.errors import NothingFeasible
from dse.problem.describe import number
from dse.problem.instances import Subject, evaluated
from dse.problem.paired import best_pairs, decode_pool, prefill_pool, with_degrees
from dse.questions.scale.sizes import Size, division_of, rows_of
from dse.schema.metrics import Limit
from dse.space.deployments import Deployments, divisors


@dataclass(frozen=True, slots=True)
class Pooled:
    """The best design of at most `chips` chips within the limits, which takes `used`: so many
    workers, each divided so. `of_best` is its output a chip over that of the best instance of as
    many chips at most, None where none keeps the limits."""

    chips: int
    used: int
    prefill_workers: int
    prefill_division: str
    decode_workers: int
    decode_division: str
    in_flight: float
    tpot_s: float
    ttft_s: float
    output_tokens_per_s_per_chip: float
    usd_per_million_total_tokens: float | None
    of_best: float | None


def pooled(
    first: Subject,
    second: Subject,
    degrees: Mapping[str, Any],
    sizes: Sequence[Size],
    limits: Sequence[Limit],
) -> list[Pooled]:
    """A row for each size that two pools fit; prefill workers are `first`, with these degrees.
    Raises NothingFeasible where no two workers keep the limits."""
    chips = [row.chips for row in sizes]
    before = prefill_pool(first, with_degrees(first.divided(chips), degrees), limits)
    after = decode_pool(second, second.divided(chips), limits)
    rows: list[Pooled] = []
    best = 0.0
    for size, pair in zip(sizes, best_pairs(before, after, chips, limits), strict=True):
        if size.within is not None:
            best = max(best, size.within.output_tokens_per_s_per_chip)
        if pair is None:
            continue
        rate, usd = pair.output_tokens_per_s / pair.chips, pair.usd_per_million_total_tokens
        rows.append(
            Pooled(
                size.chips,
                pair.chips,
                pair.a,
                division_of(before.table, pair.prefill),
                pair.b,
                division_of(after.table, pair.decode),
                pair.in_flight,
                pair.tpot_s,
                pair.ttft_s,
                rate,
                number(usd),
                rate / best if best else None,
            )
        )
    if not rows:
        raise NothingFeasible(
            f"no prefill worker on {first.chip} and decode worker on {second.chip} keep the limits "
            f"together on {chips[-1]} chips or fewer; other degrees, limits or --chips-up-to may"
        )
    return rows


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


def pipeline_latency(subject: Subject) -> list[Stages]:
    """One request at a fixed tensor parallelism over 1, 2, 4, 8 stages; those beyond the layers, or
    that need a link of unknown bandwidth, are left out. The tensor parallelism is the smallest at
    which the model fits without stages, else the largest legal one in the domain."""
    tensor = _smallest(subject)
    layers = int(subject.one.layers[0])
    counts = [
        count
        for count in STAGES
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
