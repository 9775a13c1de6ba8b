"""Feed-forward layers of each family: which are sparse, and the sizes of both sorts.

`shared_intermediate_size` is the width of all shared experts of a layer together.
"""

from __future__ import annotations

from dse.specs.families.reader import ConfigReader
from dse.specs.model import BlockSpec

GATED = 3


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
    sparse = sum(i >= first and i % step == 0 for i in range(reader.layers))
    width = reader.integer("moe_intermediate_size") if sparse else 0
    shared = width * (reader.optional_integer("n_shared_experts", least=0) or 0)
    _note_bias(reader)
    predicted = reader.optional_integer("num_nextn_predict_layers", least=0)
    if predicted:
        reader.assume(
            f"num_nextn_predict_layers {predicted}: left out, as multi-token prediction is not "
            "part of the main model"
        )
    return _split(reader, sparse, "n_routed_experts", width, shared)


def _note_bias(reader: ConfigReader) -> None:
    if "mlp_bias" in reader.known and reader.value("mlp_bias"):
        reader.assume("mlp_bias true: the biases of the feed-forward layers are not counted")


def _qwen(reader: ConfigReader, shared: int) -> list[BlockSpec]:
    step = reader.integer("decoder_sparse_step")
    dense_layers = set(reader.whole_list("mlp_only_layers"))
    sparse = sum(i not in dense_layers and (i + 1) % step == 0 for i in range(reader.layers))
    width = reader.integer("moe_intermediate_size") if sparse else 0
    return _split(reader, sparse, "num_experts", width, shared)


def _split(
    reader: ConfigReader, sparse: int, experts: str, width: int, shared: int
) -> list[BlockSpec]:
    blocks = []
    if sparse < reader.layers:
        blocks.append(_mlp(reader, reader.layers - sparse))
    if sparse:
        blocks.append(_moe(reader, sparse, experts, width, shared))
    return blocks


def _mlp(reader: ConfigReader, count: int) -> BlockSpec:
    sizes = {"intermediate_size": reader.integer("intermediate_size"), "matrices": GATED}
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
