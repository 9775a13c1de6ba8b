"""Parameters of a model by part, and the elements that its KV cache holds for a token.

All arrays have shape (n,); h is the hidden size. A block of count 0 adds exactly 0. Blocks are
added in their order, so that a row does not depend on the batch it is in. Left out, as they are
below one part in a thousand of every published shape: biases other than those of query, key and
value, per-head norms, attention sinks, learned positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.candidates import Block, CandidateBatch, Floats


@dataclass(frozen=True, slots=True)
class Parameters:
    """Each (n,), in parameters of the whole model.

    `mlp` holds dense layers and shared experts, `experts` every routed expert, of which
    `active_experts` serve one token; `norms` holds norms and biases. `embedding` is the input
    table; `head` is the output table, 0 where the input table serves as both.
    """

    attention: Floats
    mlp: Floats
    experts: Floats
    active_experts: Floats
    router: Floats
    norms: Floats
    embedding: Floats
    head: Floats

    @property
    def non_embedding(self) -> Floats:
        """(n,) all but the two tables."""
        return self.attention + self.mlp + self.experts + self.router + self.norms

    @property
    def total(self) -> Floats:
        """(n,) all, a tied table once."""
        return self.non_embedding + self.embedding + self.head

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
    attention, mlp, experts, active_experts, router = zero, zero, zero, zero, zero
    norms = batch.hidden_size  # the last one
    for block in batch.blocks:
        if block.kind in ("gqa", "mla"):
            attention = attention + attention_parameters(block, batch.hidden_size)
        else:
            mlp = mlp + mlp_parameters(block, batch.hidden_size)
        if block.kind == "moe":
            one = expert_parameters(block, batch.hidden_size)
            experts = experts + block.count * block["experts"] * one
            active_experts = active_experts + block.count * block["experts_per_token"] * one
            router = router + block.count * block["experts"] * batch.hidden_size
        norms = norms + norm_parameters(block, batch.hidden_size)
    table = batch.vocab_size * batch.hidden_size
    head = np.where(batch.tied_embeddings > 0, 0.0, table)
    return Parameters(attention, mlp, experts, active_experts, router, norms, table, head)


def attention_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) weights of the attention projections of all layers of the block.

    gqa: h (heads d + kv_heads (d + d_v)) + heads d_v h, with head size d (d_v for values).
    mla: queries h q + q heads (nope + rope), or h heads (nope + rope) without a query rank q;
    keys and values h (c + rope) + c heads (nope + d_v) with latent rank c; output heads d_v h.
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.)
    """
    heads = block["heads"]
    output = heads * block["v_head_dim"] * hidden
    if block.kind == "gqa":
        values = block["kv_heads"] * (block["head_dim"] + block["v_head_dim"])
        return block.count * (hidden * (heads * block["head_dim"] + values) + output)
    query = heads * (block["qk_nope_head_dim"] + block["qk_rope_head_dim"])
    rank, latent = block["q_lora_rank"], block["kv_lora_rank"]
    queries = np.where(rank > 0, rank * (hidden + query), hidden * query)
    keys = hidden * (latent + block["qk_rope_head_dim"])
    values = latent * heads * (block["qk_nope_head_dim"] + block["v_head_dim"])
    return block.count * (queries + keys + values + output)


def mlp_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) weights of dense layers, or of the shared experts of sparse ones: matrices h width."""
    name = "intermediate_size" if block.kind == "mlp" else "shared_intermediate_size"
    return block.count * block["matrices"] * hidden * block[name]


def expert_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) weights of one routed expert of one layer: matrices h width."""
    return block["matrices"] * hidden * block["expert_intermediate_size"]


def norm_parameters(block: Block, hidden: Floats) -> Floats:
    """(n,) one norm before each block; the norms of latent ranks; query, key and value biases."""
    each = hidden
    if block.kind == "mla":
        each = each + block["q_lora_rank"] + block["kv_lora_rank"]
    elif block.kind == "gqa":
        values = block["kv_heads"] * (block["head_dim"] + block["v_head_dim"])
        each = each + block["qkv_bias"] * (block["heads"] * block["head_dim"] + values)
    return block.count * each


def kv_elements_per_token(batch: CandidateBatch) -> Floats:
    """(n,) elements that one token adds to the caches of all layers, unsharded.

    gqa: kv_heads (d + d_v); mla: latent rank + rope part, shared by all heads (DeepSeek-V2,
    table 1). Windowed layers count in full: their cap depends on the context.
    """
    total = np.zeros(len(batch))
    for block in batch.blocks:
        if block.kind == "gqa":
            each = block["kv_heads"] * (block["head_dim"] + block["v_head_dim"])
        elif block.kind == "mla":
            each = block["kv_lora_rank"] + block["qk_rope_head_dim"]
        else:
            continue
        total = total + block.count * each
    return total
