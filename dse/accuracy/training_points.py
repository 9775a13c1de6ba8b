"""Training rows of the measurement format, predicted.

`read_training` reads a table once; `predict_training` predicts what it read with any constants of
the training stacks. `dse.accuracy.training_rows` has the rules of one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.tables import (
    TRAINING_NEEDED,
    Column,
    distinct,
    in_table,
    machines_of,
    predict_by_metric,
    read_each,
    require_columns,
    with_predictions,
)
from dse.accuracy.training_flops import flops_per_token
from dse.accuracy.training_rows import COUNTS, TEXTS, TrainingRow, read_training_row
from dse.catalog import Catalog, load_catalog
from dse.physics.machines import Machines
from dse.physics.training.evaluate import evaluate_training
from dse.physics.training.intervals import law_kind, training_interval, training_spread
from dse.physics.training.plan import TASKS, TrainingBatch, TrainingMetrics
from dse.schema.dtypes import CODE
from dse.schema.model import Model
from dse.schema.training_stack import TrainingStack, training_stacks
from dse.space.batches import batch_of
from dse.space.candidates import Floats

PEAK = "bf16"  # what a published MFU is a share of: the dense 16-bit peak


@dataclass(frozen=True, slots=True)
class StackGroup:
    """m runs of one stack and the r rows that measure them. `batch.candidates.chip` indexes
    `TrainingReadout.chips`; `flops` (m,) a token by the source's convention; `position`, `run`
    (index into the batch), `metric` and `run_tokens`: (r,)."""

    stack: str
    batch: TrainingBatch
    flops: Floats
    position: NDArray[np.intp]
    run: NDArray[np.intp]
    metric: NDArray[np.str_]
    run_tokens: Floats


@dataclass(frozen=True, slots=True)
class TrainingReadout:
    """A table of n rows, read. `status` is `ok` or why a row is not covered; `stack` and `task` of
    covered rows, else ""."""

    chips: tuple[str, ...]
    groups: tuple[StackGroup, ...]
    status: tuple[str, ...]
    assumed: tuple[str, ...]
    stack: tuple[str, ...]
    run: tuple[int, ...]  # rows with the same number measure the same run; -1 where not covered

    def __len__(self) -> int:
        return len(self.status)


def estimate_training(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED, and with `serving` the task and `backend` the stack of each
    row. Raises InputError where a needed column is missing."""
    catalog = catalog or load_catalog()
    readout = read_training(table, catalog)
    numbers = predict_training(readout, machines_of(catalog), training_stacks())
    return with_training(table, readout, numbers)


def with_training(table: pd.DataFrame, readout: TrainingReadout, numbers: Floats) -> pd.DataFrame:
    """As `dse.accuracy.tables.with_predictions`, with task and stack of each row."""
    answer = with_predictions(table, readout, numbers)
    answer["task"] = [cell.strip() or TASKS[0] for cell in table["task"].fillna("")]
    answer["serving"] = answer["task"]
    answer["backend"] = list(readout.stack)
    return answer


def read_training(table: pd.DataFrame, catalog: Catalog) -> TrainingReadout:
    """Raises InputError where a needed column is missing."""
    require_columns(table, TRAINING_NEEDED)
    models: dict[str, Model | str] = {}
    found, status = read_each(
        table, (*COUNTS, *TEXTS), lambda cells: read_training_row(cells, catalog, models)
    )
    rows: dict[str, list[tuple[int, TrainingRow]]] = {}
    for position, row in found:
        rows.setdefault(row.stack, []).append((position, row))
    # Another version of the software is another run.
    _, runs = distinct([row for _, row in found], lambda row: (row.engine, *row.key))
    run = np.full(len(table), -1)
    run[[position for position, _ in found]] = runs
    chips = tuple(sorted({row.chip for _, row in found}))
    return TrainingReadout(
        chips=chips,
        groups=tuple(_group(name, placed, chips) for name, placed in sorted(rows.items())),
        status=tuple(status),
        assumed=in_table(found, len(table), lambda row: row.assumed),
        stack=in_table(found, len(table), lambda row: row.stack),
        run=tuple(run.tolist()),
    )


