"""What a predicted loss compares with: published models served on the chips of the space, and the
training compute that would bring the design to start from to the loss of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.problem.describe import describe_deployment
from dse.problem.objective import PhysicsProblem
from dse.schema.model import Model
from dse.schema.model_catalog import load_models
from dse.schema.own_config import config_of
from dse.schema.study import Study
from dse.space.candidates import Floats
from dse.space.studied import deployments

QUALITY = "predicted_loss"
# Open models that readers know, whose training tokens are published; small to large.
KNOWN = (
    "llama-3.2-3b",
    "llama-3-8b",
    "qwen3-8b",
    "qwen3-32b",
    "qwen3-30b-a3b",
    "llama-3-70b",
    "qwen3-235b-a22b",
    "deepseek-v3",
    "llama-3.1-405b",
    "kimi-k2",
)
MOST_VALUES = 32  # of a scale that are tried of a deployment
MULTIPLES = np.geomspace(1 / 32, 32, 121)  # of the training compute


def landmarks(problem: PhysicsProblem) -> list[dict[str, Any]]:
    """Each of KNOWN on the deployment of the space that is best for it: the least of the first
    objective that is no quality, within the limits of the space. `loss` is that of the model as it
    was published (nats), `metrics` hold the objectives as it is served; None where no deployment
    of the space can serve it. Empty where the study searches no shapes, has no loss among its
    objectives, asks what a model that exists cannot be asked (pools, training), or ties deployments
    to an axis of shapes that such a model does not have."""
    wanted = [objective.metric for objective in problem.objectives]
    asked = problem.trained is not None or problem.pools is not None
    if problem.model is not None or asked or QUALITY not in wanted or len(wanted) < 2:
        return []
    # A model that exists is not held to the shapes that a search is allowed.
    free = replace(problem, study=_spread(replace(problem.study, allow_extrapolation=True)))
    catalog = load_models()
    try:
        return [_landmark(free, name, catalog[name]) for name in KNOWN]
    except InputError:
        return []


def _spread(study: Study) -> Study:
    """The study with at most MOST_VALUES of each scale of its deployments: all deployments of a
    model are evaluated together. Scales that others depend on keep theirs."""
    needed = {condition.axis for axis in study.axes for condition in axis.when}
    axes = tuple(
        replace(axis, values=axis.values[:: -(-len(axis.values) // MOST_VALUES)])
        if axis.ordered and not axis.by_chip and axis.name not in needed
        else axis
        for axis in study.deployment_axes
    )
    return replace(study, deployment_axes=axes)


def _landmark(problem: PhysicsProblem, name: str, model: Model) -> dict[str, Any]:
    by = next(one for one in problem.objectives if one.metric != QUALITY)
    published, best, found = np.inf, np.inf, None
    for chip in range(len(problem.machines.ids)):
        batch = deployments(problem.study, [model], [config_of(model)], chip)
        batch.chip[:] = chip
        metrics = problem.metrics_of(batch, problem.machines)
        published = min(published, float(np.min(metrics.values[QUALITY])))
        kept = metrics.feasible & np.isfinite(metrics.values[by.metric])
        for limit in problem.limits:
            kept &= limit.amount(metrics) <= 0.0
        amount = np.where(kept, by.sign * metrics.values[by.metric], np.inf)
        row = int(np.argmin(amount))
        if amount[row] < best:
            best = float(amount[row])
            found = {
                "deployment": describe_deployment(batch, row, problem.machines),
                "metrics": {
                    one.metric: float(metrics.values[one.metric][row]) for one in problem.objectives
                },
            }
    served = found or {"deployment": None, "metrics": None}
    return {"model": name, "name": model.name, "loss": published, "best_in": by.metric} | served


def compute_multiples(
    problem: PhysicsProblem, point: NDArray[np.int64], losses: Sequence[float]
) -> list[float | None]:
    """How many times the training compute of the design at `point` (1, d), spent on more or fewer
    tokens for its shape, brings it to each of `losses` (nats); None beyond the range of
    MULTIPLES."""
    batch = problem.batch(np.repeat(point, len(MULTIPLES), axis=0))
    own = problem.metrics(point).values
    batch = replace(batch, training_tokens=own["training_tokens"][0] * MULTIPLES)
    reached: Floats = problem.metrics_of(batch, problem.machines).values[QUALITY]
    least = np.minimum.accumulate(reached)
    found = np.exp(np.interp(-np.array(losses), -least, np.log(MULTIPLES)))
    inside = [least[-1] <= loss <= least[0] for loss in losses]
    return [float(m) if known else None for m, known in zip(found, inside, strict=True)]
