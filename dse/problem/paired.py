"""Prefill and decode on pools of their own of one model, over every division of a worker: the
questions that look at tables of deployments (`dse.scale`, `dse.fleet`) join them here, as a search
joins those of a space (`dse.problem.pools`).

Of each size of a worker those are kept that can be best: of prefill the most prompts a second and
the fastest prompt alone; of decode, at each load of a rank, FINE to a doubling up to what
memory admits, the most requests a second. Workers that break a rule or a limit by themselves are
dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from dse.physics.disaggregated import DecodeWorkers, PrefillWorkers
from dse.problem.evaluate import evaluate
from dse.problem.instances import CHUNK, Subject, batch_at
from dse.problem.pools import Joined, Side, W, side_of
from dse.schema.metrics import Limit
from dse.space.candidates import Floats, concatenated
from dse.space.deployments import Deployments, finer_ladder

BUSY = (0.6, 0.8, 1.0)  # of the time, at most, that prefill workers are
FINE = 4  # loads of a rank to a doubling


@dataclass(frozen=True, slots=True)
class Pool(Generic[W]):
    """Workers of one pool: row i of `table`, with the column `concurrency`, is worker i of
    `side`."""

    subject: Subject
    table: Deployments
    side: Side[W]

    def take(self, rows: NDArray[np.intp]) -> Pool[W]:
        return Pool(self.subject, self.table.take(rows), self.side.take(rows))


def with_degrees(table: Deployments, given: Mapping[str, Any]) -> Deployments:
    """The rows whose degrees are those `given`, one or several by axis; other axes do not count."""
    return table.where(
        *(
            lambda t, axis=axis: np.isin(t[axis], given[axis])
            for axis in table.columns
            if axis in given
        )
    )


def prefill_pool(
    subject: Subject, table: Deployments, limits: Sequence[Limit]
) -> Pool[PrefillWorkers]:
    """The prefill workers of a table of divisions; `limits` are those of a design."""
    found: Pool[PrefillWorkers] = _pool(
        "prefill", subject, table.with_columns(concurrency=table["data_parallel"]), limits
    )
    workers, chips = found.side.workers, found.table.chips
    best = _best(chips, workers.prompts_per_s) + _best(chips, -workers.alone_s)
    rows = np.repeat(np.unique(np.array(best, dtype=np.intp)), len(BUSY))
    kept = found.take(rows)
    return replace(kept, side=replace(kept.side, busy=np.tile(BUSY, len(rows) // len(BUSY))))


def decode_pool(
    subject: Subject, table: Deployments, limits: Sequence[Limit]
) -> Pool[DecodeWorkers]:
    """The decode workers of a table of divisions, at every load."""
    one = table.with_columns(concurrency=table["data_parallel"])
    alone: Pool[DecodeWorkers] = _pool("decode", subject, one, limits)
    if not len(alone.table):
        return alone
    table = alone.table
    metrics = evaluate(
        batch_at(subject, table, table["concurrency"]), subject.workload, subject.machines
    )
    admitted = metrics.performance.memory.admitted / table["data_parallel"]
    most = np.maximum(np.floor(admitted), 1.0)
    steps = FINE * (int(np.ceil(np.log2(most.max()))) + 1)
    loads = finer_ladder(np.ones(len(most)), most, steps, FINE)
    every = table.take(np.repeat(np.arange(len(table)), loads.shape[1]))
    step = np.tile(np.arange(loads.shape[1]), len(table))
    every = every.with_columns(concurrency=loads.ravel() * every["data_parallel"], step=step)
    found: Pool[DecodeWorkers] = _pool("decode", subject, every, limits)
    group = found.table.chips * loads.shape[1] + found.table["step"]
    return found.take(np.array(_best(group, found.side.workers.requests_per_s), dtype=np.intp))


def best_pairs(
    first: Pool[PrefillWorkers],
    second: Pool[DecodeWorkers],
    chips: Sequence[int],
    limits: Sequence[Limit],
) -> list[dict[str, Any] | None]:
    """Of so many chips at most each, the design of two pools within the limits with the most output
    tokens a second and chip; None where none keeps them, or no link is known that the cache could
    cross. A design has its `chips`, `concurrency` over both pools and metrics under keys of the
    vocabulary; `prefill` and `decode` are rows of the tables, of which `prefill_workers` and
    `decode_workers` workers take the chips."""
    m, n = len(first.table), len(second.table)
    i, j = np.repeat(np.arange(m), n), np.tile(np.arange(n), m)
    needs = first.table.chips[i] + second.table.chips[j]
    fits = [np.flatnonzero(needs <= most) for most in chips]
    rows, at = np.concatenate(fits), np.repeat(np.arange(len(chips)), [len(one) for one in fits])
    if not len(rows):
        return [None] * len(chips)
    i, j = i[rows], j[rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        all_of = np.asarray(chips, dtype=float)[at]
        of = Joined(first.side.take(i), second.side.take(j), all_of, second.subject.workload, 0)
        kept = np.isfinite(of.met.requests_per_s)
        for amount in of.violations.values():
            kept &= amount <= 0.0
        for limit in limits:
            kept &= limit.sign * (of.values[limit.metric] - limit.limit) <= 0.0
        rate = np.where(kept, of.met.output_tokens_per_s / of.chips, -1.0)
        usd = of.values["usd_per_million_total_tokens"]
    columns = {
        "prefill": i,
        "decode": j,
        "prefill_workers": of.a.astype(int),
        "decode_workers": of.b.astype(int),
        "chips": of.chips.astype(int),
        "concurrency": of.in_flight,
        "ttft_s": of.met.ttft_s,
        "tpot_s": of.met.tpot_s,
        "requests_per_s": of.met.requests_per_s,
        "output_tokens_per_s": of.met.output_tokens_per_s,
        "usd_per_million_total_tokens": usd,
    }
    found: list[dict[str, Any] | None] = []
    for k in range(len(chips)):
        mine = np.flatnonzero(at == k)
        best = int(mine[np.argmax(rate[mine])]) if len(mine) else -1
        good = best >= 0 and rate[best] > 0.0
        found.append({name: one[best].item() for name, one in columns.items()} if good else None)
    return found


def _pool(pool: str, subject: Subject, table: Deployments, limits: Sequence[Limit]) -> Pool[Any]:
    """The workers of a table that break nothing by themselves."""
    sides: list[Side[Any]] = []
    sizes: list[int] = []
    for start in range(0, max(len(table), 1), CHUNK):
        part = table.take(slice(start, start + CHUNK))
        batch = batch_at(subject, part.without("concurrency", "step"), part["concurrency"])
        metrics = evaluate(batch, subject.workload, subject.machines)
        # The places of amounts are for those that report them: only whether one is broken counts.
        side = side_of(pool, batch, metrics, subject.workload, np.ones(len(batch)), (), limits)
        sides.append(replace(side, amounts={}, limited={}))
        sizes.append(len(batch))
    side = concatenated(sides, sizes)
    alive = np.flatnonzero(~side.dead)
    return Pool(subject, table.take(alive), side.take(alive))


def _best(group: NDArray[Any], value: Floats) -> list[int]:
    """The row of the largest value of each group."""
    order = np.lexsort((-value, group))
    return order[np.unique(group[order], return_index=True)[1]].tolist()
