"""The blocks of a searched shape from its axis values: which layers there are, and their sizes.

A layer mixes tokens (attention or a linear kind) and then has a feed-forward (dense or experts).
Patterns divide as the configurations of published models do, rounded down:

    attention layers   layers // full_attention_interval   (Qwen3-Next); the others are linear
    full of them       of these // sliding_window_pattern  (Gemma 3); the others have the window
                       of these // no_rope_layer_interval  (Llama 4); the others are chunked
    sparse layers      (layers - num_dense_layers) // interleave_moe_layer_step    (Llama 4)

Every kind that the axes of a space can choose is a block of every batch of it, with 0 layers where
a point has none: a row does not depend on the rows beside it. All arrays have shape (n,).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dse.schema.axes import AXES
from dse.space.candidates import Block, Floats

_KINDS = AXES["linear_attention"].names
_PATTERNS = ("sliding_window_pattern", "no_rope_layer_interval")


class _Shape:
    """Axis values by name; 0 where the space does not have the axis."""

    def __init__(self, values: Mapping[str, NDArray], n: int) -> None:
        self.values, self.zeros = values, np.zeros(n)

    def __getitem__(self, name: str) -> Floats:
        return self.values.get(name, self.zeros)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def every(self, layers: Floats, name: str) -> Floats:
        """(n,) of the layers those that are the n-th, the axis `name` saying which; without the
        axis, or where it does not count, all."""
        if name not in self:
            return layers
        step = self[name]
        return np.where(step > 0.0, np.floor(layers / np.maximum(step, 1.0)), layers)

    def optional(self, **axes: str) -> dict[str, Floats]:
        """Sizes by their name in a block, of the axes that the space has."""
        return {size: self[axis] for size, axis in axes.items() if axis in self}


def blocks_of(values: Mapping[str, NDArray], n: int) -> tuple[Block, ...]:
    """The blocks of n shapes, in the order of `dse.schema.blocks.BLOCK_SIZES`."""
    shape = _Shape(values, n)
    layers = shape["num_hidden_layers"]
    attention = shape.every(layers, "full_attention_interval")
    return (
        *_attention(shape, attention),
        *_linear(shape, layers - attention),
        *_feed_forward(shape, layers),
    )


def _attention(shape: _Shape, layers: Floats) -> list[Block]:
    """Grouped-query layers, full and local (windowed or chunked), and latent ones."""
    gate = shape.optional(output_gate="attn_output_gate")
    indexer = shape.optional(
        index_heads="index_n_heads", index_head_dim="index_head_dim", index_topk="index_topk"
    )
    grouped = layers
    if "attention" in shape:
        grouped = np.where(shape["attention"] > 0.0, 0.0, layers)
    blocks = []
    if "num_key_value_heads" in shape:
        sizes = {
            "heads": shape["num_attention_heads"],
            "kv_heads": shape["num_key_value_heads"],
            "head_dim": shape["head_dim"],
            "v_head_dim": shape["head_dim"],
            "window": shape["sliding_window"],
            "qkv_bias": shape["attention_bias"],
            **gate,
        }
        local = {**sizes, **shape.optional(chunk="attention_chunk_size")}
        pattern = next((name for name in _PATTERNS if name in shape), None)
        if pattern is None:
            blocks.append(Block("gqa", grouped, {**local, **indexer}))
        else:
            full = shape.every(grouped, pattern)
            blocks += [
                Block("gqa", full, {**sizes, "window": shape.zeros, **indexer}),
                Block("gqa", grouped - full, local),
            ]
    if "kv_lora_rank" in shape:
        sizes = {
            "heads": shape["num_attention_heads"],
            "q_lora_rank": shape["q_lora_rank"],
            "kv_lora_rank": shape["kv_lora_rank"],
            "qk_nope_head_dim": shape["qk_nope_head_dim"],
            "qk_rope_head_dim": shape["qk_rope_head_dim"],
            "v_head_dim": shape["v_head_dim"],
        }
        blocks.append(Block("mla", layers - grouped, {**sizes, **gate, **indexer}))
    return blocks


def _linear(shape: _Shape, layers: Floats) -> list[Block]:
    """Gated delta-net (Qwen3-Next), Kimi delta attention (Kimi Linear: as many key heads as value
    heads, a learning rate a head, a decay and an output gate of the rank of a head), Mamba-2, and
    Mamba-1 with the rank of its time step at 1/16 of the hidden size (mamba_ssm's "auto")."""
    blocks = []

    def of(*kinds: str) -> NDArray[np.bool_]:
        found = np.zeros(len(layers), dtype=bool)
        for kind in kinds:
            found = found | (shape["linear_attention"] == _KINDS.index(kind))
        return found

    def block(kind: str, where: NDArray[np.bool_], sizes: dict[str, Floats]) -> None:
        blocks.append(Block(kind, np.where(where, layers, 0.0), sizes))

    if "linear_num_value_heads" in shape:
        kimi, heads = of("kimi_delta"), shape["linear_num_value_heads"]
        rank = np.where(kimi, shape["linear_key_head_dim"], 0.0)
        sizes = {
            "key_heads": np.where(kimi, heads, shape["linear_num_key_heads"]),
            "key_head_dim": shape["linear_key_head_dim"],
            "value_heads": heads,
            "value_head_dim": shape["linear_value_head_dim"],
            "conv_width": shape["linear_conv_kernel_dim"],
            "gates_per_head": np.where(kimi, 1.0, 2.0),
            "decay_rank": rank,
            "output_gate_rank": rank,
        }
        block("delta_net", of("gated_delta_net", "kimi_delta"), sizes)
    if "mamba_expand" in shape:
        sizes = {
            "inner_size": shape["mamba_expand"] * shape["hidden_size"],
            "heads": shape.zeros,
            "groups": shape.zeros,
            "state_size": shape["mamba_d_state"],
            "conv_width": shape["mamba_d_conv"],
            "dt_rank": np.ceil(shape["hidden_size"] / 16.0),
        }
        block("mamba", of("mamba"), sizes)
    if "mamba_num_heads" in shape:
        sizes = {
            "inner_size": shape["mamba_num_heads"] * shape["mamba_head_dim"],
            "heads": shape["mamba_num_heads"],
            "groups": shape["n_groups"],
            "state_size": shape["ssm_state_size"],
            "conv_width": shape["conv_kernel"],
            "dt_rank": shape.zeros,
        }
        block("mamba", of("mamba2"), sizes)
    return blocks


def _feed_forward(shape: _Shape, layers: Floats) -> list[Block]:
    """Dense layers, and in a sparse model experts in every `interleave_moe_layer_step`-th of the
    layers after the first `num_dense_layers`. Feed-forwards are gated."""
    three = np.full(len(layers), 3.0)
    sparse = shape["num_experts"] > 0.0
    first = np.where(sparse, np.minimum(shape["num_dense_layers"], layers), layers)
    with_experts = shape.every(layers - first, "interleave_moe_layer_step")
    expert = shape["moe_intermediate_size"]
    # A dense layer of a sparse model is as wide as what one token uses of its experts.
    active = (shape["num_experts_per_tok"] + shape["num_shared_experts"]) * expert
    dense = shape["intermediate_size"]
    width = np.where(sparse & (dense <= 0.0), active, dense)
    experts = {
        "experts": shape["num_experts"],
        "experts_per_token": shape["num_experts_per_tok"],
        "expert_intermediate_size": expert,
        "shared_intermediate_size": shape["num_shared_experts"] * expert,
        "matrices": three,
    }
    return [
        Block("mlp", layers - with_experts, {"intermediate_size": width, "matrices": three}),
        Block("moe", with_experts, experts),
    ]
