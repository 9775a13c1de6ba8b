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
from dse.problem.pools import RULES, Joined, Side, W, joined_up, side_of
from dse.schema.metrics import Limit
from dse.space.candidates import Floats
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


@dataclass(frozen=True, slots=True)
class Pair:
    """The design of two pools with the most output tokens a second and chip. `prefill` and `decode`
    are rows of their tables; `a` and `b` workers of them take `chips`. Seconds, requests."""

    prefill: int
    decode: int
    a: int
    b: int
    chips: int
    in_flight: float
    ttft_s: float
    tpot_s: float
    requests_per_s: float
    output_tokens_per_s: float
    usd_per_million_total_tokens: float


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
) -> list[Pair | None]:
    """Of so many chips at most each, the best design within the limits; None where none keeps
    them, or no link is known that the cache could cross."""
    m, n = len(first.table), len(second.table)
    if not m or not n:
        return [None] * len(chips)
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
        rate = np.where(_kept(of, limits), of.met.output_tokens_per_s / of.chips, -1.0)
        usd = of.values["usd_per_million_total_tokens"]
    found: list[Pair | None] = []
    for k in range(len(chips)):
        mine = np.flatnonzero(at == k)
        best = int(mine[np.argmax(rate[mine])]) if len(mine) else -1
        if best < 0 or not rate[best] > 0.0:
            found.append(None)
            continue
        met = (getattr(of.met, name)[best] for name in ("ttft_s", "tpot_s", "requests_per_s"))
        pair = Pair(
            int(i[best]),
            int(j[best]),
            int(of.a[best]),
            int(of.b[best]),
            int(of.chips[best]),
            float(of.in_flight[best]),
            *map(float, met),
            output_tokens_per_s=float(of.met.output_tokens_per_s[best]),
            usd_per_million_total_tokens=float(usd[best]),
        )
        found.append(pair)
    return found


def _kept(of: Joined, limits: Sequence[Limit]) -> NDArray[np.bool_]:
    """(n,) designs that keep RULES and the limits."""
    kept = np.isfinite(of.met.requests_per_s)
    for k in range(len(RULES)):
        kept &= of.violations[k] <= 0.0
    for limit in limits:
        kept &= limit.sign * (of.values[limit.metric] - limit.limit) <= 0.0
    return kept


def _pool(pool: str, subject: Subject, table: Deployments, limits: Sequence[Limit]) -> Pool[Any]:
    """The workers of a table that break nothing by themselves."""
    sides: list[Side[Any]] = []
    for start in range(0, max(len(table), 1), CHUNK):
        part = table.take(slice(start, start + CHUNK))
        batch = batch_at(subject, part.without("concurrency", "step"), part["concurrency"])
        metrics = evaluate(batch, subject.workload, subject.machines)
        # The places of amounts are for those that report them: only whether one is broken counts.
        side = side_of(pool, batch, metrics, subject.workload, np.ones(len(batch)), (), limits)
        sides.append(replace(side, amounts={}, limited={}))
    side = sides[0] if len(sides) == 1 else joined_up(sides)
    alive = np.flatnonzero(~side.dead)
    return Pool(subject, table.take(alive), side.take(alive))


def _best(group: NDArray[Any], value: Floats) -> list[int]:
    """The row of the largest value of each group."""
    order = np.lexsort((-value, group))
    return order[np.unique(group[order], return_index=True)[1]].tolist()
