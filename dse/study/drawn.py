"""Designs with the errors of their predictions drawn: time, price and quality.

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
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.economics.prices import price_spreads
from dse.pareto import non_dominated
from dse.physics.intervals import CLASS, THROUGHPUT_METRICS, alike, eldest, interval
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem
from dse.quality.own_runs import P90
from dse.record import record
from dse.schema.metrics import METRICS, Limit
from dse.space.batches import DEPLOYMENT_AXES, OFFLOAD_AXES, OPTIONAL_AXES
from dse.space.candidates import CandidateBatch, Floats

DRAWS = 200
LEAST_DRAWS = 50
MOST_VALUES = 1_000_000  # draws x designs
ALIKE = 0.5  # of the variance of the dense equivalent, assumed
LOSS = "predicted_loss"
QUALITY = (LOSS, "dense_equivalent_parameters")
DOLLARS = "usd_per_million"  # a metric that begins so is proportional to the price

Intervals = Mapping[str, Sequence[float]]  # (low, high) by metric
Column = Callable[[Floats, Floats, Floats], Floats]  # of (n,) machine, log of the price, quality


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
class Alone:
    """One error by itself, all others nil: `of` is a price, a speed or a loss, `name` the chip,
    kind of model or decision (its place) that it is of. `ends` are one draw each, at the good and
    at the bad end of its 80% interval; `factors` what it is multiplied by there, where that is one
    number for all designs."""

    of: str
    name: str | int
    ends: tuple[Drawn, Drawn]
    factors: tuple[float, float] | None = None


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
        count = max(LEAST_DRAWS, min(DRAWS, MOST_VALUES // n))
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

    def alone(self, taken: Sequence[int]) -> list[Alone]:
        """Each error by itself: the price and the speed of each chip, the loss of each kind of
        model, and the own speed and loss of the designs `taken` and all that err with them. Those
        that move nothing are left out."""
        none, chip, names = np.zeros(len(self.index)), self.batch.chip, self.problem.machines.ids
        found: list[Alone] = []
        same = self.at(none, none, none)

        def add(of: str, name: str | int, moved: Callable[[float], tuple[Floats, Floats, Floats]],
                factors: tuple[float, float] | None = None) -> None:  # fmt: skip
            ends = self.at(*moved(-1.0)), self.at(*moved(1.0))
            if any((end.F != same.F).any() or (end.kept != same.kept).any() for end in ends):
                found.append(Alone(of, name, ends, factors))

        for code in np.unique(chip):
            mine, log = (chip == code) * 1.0, float(P90 * self.price_sd[code])
            factors = float(np.exp(-log)), float(np.exp(log))
            add("price", names[code], lambda end, m=mine, k=log: (none, end * k * m, none), factors)
            alike = mine * np.sqrt(self.problem.machines.shared_error)
            add("speed", names[code], lambda end, m=alike: (end * m, none, none))
        kind, experts = _kinds(self.batch)
        for code, name in enumerate(("dense", "sparse")):
            alike = (kind == code) * np.sqrt(ALIKE)
            add("loss", name, lambda end, m=alike: (none, none, end * m))
        _, deployment = shared_errors(self.problem, self.index)
        for k, row in enumerate(taken):
            own = (deployment == deployment[row]) * np.sqrt(
                1.0 - self.problem.machines.shared_error
            )
            alike = (experts == experts[row]) * np.sqrt(1.0 - ALIKE)
            add("speed", k, lambda end, m=own: (end * m, none, none))
            add("loss", k, lambda end, m=alike: (none, none, end * m))
        return found


def _moved(metric: str, value: Floats, metrics: Metrics, intervals: Sequence[Intervals]) -> Column:
    """`value` (n,) of a metric, of either sign, in a draw."""
    if metric in QUALITY:
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
# (`dse.physics.intervals`, as `dse.study.regret` draws it); the rest by all shapes on the same
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
    nats = _nats(metrics, rng)
    for z in islice(deviates(problem, index, rng), FRONT_DRAWS):
        F = np.stack([column.at(z) for column in moved], axis=1)
        more = next(nats)
        for j, sign in losses:
            F[:, j] += sign * more
        yield F


def _nats(metrics: Metrics, rng: np.random.Generator) -> Iterator[Floats]:
    """(n,) or (1,) nats that a draw adds to losses, from a stream of its own."""
    doubt = metrics.quality.doubt
    while doubt is None:
        yield np.zeros(1)
    own = rng.spawn(1)[0]
    while True:
        yield doubt.moved(doubt.posterior.draw(own))


def deviates(
    problem: PhysicsProblem, index: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Floats]:
    """(n,) how slow the machine of each point of `index` (n, d) is, without end; 1 is the end of an
    80% interval on the slow side."""
    chip, deployment = shared_errors(problem, index)
    shared = problem.machines.shared_error
    for of_chip in _of_chips(problem.machines.kin, rng):
        own = rng.standard_normal(deployment.max() + 1)[deployment]
        yield (np.sqrt(shared) * of_chip[chip] + np.sqrt(1.0 - shared) * own) / P90


def _of_chips(kin: Sequence[str], rng: np.random.Generator) -> Iterator[Floats]:
    """(C,) standard normals of chips, alike within a kin. What kin share has a stream of its own,
    which moves nothing where no two chips are kin."""
    of_kin = rng.spawn(1)[0]
    first = eldest(kin)
    several = np.bincount(first, minlength=len(kin))[first] > 1
    while True:
        own, common = rng.standard_normal(len(kin)), of_kin.standard_normal(len(kin))[first]
        yield np.where(several, alike(common, own), own)


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


# Metrics of which more is better.
GROW = frozenset(metric for metric in CLASS if METRICS[metric].direction == "maximize")


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
    slow, fast = (low, high) if metric in GROW else (high, low)
    up, down = np.log(slow), -np.log(fast)
    if metric not in THROUGHPUT_METRICS:
        return up, down
    held = metrics.values["utilisation"] < 1.0  # arrivals below capacity set them
    return np.where(held, 0.0, up), np.where(held, 0.0, down)
