"""Classes with experts: grouped-query, chunked and latent attention."""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.architectures.dense import head_norms, heads_of, output_bias
from dse.schema.architectures.shape import Architecture, Cannot, Config, Shape, Sizes, spread
from dse.schema.families.attention import CHUNKED, FULL

_SILU = {"hidden_act": "silu"}
# Routing that has no size: the chosen experts' weights are scaled to a sum of 1, one group.
_ROUTED = {"norm_topk_prob": True, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0}


def _grouped(shape: Shape) -> None:
    shape.only("gqa", "mlp", "moe")
    shape.gated()


def _experts(sizes: Sizes, count: str = "num_experts") -> Config:
    return {
        count: sizes["experts"],
        "num_experts_per_tok": sizes["experts_per_token"],
        "moe_intermediate_size": sizes["expert_intermediate_size"],
    }


def _all_sparse(shape: Shape) -> None:
    if shape.of("mlp"):
        raise Cannot("all of its layers have experts")


def _mixtral(shape: Shape) -> Config:
    _grouped(shape)
    sizes, window, _ = shape.heads(windows="all")
    _all_sparse(shape)
    experts = shape.experts(shared="none")
    return {
        **heads_of(sizes),
        "sliding_window": window or None,
        "num_local_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "intermediate_size": experts["expert_intermediate_size"],
        **_SILU,
    }


def _qwen3_moe(shape: Shape) -> Config:
    _grouped(shape)
    sizes, window, _ = shape.heads(bias=(0, 1), windows="all")
    return {
        **heads_of(sizes),
        **_experts(shape.experts(shared="none")),
        "intermediate_size": shape.dense_width(),
        "attention_bias": bool(sizes["qkv_bias"]),
        "use_sliding_window": bool(window),
        "sliding_window": window or None,
        **_first_dense(shape),
    }


def _first_dense(shape: Shape) -> Config:
    """The dense layers come first, as in DeepSeek-V3 and GLM-4.5."""
    return {
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(shape.count("mlp"))),
        "norm_topk_prob": True,
        **_SILU,
    }


def _qwen2_moe(shape: Shape) -> Config:
    _grouped(shape)
    sizes, _, _ = shape.heads(bias=(0, 1))
    experts = shape.experts(shared="width")
    if not experts["shared_intermediate_size"]:
        raise Cannot("it has a shared expert, and the shape has none")
    return {
        **heads_of(sizes),
        **_experts(experts),
        "shared_expert_intermediate_size": experts["shared_intermediate_size"],
        "intermediate_size": shape.dense_width(),
        "qkv_bias": bool(sizes["qkv_bias"]),
        "use_sliding_window": False,
        **_first_dense(shape),
    }


def shared_gate(shape: Shape) -> dict[str, int]:
    """One gate a token of the shared expert of every sparse layer."""
    return {"gates of shared experts": shape.hidden * shape.count("moe")}


def _after_first(shape: Shape, experts: Sizes) -> Config:
    """Dense layers first, under the names of DeepSeek-V3."""
    return {
        **_experts(experts, "n_routed_experts"),
        "n_shared_experts": experts["shared_experts"],
        "first_k_dense_replace": shape.count("mlp"),
        "intermediate_size": shape.dense_width(),
        **_ROUTED,
        **_SILU,
    }


def _needs_shared(experts: Sizes) -> Sizes:
    if not experts["shared_experts"]:
        raise Cannot("it has shared experts, and the shape has none")
    return experts


def _glm4_moe(shape: Shape) -> Config:
    _grouped(shape)
    sizes, _, _ = shape.heads(bias=(0, 1))
    return {
        **heads_of(sizes),
        **_after_first(shape, _needs_shared(shape.experts(shared="count"))),
        "attention_bias": bool(sizes["qkv_bias"]),
        "use_qk_norm": False,
    }


def _dots1(shape: Shape) -> Config:
    _grouped(shape)
    sizes, window, types = shape.heads(bias=(0, 1), windows="any")
    windows = {"sliding_window": window, "max_window_layers": 0, "layer_types": types}
    return {
        **heads_of(sizes),
        **_after_first(shape, _needs_shared(shape.experts(shared="count"))),
        "attention_bias": bool(sizes["qkv_bias"]),
        **(windows if window else {"sliding_window": None}),
    }


def _gpt_oss(shape: Shape) -> Config:
    _grouped(shape)
    sizes, window, types = shape.heads(bias=(0, 1), windows="any")
    _all_sparse(shape)
    experts = shape.experts(shared="none")
    if not window:
        raise Cannot("it has sliding windows, and the shape has none")
    return {
        **heads_of(sizes),
        "attention_bias": bool(sizes["qkv_bias"]),
        "sliding_window": window,
        "layer_types": types,
        "num_local_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "intermediate_size": experts["expert_intermediate_size"],
        **_SILU,
    }


def _gpt_oss_beyond(shape: Shape) -> Mapping[str, int]:
    sizes, moe = shape.of("gqa")[0].sizes, shape.one("moe").sizes
    experts, width = int(moe["experts"]), int(moe["expert_intermediate_size"])
    return {
        "attention sinks": int(sizes["heads"]) * shape.layers,
        **output_bias(shape),
        "biases of the router": experts * shape.layers,
        "biases of experts": experts * (2 * width + shape.hidden) * shape.layers,
    }


