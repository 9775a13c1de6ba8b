"""Classes that mix attention with states, or with layers whose heads differ."""

from __future__ import annotations

from collections.abc import Mapping

from dse.schema.architectures.dense import head_norms, heads_of
from dse.schema.architectures.shape import (
    PLAIN,
    Architecture,
    Cannot,
    Config,
    Shape,
    Sizes,
    spread,
)
from dse.schema.architectures.sparse import latent_of, shared_gate
from dse.schema.families.attention import FULL, LINEAR, SLIDING

_SILU = {"hidden_act": "silu"}


def _gated_delta(shape: Shape) -> Config:
    """Full attention with an output gate, gated delta-net in the other layers."""
    linear = {name: int(value) for name, value in shape.one("delta_net").sizes.items()}
    sizes, _, _ = shape.heads()
    if not sizes.get("output_gate"):
        raise Cannot("its full attention has an output gate, and the shape's has none")
    form = ("gates_per_head", "decay_rank", "output_gate_rank")
    if tuple(linear[name] for name in form) != (2, 0, 0):
        raise Cannot("its linear attention is the gated delta-net: two gates a head, no rank")
    full = shape.count("gqa")
    return {
        **heads_of(sizes),
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_num_key_heads": linear["key_heads"],
        "linear_key_head_dim": linear["key_head_dim"],
        "linear_num_value_heads": linear["value_heads"],
        "linear_value_head_dim": linear["value_head_dim"],
        "linear_conv_kernel_dim": linear["conv_width"],
        "layer_types": spread(shape.layers, full, FULL, LINEAR),
        **_SILU,
    }


def _qwen3_next(shape: Shape) -> Config:
    shape.only("gqa", "delta_net", "mlp", "moe", optional=("output_gate",))
    shape.gated()
    config, experts = _gated_delta(shape), shape.experts(shared="width")
    if not experts["shared_intermediate_size"]:
        raise Cannot("it has a shared expert, and the shape has none")
    return {
        **config,
        "num_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "moe_intermediate_size": experts["expert_intermediate_size"],
        "shared_expert_intermediate_size": experts["shared_intermediate_size"],
        "intermediate_size": shape.dense_width(),
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(shape.count("mlp"))),
        "norm_topk_prob": True,
    }


def _qwen3_5(shape: Shape) -> Config:
    shape.only("gqa", "delta_net", "mlp", optional=("output_gate",))
    shape.gated()
    return {**_gated_delta(shape), "intermediate_size": shape.dense_width()}


def _minimax(shape: Shape) -> Config:
    shape.only("gqa", "delta_net", "moe")
    shape.gated()
    sizes, _, _ = shape.heads()
    linear = shape.one("delta_net").sizes
    heads = ("key_heads", "value_heads"), ("key_head_dim", "value_head_dim")
    own = [linear[name] for names in heads for name in names]
    if own != [sizes["heads"]] * 2 + [sizes["head_dim"]] * 2 or any(
        linear[name] for name in ("conv_width", "gates_per_head", "decay_rank", "output_gate_rank")
    ):
        raise Cannot("its linear attention is lightning attention with the heads of the full one")
    experts = shape.experts(shared="none")
    return {
        **heads_of(sizes),
        "layer_types": spread(shape.layers, shape.count("gqa"), FULL, LINEAR),
        "num_local_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "intermediate_size": experts["expert_intermediate_size"],
        **_SILU,
    }


def _minimax_beyond(shape: Shape) -> Mapping[str, int]:
    """Lightning attention has a norm as wide as all heads; the count holds decays of two a head and
    a norm of one head instead."""
    block = shape.one("delta_net")
    heads, size = int(block.sizes["value_heads"]), int(block.sizes["value_head_dim"])
    return {
        "norms of linear attention": block.count * (heads * size - size),
        "decays of linear attention, which are fixed": -2 * block.count * heads,
    }


