"""One piece of work that is timed, and what the laws count of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

BYTES = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0}
HEADS = ("batch", "length", "heads", "kv_heads", "head_dim")
SIZES = {
    "gemm": ("m", "n", "k"),
    "prefill_attention": HEADS,
    "decode_attention": HEADS,
    "copy": ("elements",),
    "triad": ("elements",),
    "read": ("elements",),
}
STREAMS = {"copy": 2.0, "triad": 3.0, "read": 1.0}  # arrays that are read or written


@dataclass(frozen=True, slots=True)
class Work:
    """`sizes` in the order of SIZES; `role`: grid (fitted), or part of a comparison of misaligned
    sizes with their aligned neighbours, `axis` being the size that varies."""

    operator: str
    dtype: str
    sizes: tuple[int, ...]
    role: str = "grid"
    axis: str = ""

    def __getitem__(self, name: str) -> int:
        return self.sizes[SIZES[self.operator].index(name)]

    @property
    def shape(self) -> tuple[int, ...]:
        """What points share that a fit may leave out together: the weight, or the heads."""
        return self.sizes[1:] if self.operator == "gemm" else self.sizes[2:]

    @property
    def flops(self) -> float:
        """Operations that the laws count (docs/efficiency.md): causal attention counts half."""
        if self.operator == "gemm":
            m, n, k = self.sizes
            return 2.0 * m * n * k
        if self.operator in STREAMS:
            return 0.0
        batch, length, heads, _, head_dim = self.sizes
        rows = batch * heads * head_dim * float(length)
        return 2.0 * rows * length if self.operator == "prefill_attention" else 4.0 * rows

    @property
    def bytes(self) -> float:
        """Bytes that the laws count: weights, input and a 16-bit output of a GEMM; q, k, v and the
        output of a prompt; the cache of a decoding step."""
        each = BYTES[self.dtype]
        if self.operator == "gemm":
            m, n, k = self.sizes
            return each * (n * k + m * k) + max(each, 2.0) * m * n
        if self.operator in STREAMS:
            return STREAMS[self.operator] * each * self.sizes[0]
        batch, length, heads, kv_heads, head_dim = self.sizes
        pairs = kv_heads if self.operator == "decode_attention" else heads + kv_heads
        return 2.0 * each * batch * length * pairs * head_dim

    @property
    def cold_bytes(self) -> float:
        """Bytes of weights or cache, which serving finds in memory and not in a processor cache."""
        each = BYTES[self.dtype]
        if self.operator == "gemm":
            return each * self["n"] * self["k"]
        if self.operator in STREAMS:
            return self.bytes
        batch, length, _, kv_heads, head_dim = self.sizes
        return 2.0 * each * batch * length * kv_heads * head_dim

    @property
    def hot_bytes(self) -> float:
        """Bytes of what the operator before has just written, and of the output."""
        return self.bytes - self.cold_bytes


@dataclass(frozen=True, slots=True)
class Device:
    """What is measured. `kind`: cuda (ROCm too) or cpu; `cache_bytes`: the last cache before the
    memory; `memory_bytes`: of the device."""

    kind: str
    name: str
    memory_bytes: float
    cache_bytes: float
    count: int
    dtypes: tuple[str, ...]
    software: str
    driver: str
    host: str
    timer: str


# Runs a work so many times and returns the seconds of one run.
Run = Callable[[int], float]


class Bench(Protocol):
    """Something that can be timed: a device through PyTorch, or a law in a test."""

    device: Device

    def holds(self, work: Work) -> bool:
        """Whether the operands fit what is set aside for them."""
        ...

    def prepare(self, work: Work) -> Run: ...

    def release(self) -> None:
        """Frees what was set aside."""
        ...


@dataclass(slots=True)
class Point:
    """A work and its times: seconds of each sample, each a mean over several runs."""

    work: Work
    samples: list[float] = field(default_factory=list)
