"""A training row of the measurement format, read into what the physics takes.

A row is of training where its table has the column `task` and no `serving`. It is one measured
metric of one run: tp x cp x pp x dp = n_chips, `ep` divides tp x cp x dp. What a row leaves open is
filled by rule and said in `assumed`: from the public recipe of the benchmark where one is known
(`hardware/measurements/training_recipes.csv`: recomputation, sequence length, sequences a chip),
else degrees of 1, all remaining chips data-parallel, and the habits of the software
(`dse.accuracy.training_software`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dse.accuracy.rows import LARGEST_COUNT, model_of
from dse.accuracy.tables import TRAINING_METRICS
from dse.accuracy.training_software import Recipe, Software, recipe_of, software_of
from dse.blocks import KINDS
from dse.blocks.kind import State
from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.training.plan import BF16_SHARE, TASKS
from dse.schema.blocks import FEED_FORWARD
from dse.schema.model import BlockSpec, Model

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
class TrainingRow:
    """One covered row. `degrees`: tp, pp, cp, dp, ep, virtual_pp, micro_batch; `run_tokens`: what
    a whole run was trained on, 0 where the metric does not ask; `engine`: the software as the row
    names it; `assumed`: what the row left
    open."""

    model: Model
    chip: str
    precision: str
    degrees: Mapping[str, float]
    sequence_length: float
    global_batch_tokens: float
    recompute: str
    recompute_share: float
    bf16_share: float
    tensor_hidden: float
    gradient_bytes: float
    zero_stage: float
    task: str
    stack: str
    metric: str
    flops: str
    run_tokens: float
    engine: str
    assumed: str

    @property
    def key(self) -> tuple[object, ...]:
        """What two rows share that measure the same run."""
        return (
            self.model.id,
            self.model.source,
            len(self.model.blocks),
            self.model.num_hidden_layers,
            self.chip,
            self.precision,
            tuple(self.degrees.values()),
            self.sequence_length,
            self.global_batch_tokens,
            self.recompute,
            self.recompute_share,
            self.bf16_share,
            self.tensor_hidden,
            self.gradient_bytes,
            self.zero_stage,
            self.task,
            self.stack,
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
    assumed: list[str] = []
    software = software_of(cells["engine"], assumed)
    precision = _precision(cells, software, assumed)
    recipe = recipe_of(software, cells, assumed)
    sequence = _sequence(cells, recipe, assumed)
    chips = _chips(cells, recipe, sequence, assumed)
    degrees = _degrees(cells, chips, recipe, assumed)
    catalog.require(cells["chip"], chips)
    batch = _batch(cells, degrees, recipe, chips, sequence, assumed)
    degrees["micro_batch"] = _micro_batch(cells, degrees, batch / sequence, software, assumed)
    sharded = software.sharded or _count(cells, "fsdp", 0.0) > 0.0
    if not cells["fsdp"]:
        how = "FSDP" if sharded else "ZeRO stage 1"
        assumed.append(f"{how}, the habit of {software.stack}")
    passes = _predictions(cells, software)
    if passes:
        model = with_prediction_layer(model, passes)
        assumed.append("with its multi-token prediction layer")
    return TrainingRow(
        model=model,
        chip=cells["chip"],
        precision=precision,
        degrees=degrees,
        sequence_length=sequence,
        global_batch_tokens=batch,
        recompute=_recompute(cells, recipe, software, assumed),
        recompute_share=1.0 if recipe is None else recipe.recompute_share,
        bf16_share=_bf16_share(precision, recipe, assumed),
        tensor_hidden=1.0 if recipe is None else recipe.tensor_hidden,
        gradient_bytes=software.gradient_bytes,
        zero_stage=3.0 if sharded else 1.0,
        task=task,
        stack=software.stack if recipe is None or not recipe.stack else recipe.stack,
        metric=metric,
        flops=software.flops,
        engine=cells["engine"],
        run_tokens=_run_tokens(cells) if metric == "chip_hours" else 0.0,
        assumed="; ".join(assumed),
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


def _predictions(cells: Mapping[str, str], software: Software) -> int:
    """Passes of multi-token prediction: the benchmarks of Megatron-Bridge train the layer unless
    they say so."""
    if software.stack != "megatron" or "w/o mtp" in cells["notes"].lower():
        return 0
    return next((passes for name, passes in PREDICTIONS.items() if name in cells["model"]), 0)


def _bf16_share(precision: str, recipe: Recipe | None, assumed: list[str]) -> float:
    if precision != "nvfp4":
        return 0.0
    if recipe is not None and recipe.bf16_share is not None:
        assumed.append(f"{recipe.bf16_share:.0%} of linear layers in bf16 as in its recipe")
        return recipe.bf16_share
    assumed.append(f"{BF16_SHARE:.0%} of linear layers in bf16")
    return BF16_SHARE


def _precision(cells: Mapping[str, str], software: Software, assumed: list[str]) -> str:
    text = cells["dtype"].lower()
    if not text:
        assumed.append(f"precision {software.precision}, the habit of its tables")
        return software.precision
    if text not in PRECISION:
        raise InputError(f"dtype {cells['dtype']!r} is not known")
    return PRECISION[text]


def _sequence(cells: Mapping[str, str], recipe: Recipe | None, assumed: list[str]) -> float:
    if cells["sequence_length"]:
        return _count(cells, "sequence_length", most=LARGEST_TOKENS)
    if recipe is not None and recipe.sequence_length:
        assumed.append(f"sequences of {recipe.sequence_length:g} tokens as in its recipe")
        return recipe.sequence_length
    assumed.append(f"sequences of {UNKNOWN_SEQUENCE:g} tokens")
    return UNKNOWN_SEQUENCE


def _chips(
    cells: Mapping[str, str], recipe: Recipe | None, sequence: float, assumed: list[str]
) -> float:
    named = [name for name in ("tp", "pp", "cp", "dp") if cells[name]]
    if cells["n_chips"]:
        return _count(cells, "n_chips")
    if len(named) == 4:
        product = 1.0
        for name in named:
            product *= _count(cells, name)
        return product
    if recipe is not None and recipe.batch_per_chip and cells["global_batch_tokens"]:
        tokens = _count(cells, "global_batch_tokens", most=LARGEST_TOKENS)
        chips = tokens / (recipe.batch_per_chip * sequence)
        if chips % 1.0 == 0.0:
            assumed.append(f"{chips:g} chips: {recipe.batch_per_chip:g} sequences a chip")
            return chips
    assumed.append(f"{UNKNOWN_CHIPS:g} chips")
    return UNKNOWN_CHIPS


def _degrees(
    cells: Mapping[str, str], chips: float, recipe: Recipe | None, assumed: list[str]
) -> dict[str, float]:
    degrees = {name: _count(cells, name, 1.0) for name in ("tp", "pp", "cp", "ep")}
    noted = re.search(r"ici_tensor_parallelism (\d+)", cells["notes"])
    if not cells["tp"] and noted:
        degrees["tp"] = float(noted[1])
    elif not cells["tp"] and not cells["dp"]:
        assumed.append("no tensor or pipeline parallelism")
    if not cells["cp"] and recipe is not None and recipe.context_parallel:
        degrees["cp"] = recipe.context_parallel
        assumed.append(f"context parallelism {recipe.context_parallel:g} as in its recipe")
    inside = degrees["tp"] * degrees["pp"] * degrees["cp"]
    degrees["dp"] = _count(cells, "dp", max(chips // inside, 1.0))
    if degrees["dp"] * inside != chips:
        raise InputError("tp x cp x pp x dp is not n_chips")
    if (degrees["tp"] * degrees["cp"] * degrees["dp"]) % degrees["ep"]:
        raise InputError("ep does not divide tp x cp x dp")
    degrees["virtual_pp"] = _count(cells, "virtual_pp", 1.0)
    if degrees["pp"] == 1.0:
        degrees["virtual_pp"] = 1.0
    return degrees


def _batch(
    cells: Mapping[str, str],
    degrees: Mapping[str, float],
    recipe: Recipe | None,
    chips: float,
    sequence: float,
    assumed: list[str],
) -> float:
    if cells["global_batch_tokens"]:
        return _count(cells, "global_batch_tokens", most=LARGEST_TOKENS)
    if recipe is not None and recipe.batch_per_chip:
        assumed.append(f"{recipe.batch_per_chip:g} sequences a chip as in its recipe")
        return recipe.batch_per_chip * sequence * chips
    tokens = max(UNKNOWN_BATCH_TOKENS, degrees["dp"] * sequence)
    tokens -= tokens % (degrees["dp"] * sequence)
    assumed.append(f"{tokens:,.0f} tokens a step")
    return tokens


def _micro_batch(
    cells: Mapping[str, str],
    degrees: Mapping[str, float],
    sequences: float,
    software: Software,
    assumed: list[str],
) -> float:
    """In sequences: one where the software accumulates gradients, else all that a rank has."""
    each = sequences / degrees["dp"]
    if cells["micro_batch"]:
        given = _count(cells, "micro_batch")
        if software.stack == "maxtext":  # says sequences a chip (per_device_batch_size)
            given *= degrees["tp"] * degrees["cp"]
        if not software.sharded or each % given == 0.0:
            return given
    micro = 1.0 if software.accumulates else max(each, 1.0)
    assumed.append(f"micro-batch {micro:g}")
    return micro


def _recompute(
    cells: Mapping[str, str], recipe: Recipe | None, software: Software, assumed: list[str]
) -> str:
    said = cells["recompute"].lower()
    if said in RECOMPUTE and said != "custom":
        return RECOMPUTE[said]
    if recipe is not None and recipe.recompute:
        assumed.append(f"recomputation {recipe.recompute} as in its recipe")
        return RECOMPUTE[recipe.recompute]
    assumed.append(f"recomputation {software.recompute}, the habit of {software.stack}")
    return software.recompute


def _run_tokens(cells: Mapping[str, str]) -> float:
    """Tokens of the whole run, from its notes: "15T+", "~22T", "token count 1.4T"."""
    found = re.search(r"(\d+(?:\.\d+)?)\s?T\b", cells["notes"])
    if found is None:
        raise InputError("the row does not say on how many tokens the run was trained")
    return float(found[1]) * 1e12


def _count(
    cells: Mapping[str, str], name: str, default: float | None = None, most: float = LARGEST_COUNT
) -> float:
    """A positive whole number. Raises InputError where the cell holds none, or nothing without a
    default."""
    text = cells[name]
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= most or value % 1.0:
        raise InputError(
            f"{name} is {'empty' if not text else f'no whole number up to {most:,.0f}: {text!r}'}"
        )
    return value
