"""Workers of prefill and of decode pools, each put through the physics once, as tables that
`dse.problem.pools` joins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dse.physics.disaggregated import (
    DecodeWorkers,
    PrefillWorkers,
    Workers,
    admitted_workers,
    prefill_workers,
)
from dse.physics.energy import PhaseEnergy
from dse.physics.phases import Case, case_of
from dse.physics.serving import BOTTLENECKS
from dse.physics.step import Step
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics
from dse.record import record
from dse.schema.metrics import Limit
from dse.space.candidates import CandidateBatch, Floats, Rows

BOUND = "bottleneck"  # of a worker, index into BOTTLENECKS
W = TypeVar("W", PrefillWorkers, DecodeWorkers)


@record
class Side(Rows, Generic[W]):
    """Workers of one pool, (n,): `amounts` by the place of a rule, of those that are not 0 for all,
    `chip` the code of its chips, `price` of a chip-hour, `kv` the code of its cache's format,
    `busy` the most that it may be, a share; `own` metrics that it has by itself, `known` how
    (`Metrics.provenance`), `limited`, by their place, the amounts of those limits of the user that
    it breaks with whatever partner; of a `dead` worker no design is feasible."""

    workers: W
    amounts: Mapping[int, Floats]
    chip: NDArray[np.intp]
    price: Floats
    kv: NDArray[np.intp]
    busy: Floats
    own: Mapping[str, Floats]
    known: NDArray[np.intp]
    limited: Mapping[int, Floats]
    dead: NDArray[np.bool_]


def side_of(
    pool: str,
    batch: CandidateBatch,
    metrics: Metrics,
    load: Workload,
    busy: Floats,
    names: Iterable[str],
    limits: Sequence[Limit],
) -> Side[Any]:
    """The candidates as workers of a pool, `busy` (n,) at most, with the metrics of `names`."""
    machines = metrics.case.machines
    assert machines is not None
    case = case_of(batch, load, machines)
    workers: Any
    with np.errstate(divide="ignore", invalid="ignore"):
        workers, _, more = prefill_step(case) if pool == "prefill" else decode_step(case)
    own = {name: metrics.values[name] for name in names} | more
    amounts = _not_zero(metrics.violations.values())
    limited = _limited(workers, limits)
    gone = np.zeros(len(batch), dtype=bool)
    for one in (*amounts.values(), *limited.values()):
        gone |= one > 0.0
    return Side(
        workers,
        amounts,
        batch.chip,
        machines.usd_per_chip_hour[batch.chip],
        batch.kv_dtype,
        busy,
        own,
        metrics.provenance,
        limited,
        gone,
    )


def _limited(workers: PrefillWorkers | DecodeWorkers, limits: Sequence[Limit]) -> dict[int, Floats]:
    """(n,) by how much a worker breaks a limit by itself, at least, by the limit's place: the time
    per token is the decode worker's, and no prompt has its first token before its prefill."""
    least: dict[str, Floats]
    if isinstance(workers, DecodeWorkers):
        least = {"tpot_s": workers.tpot_s, "decode_step_s": workers.step_s}
    else:
        least = dict.fromkeys(("ttft_s", "prefill_s", "e2e_s"), workers.alone_s)
    none = np.zeros(len(workers.chips))
    return _not_zero(
        np.maximum(least[limit.metric] / limit.limit - 1.0, 0.0)
        if limit.metric in least and limit.sign > 0.0
        else none
        for limit in limits
    )


def _not_zero(amounts: Iterable[Floats]) -> dict[int, Floats]:
    return {k: amount for k, amount in enumerate(amounts) if amount.any()}


def prefill_step(case: Case) -> tuple[PrefillWorkers, Step, dict[str, Floats]]:
    workers, step = prefill_workers(case)
    return (
        workers,
        step,
        {
            "mfu": step.ledger.floor_compute_s / step.ledger.seconds,
            BOUND: _bound(step, workers.alone_s, BOTTLENECKS.index("prefill: compute")),
        },
    )


def decode_step(case: Case) -> tuple[DecodeWorkers, Step, dict[str, Floats]]:
    """Of so many requests as memory and the backend's cap for a rank admit."""
    batch, memory = case.deployed.batch, case.memory
    workers, step = admitted_workers(case, batch.concurrency)
    cache = memory.kv_reserved * np.ceil(workers.running / batch.data_parallel)
    return (
        workers,
        step,
        {
            "latency_floor_s": step.ledger.floor_s,
            "mbu": step.ledger.floor_memory_s / workers.step_s,
            "memory_bytes_per_chip": memory.base + cache,
            "memory_kv_cache_bytes_per_chip": cache,
            BOUND: _bound(step, workers.step_s, BOTTLENECKS.index("decode: compute")),
        },
    )


def _bound(step: Step, step_s: Floats, first: int) -> Floats:
    """(n,) index into BOTTLENECKS of the largest part of a step of `step_s`."""
    ledger = step.ledger
    fixed_s = ledger.fixed_s + step_s - ledger.seconds
    parts = (ledger.compute_s, ledger.memory_s, ledger.network_s, fixed_s)
    return first + np.argmax(np.stack(np.broadcast_arrays(*parts)), axis=0).astype(float)


def joined_up(sides: Sequence[Side[Any]]) -> Side[Any]:
    """The workers of all, one behind the other."""

    def of(values: Sequence[Any]) -> Any:
        one = values[0]
        if isinstance(one, np.ndarray):
            return np.concatenate(values)
        if isinstance(one, Mapping):  # an amount that a part has not is 0
            keys = dict.fromkeys(key for value in values for key in value)
            rows = [np.zeros(len(side.price)) for side in sides]
            pairs = list(zip(values, rows, strict=True))
            return {key: np.concatenate([v.get(key, none) for v, none in pairs]) for key in keys}
        if isinstance(one, Workers | PhaseEnergy):
            parts = {f.name: of([getattr(v, f.name) for v in values]) for f in fields(one)}
            return replace(one, **parts)
        return one

    return Side(*(of([getattr(side, f.name) for side in sides]) for f in fields(Side)))
