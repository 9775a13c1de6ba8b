"""How much each axis decides about each objective, by Optuna's own evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, create_trial

from dse.problem.protocol import Problem
from dse.search.evaluator import Batch
from dse.search.journal import many_trials
from dse.search.record import active_axes

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


def importances(problem: Problem, batch: Batch) -> dict[str, dict[str, float]]:
    """{metric: {axis: share}} of the feasible designs of `batch`; shares add up to 1, the largest
    first. Empty of fewer than 100 designs.

    PED-ANOVA (Watanabe, Bansal and Hutter 2023, arXiv:2304.10255) compares how often an axis has
    each value in the best tenth with how often in all designs; where an axis does not apply, its
    part of the designs is left out (arXiv:2601.20800).
    """
    with many_trials():
        return _importances(problem, batch)


def _importances(problem: Problem, batch: Batch) -> dict[str, dict[str, float]]:
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
