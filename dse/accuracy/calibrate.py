"""Factors of `dse.physics.calibrated` from measured serving.

The fit (`dse.accuracy.saturating_fit`) minimises a loss of the errors |predicted / measured - 1|,
rounded below 8%, that saturates near 60%, so that a stalled server does not bend the physics, and a
ridge of the logarithms of the factors towards 0. Every group (model and chip) of a metric and
serving weighs the same, and every metric and serving as WEIGHTS says. No row is left out but those
that the data itself excludes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy import saturating_fit
from dse.accuracy.points import Served, predict_rows, read_rows
from dse.accuracy.rows import Row
from dse.accuracy.saturating_fit import Objective
from dse.accuracy.tables import Readout, machines_of
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.physics.calibrated import (
    BACKENDS,
    KERNELS,
    Parameter,
)
from dse.physics.machines import Machines, calibrated_machines
from dse.schema.backend import load_backends
from dse.schema.calibration import NONE, Calibration
from dse.space.candidates import Floats

PARAMETERS: tuple[Parameter, ...] = (*KERNELS, *BACKENDS)
WEIGHTS = {
    ("tpot_s", "continuous"): 1.0,
    ("ttft_s", "continuous"): 0.6,
    ("output_tokens_per_s", "offline"): 0.6,
}
OTHER_WEIGHT = 0.2
RIDGE = 0.0015
ENOUGH_ROWS = 5
ROUNDED, SATURATION = 0.08, 0.6
OBJECTIVE = Objective(np.array([p.sd for p in PARAMETERS]), RIDGE, ROUNDED, SATURATION)


@dataclass(frozen=True, slots=True)
class Problem:
    """n rows to predict; `weight` is 0 for rows that are not covered or excluded."""

    table: pd.DataFrame
    readout: Readout[Row, Served]
    catalog: Catalog
    machines: Machines
    measured: Floats
    weight: Floats

    def predict(self, logs: Floats) -> Floats:
        """(n, 5) as `predict_rows`, with the factors exp(logs)."""
        factors = as_factors(logs)
        calibration = Calibration(factors, {})
        backends = {
            name: calibration.backend(backend) for name, backend in self.catalog.backends.items()
        }
        machines = calibrated_machines(self.machines, factors)
        return predict_rows(self.readout, replace(self.catalog, backends=backends), machines)

    def logs(self, logs: Floats) -> Floats:
        """(rows with a weight,) logarithms of predicted / measured."""
        used = self.weight > 0.0
        return np.log(self.predict(logs)[used, 0] / self.measured[used])


def as_factors(logs: Floats) -> dict[str, float]:
    return {p.name: float(np.exp(x)) for p, x in zip(PARAMETERS, logs, strict=True)}


def pose(table: pd.DataFrame, catalog: Catalog | None = None) -> Problem:
    """The fitting problem of a table in the measurement format."""
    written = load_backends(hardware_dir() / "backends")
    catalog = replace(catalog or load_catalog(), calibration=NONE, backends=written)
    readout = read_rows(table, catalog)
    machines = machines_of(catalog)
    covered = np.array([status == "ok" for status in readout.status])
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


def linearise(problem: Problem, logs: Floats) -> tuple[Floats, Floats]:
    """(log ratios (r,), their derivatives (r, parameters)) at `logs`."""
    return saturating_fit.linearise(problem.logs, logs)


def fit(problem: Problem, rounds: int = 12) -> Floats:
    """The logarithms of the best factors, (parameters,)."""
    return OBJECTIVE.fit(problem.logs, problem.weight[problem.weight > 0.0], rounds)


def refit(start: Floats, log_ratio: Floats, slopes: Floats, weight: Floats) -> Floats:
    """The fit with other row weights, with log ratios taken as linear around `start`."""
    return OBJECTIVE.refit(start, log_ratio, slopes, weight)
