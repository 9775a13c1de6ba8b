"""Predictions of configurations that the fit has not seen.

The factors are fitted again without one group (model and chip), one chip or one model at a time,
and the rows left out are predicted with what remains. Each such fit takes the predictions as linear
in the logarithms of the factors around the fit to all rows; the held-out predictions themselves are
made by the full model. The kernel laws are not fitted again: they come from kernel tables, which no
serving row enters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.calibrate import Problem, fit, linearise, refit
from dse.accuracy.spread import SpreadTable, class_of, spread_table
from dse.accuracy.tables import with_predictions
from dse.schema.calibration import KINDS
from dse.space.candidates import Floats

FOLDS = ("group", "chip", "model")


def held_out(
    problem: Problem, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Floats]:
    """By fold, (n, 5) as `predict_rows`, each row predicted by a fit without its fold; its interval
    is the spread of the other folds' held-out rows."""
    progress("fit to all rows")
    start = fit(problem)
    log_ratio, slopes = linearise(problem, start)
    return {by: without_each(problem, by, start, log_ratio, slopes, progress) for by in FOLDS}


def without_each(
    problem: Problem,
    by: str,
    start: Floats,
    log_ratio: Floats,
    slopes: Floats,
    progress: Callable[[str], None] = lambda _: None,
) -> Floats:
    """(n, 5) as `held_out`, of one kind of fold; `log_ratio` and `slopes` are those of
    `linearise` at `start`, the fit to all rows."""
    used = problem.weight > 0.0
    numbers = np.full((len(problem.readout), 5), np.nan)
    keys = problem.table[by].to_numpy()
    names = sorted(set(keys[used]))
    for k, name in enumerate(names):
        progress(f"without one {by}: {k + 1} of {len(names)}")
        weight = problem.weight[used] * (keys[used] != name)
        logs = refit(start, log_ratio, slopes, weight)
        rows = keys == name
        numbers[rows] = problem.predict(logs)[rows]
    for name in names:
        rows = keys == name
        others = used & ~rows
        spread = spread_table(
            problem.table[others],
            problem.measured[others] / numbers[others, 0],
            numbers[others, 4],
        )
        _set_intervals(problem.table, numbers, rows & np.isfinite(numbers[:, 0]), spread)
    return numbers


def _set_intervals(
    table: pd.DataFrame, numbers: Floats, rows: NDArray[np.bool_], spread: SpreadTable
) -> None:
    for row in np.flatnonzero(rows):
        name = class_of(str(table["metric"].iloc[row]))
        low, high = spread[name][KINDS[int(numbers[row, 4])]]
        numbers[row, 1:3] = numbers[row, 0] * low, numbers[row, 0] * high


def cross_validate(
    problem: Problem, progress: Callable[[str], None] = lambda _: None
) -> dict[str, pd.DataFrame]:
    """By fold, the table with the columns that `with_predictions` adds."""
    return {
        by: with_predictions(problem.table, problem.readout, numbers)
        for by, numbers in held_out(problem, progress).items()
    }
