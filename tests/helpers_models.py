"""Batches of models, one chip each, for tests that look at the models alone."""

from __future__ import annotations

from dse.schema.model import BlockSpec, Model
from dse.space import batches
from dse.space.candidates import CandidateBatch


def batch_of_models(*models: Model) -> CandidateBatch:
    return batches.batch_of_models(models)


def gqa(count: int, heads: int, kv_heads: int, head_dim: int, **sizes: float) -> BlockSpec:
    base = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "v_head_dim": head_dim}
    return BlockSpec("gqa", count, {**base, "window": 0, "qkv_bias": 0, **sizes})


def mlp(count: int, intermediate_size: int, matrices: int = 3) -> BlockSpec:
    return BlockSpec("mlp", count, {"intermediate_size": intermediate_size, "matrices": matrices})


def moe(count: int, experts: int, per_token: int, width: int, shared: int = 0) -> BlockSpec:
    sizes = {
        "experts": experts,
        "experts_per_token": per_token,
        "expert_intermediate_size": width,
        "shared_intermediate_size": shared,
        "matrices": 3,
    }
    return BlockSpec("moe", count, sizes)


def model(*blocks: BlockSpec, hidden: int = 64, vocab: int = 100, tied: bool = False) -> Model:
    return Model(
        id="test",
        name="test",
        hidden_size=hidden,
        vocab_size=vocab,
        tied_embeddings=tied,
        blocks=blocks,
        weight_dtypes=dict.fromkeys(("attention", "mlp", "experts", "embedding"), "bf16"),
        kv_dtype=None,
        training_tokens=None,
        source="test",
    )
