"""The few decisions that a front comes to, and the design to start from.

Of every design the *regret* in a draw of the errors (`dse.study.drawn`) is what it gives away to
the best design of that draw, for the wish of the study. The design to start from has the least mean
regret of those that keep the limits of the wish as predicted.

The *decisions* are designs, the one to start from first, so few that no wish loses more by choosing
among them than the errors make the first one lose. Wishes are weights of the scaled objectives, all
over their simplex; each further decision is the one that lets them lose least, three to seven in
all. No two of them lie within one another's 80% intervals in every objective: where the errors are
as wide as the front, there are fewer. Every design of the front belongs to the family of the
decision that it is nearest to, in such intervals.

Where one decision turns into another is found by moving the wish of the study: the weight of each
objective, or each limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.pareto import Scale
from dse.problem.describe import describe_deployment, number
from dse.problem.objective import PhysicsProblem
from dse.problem.protocol import Objective
from dse.schema.model import Model, config_of
from dse.schema.model_catalog import load_models
from dse.schema.space_sections import Wish
from dse.schema.study import Study
from dse.space.candidates import Floats
from dse.space.space import deployments
from dse.study.drawn import Alone, Drawn

Rows = NDArray[np.intp]
LEAST, MOST = 3, 7  # decisions
LEAST_LOSS = 0.02  # of the range of the front
SHARES = {1: 1, 2: 24, 3: 12, 4: 8, 5: 6}  # parts that weights are made of, by number of objectives
FACTORS = 2.0 ** (np.arange(1, 25) / 4.0)  # by which the weight of an objective is moved
STEPS = 33  # to which a limit is moved over the range of the front
# What regret is counted in.
OF_RANGE, OF_VALUE, AMOUNT = "share of the range of the front", "share", "amount"


@dataclass(frozen=True, slots=True)
class Case:
    """A front F (n, m), its `scale`, its draws, these scaled, `x` (D, n, m), and the wish."""

    objectives: tuple[Objective, ...]
    F: Floats
    scale: Scale
    drawn: Drawn
    x: NDArray[np.float64]
    wish: Wish

    @property
    def kept(self) -> NDArray[np.bool_]:
        """(D, n) whether the limits of the study and of the wish are kept."""
        kept, names = self.drawn.kept, [one.metric for one in self.objectives]
        for limit in self.wish.limits:
            j = names.index(limit.metric)
            value = self.objectives[j].sign * self.drawn.F[:, :, j]
            kept = kept & (limit.sign * value <= limit.sign * limit.limit)
        return kept

    @property
    def counted(self) -> str:
        if not self.wish.best:
            return OF_RANGE
        return OF_VALUE if self.objectives[self.column].log else AMOUNT

    @property
    def column(self) -> int:
        """Of the objective that is to be best, the first where weights say what is."""
        names = [one.metric for one in self.objectives]
        return names.index(self.wish.best) if self.wish.best else 0


def decide(
    objectives: Sequence[Objective],
    F: Floats,
    drawn: Drawn,
    wish: Wish,
    alone: Callable[[Sequence[int]], Sequence[Alone]] = lambda _: (),
) -> tuple[int, Rows, dict[str, Any]]:
    """(row to start from, the decision of each row from 0, `decisions` of study.json) of a front
    F (n, m) at its resolution; `alone` are errors by themselves, of
    the decisions in these rows, too."""
    log = tuple(one.log for one in objectives)
    scale = Scale.of(F, log)
    flat = drawn.F.reshape(-1, F.shape[1])
    case = Case(tuple(objectives), F, scale, drawn, scale(flat).reshape(drawn.F.shape), wish)
    regret = regrets(case)
    mean = regret.mean(axis=0)
    start = _least(case, mean)
    taken = decisions(case, start)
    family = families(case, taken)
    best = family[np.argmin(regret, axis=1)]
    certain = len(drawn.F) == 1

    def at(decision: int, row: int) -> dict[str, Any]:
        chance = None if certain else float((best == decision).mean())
        return {"point": row + 1, "probability": chance, "regret": number(mean[row])}

    document = {
        "wish": wish.text,
        "draws": len(drawn.F),
        "regret_in": case.counted,
        "best": wish.best or None,
        "start": {**at(0, start), "kept": float(case.kept[:, start].mean())},
        "families": [
            {"decision": k + 1, "designs": int((family == k).sum()), **at(k, row)}
            for k, row in enumerate(taken)
        ],
        "turns": [
            {"objective": metric, by: value, "decision": int(family[row]) + 1, "point": row + 1}
            for metric, by, value, row in _turns(case, family)
        ],
        "unmoved": _one_draw(case, Drawn.certain(F), start, family),
        "causes": [
            {
                "of": one.of,
                "name": one.name if isinstance(one.name, str) else one.name + 1,
                "factors": one.factors,
                "ends": [_one_draw(case, end, start, family) for end in one.ends],
            }
            for one in alone(taken)
        ],
    }
    return start, family, document


def _one_draw(case: Case, drawn: Drawn, start: int, family: Rows) -> dict[str, Any]:
    """The decision of the best design of one draw, and what the one to start from gives away."""
    regret = regrets(replace(case, drawn=drawn, x=case.scale(drawn.F[0])[None]))[0]
    best = int(np.argmin(regret))
    return {
        "decision": int(family[best]) + 1,
        "point": best + 1,
        "regret": number(regret[start]),
        "kept": bool(drawn.kept[0, start]),
    }


def _least(case: Case, mean: Floats) -> int:
    """The row of least mean regret among those that keep the limits of the wish as predicted; among
    all where none does."""
    within = replace(case, drawn=Drawn.certain(case.F)).kept[0]
    return int(np.argmin(np.where(within, mean, np.inf) if within.any() else mean))


def regrets(case: Case) -> Floats:
    """(D, n) what each design gives away in each draw, in `counted`.

    A design that breaks a limit in a draw gives away the whole range of the front; in a share of a
    value once the best of the draw, which is had after it. Where no design keeps the limits, all
    do.
    """
    kept, column, counted = case.kept, case.column, case.counted
    value, penalty = case.drawn.F[:, :, column], np.ptp(case.F[:, column])
    if counted == OF_RANGE:
        value, penalty = np.add.reduce(case.x * np.asarray(case.wish.weights), axis=2), 1.0
    elif counted == OF_VALUE:
        value = np.sign(value) * np.log(np.abs(value))
    least = np.where(kept, value, np.inf).min(axis=1, keepdims=True)
    least = np.where(np.isfinite(least), least, value.min(axis=1, keepdims=True))
    if counted == OF_VALUE:
        return np.exp(value - least) - np.where(kept, 1.0, 0.0)
    return np.maximum(value - least, 0.0) + np.where(kept, 0.0, penalty)


def decisions(case: Case, start: int) -> list[int]:
    """Rows of the designs that wishes choose among, `start` first."""
    wishes = _wishes(case.F.shape[1])
    value = 1.0 - case.drawn.kept.mean(axis=0) + np.zeros((len(wishes), 1))
    for j, column in enumerate(case.x.mean(axis=0).T):
        value = value + wishes[:, j : j + 1] * column
    loses = value - value.min(axis=1, keepdims=True)
    alike = np.add.reduce(case.x, axis=2) / case.F.shape[1]
    noise = max(LEAST_LOSS, float((alike[:, start] - alike.min(axis=1)).mean()))
    taken, others = [start], np.unique(np.argmin(loses, axis=1))
    left = loses[:, start]
    while len(taken) < MOST and (left.max() > noise or len(taken) < LEAST):
        others = others[_apart(case, taken[-1])[others] > 1.0]
        if not len(others):
            break
        after = np.minimum(left[:, None], loses[:, others])
        best = int(np.argmin(after.mean(axis=0)))
        taken.append(int(others[best]))
        left = after[:, best]
    return taken


def _wishes(objectives: int) -> Floats:
    """(w, m) weights all over the simplex, none of them 0."""
    parts = SHARES[objectives]
    counts = np.array(
        [one for one in product(range(parts + 1), repeat=objectives) if sum(one) == parts]
    )
    return (counts + 0.2) / (parts + 0.2 * objectives)


def families(case: Case, taken: Sequence[int]) -> Rows:
    """(n,) the decision that each design is nearest to, from 0."""
    return np.argmin([_apart(case, row) for row in taken], axis=0)


def _apart(case: Case, row: int) -> Floats:
    """(n,) how far each design lies from that of `row` in the objective in which that is most, in
    half 80% intervals (the median of the front); at most 1: the same as far as is known."""
    x, half = case.scale(case.F), np.median(_half_intervals(case), axis=0)
    return (np.abs(x - x[row]) / half).max(axis=1)


def _half_intervals(case: Case) -> Floats:
    """(n, m) half of the 80% interval of each objective, scaled, at least its resolution."""
    low, high = np.quantile(case.x, [0.1, 0.9], axis=0)
    shift = np.array([_step(one, case.F[:, j]) for j, one in enumerate(case.objectives)])
    floor = np.abs(case.scale(case.F + shift) - case.scale(case.F))
    return np.maximum((high - low) / 2.0, np.maximum(floor, 1e-9))


def _step(objective: Objective, values: Floats) -> float:
    """The resolution of an objective in its own unit, in the middle of the front."""
    middle = float(np.median(np.abs(values)))
    return objective.step * (middle if objective.relative else 1.0)


def _turns(case: Case, family: Rows) -> Iterator[tuple[str, str, float | int | None, int]]:
    """(objective, `factor` or `limit`, its value, the row then best) where the wish, moved, makes
    another decision the one of least mean regret: an objective weighs `factor` times as much, or a
    limit is at `limit`, from the tightest to the loosest that the front has an answer for."""
    metrics = [one.metric for one in case.objectives]
    for metric in [one.metric for one in case.wish.limits] if case.wish.best else metrics:
        j = metrics.index(metric)
        by, best, last, steps = "factor", _weighing, 0, FACTORS[: None if len(metrics) > 1 else 0]
        if case.wish.best:
            values = case.objectives[j].sign * case.F[:, j]
            spaced = np.geomspace if case.objectives[j].log else np.linspace
            by, best, last, steps = "limit", _limited, -1, spaced(values.min(), values.max(), STEPS)
        for step in steps:
            row = best(case, j, float(step))
            if family[row] != last:
                last = family[row]
                yield metric, by, number(step), row


def _weighing(case: Case, j: int, factor: float) -> int:
    """The best row where objective j weighs so many times as much."""
    weights = np.asarray(case.wish.weights)
    weights = weights * np.where(np.arange(len(weights)) == j, factor, 1.0)
    regret = np.add.reduce(case.x.mean(axis=0) * (weights / weights.sum()), axis=1)
    return int(np.argmin(regret + (1.0 - case.drawn.kept.mean(axis=0))))


def _limited(case: Case, j: int, limit: float) -> int:
    """The best row where the limit on objective j is at `limit`."""
    limits = tuple(
        replace(one, limit=limit) if one.metric == case.objectives[j].metric else one
        for one in case.wish.limits
    )
    moved = replace(case, wish=replace(case.wish, limits=limits))
    return _least(moved, regrets(moved).mean(axis=0))


# What a predicted loss compares with: published models served on the chips of the space, and the
# training compute that would bring the design to start from to the loss of another.

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
