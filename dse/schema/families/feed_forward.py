"""Feed-forward layers of each family: which are sparse, and the sizes of both sorts.

`shared_intermediate_size` is the width of all shared experts of a layer together.
"""

from __future__ import annotations

from collections.abc import Callable

from dse.schema.families.reader import ConfigReader
from dse.schema.model import BlockSpec

GATED, PLAIN = 3, 2
PREDICTION_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")

# Which layers are sparse, and the width of the shared experts of a layer.
SparseRule = Callable[[ConfigReader], int]
SharedRule = Callable[[ConfigReader, int], int]


def all_layers(reader: ConfigReader) -> int:
    return reader.layers


def after_first(reader: ConfigReader) -> int:
    """All but the first `first_k_dense_replace` layers."""
    first = reader.integer("first_k_dense_replace", least=0)
    return max(reader.layers - first, 0)


def no_shared(reader: ConfigReader, width: int) -> int:
    return 0


def shared_count(key: str) -> SharedRule:
    """As many shared experts as the key says, each as wide as a routed one."""

    def rule(reader: ConfigReader, width: int) -> int:
        return 0 if reader.value(key) is None else width * reader.uniform(key, least=0)

    return rule


def shared_width(key: str) -> SharedRule:
    """Shared experts as wide together as the key says."""
    return lambda reader, width: reader.integer(key, least=0)


def sparse(
    rule: SparseRule = all_layers,
    shared: SharedRule = no_shared,
    *,
    experts: str = "num_experts",
    chosen: str = "num_experts_per_tok",
    width: str = "moe_intermediate_size",
    dense_width: str = "intermediate_size",
) -> Callable[[ConfigReader], list[BlockSpec]]:
    """A reader of layers of which `rule` says how many are sparse; the keys have these names."""

    def read(reader: ConfigReader) -> list[BlockSpec]:
        count = rule(reader)
        blocks = []
        if count < reader.layers:
            blocks.append(_mlp(reader, reader.layers - count, dense_width))
        if count:
            one = reader.uniform(width)
            sizes = {
                "experts": reader.uniform(experts),
                "experts_per_token": reader.uniform(chosen),
                "expert_intermediate_size": one,
                "shared_intermediate_size": shared(reader, one),
                "matrices": GATED,
            }
            blocks.append(BlockSpec("moe", count, sizes))
        _note_prediction(reader)
        return blocks

    return read


def plain(key: str = "intermediate_size") -> Callable[[ConfigReader], list[BlockSpec]]:
    """A reader of dense layers of two matrices; a width of null is four times the hidden size."""

    def read(reader: ConfigReader) -> list[BlockSpec]:
        width = reader.optional_integer(key) if key in reader.known else None
        sizes = {"intermediate_size": width or 4 * reader.integer("hidden_size")}
        _note_bias(reader)
        return [BlockSpec("mlp", reader.layers, {**sizes, "matrices": PLAIN})]

    return read


def mpt(reader: ConfigReader) -> list[BlockSpec]:
    width = reader.integer("expansion_ratio") * reader.integer("hidden_size")
    sizes = {"intermediate_size": width, "matrices": PLAIN}
    return [BlockSpec("mlp", reader.layers, sizes)]


def llama4(reader: ConfigReader) -> int:
    """Every `interleave_moe_layer_step`-th layer is sparse, or those that `moe_layers` lists."""
    listed = reader.whole_list("moe_layers")
    if listed:
        return len({layer for layer in listed if 0 <= layer < reader.layers})
    return reader.layers // reader.integer("interleave_moe_layer_step")


def ernie(reader: ConfigReader) -> int:
    """Layers from `moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval`."""
    start = reader.integer("moe_layer_start_index", least=0)
    end = reader.value("moe_layer_end_index")
    last = reader.layers - 1 if end in (None, -1) else reader.integer("moe_layer_end_index")
    step = reader.integer("moe_layer_interval")
    return sum(start <= i <= last and (i + 1) % step == 0 for i in range(reader.layers))


def flagged(key: str, otherwise: SparseRule) -> SparseRule:
    """The layers that a list of flags marks; `otherwise` where there is none."""

    def rule(reader: ConfigReader) -> int:
        flags = reader.flags(key)
        return otherwise(reader) if flags is None else sum(flags)

    return rule


def enumerated(key: str) -> SparseRule:
    """The layers that a text such as "3,4,5" lists."""

    def rule(reader: ConfigReader) -> int:
        text = reader.value(key)
        items = text.split(",") if isinstance(text, str) else []
        if not items or not all(item.strip().isdecimal() for item in items):
            raise reader.refuse(key, f"{text!r}", 'layer numbers, as "3,4,5"')
        return len({int(item) for item in items if int(item) < reader.layers})

    return rule


def arctic(reader: ConfigReader) -> int:
    return reader.layers // reader.integer("moe_layer_frequency")


