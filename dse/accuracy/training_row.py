"""One row of training of the measurement format, read into what the physics takes, and the plans
that such rows publish.

A row is of training where its table has the column `task` and no `serving`. It is one measured
metric of one run: tp x cp x pp x dp = n_chips, `ep` divides tp x cp x dp. What a row leaves open is
filled by rule and said in `assumed`: from the public recipe of the benchmark where one is known
(`hardware/measurements/training_recipes.csv`: recomputation, sequence length, sequences a chip),
else degrees of 1, all remaining chips data-parallel, and the habits of the software.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dse.accuracy.serving_rows import LARGEST_COUNT, model_of
from dse.catalog import MEASUREMENTS, Catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.training.evaluate import RATES
from dse.physics.training.plan import BF16_SHARE, RECOMPUTES, TASKS
from dse.problem.training import Published, with_prediction_layer
from dse.schema.loader import csv_rows
from dse.schema.model import Model
from dse.schema.training import (
    GENERIC,
    Recipe,
    Software,
    TrainingTerms,
    alike,
    prediction_passes,
    recipe_of,
    software_of,
    training_stacks,
    usual_stack,
)

FILE = "training.csv"
TRAINING_METRICS = (
    "tokens_per_s_per_chip", "tokens_per_s", "step_s", "model_flops_per_s_per_chip", "mfu",
    "chip_hours",
)  # fmt: skip
COUNTS = (
    "n_chips", "tp", "pp", "cp", "dp", "ep", "micro_batch", "virtual_pp", "fsdp", "sequence_length",
    "global_batch_tokens",
)  # fmt: skip
TEXTS = ("model", "chip", "dtype", "recompute", "task", "metric", "engine", "notes")
LARGEST_TOKENS = 1e12
# Of a whole run whose configuration nobody published.
UNKNOWN_CHIPS, UNKNOWN_SEQUENCE, UNKNOWN_BATCH_TOKENS = 1024.0, 4096.0, 4_194_304.0

PRECISION = {
    "bf16": "bf16", "amp_bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16",
    "fp8": "fp8", "fp8-cs": "fp8", "fp8_cs": "fp8", "fp8-ds": "fp8", "fp8_full": "fp8",
    "float8": "fp8", "fp8_e4m3": "fp8", "fp8-sc": "fp8_block", "fp8_sc": "fp8_block",
    "fp8_block": "fp8_block", "mxfp8": "mxfp8", "fp8-mx": "mxfp8", "fp8_mx": "mxfp8",
    "nvfp4": "nvfp4", "fp4": "nvfp4", "int8": "int8",
}  # fmt: skip
# What a row or a recipe calls it -> a recomputation that is modelled.
RECOMPUTE = {
    "none": "none", "selective": "selective", "full": "full", "true": "full", "false": "none",
    "mlp": "mlp", "moe": "moe", "custom": "full",
}  # fmt: skip


@dataclass(slots=True)
class _Cells:
    """The cells of a row, its software and recipe; what is read from elsewhere joins `assumed`."""

    cells: Mapping[str, str]
    software: Software = GENERIC
    recipe: Recipe = field(default_factory=Recipe)
    assumed: list[str] = field(default_factory=list)

    def count(self, name: str, default: float | None = None, most: float = LARGEST_COUNT) -> float:
        """A positive whole number. Raises InputError where the cell holds none, or nothing without
        a default."""
        text = self.cells[name]
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0.0 < value <= most or value % 1.0:
            wrong = f"no whole number up to {most:,.0f}: {text!r}" if text else "empty"
            raise InputError(f"{name} is {wrong}")
        return value

    def first(self, given: float, *others: tuple[float, str]) -> float:
        """What the row gives, else the first of the others that is not 0, with words for it."""
        if given:
            return given
        value, words = next(one for one in others if one[0])
        self.assumed.append(words)
        return value

    def precision(self) -> str:
        text = self.cells["dtype"].lower()
        if not text:
            self.assumed.append(f"precision {self.software.precision}, the habit of its tables")
            return self.software.precision
        if text not in PRECISION:
            raise InputError(f"dtype {self.cells['dtype']!r} is not known")
        return PRECISION[text]

    def bf16_share(self, precision: str) -> float:
        if precision != "nvfp4":
            return 0.0
        share, said = self.recipe.bf16_share, " as in its recipe"
        share, said = (BF16_SHARE, "") if share is None else (share, said)
        self.assumed.append(f"{share:.0%} of linear layers in bf16{said}")
        return share

    def chips(self, sequence: float) -> float:
        if self.cells["n_chips"]:
            return self.count("n_chips")
        if all(self.cells[name] for name in ("tp", "pp", "cp", "dp")):
            return float(np.prod([self.count(name) for name in ("tp", "pp", "cp", "dp")]))
        each, chips = self.recipe.batch_per_chip, 0.0
        if each and self.cells["global_batch_tokens"]:
            chips = self.count("global_batch_tokens", most=LARGEST_TOKENS) / (each * sequence)
        whole = chips if chips % 1.0 == 0.0 else 0.0
        words = f"{chips:g} chips: {each:g} sequences a chip"
        return self.first(0.0, (whole, words), (UNKNOWN_CHIPS, f"{UNKNOWN_CHIPS:g} chips"))

    def degrees(self, chips: float) -> dict[str, float]:
        cells, degrees = self.cells, {n: self.count(n, 1.0) for n in ("tp", "pp", "cp", "ep")}
        noted = re.search(r"ici_tensor_parallelism (\d+)", cells["notes"])
        if not cells["tp"] and noted:
            degrees["tp"] = float(noted[1])
        elif not cells["tp"] and not cells["dp"]:
            self.assumed.append("no tensor or pipeline parallelism")
        if not cells["cp"] and self.recipe.context_parallel:
            degrees["cp"] = self.recipe.context_parallel
            self.assumed.append(f"context parallelism {degrees['cp']:g} as in its recipe")
        inside = degrees["tp"] * degrees["pp"] * degrees["cp"]
        degrees["dp"] = self.count("dp", max(chips // inside, 1.0))
        if degrees["dp"] * inside != chips:
            raise InputError("tp x cp x pp x dp is not n_chips")
        if (degrees["tp"] * degrees["cp"] * degrees["dp"]) % degrees["ep"]:
            raise InputError("ep does not divide tp x cp x dp")
        virtual = self.count("virtual_pp", 1.0)
        return degrees | {"virtual_pp": virtual if degrees["pp"] > 1.0 else 1.0}

    def batch(self, degrees: Mapping[str, float], chips: float, sequence: float) -> float:
        """In tokens."""
        each, ranks = self.recipe.batch_per_chip, degrees["dp"] * sequence
        tokens = max(UNKNOWN_BATCH_TOKENS, ranks)
        tokens -= tokens % ranks
        return self.first(
            self.count("global_batch_tokens", 0.0, LARGEST_TOKENS),
            (each * sequence * chips, f"{each:g} sequences a chip as in its recipe"),
            (tokens, f"{tokens:,.0f} tokens a step"),
        )

    def micro_batch(self, degrees: Mapping[str, float], sequences: float) -> float:
        """In sequences: one where the software accumulates gradients, else all that a rank has."""
        each = sequences / degrees["dp"]
        if self.cells["micro_batch"]:
            given = self.count("micro_batch")
            if self.software.stack == "maxtext":  # says sequences a chip (per_device_batch_size)
                given *= degrees["tp"] * degrees["cp"]
            if not self.sharded or each % given == 0.0:
                return given
        micro = 1.0 if self.software.accumulates else max(each, 1.0)
        self.assumed.append(f"micro-batch {micro:g}")
        return micro

    def recompute(self) -> str:
        said = self.cells["recompute"].lower()
        if said in RECOMPUTE and said != "custom":
            return RECOMPUTE[said]
        if self.recipe.recompute:
            self.assumed.append(f"recomputation {self.recipe.recompute} as in its recipe")
            return RECOMPUTE[self.recipe.recompute]
        habit = training_stacks()[self.software.stack].recompute
        self.assumed.append(f"recomputation {habit}, the habit of {self.software.stack}")
        return habit

    @property
    def sharded(self) -> bool:
        return training_stacks()[self.software.stack].sharded

    def predictions(self) -> int:
        """Passes of multi-token prediction: the benchmarks of Megatron-Bridge train the layer
        unless they say so."""
        if "w/o mtp" in self.cells["notes"].lower():
            return 0
        return prediction_passes(self.software.stack, self.cells["model"])

    def run_tokens(self) -> float:
        """Tokens of the whole run, from its notes: "15T+", "~22T", "token count 1.4T"."""
        found = re.search(r"(\d+(?:\.\d+)?)\s?T\b", self.cells["notes"])
        if found is None:
            raise InputError("the row does not say on how many tokens the run was trained")
        return float(found[1]) * 1e12


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One covered row. `degrees`: tp, pp, cp, dp, ep, virtual_pp, micro_batch; `plan`: what else
    TrainingBatch has; `run_tokens`: what a whole run was trained on, 0 where the metric does not
    ask; `engine`: the software as the row names it; `assumed`: what the row left open; `bare` is
    the model without prediction layers."""

    model: Model
    chip: str
    degrees: Mapping[str, float]
    plan: Mapping[str, Any]
    stack: str
    metric: str
    flops: str
    run_tokens: float
    engine: str
    assumed: str
    bare: Model

    @property
    def chips(self) -> int:
        return round(math.prod(self.degrees[name] for name in ("tp", "cp", "pp", "dp")))

    @property
    def key(self) -> tuple[object, ...]:
        """What two rows share that measure the same run."""
        model = self.model
        return (
            *(model.id, model.source, len(model.blocks), model.num_hidden_layers),
            *(self.chip, *self.degrees.values(), *self.plan.values(), self.stack),
        )


