"""A device that obeys a known law, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dse.measure.session import STREAMS, Device, Run, Work

CPU = Device(
    "cpu", "Fake 9000, 4 threads", 64e9, 32e6, ("bf16",), "torch 0", "no driver",
    "nowhere", "a fake",
)  # fmt: skip
H100 = Device(
    "cuda", "NVIDIA H100 PCIe", 80e9, 50e6, ("bf16", "fp8"), "torch 0",
    "CUDA 0, driver 0", "nowhere", "a fake",
)  # fmt: skip


@dataclass
class FakeBench:
    """Seconds = ((flops / rate)^p + (bytes / bandwidth)^p)^(1/p) + fixed. `noise` (of a sample) and
    `uneven` (of a shape) are standard deviations of a logarithm."""

    device: Device
    rate: dict[str, float]
    bandwidth: float
    memory: dict[str, float] = field(default_factory=dict)
    fixed_s: float = 1e-5
    p: float = 1.6
    noise: float = 0.0
    uneven: float = 0.0
    room: float = 1e9
    now: float = 0.0
    refuses: Callable[[Work], bool] = lambda work: False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def clock(self) -> float:
        return self.now

    def holds(self, work: Work) -> bool:
        return work.bytes <= self.room

    def release(self) -> None: ...

    def seconds(self, work: Work) -> float:
        if work.operator in STREAMS:
            return work.bytes / self.bandwidth
        rate = self.rate[work.dtype] * (1.0 if work.operator == "gemm" else 0.3)
        memory = self.bandwidth * self.memory.get(work.operator, 0.8)
        busy = (work.flops / rate) ** self.p + (work.bytes / memory) ** self.p
        luck = np.random.default_rng(work.sizes).standard_normal()
        busy = busy ** (1 / self.p) * np.exp(self.uneven * luck)
        return busy + self.fixed_s

    def prepare(self, work: Work) -> Run:
        if self.refuses(work):
            raise RuntimeError("no kernel image\nand more")

        def run(count: int) -> float:
            seconds = self.seconds(work) * np.exp(self.noise * self.rng.standard_normal())
            self.now += count * seconds
            return float(seconds)

        return run
