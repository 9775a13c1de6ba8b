"""What of a shape's attention no quality law sees, as metrics that a space may bound.

All arrays have shape (n,). A full layer is one in which a token may attend to every token before
it: grouped-query attention without window or chunk, latent attention, either with an indexer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dse.blocks import KINDS
from dse.space.candidates import CandidateBatch, Floats

ATTENTION_METRICS = (
    "num_attention_heads",
    "num_key_value_heads",
    "query_heads_per_kv_head",
    "full_attention_layers",
    "full_attention_share",
)


def attention_metrics(batch: CandidateBatch) -> Mapping[str, Floats]:
    """Heads of the attention layers, and how many layers are full attention.

    Query heads are the most and KV heads the fewest of any attention layer, and query heads for
    each KV head the most. NaN for a model without attention layers.
    """
    none = np.full(len(batch), np.nan)
    heads, kv_heads, group, full = none, none, none, np.zeros(len(batch))
    for block in batch.blocks:
        kind = KINDS[block.kind]
        full = full + kind.full_layers(block)
        found = kind.heads(block)
        if found is None:
            continue
        there, (queries, keys) = block.count > 0.0, found
        heads = np.where(there, np.fmax(heads, queries), heads)
        kv_heads = np.where(there, np.fmin(kv_heads, keys), kv_heads)
        ratio = queries / np.maximum(keys, 1.0)
        group = np.where(there, np.fmax(group, ratio), group)
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "query_heads_per_kv_head": group,
        "full_attention_layers": full,
        "full_attention_share": full / batch.layers,
    }
