"""The few decisions that a front comes to, and the design to start from.

Of every design the *regret* in a draw of the errors is what it gives away to the best design of
that draw, for the wish of the study. The design to start from has the least mean regret of those
that keep the limits of the wish as predicted.

The *decisions* are designs, the one to start from first, so few that no wish loses more by choosing
among them than the errors make the first one lose. Wishes are weights of the scaled objectives, all
over their simplex; each further decision is the one that lets them lose least, three to seven in
all. No two of them lie within one another's 80% intervals in every objective: where the errors are
as wide as the front, there are fewer. Every design of the front belongs to the family of the
decision that it is nearest to, in such intervals.

Where one decision turns into another is found by moving the wish of the study: the weight of each
objective, or each limit.

Errors of predictions are drawn, of time, price and quality:

- Times, costs and energies move with the machine (below): in part alike on one chip.
- Dollars a token move with the price of the chip (`dse.economics.prices`), alike for all
  designs on it.
- Predicted loss and the dense equivalent move along their 80% intervals (`dse.problem.describe`),
  the better one with the other. Half of the variance is shared by all sparse models, and by all
  dense ones; the rest by those with the same experts (their number, how many a token meets, their
  granularity). These shares are assumed.

A limit is kept in a draw where its metric keeps it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.data import rows_beside
from dse.economics.prices import price_spreads
from dse.errors import InputError
from dse.pareto import Scale, non_dominated
from dse.physics.intervals import CLASS, THROUGHPUT_METRICS, alike, eldest, interval
from dse.problem.describe import describe_deployment, number
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem
from dse.problem.protocol import Objective
from dse.quality.own_runs import P90
from dse.record import record
from dse.schema.metrics import METRICS, Limit
from dse.schema.model import Model, config_of
from dse.schema.model_catalog import load_models
from dse.schema.space_sections import Wish
from dse.space.batches import DEPLOYMENT_AXES, OFFLOAD_AXES, OPTIONAL_AXES
from dse.space.candidates import CandidateBatch, Floats
from dse.space.space import deployments

DRAWS = 200
LEAST_DRAWS = 50
MOST_DRAWN = 1_000_000  # draws x designs
ALIKE = 0.5  # of the variance of the dense equivalent, assumed
LOSS = "predicted_loss"
OF_QUALITY = (LOSS, "dense_equivalent_parameters")
DOLLARS = "usd_per_million"  # a metric that begins so is proportional to the price

Intervals = Mapping[str, Sequence[float]]  # (low, high) by metric
Column = Callable[[Floats, Floats, Floats], Floats]  # of (n,) machine, log of the price, quality
Rows = NDArray[np.intp]
LEAST, MOST = 3, 7  # decisions
LEAST_LOSS = 0.02  # of the range of the front
SHARES = {1: 1, 2: 24, 3: 12, 4: 8, 5: 6}  # parts that weights are made of, by number of objectives
FACTORS = 2.0 ** (np.arange(1, 25) / 4.0)  # by which the weight of an objective is moved
STEPS = 33  # to which a limit is moved over the range of the front
# What regret is counted in.
OF_RANGE, OF_VALUE, AMOUNT = "share of the range of the front", "share", "amount"


@dataclass(frozen=True, slots=True)
class Drawn:
    """`F` (D, n, m) objectives of n designs in D draws, all minimised; `kept` (D, n) whether every
    limit of the study is kept."""

    F: NDArray[np.float64]
    kept: NDArray[np.bool_]

    @classmethod
    def certain(cls, F: Floats) -> Drawn:
        """One draw without an error, of designs that are feasible."""
        return cls(F[None], np.ones((1, len(F)), dtype=bool))


@dataclass(frozen=True, slots=True)
class Errors:
    """What errors make of n designs `index` (n, d) of a problem; `price_sd` (chips,) is of the
    logarithm of a price."""

    problem: PhysicsProblem
    index: NDArray[np.int64]
    batch: CandidateBatch
    price_sd: Floats
    objectives: Sequence[Column]
    limits: Sequence[tuple[Limit, Column]]

    @classmethod
    def of(
        cls,
        problem: PhysicsProblem,
        catalog: Catalog,
        index: NDArray[np.int64],
        intervals: Sequence[Intervals],
    ) -> Errors:
        """Of feasible designs; `catalog` has the prices of the study's basis, `intervals` the 80%
        interval of each metric of each design."""
        metrics = problem.metrics(index)
        spreads = price_spreads(catalog.prices, problem.study.price_basis, problem.machines.ids)
        objectives = [
            _moved(o.metric, o.sign * metrics.values[o.metric], metrics, intervals)
            for o in problem.objectives
        ]
        limits = [
            (one, _moved(one.metric, one.used(metrics), metrics, intervals))
            for one in problem.limits
        ]
        sd = np.array([row["sd"] for row in spreads])
        return cls(problem, index, problem.batch(index), sd, objectives, limits)

    def at(self, machine: Floats, price: Floats, quality: Floats) -> Drawn:
        """One draw: how slow machines are and how bad a loss is, 1 being the end of the 80%
        interval, and the logarithm of prices, (n,) each."""
        F = np.stack([column(machine, price, quality) for column in self.objectives], axis=1)
        kept = np.ones(len(F), dtype=bool)
        for limit, column in self.limits:
            used = column(machine, price, quality)
            # A limit on what no draw moves is kept, as it is without errors.
            kept &= ~(limit.sign * used > limit.sign * limit.limit * (1.0 + limit.sign * 1e-9))
        return Drawn(F[None], kept[None])

    def drawn(self, seed: int) -> Drawn:
        """All of them drawn together."""
        n, chip = len(self.index), self.batch.chip
        count = max(LEAST_DRAWS, min(DRAWS, MOST_DRAWN // n))
        rng = np.random.default_rng((seed, n, count))
        of_machine, of_price, of_quality = rng.spawn(3)
        kind, experts = _kinds(self.batch)
        machine = deviates(self.problem, self.index, of_machine)
        found = []
        for _ in range(count):
            z = next(machine)
            price = (self.price_sd * of_price.standard_normal(len(self.price_sd)))[chip]
            common = of_quality.standard_normal(2)[kind]
            own = of_quality.standard_normal(experts.max() + 1)[experts]
            quality = (np.sqrt(ALIKE) * common + np.sqrt(1.0 - ALIKE) * own) / P90
            found.append(self.at(z, price, quality))
        return Drawn(*(np.concatenate([getattr(one, f) for one in found]) for f in ("F", "kept")))


def _moved(metric: str, value: Floats, metrics: Metrics, intervals: Sequence[Intervals]) -> Column:
    """`value` (n,) of a metric, of either sign, in a draw."""
    if metric in OF_QUALITY:
        here = metrics.values[metric]
        own = [one.get(metric, (at, at)) for one, at in zip(intervals, here, strict=True)]
        low, high = np.array(own, dtype=float).reshape(-1, 2).T
        less, more = value * (low / here), value * (high / here)
        better, worse = (less, more) if metric == LOSS else (more, less)
        return lambda _, __, q: value + np.abs(q) * (np.where(q > 0.0, worse, better) - value)
    moved = Moved(value, *ends(metric, metrics))
    if metric.startswith(DOLLARS):
        return lambda z, price, _: moved.at(z) * np.exp(price)
    return lambda z, _, __: moved.at(z)


def _kinds(batch: CandidateBatch) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(0 dense or 1 sparse, a number for those with the same experts), (n,) each."""
    sparse = batch.sparse
    columns = [sparse.astype(float)]
    for block in batch.blocks:
        if "experts" in block.sizes:
            used = (block.count > 0.0).astype(float)
            width = np.where(used > 0.0, block["expert_intermediate_size"], batch.hidden_size)
            fineness = np.rint(np.log2(batch.hidden_size / width))
            columns += [block["experts"] * used, block["experts_per_token"] * used, fineness * used]
    _, same = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return sparse.astype(np.intp), same.ravel()


