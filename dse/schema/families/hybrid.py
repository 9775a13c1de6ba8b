"""Layers of families that mix attention with states or compressed caches."""

from __future__ import annotations

from dse.schema.families.attention import (
    FULL,
    LINEAR,
    SLIDING,
    every,
    grouped_sizes,
    latent_sizes,
    layer_types,
)
from dse.schema.families.feed_forward import GATED, PLAIN
from dse.schema.families.reader import ConfigReader
from dse.schema.model import BlockSpec

CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"


def gated_delta_net(reader: ConfigReader) -> list[BlockSpec]:
    """Qwen3-Next, Qwen3.5: every `full_attention_interval`-th layer has attention with an output
    gate, the others gated delta-net with a decay and a learning rate a value head."""
    rule = every("full_attention_interval", LINEAR)(reader)
    layers = layer_types(reader, rule, (FULL, LINEAR))
    sizes = {**grouped_sizes(reader, reader.boolean("attention_bias")), "window": 0}
    if reader.boolean("attn_output_gate"):
        sizes["output_gate"] = 1
    linear = {
        "key_heads": reader.integer("linear_num_key_heads"),
        "key_head_dim": reader.integer("linear_key_head_dim"),
        "value_heads": reader.integer("linear_num_value_heads"),
        "value_head_dim": reader.integer("linear_value_head_dim"),
        "conv_width": reader.integer("linear_conv_kernel_dim"),
        "gates_per_head": 2,
        "decay_rank": 0,
        "output_gate_rank": 0,
    }
    return _some(("gqa", layers.count(FULL), sizes), ("delta_net", layers.count(LINEAR), linear))


def lightning(reader: ConfigReader) -> list[BlockSpec]:
    """MiniMax-Text-01, M1: lightning attention where `attn_type_list` has a 0, or by layer type."""
    flags = reader.flags("attn_type_list")
    if flags is None:
        flags = [(i + 1) % 2 > 0 for i in range(reader.layers)]
    layers = layer_types(reader, [FULL if flag else LINEAR for flag in flags], (FULL, LINEAR))
    sizes = {**grouped_sizes(reader, bias=False), "window": 0}
    linear = {
        "key_heads": sizes["heads"],
        "key_head_dim": sizes["head_dim"],
        "value_heads": sizes["heads"],
        "value_head_dim": sizes["head_dim"],
        "conv_width": 0,
        "gates_per_head": 0,
        "decay_rank": 0,
        "output_gate_rank": 0,
    }
    return _some(("gqa", layers.count(FULL), sizes), ("delta_net", layers.count(LINEAR), linear))


def kimi_linear(reader: ConfigReader) -> list[BlockSpec]:
    """Kimi Linear, Kimi K3: latent attention in the layers that `full_attn_layers` counts from 1,
    Kimi delta attention in the others: a learning rate a head, a decay of low rank, and an output
    gate of the same rank or, with `use_full_rank_gate`, a full matrix."""
    config = "linear_attn_config."
    listed = reader.whole_list(config + "full_attn_layers")
    full = len({layer for layer in listed if 1 <= layer <= reader.layers}) or reader.layers // 4
    sizes: dict[str, float] = {**latent_sizes(reader)}
    if reader.boolean("mla_use_output_gate"):
        sizes["output_gate"] = 1
    heads, size = reader.integer(config + "num_heads"), reader.integer(config + "head_dim")
    whole = reader.boolean(config + "use_full_rank_gate")
    linear = {
        "key_heads": heads,
        "key_head_dim": size,
        "value_heads": heads,
        "value_head_dim": size,
        "conv_width": reader.integer(config + "short_conv_kernel_size"),
        "gates_per_head": 1,
        "decay_rank": size,
        "output_gate_rank": 0 if whole else size,
    }
    return _some(("mla", full, sizes), ("delta_net", reader.layers - full, linear))


def kimi_experts(reader: ConfigReader) -> list[BlockSpec]:
    """Kimi Linear, Kimi K3: experts after the first dense layers, on a latent where
    `routed_expert_hidden_size` names its width."""
    dense = min(reader.integer("first_k_dense_replace", least=0), reader.layers)
    width = reader.integer("moe_intermediate_size")
    shared = reader.optional_integer("num_shared_experts", least=0) or 0
    sizes = {
        "experts": reader.integer("num_experts"),
        "experts_per_token": reader.integer("num_experts_per_token"),
        "expert_intermediate_size": width,
        "shared_intermediate_size": width * shared,
        "matrices": GATED,
    }
    narrow = reader.optional_integer("routed_expert_hidden_size")
    if narrow:
        sizes["expert_hidden_size"] = narrow
    feed_forward = {"intermediate_size": reader.integer("intermediate_size"), "matrices": GATED}
    return _some(("mlp", dense, feed_forward), ("moe", reader.layers - dense, sizes))


