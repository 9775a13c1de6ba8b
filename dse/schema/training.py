"""Training as an input: terms of a run, and training software (`hardware/training/*.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field as made_anew
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema.backend import Calibration
from dse.schema.loader import load_yaml, unknown
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
