"""Training rows predicted by fits that have not seen them, and the intervals that follow.

An interval is the 10th and the 90th percentile of measured over predicted speed on held-out rows,
those of a group (model and chip) weighing by the inverse root of their number. Percentiles are
those of chips with fitted kernel efficiencies; for derived and assumed ones they are widened by how
much larger the error of the median group was, and never narrower. Whole runs in chip-hours enter no
fit: their own few rows give the spread of runs whose configuration nobody published.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.spread import SHARES, SpreadTable, weighted_quantile
from dse.accuracy.training_fit import (
    TrainingProblem,
    held_out_training,
    pose_training,
)
from dse.accuracy.training_points import with_training
from dse.catalog import Catalog
from dse.physics.intervals import UNKNOWN
from dse.physics.training.intervals import RATE, RATES, RUN, WHOLE_RUNS, training_interval
from dse.schema.calibration import KINDS
from dse.space.candidates import Floats


def cross_validate_training(
    rows: pd.DataFrame,
    fitted: pd.DataFrame | None,
    progress: Callable[[str], None] = lambda _: None,
    catalog: Catalog | None = None,
) -> dict[str, pd.DataFrame]:
    """By fold, the table `rows` with the columns that `with_predictions` adds. With `fitted`, the
    fits are to these rows and never to `rows`."""
    table = rows if fitted is None else pd.concat([fitted, rows], ignore_index=True)
    table = table.fillna("").reset_index(drop=True)
    first = 0 if fitted is None else len(fitted)
    counted = np.arange(len(table)) < (len(table) if fitted is None else first)
    table["group"] = table["model"] + "|" + table["chip"]
    problem = pose_training(table, counted, catalog)
    answers = {}
    for by, numbers in held_out_training(problem, progress).items():
        spread_by_fold(problem, by, numbers, counted)
        answer = with_training(problem.table, problem.readout, numbers)
        answers[by] = answer.iloc[first:].reset_index(drop=True)
    return answers


def spread_by_fold(
    problem: TrainingProblem, by: str, numbers: Floats, counted: NDArray[np.bool_]
) -> None:
    """Sets the intervals of `numbers`: of each fold, those of the other folds' held-out rows."""
    keys = problem.table[by].to_numpy()
    known = np.isfinite(numbers[:, 0])
    for name in sorted(set(keys.tolist())):
        rows, others = (keys == name) & known, (keys != name) & known & counted
        spread = {
            name: np.array(list(kinds.values()))
            for name, kinds in training_spread_table(problem, numbers, others).items()
        }
        for metric in sorted(set(problem.table["metric"][rows])):
            where = np.flatnonzero(rows & (problem.table["metric"] == metric).to_numpy())
            kind = numbers[where, 4].astype(np.intp)
            low, high = training_interval(metric, numbers[where, 0], kind, spread)
            numbers[where, 1], numbers[where, 2] = low, high


def training_spread_table(
    problem: TrainingProblem, numbers: Floats, rows: NDArray[np.bool_]
) -> SpreadTable:
    """By class and kind, (low, high) of measured over predicted speed, of the held-out `rows`."""
    metric = problem.table["metric"]
    faster = metric.isin(RATES).to_numpy()
    ratio = problem.measured / numbers[:, 0]
    frame = pd.DataFrame(
        {
            "log": np.where(faster, np.log(ratio), -np.log(ratio)),
            "kind": numbers[:, 4],
            "group": problem.table["group"].to_numpy(),
        }
    )
    whole = rows & metric.isin(WHOLE_RUNS).to_numpy()
    return {
        RATE: _of_kinds(frame[rows & (problem.weight > 0.0)]),
        RUN: _of_kinds(frame[whole]),
    }


def _of_kinds(frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    if frame.empty:
        return dict.fromkeys(KINDS, UNKNOWN)
    frame = frame.assign(weight=frame.groupby(["kind", "group"])["log"].transform("size") ** -0.5)
    best = frame[frame["kind"] == frame["kind"].min()]
    ends = [weighted_quantile(best["log"], best["weight"], share) for share in SHARES]
    typical = weighted_quantile(best["log"].abs(), best["weight"], 0.5)
    wider, found = 1.0, {}
    for code, label in enumerate(KINDS):
        groups = frame[frame["kind"] == code].groupby("group")["log"].median().abs()
        if len(groups) and typical > 0.0:
            wider = max(wider, float(groups.median()) / typical)
        found[label] = (float(np.exp(ends[0] * wider)), float(np.exp(ends[1] * wider)))
    return found
