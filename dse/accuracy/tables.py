"""Tables of the measurement format: read, their rows told apart, and predictions beside them.

A table has one measured metric of one configuration in each row, every cell a text. The kinds of
rows (one pool, two pools, training) differ in how a row is read and in the model that predicts it;
what they share is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.rows import NEEDED
from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.machines import Machines, compile_machines
from dse.space.candidates import Floats

# What a table of training rows needs, and the metrics that tell such a row from one of serving.
TRAINING_NEEDED = ("model", "chip", "task", "metric")
TRAINING_METRICS = (
    "tokens_per_s_per_chip", "tokens_per_s", "step_s", "model_flops_per_s_per_chip", "mfu",
    "chip_hours",
)  # fmt: skip
ADDED = ("predicted", "predicted_low", "predicted_high", "floor", "status", "assumed")

Row = TypeVar("Row")
# Rows that were read, each with its position in the table.
Placed = list[tuple[int, Row]]
Column = NDArray[np.float64] | NDArray[np.intp]


class Reading(Protocol):
    """A table of n rows, read. `status` (n,) is `ok` or why a row is not covered; `assumed` (n,)
    what a covered row left open."""

    @property
    def status(self) -> Sequence[str]: ...
    @property
    def assumed(self) -> Sequence[str]: ...


def read_table(path: Path, needed: Sequence[str] = NEEDED) -> pd.DataFrame:
    """A CSV file with every cell as text. Raises InputError where it is none or lacks a column."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read as CSV: {error}", file=str(path)) from error
    require_columns(table, needed, str(path))
    return table


def read_points(path: Path, *more: str) -> pd.DataFrame:
    """A file of the measurement format, every cell a text: rows of serving, of training or of both,
    which `is_training` tells apart; `more` columns are needed too. Raises InputError where it is
    none or lacks a column."""
    table = read_table(path, ())
    of = training_rows(table)
    alone = of.all() if len(of) else "task" in table and "serving" not in table
    needed = TRAINING_NEEDED if alone else NEEDED
    require_columns(table, (*needed, *more), str(path))
    return table


def training_rows(table: pd.DataFrame) -> NDArray[np.bool_]:
    """(n,) whether each row is of training: it has a task, or a metric of training and no serving.
    A table without the column `task` has none; one with it and without `serving` no others."""
    if "task" not in table:
        return np.zeros(len(table), dtype=bool)
    if "serving" not in table:
        return np.ones(len(table), dtype=bool)
    task = table["task"].fillna("").str.strip() != ""
    served = table["serving"].fillna("").str.strip() != ""
    return np.asarray(task | (table["metric"].isin(TRAINING_METRICS) & ~served))


def require_columns(table: pd.DataFrame, needed: Sequence[str], file: str | None = None) -> None:
    """Raises InputError, naming `file`, where a column is missing."""
    absent = [name for name in needed if name not in table]
    if absent:
        raise InputError(
            f"no column {', '.join(map(repr, absent))}",
            file=file,
            accepted="the measurement format, hardware/measurements/README.md",
        )


def is_disaggregated(table: pd.DataFrame) -> bool:
    """Whether its rows have a prefill and a decode pool each."""
    return "prefill_workers" in table


def read_each(
    table: pd.DataFrame, names: Iterable[str], read: Callable[[Mapping[str, str]], Row]
) -> tuple[Placed[Row], list[str]]:
    """The rows that `read` makes of the cells in the columns `names` ("" where a column is absent),
    and the status of all: `ok`, or the message of the InputError that `read` raised."""
    columns = {name: _column(table, name) for name in names}
    rows: Placed[Row] = []
    status = ["ok"] * len(table)
    for position in range(len(table)):
        try:
            row = read({name: column[position] for name, column in columns.items()})
        except InputError as error:
            status[position] = error.message
        else:
            rows.append((position, row))
    return rows, status


def _column(table: pd.DataFrame, name: str) -> list[str]:
    if name not in table:
        return [""] * len(table)
    return [str(cell).strip() for cell in table[name].fillna("").tolist()]


def in_table(rows: Placed[Row], length: int, text: Callable[[Row], str]) -> tuple[str, ...]:
    """(length,) the text of each row that was read, "" elsewhere."""
    found = [""] * length
    for position, row in rows:
        found[position] = text(row)
    return tuple(found)


def distinct(
    rows: Sequence[Row], key: Callable[[Row], Hashable]
) -> tuple[list[Row], NDArray[np.intp]]:
    """The first row of each key, and the place of the key of every row among them."""
    places: dict[Hashable, int] = {}
    firsts: list[Row] = []
    index = []
    for row in rows:
        place = places.setdefault(key(row), len(places))
        if place == len(firsts):
            firsts.append(row)
        index.append(place)
    return firsts, np.array(index, dtype=np.intp)


def predict_by_metric(
    answer: Floats,
    position: NDArray[np.intp],
    metric: NDArray[np.str_],
    of: Callable[[str, NDArray[np.bool_]], Sequence[Column]],
) -> None:
    """Sets the rows `position` (r,) of `answer` (n, 5). `of` gives, for a metric and a mask of the
    r rows that measure it: value, low and high end of the interval, floor, kind of efficiency."""
    for name in sorted(set(metric.tolist())):
        mine = metric == name
        answer[position[mine]] = np.stack(of(name, mine), axis=1)


def machines_of(catalog: Catalog) -> Machines:
    """Every chip of the catalog that has the figures of a roofline."""
    return compile_machines(catalog, [c for c in catalog.chips if not catalog.refusal(c)])


def with_predictions(table: pd.DataFrame, readout: Reading, numbers: Floats) -> pd.DataFrame:
    """The table with the columns ADDED from `predict_rows`' (n, 5) answer. A row whose prediction
    is not finite is not covered."""
    answer = table.copy()
    covered = np.array([status == "ok" for status in readout.status], dtype=bool)
    endless = covered & ~np.isfinite(numbers[:, 0])
    numbers = np.where(endless[:, None], np.nan, numbers)
    for k, name in enumerate(ADDED[:4]):
        answer[name] = numbers[:, k]
    answer["status"] = np.where(endless, "no finite prediction", list(readout.status))
    answer["assumed"] = list(readout.assumed)
    return answer


def not_covered(answer: pd.DataFrame) -> list[dict[str, Any]]:
    """[{reason, rows}] of the rows without a prediction, most rows first."""
    counted = Counter(status for status in answer["status"] if status != "ok")
    return [{"reason": reason, "rows": rows} for reason, rows in counted.most_common()]
