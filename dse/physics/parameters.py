"""Parameters of a model by part, and what its requests keep in memory: cache and states.

All arrays have shape (n,); h is the hidden size. A block of count 0 adds exactly 0. Blocks are
added in their order, so that a row does not depend on the batch it is in. Left out, as they are
below one part in a thousand of every published shape: biases other than those of query, key and
value, per-head norms, attention sinks, mixtures of residual streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.physics.blocks import compressed, indexer
from dse.physics.blocks.gqa import projected_width
from dse.physics.blocks.moe import expert_hidden
from dse.physics.blocks.state import CONV_BYTES, STATE_BYTES
from dse.schema.blocks import FEED_FORWARD, MIXERS
from dse.schema.dtypes import BYTES
from dse.space.candidates import Block, CandidateBatch, Floats


@dataclass(frozen=True, slots=True)
class Parameters:
    """Each (n,), in parameters of the whole model.

    `mlp` holds dense layers and shared experts, `experts` every routed expert, of which
    `active_experts` serve one token; `norms` holds norms and biases. `embedding` is the input
    table; `head` is the output table, 0 where the input table serves as both; `positions` is a
    table of learned positions.
    """

    attention: Floats
    mlp: Floats
    experts: Floats
    active_experts: Floats
    router: Floats
    norms: Floats
    embedding: Floats
    head: Floats
    positions: Floats

    @property
    def non_embedding(self) -> Floats:
        """(n,) all but the two tables."""
        return self.attention + self.mlp + self.experts + self.router + self.norms

    @property
    def total(self) -> Floats:
        """(n,) all, a tied table once."""
        return self.non_embedding + self.embedding + self.head + self.positions

    @property
    def active_non_embedding(self) -> Floats:
        """(n,) what a token meets between the two tables."""
        return self.attention + self.mlp + self.active_experts + self.router + self.norms

    @property
    def active(self) -> Floats:
        """(n,) what a token meets: not the input table, of which it reads one row, but the head.

        DeepSeek-V3 (README_WEIGHTS.md) and gpt-oss (model card, table 1) count alike.
        """
        return self.active_non_embedding + np.where(self.head > 0, self.head, self.embedding)


def parameters(batch: CandidateBatch) -> Parameters:
    """The parameters of every candidate, summed over its blocks."""
    zero = np.zeros(len(batch))
    attention, mlp, experts, active_experts, router, positions = (zero,) * 6
    norms = batch.hidden_size  # the last one
    for block in batch.blocks:
        if block.kind in MIXERS:
            attention = attention + attention_parameters(block, batch.hidden_size)
        elif block.kind in FEED_FORWARD:
            mlp = mlp + mlp_parameters(block, batch.hidden_size)
        else:
            positions = positions + block.count * block["rows"] * batch.hidden_size
            continue
        if block.kind == "moe":
            one = expert_parameters(block, batch.hidden_size)
            experts = experts + block.count * block["experts"] * one
            active_experts = active_experts + block.count * block["experts_per_token"] * one
            router = router + block.count * block["experts"] * batch.hidden_size
        norms = norms + norm_parameters(block, batch.hidden_size)
    table = batch.vocab_size * batch.hidden_size
    head = np.where(batch.tied_embeddings > 0, 0.0, table)
    return Parameters(
        attention, mlp, experts, active_experts, router, norms, table, head, positions
    )


def attention_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) weights of the projections of all layers of a block that mixes tokens."""
    return block.count * _MIXERS[block.kind](block, hidden)


def _gqa(block: Block, hidden: Floats) -> Floats:
    """h (heads d + kv_heads (d + d_v)) + heads d_v h, with head size d (d_v for values); an output
    gate adds h heads d_v, relative positions h heads d, an indexer its own."""
    heads = block["heads"]
    output = heads * block["v_head_dim"] * hidden
    values = block["kv_heads"] * projected_width(block)
    total = hidden * (heads * block["head_dim"] + values) + output
    if "output_gate" in block.sizes:
        total = total + block["output_gate"] * output
    if "relative_positions" in block.sizes:
        total = total + block["relative_positions"] * hidden * heads * block["head_dim"]
    if "index_topk" in block.sizes:
        total = total + _indexer(block, hidden, hidden)
    return total


def _mla(block: Block, hidden: Floats) -> Floats:
    """Queries h q + q heads (nope + rope), or h heads (nope + rope) without a query rank q; keys
    and values h (c + rope) + c heads (nope + d_v) with latent rank c; output heads d_v h.
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.)"""
    heads = block["heads"]
    output = heads * block["v_head_dim"] * hidden
    query = heads * (block["qk_nope_head_dim"] + block["qk_rope_head_dim"])
    rank, latent = block["q_lora_rank"], block["kv_lora_rank"]
    queries = np.where(rank > 0, rank * (hidden + query), hidden * query)
    keys = hidden * (latent + block["qk_rope_head_dim"])
    values = latent * heads * (block["qk_nope_head_dim"] + block["v_head_dim"])
    total = queries + keys + values + output
    if "output_gate" in block.sizes:
        total = total + block["output_gate"] * output
    if "index_topk" in block.sizes:
        total = total + _indexer(block, hidden, np.where(rank > 0, rank, hidden))
    return total


def _indexer(block: Block, hidden: Floats, query_rows: Floats) -> Floats:
    return hidden * indexer.columns(block) + query_rows * indexer.query_columns(block)


def _compressed(block: Block, hidden: Floats) -> Floats:
    """Down-projections, queries, indexer queries, the grouped output: heads d r + groups r h."""
    width, rank = block["heads"] * block["head_dim"], block["q_lora_rank"]
    queries = rank * (width + indexer.query_columns(block))
    output = block["output_rank"] * (width + block["output_groups"] * hidden)
    return hidden * compressed.hidden_columns(block) + queries + output


