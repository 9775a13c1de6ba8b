"""How a model is trained, as a space file (`training:`) or the flags of `dse train` say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from dse import units
from dse.errors import InputError
from dse.schema.loader import did_you_mean
from dse.schema.metrics import parse_limit

MOST_CHIPS, MOST_TOKENS = 10_000_000, 1e18
SPLITS = ("data", "pipeline")
# Degrees that may be held, by what they are called in the plan.
DEGREES = (
    "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel",
    "virtual_stages", "micro_batch",
)  # fmt: skip
NAMES = {
    "precision": ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4"),
    "task": ("pretrain", "sft", "lora"),
    "optimizer": ("adam_fp32", "adam_bf16", "adam_8bit"),
    "recompute": ("none", "selective", "mlp", "moe", "full"),
    "schedule": ("1f1b", "interleaved", "zero_bubble", "dualpipe"),
    "site_split": SPLITS,
    "straggler_distribution": ("exponential", "normal", "pareto"),
}


@dataclass(frozen=True, slots=True)
class TrainingTerms:
    """One way to train. None: searched (a degree, `recompute`, `zero`), the default batch, the
    price basis of the study, or the catalog's figure for the chip."""

    chip: str
    chips: int
    price_basis: str | None = None
    stack: str = "generic"
    sequence_length: int = 8192
    global_batch_tokens: int | None = None
    precision: str = "bf16"
    task: str = "pretrain"
    optimizer: str = "adam_fp32"
    schedule: str | None = None
    recompute: str | None = None
    zero: int | None = None
    lora_rank: int = 16
    offload: float = 0.0
    degrees: Mapping[str, int] = field(default_factory=dict)
    chip_s_between: float | None = None
    restart_s: float | None = None
    checkpoint_bytes_per_s: float | None = None  # of the whole storage
    checkpoint_interval_s: float | None = None
    straggler: float | None = None
    straggler_distribution: str = "normal"
    input_tokens_per_s: float | None = None  # of the whole pipeline
    sites: int = 1
    site_split: str = "data"
    site_bytes_per_s: float | None = None
    site_latency_s: float = 0.0
    local_steps: int = 1


