"""Does the answer depend on the quality law? The front under each law, and the design of least
regret over all of them.

Only the predicted loss and what is made of it differ between laws; times and prices are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.data import rows_beside
from dse.pareto import Scale, non_dominated
from dse.problem.describe import describe_deployment, number
from dse.problem.objective import PhysicsProblem
from dse.problem.shapes import model_at
from dse.problem.words import short_deployment, short_shape
from dse.quality.laws import LAWS
from dse.schema.axes import Axis
from dse.schema.model import config_of
from dse.search.evaluator import Progress
from dse.search.parallel import Executor
from dse.search.run import search
from dse.space.candidates import Floats
from dse.study.decide import FRONT_DRAWS, draws

# Metrics that a law decides.
OF_LAW = ("predicted_loss", "dense_equivalent_parameters")
# Engines that a front is searched with again; samplers make way for these.
AGAIN = ("exhaustive", "pareto-local")
ROBUST = "robust"


@dataclass(frozen=True, slots=True)
class _Under:
    """One law over the union of all fronts, (u,) or (u, m): F, whether a point is feasible and on
    the law's front, and the scale of that front."""

    F: Floats
    feasible: NDArray[np.bool_]
    on_front: NDArray[np.bool_]
    scale: Scale


def depends(problem: PhysicsProblem) -> bool:
    """Whether an objective or a limit reads what a law decides."""
    read = {o.metric for o in problem.objectives} | {limit.metric for limit in problem.limits}
    return not read.isdisjoint(OF_LAW)


def compare_laws(
    problem: PhysicsProblem,
    front: NDArray[np.int64],
    items: list[dict[str, Any]],
    chosen: Mapping[str, int],
    *,
    engine: str,
    seed: int,
    executor: Executor,
    progress: Progress,
) -> dict[str, Any]:
    """`laws` of study.json for the front `front` (n, d) of the study's own law, whose items of
    front.json get what they are under each law. `chosen` maps names to rows of the front."""
    if not depends(problem):
        return {
            "depends": False,
            "why": "no objective and no limit of this study reads a predicted loss",
        }
    posed = {
        name: replace(problem, study=replace(problem.study, quality_law=name)) for name in LAWS
    }
    again = engine if engine in AGAIN else "auto"
    fronts, evaluations = {problem.study.quality_law: front}, 0
    for name in LAWS:
        if name not in fronts:
            found = search(posed[name], again, seed=seed, executor=executor, progress=progress)
            fronts[name] = found.front.index
            evaluations += found.evaluations
    n, mine = len(front), problem.space.rank(front)
    others = np.concatenate([problem.space.rank(one) for one in fronts.values()])
    index = np.concatenate([front, problem.space.unrank(np.setdiff1d(others, mine))])
    known = {name: _evaluate(posed[name], index) for name in LAWS}
    under = {name: one for name, one in known.items() if one is not None}
    regret = _regret(problem, under, index, seed)
    worst = np.max([regret[name][:n] for name in LAWS], axis=0)
    for i, item in enumerate(items):
        item["laws"] = {
            "on_fronts": [name for name, one in under.items() if one.on_front[i]],
            "regret": {name: number(regret[name][i]) for name in LAWS},
        }
        item["worst_regret"] = number(worst[i])
    everywhere = np.all([one.on_front[:n] for one in under.values()], axis=0)
    robust, picked = int(np.argmin(worst)), dict(chosen)
    if np.isfinite(worst[robust]):
        picked[ROBUST] = robust
        items[robust]["names"].append(ROBUST)
    return {
        "depends": True,
        "evaluations": evaluations,
        "on_every_front": int(everywhere.sum()),
        "compared": [_row(posed[name], under.get(name), index, n) for name in LAWS],
        "robust": robust + 1 if ROBUST in picked else None,
        "chosen": [
            {
                "name": name,
                "point": row + 1,
                "worst_regret": number(worst[row]),
                "worst_law": max(LAWS, key=lambda name: regret[name][row]),
                **items[row]["laws"],
            }
            for name, row in picked.items()
        ],
    }