def read_training_row(
    cells: Mapping[str, str], catalog: Catalog, models: dict[str, Model | str]
) -> TrainingRow:
    """The row of `cells`, which has a text for each of COUNTS and TEXTS; `models` remembers the
    models of earlier rows. Raises InputError with the reason why a row is not covered."""
    model = bare = model_of(cells["model"], models)
    if cells["chip"] not in catalog.chips:
        raise InputError(f"no chip {cells['chip']!r}")
    task, metric = cells["task"] or "pretrain", cells["metric"]
    if task not in TASKS:
        raise InputError(f"task {task!r} is not modelled")
    if metric not in TRAINING_METRICS:
        raise InputError(f"metric {metric!r} is not modelled")
    run = _Cells(cells)
    software = run.software = software_of(cells["engine"]) or GENERIC
    if software is GENERIC:
        run.assumed.append(f"generic training software for {cells['engine'] or 'an unnamed one'}")
    precision = run.precision()
    recipe = run.recipe = recipe_of(software.stack, cells, software.version)
    if recipe.stack:
        run.assumed.append(f"stack {recipe.stack} as in its recipe")
    sequence = run.first(
        run.count("sequence_length", 0.0, LARGEST_TOKENS),
        (
            recipe.sequence_length,
            f"sequences of {recipe.sequence_length:g} tokens as in its recipe",
        ),
        (UNKNOWN_SEQUENCE, f"sequences of {UNKNOWN_SEQUENCE:g} tokens"),
    )
    chips = run.chips(sequence)
    degrees = run.degrees(chips)
    catalog.require(cells["chip"], chips)
    batch = run.batch(degrees, chips, sequence)
    degrees["micro_batch"] = run.micro_batch(degrees, batch / sequence)
    sharded = run.sharded or run.count("fsdp", 0.0) > 0.0
    if not cells["fsdp"]:
        how = "FSDP" if sharded else "ZeRO stage 1"
        run.assumed.append(f"{how}, the habit of {software.stack}")
    if passes := run.predictions():
        model = with_prediction_layer(model, passes)
        run.assumed.append("with its multi-token prediction layer")
    plan = {
        "sequence_length": sequence,
        "global_batch_tokens": batch,
        "precision": precision,
        "recompute": run.recompute(),
        "recompute_share": recipe.recompute_share,
        "bf16_share": run.bf16_share(precision),
        "tensor_hidden": recipe.tensor_hidden,
        "gradient_bytes": software.gradient_bytes,
        "zero_stage": 3.0 if sharded else 1.0,
        "task": task,
    }
    return TrainingRow(
        model=model,
        chip=cells["chip"],
        degrees=degrees,
        plan=plan,
        stack=recipe.stack or software.stack,
        metric=metric,
        flops=software.flops,
        engine=cells["engine"],
        run_tokens=run.run_tokens() if metric == "chip_hours" else 0.0,
        assumed="; ".join(run.assumed),
        bare=bare,
    )


