"""Why a configuration is not on a front: the rule it breaks, or the points that beat it. And why a
whole space is not feasible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dse.errors import NothingFeasible
from dse.problem.describe import describe_deployment, limits_of, violations
from dse.problem.mix import held, load_row, loads_of
from dse.problem.objective import KNOWN, PhysicsProblem
from dse.problem.shapes import model_at
from dse.problem.words import SHAPE_KEY, SHORT, deployment_words, short_shape, show, violation_words
from dse.questions.estimate.point import Estimate
from dse.rules.registry import MEANINGS
from dse.schema.own_config import config_of
from dse.search.run import Result
from dse.study.folder import read_study

SHOWN = 5


def why_not(folder: Path, answer: Estimate) -> dict[str, Any]:
    """`answer` must have been made for the study's workload and price basis."""
    study, items = read_study(folder)
    objectives = tuple(objective["metric"] for objective in study["objectives"])
    metrics = answer.as_json(objectives)
    broken = [violation_words(row) for row in violations(answer.metrics, 0, limits_of(study))]
    if broken:
        return {"on_front": False, "reasons": broken, "dominated_by": []}
    for item in items:
        if all(metrics[name] == item["metrics"][name] for name in objectives):
            reason = f"it is on the front: point {item['point']} has the same values"
            return {"on_front": True, "reasons": [reason], "dominated_by": []}
    better = [item for item in items if _beats(item, metrics, study)]
    reasons = [
        f"point {item['point']} is at least as good in every objective: "
        + ", ".join(
            f"{SHORT.get(name, name)} {show(name, item['metrics'][name])} "
            f"(here {show(name, metrics[name])})"
            for name in objectives
        )
        + f"; {deployment_words(item['deployment'], held(loads_of(study)))}"
        for item in better[:SHOWN]
    ]
    if len(better) > SHOWN:
        reasons.append(f"and {len(better) - SHOWN} more points of the front beat it")
    if not better:
        reasons = ["feasible and beaten by no point of the front: the search did not see it"]
    return {
        "on_front": False,
        "reasons": reasons,
        "dominated_by": [item["point"] for item in better],
    }


def _beats(item: dict[str, Any], metrics: dict[str, Any], study: dict[str, Any]) -> bool:
    for objective in study["objectives"]:
        mine, theirs = metrics[objective["metric"]], item["metrics"][objective["metric"]]
        if mine is None:
            continue
        sign = 1.0 if objective["direction"] == "minimize" else -1.0
        if sign * theirs > sign * mine:
            return False
    return True


def nothing_feasible(problem: PhysicsProblem, result: Result) -> NothingFeasible:
    """What each constraint removed, and the nearest miss in words, for a search without a front."""
    assert result.miss is not None
    index = problem.space.unrank(np.array([result.miss.id]))
    metrics, batch = problem.metrics(index), problem.batch(index)
    deployment = describe_deployment(batch, 0, problem.machines)
    if problem.model is not None:
        shape = problem.model.name
    else:
        shape = f"{short_shape(config_of(model_at(batch, 0, '', None)))} ({SHAPE_KEY})"
    lines = [
        f"none of {result.evaluations:,} points is feasible. Removed (by it alone):",
        *(
            f"  {tally.violated:>9,} ({tally.only:,})  {tally.constraint}"
            + (f": {MEANINGS[tally.constraint]}" if tally.constraint in MEANINGS else "")
            for tally in sorted(result.tallies, key=lambda tally: -tally.violated)
            if tally.violated
        ),
        f"The nearest miss: {shape}",
        f"on {deployment_words(deployment, held([load_row(share) for share in problem.mix]))}:",
        *(f"  {violation_words(row)}" for row in violations(metrics, 0, problem.limits)),
        *(
            f"  breaks {KNOWN}: {o.metric} has none, see `dse estimate` of this model and chip"
            for o in problem.objectives
            if np.isnan(metrics.values[o.metric][0])
        ),
    ]
    return NothingFeasible("\n".join(lines))