def arctic_residual(reader: ConfigReader, width: int) -> int:
    """A dense feed-forward beside the experts, as wide as the hidden size."""
    beside = reader.boolean("use_residual") or reader.boolean("parallel_attn_mlp_res")
    return reader.integer("hidden_size") if beside else 0


def hunyuan(reader: ConfigReader) -> list[BlockSpec]:
    """Hunyuan: experts as wide as `moe_intermediate_size` or, where that is null, the dense."""
    own = reader.value("moe_intermediate_size") is not None
    width = "moe_intermediate_size" if own else "intermediate_size"
    shared = shared_count("num_shared_expert")
    return sparse(shared=shared, chosen="moe_topk", width=width)(reader)


def gemma4(reader: ConfigReader) -> list[BlockSpec]:
    """Gemma 4: with `enable_moe_block`, experts beside the dense feed-forward of every layer, which
    counts as a shared expert."""
    if reader.boolean("use_double_wide_mlp"):
        raise reader.refuse("use_double_wide_mlp", "true is not covered", "false")
    if not reader.boolean("enable_moe_block"):
        return [_mlp(reader, reader.layers)]
    shared = shared_width("intermediate_size")
    return sparse(shared=shared, chosen="top_k_experts")(reader)


def prediction_layers(reader: ConfigReader) -> int | None:
    """Modules that predict further tokens; None where the configuration says nothing of any."""
    for key in PREDICTION_KEYS:
        if key in reader.known and (said := reader.optional_integer(key, least=0)) is not None:
            return said
    return None


def _note_prediction(reader: ConfigReader) -> None:
    for key in PREDICTION_KEYS:
        predicted = reader.optional_integer(key, least=0) if key in reader.known else None
        if predicted:
            reader.assume(
                f"{key} {predicted}: left out, as multi-token prediction is not "
                "part of the main model"
            )


def dense(reader: ConfigReader) -> list[BlockSpec]:
    _note_bias(reader)
    return [_mlp(reader, reader.layers)]


def mixtral(reader: ConfigReader) -> list[BlockSpec]:
    """Mixtral, gpt-oss: every layer is sparse and `intermediate_size` is an expert's width."""
    width = reader.integer("intermediate_size")
    return [_moe(reader, reader.layers, "num_local_experts", width, 0)]


def qwen2_moe(reader: ConfigReader) -> list[BlockSpec]:
    shared = reader.integer("shared_expert_intermediate_size", least=0)
    return _qwen(reader, shared)


def qwen3_moe(reader: ConfigReader) -> list[BlockSpec]:
    return _qwen(reader, 0)


def deepseek(reader: ConfigReader) -> list[BlockSpec]:
    """The first `first_k_dense_replace` layers are dense, then every `moe_layer_freq`-th sparse."""
    first = reader.integer("first_k_dense_replace", least=0)
    step = reader.integer("moe_layer_freq")
    count = sum(i >= first and i % step == 0 for i in range(reader.layers))
    width = reader.integer("moe_intermediate_size") if count else 0
    shared = width * (reader.optional_integer("n_shared_experts", least=0) or 0)
    _note_bias(reader)
    _note_prediction(reader)
    return _split(reader, count, "n_routed_experts", width, shared)


def _note_bias(reader: ConfigReader) -> None:
    if "mlp_bias" in reader.known and reader.value("mlp_bias"):
        reader.assume("mlp_bias true: the biases of the feed-forward layers are not counted")


def _qwen(reader: ConfigReader, shared: int) -> list[BlockSpec]:
    step = reader.integer("decoder_sparse_step")
    dense_layers = set(reader.whole_list("mlp_only_layers"))
    count = sum(i not in dense_layers and (i + 1) % step == 0 for i in range(reader.layers))
    width = reader.integer("moe_intermediate_size") if count else 0
    return _split(reader, count, "num_experts", width, shared)


def _split(
    reader: ConfigReader, count: int, experts: str, width: int, shared: int
) -> list[BlockSpec]:
    blocks = []
    if count < reader.layers:
        blocks.append(_mlp(reader, reader.layers - count))
    if count:
        blocks.append(_moe(reader, count, experts, width, shared))
    return blocks


def _mlp(reader: ConfigReader, count: int, key: str = "intermediate_size") -> BlockSpec:
    sizes = {"intermediate_size": reader.integer(key), "matrices": GATED}
    return BlockSpec("mlp", count, sizes)


def _moe(reader: ConfigReader, count: int, experts: str, width: int, shared: int) -> BlockSpec:
    sizes = {
        "experts": reader.integer(experts),
        "experts_per_token": reader.integer("num_experts_per_tok"),
        "expert_intermediate_size": width,
        "shared_intermediate_size": shared,
        "matrices": GATED,
    }
    return BlockSpec("moe", count, sizes)
