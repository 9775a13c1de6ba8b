"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

The cache holds one latent of kv_lora_rank + qk_rope_head_dim numbers a token, whole on every
tensor-parallel rank (attention data-parallel avoids the copies). Decode works on the latent with
the up-projections absorbed into query and output; prefill expands keys and values.

Optional sizes: an indexer (DeepSeek-V3.2), after which a token reads no more than `index_topk`
latents; a prompt then runs the cheaper of the two forms, expanded over all tokens or absorbed over
the chosen ones. `output_gate` is as wide as the heads' output, from the hidden state (Kimi K3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.blocks import indexer
from dse.physics.blocks.attention import paged, seen_by_decode, seen_by_prompt
from dse.physics.deployed import ACTIVATION_BYTES, Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step


def _heads(deployed: Deployed, block: Block) -> Floats:
    return np.ceil(block["heads"] / deployed.tensor_parallel)


def _latent(block: Block) -> Floats:
    return block["kv_lora_rank"] + block["qk_rope_head_dim"]


def _projections(deployed: Deployed, block: Block) -> tuple[tuple[Floats, Floats], ...]:
    """(columns, rows) on one chip: the replicated down-projections, the query up-projection (from
    the hidden state where there is no query latent), the KV up-projection, the output."""
    hidden, heads = deployed.batch.hidden_size, _heads(deployed, block)
    q_rank = block["q_lora_rank"]
    query = heads * (block["qk_nope_head_dim"] + block["qk_rope_head_dim"])
    return (
        (q_rank + _latent(block), hidden),
        (query, np.where(q_rank > 0.0, q_rank, hidden)),
        (heads * (block["qk_nope_head_dim"] + block["v_head_dim"]), block["kv_lora_rank"]),
        (hidden, heads * block["v_head_dim"]),
    )


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    down, query, kv, out = (columns * rows for columns, rows in _projections(deployed, block))
    elements = down + query + kv + out
    if "output_gate" in block.sizes:
        elements = elements + block["output_gate"] * out
    if "index_topk" in block.sizes:
        _, query_rows = _projections(deployed, block)[1]
        elements = elements + indexer.weight_elements(deployed, block, query_rows)
    return {"attention": elements}


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    bytes_ = _latent(block) * deployed.kv_bytes * paged(tokens)
    if "index_topk" in block.sizes:
        bytes_ = bytes_ + indexer.key_bytes_per_token(block) * paged(tokens)
    return bytes_


def add(step: Step, block: Block) -> None:
    deployed, count, rows = step.deployed, block.count, step.rows
    heads, latent = _heads(deployed, block), _latent(block)
    down, query, kv, out = _projections(deployed, block)
    query_width = block["qk_nope_head_dim"] + block["qk_rope_head_dim"]
    pair = query_width + block["v_head_dim"]

    step.elementwise("attention norm", count, 3.0 * rows * step.hidden_size)
    step.gemm("query and KV down-projection", count, "attention", rows, *down)
    step.elementwise("latent norms, rotary embedding", count, 4.0 * rows * down[0])
    step.gemm("query up-projection", count, "attention", rows, *query)
    step.gemm("KV up-projection", count, "attention", rows, *kv)
    flops = step.prefill_rows * step.prompt_tokens * heads * pair
    context = step.context
    if "index_topk" in block.sizes:
        topk = block["index_topk"]
        indexer.add(step, block, query[1])
        absorbed = 2.0 * heads * (latent + block["kv_lora_rank"])
        chosen = step.prefill_rows * seen_by_prompt(step.prompt_tokens, topk) * absorbed
        flops = np.where(topk > 0.0, np.minimum(flops, chosen), flops)
        context = seen_by_decode(context, topk)
    if "output_gate" in block.sizes:
        gated = count * (block["output_gate"] > 0.0)
        step.gemm("attention output gate", gated, "attention", rows, out[1], step.hidden_size)
    step.ledger.operator(
        "attention over the prompt",
        count,
        deployed.law("mla_prefill_attention", "kv"),
        flops,
        2.0 * step.prefill_rows * heads * pair * ACTIVATION_BYTES,
        0.0,
        step.has_prefill,
    )
    read = step.decode_rows * context
    cache = read * latent * deployed.kv_bytes
    step.ledger.operator(
        "attention over the KV cache",
        count,
        deployed.law("mla_decode_attention", "kv"),
        2.0 * read * step.verified * heads * (latent + block["kv_lora_rank"]),
        cache,
        cache,
        step.has_decode,
        held="cache",
    )
    step.gemm("attention output projection", count, "attention", rows, *out)
    step.tensor_all_reduce("attention all-reduce", count)
