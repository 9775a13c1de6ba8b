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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dse.economics.tokens import cost
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
from dse.physics.energy import PhaseEnergy
from dse.physics.machines import Machines
from dse.physics.phases import Case, case_of
from dse.physics.serving import BOTTLENECKS, Detail
from dse.physics.step import Step
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics
from dse.record import record
from dse.schema.axes import POOL_AXES, POOLS, SEPARATE, rule_of
from dse.schema.metrics import Limit
from dse.space.candidates import CandidateBatch, Floats, Rows
from dse.space.space import Space

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


Ints = NDArray[np.int64]
Evaluate = Callable[[CandidateBatch], Metrics]
BatchOf = Callable[[dict[str, NDArray]], CandidateBatch]
TABLE = 200_000  # workers of a part of a space that are evaluated whole
CHUNK = 10_000
# What two pools must keep together, beside the rules that each of their workers keeps.
RULES: Mapping[str, str] = {
    "pools_fit_chips": "the workers of both pools take pool_chips chips at most, or all chips",
    "pools_share_cache_format": "both pools keep the key-value cache in one format",
    "pools_known_link": "the link that the cache crosses has a known bandwidth",
    "pools_carry_cache": "the links carry the cache as fast as prompts are served",
}
WORST = "predicted_loss"  # the higher of both pools: either runs the whole prompt or answer
POOL_PREFIXES = tuple(f"{pool}_" for pool in POOL_AXES)
DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel")
Sides = list[tuple["Side[Any]", NDArray[np.intp]]]  # of either pool, workers and which of them


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
        return _mean(figures[self.first], figures[self.second], self.of_chips)

    def a_dollar(self, figures: Floats) -> Floats:
        """(n,) the same, each chip by its price."""
        return _mean(figures[self.first], figures[self.second], self.of_price)


def _mean(first: Floats, second: Floats, share: Floats | float) -> Floats:
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
        self._rules = rules
        before, after = first.workers, second.workers
        takes = after.requests_per_s
        ratio = takes / (first.busy * before.prompts_per_s)
        self._whole = whole
        self.a, self.b = (fill if whole else balance)(ratio, before.chips, after.chips, chips)
        self.inside, self.in_flight, self.met = at_batch(before, after, self.a, self.b, workload)
        self._most = chips

    @property
    def values(self) -> Mapping[str, Floats]:
        """The metrics by name, in SI units, (n,) each, worked out when asked for."""
        return _PairValues(self)

    @property
    def chips(self) -> Floats:
        """(n,) of both pools."""
        return self.a * self.first.workers.chips + self.b * self.second.workers.chips

    @property
    def kinds(self) -> Kinds:
        """The chips of both pools."""
        first, second = (
            n * side.workers.chips for n, side in ((self.a, self.first), (self.b, self.second))
        )
        paid = first * self.first.price, second * self.second.price
        return Kinds(
            self.first.chip, self.second.chip, first / self.chips, paid[0] / (paid[0] + paid[1])
        )

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
        found = _worse(self.first.amounts, self.second.amounts)
        found.update(enumerate(own, self._rules))
        return found

    @cached_property
    def dollars(self) -> Mapping[str, Floats]:
        """Each pool at the price of its own chips: prefill on the input, decode on the output."""
        load, met = self.workload, self.met
        return pool_dollars(met, self.first.price, self.second.price, load)

    @cached_property
    def joules(self) -> Mapping[str, Floats]:
        """The energy metrics of `dse.economics.tokens` over both pools."""
        return pool_joules(self.met, self.first.workers, self.second.workers, self.inside)


def pool_dollars(
    met: Met, prefill_usd: Floats, decode_usd: Floats, load: Workload
) -> dict[str, Floats]:
    """The prices per token of designs whose chip-hours cost so much in either pool, (n,)."""
    none = np.zeros(len(met.ttft_s))
    tokens = load.prompt_tokens, load.output_tokens
    first = cost(met.prefill_chip_s, none, *tokens, prefill_usd)
    second = cost(none, met.decode_chip_s, *tokens, decode_usd)
    return {name: getattr(first, name) + getattr(second, name) for name in DOLLARS}


