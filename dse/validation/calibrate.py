"""Factors of `dse.perf.calibrated` from measured serving: `python -m dse.validation.calibrate`.

The fit minimises, over the logarithms t of the factors,

    sum over rows of weight * (1 - exp(-h / 0.6)) + RIDGE / 2 * sum of (t / sd)^2

where h is the error |predicted / measured - 1| (rounded below 8%), which saturates: a row that is
wrong by a factor of two pulls no more than one that is wrong by 60%, so that a stalled server does
not bend the physics. Every group (model and chip) of a metric and serving weighs the same, and
every metric and serving as WEIGHTS says. Gauss-Newton steps; no row is left out but those that the
data itself excludes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.candidates import Floats
from dse.data import hardware_dir
from dse.perf.calibrated import (
    BACKENDS,
    KERNELS,
    Parameter,
    calibrated_machines,
)
from dse.perf.machines import Machines
from dse.specs.backend import load_backends
from dse.specs.calibration import NONE, Calibration
from dse.specs.catalog import Catalog, load_catalog
from dse.validation.points import Readout, machines_of, predict_rows, read_rows

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
STEP = 0.03  # of a logarithm, for the difference quotients
LARGEST_MOVE = 0.4


@dataclass(frozen=True, slots=True)
class Problem:
    """n rows to predict; `weight` is 0 for rows that are not covered or excluded."""

    table: pd.DataFrame
    readout: Readout
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


def pose(table: pd.DataFrame) -> Problem:
    """The fitting problem of a table in the measurement format."""
    written = load_backends(hardware_dir() / "backends")
    catalog = replace(load_catalog(), calibration=NONE, backends=written)
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
    here = problem.logs(logs)
    slopes = np.empty((len(here), len(PARAMETERS)))
    for k in range(len(PARAMETERS)):
        moved = logs.copy()
        moved[k] += STEP
        slopes[:, k] = (problem.logs(moved) - here) / STEP
    return here, slopes


def _rounded(error: Floats) -> Floats:
    return np.asarray(np.sqrt(error * error + ROUNDED**2) - ROUNDED, dtype=np.float64)


def loss(log_ratio: Floats, weight: Floats, logs: Floats) -> float:
    rows = weight * (1.0 - np.exp(-_rounded(np.expm1(log_ratio)) / SATURATION))
    return float(rows.sum()) + RIDGE / 2.0 * float(np.sum((logs / _SD) ** 2))


_SD: Floats = np.array([parameter.sd for parameter in PARAMETERS])


def move(log_ratio: Floats, slopes: Floats, weight: Floats, logs: Floats) -> Floats:
    """One Gauss-Newton step of the loss, iteratively reweighted."""
    ratio = np.exp(log_ratio)
    error = ratio - 1.0
    pull = np.exp(-_rounded(error) / SATURATION) / SATURATION
    pull = weight * pull / np.sqrt(error * error + ROUNDED**2)
    curvature = (slopes * (pull * ratio * ratio)[:, None]).T @ slopes
    curvature += RIDGE * np.diag(1.0 / _SD**2)
    gradient = slopes.T @ (pull * error * ratio) + RIDGE * logs / _SD**2
    step = np.asarray(-np.linalg.solve(curvature, gradient), dtype=np.float64)
    return np.minimum(np.maximum(step, -LARGEST_MOVE), LARGEST_MOVE)


def fit(problem: Problem, rounds: int = 12) -> Floats:
    """The logarithms of the best factors, (parameters,)."""
    weight = problem.weight[problem.weight > 0.0]
    logs = np.zeros(len(PARAMETERS))
    for _ in range(rounds):
        log_ratio, slopes = linearise(problem, logs)
        before = loss(log_ratio, weight, logs)
        step = move(log_ratio, slopes, weight, logs)
        for share in (1.0, 0.5, 0.25, 0.1):
            tried = logs + share * step
            after = loss(problem.logs(tried), weight, tried)
            if after < before:
                break
        else:
            return logs
        logs = tried
        if before - after < 2e-4 * before:
            return logs
    return logs


def refit(
    start: Floats, log_ratio: Floats, slopes: Floats, weight: Floats, rounds: int = 30
) -> Floats:
    """The fit with other row weights, with log ratios taken as linear around `start`."""
    logs, here = start.copy(), log_ratio
    for _ in range(rounds):
        step = move(here, slopes, weight, logs)
        before = loss(here, weight, logs)
        for share in (1.0, 0.5, 0.25, 0.1):
            tried = logs + share * step
            ratio = log_ratio + slopes @ (tried - start)
            if loss(ratio, weight, tried) < before:
                break
        else:
            return logs
        logs, here = tried, ratio
        if float(np.max(np.abs(share * step))) < 1e-3:
            return logs
    return logs
