"""Training as an input: terms of a run, training software (`hardware/training/*.yaml`), and that
software as it is run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as made_anew
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema.backend import Calibration
from dse.schema.chip import Chip
from dse.schema.loader import csv_rows, load_yaml, unknown
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.reader import (
    Date,
    Field,
    Flag,
    Listed,
    Number,
    Quantity,
    Refused,
    Schema,
    Share,
    Table,
    Text,
    Then,
    Whole,
    Word,
    field,
    gathered,
    read,
)

MOST_CHIPS, MOST_TOKENS = 10_000_000, 1e18
# Degrees that may be held, by what they are called in the plan.
DEGREES = (
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "virtual_stages",
    "micro_batch",
)
NAMES = {
    "precision": ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "int8"),
    "task": ("pretrain", "sft", "lora"),
    "optimizer": ("adam_fp32", "adam_bf16", "adam_8bit"),
    "recompute": ("none", "selective", "mlp", "moe", "full"),
    "schedule": ("1f1b", "interleaved", "zero_bubble", "dualpipe"),
    "site_split": ("data", "pipeline"),
}


def _word(name: str, default: str | None) -> Any:
    return field(Word(NAMES[name]), default=default)


def _whole(default: int | None, least: int, most: int) -> Any:
    return field(Whole(least, most), default=default)


def _rate(tokens_per_s: float) -> float:
    if 1e-9 <= tokens_per_s <= 1e18:
        return tokens_per_s
    raise Refused(f"read {tokens_per_s:g}", "a number, 1e-09 to 1e+18")


class TrainingTerms(Schema):
    """One way to train. None: searched (a degree, `recompute`, `zero`), the default batch, the
    price basis of the study, or the catalog's figure for the chip."""

    chip: str = field(Text())
    chips: int = field(Whole(1, MOST_CHIPS))
    price_basis: str | None = field(Text(), default=None)
    stack: str | None = field(Text(), default=None)
    sequence_length: int = _whole(8192, 1, 10**8)
    global_batch_tokens: int | None = field(Then(Quantity("tokens"), int), default=None)
    precision: str = _word("precision", "bf16")
    task: str = _word("task", "pretrain")
    optimizer: str = _word("optimizer", "adam_fp32")
    schedule: str | None = _word("schedule", None)
    recompute: str | None = _word("recompute", None)
    zero: int | None = _whole(None, 0, 3)
    lora_rank: int = _whole(16, 1, 1_000_000)
    offload: float = field(Share(0.0, 1.0), default=0.0)
    degrees: Mapping[str, int] = gathered(
        *(
            Field(name, Whole(1, MOST_CHIPS), None, meaning="searched if left out")
            for name in DEGREES
        ),
        default={},
    )
    chip_s_between: float | None = field(
        Then(Share(1e-3, 1e12), lambda hours: hours * 3600.0),
        default=None,
        written="mtbf_chip_hours",
    )
    restart_s: float | None = field(Quantity("s"), default=None, written="restart")
    checkpoint_bytes_per_s: float | None = field(
        Quantity("bytes/s", "more than 0"), default=None, written="checkpoint_bandwidth"
    )
    checkpoint_interval_s: float | None = field(
        Quantity("s", "more than 0"), default=None, written="checkpoint_interval"
    )
    straggler: float | None = field(Share(0.0, 10.0), default=None)
    input_tokens_per_s: float | None = field(Then(Quantity("tokens"), _rate), default=None)
    sites: int = _whole(1, 1, 1000)
    site_split: str = _word("site_split", "data")
    site_bytes_per_s: float | None = field(
        Quantity("bytes/s", "more than 0"), default=None, written="site_bandwidth"
    )
    site_latency_s: float = field(Quantity("s"), default=0.0, written="site_latency")
    local_steps: int = _whole(1, 1, 1_000_000)

    def check(self) -> None:
        batch, sites = self.global_batch_tokens, f"{self.sites} site{'s' * (self.sites > 1)}"
        if batch is not None and not self.sequence_length <= batch <= MOST_TOKENS:
            accepted = f"one sequence of {self.sequence_length:,} tokens or more"
            raise Refused("read {}", accepted, "global_batch_tokens")
        if (self.sites > 1) != (self.site_bytes_per_s is not None):
            message = f"{sites}, bandwidth {'missing' if self.sites > 1 else '{}'}"
            accepted = "sites above 1 and the bandwidth of a site to the others, or neither"
            raise Refused(message, accepted, "site_bandwidth")
        if self.local_steps > 1 and (self.sites == 1 or self.site_split != "data"):
            message = f"{self.local_steps} local steps, {sites}, {self.site_split}"
            raise Refused(message, "local steps between data-parallel sites", "local_steps")
        if self.task != "lora" and self.lora_rank != 16:
            raise Refused(f"task {self.task}", "task: lora", "lora_rank")