# How likely each front point is to be on the front, given how sure its predictions are.
#
# Errors are drawn from the 80% intervals (`dse.physics.intervals`, normal in the logarithm on
# either side). A slow machine is slow in all: one deviate moves the times and costs of a point.
# Part of its variance is shared by all points on the same chip, as the errors of measured rows are
# shared by their group (`Calibration.shared`), and half of that part by the chips of one kin
# (`dse.physics.intervals`, as `dse.study.choices` draws it); the rest by all shapes on the same
# deployment of it (degrees, formats, requests in flight; assumed). An error that two points share
# does not change their order. Predicted loss moves where the law was moved to runs of the user, by
# a draw of what these leave open (`dse.quality.own_runs`), one for all points; else it is left as
# it is. Rivals are the front and what lies closest behind it one parameter away.

FRONT_DRAWS = 100
RIVALS = 2_000  # beside the front
CHUNK = 16_384  # evaluated at once
STARTS = 1_000  # front points whose neighbours are rivals, evenly along it


def front_probability(problem: PhysicsProblem, index: NDArray[np.int64], seed: int) -> Floats:
    """(n,) share of FRONT_DRAWS in which the front points `index` (n, d) are not dominated."""
    every = max(len(index) // STARTS, 1)
    behind = _closest(problem, problem.space.neighbours(index[::every]))
    rng = np.random.default_rng((seed, len(index)))
    on_front = np.zeros(len(index))
    for F in draws(problem, np.concatenate([index, behind]), rng):
        on_front += non_dominated(F)[: len(index)]
    return on_front / FRONT_DRAWS


def draws(
    problem: PhysicsProblem, index: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Floats]:
    """F (n, m) of the points `index` (n, d), FRONT_DRAWS times, with errors drawn as said above."""
    metrics = problem.metrics(index)
    moved = [
        Moved(o.sign * metrics.values[o.metric], *ends(o.metric, metrics))
        for o in problem.objectives
    ]
    losses = [(j, o.sign) for j, o in enumerate(problem.objectives) if o.metric == LOSS]
    doubt, own = metrics.quality.doubt, None
    for z in islice(deviates(problem, index, rng), FRONT_DRAWS):
        F = np.stack([column.at(z) for column in moved], axis=1)
        if losses and doubt is not None:
            own = own or rng.spawn(1)[0]  # a stream of its own
            nats = doubt.moved(doubt.posterior.draw(own))
            for j, sign in losses:
                F[:, j] += sign * nats
        yield F


def deviates(
    problem: PhysicsProblem, index: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Floats]:
    """(n,) how slow the machine of each point of `index` (n, d) is, without end; 1 is the end of an
    80% interval on the slow side."""
    chip, deployment = shared_errors(problem, index)
    shared = problem.machines.shared_error
    kin = problem.machines.kin
    # What kin share has a stream of its own, which moves nothing where no two chips are kin.
    of_kin, first = rng.spawn(1)[0], eldest(kin)
    several = np.bincount(first, minlength=len(kin))[first] > 1
    while True:
        alone, common = rng.standard_normal(len(kin)), of_kin.standard_normal(len(kin))[first]
        of_chip = np.where(several, alike(common, alone), alone)
        own = rng.standard_normal(deployment.max() + 1)[deployment]
        yield (np.sqrt(shared) * of_chip[chip] + np.sqrt(1.0 - shared) * own) / P90


def shared_errors(
    problem: PhysicsProblem, index: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(chip, deployment), (n,) each: numbers that rows with the same errors share."""
    batch = problem.batch(index)
    columns = configuration(batch, ("chip", *DEPLOYMENT_AXES, "kv_dtype"))
    _, deployment = np.unique(columns, axis=0, return_inverse=True)
    return batch.chip, deployment.ravel()


def configuration(batch: CandidateBatch, fields: Sequence[str], more: Sequence[str] = ()) -> Floats:
    """(n, j) these fields of candidates, the formats of their weights, and the axes that only some
    have, `more` among them."""
    columns = [getattr(batch, name) for name in fields]
    columns += [batch.weight_dtype[part] for part in sorted(batch.weight_dtype)]
    optional = (getattr(batch, name) for name in (*OFFLOAD_AXES, *OPTIONAL_AXES, *more))
    return np.stack([*columns, *(one for one in optional if one is not None)], axis=1)


def _closest(problem: PhysicsProblem, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Up to RIVALS feasible rows of `index`, layer by layer of non-dominated points."""
    kept, values = [index[:0]], [np.zeros((0, len(problem.objectives)))]
    for start in range(0, len(index), CHUNK):
        part = index[start : start + CHUNK]
        found = problem.evaluate(part)
        feasible = (found.G <= 0.0).all(axis=1)
        kept.append(part[feasible])
        values.append(found.F[feasible])
    index, F = np.concatenate(kept), np.concatenate(values)
    layers, count = [index[:0]], 0
    while len(F) and count < RIVALS:
        keep = non_dominated(F)
        layers.append(index[keep][: RIVALS - count])
        count += len(layers[-1])
        index, F = index[~keep], F[~keep]
    return np.concatenate(layers)


@record
class Moved:
    """A metric, of either sign, and how errors move it: value exp(z up) where z > 0, value
    exp(z down) else; all (k,), with z = 1 and -1 the slow and the fast end of the 80% interval."""

    value: Floats
    up: Floats
    down: Floats

    def at(self, z: Floats) -> Floats:
        """(N, k) for errors z (N, 1), (k,) for errors (k,)."""
        return self.value * np.exp(z * np.where(z > 0.0, self.up, self.down))


def ends(metric: str, metrics: Metrics) -> tuple[Floats, Floats]:
    """(up, down), (n,) each, of a metric: its logarithm moves by up z on a machine slower than
    predicted (z > 0), by down z on a faster one; z = 1 and -1 are the ends of the interval. 0 of a
    metric that no machine moves."""
    ones = np.ones(len(metrics.provenance))
    if metric not in CLASS:
        return 0.0 * ones, 0.0 * ones
    low, high = interval(metric, ones, metrics.provenance, metrics.spread)
    slow, fast = (low, high) if METRICS[metric].direction == "maximize" else (high, low)
    up, down = np.log(slow), -np.log(fast)
    if metric not in THROUGHPUT_METRICS:
        return up, down
    held = metrics.values["utilisation"] < 1.0  # arrivals below capacity set them
    return np.where(held, 0.0, up), np.where(held, 0.0, down)


# The decisions.


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
) -> tuple[int, Rows, dict[str, Any]]:
    """(row to start from, the decision of each row from 0, `decisions` of study.json) of a front
    F (n, m) at its resolution."""
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
    }
    return start, family, document


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
    objectives = case.F.shape[1]
    parts = SHARES[objectives]  # weights all over the simplex, none of them 0
    shares = [one for one in product(range(parts + 1), repeat=objectives) if sum(one) == parts]
    wishes = (np.array(shares) + 0.2) / (parts + 0.2 * objectives)
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


