"""Memory of the busiest chip by part, and the requests that it admits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.candidates import Floats
from dse.perf.deployed import ACTIVATION_BYTES, Deployed
from dse.perf.operators import KINDS
from dse.perf.step import layers_per_stage, padded_vocabulary, weight_bytes_per_chip
from dse.specs.backend import Backend

# Live activations of one step: six hidden-sized and three feed-forward-sized buffers a token
# (residual, norm, query-key-value, attention output, gather; gate, up, product), and logits in
# float32. Collective libraries take buffers of their own. Both assumed.
HIDDEN_BUFFERS = 6.0
FEED_FORWARD_BUFFERS = 3.0
COMMUNICATION_BYTES = 4e8


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the busiest chip, (n,). `kv_per_request` is the cache of one request at its full
    length (prompt and output); `admitted` the requests that one instance can hold."""

    weights: Floats
    activations: Floats
    communication: Floats
    runtime: Floats
    kv_per_request: Floats
    capacity: Floats
    admitted: Floats

    @property
    def base(self) -> Floats:
        return self.weights + self.activations + self.communication + self.runtime


def memory(deployed: Deployed, prompt: Floats, output: Floats, backend: Backend) -> Memory:
    """Sizes a deployment for requests of `prompt` + `output` tokens, (n,) or (1,).

    A request is admitted with the cache of its full length (no preemption). The runtime reserve is
    what the backend leaves unused of the chip's capacity.
    """
    batch = deployed.batch
    parts = weight_bytes_per_chip(deployed)
    weights = np.zeros(deployed.n)
    for part in sorted(parts):
        weights = weights + parts[part]
    kv = np.zeros(deployed.n)
    widest = np.zeros(deployed.n)
    for block in batch.blocks:
        layers = layers_per_stage(block, deployed.pipeline_parallel)
        kv = kv + layers * KINDS[block.kind].kv_bytes_per_request(deployed, block, prompt + output)
        if block.kind == "mlp":
            width = block["intermediate_size"] / deployed.tensor_parallel
        elif block.kind == "moe":
            routed = block["expert_intermediate_size"] * block["experts_per_token"]
            width = routed / deployed.experts_tensor_parallel
        else:
            continue
        widest = np.maximum(widest, width * (block.count > 0.0))

    rows = backend.chunk_tokens
    row = HIDDEN_BUFFERS * batch.hidden_size + FEED_FORWARD_BUFFERS * widest
    logits = 256.0 * padded_vocabulary(deployed) * 4.0
    activations = rows * row * ACTIVATION_BYTES + logits
    shared = deployed.group * deployed.pipeline_parallel > 1.0
    communication = np.where(
        shared, COMMUNICATION_BYTES + 2.0 * rows * batch.hidden_size * ACTIVATION_BYTES, 0.0
    )
    capacity = deployed.capacity_bytes
    runtime = (1.0 - backend.memory_fraction) * capacity
    room = capacity - (weights + activations + communication + runtime)
    admitted = np.floor(np.maximum(room, 0.0) / kv) * deployed.data_parallel
    return Memory(weights, activations, communication, runtime, kv, capacity, admitted)
