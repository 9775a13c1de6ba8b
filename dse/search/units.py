"""Work units: the parts of one search that processes share out, each a function of its seed.

A unit of `exhaustive` is a range of ranks; of any other engine an independent restart, of which
number 0 is the very search that one process makes. The front of the study is the front of the
union. What a unit brings depends on the study and its number alone, so a unit that a killed worker
left, or that two workers ran, changes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.pareto import Archive
from dse.problem.protocol import Problem
from dse.search.engine import Budget, Engine, Progress
from dse.search.evaluator import Batch, Evaluator, Tally
from dse.search.record import Record
from dse.search.run import Result, choose_engine, evaluations_limit, in_order, nearest_miss
from dse.search.survey import Survey, take

# Long enough that claiming a unit costs little beside it, short enough that four workers end
# together.
UNIT_POINTS = 65_536
MOST_UNITS = 256
RESTARTS = 4
_CHUNK = 16_384
# Ids in one attribute: below the 64 KiB that MySQL allows.
_IDS_TOGETHER = 2_000
WHOLE = "exhaustive"


@dataclass(frozen=True, slots=True)
class Unit:
    """Ranks `first` to `last` - 1 of an enumeration, or restart `number` that asks `trials` of its
    sampler (None: the engine's own choice)."""

    number: int
    first: int
    last: int
    trials: int | None = None


# What the survey of a search brought stands beside the units; no worker does it.
SURVEY = Unit(-2, 0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a search is divided."""

    engine: Engine
    why: str
    seed: int
    units: tuple[Unit, ...]

    def expected(self, size: int) -> int:
        """Points that all units evaluate at most."""
        if self.engine.name == WHOLE:
            return size
        return len(self.units) * self.engine.evaluations(size)


def divide(name: str, size: int, seed: int, trials: int | None = None) -> Plan:
    """The plan of engine `name` in a space of `size` points. More `trials` add units behind those
    that are there, so that a finished study grows. Raises InputError for an unknown engine."""
    engine, why = choose_engine(name, size)
    if engine.name == WHOLE:
        step = max(UNIT_POINTS, math.ceil(size / MOST_UNITS / _CHUNK) * _CHUNK)
        units = [
            Unit(number, first, min(first + step, size))
            for number, first in enumerate(range(0, size, step))
        ]
    else:
        units = [Unit(number, 0, size, asked) for number, asked in _restarts(engine, trials)]
    return Plan(engine, why, seed, tuple(units))


def _restarts(engine: Engine, trials: int | None) -> Iterable[tuple[int, int | None]]:
    """(number, trials) of each restart: a quarter of the engine's own trials each."""
    own = getattr(engine, "trials", None)
    if own is None:
        return ((number, None) for number in range(RESTARTS))
    each = math.ceil(own / RESTARTS)
    asked = own if trials is None else trials
    return ((number, min(each, asked - number * each)) for number in range(math.ceil(asked / each)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a unit brought: the ids (k,) of its own front and its accounts; `nearest` is
    (violation, id) where nothing was feasible."""

    ids: NDArray[np.int64]
    evaluations: int
    feasible: int
    violated: tuple[int, ...]
    only: tuple[int, ...]
    nearest: tuple[float, int]
    seconds: float

    def attrs(self) -> dict[str, Any]:
        """The outcome as attributes of a trial, each small enough for any database."""
        ids = self.ids.tolist()
        parts = [ids[i : i + _IDS_TOGETHER] for i in range(0, len(ids), _IDS_TOGETHER)]
        violation, nearest = self.nearest
        return {
            "evaluations": self.evaluations,
            "feasible": self.feasible,
            "violated": list(self.violated),
            "only": list(self.only),
            "nearest": [violation if math.isfinite(violation) else None, nearest],
            "seconds": self.seconds,
            "front_parts": len(parts),
            **{f"front_{k}": part for k, part in enumerate(parts)},
        }

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Outcome:
        parts = [attrs[f"front_{k}"] for k in range(attrs["front_parts"])]
        violation, nearest = attrs["nearest"]
        return cls(
            np.array([i for part in parts for i in part], dtype=np.int64),
            attrs["evaluations"],
            attrs["feasible"],
            tuple(attrs["violated"]),
            tuple(attrs["only"]),
            (math.inf if violation is None else violation, nearest),
            attrs["seconds"],
        )


def execute(
    problem: Problem,
    plan: Plan,
    unit: Unit,
    *,
    jobs: int = 1,
    record: Record | None = None,
    progress: Progress = lambda done, total, front: None,
) -> Outcome:
    """Run one unit. Points that a sampler asks for go to `record` on the way; the front of the
    unit does not: most of it is not on the front of the study."""
    started = time.perf_counter()
    sink = None if record is None else record.add
    evaluator = Evaluator(problem, _CHUNK, jobs, sink)
    if plan.engine.name == WHOLE:
        evaluator.sweep_ranks(
            unit.first,
            unit.last,
            lambda: progress(evaluator.evaluations, None, len(evaluator.archive)),
        )
    else:
        budget = Budget(trials=unit.trials)
        evaluator.limit = evaluations_limit(plan.engine, budget, problem.space.size)
        rng = np.random.Generator(np.random.PCG64([plan.seed, unit.number]))
        plan.engine.run(evaluator, budget, rng, progress)
    return _outcome(evaluator, started)


def surveyed(problem: Problem, plan: Plan) -> tuple[Survey | None, dict[Unit, Outcome]]:
    """The sample of the space for the record of a divided search, and what it adds to the units:
    nothing to an enumeration."""
    started = time.perf_counter()
    limit = evaluations_limit(plan.engine, Budget(), problem.space.size)
    survey = take(problem, plan.engine, plan.seed, limit)
    if survey is None or plan.engine.name == WHOLE:
        return survey, {}
    evaluator = Evaluator(problem, _CHUNK)
    evaluator.add(survey.ids)
    return survey, {SURVEY: _outcome(evaluator, started)}


def _outcome(evaluator: Evaluator, started: float) -> Outcome:
    tallies = evaluator.tallies
    return Outcome(
        evaluator.archive.ids,
        evaluator.evaluations,
        evaluator.feasible,
        tuple(tally.violated for tally in tallies),
        tuple(tally.only for tally in tallies),
        evaluator.nearest,
        time.perf_counter() - started,
    )


class Union:
    """The front and the accounts of the outcomes added so far, each unit once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.outcomes: dict[Unit, Outcome] = {}
        self._evaluator = Evaluator(problem, _CHUNK)
        self._archive = Archive(len(problem.objectives))

    @property
    def evaluations(self) -> int:
        return sum(outcome.evaluations for outcome in self.outcomes.values())

    def __len__(self) -> int:
        return len(self._archive)

    def add(self, outcomes: Mapping[Unit, Outcome]) -> None:
        for unit, outcome in outcomes.items():
            if unit in self.outcomes:
                continue
            self.outcomes[unit] = outcome
            for i in range(0, len(outcome.ids), _CHUNK):
                batch = self._evaluator.again(outcome.ids[i : i + _CHUNK])
                self._archive.add(batch.F, batch.ids)

    def front(self) -> Batch:
        """In the order of front.csv: by objectives, then id."""
        return in_order(self._evaluator.again(self._archive.ids))

    def result(self, plan: Plan, seconds: Mapping[str, float]) -> Result:
        """The same Result as of one process. Which points two restarts both evaluated is not
        known, so `evaluations` is an upper bound there, and the whole space only where a unit or
        all ranges saw it."""
        size = self.problem.space.size
        beside = (SURVEY,) if SURVEY in self.outcomes else ()
        outcomes = [self.outcomes[unit] for unit in (*plan.units, *beside)]
        front = self.front()
        self._evaluator.nearest = min(outcome.nearest for outcome in outcomes)
        return Result(
            plan.engine.name,
            f"{plan.why}; in {len(plan.units)} work units",
            front,
            size if self.whole(plan) else min(self.evaluations, size - 1),
            sum(outcome.feasible for outcome in outcomes),
            _tallies(self.problem.constraints, outcomes),
            None if len(front) else nearest_miss(self._evaluator),
            dict(seconds),
        )

    def whole(self, plan: Plan) -> bool:
        """Whether the union has seen every point of the space."""
        size = self.problem.space.size
        return plan.engine.name == WHOLE or any(
            outcome.evaluations == size for outcome in self.outcomes.values()
        )


def _tallies(names: Sequence[str], outcomes: Sequence[Outcome]) -> tuple[Tally, ...]:
    return tuple(
        Tally(name, sum(o.violated[k] for o in outcomes), sum(o.only[k] for o in outcomes))
        for k, name in enumerate(names)
    )
