"""Training rows of the measurement format, predicted as they are and as a person would ask.

`flops` of the software names the convention of its model FLOPs. All count 6 for each parameter that
a token meets (2 forward, 4 backward; the input table left out, the output head counted) and add
attention, whose every layer multiplies each token with `s` keys and values of a sequence:
6 heads (d + d_v) s, or, where the convention knows the mask, of the keys that it leaves in the
mean: s / 2, or w - w^2 / 2 s in a window of w. LoRA's frozen weights have no gradient: 4 a
parameter, attention left out.

    causal   Megatron-Bridge (training/utils/flop_utils.py), MaxText: the mask counted
    full     NeMo of 2024 and early 2025 (performance formulas), llm-foundry: not counted
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.serving_points import placed
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
from dse.accuracy.training_row import COUNTS, TEXTS, TrainingRow, published_plan, read_training_row
from dse.catalog import Catalog, load_catalog
from dse.physics.machines import Machines
from dse.physics.parameters import parameters
from dse.physics.training.evaluate import (
    HABIT,
    RATE,
    RATES,
    WHOLE_RUNS,
    evaluate_training,
    law_kind,
    training_interval,
    training_spread,
)
from dse.physics.training.plan import (
    TASKS,
    TrainingBatch,
    TrainingMetrics,
)
from dse.problem.training import (
    shape_of,
    trained_model,
    trainer_of,
)
from dse.schema.dtypes import CODE
from dse.schema.training import (
    GENERIC,
    TrainingStack,
    software_of,
    training_stacks,
    training_terms,
)
from dse.space.batches import batch_of
from dse.space.candidates import CandidateBatch, Floats

PEAK = "bf16"  # what a published MFU is a share of: the dense 16-bit peak


def flops_per_token(
    candidates: CandidateBatch,
    sequence_length: Floats,
    full: NDArray[np.bool_],
    lora: NDArray[np.bool_],
) -> Floats:
    """(n,) FLOPs; `full` and `lora` (n,): whether the convention or the task is that."""
    active = parameters(candidates).active
    attention = np.zeros(len(candidates))
    for block in candidates.blocks:
        if block.kind == "gqa":
            head = block["head_dim"] + block["v_head_dim"]
        elif block.kind == "mla":
            head = block["qk_nope_head_dim"] + block["qk_rope_head_dim"] + block["v_head_dim"]
        else:
            continue
        window = sequence_length
        if "window" in block.sizes:
            named = np.where(block["window"] > 0.0, block["window"], sequence_length)
            window = np.minimum(named, sequence_length)
        seen = window - window * window / (2.0 * sequence_length)
        keys = np.where(full, sequence_length, seen)
        attention = attention + 6.0 * block.count * block["heads"] * head * keys
    return np.where(lora, 4.0 * active, 6.0 * active + attention)


@dataclass(frozen=True, slots=True)
class Trained:
    """m runs of one stack, (m,) each: `flops` a token by the source's convention; `run_tokens` of
    the whole run."""

    batch: TrainingBatch
    flops: Floats
    run_tokens: Floats


TrainingReadout = Readout[TrainingRow, Trained]
KEPT = 3  # a fit comes back to its base after each of its constants
# By group, the columns of the last stacks, the latest first.
Known = dict[int, list[tuple[TrainingStack, Callable[[str], Columns]]]]


def estimate_training(table: pd.DataFrame, catalog: Catalog | None = None) -> pd.DataFrame:
    """The table with the columns ADDED, and with `serving` the task and `backend` the stack of each
    row. Raises InputError where a needed column is missing."""
    catalog = catalog or load_catalog()
    readout = TRAINED.read(table, catalog)
    numbers = predict_training(readout, machines_of(catalog), training_stacks())
    return with_training(table, readout, numbers)


def with_training(table: pd.DataFrame, readout: TrainingReadout, numbers: Floats) -> pd.DataFrame:
    """As `dse.accuracy.tables.with_predictions`, with task and stack of each row."""
    answer = with_predictions(table, readout, numbers)
    answer["task"] = [cell.strip() or TASKS[0] for cell in table["task"].fillna("")]
    answer["serving"] = answer["task"]
    answer["backend"] = list(readout.text(lambda row: row.stack))
    return answer


def runs_of(readout: TrainingReadout) -> NDArray[np.intp]:
    """(n,) rows with the same number measure the same run; -1 where not covered. Another version of
    the software is another run."""
    runs = np.full(len(readout), -1)
    rows = [row for _, row in readout.found]
    _, found = distinct(rows, lambda row: (row.engine, *row.key))
    runs[[position for position, _ in readout.found]] = found
    return runs


def predict_training(
    readout: TrainingReadout,
    machines: Machines,
    stacks: Mapping[str, TrainingStack],
    known: Known | None = None,
) -> Floats:
    """(n, 5) as `Readout.predicted`; times alone have a floor. `known` is what was worked out
    before with the same readout and machines: a stack that did not move is not worked out again."""
    known = {} if known is None else known
    found = []
    for place, group in enumerate(readout.groups):
        stack, recent = stacks[group.rows[0].stack], known.setdefault(place, [])
        columns = next((of for one, of in recent if one == stack), None)
        if columns is None:
            columns = _columns(group, machines, stack)
        known[place] = [(stack, columns), *(pair for pair in recent if pair[0] != stack)][:KEPT]
        found.append(columns)
    return readout.predicted(found)


def _columns(
    group: Group[TrainingRow, Trained], machines: Machines, stack: TrainingStack
) -> Callable[[str], Columns]:
    posed = group.posed
    batch = replace(posed.batch, candidates=placed(posed.batch.candidates, group.rows, machines))
    metrics = evaluate_training(batch, machines, stack)
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


# Rows as a person would ask for them: the model, the chip, how many, lengths and batch, the format
# and the task; no software, no degrees, no release.
#
# The answer is of current software. A row whose software has a newer release that measured the same
# model on the same chip in the same format is superseded: it is not what is asked for today.

SUPERSEDED = "superseded by a newer release"


def superseded(rows: Sequence[TrainingRow]) -> NDArray[np.bool_]:
    """(n,) whether a newer release of the same software measured the same."""
    releases = [software_of(row.engine) or GENERIC for row in rows]
    keys = [
        (row.bare.id, row.chip, row.plan["precision"], row.plan["task"], row.engine.split(" ")[0])
        for row in rows
    ]
    newest: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for key, one in zip(keys, releases, strict=True):
        newest[key] = max(newest.get(key, ()), one.version)
    old = [one.version < newest[key] for key, one in zip(keys, releases, strict=True)]
    return np.array(old, dtype=bool)


def asked(catalog: Catalog, row: TrainingRow, *, unseen: bool) -> tuple[float, float, str]:
    """Of the usual plan for the run of a row of which nothing else is said: tokens per second and
    chip, NaN where none fits; hours of the whole run over those of its steps; the spread that it
    has. `unseen`: as if no run or recipe of its model had been published."""
    said = row.plan
    terms = training_terms(
        chip=row.chip,
        chips=row.chips,
        sequence_length=int(said["sequence_length"]),
        global_batch_tokens=int(said["global_batch_tokens"]),
        precision=said["precision"],
        task=said["task"],
    )
    trainer = trainer_of(catalog, terms, None, row.bare, unseen=unseen)
    shape = shape_of(trained_model(row.bare, trainer))
    if not unseen:
        trainer = replace(trainer, published=published_plan(catalog, row.bare, terms))
    plan, known = trainer.usual(shape)
    found = trainer.evaluate(shape, *plan)
    if found.miss[0] > 0.0:
        return math.nan, math.nan, HABIT
    over_steps = trainer.whole_run / float(found.run.goodput.goodput[0])
    return float(found.metrics.tokens_per_s_per_chip[0]), over_steps, RATE if known else HABIT


def asked_training(table: pd.DataFrame, catalog: Catalog, *, unseen: bool = False) -> pd.DataFrame:
    """As `estimate_training`, of what a person would have said of each row; superseded rows are
    not covered."""
    readout, machines = TRAINED.read(table, catalog), machines_of(catalog)
    numbers, stacks = predict_training(readout, machines, training_stacks()), training_stacks()
    told = np.full(len(readout), np.nan)
    for group in readout.groups:
        columns = _columns(group, machines, stacks[group.rows[0].stack])
        told[group.position] = columns("tokens_per_s_per_chip")[0][group.configuration]
    old, spread = superseded([row for _, row in readout.found]), training_spread()
    answers: dict[tuple[Any, ...], tuple[float, float, str]] = {}
    for (place, row), is_old in zip(readout.found, old, strict=True):
        names = ("sequence_length", "global_batch_tokens", "precision", "task")
        key = (row.bare.id, row.bare.source, row.chip, row.chips, *(row.plan[n] for n in names))
        if is_old:
            continue
        if key not in answers:
            answers[key] = asked(catalog, row, unseen=unseen)
        rate, over_steps, of = answers[key]
        over_told = rate / told[place] if row.metric in RATES else told[place] / rate
        over_told *= over_steps if row.metric in WHOLE_RUNS else 1.0
        value = numbers[place : place + 1, 0] * over_told
        kind = numbers[place : place + 1, 4].astype(np.intp)
        ends = training_interval(row.metric, value, kind, {**spread, RATE: spread[of]})
        numbers[place, :3] = value[0], ends[0][0], ends[1][0]
    answer = with_training(table, readout, numbers)
    places = [place for (place, _), is_old in zip(readout.found, old, strict=True) if is_old]
    answer.loc[answer.index[places], "status"] = SUPERSEDED
    return answer


def _posed(firsts: Sequence[TrainingRow]) -> Trained:
    n = len(firsts)
    degrees = {name: np.array([row.degrees[name] for row in firsts]) for name in firsts[0].degrees}
    plan = {name: np.array([row.plan[name] for row in firsts]) for name in firsts[0].plan}
    candidates = batch_of(
        [row.model for row in firsts],
        np.zeros(n, dtype=np.intp),
        ["bf16"] * n,
        ["bf16"] * n,
        {
            "tensor_parallel": degrees["tp"],
            "pipeline_parallel": degrees["pp"],
            "data_parallel": degrees["dp"],
            "expert_parallel": degrees["ep"],
            "replicas": np.ones(n),
            "concurrency": np.ones(n),
        },
    )
    batch = TrainingBatch.of(
        candidates,
        context_parallel=degrees["cp"],
        virtual_stages=degrees["virtual_pp"],
        micro_batch=degrees["micro_batch"],
        sequence_parallel=(degrees["tp"] > 1.0).astype(np.float64),
        **plan,
    )
    full = np.array([row.flops == "full" for row in firsts])
    flops = flops_per_token(candidates, plan["sequence_length"], full, plan["task"] == "lora")
    return Trained(batch, flops, np.array([row.run_tokens for row in firsts]))


TRAINED = Kind(
    needed=TRAINING_NEEDED,
    cells=(*COUNTS, *TEXTS),
    row=read_training_row,
    together=lambda row: row.stack,
    key=lambda row: (*row.key, row.flops, row.run_tokens),
    pose=_posed,
)
