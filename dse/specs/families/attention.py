"""Attention layers of each family: which are windowed, and the sizes of all of them."""

from __future__ import annotations

from dse.specs.families.reader import ConfigReader
from dse.specs.model import BlockSpec

FULL, SLIDING = "full_attention", "sliding_attention"


def full(reader: ConfigReader) -> list[BlockSpec]:
    """Llama: full attention, unless the file lists its layers."""
    return _grouped(reader, [FULL] * reader.layers, bias=_projection_bias(reader))


def windowed(reader: ConfigReader) -> list[BlockSpec]:
    """Mistral, Mixtral: every layer has the window; null is none."""
    window = reader.optional_integer("sliding_window")
    layers = [FULL if window is None else SLIDING] * reader.layers
    return _grouped(reader, layers, bias=False)


def qwen2(reader: ConfigReader) -> list[BlockSpec]:
    """Qwen2 and 2.5: query, key and value always have a bias."""
    return _grouped(reader, _last_layers_slide(reader), bias=True)


def qwen3(reader: ConfigReader) -> list[BlockSpec]:
    return _grouped(reader, _last_layers_slide(reader), bias=_projection_bias(reader))


def qwen2_moe(reader: ConfigReader) -> list[BlockSpec]:
    """Qwen2-MoE: with a window, every second of the first `max_window_layers` layers has it."""
    layers = [FULL] * reader.layers
    if reader.boolean("use_sliding_window"):
        last = reader.integer("max_window_layers", least=0)
        layers = [SLIDING if i % 2 == 0 and i < last else FULL for i in range(reader.layers)]
    return _grouped(reader, layers, bias=reader.boolean("qkv_bias"))


def qwen3_moe(reader: ConfigReader) -> list[BlockSpec]:
    """Qwen3-MoE: a window, where it is used, is on every layer."""
    kind = SLIDING if reader.boolean("use_sliding_window") else FULL
    return _grouped(reader, [kind] * reader.layers, bias=_projection_bias(reader))


def gpt_oss(reader: ConfigReader) -> list[BlockSpec]:
    """gpt-oss: windowed and full layers take turns, the first is windowed.

    The attention sink, one learned logit per head, has no size worth counting.
    """
    layers = [SLIDING if i % 2 == 0 else FULL for i in range(reader.layers)]
    return _grouped(reader, layers, bias=reader.boolean("attention_bias"))


def latent(reader: ConfigReader) -> list[BlockSpec]:
    """DeepSeek V2 and V3: multi-head latent attention, whose cache no count of KV heads divides.

    `q_lora_rank` null means that queries are projected directly.
    """
    if set(_layer_types(reader, [FULL] * reader.layers)) != {FULL}:
        raise reader.refuse("layer_types", "a window on latent attention", FULL)
    if reader.boolean("attention_bias"):
        reader.assume("attention_bias true: the biases of latent attention are not counted")
    sizes = {
        "heads": reader.integer("num_attention_heads"),
        "q_lora_rank": reader.optional_integer("q_lora_rank") or 0,
        **{
            key: reader.integer(key)
            for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        },
    }
    return [BlockSpec("mla", reader.layers, sizes)]


def _projection_bias(reader: ConfigReader) -> bool:
    return reader.boolean("attention_bias")


def _last_layers_slide(reader: ConfigReader) -> list[str]:
    """Qwen2 and Qwen3: with a window, the layers from `max_window_layers` on have it."""
    if not reader.boolean("use_sliding_window"):
        return [FULL] * reader.layers
    if reader.optional_integer("sliding_window") is None:
        return [FULL] * reader.layers
    first = reader.integer("max_window_layers", least=0)
    return [SLIDING if i >= first else FULL for i in range(reader.layers)]


def _layer_types(reader: ConfigReader, otherwise: list[str]) -> list[str]:
    """The file's own list of layer types, else what the family would build."""
    listed = reader.value("layer_types")
    if listed is None:
        if {FULL, SLIDING} <= set(otherwise):
            count = otherwise.count(SLIDING)
            reader.assume(
                f"layer_types absent: {count} of {reader.layers} layers slide, the family's rule"
            )
        return otherwise
    if not isinstance(listed, list) or len(listed) != reader.layers:
        raise reader.refuse("layer_types", "no list of num_hidden_layers names", f"{reader.layers}")
    for name in listed:
        if name not in (FULL, SLIDING):
            raise reader.refuse("layer_types", f"{name!r} is not covered", f"{FULL}, {SLIDING}")
    return listed


def _grouped(reader: ConfigReader, otherwise: list[str], bias: bool) -> list[BlockSpec]:
    """Full layers as one block, then windowed layers as another."""
    layers = _layer_types(reader, otherwise)
    heads = reader.integer("num_attention_heads")
    head_dim = reader.optional_integer("head_dim")
    if head_dim is None:
        hidden = reader.integer("hidden_size")
        if hidden % heads:
            raise reader.refuse("head_dim", f"absent, and {heads} heads do not divide {hidden}")
        head_dim = hidden // heads
        reader.assume(f"head_dim absent: hidden_size / num_attention_heads, {head_dim}")
    sizes = {
        "heads": heads,
        "kv_heads": reader.optional_integer("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "v_head_dim": head_dim,
        "qkv_bias": int(bias),
    }
    blocks = []
    if FULL in layers:
        blocks.append(BlockSpec("gqa", layers.count(FULL), {**sizes, "window": 0}))
    if SLIDING in layers:
        if "sliding_window" not in reader.known:
            raise reader.refuse("layer_types", f"{reader.family} has no window", FULL)
        window = reader.integer("sliding_window")
        blocks.append(BlockSpec("gqa", layers.count(SLIDING), {**sizes, "window": window}))
    return blocks
