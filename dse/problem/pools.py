"""Designs whose prefill and decode are on pools of their own, as points of a search.

A point names a worker of each pool, at its batch, and how many chips there may be. Every worker is
put through the physics once, in a table; a design is a row of either table, joined in closed form:

    a : b       whole numbers of workers of least waste (`balance`), so that prefill is
                busy `busy_percent` of the time at most while each decode worker keeps its batch;
                of a system that is taken whole, all its chips
    X = b D     requests a second that b decode workers take at their batch
    N           requests in flight that bring X (`dse.physics.disaggregated.in_flight`)

so that `dse estimate --serving disaggregated` with a and b workers and N in flight finds the same;
where a step's time jumps, N may keep another batch too, and `dse estimate STUDY POINT` keeps this.
Both workers are held to the rules of `dse.rules`, each as an instance of its own; what the two must
share is in RULES. A search cannot gain by what is not there: workers are whole, the prefill pool is
at least one and is paid whole, waits included; the cache crosses a link whose bandwidth is known,
no faster than that carries; pools of two kinds of chip meet in the network; the loss of the worse
of two formats counts.

Tables hold at most TABLE workers. A larger part of a space (shapes are searched) is evaluated for
the workers of a chunk alone, each once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dse.economics.tokens import COUNTED, PRICES, cost
from dse.physics.disaggregated import (
    DecodeWorkers,
    Met,
    PrefillWorkers,
    Workers,
    admitted_workers,
    at_batch,
    balance,
    fill,
    link_known,
    prefill_workers,
    transfer_j,
)
from dse.physics.machines import Machines
from dse.physics.phases import Case, case_of
from dse.physics.serving import BOTTLENECKS, Detail
from dse.physics.step import Step
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, Values
from dse.record import record
from dse.schema.axes import CHIP_DEGREES, POOL_AXES, POOLS, SEPARATE, rule_of
from dse.schema.metrics import Limit
from dse.space.candidates import CandidateBatch, Floats, Rows, concatenated
from dse.space.space import Space

Ints = NDArray[np.int64]
Evaluate = Callable[[CandidateBatch], Metrics]
BatchOf = Callable[[dict[str, NDArray]], CandidateBatch]
W = TypeVar("W", PrefillWorkers, DecodeWorkers)
TABLE = 200_000  # workers of a part of a space that are evaluated whole
CHUNK = 10_000
# What two pools must keep together, beside the rules that each of their workers keeps.
RULES: Mapping[str, str] = {
    "pools_fit_chips": "the workers of both pools take pool_chips chips at most, or all chips",
    "pools_share_cache_format": "both pools keep the key-value cache in one format",
    "pools_known_link": "the link that the cache crosses has a known bandwidth",
    "pools_carry_cache": "the links carry the cache as fast as prompts are served",
}
POOL_PREFIXES = tuple(f"{pool}_" for pool in POOL_AXES)
BOUND = "bottleneck"  # of a worker, index into BOTTLENECKS
WORST = "predicted_loss"  # the higher of both pools: either runs the whole prompt or answer
# Metrics of a design that are those of `Met`, and those that follow from both pools.
OF_MET = (
    *("ttft_s", "tpot_s", "prefill_s", "decode_step_s", "e2e_s"),
    *("output_tokens_per_s", "running_requests"),
)
OF_BOTH = (
    *("output_tokens_per_s_per_chip", "output_tokens_per_s_per_user", "chips"),
    *("chip_usd_per_hour", "mfu", "distance_to_floor", WORST, *PRICES, *COUNTED),
)


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


Sides = list[tuple[Side[Any], NDArray[np.intp]]]  # of either pool, workers and which of them


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
    with np.errstate(divide="ignore", invalid="ignore"):
        workers, _, own = at_work(pool, case_of(batch, load, machines))
    # The time per token is the decode worker's, and no prompt has its first token before its
    # prefill.
    least: dict[str, Floats]
    if isinstance(workers, DecodeWorkers):
        least = {"tpot_s": workers.tpot_s, "decode_step_s": workers.step_s}
    else:
        least = dict.fromkeys(("ttft_s", "prefill_s", "e2e_s"), workers.alone_s)
    limited = {
        k: np.maximum(least[limit.metric] / limit.limit - 1.0, 0.0)
        for k, limit in enumerate(limits)
        if limit.metric in least and limit.sign > 0.0
    }
    amounts = dict(enumerate(metrics.violations.values()))
    amounts, limited = ({k: v for k, v in d.items() if v.any()} for d in (amounts, limited))
    dead = np.zeros(len(batch), dtype=bool)
    for amount in (*amounts.values(), *limited.values()):
        dead |= amount > 0.0
    return Side(
        workers,
        amounts,
        batch.chip,
        machines.usd_per_chip_hour[batch.chip],
        batch.kv_dtype,
        busy,
        {name: metrics.values[name] for name in names} | own,
        metrics.provenance,
        limited,
        dead,
    )


def at_work(pool: str, case: Case) -> tuple[Any, Step, dict[str, Floats]]:
    """The workers of a pool, their step, and metrics of it: of one prompt alone, or of so many
    requests as memory and the backend's cap for a rank admit."""
    if pool == "prefill":
        workers, step = prefill_workers(case)
        step_s, first = workers.alone_s, BOTTLENECKS.index("prefill: compute")
        own = {"mfu": step.ledger.floor_compute_s / step.ledger.seconds}
    else:
        batch, memory = case.deployed.batch, case.memory
        workers, step = admitted_workers(case, batch.concurrency)
        step_s, first = workers.step_s, BOTTLENECKS.index("decode: compute")
        cache = memory.kv_reserved * np.ceil(workers.running / batch.data_parallel)
        own = {
            "latency_floor_s": step.ledger.floor_s,
            "mbu": step.ledger.floor_memory_s / workers.step_s,
            "memory_bytes_per_chip": memory.base + cache,
            "memory_kv_cache_bytes_per_chip": cache,
        }
    ledger = step.ledger
    fixed_s = ledger.fixed_s + step_s - ledger.seconds
    parts = np.broadcast_arrays(ledger.compute_s, ledger.memory_s, ledger.network_s, fixed_s)
    return workers, step, own | {BOUND: first + np.argmax(np.stack(parts), axis=0).astype(float)}