def _kimi_linear(shape: Shape) -> Config:
    """Latent attention, Kimi delta attention in the other layers."""
    shape.only("mla", "delta_net", "mlp", "moe")
    shape.gated()
    linear = {name: int(value) for name, value in shape.one("delta_net").sizes.items()}
    heads, size = linear["value_heads"], linear["value_head_dim"]
    form = ("key_heads", "key_head_dim", "gates_per_head", "decay_rank", "output_gate_rank")
    if tuple(linear[name] for name in form) != (heads, size, 1, size, size):
        raise Cannot("its linear attention is Kimi delta attention, of ranks as wide as a head")
    experts = shape.experts(shared="count")
    full = shape.count("mla")
    types = spread(shape.layers, full, FULL, LINEAR)
    return {
        **latent_of(shape.one("mla").sizes),
        "linear_attn_config": {
            "full_attn_layers": [i + 1 for i, name in enumerate(types) if name == FULL],
            "kda_layers": [i + 1 for i, name in enumerate(types) if name == LINEAR],
            "num_heads": heads,
            "head_dim": size,
            "short_conv_kernel_size": linear["conv_width"],
        },
        "num_experts": experts["experts"],
        "num_experts_per_token": experts["experts_per_token"],
        "moe_intermediate_size": experts["expert_intermediate_size"],
        "num_shared_experts": experts["shared_experts"],
        "first_k_dense_replace": shape.count("mlp"),
        "moe_layer_freq": 1,
        "intermediate_size": shape.dense_width(),
        "mla_use_output_gate": False,
        **_SILU,
    }


def _kimi_linear_beyond(shape: Shape) -> Mapping[str, int]:
    """A bias of the decay a channel, where the count holds one a head."""
    block = shape.one("delta_net")
    heads, size = int(block.sizes["value_heads"]), int(block.sizes["value_head_dim"])
    return {"biases of the decay": block.count * heads * (size - 1)}


def _letters(shape: Shape) -> list[str]:
    """A layer of each kind in turn, each kind spread evenly: Mamba and attention first."""
    names = {"mamba": "linear_attention", "gqa": "full_attention", "moe": "moe", "mlp": "mlp"}
    placed = [
        ((i + 0.5) / block.count, order, names[block.kind])
        for order, kind in enumerate(names)
        for block in shape.of(kind)
        for i in range(block.count)
    ]
    return [name for _, _, name in sorted(placed)]


def _nemotron_h(shape: Shape) -> Config:
    shape.only("gqa", "mamba", "mlp", "moe", optional=("expert_hidden_size",))
    shape.gated(matrices=PLAIN)
    mamba = {name: int(value) for name, value in shape.one("mamba").sizes.items()}
    if not mamba["heads"] or mamba["dt_rank"]:
        raise Cannot("its state-space layers are Mamba-2")
    if mamba["inner_size"] % mamba["heads"]:
        raise Cannot("its Mamba heads divide the inner size")
    sizes, _, _ = shape.heads()
    config = {
        **heads_of(sizes),
        "attention_bias": False,
        "mamba_num_heads": mamba["heads"],
        "mamba_head_dim": mamba["inner_size"] // mamba["heads"],
        "n_groups": mamba["groups"],
        "ssm_state_size": mamba["state_size"],
        "conv_kernel": mamba["conv_width"],
        "layers_block_type": _letters(shape),
        "mlp_hidden_act": "relu2",
    }
    if shape.of("mlp"):
        config["intermediate_size"] = shape.dense_width()
    if shape.of("moe"):
        config |= _nemotron_experts(shape.experts(shared="width"))
    return config


def _nemotron_experts(experts: Sizes) -> Config:
    beside = experts["shared_intermediate_size"]
    if not beside:
        raise Cannot("it has a shared expert, and the shape has none")
    return {
        "n_routed_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "moe_intermediate_size": experts["expert_intermediate_size"],
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": beside,
        "moe_latent_size": experts.get("expert_hidden_size"),
        "norm_topk_prob": True,
    }


