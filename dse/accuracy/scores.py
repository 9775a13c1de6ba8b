"""Scores of predictions against measurements.

A scored table has, for each row, texts `metric`, `serving`, `model`, `chip`, `backend`, `group`
(model|chip), and numbers `value` (measured), `predicted`, `predicted_low`, `predicted_high`.

    error              |predicted / measured - 1|
    bias               median of predicted / measured - 1 (above 0: predicted too large)
    group_median_error median error of each group, averaged over the groups with 5 rows or more
                       (over all groups where none has), so that a group of 700 rows weighs no more
                       than one of 5
    rank_correlation   Spearman's, predicted against measured; None below 3 rows
    interval_coverage  share of measured values inside the 80% interval
    interval_width     median of (high - low) / (2 predicted), comparable with an error

All but `group_median_error` weigh each row equally. Errors are fractions of the measured value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

BY = ("chip", "model", "backend")
ENOUGH_ROWS = 5
POOLS = tuple(
    f"{pool}_{name}"
    for pool in ("prefill", "decode")
    for name in ("workers", "tp", "pp", "dp", "ep")
)
# What two rows share that differ in the chip alone.
SAME = (
    "model", "n_chips", "tp", "pp", "ep", "dp", "weight_dtype", "kv_dtype", "prompt_tokens",
    "output_tokens", "concurrency", "backend", "serving", "metric", *POOLS,
)  # fmt: skip
RATES_END = "_per_s"  # a metric whose larger value is the faster one


def score(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A score for each metric and serving, over all its rows and by chip, model and backend."""
    scores = []
    for (metric, serving), part in table.groupby(["metric", "serving"]):
        of = {"metric": metric, "serving": serving}
        scores.append(of | {"by": "all", "key": "all"} | measures(part))
        for by in BY:
            scores += [of | {"by": by, "key": key} | measures(p) for key, p in part.groupby(by)]
    return scores


def measures(part: pd.DataFrame, enough_rows: int = ENOUGH_ROWS) -> dict[str, Any]:
    """The figures of one score, over all rows of `part`."""
    measured, predicted = part["value"].to_numpy(), part["predicted"].to_numpy()
    low, high = part["predicted_low"].to_numpy(), part["predicted_high"].to_numpy()
    error = np.abs(predicted / measured - 1.0)
    groups = group_errors(part)
    large = groups[groups["rows"] >= enough_rows]
    counted = large if len(large) else groups
    return {
        "groups": len(groups),
        "rows": len(part),
        "group_median_error": float(counted["median_error"].mean()),
        "median_error": float(np.median(error)),
        "p90_error": float(np.quantile(error, 0.9)),
        "bias": float(np.median(predicted / measured - 1.0)),
        "rank_correlation": rank_correlation(predicted, measured),
        "interval_coverage": float(np.mean((low <= measured) & (measured <= high))),
        "interval_width": float(np.median((high - low) / (2.0 * predicted))),
    }


def group_errors(part: pd.DataFrame) -> pd.DataFrame:
    """`group`, `rows`, `median_error`, `bias` of each group, in the order of names."""
    ratio = part["predicted"] / part["value"] - 1.0
    frame = pd.DataFrame({"group": part["group"], "error": ratio.abs(), "ratio": ratio})
    grouped = frame.groupby("group")
    return pd.DataFrame(
        {
            "rows": grouped.size(),
            "median_error": grouped["error"].median(),
            "bias": grouped["ratio"].median(),
        }
    ).reset_index()


def rank_correlation(predicted: np.ndarray, measured: np.ndarray) -> float | None:
    """Spearman's: Pearson's of the ranks, ties at their mean rank. None below 3 rows, and where
    all values of one side are equal."""
    ranks = [pd.Series(values).rank().to_numpy() for values in (predicted, measured)]
    if len(predicted) < 3 or any(np.ptp(rank) == 0.0 for rank in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def together(part: pd.DataFrame, serving: str = "all") -> dict[str, Any] | None:
    """One score over all metrics of rows of one `serving` or of `all`, every group counted whatever
    its rows; metrics of different units have no rank correlation. None without rows."""
    if part.empty:
        return None
    of = {"metric": "all", "serving": serving, "by": "all", "key": "all"}
    return of | measures(part, enough_rows=1) | {"rank_correlation": None}


def pairs_of(table: pd.DataFrame) -> pd.DataFrame:
    """Every two rows that share SAME, each pair both ways: `chip`, `value` and `predicted` of one
    end in _a, of the other in _b."""
    shared = table.reindex(columns=[*SAME, "chip", "value", "predicted"])
    shared[list(SAME)] = shared[list(SAME)].astype(object).fillna("").astype(str)
    return shared.merge(shared, on=list(SAME), suffixes=("_a", "_b"))


def speed_up(table: pd.DataFrame) -> dict[str, Any]:
    """How well the speed of one chip over another is predicted.

    A pair is two rows that share every column of SAME and differ in the chip (`chip_a` before
    `chip_b`); its error is |(predicted_a / predicted_b) / (measured_a / measured_b) - 1|.
    `measured` and `predicted` are median speeds of a over b: above 1, a is the faster.
    """
    pairs = pairs_of(table)
    pairs = pairs[pairs["chip_a"] < pairs["chip_b"]]
    measured = pairs["value_a"] / pairs["value_b"]
    predicted = pairs["predicted_a"] / pairs["predicted_b"]
    rate = pairs["metric"].str.endswith(RATES_END)
    pairs["error"] = (predicted / measured - 1.0).abs()
    pairs["measured"] = measured.where(rate, 1.0 / measured)
    pairs["predicted"] = predicted.where(rate, 1.0 / predicted)

    def medians(keys: list[str], **columns: str) -> list[dict[str, Any]]:
        found = {"pairs": ("error", "size"), "median_error": ("error", "median")}
        found |= {name: (column, "median") for name, column in columns.items()}
        table = pairs.groupby(keys).agg(**found).reset_index()
        return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]

    return {
        "pairs": len(pairs),
        "median_error": float(pairs["error"].median()) if len(pairs) else None,
        "chips": medians(["chip_a", "chip_b"], measured="measured", predicted="predicted"),
        "metrics": medians(["metric", "serving"]),
    }
