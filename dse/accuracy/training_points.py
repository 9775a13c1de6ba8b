"""Training rows of the measurement format, predicted.

`read_training` reads a table once; `predict_training` predicts what it read with any constants of
the training stacks. `dse.accuracy.training_rows` has the rules of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.points import placed
from dse.accuracy.tables import (
    TRAINING_NEEDED,
    Columns,
    Group,
    Kind,
    Readout,
    distinct,
    machines_of,
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
from dse.schema.training_stack import TrainingStack, training_stacks
from dse.space.batches import batch_of
from dse.space.candidates import Floats

PEAK = "bf16"  # what a published MFU is a share of: the dense 16-bit peak


@dataclass(frozen=True, slots=True)
class Trained:
    """m runs of one stack, (m,) each: `flops` a token by the source's convention; `run_tokens` of
    the whole run."""

    batch: TrainingBatch
    flops: Floats
    run_tokens: Floats


TrainingReadout = Readout[TrainingRow, Trained]


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
    answer["backend"] = list(readout.text(lambda row: row.stack))
    return answer


def read_training(table: pd.DataFrame, catalog: Catalog) -> TrainingReadout:
    """Raises InputError where a needed column is missing."""
    return KIND.read(table, catalog)


def runs_of(readout: TrainingReadout) -> NDArray[np.intp]:
    """(n,) rows with the same number measure the same run; -1 where not covered. Another version of
    the software is another run."""
    runs = np.full(len(readout), -1)
    rows = [row for _, row in readout.found]
    _, found = distinct(rows, lambda row: (row.engine, *row.key))
    runs[[position for position, _ in readout.found]] = found
    return runs


def predict_training(
    readout: TrainingReadout, machines: Machines, stacks: Mapping[str, TrainingStack]
) -> Floats:
    """(n, 5) as `Readout.predicted`; times alone have a floor."""
    return readout.predicted(_columns(group, machines, stacks) for group in readout.groups)


def _columns(
    group: Group[TrainingRow, Trained], machines: Machines, stacks: Mapping[str, TrainingStack]
) -> Callable[[str], Columns]:
    posed = group.posed
    batch = replace(posed.batch, candidates=placed(posed.batch.candidates, group.rows, machines))
    with np.errstate(divide="ignore", invalid="ignore"):
        metrics = evaluate_training(batch, machines, stacks[group.rows[0].stack])
    kind, spread = law_kind(batch, machines), training_spread()

    def of(metric: str) -> Columns:
        values, floor = _metric(metric, metrics, batch, posed, machines)
        low, high = training_interval(metric, values, kind, spread)
        return [values, low, high, floor, kind]

    return of


def _metric(
    metric: str,
    metrics: TrainingMetrics,
    batch: TrainingBatch,
    posed: Trained,
    machines: Machines,
) -> tuple[Floats, Floats]:
    """(values, floor), (m,). A rate has no floor."""
    rate, none = metrics.tokens_per_s_per_chip, np.full(len(batch), np.nan)
    if metric == "tokens_per_s_per_chip":
        return rate, none
    if metric == "tokens_per_s":
        return rate * batch.chips, none
    if metric == "model_flops_per_s_per_chip":
        return rate * posed.flops, none
    if metric == "mfu":
        law = machines.laws["gemm"]
        cell = (batch.candidates.chip, CODE[PEAK])
        peak = 1.0 / (law.s_per_flop[cell] * law.floor_of_compute[cell])
        return rate * posed.flops / peak, none
    ideal = metrics.losses["ideal"]
    if metric == "step_s":
        return metrics.step_s, ideal
    hours, least = 1.0 / rate / 3600.0, ideal / metrics.step_s / rate / 3600.0
    return posed.run_tokens * hours, posed.run_tokens * least


def _posed(firsts: Sequence[TrainingRow]) -> Trained:
    def degree(name: str) -> Floats:
        return np.array([row.degrees[name] for row in firsts])

    ones = np.ones(len(firsts))
    candidates = batch_of(
        [row.model for row in firsts],
        np.zeros(len(firsts), dtype=np.intp),
        ["bf16"] * len(firsts),
        ["bf16"] * len(firsts),
        {
            "tensor_parallel": degree("tp"),
            "pipeline_parallel": degree("pp"),
            "data_parallel": degree("dp"),
            "expert_parallel": degree("ep"),
            "replicas": ones,
            "concurrency": ones,
        },
    )
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
        recompute_share=np.array([row.recompute_share for row in firsts]),
        bf16_share=np.array([row.bf16_share for row in firsts]),
        tensor_hidden=np.array([row.tensor_hidden for row in firsts]),
        gradient_bytes=np.array([row.gradient_bytes for row in firsts]),
        zero_stage=np.array([row.zero_stage for row in firsts]),
        sequence_parallel=(degree("tp") > 1.0).astype(np.float64),
        task=np.array([row.task for row in firsts]),
    )
    full = np.array([row.flops == "full" for row in firsts], dtype=np.float64)
    lora = np.array([row.task == "lora" for row in firsts], dtype=np.float64)
    flops = flops_per_token(candidates, sequence, full, lora)
    return Trained(batch, flops, np.array([row.run_tokens for row in firsts]))


KIND = Kind(
    needed=TRAINING_NEEDED,
    cells=(*COUNTS, *TEXTS),
    row=read_training_row,
    together=lambda row: row.stack,
    key=lambda row: (*row.key, row.flops, row.run_tokens),
    pose=_posed,
)
