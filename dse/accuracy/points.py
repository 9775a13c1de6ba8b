"""Rows of the measurement format, predicted.

`read_rows` reads a table once; `predict_rows` predicts what it read, as often as wanted, with any
catalog (its backends) and any machines. `dse.accuracy.rows` has the rules of one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.rows import NEEDED, NUMBERS, RATES, TEXTS, Row, interval_metric, read_row
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError, StorageError
from dse.physics.intervals import interval
from dse.physics.machines import Machines, compile_machines
from dse.physics.queueing import synchronised_share
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

# Prompts that a measured closed loop sent, over its concurrency (the format's own statement).
ROUNDS = 10.0
# Of requests that the simulation keeps in step, the share that real clients and servers do: chosen
# once, between the rows of SGLang 0.5.1 (near 1) and of SGLang 0.5.6, vLLM and TensorRT-LLM (.3
# to .6).
IN_STEP = 0.5
# What a table of training rows needs, and the metrics that tell such a row from one of serving.
TRAINING_NEEDED = ("model", "chip", "task", "metric")
TRAINING_METRICS = (
    "tokens_per_s_per_chip", "tokens_per_s", "step_s", "model_flops_per_s_per_chip", "mfu",
    "chip_hours",
)  # fmt: skip
ADDED = ("predicted", "predicted_low", "predicted_high", "floor", "status", "assumed")


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Covered rows of one serving and backend: m configurations and the r rows that measure them.

    `batch`, `prompt`, `output`, `length_spread`, `queued`: (m,);
    `batch.chip` indexes `Readout.chips`.
    `position` (row of the table), `configuration` (index into the batch) and `metric`: (r,).
    """

    serving: str
    backend: str
    batch: CandidateBatch
    prompt: Floats
    output: Floats
    length_spread: Floats
    queued: Floats
    position: NDArray[np.intp]
    configuration: NDArray[np.intp]
    metric: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Readout:
    """A table of n rows, read. `status` is `ok` or why a row is not covered; `assumed` what a
    covered row left open."""

    chips: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    status: tuple[str, ...]
    assumed: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.status)


def estimate_file(points: Path, out: Path, catalog: Catalog | None = None) -> dict[str, int]:
    """Writes every row of `points` with the columns ADDED to `out`; returns how many were `ok`.

    Raises InputError for a file that is no CSV or lacks a column, StorageError for an `out` that
    cannot be written.
    """
    answer = estimate_table(read_points(points), catalog)
    try:
        answer.to_csv(out, index=False, lineterminator="\n")
    except OSError as error:
        raise StorageError(f"{out}: cannot be written: {error.strerror}") from error
    return {"rows": len(answer), "ok": int((answer["status"] == "ok").sum())}


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