TRAINING = TrainingTerms.table


def training_terms(**written: Any) -> TrainingTerms:
    """Terms as flags give them. Raises InputError, its field one of TrainingTerms."""
    return TrainingTerms.of(written)


# Training software as an input: `hardware/training/*.yaml`.
#
# Kernel efficiency belongs to the chip; what of its communication a framework hides, how much
# slower its kernels are than those measured in serving, and what the host adds belongs here.

FOLDER = "training"
CALIBRATION = "efficiency/training/calibration.yaml"  # clocks by chip and held-out spread
CLOCK = "clock."  # + chip: a factor of it


def _constant(lowest: float, highest: float) -> Any:
    table = Table(
        Field("value", Number(lowest, highest, says=f"{lowest:g} to {highest:g}")),
        Field("kind", Word(("fitted", "assumed"))),
        Field("source", Text(1), meaning="where it comes from, or why it is assumed"),
    )
    return field(table)


class Constants(Schema):
    """What a stack does to the laws of chips and fabrics. In a file each has its source."""

    tensor_overlap: float = _constant(0, 1)
    context_overlap: float = _constant(0, 1)
    expert_overlap: float = _constant(0, 1)
    data_overlap: float = _constant(0, 1)
    pipeline_overlap: float = _constant(0, 1)
    gemm_bf16: float = _constant(0.1, 10)
    gemm_fp8: float = _constant(0.1, 10)
    gemm_fp4: float = _constant(0.1, 10)
    weight_gradient: float = _constant(0.1, 10)
    attention: float = _constant(0.1, 10)
    states: float = _constant(0.1, 100)
    attention_backward: float = _constant(0.1, 10)
    experts: float = _constant(0.1, 10)
    elementwise: float = _constant(0, 10)
    moe_elementwise: float = _constant(0, 10)
    dispatch: float = _constant(0, 10)
    slots_sent: float = _constant(0, 1)
    collectives: float = _constant(0, 10)
    expert_bias_bytes: float = _constant(0, 1000)
    fp8_gather_bytes: float = _constant(1, 2)
    routing_skew: float = _constant(0, 3)
    straggler: float = _constant(0, 1)
    host_s_per_step: float = _constant(0, 60)
    host_s_per_micro_batch: float = _constant(0, 1)
    # What exceeds the device's time shows.
    host_s_per_layer: float = _constant(0, 0.1)
    runtime_bytes: float = _constant(0, 1e11)


class TrainingStack(Constants, kw_only=True):
    """One training framework of one age. `kinds[name]` is `fitted` or `assumed`, `sources[name]`
    where a constant comes from or why it is assumed. `clocks`: by chip, arithmetic of sustained
    training over that of its kernel laws, 1 where absent. It is the usual one on chips of
    `vendors`. Its habits: `sharded`, weights lie over all data-parallel ranks (FSDP) instead of
    stages and expert ranks; `recompute`, what it computes again unless told."""

    id: str
    title: str
    date: str
    vendors: tuple[str, ...] = ()
    sharded: bool = False
    recompute: str = "none"
    clocks: Mapping[str, float] = made_anew(default_factory=dict)
    kinds: Mapping[str, str] = made_anew(default_factory=dict)
    sources: Mapping[str, str] = made_anew(default_factory=dict)


STACK = Table(
    Field("id", Text()),
    Field("title", Text()),
    Field("date", Date()),
    Field("vendors", Listed(Text()), (), meaning="whose chips it is usual on"),
    Field("sharded", Flag(), False, meaning="its habit is FSDP over all chips"),
    Field("recompute", Word(NAMES["recompute"]), "none", meaning="its habit"),
    Field("constants", Table(*Constants.table.fields)),
)


