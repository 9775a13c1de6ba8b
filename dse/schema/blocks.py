"""The block kinds that a model is made of, and the parts of its weights.

`BLOCK_SIZES` are the sizes that every block of a kind has. `OPTIONAL_SIZES` are 0 where a block
does not name them, and a batch in which no model has one of a group does not carry the group: what
a model lacks costs no time.
"""

from __future__ import annotations

# Weight parts with a dtype of their own. Norms, biases and the router stay at 16 bits.
WEIGHT_PARTS = ("attention", "mlp", "experts", "embedding")

BLOCK_SIZES: dict[str, tuple[str, ...]] = {
    "gqa": ("heads", "kv_heads", "head_dim", "v_head_dim", "window", "qkv_bias"),
    "mla": (
        "heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim",
    ),
    # Latent attention over a compressed cache (DeepSeek-V4).
    "compressed": (
        "heads", "head_dim", "q_lora_rank", "output_groups", "output_rank", "window", "ratio",
        "index_heads", "index_head_dim", "index_topk",
    ),
    # Linear attention with a matrix state a head: gated delta-net, KDA, lightning attention.
    "delta_net": (
        "key_heads", "key_head_dim", "value_heads", "value_head_dim", "conv_width",
        "gates_per_head", "decay_rank", "output_gate_rank",
    ),
    # Mamba-2 with heads and groups, Mamba-1 (0 heads) with a rank of the time step.
    "mamba": ("inner_size", "heads", "groups", "state_size", "conv_width", "dt_rank"),
    "mlp": ("intermediate_size", "matrices"),
    "moe": (
        "experts", "experts_per_token", "expert_intermediate_size", "shared_intermediate_size",
        "matrices",
    ),
    # A table of learned positions.
    "positions": ("rows",),
}  # fmt: skip

# In groups whose sizes come together.
_INDEXER = ("index_heads", "index_head_dim", "index_topk")
OPTIONAL_GROUPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "gqa": (
        ("chunk",), ("output_gate",), ("values_from_keys",), ("reuses_kv",),
        ("relative_positions",), _INDEXER,
    ),
    "mla": (("output_gate",), _INDEXER),
    "moe": (("expert_hidden_size",),),
}  # fmt: skip
OPTIONAL_SIZES: dict[str, tuple[str, ...]] = {
    kind: tuple(name for group in groups for name in group)
    for kind, groups in OPTIONAL_GROUPS.items()
}

# Sizes that may be 0, beside the optional ones: no window, no bias, no query rank, no shared
# expert, no compression, no convolution, no gate; Mamba-1 has no heads and Mamba-2 no rank.
MAY_BE_ZERO: dict[str, frozenset[str]] = {
    "gqa": frozenset({"window", "qkv_bias"}),
    "mla": frozenset({"q_lora_rank"}),
    "compressed": frozenset({"ratio", "index_heads", "index_head_dim", "index_topk"}),
    "delta_net": frozenset({"conv_width", "gates_per_head", "decay_rank", "output_gate_rank"}),
    "mamba": frozenset({"heads", "groups", "dt_rank"}),
    "moe": frozenset({"shared_intermediate_size"}),
}

# What a message calls a kind.
WORDS = {
    "gqa": "grouped-query attention",
    "mla": "latent attention",
    "compressed": "compressed cache",
    "delta_net": "linear attention",
    "mamba": "Mamba layers",
    "mlp": "dense feed-forward layers",
    "moe": "experts",
    "positions": "learned positions",
}

# Kinds that mix tokens: one of them a layer, which is what pipeline stages divide.
MIXERS = ("gqa", "mla", "compressed", "delta_net", "mamba")
FEED_FORWARD = ("mlp", "moe")


def sizes_of(kind: str) -> tuple[str, ...]:
    """Every size that a block of the kind may have."""
    return BLOCK_SIZES[kind] + OPTIONAL_SIZES.get(kind, ())
