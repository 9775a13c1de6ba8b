"""Which layers are of which sort: each pattern is a reader of the keys that say it and the writer
of the same keys from the number of layers of each sort."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dse.record import record
from dse.schema.families.reader import ConfigReader
from dse.schema.families.shape import FULL, SLIDING, Cannot, Config, spread

CHUNKED, LINEAR = "chunked_attention", "linear_attention"
SPARSE_LATENT = "deepseek_sparse_attention"
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
DENSE, SPARSE = "dense", "sparse"
# Layers that reuse what another one has made.
FULL_REUSED, SLIDING_REUSED, REUSED = "full, reused", "sliding, reused", "reused"

Counts = Mapping[str, int]
Names = list[str]
NO_KEYS: Mapping[str, object] = {}
Read = Callable[[ConfigReader], Names]
Write = Callable[[Counts], Config]


@record
class Pattern:
    """`read` gives the sort of each layer, `write` the keys from the layers of each sort; `keys`
    are the keys that are read, each with the value of an absent one."""

    keys: Mapping[str, object]
    read: Read
    write: Write


def total(counts: Counts) -> int:
    return sum(counts.values())


def nothing(counts: Counts) -> Config:
    return {}


def evenly(counts: Counts, name: str, other: str) -> Names:
    """Layers of two sorts, spread evenly."""
    return spread(counts[name] + counts[other], counts[name], name, other)


def all_of(name: str) -> Pattern:
    """Every layer is of one sort."""
    return Pattern({}, lambda reader: [name] * reader.layers, nothing)


# Attention: the file's own list of layer types, or the family's rule.


def layer_types(
    reader: ConfigReader, otherwise: Names, accepted: tuple[str, ...] = (FULL, SLIDING)
) -> Names:
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


def _full(reader: ConfigReader) -> Names:
    return [FULL] * reader.layers


def _listed(counts: Counts) -> Config:
    return {"layer_types": evenly(counts, FULL, SLIDING)}


def _listed_windows(counts: Counts) -> Config:
    if not counts[SLIDING]:
        raise Cannot("it has sliding windows, and the shape has none")
    return _listed(counts)


def listed(
    rule: Read,
    keys: Mapping[str, object] = NO_KEYS,
    write: Write = _listed,
    accepted: tuple[str, ...] = (FULL, SLIDING),
) -> Pattern:
    """The file's own list of layer types, else the family's rule."""
    return Pattern(keys, lambda reader: layer_types(reader, rule(reader), accepted), write)


def every(
    period: int | str, default: int = 1, write: Write = _listed, other: str = SLIDING
) -> Pattern:
    """Every `period`-th layer is full, the others are `other`; a key's name is read."""

    def rule(reader: ConfigReader) -> Names:
        n = period if isinstance(period, int) else reader.integer(period)
        return [other if (i + 1) % n else FULL for i in range(reader.layers)]

    return listed(rule, {} if isinstance(period, int) else {period: default}, write, (FULL, other))


ALL_FULL, BY_LIST = listed(_full, write=nothing), listed(_full)
# Gemma 3: the class has windows.
EVERY_NAMED = every("sliding_window_pattern", 6, _listed_windows)


def _all_windowed(reader: ConfigReader) -> Names:
    none = reader.optional_integer("sliding_window") is None
    return [FULL if none else SLIDING] * reader.layers


def _one_sort(counts: Counts) -> Config:
    if counts[FULL] and counts[SLIDING]:
        raise Cannot("its window is on all layers or on none, and the shape's on some")
    return {} if counts[SLIDING] else {"sliding_window": None}


# Mistral, Mixtral, Phi-3: every layer has the window; null is none.
ALL_WINDOWED = listed(_all_windowed, {"sliding_window": None}, _one_sort)


def _last_slide(reader: ConfigReader) -> Names:
    if not reader.boolean("use_sliding_window") or not reader.optional_integer("sliding_window"):
        return _full(reader)
    first = reader.integer("max_window_layers", least=0)
    return [SLIDING if i >= first else FULL for i in range(reader.layers)]


def _switched(counts: Counts) -> Config:
    if not counts[SLIDING]:
        return {"use_sliding_window": False, "sliding_window": None}
    return {"use_sliding_window": True, "max_window_layers": 0, **_listed(counts)}


_SWITCH = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
# Qwen2, Qwen3: with a window, the layers from `max_window_layers` on have it.
LAST_SLIDE = listed(_last_slide, _SWITCH, _switched)


