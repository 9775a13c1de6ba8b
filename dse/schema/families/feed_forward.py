"""Which feed-forward layers are dense and which sparse, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dse.schema.families.patterns import (
    DENSE,
    SPARSE,
    Counts,
    Names,
    Pattern,
    Write,
    all_of,
    evenly,
    total,
)
from dse.schema.families.reader import REQUIRED, ConfigReader
from dse.schema.families.shape import Cannot, Config


def _split(reader: ConfigReader, sparse: int) -> Names:
    return [DENSE] * (reader.layers - sparse) + [SPARSE] * sparse


def counted(
    keys: Mapping[str, object], count: Callable[[ConfigReader], int], write: Write
) -> Pattern:
    """`count` is the number of sparse layers."""
    return Pattern(keys, lambda reader: _split(reader, count(reader)), write)


ALL_DENSE, ALL_SPARSE = all_of(DENSE), all_of(SPARSE)


def _after_first(reader: ConfigReader) -> int:
    return max(reader.layers - reader.integer("first_k_dense_replace", least=0), 0)


def _deepseek(reader: ConfigReader) -> int:
    first = reader.integer("first_k_dense_replace", least=0)
    step = reader.integer("moe_layer_freq")
    return sum(i >= first and i % step == 0 for i in range(reader.layers))


def _first_dense(counts: Counts) -> Config:
    return {"first_k_dense_replace": counts[DENSE]}


# All but the first `first_k_dense_replace` layers; of those, every `moe_layer_freq`-th.
AFTER_FIRST = counted({"first_k_dense_replace": 0}, _after_first, _first_dense)
DEEPSEEK = counted({"first_k_dense_replace": 0, "moe_layer_freq": 1}, _deepseek, _first_dense)


def _qwen(reader: ConfigReader) -> int:
    step = reader.integer("decoder_sparse_step")
    dense = set(reader.whole_list("mlp_only_layers"))
    return sum(i not in dense and (i + 1) % step == 0 for i in range(reader.layers))


# Qwen: every `decoder_sparse_step`-th layer but those of `mlp_only_layers`. Written, the dense
# layers come first, as in DeepSeek-V3 and GLM-4.5.
QWEN = counted(
    {"decoder_sparse_step": 1, "mlp_only_layers": None},
    _qwen,
    lambda counts: {"decoder_sparse_step": 1, "mlp_only_layers": list(range(counts[DENSE]))},
)


def _llama4(reader: ConfigReader) -> int:
    listed = reader.whole_list("moe_layers")
    if listed:
        return len({layer for layer in listed if 0 <= layer < reader.layers})
    return reader.layers // reader.integer("interleave_moe_layer_step")


def _llama4_listed(counts: Counts) -> Config:
    if not counts[SPARSE]:  # a step beyond the last layer
        return {"moe_layers": [], "interleave_moe_layer_step": counts[DENSE] + 1}
    layers = evenly(counts, SPARSE, DENSE)
    return {"moe_layers": [i for i, name in enumerate(layers) if name == SPARSE]}


# Llama 4: every `interleave_moe_layer_step`-th layer, or those that `moe_layers` lists.
INTERLEAVED = counted({"interleave_moe_layer_step": 1, "moe_layers": None}, _llama4, _llama4_listed)


def _ernie(reader: ConfigReader) -> int:
    start = reader.integer("moe_layer_start_index", least=0)
    end = reader.value("moe_layer_end_index")
    last = reader.layers - 1 if end in (None, -1) else reader.integer("moe_layer_end_index")
    step = reader.integer("moe_layer_interval")
    return sum(start <= i <= last and (i + 1) % step == 0 for i in range(reader.layers))


# ERNIE 4.5: from a first layer to a last one (-1: of all), every `moe_layer_interval`-th.
BETWEEN = counted(
    {"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1},
    _ernie,
    lambda counts: {
        "moe_layer_start_index": counts[DENSE],
        "moe_layer_end_index": -1,
        "moe_layer_interval": 1,
    },
)


def flagged(key: str, dense: int) -> Pattern:
    """The layers that a list of flags marks; without one, all but the first `dense`."""

    def count(reader: ConfigReader) -> int:
        flags = reader.flags(key)
        return reader.layers - dense if flags is None else sum(flags)

    def write(counts: Counts) -> Config:
        return {key: [0] * counts[DENSE] + [1] * counts[SPARSE]}

    return counted({key: None}, count, write)


def enumerated(key: str) -> Pattern:
    """The layers that a text such as "3,4,5" lists."""

    def count(reader: ConfigReader) -> int:
        text = reader.value(key)
        items = text.split(",") if isinstance(text, str) else []
        if not items or not all(item.strip().isdecimal() for item in items):
            raise reader.refuse(key, f"{text!r}", 'layer numbers, as "3,4,5"')
        return len({int(item) for item in items if int(item) < reader.layers})

    def write(counts: Counts) -> Config:
        layers = total(counts)
        return {key: ",".join(str(i) for i in range(layers - counts[SPARSE], layers))}

    return counted({key: REQUIRED}, count, write)


def _frequency(counts: Counts) -> Config:
    layers = total(counts)
    for step in range(1, layers + 2):
        if layers // step == counts[SPARSE]:
            return {"moe_layer_frequency": step}
    raise Cannot("every n-th of its layers has experts")


# Arctic: every `moe_layer_frequency`-th layer.
FREQUENCY = counted(
    {"moe_layer_frequency": 2},
    lambda reader: reader.layers // reader.integer("moe_layer_frequency"),
    _frequency,
)


def _one_feed_forward(counts: Counts) -> Config:
    if counts[DENSE] and counts[SPARSE]:
        raise Cannot("all of its layers have experts, or none")
    return {}


# Granite 4: experts in every layer, or none.
GRANITE = counted(
    {"num_local_experts": 8},
    lambda reader: reader.layers if reader.integer("num_local_experts", least=0) else 0,
    lambda counts: _one_feed_forward(counts) | ({} if counts[SPARSE] else {"num_local_experts": 0}),
)
# Gemma 4: experts beside the dense feed-forward of every layer, or none.
BESIDE = counted(
    {"enable_moe_block": False},
    lambda reader: reader.layers if reader.boolean("enable_moe_block") else 0,
    lambda counts: _one_feed_forward(counts) | {"enable_moe_block": bool(counts[SPARSE])},
)
