"""Training rows of the measurement format: read into what the physics takes, and predicted.

A row is of training where its table has the column `task` and no `serving`. It is one measured
metric of one run: tp x cp x pp x dp = n_chips, `ep` divides tp x cp x dp. What a row leaves open is
filled by rule and said in `assumed`: from the public recipe of the benchmark where one is known
(`hardware/measurements/training_recipes.csv`: recomputation, sequence length, sequences a chip),
else degrees of 1, all remaining chips data-parallel, and the habits of the software.

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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dse.accuracy.serving_points import placed
from dse.accuracy.serving_rows import LARGEST_COUNT, model_of
from dse.accuracy.tables import (
    TRAINING_METRICS,
    TRAINING_NEEDED,
    Columns,
    Group,
    Kind,
    Readout,
    distinct,
    machines_of,
    with_predictions,
)
from dse.blocks import FEED_FORWARD, KINDS
from dse.blocks.kind import State
from dse.catalog import MEASUREMENTS, Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.machines import Machines
from dse.physics.parameters import parameters
from dse.physics.training.evaluate import (
    evaluate_training,
    law_kind,
    training_interval,
    training_spread,
)
from dse.physics.training.plan import (
    BF16_SHARE,
    TASKS,
    TrainingBatch,
    TrainingMetrics,
)
from dse.schema.dtypes import CODE
from dse.schema.model import BlockSpec, Model
from dse.schema.training import TrainingStack, training_stacks
from dse.space.batches import batch_of
from dse.space.candidates import CandidateBatch, Floats

RECIPES = "training_recipes.csv"
PEAK = "bf16"  # what a published MFU is a share of: the dense 16-bit peak
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
# Passes of multi-token prediction in Megatron-Bridge's recipes (mtp_num_layers).
PREDICTIONS = {"deepseek-v3": 1, "nemotron-3-super": 2}


@dataclass(frozen=True, slots=True)
class Software:
    """`sharded`: it shards weights over all data-parallel ranks (FSDP); `accumulates`: a step has
    several micro-batches of one sequence unless said otherwise; `gradient_bytes` of a parameter, as
    gradients are reduced; `version` as numbers, () where the row names none."""

    stack: str
    precision: str
    recompute: str
    sharded: bool
    accumulates: bool
    flops: str
    gradient_bytes: float = 4.0
    version: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the public recipe of a benchmark adds to its table of results; 0, "" or None where it
    adds nothing. `batch_per_chip` in sequences; `recompute_share`, `bf16_share` and `tensor_hidden`
    as in TrainingBatch; `stack` where its expert layers are dispatched or fused otherwise than the
    software's habit."""

    sequence_length: float = 0.0
    batch_per_chip: float = 0.0
    context_parallel: float = 0.0
    recompute: str = ""
    recompute_share: float = 1.0
    bf16_share: float | None = None
    tensor_hidden: float = 1.0
    stack: str = ""


# Gradients in 16 bits: Megatron-Bridge's and NeMo's speed benchmarks (grad_reduce_in_fp32 False,
# perf_recipes/_common.py), llm-foundry's FSDP (mixed_precision PURE).
MEGATRON = Software("megatron", "bf16", "none", False, True, "causal", 2.0)
NEMO = Software("megatron", "bf16", "none", False, True, "full", 2.0)
MAXTEXT = Software("maxtext", "bf16", "full", True, False, "causal")
FOUNDRY = Software("fsdp", "bf16", "none", True, False, "full", 2.0)
FSDP = Software("fsdp", "bf16", "none", True, False, "full")
GENERIC = Software("generic", "bf16", "none", False, True, "causal")
# The first whose sign the lower-cased name holds. Tables of Megatron-Bridge 25.09 name no
# precision; what they say of it is of 8-bit formats alone.
SIGNS = (
    ("megatron", MEGATRON),
    ("nemo", NEMO),
    ("maxtext", MAXTEXT),
    ("llm-foundry", FOUNDRY),
    ("torchtitan", FSDP),
    ("fsdp", FSDP),
)
FIRST_TABLES = (25, 9)