def _granite(shape: Shape) -> Config:
    """Attention or Mamba-2 in every layer, and a feed-forward in every layer."""
    shape.only("gqa", "mamba", "mlp", "moe")
    shape.gated()
    mamba = {name: int(value) for name, value in shape.one("mamba").sizes.items()}
    if not mamba["heads"] or mamba["dt_rank"]:
        raise Cannot("its state-space layers are Mamba-2")
    if mamba["inner_size"] % shape.hidden or mamba["inner_size"] % mamba["heads"]:
        raise Cannot("its inner size is a multiple of the hidden size and of its heads")
    sizes, _, _ = shape.heads()
    if sizes["head_dim"] * sizes["heads"] != shape.hidden:
        raise Cannot("its heads together are as wide as the hidden size")
    return {
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "attention_bias": False,
        "position_embedding_type": "rope",
        "layer_types": spread(shape.layers, shape.count("gqa"), FULL, LINEAR),
        "mamba_expand": mamba["inner_size"] // shape.hidden,
        "mamba_n_heads": mamba["heads"],
        "mamba_d_head": mamba["inner_size"] // mamba["heads"],
        "mamba_n_groups": mamba["groups"],
        "mamba_d_state": mamba["state_size"],
        "mamba_d_conv": mamba["conv_width"],
        **_granite_experts(shape),
        **_SILU,
    }


def _granite_experts(shape: Shape) -> Config:
    if not shape.of("moe"):
        width = shape.dense_width()
        return {"num_local_experts": 0, "shared_intermediate_size": width}
    if shape.of("mlp"):
        raise Cannot("all of its layers have experts, or none")
    experts = shape.experts(shared="width")
    if not experts["shared_intermediate_size"]:
        raise Cannot("it has a shared expert, and the shape has none")
    return {
        "num_local_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        "intermediate_size": experts["expert_intermediate_size"],
        "shared_intermediate_size": experts["shared_intermediate_size"],
    }


def _jamba(shape: Shape) -> Config:
    shape.only("gqa", "mamba", "mlp", "moe")
    shape.gated()
    mamba = {name: int(value) for name, value in shape.one("mamba").sizes.items()}
    if mamba["heads"] or mamba["groups"]:
        raise Cannot("its state-space layers are Mamba-1")
    if mamba["inner_size"] % shape.hidden:
        raise Cannot("its inner size is a multiple of the hidden size")
    sizes, window, _ = shape.heads(windows="all")
    if window:
        raise Cannot("it has no sliding window")
    if sizes["head_dim"] * sizes["heads"] != shape.hidden:
        raise Cannot("its heads together are as wide as the hidden size")
    experts = shape.experts(shared="none")
    width = experts["expert_intermediate_size"]
    if shape.dense_width() != width:
        raise Cannot("its experts are as wide as its dense feed-forward")
    return {
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "intermediate_size": width,
        "num_experts": experts["experts"],
        "num_experts_per_tok": experts["experts_per_token"],
        **_period(shape.layers, shape.count("gqa"), "attn_layer"),
        **_period(shape.layers, shape.count("moe"), "expert_layer"),
        "mamba_d_state": mamba["state_size"],
        "mamba_d_conv": mamba["conv_width"],
        "mamba_expand": mamba["inner_size"] // shape.hidden,
        "mamba_dt_rank": mamba["dt_rank"],
        **_SILU,
    }


