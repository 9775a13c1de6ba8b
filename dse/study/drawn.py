"""Designs with the errors of their predictions drawn: time, price and quality.

- Times, costs and energies move with the machine (`dse.study.robust`): in part alike on one chip.
- Dollars a token move with the price of the chip (`dse.questions.risk.price_spread`), alike for all
  designs on it.
- Predicted loss and the dense equivalent move along their 80% intervals (`dse.problem.quality`),
  the better one with the other. Half of the variance is shared by all sparse models, and by all
  dense ones; the rest by those with the same experts (their number, how many a token meets, their
  granularity). These shares are assumed.

A limit is kept in a draw where its metric keeps it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem
from dse.questions.risk.price_spread import price_spreads
from dse.space.candidates import CandidateBatch, Floats
from dse.study.robust import P90, deviates, slowed

DRAWS = 200
LEAST_DRAWS = 50
MOST_VALUES = 1_000_000  # draws x designs
ALIKE = 0.5  # of the variance of the dense equivalent, assumed
LOSS = "predicted_loss"
QUALITY = (LOSS, "dense_equivalent_parameters")
DOLLARS = "usd_per_million"  # a metric that begins so is proportional to the price

Intervals = Mapping[str, Sequence[float]]  # (low, high) by metric
Moved = Callable[[Floats, Floats, Floats], Floats]  # of (n,) machine, log of the price, quality


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


def drawn(
    problem: PhysicsProblem,
    catalog: Catalog,
    index: NDArray[np.int64],
    intervals: Sequence[Intervals],
    seed: int,
) -> Drawn:
    """The feasible designs `index` (n, d) with their errors drawn; `catalog` has the prices of the
    study's basis, `intervals` the 80% interval of each metric of each design."""
    count = max(LEAST_DRAWS, min(DRAWS, MOST_VALUES // len(index)))
    rng = np.random.default_rng((seed, len(index), count))
    of_machine, of_price, of_quality = rng.spawn(3)
    metrics, batch = problem.metrics(index), problem.batch(index)
    names = problem.machines.ids
    spreads = price_spreads(catalog.prices, problem.study.price_basis, names)
    sd = np.array([one.sd for one in spreads])
    objectives = [
        _moved(o.metric, o.sign * metrics.values[o.metric], metrics, intervals)
        for o in problem.objectives
    ]
    limits = [
        (one, _moved(one.metric, one.used(metrics), metrics, intervals)) for one in problem.limits
    ]
    kind, experts = _kinds(batch)
    machine = deviates(problem, index, of_machine)
    F = np.empty((count, len(index), len(objectives)))
    kept = np.ones((count, len(index)), dtype=bool)
    for k in range(count):
        z = next(machine)
        price = (sd * of_price.standard_normal(len(names)))[batch.chip]
        common = of_quality.standard_normal(2)[kind]
        own = of_quality.standard_normal(experts.max() + 1)[experts]
        quality = (np.sqrt(ALIKE) * common + np.sqrt(1.0 - ALIKE) * own) / P90
        for j, column in enumerate(objectives):
            F[k, :, j] = column(z, price, quality)
        for limit, column in limits:
            used = column(z, price, quality)
            # A limit on what no draw moves is kept, as it is without errors.
            kept[k] &= ~(limit.sign * used > limit.sign * limit.limit * (1.0 + limit.sign * 1e-9))
    return Drawn(F, kept)


def _moved(metric: str, value: Floats, metrics: Metrics, intervals: Sequence[Intervals]) -> Moved:
    """`value` (n,) of a metric, of either sign, in a draw."""
    if metric in QUALITY:
        here = metrics.values[metric]
        ends = [own.get(metric, (at, at)) for own, at in zip(intervals, here, strict=True)]
        low, high = np.array(ends, dtype=float).reshape(-1, 2).T
        less, more = value * (low / here), value * (high / here)
        better, worse = (less, more) if metric == LOSS else (more, less)
        return lambda _, __, q: value + np.abs(q) * (np.where(q > 0.0, worse, better) - value)
    slower = slowed(metric, value, metrics)
    if metric.startswith(DOLLARS):
        return lambda z, price, _: slower(z) * np.exp(price)
    return lambda z, _, __: slower(z)


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
