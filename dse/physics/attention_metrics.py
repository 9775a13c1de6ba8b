"""What of a shape's attention no quality law sees, as metrics that a space may bound.

All arrays have shape (n,). A full layer is one in which a token may attend to every token before
it: grouped-query attention without window or chunk, latent attention, either with an indexer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dse.space.candidates import Block, CandidateBatch, Floats

ATTENTION_METRICS = (
    "num_attention_heads", "num_key_value_heads", "query_heads_per_kv_head",
    "full_attention_layers", "full_attention_share",
)  # fmt: skip


def attention_metrics(batch: CandidateBatch) -> Mapping[str, Floats]:
    """Heads of the attention layers, and how many layers are full attention.

    Query heads are the most and KV heads the fewest of any attention layer, and query heads for
    each KV head the most. Latent attention counts as multi-head: every head has keys and values of
    its own, made from one latent (DeepSeek-V2, arXiv 2405.04434, section 2.1). In a compressed
    cache all heads read the same one (DeepSeek-V4). NaN for a model without attention layers.
    """
    none = np.full(len(batch), np.nan)
    heads, kv_heads, group, full = none, none, none, np.zeros(len(batch))
    for block in batch.blocks:
        if block.kind not in ("gqa", "mla", "compressed"):
            continue
        there, queries = block.count > 0.0, block["heads"]
        keys = queries if block.kind == "mla" else block.sizes.get("kv_heads", np.ones(len(batch)))
        heads = np.where(there, np.fmax(heads, queries), heads)
        kv_heads = np.where(there, np.fmin(kv_heads, keys), kv_heads)
        ratio = queries / np.maximum(keys, 1.0)
        group = np.where(there, np.fmax(group, ratio), group)
        full = full + _full_layers(block)
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "query_heads_per_kv_head": group,
        "full_attention_layers": full,
        "full_attention_share": full / batch.layers,
    }


def _full_layers(block: Block) -> Floats:
    """(n,) of a block of attention layers, those in which a token may attend to all before it."""
    if block.kind == "mla":
        return block.count
    if block.kind == "compressed":  # most tokens are seen as sums of several
        return block.count * 0.0
    local = block["window"] > 0.0
    if "chunk" in block.sizes:
        local = local | (block["chunk"] > 0.0)
    return np.where(local, 0.0, block.count)
