"""Scores of predicted rows (`dse.accuracy.validate` says what each figure means), and of decisions.

Decisions (`dse validate --decisions`): what a person would have picked by predictions, as it was
measured.

A need is a model, lengths and a limit on the time per output token, for which several
configurations were measured in a closed loop, some within the limit and some not. The pick is the
configuration with the most predicted output tokens a second and chip (of several chips: a dollar)
whose predicted time keeps the limit with a stated sureness s,

    time x exp(z(s) sigma) <= limit,    sigma = ln(high / time) / z(90%)

of the 80% interval: the prediction itself at s = 50%, its top at 90%. Of one need:

    broken      the pick is measured above the limit by more than ALLOWED
    lost        else, what its measured rate lacks of the best that keeps the limit
    no pick     nothing is predicted to keep the limit, though something was measured that does
    right       of a question with sides (which chip), the pick is on the side of the measured best

The rate is that of requests which follow one another, from both measured latencies:

    concurrency x output / (first token + (output - 1) x time per token) / chips
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from dse.accuracy.tables import ENOUGH_ROWS
from dse.catalog import Catalog
from dse.problem.instances import best_of_groups
from dse.record import record

BY = ("chip", "model", "backend")
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


def measures(part: pd.DataFrame) -> dict[str, Any]:
    """The figures of one score, over all rows of `part`."""
    measured, predicted = part["value"].to_numpy(), part["predicted"].to_numpy()
    low, high = part["predicted_low"].to_numpy(), part["predicted_high"].to_numpy()
    error = np.abs(predicted / measured - 1.0)
    groups = group_errors(part)
    large = groups[groups["rows"] >= ENOUGH_ROWS]
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


# Decisions.

LIMITS_S = (0.010, 0.020, 0.033)
SURE = (0.5, 0.6, 0.7, 0.8, 0.9)
ALLOWED = 0.05  # of the limit, by which a measured time may be above it
BASIS = "rental_3yr"
LATENCIES = ("tpot_s", "ttft_s")
ENDS = ("value", "predicted")  # as measured, and as predicted
LENGTHS = ("prompt_tokens", "output_tokens")
# What tells configurations apart: whatever a row says but its latencies.
CONFIGURATION = (
    "model", "chip", "n_chips", "tp", "pp", "ep", "dp", "weight_dtype", "kv_dtype", "engine",
    *LENGTHS, "concurrency", "speculative", "serving", "source", "date",
    *(f"{pool}_{name}" for pool in ("prefill", "decode") for name in ("workers", "tp", "dp", "ep")),
)  # fmt: skip


@record
class Question:
    """What is decided: needs are rows of the same `by`, of which at least two values of the column
    `sides` (empty: two configurations) were measured."""

    name: str
    by: tuple[str, ...]
    sides: str = ""
    a_dollar: bool = False


LAUNCH = "how to launch it"
QUESTIONS = (
    Question(LAUNCH, ("model", "chip", *LENGTHS)),
    Question("which chip", ("model", *LENGTHS), "chip", a_dollar=True),
    Question("one pool or two", ("model", "chip", *LENGTHS), "serving"),
    Question("drafts or none", ("model", "chip", *LENGTHS), "speculative"),
    Question("tensor parallelism", ("model", "chip", "engine", "weight_dtype", *LENGTHS), "tp"),
    Question("which software", ("model", "chip", "weight_dtype", *LENGTHS), "software"),
)


def configurations(rows: pd.DataFrame, catalog: Catalog) -> pd.DataFrame:
    """One row for each measured configuration of a closed loop or of two pools with both latencies:
    CONFIGURATION, `software`, `usd_per_chip_hour` (NaN without a price), `sigma`, and `tpot_s` and
    `rate` as measured (`.value`) and `.predicted`. `rows` are covered ones of
    `dse.accuracy.validate.predict`."""
    table = rows[
        rows["serving"].isin(("continuous", "disaggregated")) & rows["metric"].isin(LATENCIES)
    ]
    keys = list(CONFIGURATION)
    cells = table.reindex(columns=keys).astype(object).fillna("").astype(str)
    ends = ["value", "predicted", "predicted_high"]
    cells[ends] = table[ends].astype(float)
    cells["metric"] = table["metric"]
    wide = cells.pivot_table(index=keys, columns="metric", values=ends)
    both = pd.MultiIndex.from_product([ends, LATENCIES])
    wide = wide.reindex(columns=both).dropna()
    wide.columns = [f"{metric}.{end}" for end, metric in wide.columns]
    wide = wide.reset_index()
    number = {name: pd.to_numeric(wide[name], errors="coerce") for name in keys if name != "model"}
    above = np.log(wide["tpot_s.predicted_high"] / wide["tpot_s.predicted"])
    wide["sigma"] = above / float(ndtri(0.9))
    output, flight = number["output_tokens"], number["concurrency"]
    degrees = [number[name].fillna(1.0) for name in ("tp", "pp", "dp")]
    chips = number["n_chips"].fillna(degrees[0] * degrees[1] * degrees[2])
    for end in ENDS:
        seconds = wide[f"ttft_s.{end}"] + (output - 1.0) * wide[f"tpot_s.{end}"]
        wide[f"rate.{end}"] = flight * output / seconds / chips
    wide["software"] = wide["engine"].str.split().str[0].str.lower()
    prices = catalog.prices.select(BASIS)
    wide["usd_per_chip_hour"] = [
        prices[chip].usd_per_chip_hour if chip in prices else np.nan for chip in wide["chip"]
    ]
    return wide


def decided(
    table: pd.DataFrame, question: Question, limit_s: float, sure: float
) -> list[dict[str, Any]]:
    """A row for each need of a question: whether one was `picked`, whether that is `broken`, what
    it `lost` (None where broken or without a pick), whether it is `right` (None without a pick or
    sides). `table` is that of `configurations`."""
    paid = table["usd_per_chip_hour"] if question.a_dollar else 1.0
    table = table[(table["rate.value"] / paid).notna()]
    paid = table["usd_per_chip_hour"].to_numpy() if question.a_dollar else 1.0
    measured, predicted = (table[f"rate.{end}"].to_numpy() / paid for end in ENDS)
    took_s, takes_s = (table[f"tpot_s.{end}"].to_numpy() for end in ENDS)
    need = table.groupby(list(question.by)).ngroup().to_numpy()
    side = pd.factorize(table[question.sides])[0] if question.sides else np.arange(len(table))
    kept = took_s <= limit_s
    held = takes_s * np.exp(ndtri(sure) * table["sigma"].to_numpy()) <= limit_s
    sides = np.bincount(np.unique(np.stack([need, side]), axis=1)[0])
    good, all_of = np.bincount(need, kept), np.bincount(need)
    best = best_of_groups(need, np.where(kept, measured, -np.inf))
    pick = best_of_groups(need, np.where(held, predicted, -np.inf))
    broken = held[pick] & (took_s[pick] > (1.0 + ALLOWED) * limit_s)
    lost = np.maximum(0.0, 1.0 - measured[pick] / measured[best])
    right = side[pick] == side[best]
    return [
        {
            "picked": bool(held[pick[k]]),
            "broken": bool(broken[k]),
            "lost": float(lost[k]) if held[pick[k]] and not broken[k] else None,
            "right": bool(right[k]) if held[pick[k]] and question.sides else None,
        }
        for k in np.flatnonzero((sides > 1) & (good > 0) & (good < all_of))
    ]


def score_decisions(
    rows: pd.DataFrame,
    catalog: Catalog,
    *,
    limits_s: Sequence[float] = LIMITS_S,
    sure: Sequence[float] = SURE,
) -> list[dict[str, Any]]:
    """A score for each question, limit and sureness: `needs`, and shares of them, `unanswered`,
    `broken`, `lost` (mean of the picks that hold), `wasted` (mean of all, those that break the
    limit and needs without a pick as 1) and `right`. `rows` as `configurations` takes
    them; none where they have no need."""
    table = configurations(rows, catalog)
    found = []
    for question, limit_s, one in product(QUESTIONS, limits_s, sure):
        needs = pd.DataFrame(decided(table, question, limit_s, one))
        if len(needs):
            of = {"question": question.name, "tpot_limit_s": limit_s, "sureness": one}
            found.append(of | _shares(needs))
    return found


def supported(scores: Sequence[Mapping[str, Any]]) -> float:
    """The sureness at which picks of how to launch a model give away least, over the limits."""
    table = pd.DataFrame([row for row in scores if row["question"] == LAUNCH])
    return float(table.groupby("sureness")["wasted"].mean().sort_values().index[0])


def _shares(needs: pd.DataFrame) -> dict[str, Any]:
    def mean(values: pd.Series) -> float | None:
        known = values.dropna()
        return float(known.astype(float).mean()) if len(known) else None

    return {
        "needs": len(needs),
        "unanswered": 1.0 - float(needs["picked"].mean()),
        "broken": float(needs["broken"].mean()),
        "lost": mean(needs["lost"]),
        "wasted": mean(needs["lost"].astype(float).fillna(1.0)),
        "right": mean(needs["right"]),
    }