def _delta_net(block: Block, hidden: Floats) -> Floats:
    """With key width K and value width V: h (2 K + V + gates heads) in, V h out, an output gate of
    h V or of rank r, r (h + V), a decay of rank r, r (h + heads d_k), and the convolution."""
    keys = block["key_heads"] * block["key_head_dim"]
    values = block["value_heads"] * block["value_head_dim"]
    inward = hidden * (2.0 * keys + values + block["gates_per_head"] * block["value_heads"])
    rank = block["output_gate_rank"]
    gate = np.where(rank > 0.0, rank * (hidden + values), hidden * values)
    decay = block["decay_rank"] * (hidden + block["value_heads"] * block["key_head_dim"])
    convolution = block["conv_width"] * (2.0 * keys + values)
    return inward + gate + decay + convolution + hidden * values


def _mamba(block: Block, hidden: Floats) -> Floats:
    """Mamba-2: h (2 i + 2 groups s + heads) in, i h out. Mamba-1: 2 i h in, i (r + 2 s) + r i for
    the time step, i s for A, i h out; inner size i, state s."""
    inner, state, rank = block["inner_size"], block["state_size"], block["dt_rank"]
    shared = 2.0 * block["groups"] * state
    first = np.where(block["heads"] > 0.0, 0.0, inner)
    inward = hidden * (2.0 * inner + shared + block["heads"])
    small = first * (2.0 * rank + 3.0 * state)
    return inward + small + block["conv_width"] * (inner + shared) + hidden * inner


_MIXERS = {
    "gqa": _gqa,
    "mla": _mla,
    "compressed": _compressed,
    "delta_net": _delta_net,
    "mamba": _mamba,
}


def mlp_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) weights of dense layers, or of the shared experts of sparse ones: matrices h width; the
    projections to a latent that routed experts work on count here."""
    name = "intermediate_size" if block.kind == "mlp" else "shared_intermediate_size"
    total = block.count * block["matrices"] * hidden * block[name]
    if "expert_hidden_size" in block.sizes:
        total = total + block.count * 2.0 * hidden * block["expert_hidden_size"]
    return total


def expert_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) weights of one routed expert of one layer: matrices h width."""
    return block["matrices"] * expert_hidden(block, hidden) * block["expert_intermediate_size"]


def norm_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) one norm before each block; the norms of latent ranks; query, key and value biases; the
    vectors of states (decays, time steps, skips, gated norms)."""
    each = hidden
    if block.kind == "mla":
        each = each + block["q_lora_rank"] + block["kv_lora_rank"]
    elif block.kind == "gqa":
        values = block["kv_heads"] * (block["head_dim"] + block["v_head_dim"])
        each = each + block["qkv_bias"] * (block["heads"] * block["head_dim"] + values)
    elif block.kind == "delta_net":
        each = each + 2.0 * block["value_heads"] + block["value_head_dim"]
    elif block.kind == "mamba":
        shared = 2.0 * block["groups"] * block["state_size"]
        first = np.where(block["heads"] > 0.0, 0.0, block["inner_size"])
        each = each + 2.0 * block["inner_size"] + shared + 3.0 * block["heads"] + first
    return block.count * each


def kv_elements_per_token(batch: CandidateBatch) -> Floats:
    """(n,) elements that one token adds to the caches of all layers, unsharded.

    gqa: kv_heads (d + d_v), nothing where a layer reuses those of another; mla: latent rank + rope
    part, shared by all heads (DeepSeek-V2, table 1); compressed: a latent every `ratio` tokens.
    Windowed and chunked layers count in full: their cap depends on the context. States and the
    window of compressed attention do not grow; the keys of an indexer have a format of their own.
    """
    total = np.zeros(len(batch))
    for block in batch.blocks:
        if block.kind == "gqa":
            each = block["kv_heads"] * (block["head_dim"] + block["v_head_dim"])
            if "reuses_kv" in block.sizes:
                each = each * (1.0 - block["reuses_kv"])
        elif block.kind == "mla":
            each = block["kv_lora_rank"] + block["qk_rope_head_dim"]
        elif block.kind == "compressed":
            each = block["head_dim"] / compressed.ratio(block)
        else:
            continue
        total = total + block.count * each
    return total


def index_bytes_per_token(batch: CandidateBatch) -> Floats:
    """(n,) bytes that one token adds to the key caches of the indexers of all layers."""
    total = np.zeros(len(batch))
    for block in batch.blocks:
        if "index_topk" not in block.sizes:
            continue
        each = indexer.key_bytes_per_token(block)
        if block.kind == "compressed":
            each = each / compressed.ratio(block)
        total = total + block.count * each
    return total


def state_bytes_per_request(batch: CandidateBatch) -> Floats:
    """(n,) bytes that a request keeps in all layers whatever its length, unsharded: states in
    float32, the inputs of short convolutions in bf16, the window of compressed attention in the
    format of the cache."""
    total = np.zeros(len(batch))
    for block in batch.blocks:
        if block.kind == "delta_net":
            keys = block["key_heads"] * block["key_head_dim"]
            values = block["value_heads"] * block["value_head_dim"]
            state, channels = values * block["key_head_dim"], 2.0 * keys + values
        elif block.kind == "mamba":
            state = block["inner_size"] * block["state_size"]
            channels = block["inner_size"] + 2.0 * block["groups"] * block["state_size"]
        elif block.kind == "compressed":
            latents = block["window"] * block["head_dim"]
            total = total + block.count * latents * BYTES[batch.kv_dtype]
            continue
        else:
            continue
        kept = channels * np.maximum(block["conv_width"] - 1.0, 0.0)
        total = total + block.count * (state * STATE_BYTES + kept * CONV_BYTES)
    return total
