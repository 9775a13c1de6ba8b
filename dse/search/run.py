"""One search from seed to front."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dse.errors import InputError, NothingFeasible
from dse.problem import Problem
from dse.search.engine import Budget, Engine, Progress
from dse.search.evaluator import Batch, Evaluator, Tally
from dse.search.record import Record

# Files of this folder that build on a search and hold no engine.
_ABOVE = {"run", "units", "claims", "workers", "cluster"}


def _engines() -> Iterator[Engine]:
    """What the files of this folder list under ENGINES: a new engine is one new file."""
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if file.name not in _ABOVE:
            yield from getattr(importlib.import_module(f"dse.search.{file.name}"), "ENGINES", ())


ENGINES: dict[str, Engine] = {engine.name: engine for engine in _engines()}
ENUMERATE_AUTOMATICALLY = 20_000


@dataclass(frozen=True, slots=True)
class Miss:
    """The point nearest to feasibility: its id and its violated constraints with G."""

    id: int
    violated: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found. `front` is ordered by objectives, then id; `seconds` are split into
    evaluating, sampling (everything else of the search) and storing."""

    engine: str
    why: str
    front: Batch
    evaluations: int
    feasible: int
    tallies: tuple[Tally, ...]
    miss: Miss | None
    seconds: dict[str, float]

    def require_feasible(self) -> None:
        """Raise NothingFeasible, with the reasons counted and the nearest miss, for an empty
        front."""
        if self.miss is None:
            return
        reasons = "; ".join(
            f"{tally.constraint}: {tally.violated:,} ({tally.only:,} by it alone)"
            for tally in sorted(self.tallies, key=lambda tally: -tally.violated)
            if tally.violated
        )
        near = ", ".join(
            f"{name} {'beyond any bound' if np.isinf(g) else f'{g:.1%} over its limit'}"
            for name, g in self.miss.violated.items()
        )
        raise NothingFeasible(
            f"none of {self.evaluations:,} points is feasible. Removed by {reasons}. "
            f"The nearest miss, point {self.miss.id}, is {near}."
        )


def choose_engine(name: str, size: int) -> tuple[Engine, str]:
    """The engine of a name, and the reason in words. `auto` enumerates a space of at most 20,000
    points and searches a larger one with NSGA-II. Raises InputError for an unknown name."""
    if name == "auto":
        if size <= ENUMERATE_AUTOMATICALLY:
            return ENGINES["exhaustive"], f"{size:,} points are few enough to enumerate"
        return ENGINES["nsga2"], (
            f"{size:,} points: a sample, NSGA-II from its best, then neighbours of the front"
        )
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"unknown engine {name!r}{hint}",
            field="--engine",
            accepted=", ".join(["auto", *ENGINES]),
        )
    return ENGINES[name], "asked for"


def silent(done: int, total: int | None, front: int) -> None:
    """The progress callback that says nothing."""


def search(
    problem: Problem,
    engine: str = "auto",
    *,
    seed: int = 0,
    unit: int = 0,
    budget: Budget | None = None,
    record: Record | None = None,
    progress: Progress = silent,
    chunk: int = 16_384,
    threads: int = 2,
) -> Result:
    """Search a problem. The same problem, engine, seed, unit and budget give the same result,
    whatever `threads` and `chunk` are and whether or not `record` holds trials already: an
    interrupted search is run again from its seed and stores the trials that are missing.

    `unit` numbers the work units that share a seed. Raises InputError for an engine that cannot
    do what is asked. A search with nothing feasible returns an empty front and the nearest miss.
    """
    budget = budget or Budget()
    chosen, why = choose_engine(engine, problem.space.size)
    sink = None if record is None else record.add
    stored = 0.0 if record is None else record.seconds
    evaluator = Evaluator(problem, chunk, threads, sink)
    evaluator.limit = evaluations_limit(chosen, budget, problem.space.size)
    rng = np.random.Generator(np.random.PCG64([seed, unit]))
    started = time.perf_counter()
    chosen.run(evaluator, budget, rng, progress)
    front = in_order(evaluator.again(evaluator.archive.ids))
    evaluator.publish(front, "front")
    total = time.perf_counter() - started
    store = 0.0 if record is None else record.seconds - stored
    seconds = {
        "evaluate": evaluator.seconds,
        "sample": total - evaluator.seconds - store,
        "store": store,
    }
    return Result(
        chosen.name,
        why,
        front,
        evaluator.evaluations,
        evaluator.feasible,
        evaluator.tallies,
        None if len(front) else nearest_miss(evaluator),
        seconds,
    )


def in_order(front: Batch) -> Batch:
    """By objectives, then id: the order of front.csv."""
    return front.take(np.lexsort((front.ids, *front.F.T[::-1])))


def evaluations_limit(engine: Engine, budget: Budget, size: int) -> int:
    if budget.evaluations is None:
        return engine.evaluations(size)
    if budget.evaluations < 1:
        raise InputError(
            f"{budget.evaluations} evaluations find nothing",
            field="evaluations",
            accepted="1 or more",
        )
    return min(budget.evaluations, size)


def nearest_miss(evaluator: Evaluator) -> Miss:
    """The evaluated point with the smallest sum of positive constraint values."""
    point = evaluator.again(np.array([evaluator.nearest[1]]))
    pairs = zip(evaluator.problem.constraints, point.G[0].tolist(), strict=True)
    return Miss(int(point.ids[0]), {name: g for name, g in pairs if g > 0})