_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NAMES = {**{name: name for name in _LETTERS.values()}, FULL: "attention", LINEAR: "mamba"}


def _nemotron_layers(reader: ConfigReader) -> list[str]:
    """What each layer is alone: from a text of letters, or a list of names."""
    key = "hybrid_override_pattern"
    listed, table = reader.value(key), _LETTERS
    if listed is None:
        key, table = "layers_block_type", _NAMES
        listed = reader.value(key)
    if not isinstance(listed, (str, list)) or len(listed) != reader.layers:
        raise reader.refuse(key, "does not name num_hidden_layers layers", f"{reader.layers}")
    for name in listed:
        if name not in table:
            raise reader.refuse(key, f"{name!r} is not covered", ", ".join(table))
    return [table[name] for name in listed]


def nemotron_mixers(reader: ConfigReader) -> list[BlockSpec]:
    """Nemotron-H: a layer is attention, Mamba-2, or feed-forward alone."""
    layers = _nemotron_layers(reader)
    sizes = {**grouped_sizes(reader, reader.boolean("attention_bias")), "window": 0}
    heads = reader.integer("mamba_num_heads")
    mamba = {
        "inner_size": heads * reader.integer("mamba_head_dim"),
        "heads": heads,
        "groups": reader.integer("n_groups"),
        "state_size": reader.integer("ssm_state_size"),
        "conv_width": reader.integer("conv_kernel"),
        "dt_rank": 0,
    }
    return _some(("gqa", layers.count("attention"), sizes), ("mamba", layers.count("mamba"), mamba))


def nemotron_feed_forward(reader: ConfigReader) -> list[BlockSpec]:
    """Nemotron-H: two matrices; the experts of Nemotron 3 work on a latent of `moe_latent_size`."""
    layers = _nemotron_layers(reader)
    blocks = []
    if "mlp" in layers:
        sizes = {"intermediate_size": reader.integer("intermediate_size"), "matrices": PLAIN}
        blocks.append(BlockSpec("mlp", layers.count("mlp"), sizes))
    if "moe" in layers:
        shared = reader.optional_integer("n_shared_experts", least=0) or 0
        sizes = {
            "experts": reader.integer("n_routed_experts"),
            "experts_per_token": reader.integer("num_experts_per_tok"),
            "expert_intermediate_size": reader.integer("moe_intermediate_size"),
            "shared_intermediate_size": shared
            * reader.integer("moe_shared_expert_intermediate_size"),
            "matrices": PLAIN,
        }
        narrow = reader.optional_integer("moe_latent_size")
        if narrow:
            sizes["expert_hidden_size"] = narrow
        blocks.append(BlockSpec("moe", layers.count("moe"), sizes))
    return blocks