def _evaluate(problem: PhysicsProblem, index: NDArray[np.int64]) -> _Under | None:
    """None where nothing of `index` is feasible under the law."""
    found = problem.evaluate(index)
    feasible = np.asarray((found.G <= 0.0).all(axis=1))
    if not feasible.any():
        return None
    rows = np.flatnonzero(feasible)
    on_front = np.zeros(len(index), dtype=bool)
    on_front[rows] = non_dominated(found.F[rows])
    log = tuple(objective.log for objective in problem.objectives)
    return _Under(found.F, feasible, on_front, Scale.of(found.F[on_front], log))


def _regret(
    problem: PhysicsProblem, under: Mapping[str, _Under], index: NDArray[np.int64], seed: int
) -> dict[str, Floats]:
    """{law: (u,)} mean regret over the draws of time errors, of every law; infinite where a point
    is not feasible under it. The regret of a design is the mean of its objectives, each scaled from
    0 at the best to 1 at the worst of the law's front, less that of the design with the least."""
    ours = [j for j, o in enumerate(problem.objectives) if o.metric in OF_LAW]
    total = {name: np.full(len(index), 0.0 if name in under else np.inf) for name in LAWS}
    rng = np.random.default_rng((seed, len(index)))
    for drawn in draws(problem, index, rng):
        for name, one in under.items():
            F = drawn.copy()
            F[:, ours] = one.F[:, ours]
            mean = np.full(len(index), np.inf)
            mean[one.feasible] = one.scale(F[one.feasible]).mean(axis=1)
            total[name] += mean - mean.min()
    return {name: value / FRONT_DRAWS for name, value in total.items()}


def _row(
    law: PhysicsProblem, one: _Under | None, index: NDArray[np.int64], n: int
) -> dict[str, Any]:
    """How large a law's own front is, how much of it the study's front shares (the first n points
    of `index`), and the design that the law would choose: the least sum of its scaled objectives.
    `law` is the problem posed under it."""
    row: dict[str, Any] = {"law": law.study.quality_law, "front_size": 0, "shared": 0}
    if one is None:
        return row | {"shape": "nothing feasible", "deployed": None}
    total = np.full(len(index), np.inf)
    total[one.on_front] = one.scale(one.F[one.on_front]).sum(axis=1)
    knee = int(np.argmin(total))
    batch, metrics = law.batch(index[knee : knee + 1]), law.metrics(index[knee : knee + 1])
    return {
        **row,
        "front_size": int(one.on_front.sum()),
        "shared": int(one.on_front[:n].sum()),
        "point": knee + 1 if knee < n else None,
        "shape": short_shape(config_of(law.model or model_at(batch, 0, "", None))),
        "deployed": short_deployment(describe_deployment(batch, 0, law.machines)),
        **{
            metric: number(metrics.values[metric][0])
            for metric in dict.fromkeys((*(o.metric for o in law.objectives), *OF_LAW))
        },
    }


# What a space searches that no quality law sees: said wherever its predicted losses are shown.
#
# `unseen.csv` has a row for each such choice: the `axes` that make it, `what` it is, what is
# `published` on it, and a `limit` that bounds it. The published comparisons are quoted, never
# turned into a coefficient: models of other sizes, data and benchmarks.


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The file; several axes of a row have spaces between."""
    return tuple(rows_beside(__file__, "unseen.csv"))


def unseen(axes: Sequence[Axis]) -> tuple[str, ...]:
    """A sentence for everything that the axes search and no law sees."""
    searched = {axis.name for axis in axes if len(axis.values) > 1}
    found = []
    for row in rows():
        names = [name for name in row["axes"].split() if name in searched]
        if names:
            found.append(
                f"Searched here, and no law sees it: {row['what']} ({', '.join(names)}). Losses "
                f"differ by parameters alone. Published: {row['published']} "
                f"To bound it: {row['limit']}."
            )
    return tuple(found)
