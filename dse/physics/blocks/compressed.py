"""Latent attention over a compressed cache (DeepSeek-V4 technical report, section 2.3).

Keys and values of a layer are one latent of `head_dim` a token, shared by all heads. The last
`window` tokens stay as they are; before them one latent stands for `ratio` tokens, made by a gated
sum (ratio 0: the window is all there is). With an indexer (ratio 4) a token reads the `index_topk`
best of them and neighbouring sums overlap, which doubles their projections; without (ratio 128) it
reads all. Heads are put together by a grouped low-rank output projection.
Decode takes the law of latent attention; a prompt takes that of latent prefill attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.blocks import indexer
from dse.physics.blocks.attention import paged, seen_by_decode, seen_by_prompt
from dse.physics.deployed import ACTIVATION_BYTES, Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step


def ratio(block: Block) -> Floats:
    """(n,) tokens that one compressed latent stands for, infinite without compression."""
    return np.where(block["ratio"] > 0.0, np.maximum(block["ratio"], 1.0), np.inf)


def hidden_columns(block: Block) -> Floats:
    """(n,) columns of the projections from the hidden state: the latents of query and token, the
    latents and gates that are summed, those of the indexer's keys, the weights of its heads."""
    indexed = block["index_heads"] > 0.0
    summed = np.where(indexed, 4.0, 2.0) * block["head_dim"] * (block["ratio"] > 0.0)
    keys = np.where(indexed, 4.0 * block["index_head_dim"], 0.0)
    return block["q_lora_rank"] + block["head_dim"] + summed + keys + block["index_heads"]


def _projections(deployed: Deployed, block: Block) -> tuple[tuple[Floats, Floats], ...]:
    """(columns, rows) on one chip: from the hidden state (whole on every rank); the query; the two
    halves of the output, whose groups of heads are split over the ranks."""
    hidden, tp = deployed.batch.hidden_size, deployed.tensor_parallel
    width = np.ceil(block["heads"] / tp) * block["head_dim"]
    return (
        (hidden_columns(block), hidden),
        (width, block["q_lora_rank"]),
        (block["output_rank"], width),
        (hidden, np.ceil(block["output_groups"] / tp) * block["output_rank"]),
    )


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    down, query, first, second = (c * rows for c, rows in _projections(deployed, block))
    queries = block["q_lora_rank"] * indexer.query_columns(block)
    return {"attention": down + query + first + second + queries}


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    """Compressed latents and indexer keys, and the window, which all requests keep."""
    latent = block["head_dim"] * deployed.kv_bytes
    far = paged(tokens / ratio(block)) * (latent + indexer.key_bytes_per_token(block))
    return far + paged(seen_by_decode(tokens, block["window"])) * latent


def add(step: Step, block: Block) -> None:
    deployed, count, rows = step.deployed, block.count, step.rows
    heads = np.ceil(block["heads"] / deployed.tensor_parallel)
    down, query, first, second = _projections(deployed, block)
    latent, per_latent = block["head_dim"], ratio(block)

    step.elementwise("attention norm", count, 3.0 * rows * step.hidden_size)
    step.gemm("query and KV down-projection", count, "attention", rows, *down)
    step.elementwise("latent norms, gated sums, rotary embedding", count, 4.0 * rows * down[0])
    step.gemm("query up-projection", count, "attention", rows, *query)
    indexer.add_scores(step, block, block["q_lora_rank"], per_latent)

    near = seen_by_prompt(step.prompt_tokens, block["window"])
    far = step.prompt_tokens / 2.0 / per_latent
    chosen = seen_by_prompt(step.prompt_tokens / per_latent, block["index_topk"])
    seen = near + np.where(block["index_topk"] > 0.0, chosen, far)
    step.ledger.operator(
        "attention over the prompt",
        count,
        deployed.law("mla_prefill_attention", "kv"),
        4.0 * step.prefill_rows * seen * heads * latent,
        4.0 * step.prefill_rows * heads * latent * ACTIVATION_BYTES,
        0.0,
        step.has_prefill,
    )
    near = seen_by_decode(step.context, block["window"])
    read = step.decode_rows * (
        near + seen_by_decode(step.context / per_latent, block["index_topk"])
    )
    cache = read * latent * deployed.kv_bytes
    step.ledger.operator(
        "attention over the KV cache",
        count,
        deployed.law("mla_decode_attention", "kv"),
        4.0 * read * step.verified * heads * latent,
        cache,
        cache,
        step.has_decode,
        held="cache",
    )
    step.gemm("attention output, within groups", count, "attention", rows, *first)
    step.gemm("attention output projection", count, "attention", rows, *second)
    step.tensor_all_reduce("attention all-reduce", count)
