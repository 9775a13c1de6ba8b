"""Memory of the busiest chip by part, and the requests that it admits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.blocks import KINDS
from dse.blocks.operators import ACTIVATION_BYTES
from dse.physics.deployed import Deployed
from dse.physics.step import layers_per_stage, weight_bytes_per_chip
from dse.physics.tiers import SMALLEST, TierMemory, place
from dse.record import record
from dse.schema.backend import Backend
from dse.space.candidates import Block, Floats, Rows

# Live activations of one step: six hidden-sized and three feed-forward-sized buffers a token
# (residual, norm, query-key-value, attention output, gather; gate, up, product), and logits in
# float32: assumed. Collective libraries take buffers of their own (the backend's file).
HIDDEN_BUFFERS = 6.0
FEED_FORWARD_BUFFERS = 3.0


@record
class Memory(Rows):
    """Bytes on the busiest chip, (n,). `kv_per_request` is the cache of one request at its full
    length (prompt and output), `kv_reserved` what the backend admits one with; `admitted` the
    requests that one instance can hold, `runtime` what the backend leaves unused; `tier` what lies
    in a memory tier instead."""

    weights: Floats
    activations: Floats
    communication: Floats
    runtime: Floats
    kv_per_request: Floats
    kv_reserved: Floats
    capacity: Floats
    admitted: Floats
    tier: TierMemory | None = None

    def with_module(self, weights: Floats, cache: Floats, data_parallel: Floats) -> Memory:
        """With a drafting module of so many bytes on the busiest chip, and of cache for each
        request, all taken from the cache's room; 0 bytes change nothing."""
        left = np.maximum(self.capacity - self.base - weights, 0.0)
        reserved = self.kv_reserved + cache
        admitted = np.floor(left / reserved) * data_parallel
        if self.tier is not None:
            admitted = np.minimum(admitted, self.tier.admits(data_parallel))
        return replace(
            self,
            weights=self.weights + weights,
            kv_per_request=self.kv_per_request + cache,
            kv_reserved=reserved,
            admitted=np.where(weights > 0.0, admitted, self.admitted),
        )

    @property
    def base(self) -> Floats:
        return self.weights + self.activations + self.communication + self.runtime


def _whole(block: Block) -> Block:
    """The block with every token in the cache, whatever its window or chunk."""
    sizes = {
        name: np.zeros_like(size) if name in ("window", "chunk") else size
        for name, size in block.sizes.items()
    }
    return replace(block, sizes=sizes)


def memory(deployed: Deployed, prompt: Floats, output: Floats, backend: Backend) -> Memory:
    """Sizes a deployment for requests of `prompt` + `output` tokens, (n,) or (1,).

    `Backend` says what share of the memory the backend takes, and with how much cache it admits.
    """
    batch = deployed.batch
    parts = weight_bytes_per_chip(deployed)
    weights = np.zeros(deployed.n)
    for part in sorted(parts):
        weights = weights + parts[part]
    full, reserved = np.zeros(deployed.n), np.zeros(deployed.n)
    admission = prompt + backend.reserved_output * output
    widest = np.zeros(deployed.n)
    for block in batch.blocks:
        layers = layers_per_stage(block, deployed.pipeline_parallel)
        kind = KINDS[block.kind]
        kept = block if backend.window_cache else _whole(block)
        full = full + layers * kind.kv_bytes_per_request(deployed, kept, prompt + output)
        reserved = reserved + layers * kind.kv_bytes_per_request(deployed, kept, admission)
        width = kind.activation_width(deployed, block)
        widest = np.maximum(widest, width * (block.count > 0.0))

    rows = backend.chunk_tokens
    row = HIDDEN_BUFFERS * batch.hidden_size + FEED_FORWARD_BUFFERS * widest
    logits = 256.0 * deployed.vocabulary * 4.0
    activations = rows * row * ACTIVATION_BYTES + logits
    shared = deployed.group * deployed.pipeline_parallel > 1.0
    communication = np.where(
        shared,
        backend.communication_bytes + 2.0 * rows * batch.hidden_size * ACTIVATION_BYTES,
        0.0,
    )
    capacity = deployed.capacity_bytes
    tier = None
    if deployed.offload is not None:
        layers = np.ceil(batch.layers / deployed.pipeline_parallel)
        tier = place(deployed.offload, layers, weights, full, reserved)
        weights, full = weights - tier.weights, full - tier.kv_per_request
        reserved = np.maximum(reserved - tier.kv_reserved, SMALLEST)
        activations = activations + tier.staged
    fraction = backend.memory_fraction
    fixed = weights + activations + communication
    if backend.memory_rule == "free":
        room = fraction * (capacity - fixed)
    elif backend.memory_rule == "static":
        room = np.minimum(fraction * capacity - weights, capacity - fixed)
    else:
        room = fraction * capacity - fixed
    room = np.maximum(room, 0.0)
    runtime = np.maximum(capacity - fixed - room, 0.0)
    admitted = np.floor(room / reserved) * deployed.data_parallel
    if tier is not None:
        admitted = np.minimum(admitted, tier.admits(deployed.data_parallel))
    return Memory(
        weights, activations, communication, runtime, full, reserved, capacity, admitted, tier
    )
