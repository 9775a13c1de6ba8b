"""Predicted against measured: tables of the measurement format, what is covered, and the scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.accuracy.calibrate import pose
from dse.accuracy.scores import (
    ENOUGH_ROWS,
    group_errors,
    rank_correlation,
    score,
    speed_up,
    together,
)
from dse.accuracy.serving_points import estimate_disaggregated, estimate_rows
from dse.accuracy.serving_rows import backend_of, serving_of
from dse.accuracy.tables import (
    ADDED,
    INFEASIBLE,
    is_disaggregated,
    not_covered,
    read_points,
    text_column,
    training_rows,
)
from dse.accuracy.training_fit import cross_validate_training
from dse.accuracy.training_rows import estimate_training
from dse.catalog import MEASUREMENTS, Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.files import write_text
from dse.schema.system import ON_PCIE
from dse.units import LARGEST, SMALLEST

TRAINING = "training.csv"
WIDE = 4  # tensor-parallel cards from which the host's lanes carry the collectives
SHIPPED = ("inference.csv", "disaggregated.csv", TRAINING)


def shipped() -> list[pd.DataFrame]:
    """The project's own measurements, one table a file."""
    return [read(hardware_dir() / MEASUREMENTS / name) for name in SHIPPED]


def read(path: Path) -> pd.DataFrame:
    """A file of the measurement format, every cell a text. Raises InputError for one that is none,
    lacks a column, or has no row to score."""
    table = read_points(path, "value")
    if scored_rows(table).empty:
        raise InputError("no row to score", file=str(path), accepted="rows without `exclude`")
    return table


def scored_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows without `exclude`."""
    if "exclude" not in table:
        return table
    return table[table["exclude"].str.strip() == ""].reset_index(drop=True)


def estimate_file(points: Path, out: Path, catalog: Catalog | None = None) -> dict[str, int]:
    """Writes every row of `points` with the columns ADDED to `out`; returns how many are `ok`
    and how many infeasible.

    Raises InputError for a file that is no CSV or lacks a column, StorageError for an `out` that
    cannot be written.
    """
    answer = estimate_table(read_points(points), catalog)
    write_text(out.parent, out.name, answer.to_csv(index=False, lineterminator="\n"))
    ok = int((answer["status"] == "ok").sum())
    return {"rows": len(answer), "ok": ok, "infeasible": infeasible(answer)}


def estimate_table(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED, by the model that its columns call for; rows of training
    get `serving`, their task, and `backend` too. Raises InputError where a needed column is
    missing."""
    training = training_rows(table)
    if training.any():
        own = estimate_training(table[training], catalog)
        if training.all():
            return own
        return pd.concat([estimate_table(table[~training], catalog), own]).loc[table.index]
    if not is_disaggregated(table):
        return estimate_rows(table, catalog)
    return estimate_disaggregated(table, catalog)


