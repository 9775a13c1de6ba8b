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

What the project set out to reach, and what it reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.answer.answer import Table
from dse.answer.frames import of_rows
from dse.answer.numbers import tenths

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


Json = Mapping[str, Any]
# (what, metric and serving, the largest error by group).
ERRORS = (
    ("time per output token, closed loop", ("tpot_s", "continuous"), 0.14),
    ("time to first token, closed loop", ("ttft_s", "continuous"), 0.25),
    ("time to first token, open loop", ("ttft_s", "poisson"), 0.30),
    ("output tokens per second, offline", ("output_tokens_per_s", "offline"), 0.16),
    ("time per output token, disaggregated", ("tpot_s", "disaggregated"), 0.15),
    ("time to first token, disaggregated", ("ttft_s", "disaggregated"), 0.40),
)
TRAINING = ("tokens_per_s_per_chip", "pretrain")
TOGETHER = (
    ("output tokens per second, offline, the cap given", "capped", 0.12),
    ("static serving, all metrics together", "static_all", 0.15),
    ("time per output token, MI300X and MI325X", "cdna3", 0.25),
    ("PCIe cards at TP 4 and 8, but first tokens", "pcie", 0.25),
)
P90, TRAINED, SPEED_UP, COVERED = 0.35, 0.10, 0.08, 0.99
LEAST_INSIDE, MOST_INSIDE, WIDTH = 0.75, 0.88, 2.5
RANK = 0.96  # beside what was set: of our own


def targets(document: Json) -> Table:
    """The project's targets, the worst missed first."""
    rows = sorted(target_rows(document), key=lambda row: -row["shortfall"])
    keys = "target target_wanted target_reached target_held_out target_met"
    return of_rows("targets", "Targets", rows, keys, on_console=False)


def target_rows(document: Json) -> list[dict[str, Any]]:
    """One for each, as `_target` says."""
    held = document["cross_validation"]
    folds = [name for name in held if name not in ("across", "worst")]
    scores = [_overall(document["scores"]), *(_overall(held[name]) for name in folds)]
    joined = [document, *(held["across"][name] for name in folds)]
    by_fold = dict(zip(folds, scores[1:], strict=True))

    def errors(key: tuple[str, str], name: str = "group_median_error", fold: str = "") -> list[Any]:
        """A figure of a score with nothing left out, and of each fold or of one."""
        found = scores if not fold else [scores[0], *filter(None, [by_fold.get(fold)])]
        return [score[key][name] if key in score else None for score in found]

    tokens = ERRORS[0][1]
    rows = [_target(what, wanted, errors(key)) for what, key, wanted in ERRORS]
    what = f"{ERRORS[0][0]}, 90th percentile of the rows"
    rows.append(_target(what, P90, errors(tokens, "p90_error")))
    what = "tokens per second and chip, pre-training, its model left out"
    rows.append(_target(what, TRAINED, errors(TRAINING, fold="model")))
    for what, key, wanted in TOGETHER:
        parts = [part.get(key) for part in joined]
        rows.append(_target(what, wanted, [part and part["group_median_error"] for part in parts]))
    speed = [part["speed_up"]["median_error"] for part in joined]
    rows.append(_target("speed of one chip over another", SPEED_UP, speed))
    ranks = [part["rank_correlation"]["value"] for part in joined]
    what = "rank correlation of time per output token (our own)"
    rows.append(_target(what, RANK, ranks, most=False))
    inside = [_inside(score) for score in (scores[0], by_fold.get("source")) if score is not None]
    what = "inside the 80% interval, the source left out"
    rows.append(_target(f"{what}, at least", LEAST_INSIDE, inside, most=False))
    rows.append(_target(f"{what}, at most", MOST_INSIDE, inside))
    for what, key, _ in ERRORS[:3]:
        ends = (errors(key, name, "source") for name in ("interval_width", "median_error"))
        widths = [width and width / error for width, error in zip(*ends, strict=True)]
        name = f"half-width of the interval over the median error, the source left out: {what}"
        rows.append(_target(name, WIDTH, widths, percent=False))
    if feasible := document["rows"] - document["infeasible"]:
        share = document["covered"] / feasible
        rows.append(_target("rows predicted, infeasible ones apart", COVERED, [share], most=False))
    return rows


def _target(
    what: str,
    wanted: float,
    values: Sequence[float | None],
    *,
    most: bool = True,
    percent: bool = True,
) -> dict[str, Any]:
    """`values`: of the model as it is, and of each fold; None where there are no rows. What counts
    is the worst fold, or the model as it is where nothing is held out. `most`: the target is a
    ceiling, else a floor; `shortfall`: the share of it by which it is missed."""
    known = [value for value in values[1:] if value is not None]
    held = (max if most else min)(known) if known else None
    counted = values[0] if held is None else held
    missed = 0.0 if counted is None else (counted / wanted - 1.0) * (1.0 if most else -1.0)

    def text(value: float | None) -> str:
        return tenths(value) if percent or value is None else f"{value:.1f}"

    return {
        "target": what,
        "target_wanted": f"at {'most' if most else 'least'} {text(wanted)}",
        "target_reached": text(values[0]),
        "target_held_out": text(held),
        "target_met": "no rows" if counted is None else "short" if missed > 0.0 else "met",
        "shortfall": missed,
    }


def _overall(scores: Sequence[Json]) -> dict[tuple[str, str], Json]:
    return {(item["metric"], item["serving"]): item for item in scores if item["by"] == "all"}


def _inside(scores: Mapping[tuple[str, str], Json]) -> float | None:
    rows = sum(item["rows"] for item in scores.values())
    inside = sum(item["interval_coverage"] * item["rows"] for item in scores.values())
    return inside / rows if rows else None
