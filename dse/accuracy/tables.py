"""Tables of the measurement format: read, their rows told apart, and predictions beside them.

A table has one measured metric of one configuration in each row, every cell a text. The kinds of
rows (one pool, two pools, training) differ in how a row is read and in the model that predicts it;
`Kind` says how; the rest they share.

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

import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from dse.accuracy.serving_rows import NEEDED, NUMBERS, TEXTS
from dse.accuracy.training_row import TRAINING_METRICS
from dse.catalog import Catalog
from dse.errors import Doubt, InputError
from dse.files import MOST_TABLE_BYTES, read_bytes, text_of
from dse.physics.machines import Machines, compile_machines
from dse.record import record
from dse.schema.loader import did_you_mean
from dse.schema.model import Model
from dse.schema.reader import brief
from dse.space.candidates import Floats

# What a table of training rows needs.
TRAINING_NEEDED = ("model", "chip", "task", "metric")
INFEASIBLE = "infeasible: "  # before the rules that a row breaks, in its status
ENOUGH_ROWS = 5  # of a group that counts in full
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


# Scores.


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
    late = table["tpot_s.predicted"] * np.exp(ndtri(sure) * table["sigma"]) > limit_s
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
