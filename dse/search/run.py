"""One search from seed to front, and how near that is to the true one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.pareto import (
    Floats,
    Ids,
    Scale,
    additive_epsilon,
    hypervolume,
    non_dominated,
    resolved,
    share,
)
from dse.problem.protocol import Problem
from dse.search.evaluator import (
    CHUNK,
    ENUMERATE,
    FRONT,
    REFUSED,
    SAMPLE,
    Batch,
    Checkpoint,
    Engine,
    Evaluator,
    Progress,
    Tally,
    Trials,
)
from dse.search.parallel import DEFAULT, HERE, Executor
from dse.search.record import Record
from dse.search.samplers import is_path, sampler_engine
from dse.search.survey import Survey, take

# Files of this folder that build on a search or on a database, and hold no engine.
_ABOVE = {"run", "survey"}


def _engines() -> Iterator[Engine]:
    """What the files of this folder list under ENGINES: a new engine is one new file."""
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if file.name not in _ABOVE:
            yield from getattr(importlib.import_module(f"dse.search.{file.name}"), "ENGINES", ())


ENGINES: dict[str, Engine] = {engine.name: engine for engine in _engines()}
ASKED = "asked for"
EXPENSIVE_TRIALS = 100


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found. `front`, exact, is ordered by objectives, then id; without one, `miss`
    is the id of the evaluated point with the smallest sum of positive constraint values. `seconds`
    are split into evaluating, sampling (everything else of the search) and storing."""

    engine: str
    why: str
    front: Batch
    evaluations: int
    feasible: int
    tallies: tuple[Tally, ...]
    miss: int | None
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
    evaluations: int | None = None,
    trials: Trials = None,
    record: Record | None = None,
    progress: Progress = silent,
    chunk: int = CHUNK,
    executor: Executor = DEFAULT,
    expensive: bool = False,
    checkpoint: Checkpoint | None = None,
    survey: bool = False,
    others: Callable[[], Ids] | None = None,
) -> Result:
    """Search a problem. The same problem, engine, seed, unit and counts give the same result,
    whatever `executor` and `chunk` are and whether or not `record` holds trials already: an
    interrupted search is run again from its seed and stores the trials that are missing.

    `evaluations` of an engine that does not enumerate are its own number where none is given.
    `unit` numbers the searches that share a seed. A problem that is `expensive` is evaluated one
    point at a time, `trials` points (100 if None) unless it is enumerated; `auto` takes the
    built-in model, its `physics`, as a prior. A search that `checkpoint` holds is not made again,
    and an enumeration goes on where it was. `others` gives a sampler what other processes asked
    for (`Evaluator`). With `survey` the record holds a sample of the space too (dse.search.survey),
    for which an engine that evaluates in bulk leaves a tenth of its evaluations. Raises InputError
    for an engine that cannot do what is asked. A search with nothing feasible returns an empty
    front and the nearest miss.
    """
    size = problem.space.size
    chosen, why = choose_engine(engine, size, expensive=expensive, trials=trials)
    sink = None if record is None else record.add
    stored = 0.0 if record is None else record.seconds
    evaluator = Evaluator(problem, 1 if expensive else chunk, executor, sink, others)
    evaluator.limit = min(evaluations or chosen.evaluations(size), size)
    if expensive:
        evaluator.one_by_one, trials = True, trials or EXPENSIVE_TRIALS
        if chosen.name != "exhaustive":
            evaluator.limit = min(evaluator.limit, trials)
    evaluator.checkpoint = checkpoint
    rng = np.random.Generator(np.random.PCG64([seed, unit]))
    started = time.perf_counter()
    sample = take(problem, chosen, seed, evaluator.limit) if survey and not expensive else None
    if sample is not None:
        evaluator.publish(sample.kept, SAMPLE)
        evaluator.publish(sample.refused, REFUSED)
        evaluator.reserve(len(sample.ids))
    task = f"{chosen.name} {unit}"
    done = None if checkpoint is None else checkpoint.load(task)
    if done is None:
        chosen.run(evaluator, trials, rng, progress)
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
        None if len(front) else evaluator.nearest[1],
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


# How near a front is to the true one.
#
# A space that can be enumerated gives the true front, and with it the share of its hypervolume that
# a search found and the additive epsilon. Otherwise there is evidence, not proof: whether a point
# one parameter away from the front improves it, and whether searches that share nothing find the
# same. What is met on the way and belongs on the front is handed back, for the front to have it.

RESTARTS = 3
WITNESS = "pareto-local"
MOST_CHECKED = 5_000
AT_ONCE = 250  # points whose neighbours are evaluated together
FIRST_UNIT = 1_000_000  # the number of the first restart, far from that of any search


def _logs(problem: Problem) -> list[bool]:
    return [objective.log for objective in problem.objectives]


def against_truth(problem: Problem, front: Floats, true: Floats) -> dict[str, Any]:
    """`front` (n, m) beside the true front (k, m): hypervolume share, additive epsilon on the true
    front's scale, and how many of its points are found."""
    scale = Scale.of(true, _logs(problem))
    found = set(map(tuple, front.tolist()))
    return {
        "true_hypervolume_share": hypervolume(front, scale) / hypervolume(true, scale),
        "additive_epsilon": max(0.0, additive_epsilon(front, true, scale)),
        "true_front_size": len(true),
        "found": sum(tuple(row) in found for row in true.tolist()),
    }


