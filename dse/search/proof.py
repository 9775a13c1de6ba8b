"""What is known of how near a front is to the true one.

A space that can be enumerated gives the true front, and with it the share of its hypervolume that
a search found and the additive epsilon. Otherwise there is evidence, not proof: whether a point one
parameter away from the front improves it, whether searches that share nothing find the same, and
how the same search does on a part of the space that can be enumerated. What is met on the way and
belongs on the front is handed back, for the front to have it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.pareto import Scale, additive_epsilon, hypervolume, non_dominated, share
from dse.problem.protocol import Problem
from dse.search.engine import Progress
from dse.search.evaluator import Batch, Checkpoint, Evaluator
from dse.search.parallel import DEFAULT, HERE, Executor
from dse.search.run import Result, in_order, joined, measurable, search, silent

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

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

    def task(unit: int) -> Any:
        found = search(problem, WITNESS, seed=seed, unit=unit, executor=HERE, progress=within)
        return {"evaluations": found.evaluations, "ids": found.front.ids.tolist()}

    saved = {unit: checkpoint.load(f"proof {unit}") for unit in units} if checkpoint else {}
    done = {unit: json.loads(str(state["json"])) for unit, state in saved.items() if state}
    left = [unit for unit in units if unit not in done]
    met = sum(found["evaluations"] for found in done.values())
    for unit, found in zip(left, executor.map(task, left), strict=True):
        done[unit] = found
        if checkpoint is not None:
            checkpoint.save(f"proof {unit}", {"json": np.array(json.dumps(found))})
        met += found["evaluations"]
        progress(met, None, len(result.front))
    restarts = [done[unit] for unit in units]
    ids = [np.array(found["ids"], dtype=np.int64) for found in restarts]
    others = [in_order(Evaluator(problem).again(front)) for front in ids]
    fronts = [measurable(problem, front).F for front in (result.front, *others)]
    union = np.concatenate(fronts)
    union = union[non_dominated(union)]
    made = [(result.engine, result.evaluations, len(result.front))]
    made += [(WITNESS, found["evaluations"], len(found["ids"])) for found in restarts]
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