# Plans that are published.

SAME = (*COUNTS, "model", "dtype", "engine", "recompute")  # of two rows with one plan
DEGREES = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "virtual_stages": "virtual_pp",
    "micro_batch": "micro_batch",
}


def published_plan(catalog: Catalog, model: Model, terms: TrainingTerms) -> Published | None:
    """That of the run nearest to the terms, of a model that trains alike on the same chip with the
    usual software: in the same format if there is one, then nearest in chips and length, then
    newest. None where none is published, and where the terms hold part of the plan or a stack."""
    if terms.degrees or (terms.recompute, terms.zero, terms.stack) != (None, None, None):
        return None
    chip = catalog.chip(terms.chip)
    stack = usual_stack(chip.vendor)
    models: dict[str, Model | str] = {}
    ranked = []
    for cells in _published(chip.derived_from or chip.id, terms.task):
        software = software_of(cells["engine"])
        if software is None or software.stack != stack:
            continue
        try:
            row = read_training_row(cells, catalog, models)
        except InputError:
            continue
        if not alike(row.bare, model):
            continue
        length, same = row.plan["sequence_length"], row.plan["precision"] == terms.precision
        far = abs(math.log2(row.chips / terms.chips))
        far += abs(math.log2(length / terms.sequence_length))
        plan = {name: int(row.degrees[cell]) for name, cell in DEGREES.items()}
        plan |= {"recompute": RECOMPUTES.index(row.plan["recompute"])}
        plan |= {"zero_stage": int(row.plan["zero_stage"])}
        source = f"{row.engine} on {row.chips:,} chips, {cells['id']}"
        fits = (
            same
            and not chip.derived_from
            and row.chips <= terms.chips
            and length >= terms.sequence_length
        )
        ranked.append(((same, -far, software.version), Published(plan, source, fits)))
    return max(ranked, key=lambda one: one[0])[1] if ranked else None


@cache
def _published(chip: str, task: str) -> tuple[dict[str, str], ...]:
    """Rows of the shipped file, one a plan."""
    names, *rows = csv_rows(hardware_dir() / MEASUREMENTS / FILE)
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        cells = {name: cell.strip() for name, cell in zip(names, row, strict=True)}
        of = (cells["chip"], cells["task"] or TASKS[0], cells["exclude"])
        if of == (chip, task, "") and cells["metric"] in RATES:
            found.setdefault(tuple(cells[name] for name in SAME), cells)
    return tuple(found.values())
