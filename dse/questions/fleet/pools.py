"""Options whose prefill and decode are on pools of their own, of one chip or of two
(`dse.physics.disaggregated`): small pools, which the program takes as many times as it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.economics.fleet_cost import Option
from dse.physics.collectives import network_of
from dse.physics.disaggregated import predict_disaggregated
from dse.questions.scale.sizes import Point
from dse.questions.scale.subject import Subject, batch_at, degrees_of
from dse.questions.scale.words import division
from dse.space.candidates import CandidateBatch, Floats

if TYPE_CHECKING:
    from dse.questions.fleet.options import Served

WORKERS = (1, 2, 3)
LOADS = 14  # doublings of the requests in flight that are tried
KEPT = 8  # pools of a pair of chips that the program may choose from

Progress = Callable[[str], None]


def pool_options(
    served: Sequence[Served], sizes: Mapping[str, set[int]], progress: Progress
) -> list[Option]:
    """For every class, model, formats and ordered pair of chips, at most KEPT pools of workers of
    `sizes` by chip."""
    found: list[Option] = []
    for first, second in product(served, served):
        same = first.klass is second.klass and first.formats == second.formats
        if same and first.subject.model is second.subject.model:
            progress(f"{first.klass.name}: {first.subject.chip} before {second.subject.chip}")
            found += _pair(first, second, sizes)
    return found


def _pair(first: Served, second: Served, sizes: Mapping[str, set[int]]) -> list[Option]:
    one = first.klass
    points = [
        [point for point in row.points if point.chips in sizes[row.subject.chip]]
        for row in (first, second)
    ]
    rows = [
        (a, b, workers, others, load)
        for a, b in product(*points)
        for workers, others in product(WORKERS, WORKERS)
        if np.gcd(workers, others) == 1
        for load in (others * b.data_parallel * 2.0**k for k in range(LOADS))
    ]
    if not rows:
        return []
    prefill = _batch(first.subject, [(a, n, load) for a, _, n, _, load in rows])
    decode = _batch(second.subject, [(b, n, load) for _, b, _, n, load in rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        of = predict_disaggregated(
            prefill, decode, first.subject.workload, first.subject.machines, second.subject.machines
        )
    within = (of.ttft_s <= one.ttft_s) & (of.tpot_s <= one.tpot_s)
    within &= np.isfinite(of.requests_per_s)
    chips = prefill.chips + decode.chips
    within &= _joined(first.subject, chips) & _joined(second.subject, chips)
    order = np.argsort(-np.where(within, of.requests_per_s / chips, -1.0), kind="stable")
    found: list[Option] = []
    seen: set[tuple[int, int]] = set()
    for i in order[within[order]]:
        a, b, workers, others, load = rows[i]
        split = workers * a.chips, others * b.chips
        if split in seen:
            continue
        seen.add(split)
        uses: dict[str, int] = {}
        for row, n in zip((first, second), split, strict=True):
            uses[row.subject.chip] = uses.get(row.subject.chip, 0) + n
        found.append(
            Option(
                klass=one.name,
                model=first.subject.model.name,
                chips=uses,
                requests_per_s=float(of.requests_per_s[i]),
                ttft_s=float(of.ttft_s[i]),
                tpot_s=float(of.tpot_s[i]),
                label=(
                    f"prefill on {split[0]} x {first.subject.chip}, decode on "
                    f"{split[1]} x {second.subject.chip}"
                ),
                detail={
                    "percentile": None,
                    "formats": first.formats,
                    "division": (
                        f"prefill {workers} x ({division(a)}), decode {others} x ({division(b)})"
                    ),
                    "concurrency": int(load),
                    "bound": "pools",
                    "kind": a.kind if a.kind == b.kind else f"{a.kind}, {b.kind}",
                },
            )
        )
        if len(found) == KEPT:
            break
    return found


def _batch(subject: Subject, rows: Sequence[tuple[Point, int, float]]) -> CandidateBatch:
    """Workers of a point each, with requests in flight over all of them."""
    degrees = degrees_of([point.degrees for point, _, _ in rows])
    replicas = np.array([float(workers) for _, workers, _ in rows])
    load = np.array([load for _, _, load in rows])
    return batch_at(subject, degrees, load, replicas)


def _joined(subject: Subject, chips: Floats) -> NDArray[np.bool_]:
    """(n,) whether the network that the cache crosses has a bandwidth."""
    chip = np.zeros(len(chips), dtype=np.intp)
    return network_of(subject.machines.fabric, chip, chips)[1] > 0.0