def local_optimality(
    problem: Problem, result: Result, *, executor: Executor
) -> tuple[dict[str, Any], Ids]:
    """All points that differ from a point of the front in one parameter: how many there are, how
    many of them belong on the front, and which share of the front none of them beats; the ids of
    those that belong there. Of a front of more than 5,000 points, 5,000 evenly spread ones are
    looked at."""
    front, space = result.front, problem.space
    rows = np.unique(np.linspace(0, len(front) - 1, MOST_CHECKED).astype(np.intp))
    evaluator = Evaluator(problem, executor=executor)
    evaluator.archive.add(front.F, front.ids)
    evaluator.seen.add(front.ids)
    for few in np.array_split(rows, max(len(rows) // AT_ONCE, 1)):
        evaluator.visit(space.neighbours(front.index[few]))
    stays = set(map(tuple, evaluator.archive.F.tolist()))
    before = set(map(tuple, front.F.tolist()))
    found = zip(evaluator.archive.F.tolist(), evaluator.archive.ids.tolist(), strict=True)
    better = np.array([i for F, i in found if tuple(F) not in before], dtype=np.int64)
    unbeaten = sum(tuple(F) in stays for F in front.F[rows].tolist())
    return {
        "points": len(rows),
        "neighbours": evaluator.evaluations,
        "feasible": evaluator.feasible,
        "better": len(better),
        "share": unbeaten / len(rows),
    }, better


def evidence(
    problem: Problem,
    result: Result,
    *,
    seed: int,
    executor: Executor,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> tuple[dict[str, Any], Ids]:
    """`restarts`: searches from other random numbers, beside the one that was made, and the share
    of the hypervolume of all fronts together that each finds. And the ids of all that the restarts
    found. They share nothing, so that they run
    at the same time; what `checkpoint` holds of them is not done again."""
    units = range(FIRST_UNIT, FIRST_UNIT + RESTARTS)
    within = progress if executor == HERE else silent

    def task(unit: int) -> dict[str, Ids]:
        found = search(problem, WITNESS, seed=seed, unit=unit, executor=HERE, progress=within)
        return {"evaluations": np.array(found.evaluations), "ids": found.front.ids}

    saved = {unit: checkpoint.load(f"proof {unit}") for unit in units} if checkpoint else {}
    done = {unit: state for unit, state in saved.items() if state}
    left = [unit for unit in units if unit not in done]
    for unit, found in zip(left, executor.map(task, left), strict=True):
        done[unit] = found
        if checkpoint is not None:
            checkpoint.save(f"proof {unit}", found)
        met = sum(int(one["evaluations"]) for one in done.values())
        progress(met, None, len(result.front))
    restarts = [done[unit] for unit in units]
    ids = [found["ids"] for found in restarts]
    others = [in_order(Evaluator(problem).again(front)) for front in ids]
    fronts = [measurable(problem, front).F for front in (result.front, *others)]
    union = np.concatenate(fronts)
    union = union[non_dominated(union)]
    made = [(result.engine, result.evaluations, len(result.front))]
    made += [(WITNESS, int(found["evaluations"]), len(found["ids"])) for found in restarts]
    rows = [
        {
            "engine": engine,
            "evaluations": evaluations,
            "front_size": size,
            "share": share(F, union, _logs(problem)) if len(F) else 0.0,
        }
        for (engine, evaluations, size), F in zip(made, fronts, strict=True)
    ]
    return {"restarts": rows}, np.concatenate(ids)


def prove(
    problem: Problem,
    result: Result,
    *,
    seed: int,
    enumerate_up_to: int,
    executor: Executor = DEFAULT,
    progress: Progress = lambda done, total, front: None,
    checkpoint: Checkpoint | None = None,
) -> tuple[dict[str, Any], Batch]:
    """What is known of `result.front`, in plain numbers, for study.json, and the front with all
    that was met while finding out.

    `enumerated` for a space of at most `enumerate_up_to` points, else `evidence`; `local` unless
    the search itself was the enumeration; `added`, how many points the front gains.
    """
    if result.evaluations == problem.space.size:
        front = result.front.F
        truth = {"evaluations": result.evaluations} | against_truth(problem, front, front)
        return {"enumerated": truth}, result.front
    found: dict[str, Any] = {}
    found["local"], better = local_optimality(problem, result, executor=executor)
    met = [better]
    how = {"executor": executor, "progress": progress, "checkpoint": checkpoint}
    if problem.space.size <= enumerate_up_to:
        true = search(problem, "exhaustive", **how)
        truth = against_truth(problem, result.front.F, true.front.F)
        found["enumerated"] = {"evaluations": true.evaluations} | truth
        met.append(true.front.ids)
    else:
        said, others = evidence(problem, result, seed=seed, **how)
        found |= said
        met.append(others)
    front = joined(result.front, Evaluator(problem).again(np.unique(np.concatenate(met))))
    before = set(map(tuple, result.front.F.tolist()))
    found["added"] = sum(tuple(row) not in before for row in front.F.tolist())
    return found, front