class TrainingFile(BaseModel):
    """The terms as they are written: quantities with units, names, whole numbers."""

    model_config = ConfigDict(extra="forbid", defer_build=True, frozen=True)

    chip: str
    chips: Any
    price_basis: str | None = None
    stack: str = "generic"
    sequence_length: Any = 8192
    global_batch_tokens: Any = None
    precision: str = "bf16"
    task: str = "pretrain"
    optimizer: str = "adam_fp32"
    schedule: str | None = None
    recompute: str | None = None
    zero: Any = None
    lora_rank: Any = 16
    offload: Any = 0
    tensor_parallel: Any = None
    pipeline_parallel: Any = None
    context_parallel: Any = None
    expert_parallel: Any = None
    virtual_stages: Any = None
    micro_batch: Any = None
    mtbf_chip_hours: Any = None
    restart: Any = None
    checkpoint_bandwidth: Any = None
    checkpoint_interval: Any = None
    straggler: Any = None
    straggler_distribution: str = "normal"
    input_tokens_per_s: Any = None
    sites: Any = 1
    site_split: str = "data"
    site_bandwidth: Any = None
    site_latency: Any = "0 s"
    local_steps: Any = 1

    def terms(self) -> TrainingTerms:
        """Raises InputError, its field one of this class."""
        for name, known in NAMES.items():
            value = getattr(self, name)
            if value is not None and value not in known:
                hint = did_you_mean(value, known)
                message = f"read {value!r}{hint}"
                raise InputError(message, field=name, accepted=", ".join(known))
        chips = self._whole("chips", 1, MOST_CHIPS) or 1
        length = self._whole("sequence_length", 1, 10**8) or 1
        batch = self._quantity("global_batch_tokens", "tokens")
        if batch is not None and not length <= batch <= MOST_TOKENS:
            raise InputError(
                f"read {self.global_batch_tokens!r}",
                field="global_batch_tokens",
                accepted=f"one sequence of {length:,} tokens or more",
            )
        sites = self._whole("sites", 1, 1000) or 1
        bandwidth = self._positive("site_bandwidth", "bytes/s")
        if (sites > 1) != (bandwidth is not None):
            said = f"{sites} site{'s' * (sites > 1)}, bandwidth {self.site_bandwidth or 'missing'}"
            accepted = "sites above 1 and the bandwidth of a site to the others, or neither"
            raise InputError(said, field="site_bandwidth", accepted=accepted)
        local_steps = self._whole("local_steps", 1, 1_000_000) or 1
        if local_steps > 1 and (sites == 1 or self.site_split != "data"):
            raise InputError(
                f"{local_steps} local steps, {sites} site{'s' * (sites > 1)}, {self.site_split}",
                field="local_steps",
                accepted="local steps between data-parallel sites",
            )
        if self.task != "lora" and self.lora_rank != 16:
            raise InputError(f"task {self.task}", field="lora_rank", accepted="task: lora")
        between = self._number("mtbf_chip_hours", 1e-3, 1e12)
        offload = self._number("offload", 0.0, 1.0)
        degrees = {name: self._whole(name, 1, MOST_CHIPS) for name in DEGREES}
        return TrainingTerms(
            chip=self.chip,
            chips=chips,
            price_basis=self.price_basis,
            stack=self.stack,
            sequence_length=length,
            global_batch_tokens=None if batch is None else int(batch),
            precision=self.precision,
            task=self.task,
            optimizer=self.optimizer,
            schedule=self.schedule,
            recompute=self.recompute,
            zero=self._whole("zero", 0, 3),
            lora_rank=self._whole("lora_rank", 1, 1_000_000) or 1,
            offload=offload or 0.0,
            degrees={name: value for name, value in degrees.items() if value is not None},
            chip_s_between=None if between is None else between * 3600.0,
            restart_s=self._quantity("restart", "s"),
            checkpoint_bytes_per_s=self._positive("checkpoint_bandwidth", "bytes/s"),
            checkpoint_interval_s=self._positive("checkpoint_interval", "s"),
            straggler=self._number("straggler", 0.0, 10.0),
            straggler_distribution=self.straggler_distribution,
            input_tokens_per_s=self._number("input_tokens_per_s", 1e-9, 1e18),
            sites=sites,
            site_split=self.site_split,
            site_bytes_per_s=bandwidth,
            site_latency_s=self._quantity("site_latency", "s") or 0.0,
            local_steps=local_steps,
        )

    def _whole(self, name: str, least: int, most: int) -> int | None:
        value = getattr(self, name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            accepted = f"a whole number, {least:,} to {most:,}"
            raise InputError(f"read {value!r}", field=name, accepted=accepted)
        return value

    def _number(self, name: str, least: float, most: float) -> float | None:
        """A share may be written in percent, tokens in millions: 1.5M."""
        value = getattr(self, name)
        if value is None:
            return None
        try:
            if name == "input_tokens_per_s":
                number = units.parse(value, "tokens")
            else:
                number = parse_limit(str(value), "fraction")
        except InputError:
            number = math.nan
        if not least <= number <= most:
            accepted = f"a number, {least:g} to {most:g}"
            raise InputError(f"read {value!r}", field=name, accepted=accepted)
        return number

    def _quantity(self, name: str, dimension: str) -> float | None:
        value = getattr(self, name)
        return None if value is None else units.parse(value, dimension, field=name)

    def _positive(self, name: str, dimension: str) -> float | None:
        number = self._quantity(name, dimension)
        if number == 0.0:
            raise InputError(f"read {getattr(self, name)!r}", field=name, accepted="more than 0")
        return number
