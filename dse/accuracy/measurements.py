"""Predicted against measured: tables of the measurement format, what is covered, and the scores.

Figures that claims rest on and no verb prints as one number: shipped rows, joules of an access
against a multiply, measured pairs of chips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.accuracy.fits import cross_validate_training, pose
from dse.accuracy.scores import (
    ENOUGH_ROWS,
    group_errors,
    pairs_of,
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
from dse.accuracy.training_rows import estimate_training
from dse.catalog import MEASUREMENTS, Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.files import write_text
from dse.schema.dtypes import arithmetic
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


def energy(*, catalog: Catalog) -> dict[str, dict[str, float]]:
    """Joules to read the bits of a number over those of its multiply: by node and multiply, by
    memory (hardware/energy.yaml)."""
    found: dict[str, dict[str, float]] = {}
    operations = catalog.energy.operations
    for multiply in (one for one in operations if one.name.endswith("multiply")):
        ratios = found.setdefault(f"{multiply.name}, {multiply.node}", {})
        for access in operations:
            if access.node == multiply.node and not access.name.endswith("multiply"):
                ratios[access.name] = access.j_per_bit * multiply.bits / multiply.figure.value
    return found


def measured(file: str, where: Mapping[str, Any], column: str = "value") -> dict[str, float | None]:
    """`least`, `median`, `most` and number of `rows` of a column of a shipped file of measurements,
    of the rows that have the values of `where`."""
    path = hardware_dir() / MEASUREMENTS / Path(file).name
    if not path.is_file():
        listed = ", ".join(sorted(one.name for one in path.parent.glob("*.csv")))
        raise InputError(f"no file {file!r}", field="file", accepted=listed)
    table = pd.read_csv(path, dtype=str)
    if missing := {column, *where} - set(table.columns):
        raise InputError(f"no column {missing.pop()!r}", accepted=", ".join(table.columns))
    for name, value in where.items():
        known = [str(one) for one in (value if isinstance(value, list) else [value])]
        table = table[table[name].isin(known)]
    return _ends(table[column].astype(float).to_numpy())


def reached(start: str, growth: str, limit: str) -> dict[str, float]:
    """The `year` in which what starts in the year of its row and grows by a factor each year meets
    a limit, and the `years` until then; all three are subjects of
    hardware/measurements/figures.csv."""
    table = pd.read_csv(hardware_dir() / MEASUREMENTS / "figures.csv", dtype=str)
    rows = {row["subject"]: row for row in table.to_dict("records")}
    if missing := {start, growth, limit} - set(rows):
        raise InputError(f"no subject {missing.pop()!r}", accepted=", ".join(rows))
    first, factor, last = (float(rows[name]["value"]) for name in (start, growth, limit))
    years = math.log(last / first) / math.log(factor)
    return {"year": float(rows[start]["date"][:4]) + years, "years": years}


def pairs(
    before: str = "", after: str = "", concurrency: int = 0, by: str = "speed"
) -> dict[str, Any]:
    """Measured decode speed of a later chip over an earlier one, of rows that share all but the
    chip (those of `before` and `after` alone, up to `concurrency` requests): its `speed`, and how
    far the ratio `by` (bandwidth, flops, predicted) is off it, as a factor minus one."""
    table = matched(DECODE)
    for name, value in (("chip_a", before), ("chip_b", after)):
        table = table[table[name] == value] if value else table
    if concurrency:
        table = table[table["concurrency"] <= concurrency]
    off = np.expm1(np.abs(np.log((table[by] / table["speed"]).to_numpy())))
    return {"speed": _ends(table["speed"].to_numpy()), "off": _ends(off)}


def _ends(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return {"least": None, "median": None, "most": None, "rows": 0}
    ends = {"least": values.min(), "median": np.median(values), "most": values.max()}
    return {name: float(value) for name, value in {**ends, "rows": len(values)}.items()}


DECODE = ("tpot_s", "decode_step_s", "output_tokens_per_s")


@cache
def matched(metrics: tuple[str, ...] = DECODE) -> pd.DataFrame:
    """Pairs (chip_a, chip_b) of closed-loop, static or offline rows that share model, parallelism,
    formats, lengths, concurrency and backend, b the later chip: `speed` of b over a as
    measured, `predicted` the same as predicted, `bandwidth` and `flops` the ratios of the chips'
    figures (dense peak of the arithmetic of the weights)."""
    rows = covered(predict(shipped()[0]))
    chips = load_catalog().chips
    rows = rows[rows["metric"].isin(metrics)]
    pairs = pairs_of(rows)
    order = {
        name: (chip.year or 0, chip.memories[0].bytes_per_s, name) for name, chip in chips.items()
    }
    later = [order[a] < order[b] for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)]
    pairs = pairs[np.array(later, dtype=bool)].reset_index(drop=True)
    pairs["concurrency"] = pd.to_numeric(pairs["concurrency"], errors="coerce")  # offline: none
    rate = np.where(pairs["metric"].str.endswith("_per_s"), 1.0, -1.0)
    for name, column in (("speed", "value"), ("predicted", "predicted")):
        pairs[name] = (pairs[f"{column}_b"] / pairs[f"{column}_a"]) ** rate
    pairs["bandwidth"] = [
        chips[b].memories[0].bytes_per_s / chips[a].memories[0].bytes_per_s
        for a, b in zip(pairs["chip_a"], pairs["chip_b"], strict=True)
    ]
    pairs["flops"] = [
        peak(b, dtype) / peak(a, dtype)
        for a, b, dtype in zip(pairs["chip_a"], pairs["chip_b"], pairs["weight_dtype"], strict=True)
    ]
    return pairs


def peak(chip: str, weight_dtype: str) -> float:
    """Dense FLOP/s of the arithmetic that weights of a format run on; 16 bits where the chip has
    none of its own or the format is not said."""
    peaks = load_catalog().chips[chip].peak_flops_per_s
    own = arithmetic(weight_dtype) if weight_dtype else "bf16"
    return peaks.get(own, peaks["bf16"])
