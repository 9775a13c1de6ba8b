"""80% intervals from held-out rows: what holds measured / predicted, by class of metrics.

Rows weigh by the inverse root of the rows of their group (model and chip), between rows alike and
groups alike. The ends are the narrowest that hold 80% of tuned rows with fitted kernel
efficiencies; for derived and assumed ones, of which few groups were measured, they are widened by
how much larger the error of the median group was, over all classes, and never narrower than those
of the kind before: that a few groups came out close is no reason to trust the next one more.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.serving_rows import interval_metric
from dse.physics.intervals import (
    CLASS,
    CLASSES,
    FIRST_TOKEN,
    PREFILL,
    UNKNOWN,
    first_token_class,
)
from dse.schema.calibration import KINDS
from dse.space.candidates import Floats

# Of a stock launch at most: of few sources, the one that is left may be an outlier.
MOST_WIDER = 2.0
INSIDE = 0.8  # share of the rows between the ends
BELOW = np.linspace(0.0, 1.0 - INSIDE, 41)  # share below the lower end that is tried

# Prefill alone was measured by few sources, too few for a class: its rows count with first tokens'.
JOINED = {PREFILL: FIRST_TOKEN}

SpreadTable = dict[str, dict[str, tuple[float, float]]]


def class_of(metric: str, serving: str, scheduler: str) -> str:
    """The class of a metric of the measurement format under a backend's scheduler."""
    name = CLASS[interval_metric(metric)]
    return first_token_class(serving, scheduler) if name == FIRST_TOKEN else name


def spread_table(
    table: pd.DataFrame, ratio: Floats, kind: Floats, stock: NDArray[np.bool_]
) -> tuple[SpreadTable, float]:
    """By class and kind, (low, high) of measured / predicted: `ratio`, `kind` (index of KINDS) and
    `stock`, (n,) each, of the rows of `table` (with the `scheduler` of each), from those that are
    not stock; and by how much larger the error of the median group of stock launches is, from 1 to
    MOST_WIDER."""
    frame = pd.DataFrame(
        {
            "class": list(map(class_of, table["metric"], table["serving"], table["scheduler"])),
            "group": (table["metric"] + table["serving"] + table["group"]).to_numpy(),
            "kind": kind,
            "stock": stock,
            "log": np.log(ratio),
        }
    )
    frame["weight"] = frame.groupby(["kind", "group"])["log"].transform("size") ** -0.5
    tuned, launched = ~frame["stock"], frame["stock"]
    fitted = frame[tuned & (frame["kind"] == 0)]
    ends, typical = {}, {}
    for name in sorted(set(fitted["class"])):
        rows = fitted[fitted["class"].isin((name, JOINED.get(name)))]
        ends[name] = narrowest(rows["log"], rows["weight"])
        typical[name] = weighted_quantile(rows["log"].abs(), rows["weight"], 0.5)
    found: SpreadTable = {name: {} for name in CLASSES}
    wider = 1.0
    for name in CLASSES:  # a class without such a row: as wide as a factor of two
        ends.setdefault(name, list(np.log(UNKNOWN)))
        typical.setdefault(name, float(np.log(UNKNOWN[1])) / 2.0)
    frame["error"] = frame["log"].abs() / frame["class"].map(typical)
    for code, label in enumerate(KINDS):
        groups = frame[tuned & (frame["kind"] == code)].groupby("group")["error"].median()
        if code and len(groups):
            wider = max(wider, float(groups.median()))
        for name in CLASSES:
            low, high = (float(np.exp(end * wider)) for end in ends[name])
            found[name][label] = (low, high)
    groups = frame[launched].groupby("group")["error"].median()
    wider = float(groups.median()) if len(groups) else 1.0
    return found, min(max(wider, 1.0), MOST_WIDER)


def spread_of_kinds(frame: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The same of one class alone, by kind: the percentiles are those of the best kind that has
    rows. `frame` has `kind` (index of KINDS), `group` and `log` of each row."""
    if frame.empty:
        return dict.fromkeys(KINDS, UNKNOWN)
    frame = frame.assign(weight=frame.groupby(["kind", "group"])["log"].transform("size") ** -0.5)
    best = frame[frame["kind"] == frame["kind"].min()]
    ends = narrowest(best["log"], best["weight"])
    typical = weighted_quantile(best["log"].abs(), best["weight"], 0.5)
    wider, found = 1.0, {}
    for code, label in enumerate(KINDS):
        groups = frame[frame["kind"] == code].groupby("group")["log"].median().abs()
        if len(groups) and typical > 0.0:
            wider = max(wider, float(groups.median()) / typical)
        found[label] = (float(np.exp(ends[0] * wider)), float(np.exp(ends[1] * wider)))
    return found


def narrowest(logs: pd.Series, weights: pd.Series) -> list[float]:
    """[low, high] of the logarithms: of all intervals that hold INSIDE of the weight, the one that
    is narrowest in the ratio itself; made to hold the prediction, 0, where it does not."""
    tried = [[weighted_quantile(logs, weights, s) for s in (b, b + INSIDE)] for b in BELOW]
    low, high = min(tried, key=lambda ends: float(np.exp(ends[1]) - np.exp(ends[0])))
    return [min(low, 0.0), max(high, 0.0)]


def weighted_quantile(values: pd.Series, weights: pd.Series, share: float) -> float:
    """The value below which `share` of the weight lies, interpolated."""
    order = np.argsort(values.to_numpy(), kind="stable")
    weight = weights.to_numpy()[order]
    below = (np.cumsum(weight) - weight / 2.0) / weight.sum()
    return float(np.interp(share, below, values.to_numpy()[order]))
