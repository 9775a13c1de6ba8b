"""80% intervals from held-out rows: percentiles of measured / predicted by class of metrics.

Rows weigh by the inverse root of the rows of their group (model and chip), between rows alike and
groups alike. The percentiles are those of rows with fitted kernel efficiencies; for derived and
assumed ones, of which few groups were measured, they are widened by how much larger the error of
the median group was, over all classes, and never narrower than those of the kind before: that a few
groups came out close is no reason to trust the next one more.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.rows import interval_metric
from dse.physics.intervals import CLASS, CLASSES, UNKNOWN
from dse.schema.calibration import KINDS
from dse.space.candidates import Floats

SHARES = (0.1, 0.9)

SpreadTable = dict[str, dict[str, tuple[float, float]]]


def class_of(metric: str) -> str:
    """The class of a metric of the measurement format."""
    return CLASS[interval_metric(metric)]


def spread_table(table: pd.DataFrame, ratio: Floats, kind: Floats) -> SpreadTable:
    """By class and kind, (low, high) of measured / predicted: `ratio` and `kind` (index of KINDS),
    (n,) each, of the rows of `table`."""
    frame = pd.DataFrame(
        {
            "class": table["metric"].map(class_of).to_numpy(),
            "group": (table["metric"] + table["serving"] + table["group"]).to_numpy(),
            "kind": kind,
            "log": np.log(ratio),
        }
    )
    frame["weight"] = frame.groupby(["kind", "group"])["log"].transform("size") ** -0.5
    fitted = frame[frame["kind"] == 0]
    ends, typical = {}, {}
    for name, rows in fitted.groupby("class"):
        ends[name] = [weighted_quantile(rows["log"], rows["weight"], share) for share in SHARES]
        typical[name] = weighted_quantile(rows["log"].abs(), rows["weight"], 0.5)
    found: SpreadTable = {name: {} for name in CLASSES}
    wider = 1.0
    for name in CLASSES:  # a class without such a row: as wide as a factor of two
        ends.setdefault(name, list(np.log(UNKNOWN)))
        typical.setdefault(name, float(np.log(UNKNOWN[1])) / 2.0)
    frame["error"] = frame["log"].abs() / frame["class"].map(typical)
    for code, label in enumerate(KINDS):
        groups = frame[frame["kind"] == code].groupby("group")["error"].median()
        if code and len(groups):
            wider = max(wider, float(groups.median()))
        for name in CLASSES:
            low, high = (float(np.exp(end * wider)) for end in ends[name])
            found[name][label] = (low, high)
    return found


def spread_of_kinds(frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The same of one class alone, by kind: the percentiles are those of the best kind that has
    rows. `frame` has `kind` (index of KINDS), `group` and `log` of each row."""
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


def weighted_quantile(values: pd.Series, weights: pd.Series, share: float) -> float:
    """The value below which `share` of the weight lies, interpolated."""
    order = np.argsort(values.to_numpy(), kind="stable")
    weight = weights.to_numpy()[order]
    below = (np.cumsum(weight) - weight / 2.0) / weight.sum()
    return float(np.interp(share, below, values.to_numpy()[order]))
