"""The ledger of one step: operators in a fixed order, their seconds added one by one.

The law of every device operator (a p-norm of compute and memory time plus a fixed cost):

    seconds = ((flops * s_per_flop)^p + (bytes * s_per_byte)^p)^(1/p) + fixed_s

p = 1 adds the two times, a large p takes the larger. The floor of the step keeps the work and drops
every loss: the larger of all flops at the dense peak and all bytes at the full bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.candidates import Floats
from dse.perf.deployed import Deployed, Law

# Launch and tail of one small kernel inside a CUDA graph: assumed, near the 1.7 us by which the
# smallest GEMMs undercut their fitted fixed cost.
STREAM_FIXED_S = 2e-6


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator over all its layers; arrays (n,), seconds."""

    name: str
    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    network_s: Floats
    fixed_s: Floats


class Ledger:
    """Sums a step. `keep` retains every entry for `dse explain`."""

    def __init__(self, deployed: Deployed, *, keep: bool = False) -> None:
        zeros = np.zeros(deployed.n)
        self.deployed = deployed
        self.seconds = zeros
        self.compute_s = zeros
        self.memory_s = zeros
        self.network_s = zeros
        self.fixed_s = zeros
        self.floor_compute_s = zeros
        self.floor_memory_s = zeros
        self.entries: list[Entry] | None = [] if keep else None

    def operator(
        self, name: str, count: Floats, law: Law, flops: Floats, bytes_: Floats, present: Floats
    ) -> None:
        """`count` layers of one operator: flops and bytes (n,) per layer and chip; `present` is 0
        where the step does not run it, so that its fixed cost goes too."""
        compute = flops * law.s_per_flop
        memory = bytes_ * law.s_per_byte
        larger = np.maximum(compute, memory)
        ratio = np.minimum(compute, memory) / np.maximum(larger, 1e-30)
        busy = larger * (1.0 + ratio**law.p) ** (1.0 / law.p)
        times = count * present
        fixed = law.fixed_s * times
        seconds = busy * times + fixed
        self.floor_compute_s = self.floor_compute_s + flops * law.floor_s_per_flop * times
        self.floor_memory_s = self.floor_memory_s + bytes_ * self.deployed.floor_s_per_byte * times
        compute = compute * times
        memory = memory * times
        self.seconds = self.seconds + seconds
        self.compute_s = self.compute_s + compute
        self.memory_s = self.memory_s + memory
        self.fixed_s = self.fixed_s + fixed
        if self.entries is not None:
            zeros = np.zeros(self.deployed.n)
            self.entries.append(Entry(name, seconds, compute, memory, zeros, fixed))

    def stream(self, name: str, count: Floats, law: Law, bytes_: Floats) -> None:
        """`count` element-wise kernels that each move `bytes_` (n,) through memory."""
        memory = bytes_ * law.s_per_byte * count
        fixed = STREAM_FIXED_S * count
        seconds = memory + fixed
        self.floor_memory_s = self.floor_memory_s + bytes_ * self.deployed.floor_s_per_byte * count
        self.seconds = self.seconds + seconds
        self.memory_s = self.memory_s + memory
        self.fixed_s = self.fixed_s + fixed
        if self.entries is not None:
            zeros = np.zeros(self.deployed.n)
            self.entries.append(Entry(name, seconds, zeros, memory, zeros, fixed))

    def network(self, name: str, count: Floats, latency_s: Floats, transfer_s: Floats) -> None:
        """`count` collectives of the given latency and transfer time, (n,) seconds each."""
        fixed = latency_s * count
        transfer = transfer_s * count
        seconds = fixed + transfer
        self.seconds = self.seconds + seconds
        self.network_s = self.network_s + seconds
        if self.entries is not None:
            zeros = np.zeros(self.deployed.n)
            self.entries.append(Entry(name, seconds, zeros, zeros, seconds, zeros))

    @property
    def floor_s(self) -> Floats:
        """(n,) seconds below which no software can bring this step on these chips."""
        return np.maximum(self.floor_compute_s, self.floor_memory_s)