def predict(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The rows without `exclude`, predicted, as `ready` leaves them."""
    return ready(estimate_table(scored_rows(table), catalog))


def ready(predicted: pd.DataFrame) -> pd.DataFrame:
    """Predicted rows with `value` as a number, `backend` and `group`; a row whose measured value is
    no positive number is not covered."""
    answer = predicted.reset_index(drop=True)
    answer["value"] = pd.to_numeric(answer["value"], errors="coerce")
    cells = {
        name: text_column(answer, name)
        for name in ("engine", "group", "serving", "requests_per_s", "notes")
    }
    named = [backend_of(engine)[0] for engine in cells["engine"]]
    training = training_rows(answer)
    answer["backend"] = np.where(training, answer["backend"], named) if training.any() else named
    made = answer["model"] + "|" + answer["chip"]
    answer["group"] = cells["group"].where(cells["group"] != "", made)
    loads = zip(cells["serving"], cells["requests_per_s"], cells["notes"], strict=True)
    answer["serving"] = [serving_of(*load) for load in loads]
    sane = answer["value"].between(SMALLEST, LARGEST)
    wrong = (answer["status"] == "ok") & ~sane
    answer.loc[wrong, "status"] = "value is not a positive number"
    endless = (answer["status"] == "ok") & ~np.isfinite(answer["predicted"].astype(float))
    answer.loc[endless, "status"] = "no finite prediction"
    return answer


def covered(answer: pd.DataFrame) -> pd.DataFrame:
    """The rows of `ready` that can be scored."""
    return answer[answer["status"] == "ok"]


def infeasible(answer: pd.DataFrame) -> int:
    """How many rows break a rule; their predictions are no accuracy of anything."""
    return int(answer["status"].str.startswith(INFEASIBLE).sum())


def accuracy(answer: pd.DataFrame) -> dict[str, Any]:
    """The document of `dse validate --json` from predicted rows."""
    scored = covered(answer)
    return {
        "rows": len(answer),
        "covered": len(scored),
        "infeasible": infeasible(answer),
        "not_covered": not_covered(answer),
        "scores": score(scored),
    } | across(scored)


def across(scored: pd.DataFrame) -> dict[str, Any]:
    """The scores that join several metrics or chips, of serving alone."""
    scored = scored[~training_rows(scored)]
    tpot = scored[scored["metric"] == "tpot_s"]
    catalog = load_catalog()
    chips = catalog.chips
    cdna3 = tpot["chip"].isin([chip.id for chip in chips.values() if chip.family == "cdna3"])
    wide = pd.to_numeric(text_column(scored, "tp"), errors="coerce") >= WIDE
    systems = catalog.systems
    joined = [c.id for c in chips.values() if systems[c.system].levels[0].topology in ON_PCIE]
    cards = wide & scored["chip"].isin(joined) & ~scored["metric"].isin(("ttft_s", "e2e_s"))
    caps = text_column(scored, "max_running_requests")
    capped = (scored["serving"] == "offline") & (caps.str.strip() != "")
    return {
        "static_all": together(scored[scored["serving"] == "static"], "static"),
        "cdna3": together(tpot[cdna3]),
        "pcie": together(scored[cards]),
        "capped": together(scored[capped], "offline"),
        "rank_correlation": {
            "metric": "tpot_s",
            "rows": len(tpot),
            "value": rank_correlation(tpot["predicted"].to_numpy(), tpot["value"].to_numpy()),
        },
        "speed_up": speed_up(scored),
    }


def cross_validated(
    answer: pd.DataFrame,
    progress: Callable[[str], None],
    *,
    own: bool,
    catalog: Catalog | None = None,
) -> dict[str, Any]:
    """`held_out` of the covered rows of `answer`. Rows of the user's `own` enter no fit: theirs are
    to the shipped rows, without those that share the row's group, chip or model."""
    rows = covered(answer).drop(columns=list(ADDED))
    training = training_rows(rows)
    folds = []
    if not training.all():
        served = rows[~training].reset_index(drop=True)
        folds.append(_served_folds(served, progress, own, catalog))
    if training.any():
        trained = rows[training].reset_index(drop=True)
        fitted = scored_rows(read(hardware_dir() / MEASUREMENTS / TRAINING)) if own else None
        folds.append(cross_validate_training(trained, fitted, progress, catalog))
    return held_out({by: pd.concat([fold[by] for fold in folds]) for by in folds[0]})


def _served_folds(
    rows: pd.DataFrame, progress: Callable[[str], None], own: bool, catalog: Catalog | None
) -> dict[str, pd.DataFrame]:
    """By fold, rows of serving as `predict` leaves them."""
    if not own:
        return pose(rows, catalog).cross_validate(progress)
    shipped_rows = scored_rows(shipped()[0])
    both = pd.concat([shipped_rows, rows.assign(exclude="not fitted")], ignore_index=True)
    folds = pose(both.fillna(""), catalog).cross_validate(progress)
    unseen = estimate_rows(rows, catalog)  # no shipped row shares the group, chip or model of these
    answers = {}
    for by, table in folds.items():
        mine = table.iloc[len(shipped_rows) :].reset_index(drop=True)
        for name in ADDED[:4]:
            mine[name] = np.where(mine[name].isna(), unseen[name], mine[name])
        answers[by] = mine
    return answers


def held_out(folds: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """The scores of each kind of fold; under `across`, what `across` says of each; under `worst`,
    for each metric and serving, the largest `group_median_error` of them."""
    scored = {name: covered(ready(table)) for name, table in folds.items()}
    document: dict[str, Any] = {name: score(rows) for name, rows in scored.items()}
    worst: dict[tuple[str, str], dict[str, Any]] = {}
    for name, scores in document.items():
        for item in scores:
            key, error = (item["metric"], item["serving"]), item["group_median_error"]
            larger = key not in worst or error > worst[key]["group_median_error"]
            if item["by"] == "all" and larger:
                of = {"metric": key[0], "serving": key[1]}
                worst[key] = of | {"fold": name, "group_median_error": error}
    joined = {name: across(rows) for name, rows in scored.items()}
    return document | {"across": joined, "worst": list(worst.values())}


def worst_groups(answer: pd.DataFrame) -> list[dict[str, Any]]:
    """`metric, serving, group, rows, median_error, bias` of groups with 5 rows or more, the largest
    error first."""
    found = []
    for (metric, serving), part in covered(answer).groupby(["metric", "serving"]):
        groups = group_errors(part)
        groups = groups[groups["rows"] >= ENOUGH_ROWS]
        of = {"metric": metric, "serving": serving}
        found += [of | row for row in groups.to_dict("records")]
    return sorted(found, key=lambda row: -row["median_error"])