def _period(layers: int, count: int, name: str) -> Config:
    """The period and offset under which `count` of the layers are of a sort: in the middle."""
    for period in range(1, layers + 1):
        for offset in sorted(range(period), key=lambda i: abs(i - period // 2)):
            if len(range(offset, layers, period)) == count:
                return {f"{name}_period": period, f"{name}_offset": offset}
    raise Cannot(f"no period places {count} of {layers} layers")


def _jamba_beyond(shape: Shape) -> Mapping[str, int]:
    """Norms of the time step and of both state projections."""
    block = shape.one("mamba")
    rank, state = int(block.sizes["dt_rank"]), int(block.sizes["state_size"])
    return {"norms of the time step, B and C": block.count * (rank + 2 * state)}


def _two_sorts(shape: Shape) -> tuple[Sizes, Sizes, list[str]]:
    """(full, windowed, layer types) of layers whose heads may differ by sort."""
    full = [block for block in shape.of("gqa") if not block.sizes["window"]]
    windowed = [block for block in shape.of("gqa") if block.sizes["window"]]
    if len(full) != 1 or len(windowed) != 1:
        raise Cannot("it has full layers of one sort and windowed ones of another")
    types = spread(shape.layers, full[0].count, FULL, SLIDING)
    return (
        {name: int(value) for name, value in full[0].sizes.items()},
        {name: int(value) for name, value in windowed[0].sizes.items()},
        types,
    )


def _gemma4(shape: Shape) -> Config:
    shape.only("gqa", "mlp", "moe", optional=("values_from_keys",))
    shape.gated()
    full, windowed, types = _two_sorts(shape)
    if full["qkv_bias"] or windowed["qkv_bias"] or windowed.get("values_from_keys"):
        raise Cannot("it has no bias, and values of their own in windowed layers")
    if full["heads"] != windowed["heads"] or any(
        sizes["head_dim"] != sizes["v_head_dim"] for sizes in (full, windowed)
    ):
        raise Cannot("its full and windowed layers have as many query heads")
    if types[-1] != FULL:
        raise Cannot("its last layer has full attention")
    equal = bool(full.get("values_from_keys"))
    if not equal and full["kv_heads"] != windowed["kv_heads"]:
        raise Cannot("its full layers have KV heads of their own only where values are keys")
    config = {
        **heads_of(windowed),
        "global_head_dim": full["head_dim"],
        "attention_k_eq_v": equal,
        "num_global_key_value_heads": full["kv_heads"] if equal else None,
        "attention_bias": False,
        "sliding_window": windowed["window"],
        "layer_types": types,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "use_double_wide_mlp": False,
        "hidden_activation": "gelu_pytorch_tanh",
    }
    if not shape.of("moe"):
        return {**config, "intermediate_size": shape.dense_width(), "enable_moe_block": False}
    if shape.of("mlp"):
        raise Cannot("all of its layers have experts beside the dense feed-forward")
    experts = shape.experts(shared="width")
    if not experts["shared_intermediate_size"]:
        raise Cannot("it has a dense feed-forward beside its experts, and the shape has none")
    return {
        **config,
        "intermediate_size": experts["shared_intermediate_size"],
        "enable_moe_block": True,
        "num_experts": experts["experts"],
        "top_k_experts": experts["experts_per_token"],
        "moe_intermediate_size": experts["expert_intermediate_size"],
    }


def _gemma4_beyond(shape: Shape) -> Mapping[str, int]:
    found = {
        "norms after attention and feed-forward": 2 * shape.hidden * shape.layers,
        **head_norms(shape),
    }
    if shape.of("moe"):
        experts = int(shape.one("moe").sizes["experts"])
        found["norms beside and scales of experts"] = (4 * shape.hidden + experts) * shape.layers
    return found


HYBRID = (
    Architecture(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        _qwen3_next,
        lambda shape: {**head_norms(shape), **shared_gate(shape)},
    ),
    Architecture("Qwen3_5ForCausalLM", "qwen3_5_text", _qwen3_5, head_norms),
    Architecture("MiniMaxForCausalLM", "minimax", _minimax, _minimax_beyond),
    Architecture("KimiLinearForCausalLM", "kimi_linear", _kimi_linear, _kimi_linear_beyond),
    Architecture("NemotronHForCausalLM", "nemotron_h", _nemotron_h),
    Architecture("GraniteMoeHybridForCausalLM", "granitemoehybrid", _granite),
    Architecture("JambaForCausalLM", "jamba", _jamba, _jamba_beyond),
    Architecture("Gemma4ForCausalLM", "gemma4_text", _gemma4, _gemma4_beyond),
)
