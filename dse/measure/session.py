"""What is measured: one piece of work that is timed and what the laws count of it, the device, and
grids of shapes, cut down to what a device can do in the time that it has.

A session of measuring: probe, choose what the time allows, pass over it again and again.

The samples of a point are spread over the whole section, a pass at a time, so that a machine that
is busy for a while, or slows down as it gets warm, moves all points alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

import numpy as np

BYTES = {"bf16": 2.0, "fp32": 4.0, "fp8": 1.0}
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
    """`sizes` in the order of SIZES."""

    operator: str
    dtype: str
    sizes: tuple[int, ...]

    def __getitem__(self, name: str) -> int:
        return self.sizes[SIZES[self.operator].index(name)]

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


@dataclass(frozen=True, slots=True)
class Device:
    """What is measured. `kind`: cuda (ROCm too) or cpu; `cache_bytes`: the last cache before the
    memory; `memory_bytes`: of the device."""

    kind: str
    name: str
    memory_bytes: float
    cache_bytes: float
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


def timed(samples: Sequence[float]) -> dict[str, float]:
    """The median of samples in seconds, the distance between their quartiles over it, and how many
    they are."""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    spread = float((high - low) / middle)
    return {"seconds": float(middle), "spread": spread, "samples": len(samples)}


ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# (n, k) of the projections of published models: query-key-value, output, up and gate, down.
MODEL_WEIGHTS = (
    (4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072),  # Qwen3-0.6B
    (3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192),  # Llama-3.2-1B
    (6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728),  # Qwen3-4B
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),  # Llama-3-8B
    (7168, 5120), (5120, 5120), (34816, 5120), (5120, 17408),  # Qwen3-14B
    (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),  # Llama-3-70B
    (1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584),  # the same on 8 chips
)  # fmt: skip
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
# Heads, KV heads, head size: multi-head, grouped, one KV head.
ATTENTION_HEADS = (
    (16, 8, 128), (32, 8, 64), (32, 8, 128), (64, 8, 128), (32, 32, 128), (8, 1, 128),
)  # fmt: skip
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
BATCHES = (1, 4, 16, 64)


def gemms(dtype: str) -> list[Work]:
    weights = [*MODEL_WEIGHTS, *((side, side) for side in SQUARES)]
    return [Work("gemm", dtype, (m, n, k)) for n, k in dict.fromkeys(weights) for m in ROWS]


def attention(operator: str, dtype: str) -> list[Work]:
    prompts = operator == "prefill_attention"
    return [
        Work(operator, dtype, (batch, length, *heads))
        for heads in ATTENTION_HEADS
        for length in (LENGTHS if prompts else CONTEXTS)
        for batch in (BATCHES[:2] if prompts else BATCHES)
    ]


def streams(bytes_: float) -> list[Work]:
    """The three kernels on arrays of `bytes_`."""
    return [Work(name, "fp32", (int(bytes_ / 4),)) for name in ("copy", "triad", "read")]


def affordable(
    works: Sequence[Work],
    seconds_of: Callable[[Work], float],
    budget_s: float,
    runs: int,
    rng: np.random.Generator,
) -> list[Work]:
    """The works whose estimated seconds, `runs` of each, fit the budget together: in random order,
    one of each number of rows (or tokens) after another, so that a small budget still covers all of
    them. A work that would take a sixth of the budget is left out."""
    strata: dict[int, list[Work]] = {}
    for work in (works[k] for k in rng.permutation(len(works))):
        if runs * seconds_of(work) <= budget_s / 6:
            rows = work.sizes[1 if work.operator.endswith("attention") else 0]
            strata.setdefault(rows, []).append(work)
    chosen, spent = [], 0.0
    for work in (work for layer in zip_longest(*strata.values()) for work in layer if work):
        spent += runs * seconds_of(work)
        if spent <= budget_s:
            chosen.append(work)
    return chosen


WARM_UP = 2  # runs before the first sample
SAMPLE_S = 2e-3  # a sample is as many runs as take this long
PROBE_S = 0.15
FEWEST = 8  # points of a section, however slow the device
SLOW = 1e10  # operations a second of a device that refused the probe
BANDWIDTH = "memory bandwidth"


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds of wall time for each section on one device, and passes over it."""

    name: str
    passes: int
    streams_s: float
    gemm_s: float
    other_gemm_s: float
    attention_s: float