def jamba_mixers(reader: ConfigReader) -> list[BlockSpec]:
    """Jamba: attention once in `attn_layer_period` layers, Mamba-1 in the others."""
    attention = _periodic(reader, "attn_layer_period", "attn_layer_offset")
    window = reader.optional_integer("sliding_window") or 0
    sizes = {**grouped_sizes(reader, bias=False), "window": window}
    hidden = reader.integer("hidden_size")
    rank = reader.value("mamba_dt_rank")
    mamba = {
        "inner_size": reader.integer("mamba_expand") * hidden,
        "heads": 0,
        "groups": 0,
        "state_size": reader.integer("mamba_d_state"),
        "conv_width": reader.integer("mamba_d_conv"),
        "dt_rank": -(-hidden // 16) if rank == "auto" else reader.integer("mamba_dt_rank"),
    }
    return _some(("gqa", attention, sizes), ("mamba", reader.layers - attention, mamba))


def jamba_feed_forward(reader: ConfigReader) -> list[BlockSpec]:
    """Jamba: experts once in `expert_layer_period` layers, as wide as the dense feed-forward."""
    sparse = _periodic(reader, "expert_layer_period", "expert_layer_offset")
    width = reader.integer("intermediate_size")
    experts = {
        "experts": reader.integer("num_experts"),
        "experts_per_token": reader.integer("num_experts_per_tok"),
        "expert_intermediate_size": width,
        "shared_intermediate_size": 0,
        "matrices": GATED,
    }
    dense = {"intermediate_size": width, "matrices": GATED}
    return _some(("mlp", reader.layers - sparse, dense), ("moe", sparse, experts))


def granite_hybrid(reader: ConfigReader) -> list[BlockSpec]:
    """Granite 4: attention or Mamba-2 in every layer, by `layer_types`."""
    named = (FULL, LINEAR, "attention", "mamba")
    layers = layer_types(reader, [LINEAR] * reader.layers, named)
    full = sum(name in (FULL, "attention") for name in layers)
    sizes = {**grouped_sizes(reader, bias=reader.boolean("attention_bias")), "window": 0}
    heads = reader.integer("mamba_n_heads")
    mamba = {
        "inner_size": reader.integer("mamba_expand") * reader.integer("hidden_size"),
        "heads": heads,
        "groups": reader.integer("mamba_n_groups"),
        "state_size": reader.integer("mamba_d_state"),
        "conv_width": reader.integer("mamba_d_conv"),
        "dt_rank": 0,
    }
    return _some(("gqa", full, sizes), ("mamba", reader.layers - full, mamba))


def granite_feed_forward(reader: ConfigReader) -> list[BlockSpec]:
    """Granite 4: a gated feed-forward in every layer, which is a shared expert where there are
    routed ones."""
    width = reader.integer("shared_intermediate_size")
    experts = reader.integer("num_local_experts", least=0)
    dense = {"intermediate_size": width, "matrices": GATED}
    if not experts:
        return [BlockSpec("mlp", reader.layers, dense)]
    sizes = {
        "experts": experts,
        "experts_per_token": reader.integer("num_experts_per_tok"),
        "expert_intermediate_size": reader.integer("intermediate_size"),
        "shared_intermediate_size": width,
        "matrices": GATED,
    }
    return [BlockSpec("moe", reader.layers, sizes)]


def deepseek_v4(reader: ConfigReader) -> list[BlockSpec]:
    """DeepSeek-V4: a layer's cache is compressed 4 times and chosen from by an indexer, compressed
    128 times, or the window alone (`compress_ratios` 4, 128, 0)."""
    ratios = reader.value("compress_ratios")
    names = {0: SLIDING, 4: CSA, 128: HCA}
    if ratios is None:
        otherwise = [HCA] * 2 + [CSA if i % 2 else HCA for i in range(reader.layers - 2)]
        otherwise = otherwise[: reader.layers]
    elif not isinstance(ratios, list) or len(ratios) < reader.layers:
        raise reader.refuse("compress_ratios", f"{ratios!r}", f"a list of {reader.layers}")
    elif any(type(ratio) is not int or ratio not in names for ratio in ratios):
        raise reader.refuse("compress_ratios", f"{ratios!r}", "4, 128 or 0 a layer")
    else:
        otherwise = [names[ratio] for ratio in ratios[: reader.layers]]
    layers = otherwise
    if reader.value("layer_types") is not None:
        layers = layer_types(reader, otherwise, (SLIDING, CSA, HCA))
    sizes = {
        "heads": reader.integer("num_attention_heads"),
        "head_dim": reader.integer("head_dim"),
        "q_lora_rank": reader.integer("q_lora_rank"),
        "output_groups": reader.integer("o_groups"),
        "output_rank": reader.integer("o_lora_rank"),
        "window": reader.integer("sliding_window"),
    }
    index = {
        "index_heads": reader.integer("index_n_heads"),
        "index_head_dim": reader.integer("index_head_dim"),
        "index_topk": reader.integer("index_topk"),
    }
    none = dict.fromkeys(index, 0)
    if reader.boolean("attention_bias"):
        reader.assume("attention_bias true: the biases of latent attention are not counted")
    return _some(
        ("compressed", layers.count(CSA), {**sizes, "ratio": 4, **index}),
        ("compressed", layers.count(HCA), {**sizes, "ratio": 128, **none}),
        ("compressed", layers.count(SLIDING), {**sizes, "ratio": 0, **none}),
    )


def _periodic(reader: ConfigReader, period: str, offset: str) -> int:
    """How many layers i have i % period == offset."""
    n, first = reader.integer(period), reader.integer(offset, least=0)
    return sum(i % n == first for i in range(reader.layers))


def _some(*blocks: tuple[str, int, dict]) -> list[BlockSpec]:
    return [BlockSpec(kind, count, sizes) for kind, count, sizes in blocks if count]