def estimate_table(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED, by the model that its columns call for; rows of training
    get `serving`, their task, and `backend` too. Raises InputError where a needed column is
    missing."""
    training = training_rows(table)
    if training.any():
        from dse.accuracy.training_points import estimate_training  # noqa: PLC0415

        own = estimate_training(table[training], catalog)
        if training.all():
            return own
        return pd.concat([estimate_table(table[~training], catalog), own]).loc[table.index]
    if not is_disaggregated(table):
        return estimate_rows(table, catalog)
    from dse.accuracy.disaggregated import estimate_disaggregated  # noqa: PLC0415

    return estimate_disaggregated(table, catalog)


def estimate_rows(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED. Raises InputError where a needed column is missing."""
    catalog = catalog or load_catalog()
    readout = read_rows(table, catalog)
    found = list(_evaluated(readout, catalog, machines_of(catalog)))
    answer = with_predictions(table, readout, _numbers(readout, found))
    broken = _broken(found)
    answer["assumed"] = [
        "; ".join(filter(None, (text, broken.get(position))))
        for position, text in enumerate(readout.assumed)
    ]
    return answer


def machines_of(catalog: Catalog) -> Machines:
    """Every chip of the catalog that has the figures of a roofline."""
    return compile_machines(catalog, [c for c in catalog.chips if not catalog.refusal(c)])


def with_predictions(table: pd.DataFrame, readout: Readout, numbers: Floats) -> pd.DataFrame:
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


def read_rows(table: pd.DataFrame, catalog: Catalog) -> Readout:
    """Raises InputError where a needed column is missing."""
    require_columns(table, NEEDED)
    columns = {name: _column(table, name) for name in (*NUMBERS, *TEXTS)}
    status, assumed = ["ok"] * len(table), [""] * len(table)
    groups: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    models: dict[str, Model | str] = {}
    for position in range(len(table)):
        cells = {name: column[position] for name, column in columns.items()}
        try:
            row = read_row(cells, catalog, models)
        except InputError as error:
            status[position] = error.message
            continue
        groups.setdefault((row.serving, row.backend), []).append((position, row))
        assumed[position] = row.assumed
    chips = tuple(sorted({row.chip for rows in groups.values() for _, row in rows}))
    return Readout(
        chips=chips,
        groups=tuple(_group(rows, chips) for rows in groups.values()),
        status=tuple(status),
        assumed=tuple(assumed),
    )


def predict_rows(readout: Readout, catalog: Catalog, machines: Machines) -> Floats:
    """(n, 5): predicted, low and high end of the 80% interval, roofline floor, kind of efficiency
    (index of KINDS); NaN for a row that is not covered, and for a floor that does not apply.
    `machines` has every chip of the readout; of the catalog only the backends are used."""
    return _numbers(readout, _evaluated(readout, catalog, machines))


def _evaluated(
    readout: Readout, catalog: Catalog, machines: Machines
) -> Iterator[tuple[RowGroup, Metrics]]:
    """Each group with the metrics of its configurations."""
    codes = np.array([machines.code(chip) for chip in readout.chips], dtype=np.intp)
    for group in readout.groups:
        batch = replace(group.batch, chip=codes[group.batch.chip])
        backend = catalog.backends[group.backend]
        load = Workload(
            group.prompt,
            group.output,
            group.serving,
            backend,
            ROUNDS,
            IN_STEP * synchronised_share(group.output, ROUNDS, group.length_spread),
            queued=group.queued,
        )
        yield group, evaluate(batch, load, machines)


def _numbers(readout: Readout, found: Iterable[tuple[RowGroup, Metrics]]) -> Floats:
    """The answer of `predict_rows`."""
    answer = np.full((len(readout), 5), np.nan)
    for group, metrics in found:
        for metric in sorted(set(group.metric.tolist())):
            rows = group.metric == metric
            where = group.configuration[rows]
            values, floor = (column[where] for column in _metric(metrics, metric, group))
            kind = metrics.provenance[where]
            low, high = interval(interval_metric(metric), values, kind, metrics.spread)
            answer[group.position[rows]] = np.stack([values, low, high, floor, kind], axis=1)
    return answer


def _broken(found: Iterable[tuple[RowGroup, Metrics]]) -> dict[int, str]:
    """By row of the table, the rules of `dse.problem.evaluate` that its configuration breaks, in
    words."""
    rules: dict[int, str] = {}
    for group, metrics in found:
        for position, k in zip(group.position.tolist(), group.configuration, strict=True):
            names = [name for name, amount in metrics.violations.items() if amount[k] > 0.0]
            if names:
                rules[position] = f"it breaks {', '.join(names)}"
    return rules


def not_covered(answer: pd.DataFrame) -> list[dict[str, Any]]:
    """[{reason, rows}] of the rows without a prediction, most rows first."""
    counted = Counter(status for status in answer["status"] if status != "ok")
    return [{"reason": reason, "rows": rows} for reason, rows in counted.most_common()]


def _column(table: pd.DataFrame, name: str) -> list[str]:
    if name not in table:
        return [""] * len(table)
    return [str(cell).strip() for cell in table[name].fillna("").tolist()]


def _group(rows: list[tuple[int, Row]], chips: tuple[str, ...]) -> RowGroup:
    """Rows that share serving and backend; those that differ in the metric alone share a
    configuration."""
    distinct: dict[tuple[object, ...], int] = {}
    firsts: list[Row] = []
    configuration = []
    for _, row in rows:
        key = (
            row.model.id, row.model.source, row.chip, row.weight_dtype, row.kv_dtype,
            *row.deployment.values(), row.prompt, row.output, row.length_spread,
            row.queued,
        )  # fmt: skip
        if key not in distinct:
            distinct[key] = len(firsts)
            firsts.append(row)
        configuration.append(distinct[key])
    batch = batch_of(
        [row.model for row in firsts],
        np.array([chips.index(row.chip) for row in firsts], dtype=np.intp),
        [row.weight_dtype for row in firsts],
        [row.kv_dtype for row in firsts],
        {axis: np.array([row.deployment[axis] for row in firsts]) for axis in DEPLOYMENT_AXES},
    )
    return RowGroup(
        serving=firsts[0].serving,
        backend=firsts[0].backend,
        batch=batch,
        prompt=np.array([row.prompt for row in firsts]),
        output=np.array([row.output for row in firsts]),
        length_spread=np.array([row.length_spread for row in firsts]),
        queued=np.array([row.queued for row in firsts]),
        position=np.array([position for position, _ in rows], dtype=np.intp),
        configuration=np.array(configuration, dtype=np.intp),
        metric=np.array([row.metric for _, row in rows]),
    )


def _metric(metrics: Metrics, metric: str, group: RowGroup) -> tuple[Floats, Floats]:
    """(values, roofline floor) of a metric, (m,) each; a rate has no floor."""
    performance = metrics.performance
    if metric in RATES:
        tokens = {
            "output_tokens_per_s": group.output,
            "input_tokens_per_s": group.prompt,
            "total_tokens_per_s": group.prompt + group.output,
        }[metric]
        rate = performance.requests_per_s * tokens
        return rate, np.full(len(rate), np.nan)
    floor = performance.latency_floor_s
    if metric in ("prefill_s", "ttft_s", "e2e_s"):
        floor = performance.prefill_ledger.floor_s
    return metrics.values[metric], floor