def load_training_stack(path: Path) -> TrainingStack:
    """Raises InputError with the line and field of every mistake."""
    found = read(STACK, load_yaml(path))
    constants = found.pop("constants")
    return TrainingStack(
        **found,
        **{name: one["value"] for name, one in constants.items()},
        clocks=fitted_clocks(),
        kinds={name: one["kind"] for name, one in constants.items()},
        sources={name: one["source"] for name, one in constants.items()},
    )


@cache
def fitted_clocks() -> Mapping[str, float]:
    """The fitted clocks by chip of the shipped calibration; none without it."""
    path = hardware_dir() / CALIBRATION
    factors = Calibration.load(path).factors if path.exists() else {}
    marked = {name.partition(CLOCK): value for name, value in factors.items() if CLOCK in name}
    return MappingProxyType({chip: value for (_, _, chip), value in marked.items()})


@cache
def training_stacks(folder: Path | None = None) -> dict[str, TrainingStack]:
    """Every stack of a folder (the shipped one by default) by id."""
    where = hardware_dir() / FOLDER if folder is None else folder
    stacks: dict[str, TrainingStack] = {}
    for path in sorted(where.glob("*.yaml")):
        stack = load_training_stack(path)
        if stack.id in stacks:
            message = f"{stack.id!r} is the id of another stack too"
            raise InputError(message, file=str(path), field="id", accepted="an id of its own")
        stacks[stack.id] = stack
    return stacks


def training_stack(name: str) -> TrainingStack:
    """By id. Raises InputError with near spellings."""
    stacks = training_stacks()
    if name in stacks:
        return stacks[name]
    raise unknown("unknown training stack", name, stacks, field="stack")


# Training software as it is run: the habits of what a source names, what the public recipe of a
# benchmark adds (`hardware/measurements/training_recipes.csv`), and which stack is current for a
# model on a chip.

RECIPES = "measurements/training_recipes.csv"
GENERIC_STACK = "generic"  # where no framework is known for a chip's vendor
FIRST_TABLES = (25, 9)
Version = tuple[int, ...]
# Passes of multi-token prediction in Megatron-Bridge's recipes (mtp_num_layers).
PREDICTIONS = {"deepseek-v3": 1, "nemotron-3-super": 2}


@dataclass(frozen=True, slots=True)
class Software:
    """`accumulates`: a step has several micro-batches of one sequence unless said otherwise;
    `gradient_bytes` of a parameter, as gradients are reduced; `version` as numbers, () where the
    row names none. The stack has further habits."""

    stack: str
    precision: str
    accumulates: bool
    flops: str
    gradient_bytes: float = 4.0
    version: Version = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the public recipe of a benchmark adds to its table of results; 0, "" or None where it
    adds nothing. `batch_per_chip` in sequences; `recompute_share`, `bf16_share` and `tensor_hidden`
    as in TrainingBatch; `stack` where its expert layers are dispatched or fused otherwise than the
    software's habit; `predictions` passes of multi-token prediction are trained too."""

    sequence_length: float = 0.0
    batch_per_chip: float = 0.0
    context_parallel: float = 0.0
    recompute: str = ""
    recompute_share: float = 1.0
    bf16_share: float | None = None
    tensor_hidden: float = 1.0
    stack: str = ""
    source: str = ""
    predictions: int = 0
    gradient_bytes: float = 4.0


# Gradients in 16 bits: Megatron-Bridge's and NeMo's speed benchmarks (grad_reduce_in_fp32 False,
# perf_recipes/_common.py), llm-foundry's FSDP (mixed_precision PURE).
MEGATRON = Software("megatron", "bf16", True, "causal", 2.0)
NEMO = Software("megatron", "bf16", True, "full", 2.0)
MAXTEXT = Software("maxtext", "bf16", False, "causal")
FOUNDRY = Software("fsdp", "bf16", False, "full", 2.0)
FSDP = Software("fsdp", "bf16", False, "full")
GENERIC = Software(GENERIC_STACK, "bf16", True, "causal")
USUAL = {one.stack: one for one in (GENERIC, MAXTEXT, MEGATRON)}
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


