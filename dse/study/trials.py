"""Candidates of one chip, as it is or with a figure changed, against the front of a study."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.catalog import Catalog, with_own_chips
from dse.pareto import non_dominated
from dse.physics.machines import Machines, compile_machines
from dse.problem.objective import PhysicsProblem, on_terms, without_pools
from dse.problem.protocol import Evaluation
from dse.schema.derive import derive
from dse.space.candidates import CandidateBatch, Floats

MARGIN = 1e-9  # a deployment that is on the front already differs from itself by rounding alone
CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class Tried:
    """Every candidate on one variant of the chip. `enters` (n,)."""

    machines: Machines
    found: Evaluation
    bottleneck: np.ndarray
    enters: np.ndarray


class Trials:
    """Candidates of one chip against a front of F (k, m)."""

    def __init__(
        self,
        problem: PhysicsProblem,
        catalog: Catalog,
        chip: str,
        batch: CandidateBatch,
        front: Floats,
    ) -> None:
        without_pools(problem)
        self.problem, self.catalog, self.chip = problem, catalog, chip
        self.batch, self.front = batch, front
        self.basis = problem.study.price_basis

    def price(self) -> float | None:
        found = self.catalog.prices.select(self.basis).get(self.chip)
        return found.usd_per_chip_hour if found else None

    def machines(self, setting: str | None) -> Machines:
        """The chip with one setting of `derive`. Raises InputError."""
        catalog, name = self.catalog, self.chip
        if setting is not None:
            own = derive(catalog, self.chip, [setting])
            catalog = on_terms(with_own_chips(catalog, [own]), self.problem.study)
            name = own.chip.id
        software = [one.id for one in self.problem.machines.backends]
        return compile_machines(catalog, [name], self.basis, backends=software)

    def try_(self, machines: Machines, rows: np.ndarray | None = None) -> Tried:
        """The candidates at `rows` (all by default) on `machines`."""
        batch = self.batch if rows is None else self.batch[rows]
        F, G, bottleneck = [], [], []
        for start in range(0, len(batch), CHUNK):
            metrics = self.problem.metrics_of(batch[start : start + CHUNK], machines)
            found = self.problem.judge(metrics)
            F.append(found.F)
            G.append(found.G)
            bottleneck.append(metrics.performance.detail.bottleneck)
        found = Evaluation(np.concatenate(F), np.concatenate(G))
        enters = entering(self.front, found)
        return Tried(machines, found, np.concatenate(bottleneck), enters)


def entering(front: Floats, found: Evaluation) -> np.ndarray:
    """(n,) whether a feasible row is better than every row of `front` (k, m) in some objective, by
    more than MARGIN of its size. Of two rows that enter and of which one beats the
    other, the better alone."""
    enters = np.zeros(len(found.F), dtype=bool)
    rows = np.flatnonzero((found.G <= 0.0).all(axis=1) & np.isfinite(found.F).all(axis=1))
    if len(rows):
        F = found.F[rows]
        F = F + MARGIN * np.abs(F)
        keep = non_dominated(F)
        # Of equal rows only the first is kept, and the front comes first.
        both = non_dominated(np.concatenate([front, F[keep]]))
        enters[rows[keep]] = both[len(front) :]
    return enters


def gap(front: Floats, F: Floats) -> Floats:
    """(n,) the factor by which every objective would have to be better for the row to be beaten by
    no row of the front: max over the front of min over objectives of value / front's value."""
    worst = np.zeros(len(F))
    with np.errstate(divide="ignore", invalid="ignore"):
        for point in front:  # over the front, not over candidates
            ratios = np.where(point > 0.0, F / point, point / F)
            worst = np.maximum(worst, np.nanmin(ratios, axis=1))
    return worst
