"""Grouped-query attention (Ainslie et al. 2023), multi-head and multi-query included, with an
optional sliding window. KV heads are replicated when tensor parallelism exceeds them.

Optional sizes: `chunk` (a token sees its own chunk alone), `output_gate` (as wide as the heads'
output, from the hidden state), `values_from_keys` (no projection of their own), `reuses_kv` (the
keys and values of an earlier layer), `relative_positions` (one more projection, of positions,
computed once), `bidirectional` (an encoder: a token sees the whole prompt, and no cache is kept),
and an indexer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.blocks import indexer
from dse.blocks.attention import cached, decode_reads, paged, prompt_reads
from dse.blocks.kind import Attention, project
from dse.blocks.operators import ACTIVATION_BYTES, Block, Floats, Operators, Ranks, Role


def _pair(block: Block) -> Floats:
    """(n,) elements of a key and its value."""
    return block["head_dim"] + block["v_head_dim"]


def _projected(block: Block) -> Floats:
    """(n,) columns that a KV head takes of the projection from the hidden state."""
    values = block["v_head_dim"] * (1.0 - block.optional("values_from_keys"))
    return (block["head_dim"] + values) * (1.0 - block.optional("reuses_kv"))


class Gqa(Attention):
    words = "grouped-query attention"
    sizes = ("heads", "kv_heads", "head_dim", "v_head_dim", "window", "qkv_bias")
    optional = (
        ("chunk",),
        ("output_gate",),
        ("values_from_keys",),
        ("reuses_kv",),
        ("relative_positions",),
        ("bidirectional",),
        indexer.SIZES,
    )
    may_be_zero = frozenset({"window", "qkv_bias"})
    order = 0

    def _heads(self, ranks: Ranks, block: Block) -> tuple[Floats, Floats]:
        """(query heads, KV heads) on one chip."""
        tp = ranks.tensor_parallel
        return np.ceil(block["heads"] / tp), np.ceil(block["kv_heads"] / tp)

    def _widths(self, ranks: Ranks, block: Block) -> tuple[Floats, Floats]:
        """(columns of the fused query-key-value projection, rows of the output projection)."""
        heads, kv_heads = self._heads(ranks, block)
        qkv = heads * block["head_dim"] + kv_heads * _projected(block)
        out = heads * block["v_head_dim"]
        return qkv + block.optional("output_gate") * out, out

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """h (heads d + kv_heads (d + d_v)) + heads d_v h, with head size d (d_v for values); an
        output gate adds h heads d_v, relative positions h heads d, an indexer its own."""
        hidden = ranks.batch.hidden_size
        qkv, out = self._widths(ranks, block)
        heads, _ = self._heads(ranks, block)
        positions = block.optional("relative_positions") * hidden * heads * block["head_dim"]
        elements = hidden * (qkv + out) + positions
        if "index_topk" in block.sizes:
            elements = elements + indexer.weight_elements(block, hidden, hidden)
        return {"attention": elements}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        """The norm before the layer; query, key and value biases."""
        width = block["heads"] * block["head_dim"] + block["kv_heads"] * _pair(block)
        return hidden + block["qkv_bias"] * width

    def _kept(self, block: Block, kv_heads: Floats) -> Floats:
        """(n,) elements that a token leaves in the cache: none of a layer that reuses another's, or
        of an encoder."""
        elements = kv_heads * _pair(block) * (1.0 - block.optional("reuses_kv"))
        return elements * (1.0 - block.optional("bidirectional"))

    def kv_bytes_per_request(self, ranks: Ranks, block: Block, tokens: Floats) -> Floats:
        _, kv_heads = self._heads(ranks, block)
        bytes_ = self._kept(block, kv_heads) * ranks.kv_bytes * paged(cached(block, tokens))
        if "index_topk" in block.sizes:
            bytes_ = bytes_ + paged(tokens) * indexer.key_bytes_per_token(block)
        return bytes_

    def kv_elements_per_token(self, block: Block) -> Floats:
        return self._kept(block, block["kv_heads"])

    def passed_bytes(
        self, ranks: Ranks, block: Block, tokens: Floats, sequences: Floats
    ) -> Floats | None:
        """Layers with a window pass that much."""
        _, kv_heads = self._heads(ranks, block)
        near = block["window"] * sequences
        tokens = np.where(block["window"] > 0.0, np.minimum(tokens, near), tokens)
        return tokens * (kv_heads * _projected(block)) * ACTIVATION_BYTES

    def heads(self, block: Block) -> tuple[Floats, Floats]:
        return block["heads"], block["kv_heads"]

    def full_layers(self, block: Block) -> Floats:
        local = (block["window"] > 0.0) | (block.optional("chunk") > 0.0)
        return np.where(local, 0.0, block.count)

    def in_words(self, sizes: Mapping[str, Any]) -> str:
        if sizes["window"]:
            return f"attention with a window of {sizes['window']:,} tokens"
        if sizes.get("chunk"):
            return f"attention in chunks of {sizes['chunk']:,} tokens"
        if sizes.get("bidirectional"):
            return "attention that looks both ways"
        return "full attention"

    def in_short(self, sizes: Mapping[str, Any]) -> str:
        kind = "window" if sizes["window"] else "chunk"
        local = sizes["window"] or sizes.get("chunk")
        if sizes.get("bidirectional"):
            return "both ways"
        return f"{kind}{local}" if local else ""

    def add(self, step: Operators, block: Block) -> None:
        deployed, count, hidden, rows = step.deployed, block.count, step.hidden_size, step.rows
        heads, kv_heads = self._heads(deployed, block)
        qkv, out = self._widths(deployed, block)
        pair = _pair(block)
        computed, filled = deployed.heads(block, "pair", block["head_dim"], block["v_head_dim"])

        step.elementwise(Role.NORM, "attention norm", count, 3.0 * rows * hidden)
        project(step, Role.PROJECTION, "query-key-value projection", count, (qkv, hidden))
        label = "rotary embedding, cache write"
        step.elementwise(Role.ELEMENTWISE, label, count, 2.0 * rows * qkv)

        if "index_topk" in block.sizes:
            indexer.add(step, block, hidden)
        seen = prompt_reads(block, step.prompt_tokens)
        read = step.decode_rows * decode_reads(block, step.context)
        self.attend(
            step,
            count,
            prompt_flops=2.0 * step.prefill_rows * seen * heads * computed,
            prompt_bytes=step.prefill_rows * (heads + kv_heads) * pair * ACTIVATION_BYTES,
            decode_flops=2.0 * read * step.verified * heads * computed,
            cache=read * (kv_heads * pair * deployed.kv_bytes),
            prompt_filled=filled,
            decode_filled=filled,
            head=computed / 2.0,
        )
        project(step, Role.OUTPUT, "attention output projection", count, (hidden, out))
        step.tensor_all_reduce("attention all-reduce", count)


KIND = Gqa()