QUICK = Effort("quick", 7, 2.5, 18.0, 5.0, 7.0)
FULL = Effort("full", 15, 8.0, 120.0, 30.0, 60.0)
STREAM_BYTES = 256 * 2**20  # at least eight times the cache, at most an eighth of the memory
Progress = Callable[[str, float], None]


@dataclass(slots=True)
class Session:
    """`rates`: what probes reached, operations a second by format and bytes a second; `skipped`:
    works that the device refused, each with its reason."""

    bench: Bench
    effort: Effort
    seed: int
    progress: Progress = lambda words, share: None
    clock: Callable[[], float] = time.perf_counter
    points: list[Point] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    skipped: list[tuple[Work, str]] = field(default_factory=list)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def measure(self, dtypes: Sequence[str]) -> list[Point]:
        """Every section for every format; the first format gets attention."""
        effort, first, device = self.effort, dtypes[0], self.bench.device
        array = min(max(STREAM_BYTES, 8 * device.cache_bytes), device.memory_bytes / 8, 2 * 2**30)
        sections = [(BANDWIDTH, streams(array), effort.streams_s)]
        for dtype in dtypes:
            seconds = effort.gemm_s if dtype == first else effort.other_gemm_s
            sections.append((f"GEMMs in {dtype}", gemms(dtype), seconds))
        for operator, of in (("prefill", "prompts"), ("decode", "the cache")):
            works = attention(f"{operator}_attention", first)
            sections.append((f"attention over {of} in {first}", works, effort.attention_s))
        total = sum(budget for _, _, budget in sections)
        done = 0.0
        for words, works, budget in sections:
            self.progress(words, done / total)
            if words != BANDWIDTH:
                self._probe(works[0].dtype)
            self._section(works, budget, words)
            done += budget
            if words == BANDWIDTH:
                self.rates["bytes"] = max(p.work.bytes / min(p.samples) for p in self.points)
        self.bench.release()
        self.progress("done", 1.0)
        return self.points

    def _probe(self, dtype: str) -> None:
        """Operations a second of one middling GEMM, once a format."""
        if dtype in self.rates:
            return
        size = 256
        while True:
            work = Work("gemm", dtype, (size, size, size))
            try:
                run = self.bench.prepare(work)
                run(1)
                seconds = run(1)
            except RuntimeError as error:
                self._skip(work, error)
                self.rates.setdefault(dtype, SLOW)
                return
            self.rates[dtype] = work.flops / seconds
            larger = Work("gemm", dtype, (2 * size,) * 3)
            if seconds > PROBE_S / 8 or not self.bench.holds(larger) or size >= 8192:
                return
            size *= 2

    def _skip(self, work: Work, error: Exception) -> None:
        self.skipped.append((work, str(error).strip().split("\n")[0]))

    def _expected_s(self, work: Work) -> float:
        """A sample of the work: assumed are half the probed rates, and attention at a quarter."""
        flops = self.rates.get(work.dtype, np.inf) * (0.5 if work.operator == "gemm" else 0.12)
        seconds = work.flops / flops + work.bytes / (0.5 * self.rates.get("bytes", 1e10)) + 2e-5
        return max(seconds, SAMPLE_S)

    def _section(self, every: list[Work], budget: float, words: str) -> None:
        """Up to `passes` samples of what the budget allows, at least three of each point."""
        rng = np.random.default_rng((self.seed, len(self.points)))
        held = [work for work in every if self.bench.holds(work)]
        works = affordable(held, self._expected_s, budget, self.effort.passes + WARM_UP, rng)
        if words == BANDWIDTH:
            works = every
        if not works:  # a device too slow for any of them: the smallest
            works = sorted(held, key=self._expected_s)[:1]
        started = self.clock()
        points, runners = [], []
        for work in works:
            if self.clock() - started > 0.5 * budget and len(points) >= FEWEST:
                break  # slower than expected: the rest is left out
            try:
                run = self.bench.prepare(work)
                run(WARM_UP)
                count = max(1, int(np.ceil(SAMPLE_S / max(run(1), 1e-7))))
                first = run(count)
            except RuntimeError as error:  # no kernel for this shape, or no memory
                self._skip(work, error)
                continue
            points.append(Point(work, [first]))
            runners.append((run, count))
        for number in range(1, self.effort.passes):
            if number >= 3 and self.clock() - started > budget:
                break
            for k in rng.permutation(len(points)):
                run, count = runners[k]
                points[k].samples.append(run(count))
        self.points += points
