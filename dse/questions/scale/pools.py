"""Prefill and decode on pools of their own, by the chips of both: from what size on they serve
more a chip than instances that do both (`dse.problem.paired`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.errors import NothingFeasible
from dse.problem.describe import number
from dse.problem.instances import Subject
from dse.problem.paired import best_pairs, decode_pool, prefill_pool, with_degrees
from dse.questions.scale.sizes import Size, division_of
from dse.schema.metrics import Limit


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