def families(case: Case, taken: Sequence[int]) -> Rows:
    """(n,) the decision that each design is nearest to, from 0."""
    return np.argmin([_apart(case, row) for row in taken], axis=0)


def _apart(case: Case, row: int) -> Floats:
    """(n,) how far each design lies from that of `row` in the objective in which that is most, in
    half 80% intervals (the median of the front); at most 1: the same as far as is known."""
    low, high = np.quantile(case.x, [0.1, 0.9], axis=0)
    # Half of an interval is at least the resolution, in the middle of the front.
    relative = [one.relative for one in case.objectives]
    middle = np.where(relative, np.median(np.abs(case.F), axis=0), 1.0)
    shift = np.array([one.step for one in case.objectives]) * middle
    x = case.scale(case.F)
    floor = np.maximum(np.abs(case.scale(case.F + shift) - x), 1e-9)
    half = np.median(np.maximum((high - low) / 2.0, floor), axis=0)
    return (np.abs(x - x[row]) / half).max(axis=1)


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

# Open models that readers know, whose training tokens are published; small to large.
KNOWN = tuple(row["model"] for row in rows_beside(__file__, "landmarks.csv"))
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
    if problem.model is not None or asked or LOSS not in wanted or len(wanted) < 2:
        return []
    # A model that exists is not held to the shapes that a search is allowed.
    study = replace(problem.study, allow_extrapolation=True)
    # All its deployments are evaluated together, with at most MOST_VALUES of each scale; scales
    # that others depend on keep theirs.
    needed = {condition.axis for axis in study.axes for condition in axis.when}
    axes = tuple(
        replace(axis, values=axis.values[:: -(-len(axis.values) // MOST_VALUES)])
        if axis.ordered and not axis.by_chip and axis.name not in needed
        else axis
        for axis in study.deployment_axes
    )
    free = replace(problem, study=replace(study, deployment_axes=axes))
    catalog = load_models()
    try:
        return [_landmark(free, name, catalog[name]) for name in KNOWN]
    except InputError:
        return []


def _landmark(problem: PhysicsProblem, name: str, model: Model) -> dict[str, Any]:
    by = next(one for one in problem.objectives if one.metric != LOSS)
    published, best, found = np.inf, np.inf, None
    for chip in range(len(problem.machines.ids)):
        batch = deployments(problem.study, [model], [config_of(model)], chip)
        batch.chip[:] = chip
        metrics = problem.metrics_of(batch, problem.machines)
        published = min(published, float(np.min(metrics.values[LOSS])))
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
    reached: Floats = problem.metrics_of(batch, problem.machines).values[LOSS]
    least = np.minimum.accumulate(reached)
    found = np.exp(np.interp(-np.array(losses), -least, np.log(MULTIPLES)))
    inside = [least[-1] <= loss <= least[0] for loss in losses]
    return [float(m) if known else None for m, known in zip(found, inside, strict=True)]
