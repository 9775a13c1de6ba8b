"""Factors of `dse.physics.kernels` from measured serving.

The fit (`dse.accuracy.saturating_fit`) minimises a loss of the errors |predicted / measured - 1|,
rounded below 8%, that saturates near 60%, so that a stalled server does not bend the physics, and a
ridge of the logarithms of the factors towards 0. Every group (model and chip) of a metric and
serving weighs the same, and every metric and serving as WEIGHTS says. No row is left out but those
that the data itself excludes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.saturating_fit import Objective, Posed, SpreadTable, class_of, spread_table
from dse.accuracy.scores import ENOUGH_ROWS
from dse.accuracy.serving_points import SERVED, Served, infeasible_rows, predict_rows
from dse.accuracy.serving_rows import Row
from dse.accuracy.tables import Readout, machines_of, with_predictions
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.physics.kernels import (
    BACKENDS,
    KERNELS,
    Parameter,
)
from dse.physics.machines import calibrated_machines
from dse.schema.backend import STOCK, load_backends
from dse.schema.calibration import KINDS, NONE, Calibration
from dse.space.candidates import Floats

PARAMETERS: tuple[Parameter, ...] = (*KERNELS, *BACKENDS)
WEIGHTS = {
    ("tpot_s", "continuous"): 1.0,
    ("ttft_s", "continuous"): 0.6,
    ("output_tokens_per_s", "offline"): 0.6,
}
OTHER_WEIGHT = 0.2
RIDGE = 0.0015
ROUNDED, SATURATION = 0.08, 0.6


@dataclass(frozen=True, slots=True)
class Problem(Posed):
    """Rows of serving; the moves are logarithms of the factors."""

    objective: ClassVar[Objective] = Objective(
        np.array([p.sd for p in PARAMETERS]), RIDGE, ROUNDED, SATURATION
    )

    readout: Readout[Row, Served]
    catalog: Catalog

    def predict(self, moves: Floats) -> Floats:
        factors = as_factors(moves)
        calibration = Calibration(factors, {})
        backends = {
            name: calibration.backend(backend) for name, backend in self.catalog.backends.items()
        }
        machines = calibrated_machines(self.machines, factors)
        return predict_rows(self.readout, replace(self.catalog, backends=backends), machines)

    def predicted(self, numbers: Floats) -> pd.DataFrame:
        return with_predictions(self.table, self.readout, numbers)

    def names(self, by: str) -> list[str]:
        """Those of the rows that the fit sees: no other fold is a fit of its own."""
        return sorted(set(self.keys(by)[self.used]))

    def backends(self) -> Sequence[str]:
        return self.readout.text(lambda row: row.backend)

    def set_intervals(
        self, numbers: Floats, rows: NDArray[np.bool_], others: NDArray[np.bool_]
    ) -> None:
        spread, wider = self.spread(numbers, others)
        stock = self.stock
        names = list(map(class_of, self.table["metric"], self.table["serving"], self.schedulers))
        for row in np.flatnonzero(rows):
            power = wider if stock[row] else 1.0
            low, high = np.power(spread[names[row]][KINDS[int(numbers[row, 4])]], power)
            numbers[row, 1:3] = numbers[row, 0] * low, numbers[row, 0] * high

    @property
    def schedulers(self) -> NDArray[np.object_]:
        """(n,) the scheduler of the row's backend, "" where it is not covered."""
        backends = self.catalog.backends
        named = [backends[name].scheduler if name else "" for name in self.backends()]
        return np.array(named, dtype=object)

    @property
    def stock(self) -> NDArray[np.bool_]:
        """(n,) whether the row is of a stock launch."""
        return np.array(self.readout.text(lambda row: row.tuning)) == STOCK

    def spread(
        self, numbers: Floats, rows: NDArray[np.bool_] | bool = True
    ) -> tuple[SpreadTable, float]:
        """As `spread_table`, of those of `rows` that the fit sees."""
        seen = self.used & rows & np.isfinite(numbers[:, 0])
        ratio = self.measured[seen] / numbers[seen, 0]
        table = self.table[seen].assign(scheduler=self.schedulers[seen])
        return spread_table(table, ratio, numbers[seen, 4], self.stock[seen])


def as_factors(logs: Floats) -> dict[str, float]:
    return {p.name: float(np.exp(x)) for p, x in zip(PARAMETERS, logs, strict=True)}


def pose(table: pd.DataFrame, catalog: Catalog | None = None) -> Problem:
    """The fitting problem of a table in the measurement format."""
    written = load_backends(hardware_dir() / "backends")
    catalog = replace(catalog or load_catalog(), calibration=NONE, backends=written)
    readout = SERVED.read(table, catalog)
    machines = machines_of(catalog)
    covered = np.array([status == "ok" for status in readout.status])
    covered[list(infeasible_rows(readout, catalog, machines))] = False
    counted = covered & (table["exclude"] == "").to_numpy()
    return Problem(
        table=table,
        readout=readout,
        catalog=catalog,
        machines=machines,
        measured=np.asarray(table["value"].astype(float), dtype=np.float64),
        weight=row_weights(table, counted),
    )


def row_weights(table: pd.DataFrame, counted: NDArray[np.bool_]) -> Floats:
    """(n,) a group of 5 rows or more weighs its metric's and serving's weight over its groups;
    smaller groups in proportion to their rows."""
    weight = np.zeros(len(table))
    used = table[counted]
    for (metric, serving), part in used.groupby(["metric", "serving"]):
        groups = part.groupby("group").groups
        for rows in groups.values():
            share = min(len(rows) / ENOUGH_ROWS, 1.0) / len(groups)
            where = table.index.get_indexer(rows)
            of = WEIGHTS.get((str(metric), str(serving)), OTHER_WEIGHT)
            weight[where] = of * share / len(rows)
    return weight
