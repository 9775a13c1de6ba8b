"""Options whose prefill and decode are on pools of their own, of one chip or of two
(`dse.physics.disaggregated`): small pools, which the program takes as many times as it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.economics.fleet_cost import Option
from dse.physics.collectives import network_of
from dse.physics.disaggregated import predict_disaggregated
from dse.problem.instances import Subject, batch_at
from dse.questions.scale.sizes import Progress, divisions
from dse.space.candidates import Floats
from dse.space.deployments import Deployments

if TYPE_CHECKING:
    from dse.questions.fleet.options import Served

WORKERS = (1, 2, 3)
LOADS = 14  # doublings of the requests in flight that are tried
KEPT = 8  # pools of a pair of chips that the program may choose from


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
    if not all(points):
        return []
    before, after = map(divisions, points)
    pools = Deployments.of(
        prefill=range(len(before)),
        decode=range(len(after)),
        prefill_workers=WORKERS,
        decode_workers=WORKERS,
    )
    pools = pools.where(lambda t: np.gcd(t["prefill_workers"], t["decode_workers"]) == 1)
    pools = pools.cross(per_rank=np.exp2(np.arange(LOADS)))
    before, after = before.take(pools["prefill"]), after.take(pools["decode"])
    workers, others = pools["prefill_workers"], pools["decode_workers"]
    load = others * after["data_parallel"] * pools["per_rank"]
    prefill = batch_at(first.subject, before, load, workers)
    decode = batch_at(second.subject, after, load, others)
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
        split = int(prefill.chips[i]), int(decode.chips[i])
        if split in seen:
            continue
        seen.add(split)
        a, b = points[0][pools["prefill"][i]], points[1][pools["decode"][i]]
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
                        f"prefill {workers[i]} x ({a.division}), "
                        f"decode {others[i]} x ({b.division})"
                    ),
                    "concurrency": int(load[i]),
                    "bound": "pools",
                    "kind": a.kind if a.kind == b.kind else f"{a.kind}, {b.kind}",
                },
            )
        )
        if len(found) == KEPT:
            break
    return found


def _joined(subject: Subject, chips: Floats) -> NDArray[np.bool_]:
    """(n,) whether the network that the cache crosses has a bandwidth."""
    chip = np.zeros(len(chips), dtype=np.intp)
    return network_of(subject.machines.fabric, chip, chips)[1] > 0.0