def _llama4(shape: Shape) -> Config:
    shape.only("gqa", "mlp", "moe", optional=("chunk",))
    shape.gated()
    chunked = [block for block in shape.of("gqa") if block.sizes.get("chunk")]
    full = [block for block in shape.of("gqa") if not block.sizes.get("chunk")]
    if len(chunked) != 1 or len(full) > 1:
        raise Cannot("its layers attend in chunks of one length, or fully")
    sizes = {name: int(value) for name, value in chunked[0].sizes.items()}
    if any({**block.sizes, "chunk": sizes["chunk"]} != sizes for block in full):
        raise Cannot("its layers have heads of one size, and those of the shape differ")
    if sizes["window"] or sizes["qkv_bias"]:
        raise Cannot("it has no sliding window and no bias")
    types = spread(shape.layers, shape.layers - chunked[0].count, FULL, CHUNKED)
    return {
        **heads_of(sizes),
        "attention_chunk_size": sizes["chunk"],
        "layer_types": types,
        "no_rope_layers": [int(name == CHUNKED) for name in types],  # what vLLM goes by
        "intermediate_size_mlp": shape.dense_width(),
        **_llama4_experts(shape),
        **_SILU,
    }


def _llama4_experts(shape: Shape) -> Config:
    count = shape.count("moe")
    if not count:  # a step beyond the last layer
        return {"moe_layers": [], "interleave_moe_layer_step": shape.layers + 1}
    experts = shape.experts(shared="count")
    if experts["shared_experts"] != 1:
        raise Cannot("it has one shared expert, as wide as a routed one")
    layers = spread(shape.layers, count, "moe", "mlp")
    return {
        "num_local_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "intermediate_size": experts["expert_intermediate_size"],
        "moe_layers": [i for i, name in enumerate(layers) if name == "moe"],
    }


def latent_of(sizes: Mapping[str, float]) -> Config:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {
        "num_attention_heads": int(sizes["heads"]),
        "num_key_value_heads": int(sizes["heads"]),
        "q_lora_rank": int(sizes["q_lora_rank"]) or None,
        **{name: int(sizes[name]) for name in names},
    }


def _deepseek_v3(shape: Shape) -> Config:
    shape.only("mla", "mlp", "moe")
    shape.gated()
    sizes = shape.one("mla").sizes
    if not shape.of("moe"):
        raise Cannot("it has experts, and the shape has none")
    experts = shape.experts(shared="count")
    return {**latent_of(sizes), **_after_first(shape, experts), "attention_bias": False}


def _indexed(shape: Shape) -> tuple[Config, int, int]:
    """(keys of latent attention with an indexer, layers with one of their own, all layers)."""
    shape.only("mla", "mlp", "moe", optional=("index_heads", "index_head_dim", "index_topk"))
    shape.gated()
    blocks = shape.of("mla")
    own = [block for block in blocks if block.sizes.get("index_heads")]
    if len(own) != 1 or any(not block.sizes.get("index_topk") for block in blocks):
        raise Cannot("its layers choose from the cache with an indexer, their own or another's")
    sizes = own[0].sizes
    if not sizes["q_lora_rank"]:
        raise Cannot("its indexer works on the query rank, and the shape has none")
    keys = ("index_topk", "index_head_dim")
    config = {
        **latent_of(sizes),
        **_after_first(shape, shape.experts(shared="count")),
        "attention_bias": False,
        "index_n_heads": int(sizes["index_heads"]),
        **{name: int(sizes[name]) for name in keys},
    }
    return config, own[0].count, shape.count("mla")


def _deepseek_v32(shape: Shape) -> Config:
    config, own, layers = _indexed(shape)
    if own != layers:
        raise Cannot("all of its layers have an indexer of their own")
    return config


def _glm_moe_dsa(shape: Shape) -> Config:
    config, own, layers = _indexed(shape)
    # A layer that reuses a choice comes after the one that made it.
    return {**config, "indexer_types": spread(layers, own, "full", "shared")[::-1]}


def _indexer_norms(shape: Shape) -> Mapping[str, int]:
    own = [block for block in shape.of("mla") if block.sizes.get("index_heads")]
    width = sum(block.count * int(block.sizes["index_head_dim"]) for block in own)
    return {"layer norms of indexer keys": 2 * width}


SPARSE = (
    Architecture("MixtralForCausalLM", "mixtral", _mixtral),
    Architecture("Glm4MoeForCausalLM", "glm4_moe", _glm4_moe),
    Architecture(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        _qwen3_moe,
        lambda shape: {**head_norms(shape), **output_bias(shape)},
    ),
    Architecture("Qwen2MoeForCausalLM", "qwen2_moe", _qwen2_moe, shared_gate),
    Architecture(
        "Dots1ForCausalLM",
        "dots1",
        _dots1,
        lambda shape: {**head_norms(shape), **output_bias(shape)},
    ),
    Architecture("GptOssForCausalLM", "gpt_oss", _gpt_oss, _gpt_oss_beyond),
    Architecture("Llama4ForCausalLM", "llama4_text", _llama4),
    Architecture("DeepseekV3ForCausalLM", "deepseek_v3", _deepseek_v3),
    Architecture("DeepseekV32ForCausalLM", "deepseek_v32", _deepseek_v32, _indexer_norms),
    Architecture("GlmMoeDsaForCausalLM", "glm_moe_dsa", _glm_moe_dsa, _indexer_norms),
)
