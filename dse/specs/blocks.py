"""The block kinds that a model is made of, and the parts of its weights."""

from __future__ import annotations

# Weight parts with a dtype of their own. Norms, biases and the router stay at 16 bits.
WEIGHT_PARTS = ("attention", "mlp", "experts", "embedding")

BLOCK_SIZES: dict[str, tuple[str, ...]] = {
    "gqa": ("heads", "kv_heads", "head_dim", "v_head_dim", "window", "qkv_bias"),
    "mla": (
        "heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim",
    ),
    "mlp": ("intermediate_size", "matrices"),
    "moe": (
        "experts", "experts_per_token", "expert_intermediate_size", "shared_intermediate_size",
        "matrices",
    ),
}  # fmt: skip
