"""Instances of one model on one chip under one workload, and the deployment finder: for each size
of an instance, the best of all legal ways to divide it, in one pool or in two.

Everything is a table of `dse.space.deployments`, a row for each point, with the columns of
`points` under keys of the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dse.catalog import Catalog
from dse.errors import NothingFeasible
from dse.physics.disaggregated import DecodeWorkers, PrefillWorkers
from dse.physics.intervals import interval
from dse.physics.machines import Machines, compile_machines
from dse.physics.phases import layer_imbalance
from dse.physics.serving import BOTTLENECKS
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.problem.pools import Joined, Side, W, side_of
from dse.record import record
from dse.rules.registry import MEANINGS, names
from dse.schema.axes import DEGREES
from dse.schema.backend import KINDS
from dse.schema.metrics import Limit
from dse.schema.model import Model
from dse.space.batches import one_of
from dse.space.candidates import CandidateBatch, Floats, Rows, concatenated
from dse.space.deployments import (
    Deployments,
    divisors,
    finer_ladder,
    instances,
    load_ladder,
    sizes_up_to,
    stacked,
)

CHUNK = 10_000  # candidates whose arrays stay in cache
BOUNDS = ("compute", "memory", "network", "fixed")
MEMORY = "memory_capacity"
UNCAPPED = np.inf


@record
class Subject:
    """One model in one format on one chip under one workload; `machines` holds that chip alone.

    `domain` is the chips of one scale-up domain, `one` the model on one chip, a batch of one;
    `copies` of busy experts are those to try, empty for those of `with_redundant_experts`.
    """

    catalog: Catalog
    model: Model
    chip: str
    workload: Workload
    machines: Machines
    price_basis: str
    domain: int
    one: CandidateBatch
    copies: tuple[int, ...] = ()

    @property
    def experts(self) -> tuple[int, ...]:
        """As `Model.experts`."""
        return self.model.experts

    def divided(self, chips: ArrayLike) -> Deployments:
        """Every way to divide an instance of each of these sizes, legal or not."""
        return instances(chips, int(self.one.layers[0]), self.experts, self.copies)


def subject_of(
    catalog: Catalog,
    model: Model,
    chip: str,
    workload: Workload,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    price_basis: str = "rental_3yr",
    capped: bool = False,
    deployment: Mapping[str, Any] = MappingProxyType({}),
    redundant_experts: Sequence[int] = (),
) -> Subject:
    """Formats are the checkpoint's own where they are not given; `deployment` is what no table of
    deployments changes, but for what is None. Drafts are accepted as the workload says, else as
    published of the model. The backend's cap on running requests of one instance is a setting that
    larger instances would raise, so it is lifted unless `capped`.
    Raises InputError for an unknown chip or price basis, and for a chip without a figure that every
    estimate needs."""
    catalog.require(chip)
    axes = {name: value for name, value in deployment.items() if value is not None}
    if not capped:
        backend = replace(workload.backend, max_running_requests=UNCAPPED)
        workload = replace(workload, backend=backend)
    return Subject(
        catalog=catalog,
        model=model,
        chip=chip,
        workload=workload,
        machines=compile_machines(catalog, [chip], price_basis),
        price_basis=price_basis,
        domain=catalog.systems[catalog.chip(chip).system].levels[0].size or 1,
        one=one_of(model, axes, weight_dtype, kv_dtype),
        copies=tuple(redundant_experts),
    )


@record
class Evaluated(Rows):
    """n points; every array (n,). Seconds; tokens per second; `usd` per million tokens, input and
    output, NaN without a price. `network_share` is that of the decode step, `bound` indexes BOUNDS
    for its largest part. `memory_share` is used / capacity with the cache of one request, `memory`
    that less 1. `rule` is the place of the first other rule that is broken, -1 for none. `admitted`
    are the requests that memory takes at once."""

    tpot_s: Floats
    ttft_s: Floats
    decode_step_s: Floats
    output_tokens_per_s: Floats
    usd: Floats
    network_share: Floats
    bound: NDArray[np.intp]
    bottleneck: NDArray[np.intp]
    memory_bytes: Floats
    memory: Floats
    memory_share: Floats
    rule: NDArray[np.intp]
    admitted: Floats
    provenance: NDArray[np.intp]

    @property
    def runs(self) -> NDArray[np.bool_]:
        """(n,) whether no rule is broken and one request fits the memory."""
        return (self.rule < 0) & (self.memory <= 0.0)


def batch_at(
    subject: Subject,
    table: Deployments,
    concurrency: ArrayLike,
    replicas: ArrayLike = 1.0,
) -> CandidateBatch:
    """The candidates: n deployments with `concurrency` requests in flight over all `replicas`, (n,)
    or one number each."""
    if not subject.experts:
        table = table.without("redundant_experts")
    return table.with_columns(concurrency=concurrency, replicas=replicas).placed(subject.one)


def evaluated(
    subject: Subject,
    table: Deployments,
    concurrency: ArrayLike = 1.0,
    *,
    replicas: ArrayLike = 1.0,
    machines: Machines | None = None,
) -> Evaluated:
    """Puts n instances through the physics, on other `machines` of the same chip where given."""
    batch = batch_at(subject, table, concurrency, replicas)
    parts = [
        _columns(subject, batch[start : start + CHUNK], machines or subject.machines)
        for start in range(0, max(len(batch), 1), CHUNK)
    ]
    return concatenated(parts, [len(part.tpot_s) for part in parts])


def _columns(subject: Subject, batch: CandidateBatch, machines: Machines) -> Evaluated:
    metrics = evaluate(batch, subject.workload, machines)
    performance, values = metrics.performance, metrics.values
    shares = step_shares(metrics, batch)
    return Evaluated(
        tpot_s=values["tpot_s"],
        ttft_s=values["ttft_s"],
        decode_step_s=values["decode_step_s"],
        output_tokens_per_s=values["output_tokens_per_s"],
        usd=values["usd_per_million_total_tokens"],
        network_share=shares[BOUNDS.index("network")],
        bound=np.argmax(np.stack(shares), axis=0),
        bottleneck=np.asarray(performance.detail.bottleneck, dtype=np.intp),
        memory_bytes=values["memory_bytes_per_chip"],
        memory=metrics.violations[MEMORY],
        memory_share=values["memory_bytes_per_chip"] / values["memory_capacity_bytes_per_chip"],
        rule=_broken(metrics),
        admitted=performance.memory.admitted,
        provenance=metrics.provenance,
    )


def step_shares(metrics: Metrics, batch: CandidateBatch) -> tuple[Floats, ...]:
    """(n,) share of the decode step by BOUNDS. Compute and memory overlap, so that shares may add
    to more than 1, as does network time that is overlapped; what the host adds to the device's time
    counts as fixed."""
    performance = metrics.performance
    ledger, step = performance.detail.decode_ledger, performance.decode_step_s
    fullest = layer_imbalance(batch)
    host = np.maximum(step - ledger.seconds * fullest, 0.0)
    parts = (ledger.compute_s, ledger.memory_s, ledger.network_s, ledger.fixed_s)
    shares = [part * fullest / step for part in parts]
    shares[-1] = shares[-1] + host / step
    return tuple(shares)


def _broken(metrics: Metrics) -> NDArray[np.intp]:
    """(n,) the first rule but that of memory that is broken, by its place; -1 where none is."""
    found = np.full(len(metrics.provenance), -1, dtype=np.intp)
    for k, (name, amount) in enumerate(metrics.violations.items()):
        if name != MEMORY:
            found = np.where((found < 0) & (amount > 0.0), k, found)
    return found


DIVIDED = (*DEGREES.values(), "redundant_experts")
RATE, USD = "output_tokens_per_s_per_chip", "usd_per_million_total_tokens"
SAME_RATE = 0.01  # rates that differ by less count as equal: the smaller instance is named
FINE = 8  # steps between two powers of two of the requests in flight, and between two of these
SMALL = 16  # chips: up to this size instances are evaluated together, as small tables cost more
Progress = Callable[[str], None]


@record
class Instances:
    """The best instances by size. `alone` has for each size that runs the division with the lowest
    time per output token of one request; `within` the one with the most output tokens per second
    and chip within the limits, so the lowest cost, for each size that has one. `why_not` says why a
    size is not in `alone`, `why_late` why it is not in `within`, by its chips. `choices` are the
    legal divisions that fit the memory."""

    sizes: Sequence[int]
    alone: Deployments
    within: Deployments
    choices: dict[int, int]
    why_not: dict[int, str]
    why_late: dict[int, str]


def best_instances(
    subject: Subject,
    *,
    chips_up_to: int = 512,
    tpot_limit_s: float = 0.05,
    ttft_limit_s: float = 2.0,
    machines: Machines | None = None,
    single_only: bool = False,
    progress: Progress = lambda _: None,
) -> Instances:
    """Every size of an instance up to `chips_up_to` chips, over every legal division and requests
    in flight from one per rank to what memory admits; with `single_only`, one request alone. On
    other `machines` of the same chip where they are given.

    Raises NothingFeasible, with the reason of each size, where the model fits no size."""
    sizes = sizes_up_to(subject.domain, chips_up_to)
    limits = (tpot_limit_s, ttft_limit_s)
    small = [chips for chips in sizes if chips <= SMALL]
    groups = [*([small] if small else []), *([chips] for chips in sizes if chips > SMALL)]
    found = Instances(sizes, Deployments({}), Deployments({}), {}, {}, {})
    alone, within = [], []
    for some in groups:
        progress(f"{subject.chip}: instances of {some[-1]} chips")
        refused = {chips: subject.catalog.refusal(subject.chip, chips) for chips in some}
        found.why_not.update({n: f"no link: {why}" for n, why in refused.items() if why})
        if not (linked := [chips for chips in some if refused[chips] is None]):
            continue
        every = subject.divided(linked)
        of = evaluated(subject, every, machines=machines)
        best = []
        for chips in linked:
            mine = np.flatnonzero(every.chips == chips)
            fit = mine[of.runs[mine]]
            found.choices[chips] = len(fit)
            if len(fit):
                best.append(int(fit[np.argmin(of.tpot_s[fit])]))
            else:
                found.why_not[chips] = _why_not(every, of, mine)
        rows = np.array(best, dtype=np.intp)
        alone.append(points(subject, every.take(rows), np.ones(len(rows)), of.take(rows)))
        if single_only or not len(rows):
            continue
        runs = np.flatnonzero(of.runs)
        kept = _within(subject, every.take(runs), of.admitted[runs], limits, machines)
        if kept is not None:
            within.append(kept)
        for row, chips in enumerate(alone[-1].chips.tolist()):
            if kept is None or chips not in kept.chips:
                first_s = float(np.min(of.ttft_s[runs][every.chips[runs] == chips]))
                found.why_late[chips] = _why_late(alone[-1]["tpot_s"][row], first_s, limits)
    if not any(found.choices.values()):
        kinds = Counter(str(found.why_not[size]).partition(":")[0] for size in sizes)
        told = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
        raise NothingFeasible(
            f"{subject.model.name} runs on no instance of 1 to {chips_up_to} x {subject.chip} "
            f"({len(sizes)} sizes): {told}; on {sizes[-1]}, {found.why_not[sizes[-1]]}. "
            "A lower --weight-dtype or more --chips-up-to may help"
        )
    return replace(found, alone=_joined(alone), within=_joined(within))


def _joined(parts: Sequence[Deployments]) -> Deployments:
    some = [part for part in parts if len(part)]
    return stacked(some) if some else Deployments({"tensor_parallel": np.zeros(0, dtype=np.int64)})


def points(
    subject: Subject,
    table: Deployments,
    concurrency: ArrayLike,
    of: Evaluated | None = None,
    **more: Any,
) -> Deployments:
    """The table with what the physics says of each row, (n,) each: `concurrency` requests in flight
    over all chips, latencies and their interval in seconds, output tokens per second, USD per
    million tokens (NaN without a price), what bounds the step. `of` is what was evaluated already;
    `more` is for `evaluated`."""
    load = np.broadcast_to(np.asarray(concurrency, dtype=np.float64), len(table))
    of = of or evaluated(subject, table, load, **more)
    low, high = interval("tpot_s", of.tpot_s, of.provenance, subject.machines.spread)
    domain, chips = subject.domain, table.chips
    widest = np.select(
        [table["tensor_parallel"] > domain, table.group > domain, chips > domain],
        ["tensor", "experts", "stages"],
        "",
    ).astype(object)
    widest[widest == ""] = None
    return table.with_columns(
        division=division(table),
        concurrency=load.astype(np.int64),
        tpot_s=of.tpot_s,
        **{"tpot_s.low": low, "tpot_s.high": high},
        ttft_s=of.ttft_s,
        output_tokens_per_s=of.output_tokens_per_s,
        output_tokens_per_s_per_chip=of.output_tokens_per_s / chips,
        usd_per_million_total_tokens=of.usd,
        network_share=of.network_share,
        bound=np.array(BOUNDS, dtype=object)[of.bound],
        bottleneck=np.array(BOTTLENECKS, dtype=object)[of.bottleneck],
        memory_bytes_per_chip=of.memory_bytes,
        widest=widest,
        known=np.array(KINDS, dtype=object)[of.provenance],
    )


def division(table: Deployments) -> NDArray[np.object_]:
    """(n,) `tp8 pp2`; degrees of 1 are left out."""
    words = []
    for *degrees, copies in zip(*(table[axis].tolist() for axis in DIVIDED), strict=True):
        parts = [f"{name}{n}" for name, n in zip(DEGREES, degrees, strict=True)]
        kept = [part for part, n in zip(parts, degrees, strict=True) if n > 1]
        words.append(" ".join(kept) + (f"+{copies}" if copies else "") if kept else "one chip")
    return np.array(words, dtype=object)


def _within(
    subject: Subject,
    table: Deployments,
    admitted: Floats,
    limits: tuple[float, float],
    machines: Machines | None,
) -> Deployments | None:
    """By size, the point with the most tokens per second and chip within the limits: requests on
    each attention rank by powers of two up to what is admitted, then twice in FINE finer steps
    above the best of each division. None where no point keeps them."""
    tpot_limit_s, ttft_limit_s = limits
    most = np.maximum(np.floor(admitted / table["data_parallel"]), 1.0)
    rows = np.arange(len(table))

    def tried(ranks: Floats) -> tuple[Deployments, Floats, Evaluated, Floats]:
        """`ranks` (rows, steps): requests on a rank of the divisions `rows`."""
        chosen = table.take(np.repeat(rows, ranks.shape[1]))
        load = ranks.ravel() * chosen["data_parallel"]
        of = evaluated(subject, chosen, load, machines=machines)
        kept = (of.tpot_s <= tpot_limit_s) & (of.ttft_s <= ttft_limit_s)
        rate = np.where(kept, of.output_tokens_per_s / chosen.chips, -1.0)
        return chosen, load, of, rate.reshape(ranks.shape)

    grid = load_ladder(most)
    rate = tried(grid)[-1]
    rows = np.flatnonzero(np.max(rate, axis=1) > 0.0)
    if not len(rows):
        return None
    start = grid[rows, np.argmax(rate[rows], axis=1)]
    for width in (FINE, FINE * FINE):
        grid = finer_ladder(start, most[rows], FINE, width)
        chosen, load, of, rate = tried(grid)
        start = grid[np.arange(len(rows)), np.argmax(rate, axis=1)]
    chips, flat = chosen.chips, rate.ravel()
    best = np.array([np.argmax(np.where(chips == n, flat, -2.0)) for n in np.unique(chips)])
    return points(subject, chosen.take(best), load[best], of.take(best))


def _why_late(alone_s: float, first_s: float, limits: tuple[float, float]) -> str:
    """Why no division meets the limits; the lowest times per token and to the first token."""
    if alone_s > limits[0]:
        return f"one request alone takes {1e3 * alone_s:.3g} ms a token at best"
    if first_s > limits[1]:
        return f"one request alone waits {first_s:.3g} s for its first token at best"
    return "no division keeps both limits with a request on every rank"


def _why_not(table: Deployments, of: Evaluated, rows: NDArray[np.intp]) -> str:
    """Why none of these divisions runs."""
    legal = rows[of.rule[rows] < 0]
    if not len(legal):
        counted = Counter(int(rule) for rule in of.rule[rows])
        name = names()[counted.most_common(1)[0][0]] if counted else "stages_within_layers"
        return f"no legal division: {MEANINGS[name]}"
    best = legal[np.argmin(of.memory[legal])]
    return (
        f"memory: at best a chip needs {1.0 + of.memory[best]:.3g} x what it has "
        f"(tensor {table['tensor_parallel'][best]}, pipeline {table['pipeline_parallel'][best]})"
    )


def replication(
    subject: Subject, within: Deployments, demand: int
) -> tuple[Mapping[str, Any], int | None]:
    """`demand` chips as many instances of each size within the limits, those left over paid for;
    and the size past which replication wins: the smallest whose tokens per second come within 1%
    of the most, chips that whole instances leave idle counted. None where no size keeps the
    limits."""
    if not len(within):
        return {}, None
    chips = within.chips
    used = np.where(chips <= demand, demand // chips * chips / demand, 1.0)
    rates = used * within[RATE]
    best = int(chips[np.flatnonzero(rates >= (1.0 - SAME_RATE) * rates.max())[0]])
    kept = within.take(chips <= demand)
    count = demand // kept.chips
    table = Deployments({axis: kept[axis] for axis in DIVIDED})
    load = kept["concurrency"] * count
    of = evaluated(subject, table, load.astype(np.float64), replicas=count.astype(np.float64))
    most = within[RATE][chips <= demand].max(initial=0.0)
    columns = {
        "chips": kept.chips,
        "replicas": count,
        "idle_chips": demand % kept.chips,
        "output_tokens_per_s": of.output_tokens_per_s,
        USD: of.usd * (demand / (count * kept.chips)),
        "tpot_s": of.tpot_s,
        "ttft_s": of.ttft_s,
        "concurrency": load,
        "of_best": of.output_tokens_per_s / (demand * most),
    }
    return columns, best


# Prefill and decode on pools of their own of one model, over every division of a worker, joined as
# a search joins those of a space (`dse.problem.pools`).
#
# Of each size of a worker those are kept that can be best: of prefill the most prompts a second
# and the fastest prompt alone; of decode, at each load of a rank, LOADS to a doubling up to what
# memory admits, the most requests a second. Workers that break a rule or a limit by themselves are
# dropped.

BUSY = (0.6, 0.8, 1.0)  # of the time, at most, that prefill workers are
LOADS = 4  # loads of a rank to a doubling


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
    best = best_of_groups(chips, workers.prompts_per_s) + best_of_groups(chips, -workers.alone_s)
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
    steps = LOADS * (int(np.ceil(np.log2(most.max()))) + 1)
    loads = finer_ladder(np.ones(len(most)), most, steps, LOADS)
    every = table.take(np.repeat(np.arange(len(table)), loads.shape[1]))
    step = np.tile(np.arange(loads.shape[1]), len(table))
    every = every.with_columns(concurrency=loads.ravel() * every["data_parallel"], step=step)
    found: Pool[DecodeWorkers] = _pool("decode", subject, every, limits)
    group = found.table.chips * loads.shape[1] + found.table["step"]
    return found.take(
        np.array(best_of_groups(group, found.side.workers.requests_per_s), dtype=np.intp)
    )


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
        values = of.values
        for limit in limits:
            kept &= limit.sign * (values[limit.metric] - limit.limit) <= 0.0
        rate = np.where(kept, of.met.output_tokens_per_s / of.chips, -1.0)
        usd = values["usd_per_million_total_tokens"]
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


ALIKE = 0.2  # rates that differ by less lie inside each other's 80% interval


def usual_divisions(
    shapes: CandidateBatch, experts: Sequence[Sequence[int]]
) -> tuple[Deployments, NDArray[np.intp]]:
    """Every way to divide the chips of each of n candidates, replicas among them, and the candidate
    (index into the n) of each row; `experts` as of `instances`, of each candidate."""
    tables: dict[tuple[Any, ...], Deployments] = {}
    keys = [*zip(shapes.chips.tolist(), shapes.layers.tolist(), map(tuple, experts), strict=True)]
    for chips, layers, own in set(keys):
        some = instances(divisors(int(chips)), int(layers), own, copies=(0,))
        some = some.without("redundant_experts")
        tables[chips, layers, own] = some.with_columns(replicas=int(chips) // some.chips)
    every = [tables[key] for key in keys]
    return stacked(every), np.repeat(np.arange(len(keys)), [len(table) for table in every])


def usual_of(table: Deployments, row: NDArray[np.intp], rate: Floats) -> NDArray[np.intp]:
    """Of the divisions of `usual_divisions` the one of each candidate that is usually launched:
    those within ALIKE of its highest rate (-inf where it does not run), of them the fewest stages,
    then the widest tensor parallelism, then the highest rate."""
    best = np.maximum.reduceat(rate, np.unique(row, return_index=True)[1])
    far = ~(rate >= (1.0 - ALIKE) * best[row])
    keys = (-rate, -table["tensor_parallel"], table["pipeline_parallel"], far, row)
    order = np.lexsort(keys)
    return order[np.unique(row[order], return_index=True)[1]]


def best_of_groups(group: NDArray[Any], value: Floats) -> list[int]:
    """The row of the largest value of each group."""
    order = np.lexsort((-value, group))
    return order[np.unique(group[order], return_index=True)[1]].tolist()
