"""Collectives between devices of this machine, through torch.distributed.

A process a device (NCCL or RCCL between GPUs, gloo between processes of a CPU). They meet through a
file, not a port. A time is that of the slowest process.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse.measure.laws import OPERATIONS
from dse.measure.torch_bench import load_torch

SMALLEST = 2**13
LARGEST = {"cuda": 2**29, "cpu": 2**26}
TIMEOUT_S = 120


def sizes(largest: float) -> list[int]:
    """Bytes of messages, powers of two."""
    return [2**k for k in range(SMALLEST.bit_length() - 1, int(np.log2(largest)) + 1)]


def group_sizes(devices: int) -> list[int]:
    """2, 4, 8, ... and all of them."""
    return sorted({2**k for k in range(1, 10) if 2**k <= devices} | {devices} - {1})


def measure(kind: str, devices: int, largest: float, budget_s: float) -> pd.DataFrame:
    """Rows `operation, devices, bytes, seconds, spread, samples`. Bytes as the laws count them:
    what each device holds before an all-reduce, or after an all-gather; what each sends, its own
    part included, in an all-to-all. Raises RuntimeError where the processes cannot meet."""
    torch = load_torch()
    rows: list[dict[str, Any]] = []
    groups = group_sizes(devices)
    for count in groups:
        with tempfile.TemporaryDirectory() as folder:
            arguments = (count, kind, folder, sizes(largest), budget_s / len(groups))
            context = torch.multiprocessing.start_processes(
                _member, arguments, nprocs=count, join=False, start_method="spawn"
            )
            deadline = time.monotonic() + TIMEOUT_S + 2 * budget_s
            while not context.join(timeout=max(deadline - time.monotonic(), 0.0)):
                if time.monotonic() > deadline:
                    for process in context.processes:
                        process.kill()
                    raise RuntimeError(f"no answer from {count} processes in {TIMEOUT_S} s")
            rows += json.loads((Path(folder) / "rows.json").read_text(encoding="utf-8"))
    return pd.DataFrame(rows)


def _member(rank: int, count: int, kind: str, folder: str, sizes: list[int], budget: float) -> None:
    """One process: every operation at every size, timed together with the others."""
    torch = load_torch()
    distributed = torch.distributed
    if kind == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=count,
    )
    rows = []
    each = budget / (len(OPERATIONS) * len(sizes))
    for operation in OPERATIONS:
        for size in sizes:
            samples = _samples(torch, operation, size, count, kind, each)
            low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
            rows.append(
                {
                    "operation": operation,
                    "devices": count,
                    "bytes": size,
                    "seconds": float(middle),
                    "spread": float((high - low) / middle),
                    "samples": len(samples),
                }
            )
    if rank == 0:
        Path(folder, "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def _samples(
    torch: Any, operation: str, size: int, count: int, kind: str, budget: float
) -> list[float]:
    """Seconds of one run, 5 to 15 samples, each of the slowest member."""
    distributed = torch.distributed
    elements = max(size // 2 // count, 1) * count
    whole = torch.ones(elements, dtype=torch.bfloat16, device=kind)
    part, other = torch.ones_like(whole[: elements // count]), torch.ones_like(whole)

    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor

    def once() -> None:
        if operation == "all_reduce":
            distributed.all_reduce(whole)
        elif operation == "all_gather":
            gather(whole, part)
        else:
            distributed.all_to_all_single(other, whole)

    def timed(runs: int) -> float:
        distributed.barrier()
        if kind == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(runs):
            once()
        if kind == "cuda":
            torch.cuda.synchronize()
        seconds = torch.tensor([(time.perf_counter() - start) / runs], dtype=torch.float64)
        seconds = seconds.to(kind)
        distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
        return float(seconds[0])

    timed(2)
    one = timed(1)
    runs = max(1, int(1e-3 / one))
    passes = int(np.clip(budget / (one * runs), 5, 15))
    return [timed(runs) for _ in range(passes)]
