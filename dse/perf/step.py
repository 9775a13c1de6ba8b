"""One forward step of a model on one attention rank: decoding requests, prompt tokens, or both.

A step is what the scheduler runs at once. With pipeline stages it is the path of one micro-batch
through all of them: every layer once, plus a hop a stage.
"""

from __future__ import annotations

import numpy as np

from dse.candidates import Block, Floats
from dse.perf.collectives import groups, stage_hops
from dse.perf.deployed import ACTIVATION_BYTES, Deployed
from dse.perf.ledger import Ledger
from dse.perf.operators import KINDS

VOCABULARY_MULTIPLE = 64.0  # serving stacks pad the vocabulary to 64 times the tensor parallelism


def padded_vocabulary(deployed: Deployed) -> Floats:
    """(n,) vocabulary rows on one tensor-parallel rank."""
    unit = VOCABULARY_MULTIPLE * deployed.tensor_parallel
    return np.ceil(deployed.batch.vocab_size / unit) * VOCABULARY_MULTIPLE


class Step:
    """The work of one step. All arrays (n,).

    decode_rows: requests that decode one token on each attention rank; context: tokens of KV cache
    each of them reads; prefill_rows: prompt tokens on each attention rank; prompt_tokens: the
    length of the prompts that these belong to.
    """

    def __init__(
        self,
        deployed: Deployed,
        *,
        decode_rows: Floats,
        context: Floats,
        prefill_rows: Floats,
        prompt_tokens: Floats,
        keep: bool = False,
        parts: bool = True,
    ) -> None:
        self.deployed = deployed
        self.ledger = Ledger(deployed, keep=keep, parts=parts)
        self.hidden_size = deployed.batch.hidden_size
        self.decode_rows = decode_rows
        self.context = context
        self.prefill_rows = prefill_rows
        self.prompt_tokens = prompt_tokens
        self.has_decode: Floats = (decode_rows > 0).astype(np.float64)
        self.has_prefill: Floats = (prefill_rows > 0).astype(np.float64)
        self.rows = decode_rows + prefill_rows
        self.always = np.ones(deployed.n)
        self.tensor_group, self.expert_group = groups(deployed)
        self._run()

    def _run(self) -> None:
        deployed, ledger, hidden = self.deployed, self.ledger, self.hidden_size
        row_bytes = hidden * ACTIVATION_BYTES
        ledger.stream("embedding", self.always, self.gemm_law("bf16"), 2.0 * self.rows * row_bytes)
        for block in deployed.batch.blocks:
            if block.count.any():
                KINDS[block.kind].add(self, block)
        # Only the last token of each sequence reaches the output head.
        finished = self.decode_rows + self.prefill_rows / self.prompt_tokens
        vocabulary = padded_vocabulary(deployed)
        self.gemm("output head", self.always, "embedding", finished, vocabulary, hidden)
        # Every rank receives the columns of all others.
        gathered = finished * vocabulary * deployed.tensor_parallel * ACTIVATION_BYTES
        latency, transfer = self.tensor_group.all_to_all(gathered)
        ledger.network("gather logits", self.always, latency, transfer)
        for hops, latency, transfer in stage_hops(deployed, self.rows * row_bytes):
            ledger.network("pipeline hops", hops, latency, transfer)

    @property
    def seconds(self) -> Floats:
        return self.ledger.seconds

    def gemm_law(self, part: str):
        return self.deployed.law("gemm", part)

    def gemm(
        self, name: str, count: Floats, part: str, rows: Floats, out: Floats, inner: Floats
    ) -> None:
        """`count` products of (rows, inner) with a (inner, out) weight of the given part."""
        weight = inner * out
        touched = weight * self.deployed.weight_bytes.get(part, ACTIVATION_BYTES)
        bytes_ = touched + rows * (inner + out) * ACTIVATION_BYTES
        law = self.gemm_law(part)
        self.ledger.operator(name, count, law, 2.0 * rows * weight, bytes_, touched)

    def elementwise(self, name: str, count: Floats, elements: Floats) -> None:
        """`count` kernels that read and write `elements` 16-bit numbers in all."""
        self.ledger.stream(name, count, self.gemm_law("bf16"), elements * ACTIVATION_BYTES)

    def tensor_all_reduce(self, name: str, count: Floats) -> None:
        """Sums a layer's output over the tensor-parallel ranks."""
        bytes_ = self.rows * self.hidden_size * ACTIVATION_BYTES
        latency, transfer = self.tensor_group.all_reduce(bytes_)
        self.ledger.network(name, count, latency, transfer)


def weight_bytes_per_chip(deployed: Deployed) -> dict[str, Floats]:
    """Bytes of weights on the busiest chip by part, (n,): stages hold whole layers, the first holds
    the embedding, the last the output head."""
    stages = deployed.pipeline_parallel
    total: dict[str, Floats] = {}
    for block in deployed.batch.blocks:
        layers = layers_per_stage(block, stages)
        for part, elements in KINDS[block.kind].weight_elements(deployed, block).items():
            per_element = deployed.weight_bytes.get(part, ACTIVATION_BYTES)
            bytes_ = layers * elements * per_element
            total[part] = total[part] + bytes_ if part in total else bytes_
    table = padded_vocabulary(deployed) * deployed.batch.hidden_size
    tables = np.where((stages > 1.0) | (deployed.batch.tied_embeddings > 0.0), 1.0, 2.0)
    total["embedding"] = tables * table * deployed.weight_bytes["embedding"]
    return total


def layers_per_stage(block: Block, stages: Floats) -> Floats:
    """(n,) layers of a block on the fullest pipeline stage."""
    return np.ceil(block.count / stages)
