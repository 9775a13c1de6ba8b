"""One search from seed to front."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.pareto import non_dominated, resolved
from dse.problem.protocol import Problem
from dse.search.engine import ENUMERATE, Budget, Engine, Progress
from dse.search.evaluator import CHUNK, FRONT, Batch, Checkpoint, Evaluator, Ids, Tally
from dse.search.parallel import DEFAULT, Executor
from dse.search.record import Record
from dse.search.samplers import is_path, sampler_engine
from dse.search.survey import Survey, take

# Files of this folder that build on a search or on a database, and hold no engine.
_ABOVE = {"run", "proof", "survey"}


def _engines() -> Iterator[Engine]:
    """What the files of this folder list under ENGINES: a new engine is one new file."""
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if file.name not in _ABOVE:
            yield from getattr(importlib.import_module(f"dse.search.{file.name}"), "ENGINES", ())


Floats = NDArray[np.float64]
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _engines()}
ASKED = "asked for"
EXPENSIVE_TRIALS = 100


@dataclass(frozen=True, slots=True)
class Miss:
    """The point nearest to feasibility: its id and its violated constraints with G."""

    id: int
    violated: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found. `front`, exact, is ordered by objectives, then id; `seconds` are split
    into evaluating, sampling (everything else of the search) and storing."""

    engine: str
    why: str
    front: Batch
    evaluations: int
    feasible: int
    tallies: tuple[Tally, ...]
    miss: Miss | None
    seconds: dict[str, float]
    survey: Survey | None = None


def choose_engine(
    name: str,
    size: int,
    *,
    expensive: bool = False,
    trials: int | None = None,
) -> tuple[Engine, str]:
    """The engine of a name, and the reason in words. `auto` decides by counts alone, so that it
    decides alike on every machine.

    A point of the built-in model costs 2 to 5 microseconds of one core, with two objectives or
    four (`python -m benchmarks.search`): up to 3 million points, about 10 s, are enumerated;
    beyond, `pareto-local`. An `expensive` evaluator is asked for `trials` points (100 if None): all
    of a space that has no more, else those that `model-first` proposes. `package.module:Sampler` is
    a sampler of Optuna or of the user. Raises InputError for an unknown name.
    """
    if name == "auto":
        trials = trials or EXPENSIVE_TRIALS
        if expensive and size > trials:
            return ENGINES["model-first"], f"every one of {trials:,} evaluations counts"
        if expensive:
            return ENGINES["exhaustive"], f"{size:,} points are no more than the {trials:,} trials"
        if size <= ENUMERATE:
            return ENGINES["exhaustive"], f"{size:,} points are few enough to enumerate"
        return ENGINES["pareto-local"], (
            f"{size:,} points are more than the {ENUMERATE:,} that are enumerated without asking"
        )
    if is_path(name):
        return sampler_engine(name), ASKED
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"unknown engine {name!r}{hint}",
            field="--engine",
            accepted=", ".join(["auto", *ENGINES, "package.module:Sampler"]),
        )
    return ENGINES[name], ASKED


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
    chunk: int = CHUNK,
    executor: Executor = DEFAULT,
    expensive: bool = False,
    checkpoint: Checkpoint | None = None,
    survey: bool = False,
    others: Callable[[], Ids] | None = None,
) -> Result:
    """Search a problem. The same problem, engine, seed, unit and budget give the same result,
    whatever `executor` and `chunk` are and whether or not `record` holds trials already: an
    interrupted search is run again from its seed and stores the trials that are missing.

    `unit` numbers the searches that share a seed. A problem that is `expensive` is evaluated one
    point at a time, `budget.trials` points (100 if None) unless it is enumerated; `auto` takes the
    built-in model, its `physics`, as a prior. A search that `checkpoint` holds is not made again,
    and an enumeration goes on where it was. `others` gives a sampler what other processes asked
    for (`Evaluator`). With `survey` the record holds a sample of the space too (dse.search.survey),
    for which an engine that evaluates in bulk leaves a tenth of its evaluations. Raises InputError
    for an engine that cannot do what is asked. A search with nothing feasible returns an empty
    front and the nearest miss.
    """
    budget = budget or Budget()
    chosen, why = choose_engine(
        engine,
        problem.space.size,
        expensive=expensive,
        trials=budget.trials,
    )
    if expensive:
        chunk = 1
    sink = None if record is None else record.add
    stored = 0.0 if record is None else record.seconds
    evaluator = Evaluator(problem, chunk, executor, sink, others)
    evaluator.limit = evaluations_limit(chosen, budget, problem.space.size)
    if expensive:
        evaluator.one_by_one = True
        budget = Budget(budget.evaluations, budget.trials or EXPENSIVE_TRIALS)
        if chosen.name != "exhaustive":
            evaluator.limit = min(evaluator.limit, budget.trials or EXPENSIVE_TRIALS)
    evaluator.checkpoint = checkpoint
    rng = np.random.Generator(np.random.PCG64([seed, unit]))
    started = time.perf_counter()
    sample = take(problem, chosen, seed, evaluator.limit) if survey and not expensive else None
    if sample is not None:
        sample.publish(evaluator.publish)
        evaluator.reserve(len(sample.ids))
    task = f"{chosen.name} {unit}"
    done = None if checkpoint is None else checkpoint.load(task)
    if done is None:
        chosen.run(evaluator, budget, rng, progress)
        if sample is not None:
            evaluator.add(sample.ids)
        if checkpoint is not None and chosen.name != "exhaustive":
            checkpoint.save(task, evaluator.state())
    else:
        evaluator.restore(done)
    front = in_order(evaluator.again(evaluator.archive.ids))
    evaluator.publish(front, FRONT)
    total = time.perf_counter() - started
    store = 0.0 if record is None else record.seconds - stored
    seconds = {
        # an expensive point is stored where it is evaluated
        "evaluate": evaluator.seconds - (store if expensive else 0.0),
        "sample": total - evaluator.seconds - (0.0 if expensive else store),
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
        sample,
    )


def in_order(front: Batch) -> Batch:
    """By objectives, then id: the order of front.csv."""
    return front.take(np.lexsort((front.ids, *front.F.T[::-1])))


def joined(front: Batch, more: Batch) -> Batch:
    """The front of both: the feasible points of `more` that belong there are added. Of equal points
    that with the smallest id stays."""
    both = Batch.of([front, more.take(more.violation == 0)])
    both = both.take(np.unique(both.ids, return_index=True)[1])
    return in_order(both.take(non_dominated(both.F))) if len(both) else both


def at_resolution(problem: Problem, front: Batch) -> Batch:
    """The front without the designs for which another can stand: `dse.pareto.resolved`."""
    steps = [objective.step for objective in problem.objectives]
    return front.take(resolved(front.F, steps, [o.relative for o in problem.objectives]))


def measurable(problem: Problem, front: Batch) -> Batch:
    """Of a front what its hypervolume is taken of: all of it, or, in more than three objectives,
    where the time for it grows with a power of its size, that at its resolution."""
    return front if len(problem.objectives) <= 3 else at_resolution(problem, front)


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
