"""The sample that stands for the whole space in the study of record, and how much each axis decides
in it about each objective, by Optuna's own evaluator.

Points are drawn over the grid in Latin hypercubes (McKay, Beckman and Conover 1979, Technometrics
21, 239-245): in each block every value of an axis is drawn equally often, to within one. Which
points and in which order depends on the axes and the seed alone, so nothing that was evaluated has
a say in it. Of this order the first designs that keep every constraint are stored, and the first
that break one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, create_trial

from dse.pareto import Ids
from dse.problem.protocol import Problem
from dse.search.evaluator import Batch, Engine
from dse.search.record import active_axes
from dse.search.storage import many_trials
from dse.space.space import Space

MOST_KEPT, MOST_REFUSED = 1_500, 500
BLOCK = 2_048
MOST_DRAWN = 16 * BLOCK
# The part of a search's evaluations that goes to its survey.
SHARE = 10
# Beside the numbers of the work units, with which a seed is shared.
_UNIT = 2_000_000


@dataclass(frozen=True, slots=True)
class Survey:
    """What was drawn, ids (n,), in order; of it the designs that are stored: `kept` meet every
    constraint, `refused` break one."""

    ids: Ids
    kept: Batch
    refused: Batch


def blocks(space: Space, seed: int, most: int) -> Iterator[Ids]:
    """Canonical points (n, d), distinct over all blocks, of at most `most` draws. Of a space of no
    more points than a block, all of them."""
    rng = np.random.Generator(np.random.PCG64([seed, _UNIT]))
    size = min(BLOCK, most)
    if space.size <= size:
        yield space.unrank(rng.permutation(space.size))
        return
    seen = np.empty(0, dtype=np.int64)
    for _ in range(most // size if size else 0):
        columns = [rng.permutation(size) * int(n) // size for n in space.cardinalities]
        index = space.canonical(np.column_stack(columns))
        ids = space.rank(index)
        first = np.sort(np.unique(ids, return_index=True)[1])
        new = first[~np.isin(ids[first], seen)]
        seen = np.concatenate([seen, ids[new]])
        yield index[new]


def take(problem: Problem, engine: Engine, seed: int, limit: int) -> Survey | None:
    """Draw and evaluate blocks until both kinds of design are enough: at most 32,768 points, and a
    tenth of a search of `limit` evaluations that is not of the whole space. They are in no account
    of an evaluator yet. None for an engine whose own trials are what it evaluates, and for too few
    evaluations."""
    whole = limit >= problem.space.size
    most = min(MOST_DRAWN, limit if whole else limit // SHARE)
    if not engine.bulk or not most:
        return None
    drawn: list[Batch] = []
    kept = refused = 0
    for index in blocks(problem.space, seed, most):
        found = problem.evaluate(index)
        drawn.append(Batch(problem.space.rank(index), index, found.F, found.G))
        feasible = int((drawn[-1].violation == 0).sum())
        kept, refused = kept + feasible, refused + len(index) - feasible
        if kept >= MOST_KEPT and refused >= MOST_REFUSED:
            break
    everything = Batch.of(drawn)
    feasible = everything.violation == 0
    return Survey(
        everything.ids,
        everything.take(np.flatnonzero(feasible)[:MOST_KEPT]),
        everything.take(np.flatnonzero(~feasible)[:MOST_REFUSED]),
    )


METHOD = "PED-ANOVA"
# Of fewer designs the best tenth is too few to say what sets it apart.
LEAST = 100
BEST = 0.1


class _Axis(CategoricalDistribution):
    """The choices of an axis, one object for all trials. It is compared and copied as that: Optuna
    compares and copies that of every trial, choice by choice, otherwise."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Axis:
        return self


@many_trials()
def importances(problem: Problem, batch: Batch) -> dict[str, dict[str, float]]:
    """{metric: {axis: share}} of the feasible designs of `batch`; shares add up to 1, the largest
    first. Empty of fewer than 100 designs.

    PED-ANOVA (Watanabe, Bansal and Hutter 2023, arXiv:2304.10255) compares how often an axis has
    each value in the best tenth with how often in all designs; where an axis does not apply, its
    part of the designs is left out (arXiv:2601.20800).
    """
    space = problem.space
    found = batch.take(np.flatnonzero((batch.violation == 0) & np.isfinite(batch.F).all(axis=1)))
    axes = np.flatnonzero(space.cardinalities > 1)
    if len(found) < LEAST or not len(axes):
        return {}
    active, kinds = active_axes(space, found.index), [_Axis(values) for values in space.choices]
    trials = []
    for row, (point, on) in enumerate(zip(found.index.tolist(), active.tolist(), strict=True)):
        here = [axis for axis in axes if on[axis]]
        trials.append(
            create_trial(
                values=found.F[row].tolist(),
                params={space.names[axis]: space.choices[axis][point[axis]] for axis in here},
                distributions={space.names[axis]: kinds[axis] for axis in here},
            )
        )
    study = optuna.create_study(directions=["minimize" for _ in problem.objectives])
    study.add_trials(trials)
    return {
        objective.metric: _of(study, [space.names[axis] for axis in axes], column)
        for column, objective in enumerate(problem.objectives)
    }


def _of(study: optuna.Study, names: Sequence[str], column: int) -> dict[str, float]:
    """Shares of one objective; an axis that applies to no design has none."""

    def value(trial: FrozenTrial) -> float:
        return trial.values[column]

    applies = {name for trial in study.get_trials(deepcopy=False) for name in trial.params}
    asked = [name for name in names if name in applies]
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that low is good, and of parts with a single design
        found = get_param_importances(study, evaluator=evaluator, params=asked, target=value)
    return {name: float(found[name]) for name in sorted(asked, key=lambda name: -found[name])}
