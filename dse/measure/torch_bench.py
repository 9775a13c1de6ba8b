"""A device timed through PyTorch: CUDA, ROCm (PyTorch calls it cuda too) or the CPU.

Operands are views of three pools that are set aside once: what serving reads from memory (weights,
the cache), what the operator before has just written, and the output. Runs of a work walk through
the first pool, so that nothing of it is in a processor cache: weights that are read twice in a row
from one place would look faster than they are in serving.
"""

from __future__ import annotations

import importlib
import math
import os
import platform
import time
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.measure.session import BYTES, STREAMS, Device, Run, Work, timed

DTYPE = {"bf16": "bfloat16", "fp8": "float8_e4m3fn"}
INSTALL = "pip install torch"
UNKNOWN_CACHE = 32 * 2**20  # of a CPU that does not say: assumed
POOL_BYTES = {"cpu": 384 * 2.0**20, "cuda": 1.5 * 2.0**30}
PLACES = 512  # at most so many places of the cold pool in turn, and nodes of a CUDA graph
SEED_ELEMENTS = 2**22  # random numbers that a pool repeats


def load_torch() -> Any:
    """The module. Raises InputError with what to install."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise InputError(f"dse calibrate needs PyTorch: {INSTALL}") from error


def pick_device(wanted: str | None) -> str:
    """cuda or cpu; a GPU where there is one and nothing was asked."""
    torch = load_torch()
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        accepted = "cpu, or a PyTorch build for the GPU of this machine (CUDA or ROCm)"
        raise InputError("PyTorch sees no CUDA or ROCm device", field="--device", accepted=accepted)
    return wanted or ("cuda" if there else "cpu")


class TorchBench:
    """`Bench` of `dse.measure.session`. `pool_bytes` are set aside for weights or cache, and a
    third of it each for inputs and outputs."""

    def __init__(self, kind: str, seed: int, pool_bytes: float) -> None:
        self.torch = load_torch()
        self.kind = kind
        self.torch.manual_seed(seed)
        self.device = describe(self.torch, kind)
        small = min(pool_bytes, self.device.memory_bytes / 8)
        self.room = {"cold": int(small), "hot": int(small / 3), "out": int(small / 3)}
        self.dtype = ""
        self.pools: dict[str, Any] = {}

    def holds(self, work: Work) -> bool:
        if work.operator in STREAMS:
            return True
        out = max(BYTES[work.dtype], 2.0) * work["m"] * work["n"] if work.operator == "gemm" else 0
        # What the operator before has just written.
        hot = work.bytes - work.cold_bytes - out
        room = self.room
        return work.cold_bytes <= room["cold"] and hot <= room["hot"] and out <= room["out"]

    def release(self) -> None:
        self.pools, self.dtype = {}, ""
        if self.kind == "cuda":
            self.torch.cuda.empty_cache()

    def prepare(self, work: Work) -> Run:
        with self.torch.no_grad():
            if work.operator in STREAMS:
                return self._run([self._stream(work)])
            self._fill(work.dtype)
            make = {"gemm": self._gemm}.get(work.operator, self._attention)
            places = self._places(int(work.cold_bytes / BYTES[work.dtype]))
            return self._run([make(work, place) for place in places])

    def _places(self, elements: int) -> list[int]:
        """Offsets into the cold pool, apart by the operand or more and, all together, by more than
        twice the cache; one where the pool is no larger."""
        total = self.pools["cold"].numel()
        if elements * BYTES[self.dtype] > 2 * self.device.cache_bytes:
            count = min(2, total // elements)
        else:
            needed = math.ceil(3 * self.device.cache_bytes / BYTES[self.dtype] / elements)
            count = min(total // elements, needed, PLACES)
        stride = total // count // 64 * 64
        return [k * stride for k in range(count)]

    def _fill(self, dtype: str) -> None:
        """Pools of random normal numbers in a format; a GPU draws more power over them than over
        zeros, and slows down as it does in use."""
        if self.dtype == dtype:
            return
        self.release()
        torch = self.torch
        block = torch.randn(SEED_ELEMENTS, device=self.kind).to(getattr(torch, DTYPE[dtype]))
        for name, room in self.room.items():
            elements = int(room / BYTES[dtype])
            copies = -(-elements // SEED_ELEMENTS)
            pool = torch.empty(copies * SEED_ELEMENTS, dtype=block.dtype, device=self.kind)
            for k in range(copies):
                pool[k * SEED_ELEMENTS : (k + 1) * SEED_ELEMENTS] = block
            self.pools[name] = pool
        self.dtype = dtype

    def _gemm(self, work: Work, place: int) -> Any:
        torch, (m, n, k) = self.torch, work.sizes
        weight = self.pools["cold"][place : place + n * k].view(n, k).t()
        rows = self.pools["hot"][: m * k].view(m, k)
        if work.dtype == "fp8":
            one = torch.ones((), device=self.kind)
            kwargs = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
            return lambda: torch._scaled_mm(rows, weight, **kwargs)
        out = self.pools["out"][: m * n].view(m, n)
        return lambda: torch.mm(rows, weight, out=out)

    def _attention(self, work: Work, place: int) -> Any:
        """A decoding step has its query heads of one KV head as rows of one query, which is the
        same sum: with `enable_gqa` PyTorch copies the cache for every query head on a CPU."""
        attend = self.torch.nn.functional.scaled_dot_product_attention
        batch, length, heads, kv_heads, head_dim = work.sizes
        size = batch * kv_heads * length * head_dim
        cache = self.pools["cold"][place : place + 2 * size].view(
            2, batch, kv_heads, length, head_dim
        )
        keys, values = cache[0], cache[1]
        if work.operator == "decode_attention":
            rows = heads // kv_heads
            query = self.pools["hot"][: batch * heads * head_dim]
            query = query.view(batch, kv_heads, rows, head_dim)
            return lambda: attend(query, keys, values)
        query = self.pools["hot"][: batch * heads * length * head_dim]
        query = query.view(batch, heads, length, head_dim)
        grouped = heads != kv_heads
        return lambda: attend(query, keys, values, is_causal=True, enable_gqa=grouped)

    def _stream(self, work: Work) -> Any:
        torch, elements = self.torch, work.sizes[0]
        key = f"stream {elements}"
        if key not in self.pools:
            self.pools[key] = torch.ones((3, elements), dtype=torch.float32, device=self.kind)
        a, b, c = self.pools[key]
        if work.operator == "copy":
            return lambda: a.copy_(b)
        if work.operator == "triad":
            return lambda: torch.add(b, c, alpha=2.0, out=a)
        return b.sum

    def _run(self, calls: list[Any]) -> Run:
        return self._gpu(calls) if self.kind == "cuda" else _cpu(calls, self.torch)

    def _gpu(self, calls: list[Any]) -> Run:
        """Seconds between two events around replays of a CUDA graph of all places, so that the
        host's time to launch a kernel is not in it; of plain launches where it cannot be captured.
        """
        torch = self.torch
        calls[0]()
        torch.cuda.synchronize()
        launch = self._captured(calls)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def run(count: int) -> float:
            rounds = -(-count // len(calls))
            start.record()
            for _ in range(rounds):
                launch()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3 / (rounds * len(calls))

        return run

    def _captured(self, calls: list[Any]) -> Any:
        torch = self.torch

        def launch() -> None:
            for call in calls:
                call()

        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                launch()
        except RuntimeError:
            torch.cuda.synchronize()
            return launch
        return graph.replay


def _cpu(calls: list[Any], torch: Any) -> Run:
    step = 0

    def run(count: int) -> float:
        nonlocal step
        with torch.no_grad():
            start = time.perf_counter()
            for _ in range(count):
                calls[step % len(calls)]()
                step += 1
            return (time.perf_counter() - start) / count

    return run


def describe(torch: Any, kind: str) -> Device:
    host = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, {_cpu_name()}"
    software, place = f"torch {torch.__version__}", "over memory that is not in the"
    if kind == "cpu":
        name, timer = (
            f"{_cpu_name()}, {torch.get_num_threads()} threads",
            "perf_counter around runs",
        )
        about = (software, "no driver", host, f"{timer} {timed} cache")
        return Device(kind, name, _host_memory(), _host_cache(), ("bf16",), *about)
    card = torch.cuda.get_device_properties(0)
    rocm = getattr(torch.version, "hip", None)
    driver = f"ROCm {rocm}" if rocm else f"CUDA {torch.version.cuda}, driver {_nvidia_driver()}"
    # FP8 tensor cores: compute capability 8.9 (Ada) and above. ROCm: gfx95; the FP8 of gfx94 is
    # another format than the one measured here.
    native8 = (card.major, card.minor) >= (8, 9)
    if rocm:
        native8 = getattr(card, "gcnArchName", "").startswith("gfx95")
    cache = float(getattr(card, "L2_cache_size", 0) or 2 * UNKNOWN_CACHE)
    dtypes = ("bf16", *(("fp8",) if native8 else ()))
    timer = f"CUDA events around replays of a CUDA graph {place} L2 cache"
    about = (software, driver, host, timer)
    name = torch.cuda.get_device_name(0)
    return Device(kind, name, float(card.total_memory), cache, dtypes, *about)


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _host_memory() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 8 * 2.0**30  # assumed where the system does not say


def _host_cache() -> float:
    """Bytes of the largest cache of the first core."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="utf-8").strip()
        factor = {"K": 2**10, "M": 2**20}.get(text[-1:], 0)
        if factor and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * factor)
    return float(max(sizes, default=UNKNOWN_CACHE))


def _nvidia_driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    try:
        words = path.read_text(encoding="utf-8").splitlines()[0].split()
    except (OSError, IndexError):
        return "unknown"
    return next((word for word in words if word[:1].isdigit() and "." in word), "unknown")