@dataclass(frozen=True, slots=True)
class Kinds:
    """Which chips n designs are made of: codes of two kinds, (n,), and of all chips, and of all
    that is paid for them, the share of the first."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    of_chips: Floats | float = 1.0
    of_price: Floats | float = 1.0

    def a_chip(self, figures: Floats) -> Floats:
        """(n,) means of figures of chips, (chips,)."""
        return self._mean(figures, self.of_chips)

    def a_dollar(self, figures: Floats) -> Floats:
        """(n,) the same, each chip by its price."""
        return self._mean(figures, self.of_price)

    def _mean(self, figures: Floats, share: Floats | float) -> Floats:
        first, second = figures[self.first], figures[self.second]
        return np.where(first == second, first, first * share + second * (1.0 - share))


class Joined:
    """n designs. `a` and `b` are the workers of the pools, `in_flight` the requests over both."""

    members = ()  # one workload

    def __init__(
        self,
        first: Side[PrefillWorkers],
        second: Side[DecodeWorkers],
        chips: Floats,
        workload: Workload,
        rules: int,
        whole: bool = False,
    ) -> None:
        """Of `chips` at most, or all of them where `whole`; `rules` are those that workers are
        held to."""
        self.first, self.second, self.workload = first, second, workload
        self._rules, self._whole, self._most = rules, whole, chips
        before, after = first.workers, second.workers
        ratio = after.requests_per_s / (first.busy * before.prompts_per_s)
        self.a, self.b = (fill if whole else balance)(ratio, before.chips, after.chips, chips)
        self.inside, self.in_flight, self.met = at_batch(before, after, self.a, self.b, workload)

    @property
    def values(self) -> Mapping[str, Floats]:
        """The metrics by name, in SI units, (n,) each, worked out when asked for. Not kept here:
        designs that hold what holds them would wait for the garbage collector."""
        met = {name: getattr(self.met, name) for name in OF_MET}
        return Values({**self.second.own, **dict.fromkeys(OF_BOTH), **met}, self._of_both)

    def _of_both(self, name: str) -> Mapping[str, Floats]:
        first, second, met = self.first, self.second, self.met
        if name in PRICES:
            return pool_dollars(met, first.price, second.price, self.workload)
        if name in COUNTED:
            return pool_joules(met, first.workers, second.workers, self.inside)
        of: Mapping[str, Callable[[], Floats]] = {
            "output_tokens_per_s_per_chip": lambda: met.output_tokens_per_s / self.chips,
            "output_tokens_per_s_per_user": lambda: 1.0 / met.tpot_s,
            "chips": lambda: self.chips,
            "chip_usd_per_hour": lambda: (
                (self._held[0] * first.price + self._held[1] * second.price) / self.chips
            ),
            "mfu": lambda: first.own["mfu"],
            "distance_to_floor": lambda: met.decode_step_s / second.own["latency_floor_s"],
            WORST: lambda: np.maximum(first.own[WORST], second.own[WORST]),
        }
        return {name: of[name]()}

    @cached_property
    def _held(self) -> tuple[Floats, Floats]:
        """(n,) chips of either pool."""
        return self.a * self.first.workers.chips, self.b * self.second.workers.chips

    @cached_property
    def chips(self) -> Floats:
        """(n,) of both pools."""
        return self._held[0] + self._held[1]

    @property
    def kinds(self) -> Kinds:
        """The chips of both pools."""
        paid = self._held[0] * self.first.price, self._held[1] * self.second.price
        shares = self._held[0] / self.chips, paid[0] / (paid[0] + paid[1])
        return Kinds(self.first.chip, self.second.chip, *shares)

    @property
    def violations(self) -> dict[int, Floats]:
        """(n,) amounts by the place of a rule among those of a worker, then RULES; positive where
        it is broken, 0 where it is not named."""
        before, after = self.first.workers, self.second.workers
        known = link_known(before, after, self.chips, self.inside)
        used = self.chips / self._most - 1.0
        own: tuple[Floats, ...] = (
            np.abs(used) if self._whole else used,
            (self.first.kv != self.second.kv) * 1.0,
            np.where(known, 0.0, 1.0),
            self.met.sending - 1.0,
        )
        return _worse(self.first.amounts, self.second.amounts) | dict(enumerate(own, self._rules))


def _worse(first: Mapping[int, Floats], second: Mapping[int, Floats]) -> dict[int, Floats]:
    """(n,) by place, the larger where both have it; the other is 0."""
    none: Floats = np.zeros(1)
    return {k: np.maximum(first.get(k, none), second.get(k, none)) for k in {**first, **second}}


def pool_dollars(
    met: Met, prefill_usd: Floats, decode_usd: Floats, load: Workload
) -> dict[str, Floats]:
    """PRICES of designs whose chip-hours cost so much in either pool, (n,): prefill on the input,
    decode on the output."""
    none = np.zeros(len(met.ttft_s))
    tokens = load.prompt_tokens, load.output_tokens
    first = cost(met.prefill_chip_s, none, *tokens, prefill_usd)
    second = cost(none, met.decode_chip_s, *tokens, decode_usd)
    return {name: first[name] + second[name] for name in PRICES}


def pool_joules(
    met: Met, before: Workers, after: DecodeWorkers, inside: NDArray[np.bool_]
) -> dict[str, Floats]:
    """COUNTED over both pools and the way between them, (n,)."""
    sent = transfer_j(before, inside)
    joules, moved, own = sent, sent, np.zeros(len(sent))
    held = (met.prefill_chip_s, met.decode_chip_s)
    for workers, chip_s in zip((before, after), held, strict=True):
        pool_j, pool_moved = workers.energy.held(chip_s)
        joules, moved = joules + pool_j, moved + pool_moved
        own = own + (pool_j - workers.energy.network_j)
    return {
        "joules_per_output_token": joules / after.output,
        "tokens_per_joule": after.output / joules,
        "watts_per_chip": own / (held[0] + held[1]),
        "energy_data_movement_share": moved / joules,
    }


class Pools:
    """The pools of a space: from index to joined designs. `batch_of` makes candidates of the values
    of the axes, `evaluate` puts one worker through the physics, by itself."""

    def __init__(
        self,
        space: Space,
        workload: Workload,
        batch_of: BatchOf,
        evaluate: Evaluate,
        asked: Iterable[str],
        limits: Sequence[Limit],
        rules: int,
    ) -> None:
        """`asked` are the metrics that a search names, `limits` those of the user, `rules` how many
        `evaluate` holds a worker to."""
        self._rules, self._limits = rules, tuple(limits)
        self.space, self.workload = space, workload
        paired = {*OF_MET, *OF_BOTH, "latency_floor_s"}
        self._asked = tuple({WORST, *(name for name in asked if name not in paired)})
        self._tables: dict[str, Side[Any]] = {}
        self._batch_of, self._evaluate = batch_of, evaluate
        self._parts = {pool: space.part(space.name, pool) for pool in ("prefill", "decode")}
        self._kind = space.names.index(POOLS)
        self._separate = space.choices[self._kind].index(SEPARATE)
        self._whole = "pool_chips" not in space.names
        self._chips = space.names.index("chips" if self._whole else "pool_chips")
        self._most = np.array(space.choices[self._chips], dtype=float)

    def separate(self, index: Ints) -> NDArray[np.bool_]:
        """(n,) whether the pools of a point are separate."""
        return index[:, self._kind] == self._separate

    def joined(self, index: Ints, *, keep: bool = False, sides: Sides | None = None) -> Joined:
        """The designs at canonical index (n, d), all of separate pools. `keep` gives every metric
        of the workers, else those that a search asks for; `sides` as of `screened`."""
        sides = sides or [self._side(pool, index, keep) for pool in self._parts]
        first, second = (side.take(rows) for side, rows in sides)
        chips = self._most[index[:, self._chips]]
        return Joined(first, second, chips, self.workload, self._rules, self._whole)

    def screened(self, index: Ints) -> tuple[Ints, Ints, dict[int, Floats], Sides]:
        """(alive, dead, amounts, sides) of designs at canonical index (n, d), all of separate
        pools. Those with a worker that breaks a rule by itself, or a limit whatever its partner,
        are the rows `dead`, and need not be joined: `amounts` are what these break, by the place
        of a rule among those of a worker, RULES and limits. `sides` are the workers of the rows
        `alive`."""
        sides = [self._side(pool, index, keep=False) for pool in self._parts]
        gone = np.logical_or(*(side.dead[rows] for side, rows in sides))
        dead, alive = np.flatnonzero(gone), np.flatnonzero(~gone)
        found: dict[int, Floats] = {}
        for start, name in ((0, "amounts"), (self._rules + len(RULES), "limited")):
            both = (
                {k: amounts[rows[dead]] for k, amounts in getattr(side, name).items()}
                for side, rows in sides
            )
            found |= {start + k: np.maximum(a, 0.0) for k, a in _worse(*both).items()}
        return alive, dead, found, [(side, rows[alive]) for side, rows in sides]

    def pool(self, pool: str, index: Ints) -> dict[str, NDArray]:
        """The values of the axes of designs whose instances or workers of `pool` do the work, (n,)
        each: `replicas` of a worker, the requests in flight over all, chips as codes."""
        values = self.space.values(index)
        names = [name for name in values if not name.startswith((*POOL_PREFIXES, "pool"))]
        own: dict[str, NDArray] = {name: values[name] for name in names}
        if "chips" in own:
            degrees = (np.maximum(own.get(name, np.ones(1)), 1.0) for name in CHIP_DEGREES)
            own["replicas"] = own.pop("chips") / math.prod(degrees)
        rows = np.flatnonzero(self.separate(index))
        if not len(rows):
            return own
        designs = self.joined(index[rows])
        part, columns = self._parts[pool]
        of: dict[str, NDArray] = {
            **part.values(part.canonical(index[rows][:, columns])),
            "concurrency": designs.in_flight,
            "replicas": designs.a if pool == "prefill" else designs.b,
        }
        for name, worker in of.items():
            if name != "busy_percent":
                none = np.full(len(index), rule_of(name).inactive).astype(worker.dtype)
                own[name] = own.get(name, none).copy()
                own[name][rows] = worker
        return own

    @property
    def one_kind(self) -> bool:
        """Whether both pools of every design have the same chips."""
        own = ("prefill_chip", "decode_chip")
        chips = [self.space.choices[k] for k, name in enumerate(self.space.names) if name in own]
        return len(chips) < len(own) or (chips[0] == chips[1] and len(chips[0]) == 1)

    def kinds(self, index: Ints, chip: NDArray[np.intp]) -> Kinds:
        """The chips of designs at canonical index (n, d); `chip` (n,) are those of their decode
        pool, or of one that does both phases."""
        rows = np.flatnonzero(self.separate(index))
        if not len(rows):
            return Kinds(chip, chip)
        of, first = self.joined(index[rows]).kinds, chip.copy()
        shares = np.ones((2, len(index)))
        first[rows], shares[:, rows] = of.first, (of.of_chips, of.of_price)
        return Kinds(first, chip, *shares)

    def held(self, index: Ints) -> Floats:
        """(n,) requests that a decode worker of designs of separate pools decodes at once."""
        side, rows = self._side("decode", index, keep=False)
        return side.workers.running[rows]

    def complete(self, metrics: Metrics, index: Ints) -> Metrics:
        """`metrics` of candidates of which those of separate pools were evaluated as if their
        decode pool did both phases: these are put right, in each phase's own steps where all are
        such."""
        rows = np.flatnonzero(self.separate(index))
        violations = {**metrics.violations, **{name: np.zeros(len(index)) for name in RULES}}
        if not len(rows):
            return replace(metrics, violations=violations)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            designs = self.joined(index[rows], keep=True)
            broken = designs.violations
        for k, (name, amount) in enumerate(violations.items()):
            violations[name] = amount.astype(float)
            violations[name][rows] = broken.get(k, 0.0)
        known = metrics.provenance.copy()
        known[rows] = np.maximum(designs.first.known, designs.second.known)
        performance, values = metrics.performance, designs.values

        def of_designs(name: str) -> Mapping[str, Floats]:
            """A metric of all candidates, those of designs in their rows."""
            found = np.array(metrics.values[name], dtype=np.float64)
            if name in set(values):
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    found[rows] = values[name]
            return {name: found}

        def detail() -> Detail:
            larger = designs.a * designs.first.workers.chips > designs.chips / 2.0
            bounds = (designs.first.own[BOUND], designs.second.own[BOUND])
            bound = np.array(performance.detail.bottleneck)
            bound[rows] = np.where(larger, *bounds).astype(bound.dtype)
            return replace(performance.detail, bottleneck=bound)

        return replace(
            metrics,
            values=Values(dict.fromkeys(metrics.values), of_designs),
            violations=violations,
            provenance=known,
            performance=replace(performance, look=cache(detail)),
        )

    def in_steps(self, metrics: Metrics, index: Ints) -> Metrics:
        """The metrics of one design of separate pools, index (1, d), with the ledgers of either
        pool's own steps and all that they hold."""
        steps: dict[str, Step] = {}
        machines = metrics.case.machines
        assert machines is not None
        for pool, (part, columns) in self._parts.items():
            batch = self._batch_of(_alone(pool, dict(part.values(index[:, columns]))))
            case = case_of(batch, self._served(batch, machines), machines, keep=True)
            steps[pool] = at_work(pool, case)[1]
        values = metrics.values
        detail = replace(
            metrics.performance.detail,
            prefill_ledger=steps["prefill"].ledger,
            decode_ledger=steps["decode"].ledger,
        )
        performance = replace(
            metrics.performance,
            look=lambda: detail,
            prefill_s=values["prefill_s"],
            decode_step_s=values["decode_step_s"],
        )
        return replace(metrics, performance=performance)

    def _side(self, pool: str, index: Ints, keep: bool) -> tuple[Side[Any], NDArray[np.intp]]:
        """The workers of a pool, and (n,) which of them each design has."""
        part, columns = self._parts[pool]
        ids = part.rank(index[:, columns])
        if keep or part.size > TABLE:
            distinct, rows = np.unique(ids, return_inverse=True)
            return self._evaluated(pool, distinct, keep), rows
        if pool not in self._tables:
            self._tables[pool] = self._evaluated(pool, np.arange(part.size), keep)
        return self._tables[pool], ids

    def _evaluated(self, pool: str, ids: Ints, keep: bool) -> Side[Any]:
        """The workers of these ranks, each once and under its own software."""
        part = self._parts[pool][0]
        sides: list[Side[Any]] = []
        places: list[NDArray[np.intp]] = []
        for start in range(0, len(ids), CHUNK):
            values = part.values(part.unrank(ids[start : start + CHUNK]))
            codes = values.get("backend", np.zeros(len(values["chip"])))
            for code in np.unique(codes):
                rows = np.flatnonzero(codes == code)
                several = len(rows) < len(codes)
                own = {name: one[rows] for name, one in values.items()} if several else values
                sides.append(self._workers(pool, dict(own), keep))
                places.append(start + rows)
        order = np.concatenate(places)
        made = concatenated(sides, [len(rows) for rows in places])
        return made if (np.diff(order) > 0).all() else made.take(np.argsort(order))

    def _workers(self, pool: str, values: dict[str, Any], keep: bool) -> Side[Any]:
        """The workers of these axes, all under one software."""
        batch = self._batch_of(_alone(pool, values))
        metrics = self._evaluate(batch)
        machines = metrics.case.machines
        assert machines is not None
        busy = values["busy_percent"] / 100.0 if pool == "prefill" else np.ones(len(batch))
        names, load = metrics.values if keep else self._asked, self._served(batch, machines)
        return side_of(pool, batch, metrics, load, busy, names, self._limits)

    def _served(self, batch: CandidateBatch, machines: Machines) -> Workload:
        """The workload under the software that all of a batch have."""
        if batch.backend is None:
            return self.workload
        return replace(self.workload, backend=machines.backends[batch.backend[0]])


def _alone(pool: str, values: dict[str, Any]) -> dict[str, Any]:
    """One worker of a pool; a prefill worker has a prompt on each rank."""
    one = {"replicas": np.ones(len(values["chip"]))}
    if pool == "prefill":
        one["concurrency"] = np.maximum(values["data_parallel"], 1.0)
    return {**values, **one}
