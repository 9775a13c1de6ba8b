"""Parameters of a model by part, and what its requests keep in memory: cache and states.

All arrays have shape (n,); h is the hidden size. A block of count 0 adds exactly 0. Blocks are
added in their order, so that a row does not depend on the batch it is in. Left out, as they are
below one part in a thousand of every published shape: biases other than those of query, key and
value, per-head norms, attention sinks, mixtures of residual streams.

What of a shape's attention no quality law sees are metrics that a space may bound. A full layer is
one in which a token may attend to every token before it: grouped-query attention without window or
chunk, latent attention, either with an indexer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from dse.blocks import KINDS
from dse.record import record
from dse.space.candidates import BYTES, CandidateBatch, Floats


class Whole:
    """A model that nothing divides (`dse.blocks.operators.Ranks`): its weights are those of the
    checkpoint."""

    def __init__(self, batch: CandidateBatch) -> None:
        one = np.ones(len(batch))
        self.batch = batch
        self.tensor_parallel = self.expert_parallel = self.experts_tensor_parallel = one
        self.redundant_experts: Floats | None = None
        self.kv_bytes = BYTES[batch.kv_dtype]


@record
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

    @cached_property
    def non_embedding(self) -> Floats:
        """(n,) all but the two tables."""
        return self.attention + self.mlp + self.experts + self.router + self.norms

    @cached_property
    def total(self) -> Floats:
        """(n,) all, a tied table once."""
        return self.non_embedding + self.embedding + self.head + self.positions

    @cached_property
    def active_non_embedding(self) -> Floats:
        """(n,) what a token meets between the two tables."""
        return self.attention + self.mlp + self.active_experts + self.router + self.norms

    @cached_property
    def active(self) -> Floats:
        """(n,) what a token meets: not the input table, of which it reads one row, but the head.

        DeepSeek-V3 (README_WEIGHTS.md) and gpt-oss (model card, table 1) count alike.
        """
        return self.active_non_embedding + np.where(self.head > 0, self.head, self.embedding)


def parameters(batch: CandidateBatch) -> Parameters:
    """The parameters of every candidate, summed over its blocks."""
    zero = np.zeros(len(batch))
    total: dict[str, Floats] = dict.fromkeys(
        ("attention", "mlp", "experts", "router", "positions"), zero
    )
    active_experts = zero
    norms = batch.hidden_size  # the last one
    whole = Whole(batch)
    for block in batch.blocks:
        kind = KINDS[block.kind]
        weights = kind.weight_elements(whole, block)
        for part, elements in weights.items():
            total[part] = total[part] + block.count * elements
        if "experts" in weights:
            active = kind.active_elements(whole, block)
            active_experts = active_experts + block.count * active["experts"]
        norms = norms + block.count * kind.norm_elements(batch.hidden_size, block)
    table = batch.vocab_size * batch.hidden_size
    head = np.where(batch.tied_embeddings > 0, 0.0, table)
    return Parameters(
        **total, active_experts=active_experts, norms=norms, embedding=table, head=head
    )


def kv_elements_per_token(batch: CandidateBatch) -> Floats:
    """(n,) elements that one token adds to the caches of all layers, undivided. Windowed and
    chunked layers count in full: their cap depends on the context. States and the window of
    compressed attention do not grow; the keys of an indexer have a format of their own."""
    return batch.total(lambda block: block.count * KINDS[block.kind].kv_elements_per_token(block))


def index_bytes_per_token(batch: CandidateBatch) -> Floats:
    """(n,) bytes that one token adds to the key caches of the indexers of all layers."""
    return batch.total(lambda block: block.count * KINDS[block.kind].index_bytes_per_token(block))


def state_bytes_per_request(batch: CandidateBatch) -> Floats:
    """(n,) bytes that a request keeps in all layers whatever its length, undivided: states in
    float32, the inputs of short convolutions in bf16, the window of compressed attention in the
    format of the cache."""
    whole = Whole(batch)
    return batch.total(lambda block: block.count * KINDS[block.kind].state_bytes(whole, block))


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
    values = (heads, kv_heads, group, full, full / batch.layers)
    return dict(zip(ATTENTION_METRICS, values, strict=True))