def pool_joules(
    met: Met, before: Workers, after: DecodeWorkers, inside: NDArray[np.bool_]
) -> dict[str, Floats]:
    """The energy metrics over both pools and the way between them, (n,)."""
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


DOLLARS = (
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
    "usd_per_million_output_tokens_all_in",
)
_JOULES = (
    "joules_per_output_token",
    "tokens_per_joule",
    "watts_per_chip",
    "energy_data_movement_share",
)
_MET = (
    "ttft_s",
    "tpot_s",
    "prefill_s",
    "decode_step_s",
    "e2e_s",
    "output_tokens_per_s",
    "running_requests",
)


def _mean_price(of: Joined) -> Floats:
    first, second = of.a * of.first.workers.chips, of.b * of.second.workers.chips
    return (first * of.first.price + second * of.second.price) / (first + second)


_OF_PAIR: Mapping[str, Callable[[Joined], Floats]] = {
    **{name: lambda of, name=name: getattr(of.met, name) for name in _MET},
    **{name: lambda of, name=name: of.dollars[name] for name in DOLLARS},
    **{name: lambda of, name=name: of.joules[name] for name in _JOULES},
    "output_tokens_per_s_per_chip": lambda of: of.met.output_tokens_per_s / of.chips,
    "output_tokens_per_s_per_user": lambda of: 1.0 / of.met.tpot_s,
    "chips": lambda of: of.chips,
    "chip_usd_per_hour": _mean_price,
    "mfu": lambda of: of.first.own["mfu"],
    "distance_to_floor": lambda of: of.met.decode_step_s / of.second.own["latency_floor_s"],
    WORST: lambda of: np.maximum(of.first.own[WORST], of.second.own[WORST]),
}


def _worse(first: Mapping[int, Floats], second: Mapping[int, Floats]) -> dict[int, Floats]:
    """(n,) by place, the larger where both have it; the other is 0."""
    none: Floats = np.zeros(1)
    return {k: np.maximum(first.get(k, none), second.get(k, none)) for k in {**first, **second}}


class _PairValues(Mapping[str, Floats]):
    def __init__(self, of: Joined) -> None:
        self._of = of

    def __getitem__(self, name: str) -> Floats:
        return _OF_PAIR[name](self._of) if name in _OF_PAIR else self._of.second.own[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_OF_PAIR, **self._of.second.own})

    def __len__(self) -> int:
        return len({**_OF_PAIR, **self._of.second.own})


