"""Attention layers of each family: which are windowed, and the sizes of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dse.schema.families.reader import ConfigReader
from dse.schema.model import BlockSpec

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR = "linear_attention"
SPARSE = ("deepseek_sparse_attention", "minimax_m3_sparse")

LayerRule = Callable[[ConfigReader], list[str]]
NO_SIZES: Mapping[str, int] = {}


def all_full(reader: ConfigReader) -> list[str]:
    return [FULL] * reader.layers


def every(period: int | str, other: str = SLIDING) -> LayerRule:
    """Every `period`-th layer is full, the others are `other`; a key's name is read."""

    def rule(reader: ConfigReader) -> list[str]:
        n = period if isinstance(period, int) else reader.integer(period)
        return [other if (i + 1) % n else FULL for i in range(reader.layers)]

    return rule


def grouped(
    rule: LayerRule = all_full, bias: bool | str = False, **sizes: int
) -> Callable[[ConfigReader], list[BlockSpec]]:
    """A reader of grouped-query layers; `bias` of query, key and value may be a key's name, `sizes`
    are optional sizes of every layer."""

    def read(reader: ConfigReader) -> list[BlockSpec]:
        biased = reader.boolean(bias) if isinstance(bias, str) else bias
        return _grouped(reader, rule(reader), biased, sizes)

    return read


full = grouped(bias="attention_bias")
bare = grouped()


def windowed(reader: ConfigReader) -> list[BlockSpec]:
    """Mistral, Mixtral, Phi-3: every layer has the window; null is none."""
    window = reader.optional_integer("sliding_window")
    layers = [FULL if window is None else SLIDING] * reader.layers
    bias = "attention_bias" in reader.known and reader.boolean("attention_bias")
    return _grouped(reader, layers, bias=bias)


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


def dots1(reader: ConfigReader) -> list[BlockSpec]:
    """dots.llm1: layers from `max_window_layers` on have the window; null is none."""
    layers = all_full(reader)
    if reader.value("layer_types") is None and reader.optional_integer("sliding_window"):
        first = reader.integer("max_window_layers", least=0)
        layers = [SLIDING if i >= first else FULL for i in range(reader.layers)]
    return _grouped(reader, layers, bias=_projection_bias(reader))


def gpt_oss(reader: ConfigReader) -> list[BlockSpec]:
    """gpt-oss: windowed and full layers take turns, the first is windowed.

    The attention sink, one learned logit per head, has no size worth counting.
    """
    layers = [SLIDING if i % 2 == 0 else FULL for i in range(reader.layers)]
    return _grouped(reader, layers, bias=reader.boolean("attention_bias"))


def llama4(reader: ConfigReader) -> list[BlockSpec]:
    """Llama 4: every `no_rope_layer_interval`-th layer is full, the others attend in chunks."""
    rule = every("no_rope_layer_interval", CHUNKED)(reader)
    return _grouped(reader, rule, bias=_projection_bias(reader))


def falcon(reader: ConfigReader) -> list[BlockSpec]:
    """Falcon: one KV head (multi_query), unless the newer decoder names a number of them."""
    heads = reader.integer("num_attention_heads")
    kv_heads = heads
    if reader.boolean("new_decoder_architecture"):
        kv_heads = reader.optional_integer("num_kv_heads") or heads
    elif reader.boolean("multi_query"):
        kv_heads = 1
    sizes = {**grouped_sizes(reader, reader.boolean("bias")), "kv_heads": kv_heads}
    return [BlockSpec("gqa", reader.layers, {**sizes, "window": 0})]


def gemma4(reader: ConfigReader) -> list[BlockSpec]:
    """Gemma 4: full layers have a head size and KV heads of their own, and with `attention_k_eq_v`
    no projection of values. The last `num_kv_shared_layers` layers reuse keys and values."""
    if reader.optional_integer("hidden_size_per_layer_input", least=0):
        raise reader.refuse("hidden_size_per_layer_input", "embeddings a layer are not covered")
    layers = layer_types(reader, every(6)(reader), (FULL, SLIDING))
    own = grouped_sizes(reader, _projection_bias(reader))
    wide = {**own, "head_dim": reader.integer("global_head_dim")}
    wide["v_head_dim"] = wide["head_dim"]
    if reader.boolean("attention_k_eq_v"):
        kv_heads = reader.optional_integer("num_global_key_value_heads")
        wide |= {"kv_heads": kv_heads or own["kv_heads"], "values_from_keys": 1}
    first = reader.layers - (reader.optional_integer("num_kv_shared_layers", least=0) or 0)
    blocks = []
    for kept, sharing in ((layers[:first], {}), (layers[first:], {"reuses_kv": 1})):
        for kind, sizes in ((FULL, {**wide, "window": 0}), (SLIDING, own)):
            if kind in kept:
                window = {} if kind == FULL else {"window": reader.integer("sliding_window")}
                blocks.append(BlockSpec("gqa", kept.count(kind), {**sizes, **window, **sharing}))
    return blocks


