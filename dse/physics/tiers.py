"""Memory tiers: weights and cache that lie behind the device memory, and what reading them costs.

A share of the weights and a share of every request's cache lie in one tier (host DRAM, a second
memory of the chip, flash). Bytes that a step touches there cross the tier's bandwidth:

    step = max(device, weights ahead / rate) + bytes on demand / rate        rate = reached x label

Weights are fetched *ahead*: which layer comes next is known, so the copy of one runs while the one
before it computes (FlexGen, arXiv 2303.06865, section 4.1; DeepSpeed ZeRO-Inference, arXiv
2207.00032, section VI). Routed experts are known only once the router has chosen, and the cache
only once the step's requests are: both are fetched *on demand*, while the device waits (assumed;
runtimes that guess the next experts, or hold the batch fixed as FlexGen does, hide a part of it).
The floor knows no order: every memory works at its own full bandwidth all the time.

What is written to a tier (new tokens' cache) goes the other way of the link and is taken as hidden.
Arithmetic stays on the chip; llama.cpp's layers on the host's processor are not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.schema.chip import Chip
from dse.schema.constants import TIERS, TierDefaults, tiers_of
from dse.space.candidates import CandidateBatch, Floats, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

Table = NDArray[np.float64]
# Layers of offloaded weights that the device keeps room for: one that computes, one that arrives.
STAGED_LAYERS = 2.0
SMALLEST = 1e-3  # bytes of a request that keeps nothing on the device, in place of 0


@record
class TierTable:
    """(chips, tiers): capacity, 0 where the chip has no such tier, and seconds per byte at the full
    bandwidth, infinite there. `reached` is the share of the bandwidth that copies reach."""

    capacity_bytes: Table
    s_per_byte: Table
    reached: float


def tier_table(chips: Sequence[Chip], defaults: TierDefaults) -> TierTable:
    capacity = np.zeros((len(chips), len(TIERS)))
    s_per_byte = np.full((len(chips), len(TIERS)), np.inf)
    for row, chip in enumerate(chips):
        for name, tier in tiers_of(chip, defaults).items():
            capacity[row, TIERS.index(name)] = tier.bytes
            s_per_byte[row, TIERS.index(name)] = 1.0 / tier.bytes_per_s
    return TierTable(capacity, s_per_byte, defaults.reached)


class Offload:
    """What n candidates keep in a tier, gathered: shares of the weights and of the cache, seconds
    per byte as reached and at the full bandwidth, capacity; (n,) each."""

    def __init__(self, batch: CandidateBatch, table: TierTable) -> None:
        assert batch.offload_tier is not None
        zeros = np.zeros(len(batch))
        self.weights = zeros if batch.weights_offloaded is None else batch.weights_offloaded
        self.cache = zeros if batch.kv_offloaded is None else batch.kv_offloaded
        self.capacity_bytes: Floats = table.capacity_bytes[batch.chip, batch.offload_tier]
        self.floor_s_per_byte: Floats = table.s_per_byte[batch.chip, batch.offload_tier]
        self.s_per_byte: Floats = self.floor_s_per_byte / table.reached

    def share(self, part: str) -> Floats:
        return self.cache if part == "cache" else self.weights


class TierTraffic:
    """Bytes that one step touches in the tier, (n,)."""

    def __init__(self, offload: Offload) -> None:
        self.offload = offload
        self.ahead = np.zeros(len(offload.weights))
        self.on_demand = np.zeros(len(offload.weights))

    def add(self, part: str, bytes_: Floats | float) -> None:
        """`bytes_` touched of `part`: "weights", "experts" or "cache"."""
        moved = bytes_ * self.offload.share(part)
        if part == "weights":
            self.ahead += moved
        else:
            self.on_demand += moved

    def wait_s(self, device_s: Floats) -> Floats:
        """(n,) seconds for which the device, `device_s` at work, waits for the tier."""
        ahead = _seconds(self.ahead, self.offload.s_per_byte)
        on_demand = _seconds(self.on_demand, self.offload.s_per_byte)
        return np.maximum(ahead - device_s, 0.0) + on_demand

    @property
    def bytes(self) -> Floats:
        return self.ahead + self.on_demand

    @property
    def floor_s(self) -> Floats:
        return _seconds(self.bytes, self.offload.floor_s_per_byte)


def _seconds(bytes_: Floats, s_per_byte: Floats) -> Floats:
    """(n,) none for no bytes, whatever the tier."""
    return np.where(bytes_ > 0.0, bytes_ * s_per_byte, 0.0)


@record
class TierMemory(Rows):
    """Bytes of the busiest chip in its tier, (n,): weights, cache of one request at its full length
    and as it is admitted with; `staged` is the room on the device for layers that arrive."""

    weights: Floats
    kv_per_request: Floats
    kv_reserved: Floats
    staged: Floats
    capacity: Floats

    def admits(self, data_parallel: Floats) -> Floats:
        """(n,) requests of an instance whose cache the tier has room for."""
        room = np.maximum(self.capacity - self.weights, 0.0)
        fits = np.floor(room / np.maximum(self.kv_reserved, SMALLEST))
        return np.where(self.kv_reserved > 0.0, fits, np.inf) * data_parallel

    def used(self, requests: Floats) -> Floats:
        return self.weights + requests * self.kv_per_request


def place(
    offload: Offload, layers: Floats, weights: Floats, full: Floats, reserved: Floats
) -> TierMemory:
    """What of the busiest chip's bytes, (n,), goes to the tier; `layers` are those of its stage."""
    moved = offload.weights * weights
    staged = moved * np.minimum(STAGED_LAYERS / np.maximum(layers, 1.0), 1.0)
    kv = offload.cache
    return TierMemory(moved, kv * full, kv * reserved, staged, offload.capacity_bytes)
