"""`dse validate --decisions`: what a person would have picked by predictions, as it was measured.

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
from scipy.stats import norm

from dse.catalog import Catalog
from dse.record import record

LIMITS_S = (0.010, 0.020, 0.033)
SURE = (0.5, 0.6, 0.7, 0.8, 0.9)
ALLOWED = 0.05  # of the limit, by which a measured time may be above it
BASIS = "rental_3yr"
LATENCIES = ("tpot_s", "ttft_s")
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
    wide["sigma"] = above / float(norm.ppf(0.9))
    output, flight = number["output_tokens"], number["concurrency"]
    degrees = [number[name].fillna(1.0) for name in ("tp", "pp", "dp")]
    chips = number["n_chips"].fillna(degrees[0] * degrees[1] * degrees[2])
    for end in ("value", "predicted"):
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
    """A row for each need of a question: what was picked, `broken`, `lost` (None where broken or
    without a pick), `right` (None without sides). `table` is that of `configurations`."""
    worth = {
        end: table[f"rate.{end}"] / (table["usd_per_chip_hour"] if question.a_dollar else 1.0)
        for end in ("value", "predicted")
    }
    late = table["tpot_s.predicted"] * np.exp(norm.ppf(sure) * table["sigma"]) > limit_s
    kept = table["tpot_s.value"] <= limit_s
    frame = table.assign(
        kept=worth["value"].where(kept),
        picked=worth["predicted"].where(~late),
        side=table[question.sides] if question.sides else table.index,
        worth=worth["value"],
    )
    frame = frame[frame["worth"].notna()]
    found = []
    for need, part in frame.groupby(list(question.by)):
        good = part["kept"].notna()
        if part["side"].nunique() < 2 or not good.any() or good.all():
            continue
        row: dict[str, Any] = dict(zip(question.by, need, strict=True))
        best = part.nlargest(1, "kept").iloc[0]
        row |= {"configurations": len(part), "picked": False, "broken": False}
        row |= {"lost": None, "right": None}
        if part["picked"].notna().any():
            pick = part.nlargest(1, "picked").iloc[0]
            row["picked"] = True
            row["broken"] = bool(pick["tpot_s.value"] > (1.0 + ALLOWED) * limit_s)
            if not row["broken"]:
                row["lost"] = max(0.0, 1.0 - float(pick["worth"] / best["kept"]))
            if question.sides:
                row["right"] = bool(pick["side"] == best["side"])
        found.append(row)
    return found


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