def _second_slide(reader: ConfigReader) -> Names:
    if not reader.boolean("use_sliding_window"):
        return _full(reader)
    last = reader.integer("max_window_layers", least=0)
    return [SLIDING if i % 2 == 0 and i < last else FULL for i in range(reader.layers)]


def _no_window(counts: Counts) -> Config:
    if counts[SLIDING]:
        raise Cannot("it has no sliding window")
    return {"use_sliding_window": False}


# Qwen2-MoE: with a window, every second of the first `max_window_layers` layers has it.
SECOND_SLIDE = listed(_second_slide, _SWITCH, _no_window)
# Qwen3-MoE: a window, where it is used, is on every layer.
ALL_SWITCHED = listed(
    lambda reader: [SLIDING if reader.boolean("use_sliding_window") else FULL] * reader.layers,
    _SWITCH,
    lambda counts: {"use_sliding_window": bool(counts[SLIDING]), **_one_sort(counts)},
)


def _from_first(reader: ConfigReader) -> Names:
    if reader.value("layer_types") is not None or not reader.optional_integer("sliding_window"):
        return _full(reader)
    first = reader.integer("max_window_layers", least=0)
    return [SLIDING if i >= first else FULL for i in range(reader.layers)]


def _from_first_listed(counts: Counts) -> Config:
    if not counts[SLIDING]:
        return {"sliding_window": None}
    return {"max_window_layers": 0, **_listed(counts)}


# dots.llm1: layers from `max_window_layers` on have the window; null is none.
_FIRST = {"sliding_window": 4096, "max_window_layers": 62}
FROM_FIRST = listed(_from_first, _FIRST, _from_first_listed)
# gpt-oss: windowed and full layers take turns, the first is windowed.
TURNS = listed(
    lambda reader: [FULL if i % 2 else SLIDING for i in range(reader.layers)], write=_listed_windows
)


def _chunks_listed(counts: Counts) -> Config:
    if not counts[CHUNKED]:
        raise Cannot("its layers attend in chunks of one length, or fully")
    types = evenly(counts, FULL, CHUNKED)
    # vLLM goes by the list of layers without rotary positions.
    return {"layer_types": types, "no_rope_layers": [int(name == CHUNKED) for name in types]}


# Llama 4: every `no_rope_layer_interval`-th layer is full, the others attend in chunks.
CHUNKS = every("no_rope_layer_interval", 4, _chunks_listed, CHUNKED)


def _gemma4(reader: ConfigReader) -> Names:
    layers = every(6).read(reader)
    first = reader.layers - (reader.optional_integer("num_kv_shared_layers", least=0) or 0)
    reused = {FULL: FULL_REUSED, SLIDING: SLIDING_REUSED}
    return [name if i < first else reused[name] for i, name in enumerate(layers)]


def _gemma4_listed(counts: Counts) -> Config:
    if not counts[FULL] or not counts[SLIDING]:
        raise Cannot("it has full layers of one sort and windowed ones of another")
    if counts[FULL_REUSED] or counts[SLIDING_REUSED]:
        raise Cannot("it has no layers that reuse the keys and values of others")
    types = evenly(counts, FULL, SLIDING)
    if types[-1] != FULL:
        raise Cannot("its last layer has full attention")
    return {"layer_types": types, "num_kv_shared_layers": 0}


# Gemma 4: the last `num_kv_shared_layers` layers reuse keys and values.
LAST_REUSE = Pattern({"num_kv_shared_layers": 0}, _gemma4, _gemma4_listed)