def predict_training(
    readout: TrainingReadout, machines: Machines, stacks: Mapping[str, TrainingStack]
) -> Floats:
    """(n, 5): predicted, low and high end of the 80% interval, floor (of times), kind of kernel
    efficiency (index of KINDS); NaN for a row that is not covered."""
    answer = np.full((len(readout), 5), np.nan)
    codes = np.array([machines.code(chip) for chip in readout.chips], dtype=np.intp)
    spread = training_spread()
    for group in readout.groups:
        batch = _on(group.batch, codes)
        with np.errstate(divide="ignore", invalid="ignore"):
            metrics = evaluate_training(batch, machines, stacks[group.stack])
        kind = law_kind(batch, machines)[group.run]

        def of(
            metric: str,
            rows: NDArray[np.bool_],
            group=group,
            batch=batch,
            metrics=metrics,
            kind=kind,
        ) -> list[Column]:
            where = group.run[rows]
            values, floor = _metric(metric, metrics, batch, group, machines)
            of_run = group.run_tokens[rows] if metric == "chip_hours" else 1.0
            value, least = of_run * values[where], of_run * floor[where]
            low, high = training_interval(metric, value, kind[rows], spread)
            return [value, low, high, least, kind[rows]]

        predict_by_metric(answer, group.position, group.metric, of)
    return answer


def _on(batch: TrainingBatch, codes: NDArray[np.intp]) -> TrainingBatch:
    """The batch with its chips as codes of the machines."""
    candidates = replace(batch.candidates, chip=codes[batch.candidates.chip])
    return replace(batch, candidates=candidates)


def _metric(
    metric: str,
    metrics: TrainingMetrics,
    batch: TrainingBatch,
    group: StackGroup,
    machines: Machines,
) -> tuple[Floats, Floats]:
    """(values, floor), (m,); of chip_hours for each token of the run. A rate has no floor."""
    rate, none = metrics.tokens_per_s_per_chip, np.full(len(batch), np.nan)
    if metric == "tokens_per_s_per_chip":
        return rate, none
    if metric == "tokens_per_s":
        return rate * batch.chips, none
    if metric == "model_flops_per_s_per_chip":
        return rate * group.flops, none
    if metric == "mfu":
        law = machines.laws["gemm"]
        cell = (batch.candidates.chip, CODE[PEAK])
        peak = 1.0 / (law.s_per_flop[cell] * law.floor_of_compute[cell])
        return rate * group.flops / peak, none
    ideal = metrics.losses["ideal"]
    if metric == "step_s":
        return metrics.step_s, ideal
    return 1.0 / rate / 3600.0, ideal / metrics.step_s / rate / 3600.0


def _group(stack: str, rows: list[tuple[int, TrainingRow]], chips: tuple[str, ...]) -> StackGroup:
    """Rows of one stack; those that differ in the metric alone share a run."""
    firsts, run = distinct([row for _, row in rows], lambda row: (*row.key, row.flops))

    def degree(name: str) -> Floats:
        return np.array([row.degrees[name] for row in firsts])

    ones = np.ones(len(firsts))
    candidates = batch_of(
        [row.model for row in firsts],
        np.array([chips.index(row.chip) for row in firsts], dtype=np.intp),
        ["bf16"] * len(firsts),
        ["bf16"] * len(firsts),
        {
            "tensor_parallel": degree("tp"), "pipeline_parallel": degree("pp"),
            "data_parallel": degree("dp"), "expert_parallel": degree("ep"), "replicas": ones,
            "concurrency": ones,
        },
    )  # fmt: skip
    sequence = np.array([row.sequence_length for row in firsts])
    batch = TrainingBatch.of(
        candidates,
        sequence,
        np.array([row.global_batch_tokens for row in firsts]),
        precision=np.array([row.precision for row in firsts]),
        context_parallel=degree("cp"),
        virtual_stages=degree("virtual_pp"),
        micro_batch=degree("micro_batch"),
        recompute=np.array([row.recompute for row in firsts]),
        zero_stage=np.array([row.zero_stage for row in firsts]),
        sequence_parallel=(degree("tp") > 1.0).astype(np.float64),
        task=np.array([row.task for row in firsts]),
    )
    full = np.array([row.flops == "full" for row in firsts], dtype=np.float64)
    lora = np.array([row.task == "lora" for row in firsts], dtype=np.float64)
    return StackGroup(
        stack=stack,
        batch=batch,
        flops=flops_per_token(candidates, sequence, full, lora),
        position=np.array([position for position, _ in rows], dtype=np.intp),
        run=run,
        metric=np.array([row.metric for _, row in rows]),
        run_tokens=np.array([row.run_tokens for _, row in rows]),
    )
