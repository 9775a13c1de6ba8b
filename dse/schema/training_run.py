"""How a model is trained, as a space file (`training:`) or the flags of `dse train` say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.schema.reader import (
    Field,
    Quantity,
    Refused,
    Schema,
    Share,
    Text,
    Then,
    Whole,
    Word,
    field,
    gathered,
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


def _word(name: str, default: str | None, meaning: str) -> Any:
    return field(Word(NAMES[name]), default=default, meaning=meaning)


def _whole(default: int | None, least: int, most: int, meaning: str) -> Any:
    return field(Whole(least, most), default=default, meaning=meaning)


def _rate(tokens_per_s: float) -> float:
    if 1e-9 <= tokens_per_s <= 1e18:
        return tokens_per_s
    raise Refused(f"read {tokens_per_s:g}", "a number, 1e-09 to 1e+18")


class TrainingTerms(Schema):
    """One way to train. None: searched (a degree, `recompute`, `zero`), the default batch, the
    price basis of the study, or the catalog's figure for the chip."""

    chip: str = field(Text(), meaning="id of a chip")
    chips: int = field(Whole(1, MOST_CHIPS), meaning="chips of the run")
    price_basis: str | None = field(
        Text(), default=None, meaning="that of the study where left out"
    )
    stack: str = field(Text(), default="generic", meaning="id of a file of hardware/training")
    sequence_length: int = _whole(8192, 1, 10**8, "tokens")
    global_batch_tokens: int | None = field(
        Then(Quantity("tokens"), int), default=None, meaning="of one step"
    )
    precision: str = _word("precision", "bf16", "format of the matrix products")
    task: str = _word("task", "pretrain", "what is trained")
    optimizer: str = _word("optimizer", "adam_fp32", "and the format of its states")
    schedule: str | None = _word("schedule", None, "of the pipeline")
    recompute: str | None = _word(
        "recompute", None, "what is computed again in the backward pass; searched if left out"
    )
    zero: int | None = _whole(None, 0, 3, "stage of ZeRO; searched if left out")
    lora_rank: int = _whole(16, 1, 1_000_000, "rank of LoRA")
    offload: float = field(
        Share(0.0, 1.0), default=0.0, meaning="share of the optimizer states on the host"
    )
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
        meaning="chip-hours between two interruptions",
    )
    restart_s: float | None = field(
        Quantity("s"), default=None, written="restart", meaning="to the first step after it"
    )
    checkpoint_bytes_per_s: float | None = field(
        Quantity("bytes/s", "more than 0"),
        default=None,
        written="checkpoint_bandwidth",
        meaning="of the whole storage",
    )
    checkpoint_interval_s: float | None = field(
        Quantity("s", "more than 0"), default=None, written="checkpoint_interval"
    )
    straggler: float | None = field(
        Share(0.0, 10.0), default=None, meaning="spread of step times between chips"
    )
    input_tokens_per_s: float | None = field(
        Then(Quantity("tokens"), _rate), default=None, meaning="of the whole input pipeline"
    )
    sites: int = _whole(1, 1, 1000, "places that train together")
    site_split: str = _word("site_split", "data", "what is divided over them")
    site_bytes_per_s: float | None = field(
        Quantity("bytes/s", "more than 0"),
        default=None,
        written="site_bandwidth",
        meaning="of a site to the others",
    )
    site_latency_s: float = field(
        Quantity("s"), default=0.0, written="site_latency", meaning="between sites"
    )
    local_steps: int = _whole(1, 1, 1_000_000, "between two exchanges of sites")

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