class _Completed(Mapping[str, Floats]):
    """Metrics of n candidates, those of `designs` in their `rows`."""

    def __init__(self, base: Mapping[str, Floats], rows: NDArray[np.intp], designs: Joined) -> None:
        self._base, self._rows, self._designs = base, rows, designs

    def __getitem__(self, name: str) -> Floats:
        found = np.array(self._base[name], dtype=np.float64)
        if name in self._designs.values:
            found[self._rows] = self._designs.values[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)

    def __contains__(self, name: object) -> bool:
        return name in self._base


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
        self._rules = rules
        self._limits = tuple(limits)
        self.space, self.workload = space, workload
        paired = {*_OF_PAIR, "latency_floor_s"}
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
        first, second = (side.take(rows) for side, rows in sides or self._sides(index, keep))
        chips = self._most[index[:, self._chips]]
        return Joined(first, second, chips, self.workload, self._rules, self._whole)

    def screened(self, index: Ints) -> tuple[Ints, Ints, dict[int, Floats], Sides]:
        """(alive, dead, amounts, sides) of designs at canonical index (n, d), all of separate
        pools. Those with a worker that breaks a rule by itself, or a limit whatever its partner,
        are the rows `dead`, and need not be joined: `amounts` are what these break, by the place
        of a rule among those of a worker, RULES and limits. `sides` are the workers of the rows
        `alive`."""
        sides = self._sides(index, keep=False)
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
            degrees = (np.maximum(own.get(name, np.ones(1)), 1.0) for name in DEGREES)
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
                full = own.get(name, none).copy()
                full[rows] = worker
                own[name] = full
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
        amounts = list(metrics.violations.values())
        violations = {
            **metrics.violations,
            **{name: np.zeros(len(index)) for name in RULES},
        }
        if not len(rows):
            return replace(metrics, violations=violations)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            designs = self.joined(index[rows], keep=True)
            broken = np.zeros((len(amounts) + len(RULES), len(index)))
            broken[: len(amounts)] = amounts
            for k, amounts_of_pools in designs.violations.items():
                broken[k, rows] = amounts_of_pools
            known = metrics.provenance.copy()
            known[rows] = np.maximum(designs.first.known, designs.second.known)
            performance = metrics.performance
            larger = designs.a * designs.first.workers.chips > designs.chips / 2.0
            bounds = (designs.first.own[BOUND], designs.second.own[BOUND])

            def detail() -> Detail:
                bound = np.array(performance.detail.bottleneck)
                bound[rows] = np.where(larger, *bounds).astype(bound.dtype)
                return replace(performance.detail, bottleneck=bound)

            return replace(
                metrics,
                values=_Completed(metrics.values, rows, designs),
                violations=dict(zip(violations, broken, strict=True)),
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
            steps[pool] = (prefill_step if pool == "prefill" else decode_step)(case)[1]
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

    def _sides(self, index: Ints, keep: bool) -> Sides:
        """Of either pool, workers and (n,) which of them each design has."""
        return [self._side(pool, index, keep) for pool in self._parts]

    def _side(self, pool: str, index: Ints, keep: bool) -> tuple[Side[Any], NDArray[np.intp]]:
        part, columns = self._parts[pool]
        ids = part.rank(index[:, columns])
        if keep or part.size > TABLE:
            distinct, rows = np.unique(ids, return_inverse=True)
            return self._evaluated(pool, distinct, keep), rows
        if pool not in self._tables:
            self._tables[pool] = self._evaluated(pool, np.arange(part.size), keep)
        return self._tables[pool], ids

    def _evaluated(self, pool: str, ids: Ints, keep: bool) -> Side[Any]:
        """The workers of these ranks, each once."""
        part = self._parts[pool][0]
        found = [
            self._workers(pool, part.values(part.unrank(ids[start : start + CHUNK])), keep)
            for start in range(0, len(ids), CHUNK)
        ]
        return found[0] if len(found) == 1 else joined_up(found)

    def _workers(self, pool: str, values: dict[str, NDArray], keep: bool) -> Side[Any]:
        """The workers of these axes, each under its own software."""
        if "backend" not in values:
            return self._worker(pool, values, keep)
        codes = np.unique(values["backend"])
        parts = [np.flatnonzero(values["backend"] == code) for code in codes]
        sides = [
            self._worker(pool, {name: one[rows] for name, one in values.items()}, keep)
            for rows in parts
        ]
        return joined_up(sides).take(np.argsort(np.concatenate(parts)))

    def _served(self, batch: CandidateBatch, machines: Machines) -> Workload:
        """The workload under the software that all of a batch have."""
        if batch.backend is None:
            return self.workload
        return replace(self.workload, backend=machines.backends[batch.backend[0]])

    def _worker(self, pool: str, values: dict[str, Any], keep: bool) -> Side[Any]:
        """The same of one software."""
        batch = self._batch_of(_alone(pool, values))
        metrics = self._evaluate(batch)
        machines = metrics.case.machines
        assert machines is not None
        busy = values["busy_percent"] / 100.0 if pool == "prefill" else np.ones(len(batch))
        names = metrics.values if keep else self._asked
        return side_of(
            pool, batch, metrics, self._served(batch, machines), busy, names, self._limits
        )


def _alone(pool: str, values: dict[str, Any]) -> dict[str, Any]:
    """One worker of a pool; a prefill worker has a prompt on each rank."""
    one = {"replicas": np.ones(len(values["chip"]))}
    if pool == "prefill":
        one["concurrency"] = np.maximum(values["data_parallel"], 1.0)
    return {**values, **one}