def software_of(engine: str, assumed: list[str]) -> Software:
    """Of the software that a row names; says in `assumed` where it is not known."""
    text = engine.lower()
    for sign, software in SIGNS:
        if sign in text:
            found = re.search(r"\d\d\.\d\d(\.\d\d)?", text)
            version = _version(found[0]) if found else ()
            early = software is MEGATRON and version == FIRST_TABLES
            precision = "fp8" if early else software.precision
            return replace(software, precision=precision, version=version)
    assumed.append(f"generic training software for {engine or 'an unnamed one'}")
    return GENERIC


def recipe_of(software: Software, cells: Mapping[str, str], assumed: list[str]) -> Recipe:
    """The recipe behind a row, an empty one where none is known."""
    task = cells["task"] or "pretrain"
    for line in _recipes():
        if (line["engine"], line["model"], line["task"]) != (software.stack, cells["model"], task):
            continue
        if line["chip"] not in ("", cells["chip"]):
            continue
        if line["dtype"] not in ("", cells["dtype"].lower()):
            continue
        if line["since"] and software.version < _version(line["since"]):
            continue
        if line["until"] and not () < software.version < _version(line["until"]):
            continue
        length = line["sequence_length"]
        if length and cells["sequence_length"] not in ("", length):
            continue
        if line["stack"]:
            assumed.append(f"stack {line['stack']} as in its recipe")
        return Recipe(
            sequence_length=float(length or 0.0),
            batch_per_chip=float(line["batch_per_chip"] or 0.0),
            context_parallel=float(line["cp"] or 0.0),
            recompute=line["recompute"],
            recompute_share=float(line["recompute_share"] or 1.0),
            bf16_share=float(line["bf16_share"]) if line["bf16_share"] else None,
            tensor_hidden=float(line["tensor_hidden"] or 1.0),
            stack=line["stack"],
        )
    return Recipe()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@cache
def _recipes() -> tuple[dict[str, str], ...]:
    path = hardware_dir() / MEASUREMENTS / RECIPES
    rows = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return tuple({str(name): str(cell) for name, cell in row.items()} for row in rows)


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
            if not self.software.sharded or each % given == 0.0:
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
        habit = self.software.recompute
        self.assumed.append(f"recomputation {habit}, the habit of {self.software.stack}")
        return habit

    def predictions(self) -> int:
        """Passes of multi-token prediction: the benchmarks of Megatron-Bridge train the layer
        unless they say so."""
        if self.software.stack != "megatron" or "w/o mtp" in self.cells["notes"].lower():
            return 0
        named = (n for name, n in PREDICTIONS.items() if name in self.cells["model"])
        return next(named, 0)

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
    ask; `engine`: the software as the row names it; `assumed`: what the row left open."""

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
    model = model_of(cells["model"], models)
    if cells["chip"] not in catalog.chips:
        raise InputError(f"no chip {cells['chip']!r}")
    task, metric = cells["task"] or "pretrain", cells["metric"]
    if task not in TASKS:
        raise InputError(f"task {task!r} is not modelled")
    if metric not in TRAINING_METRICS:
        raise InputError(f"metric {metric!r} is not modelled")
    run = _Cells(cells)
    software = run.software = software_of(cells["engine"], run.assumed)
    precision = run.precision()
    recipe = run.recipe = recipe_of(software, cells, run.assumed)
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
    sharded = software.sharded or run.count("fsdp", 0.0) > 0.0
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
    )


def with_prediction_layer(model: Model, passes: int = 1) -> Model:
    """The model with `passes` more layers of its last attention and feed-forward kinds: multi-token
    prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2; Nemotron 3 Super goes through one such
    layer twice). Each pass through the shared output head stands as one table more, which computes
    the same and takes a table more of memory."""
    last: dict[bool, int] = {}
    for place, block in enumerate(model.blocks):
        if not isinstance(KINDS[block.kind], State):
            last[block.kind in FEED_FORWARD] = place
    blocks = tuple(
        BlockSpec(block.kind, block.count + passes, block.sizes)
        if place in last.values()
        else block
        for place, block in enumerate(model.blocks)
    )
    return replace(model, blocks=blocks, vocab_size=(1 + passes) * model.vocab_size)


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
    with np.errstate(divide="ignore", invalid="ignore"):
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