def _hunyuan(reader: ConfigReader) -> Names:
    if not reader.boolean("use_cla"):
        return _full(reader)
    own = -(-reader.layers // reader.integer("cla_share_factor"))
    return [FULL] * own + [REUSED] * (reader.layers - own)


def _hunyuan_switched(counts: Counts) -> Config:
    if not counts[REUSED]:
        return {"use_cla": False}
    layers = total(counts)
    for factor in range(2, layers + 1):
        if -(-layers // factor) == counts[FULL]:
            return {"use_cla": True, "cla_share_factor": factor}
    raise Cannot("the layers that share keys and values are groups of one size")


# Hunyuan: with `use_cla`, one layer of every `cla_share_factor` has keys and values of its own.
GROUPS_REUSE = Pattern({"use_cla": False, "cla_share_factor": 1}, _hunyuan, _hunyuan_switched)


def flags(key: str, sort: str, otherwise: Callable[[int, int], bool]) -> Pattern:
    """The layers that a list of 0 and 1 marks are of a sort, the others full; without a list, those
    of which `otherwise` says so, given the layer's number and that of all."""

    def read(reader: ConfigReader) -> Names:
        marks = reader.flags(key)
        if marks is None:
            marks = [otherwise(i, reader.layers) for i in range(reader.layers)]
        return [sort if mark else FULL for mark in marks]

    def write(counts: Counts) -> Config:
        return {key: [int(name == sort) for name in evenly(counts, FULL, sort)]}

    return Pattern({key: None}, read, write)


# MiMo-V2: windowed layers are marked, else all but the first and every sixth.
_MIMO = flags("hybrid_layer_pattern", SLIDING, lambda i, layers: i > 0 and (i + 1) % 6 > 0)
WINDOW_FLAGS = listed(_MIMO.read, _MIMO.keys, _MIMO.write)
# MiniMax-M3: marked layers choose blocks of the cache with an indexer.
SPARSE_FLAGS = flags(
    "sparse_attention_config.sparse_attention_freq", SPARSE, lambda i, layers: False
)
# Latent attention has no window: a file's list of layer types says nothing else.
_NO_WINDOWS = listed(_full, accepted=(FULL, SPARSE_LATENT))
LATENT = Pattern({}, lambda reader: [FULL for _ in _NO_WINDOWS.read(reader)], nothing)


def _indexers(reader: ConfigReader) -> Names:
    layer_types(reader, [SPARSE_LATENT] * reader.layers, (FULL, SPARSE_LATENT))
    return reader.names("indexer_types", ("full", "shared")) or ["full"] * reader.layers


def _own_indexers(counts: Counts) -> Config:
    if counts["shared"]:
        raise Cannot("all of its layers have an indexer of their own")
    return {}


def _shared_indexers(counts: Counts) -> Config:
    if not counts["full"]:
        raise Cannot("its layers choose from the cache with an indexer, their own or another's")
    # A layer that reuses a choice comes after the one that made it.
    return {"indexer_types": evenly(counts, "full", "shared")[::-1]}


# DeepSeek-V3.2: an indexer in every layer. GLM-5: in those that `indexer_types` calls "full"; the
# others ("shared") reuse the choice of the last one.
OWN_INDEXERS = Pattern({"indexer_types": None}, _indexers, _own_indexers)
SHARED_INDEXERS = Pattern({"indexer_types": None}, _indexers, _shared_indexers)


# States.


def _linear_listed(counts: Counts) -> Config:
    return {"layer_types": evenly(counts, FULL, LINEAR)}


# Qwen3-Next, Qwen3.5: every `full_attention_interval`-th layer has full attention.
INTERVAL = every("full_attention_interval", 4, _linear_listed, LINEAR)


# MiniMax-Text-01, M1: lightning attention where `attn_type_list` has a 0, or by layer type.


def _lightning(reader: ConfigReader) -> Names:
    marks = reader.flags("attn_type_list")
    if marks is None:
        marks = [i % 2 == 0 for i in range(reader.layers)]
    return [FULL if mark else LINEAR for mark in marks]


LIGHTNING = listed(_lightning, {"attn_type_list": None}, _linear_listed, (FULL, LINEAR))

_KIMI_FULL = "linear_attn_config.full_attn_layers"
_KIMI_LINEAR = "linear_attn_config.kda_layers"


def _kimi(reader: ConfigReader) -> Names:
    listed = reader.whole_list(_KIMI_FULL)
    full = len({layer for layer in listed if 1 <= layer <= reader.layers}) or reader.layers // 4
    linear = set(reader.whole_list(_KIMI_LINEAR))
    if linear and len(linear) != reader.layers - full:
        raise reader.refuse(_KIMI_LINEAR, f"{len(linear)} of {reader.layers} layers, {full} full")
    return [FULL] * full + [LINEAR] * (reader.layers - full)


def _kimi_listed(counts: Counts) -> Config:
    types = evenly(counts, FULL, LINEAR)
    return {
        key: [i + 1 for i, name in enumerate(types) if name == kind]
        for key, kind in ((_KIMI_FULL, FULL), (_KIMI_LINEAR, LINEAR))
    }


# Kimi Linear, Kimi K3: full attention in the layers that `full_attn_layers` counts from 1.
COUNTED = Pattern({_KIMI_FULL: None, _KIMI_LINEAR: None}, _kimi, _kimi_listed)

_LETTERS = {"M": LINEAR, "*": FULL, "-": DENSE, "E": SPARSE}
_LAYER_NAMES = {
    "mamba": LINEAR,
    "attention": FULL,
    "mlp": DENSE,
    "moe": SPARSE,
    FULL: FULL,
    LINEAR: LINEAR,
}
_WRITTEN_NAMES = {LINEAR: LINEAR, FULL: FULL, SPARSE: "moe", DENSE: "mlp"}


def _nemotron(reader: ConfigReader) -> Names:
    key, table = "hybrid_override_pattern", _LETTERS
    listed = reader.value(key)
    if listed is None:
        key, table = "layers_block_type", _LAYER_NAMES
        listed = reader.value(key)
    if not isinstance(listed, (str, list)) or len(listed) != reader.layers:
        raise reader.refuse(key, "does not name num_hidden_layers layers", f"{reader.layers}")
    for name in listed:
        if name not in table:
            raise reader.refuse(key, f"{name!r} is not covered", ", ".join(table))
    return [table[name] for name in listed]


def _nemotron_listed(counts: Counts) -> Config:
    """A layer of each kind in turn, each kind spread evenly: Mamba and attention first."""
    placed = [
        ((i + 0.5) / counts[sort], order, name)
        for order, (sort, name) in enumerate(_WRITTEN_NAMES.items())
        for i in range(counts[sort])
    ]
    return {"layers_block_type": [name for _, _, name in sorted(placed)]}


# Nemotron-H: a layer is attention, Mamba-2, or feed-forward alone; letters or a list of names.
ALONE = Pattern(
    {"hybrid_override_pattern": None, "layers_block_type": None}, _nemotron, _nemotron_listed
)


def _granite(reader: ConfigReader) -> Names:
    listed = layer_types(reader, [LINEAR] * reader.layers, (FULL, LINEAR, "attention", "mamba"))
    return [FULL if name in (FULL, "attention") else LINEAR for name in listed]


# Granite 4: attention or Mamba-2 in every layer, by `layer_types`.
MAMBA_LISTED = Pattern({}, _granite, _linear_listed)


def periodic(name: str, period: int, offset: int, sort: str, other: str) -> Pattern:
    """Jamba: the layers i with i % period == offset are of a sort."""
    period_key, offset_key = f"{name}_period", f"{name}_offset"

    def read(reader: ConfigReader) -> Names:
        n, first = reader.integer(period_key), reader.integer(offset_key, least=0)
        return [sort if i % n == first else other for i in range(reader.layers)]

    def write(counts: Counts) -> Config:
        """In the middle of the period."""
        layers = total(counts)
        for n in range(1, layers + 1):
            for first in sorted(range(n), key=lambda i: abs(i - n // 2)):
                if len(range(first, layers, n)) == counts[sort]:
                    return {period_key: n, offset_key: first}
        raise Cannot(f"no period places {counts[sort]} of {layers} layers")

    return Pattern({period_key: period, offset_key: offset}, read, write)


_RATIOS = {0: SLIDING, 4: CSA, 128: HCA}


def _compressed(reader: ConfigReader) -> Names:
    ratios = reader.value("compress_ratios")
    if ratios is None:
        otherwise = [HCA] * 2 + [CSA if i % 2 else HCA for i in range(reader.layers - 2)]
        otherwise = otherwise[: reader.layers]
    elif not isinstance(ratios, list) or len(ratios) < reader.layers:
        raise reader.refuse("compress_ratios", f"{ratios!r}", f"a list of {reader.layers}")
    elif any(type(ratio) is not int or ratio not in _RATIOS for ratio in ratios):
        raise reader.refuse("compress_ratios", f"{ratios!r}", "4, 128 or 0 a layer")
    else:
        otherwise = [_RATIOS[ratio] for ratio in ratios[: reader.layers]]
    if reader.value("layer_types") is None:
        return otherwise
    return layer_types(reader, otherwise, (SLIDING, CSA, HCA))


# DeepSeek-V4: a layer's cache is compressed 4 times and chosen from by an indexer, compressed 128
# times, or the window alone (`compress_ratios` 4, 128, 0).
COMPRESSED = Pattern(
    {"compress_ratios": None},
    _compressed,
    lambda counts: {
        "compress_ratios": [ratio for ratio, name in _RATIOS.items() for _ in range(counts[name])]
    },
)