def software_of(engine: str) -> Software | None:
    """Of the software that a row names; None where it is not known."""
    text = engine.lower()
    for sign, software in SIGNS:
        if sign in text:
            found = re.search(r"\d\d\.\d\d(\.\d\d)?", text)
            version = _version(found[0]) if found else ()
            early = software is MEGATRON and version == FIRST_TABLES
            precision = "fp8" if early else software.precision
            return replace(software, precision=precision, version=version)
    return None


def recipe_of(stack: str, cells: Mapping[str, str], version: Version | None = None) -> Recipe:
    """The recipe of `stack` behind what `cells` (model, chip, dtype, task, sequence_length) say,
    an empty one where none is known. Without a version, the newest."""
    for line in _recipes():
        if _is_of(line, stack, cells, version):
            return Recipe(
                sequence_length=float(line["sequence_length"] or 0.0),
                batch_per_chip=float(line["batch_per_chip"] or 0.0),
                context_parallel=float(line["cp"] or 0.0),
                recompute=line["recompute"],
                recompute_share=float(line["recompute_share"] or 1.0),
                bf16_share=float(line["bf16_share"]) if line["bf16_share"] else None,
                tensor_hidden=float(line["tensor_hidden"] or 1.0),
                stack=line["stack"],
                source=line["source"],
            )
    return Recipe()


def _is_of(
    line: Mapping[str, str], stack: str, cells: Mapping[str, str], version: Version | None
) -> bool:
    task = cells["task"] or "pretrain"
    if (line["engine"], line["model"], line["task"]) != (stack, cells["model"], task):
        return False
    if line["chip"] not in ("", cells["chip"]) or line["dtype"] not in ("", cells["dtype"].lower()):
        return False
    if line["since"] and version is not None and version < _version(line["since"]):
        return False
    if line["until"] and not (version and version < _version(line["until"])):
        return False
    length = line["sequence_length"]
    return not length or cells["sequence_length"] in ("", length)


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


@cache
def _recipes() -> tuple[dict[str, str], ...]:
    names, *rows = csv_rows(hardware_dir() / RECIPES)
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


def usual_stack(vendor: str) -> str:
    """The framework that is usual on the chips of a vendor."""
    stacks = training_stacks().values()
    return next((stack.id for stack in stacks if vendor in stack.vendors), GENERIC_STACK)


def current(
    model: Model | None, chip: Chip, terms: TrainingTerms, *, unseen: bool = False
) -> Recipe:
    """What is current for a model (None: any dense one) on a chip, that of a hypothetical one being
    its origin's: its newest public recipe, with the stack always named. A sparse model without a
    recipe there runs as most others do on that chip in that format; an `unseen` one is taken to
    have none."""
    stack = usual_stack(chip.vendor)
    plain = Recipe(stack=stack, gradient_bytes=USUAL[stack].gradient_bytes)
    if model is None:
        return plain
    cells = {"chip": chip.derived_from or chip.id, "dtype": terms.precision, "task": terms.task}
    cells["sequence_length"] = str(terms.sequence_length)
    known = {line["model"]: resolve_model(line["model"]) for line in _recipes()}
    recipes = {name: recipe_of(stack, cells | {"model": name}) for name in known}
    name = next((name for name, one in known.items() if alike(one, model)), "")
    if unseen:
        recipes.pop(name, None)
    elif terms.task == "pretrain":
        plain = replace(plain, predictions=prediction_passes(stack, name))
    found = recipes.get(name, plain)
    if found.source:
        kept = {"predictions": plain.predictions, "gradient_bytes": plain.gradient_bytes}
        return replace(found, stack=found.stack or stack, **kept)
    if not model.experts:
        return plain
    votes = Counter(
        one.stack or stack for name, one in recipes.items() if one.source and known[name].experts
    )
    most = max(votes.values(), default=0)
    tied = [name for name, count in votes.items() if count == most]
    return replace(plain, stack=tied[0]) if len(tied) == 1 else plain


def alike(one: Model, other: Model) -> bool:
    """Whether two models train alike, whatever they are called."""
    return (one.blocks, one.vocab_size) == (other.blocks, other.vocab_size)


def prediction_passes(stack: str, model: str) -> int:
    """Passes of multi-token prediction that the benchmarks of a stack train with a model."""
    if stack != "megatron":
        return 0
    return next((passes for name, passes in PREDICTIONS.items() if name in model), 0)
