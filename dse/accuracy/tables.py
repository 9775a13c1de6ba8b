"""Tables of the measurement format: read, their rows told apart, and predictions beside them.

A table has one measured metric of one configuration in each row, every cell a text. The kinds of
rows (one pool, two pools, training) differ in how a row is read and in the model that predicts it;
`Kind` says how; the rest they share.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.serving_rows import NEEDED, NUMBERS, TEXTS
from dse.accuracy.training_row import TRAINING_METRICS
from dse.catalog import Catalog
from dse.errors import Doubt, InputError
from dse.files import MOST_TABLE_BYTES, read_bytes, text_of
from dse.physics.machines import Machines, compile_machines
from dse.schema.loader import did_you_mean
from dse.schema.model import Model
from dse.schema.reader import brief
from dse.space.candidates import Floats

# What a table of training rows needs.
TRAINING_NEEDED = ("model", "chip", "task", "metric")
INFEASIBLE = "infeasible: "  # before the rules that a row breaks, in its status
ENOUGH_ROWS = 5  # of a group that counts in full
ADDED = ("predicted", "predicted_low", "predicted_high", "floor", "status", "assumed")
_OF_POOL = ("workers", "tp", "pp", "dp", "ep", "max_running_requests", "redundant_experts")
# Of the measurement format (hardware/measurements/README.md): what is read, and what is kept.
COLUMNS = (
    *dict.fromkeys((*TEXTS, *NUMBERS)),
    *(f"{pool}_{name}" for pool in ("prefill", "decode") for name in _OF_POOL),
    "chunk_tokens", "max_running_requests", "poll_steps",
    "cp", "dtype", "sequence_length", "global_batch_tokens", "micro_batch", "virtual_pp", "fsdp",
    "recompute", "task",
    "id", "published_model", "statistic", "value", "quality", "exclude", "source", "licence",
    "group", *ADDED,
)  # fmt: skip

# Of rows that stand in a repository of others (or of several), a sign in the notes.
CAMPAIGNS = (
    ("NVIDIA internal gap-analysis run", "NVIDIA gap analysis"),
    ("InferenceX experimental", "InferenceX experimental"),
    ("InferenceX DB", "InferenceX"),
    ("InferenceMAX run", "InferenceX"),
)
REPOSITORY = re.compile(r"(?:https?://)?(?:github:)?([\w.-]+/[\w.-]+)")

Columns = Sequence[NDArray[np.float64] | NDArray[np.intp]]


Row = TypeVar("Row", bound=Any)
Posed = TypeVar("Posed")


@dataclass(frozen=True, slots=True)
class Group(Generic[Row, Posed]):
    """Rows that are predicted together: m configurations, and the r rows that measure them.

    `rows` (m,) is the first row of each configuration and `posed` what is evaluated; `position`
    (row of the table), `configuration` (index into the m) and `metric`: (r,).
    """

    rows: tuple[Row, ...]
    posed: Posed
    position: NDArray[np.intp]
    configuration: NDArray[np.intp]
    metric: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Readout(Generic[Row, Posed]):
    """A table of n rows, read. `status` (n,) is `ok` or why a row is not covered; `found` are the
    covered rows, each with its position."""

    groups: tuple[Group[Row, Posed], ...]
    status: tuple[str, ...]
    found: tuple[tuple[int, Row], ...]

    def __len__(self) -> int:
        return len(self.status)

    def text(self, of: Callable[[Row], str]) -> tuple[str, ...]:
        """(n,) a text of each covered row, "" elsewhere."""
        texts = {position: of(row) for position, row in self.found}
        return tuple(texts.get(position, "") for position in range(len(self)))

    @property
    def assumed(self) -> tuple[str, ...]:
        """(n,) what a covered row left open."""
        return self.text(lambda row: row.assumed)

    def predicted(self, columns: Iterable[Callable[[str], Columns]]) -> Floats:
        """(n, 5): predicted, low and high end of the 80% interval, roofline floor, kind of
        efficiency (index of KINDS); NaN for a row that is not covered, and for a floor that does
        not apply. `columns` gives the five of a metric, (m,) each, for each group."""
        answer = np.full((len(self), 5), np.nan)
        for group, of in zip(self.groups, columns, strict=True):
            for metric in sorted(set(group.metric.tolist())):
                mine = group.metric == metric
                stacked = np.stack(of(metric), axis=1)
                answer[group.position[mine]] = stacked[group.configuration[mine]]
        return answer


@dataclass(frozen=True, slots=True)
class Kind(Generic[Row, Posed]):
    """One kind of rows: the columns that its table needs and the cells that `row` reads, raising
    InputError with the reason why one is not covered. Rows of the same `together` are evaluated at
    once, those of the same `key` too differ in the metric alone."""

    needed: tuple[str, ...]
    cells: tuple[str, ...]
    row: Callable[[Mapping[str, str], Catalog, dict[str, Model | str]], Row]
    together: Callable[[Row], Hashable]
    key: Callable[[Row], Hashable]
    pose: Callable[[Sequence[Row]], Posed]

    def read(self, table: pd.DataFrame, catalog: Catalog) -> Readout[Row, Posed]:
        """Raises InputError where a needed column is missing."""
        require_columns(table, self.needed)
        models: dict[str, Model | str] = {}
        columns = {name: text_column(table, name).str.strip().tolist() for name in self.cells}
        status = ["ok"] * len(table)
        found: list[tuple[int, Row]] = []
        groups: dict[Hashable, list[tuple[int, Row]]] = {}
        for position in range(len(table)):
            cells = {name: column[position] for name, column in columns.items()}
            try:
                row = self.row(cells, catalog, models)
            except InputError as error:
                status[position] = error.message
            else:
                found.append((position, row))
                groups.setdefault(self.together(row), []).append((position, row))
        return Readout(tuple(map(self._group, groups.values())), tuple(status), tuple(found))

    def _group(self, placed: Sequence[tuple[int, Row]]) -> Group[Row, Posed]:
        rows = [row for _, row in placed]
        firsts, configuration = distinct(rows, self.key)
        return Group(
            rows=tuple(firsts),
            posed=self.pose(firsts),
            position=np.array([position for position, _ in placed], dtype=np.intp),
            configuration=configuration,
            metric=np.array([row.metric for row in rows]),
        )


def read_table(path: Path, needed: Sequence[str] = NEEDED) -> pd.DataFrame:
    """A CSV file with every cell as text. Raises InputError where it is none or lacks a column."""
    text = text_of(read_bytes(path, MOST_TABLE_BYTES), str(path))
    try:
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    except ValueError as error:
        raise InputError(f"cannot be read as CSV: {error}", file=str(path)) from error
    require_columns(table, needed, str(path))
    return table


def _doubt(table: pd.DataFrame, file: str) -> None:
    """Warns of columns that nobody reads, and of names of rows that stand twice."""
    for name in table.columns:
        if name not in COLUMNS:
            said = f"{file}: column {name!r} is not read{did_you_mean(name, COLUMNS)}"
            warnings.warn(said, Doubt, stacklevel=3)
    names = table["id"] if "id" in table else pd.Series(dtype=str)
    twice = names[names.duplicated() & (names != "")].unique()
    if len(twice):
        said = f"{file}: id: {brief(twice[0])} names several rows"
        more = f", and so do {len(twice) - 1} more names" if len(twice) > 1 else ""
        warnings.warn(f"{said}{more}", Doubt, stacklevel=3)


def read_points(path: Path, *more: str) -> pd.DataFrame:
    """A file of the measurement format, every cell a text: rows of serving, of training or of both,
    which `training_rows` tells apart; `more` columns are needed too. Raises InputError where it is
    none or lacks a column."""
    table = read_table(path, ())
    of = training_rows(table)
    alone = of.all() if len(of) else "task" in table and "serving" not in table
    needed = TRAINING_NEEDED if alone else NEEDED
    require_columns(table, (*needed, *more), str(path))
    _doubt(table, str(path))
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


def campaigns(table: pd.DataFrame) -> list[str]:
    """(n,) whose measurements the rows are: the repository or page of `source`, but for rows that
    others publish again or beside their own, which the notes tell."""

    def campaign(source: str, notes: str) -> str:
        found = REPOSITORY.match(source)
        page = found.group(1) if found else source.partition(" (")[0]
        return next((name for sign, name in CAMPAIGNS if sign in notes), page)

    return list(map(campaign, text_column(table, "source"), text_column(table, "notes")))


def text_column(table: pd.DataFrame, name: str) -> pd.Series:
    """The cells of a column as texts, empty where there are none."""
    if name not in table:
        return pd.Series("", index=table.index, dtype=object)
    return table[name].fillna("").astype(str)


def distinct(
    rows: Iterable[Row], key: Callable[[Row], Hashable]
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


def machines_of(catalog: Catalog) -> Machines:
    """Every chip of the catalog that has the figures of a roofline."""
    return compile_machines(catalog, [c for c in catalog.chips if not catalog.refusal(c)])


def with_predictions(
    table: pd.DataFrame,
    readout: Readout[Any, Any],
    numbers: Floats,
    broken: Mapping[int, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """The table with the columns ADDED, from the (n, 5) of `Readout.predicted`. A row whose
    prediction is not finite is not covered; one of `broken`, the rules of `dse.rules` that rows
    break, keeps its prediction and is infeasible."""
    answer = table.copy()
    covered = np.array([status == "ok" for status in readout.status], dtype=bool)
    endless = covered & ~np.isfinite(numbers[:, 0])
    numbers = np.where(endless[:, None], np.nan, numbers)
    for k, name in enumerate(ADDED[:4]):
        answer[name] = numbers[:, k]
    status = np.where(endless, "no finite prediction", list(readout.status)).astype(object)
    for position, rules in broken.items():
        status[position] = f"{INFEASIBLE}{rules}"
    answer["status"] = status
    answer["assumed"] = list(readout.assumed)
    return answer


def broken_rules(
    violations: Mapping[str, Floats], group: Group[Row, Posed], of: str = ""
) -> dict[int, str]:
    """By row of the table, the rules that its configuration breaks; `violations[rule]` is (m,), and
    `of` goes before each name."""
    named = {name: amount > 0.0 for name, amount in violations.items() if (amount > 0.0).any()}
    found = {}
    for position, k in zip(group.position.tolist(), group.configuration, strict=True):
        if names := [f"{of}{name}" for name, amount in named.items() if amount[k]]:
            found[position] = ", ".join(names)
    return found


def not_covered(answer: pd.DataFrame) -> list[dict[str, Any]]:
    """[{reason, rows}] of the rows that are not scored, most rows first."""
    counted = Counter(status for status in answer["status"] if status != "ok")
    return [{"reason": reason, "rows": rows} for reason, rows in counted.most_common()]