def hunyuan(reader: ConfigReader) -> list[BlockSpec]:
    """Hunyuan: with `use_cla`, one layer of every `cla_share_factor` has keys and values of its
    own, which the next ones reuse (Hunyuan-Large)."""
    sizes = {**grouped_sizes(reader, reader.boolean("attention_bias")), "window": 0}
    if not reader.boolean("use_cla"):
        return [BlockSpec("gqa", reader.layers, sizes)]
    own = -(-reader.layers // reader.integer("cla_share_factor"))
    blocks = [BlockSpec("gqa", own, sizes)]
    if own < reader.layers:
        blocks.append(BlockSpec("gqa", reader.layers - own, {**sizes, "reuses_kv": 1}))
    return blocks


def mimo_v2(reader: ConfigReader) -> list[BlockSpec]:
    """MiMo-V2: windowed layers (1 in `hybrid_layer_pattern`) have heads of their own."""
    pattern = reader.flags("hybrid_layer_pattern")
    if pattern is None:
        pattern = [i > 0 and (i + 1) % 6 > 0 for i in range(reader.layers)]
    layers = layer_types(reader, [SLIDING if slides else FULL for slides in pattern])
    sizes = {
        "heads": reader.integer("num_attention_heads"),
        "kv_heads": reader.integer("num_key_value_heads"),
        "head_dim": reader.integer("head_dim"),
        "v_head_dim": reader.integer("v_head_dim"),
        "qkv_bias": int(_projection_bias(reader)),
    }
    keys = {
        "heads": "swa_num_attention_heads",
        "kv_heads": "swa_num_key_value_heads",
        "head_dim": "swa_head_dim",
        "v_head_dim": "swa_v_head_dim",
    }
    return _two(reader, layers, sizes, _overridden(reader, sizes, keys))


def step3p5(reader: ConfigReader) -> list[BlockSpec]:
    """Step-3.5: windowed layers have the heads of `attention_other_setting`."""
    layers = layer_types(reader, all_full(reader))
    sizes = grouped_sizes(reader, bias=False)
    if reader.boolean("use_head_wise_attn_gate"):
        reader.assume("use_head_wise_attn_gate true: one gate a head is not counted")
    keys = {
        "heads": "num_attention_heads",
        "kv_heads": "num_attention_groups",
        "head_dim": "head_dim",
        "v_head_dim": "head_dim",
    }
    return _two(reader, layers, sizes, _overridden(reader, sizes, keys, "attention_other_setting."))


def minimax_m3(reader: ConfigReader) -> list[BlockSpec]:
    """MiniMax-M3: layers of `sparse_attention_freq` choose blocks of the cache with an indexer."""
    config = "sparse_attention_config."
    flags = reader.flags(config + "sparse_attention_freq")
    sparse = sum(flags) if flags else 0
    sizes = {**grouped_sizes(reader, bias=False), "window": 0}
    blocks = [BlockSpec("gqa", reader.layers - sparse, sizes)] if sparse < reader.layers else []
    if sparse:
        blocks_read = reader.integer(config + "sparse_topk_blocks")
        index = {
            "index_heads": reader.integer(config + "sparse_num_index_heads"),
            "index_head_dim": reader.integer(config + "sparse_index_dim"),
            "index_topk": blocks_read * reader.integer(config + "sparse_block_size"),
        }
        blocks.append(BlockSpec("gqa", sparse, {**sizes, **index}))
    return blocks


def latent(reader: ConfigReader) -> list[BlockSpec]:
    """DeepSeek V2 and V3: multi-head latent attention, whose cache no count of KV heads divides.

    `q_lora_rank` null means that queries are projected directly.
    """
    if set(layer_types(reader, all_full(reader), (FULL, SPARSE[0]))) - {FULL, SPARSE[0]}:
        raise reader.refuse("layer_types", "a window on latent attention", FULL)
    return [BlockSpec("mla", reader.layers, latent_sizes(reader))]


def sparse_latent(reader: ConfigReader) -> list[BlockSpec]:
    """DeepSeek-V3.2, GLM-5: an indexer in every layer, or in those that `indexer_types` calls
    "full"; the others ("shared") reuse the choice of the last one."""
    layer_types(reader, [SPARSE[0]] * reader.layers, (FULL, SPARSE[0]))
    sizes = {**latent_sizes(reader), "index_topk": reader.integer("index_topk")}
    heads = {
        "index_heads": reader.integer("index_n_heads"),
        "index_head_dim": reader.integer("index_head_dim"),
    }
    kinds = reader.names("indexer_types", ("full", "shared")) or ["full"] * reader.layers
    own = kinds.count("full")
    blocks = [BlockSpec("mla", own, {**sizes, **heads})] if own else []
    if own < reader.layers:
        blocks.append(BlockSpec("mla", reader.layers - own, sizes))
    return blocks


def latent_sizes(reader: ConfigReader) -> dict[str, int]:
    """The sizes of latent attention."""
    if "attention_bias" in reader.known and reader.boolean("attention_bias"):
        reader.assume("attention_bias true: the biases of latent attention are not counted")
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {
        "heads": reader.integer("num_attention_heads"),
        "q_lora_rank": reader.optional_integer("q_lora_rank") or 0,
        **{key: reader.integer(key) for key in names},
    }


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


def layer_types(
    reader: ConfigReader, otherwise: list[str], accepted: tuple[str, ...] = (FULL, SLIDING)
) -> list[str]:
    """The file's own list of layer types, else what the family would build."""
    listed = reader.value("layer_types")
    if listed is None:
        if len(set(otherwise)) > 1:
            words = {SLIDING: "slide", CHUNKED: "attend in chunks", LINEAR: "are linear"}
            kind = next(name for name in otherwise if name in words)
            reader.assume(
                f"layer_types absent: {otherwise.count(kind)} of {reader.layers} layers "
                f"{words[kind]}, the family's rule"
            )
        return otherwise
    if not isinstance(listed, list) or len(listed) < reader.layers:
        raise reader.refuse("layer_types", "no list of num_hidden_layers names", f"{reader.layers}")
    for name in listed:
        if name not in accepted:
            raise reader.refuse("layer_types", f"{name!r} is not covered", ", ".join(accepted))
    return listed[: reader.layers]


def grouped_sizes(reader: ConfigReader, bias: bool) -> dict[str, int]:
    """Heads and biases of grouped-query attention."""
    heads = reader.integer("num_attention_heads")
    named = "head_dim" in reader.known
    head_dim = reader.optional_integer("head_dim") if named else None
    if head_dim is None:
        hidden = reader.integer("hidden_size")
        if hidden % heads:
            raise reader.refuse("head_dim", f"absent, and {heads} heads do not divide {hidden}")
        head_dim = hidden // heads
        if named:
            reader.assume(f"head_dim absent: hidden_size / num_attention_heads, {head_dim}")
    has_groups = "num_key_value_heads" in reader.known
    kv_heads = reader.optional_integer("num_key_value_heads") if has_groups else None
    return {
        "heads": heads,
        "kv_heads": kv_heads or heads,
        "head_dim": head_dim,
        "v_head_dim": head_dim,
        "qkv_bias": int(bias),
    }


def _grouped(
    reader: ConfigReader, otherwise: list[str], bias: bool, extra: Mapping[str, int] = NO_SIZES
) -> list[BlockSpec]:
    """Full layers as one block, then windowed or chunked layers as another."""
    local = CHUNKED if CHUNKED in otherwise else SLIDING
    layers = layer_types(reader, otherwise, (FULL, local))
    sizes = {**grouped_sizes(reader, bias), **extra}
    if local == SLIDING:
        return _two(reader, layers, sizes, sizes)
    blocks = []
    if FULL in layers:
        blocks.append(BlockSpec("gqa", layers.count(FULL), {**sizes, "window": 0}))
    if CHUNKED in layers:
        chunk = reader.integer("attention_chunk_size")
        chunked = {**sizes, "window": 0, "chunk": chunk}
        blocks.append(BlockSpec("gqa", layers.count(CHUNKED), chunked))
    return blocks


def _overridden(
    reader: ConfigReader, sizes: dict[str, int], keys: Mapping[str, str], prefix: str = ""
) -> dict[str, int]:
    """The sizes, with those that keys of their own give."""
    read = {name: reader.optional_integer(prefix + key) for name, key in keys.items()}
    return {**sizes, **{name: value for name, value in read.items() if value}}


def _two(
    reader: ConfigReader, layers: list[str], full: dict[str, int], sliding: dict[str, int]
) -> list[BlockSpec]:
    """Full layers as one block, then windowed layers as another, each with its sizes."""
    blocks = []
    if FULL in layers:
        blocks.append(BlockSpec("gqa", layers.count(FULL), {**full, "window": 0}))
    if SLIDING in layers:
        if "sliding_window" not in reader.known:
            raise reader.refuse("layer_types", f"{reader.family} has no window", FULL)
        window = reader.integer("sliding_window")
        blocks.append(BlockSpec("gqa", layers.count(SLIDING), {**sliding, "window": window}))
    return blocks
