"""CandidateBatch from models and deployments, and from the values of a search space.

The blocks of a searched shape follow from its axis values. A layer mixes tokens (attention or a
linear kind) and then has a feed-forward (dense or experts).
Patterns divide as the configurations of published models do, rounded down:

    attention layers   layers // full_attention_interval   (Qwen3-Next); the others are linear
    full of them       of these // sliding_window_pattern  (Gemma 3); the others have the window
                       of these // no_rope_layer_interval  (Llama 4); the others are chunked
    sparse layers      (layers - num_dense_layers) // interleave_moe_layer_step    (Llama 4)

Every kind that the axes of a space can choose is a block of every batch of it, with 0 layers where
a point has none: a row does not depend on the rows beside it. All arrays have shape (n,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.blocks import BLOCK_SIZES, OPTIONAL_GROUPS, WEIGHT_PARTS
from dse.schema.axes import AXES, CHIP_DEGREES, DEGREES
from dse.schema.constants import TIERS
from dse.schema.dtypes import BITS, CODE, DTYPES, GGUF
from dse.schema.model import Model
from dse.space.candidates import Block, CandidateBatch, Codes, Floats

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
    """The blocks of n shapes, in the order of `dse.blocks.BLOCK_SIZES`."""
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
        sizes = {size: shape[size] for size in BLOCK_SIZES["mla"]}
        sizes["heads"] = shape["num_attention_heads"]
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


BF16 = CODE["bf16"]
KIND_ORDER = tuple(BLOCK_SIZES)
DEPLOYMENT_AXES = (*DEGREES.values(), "replicas", "concurrency")
EXPERT_AXES = ("redundant_experts", "routing_skew")  # of sparse models, where they are given
# Shares in a memory tier, and its code (`dse.schema.constants.TIERS`), where something is put.
OFFLOAD_AXES = ("weights_offloaded", "kv_offloaded", "offload_tier")
PERCENT_AXES = {f"{share}_percent": share for share in OFFLOAD_AXES[:2]}
DRAFT_AXIS = "draft_tokens"  # of a step, where it is given
CAP_AXIS = "max_running_requests"  # of an attention rank, where it is given
# All that only some deployments say and that stand in CandidateBatch under these names.
OPTIONAL_AXES = (*EXPERT_AXES, DRAFT_AXIS, CAP_AXIS)
DOMAIN_AXIS = "scale_up_domain"  # hypothetical, where it is given


def deployed_dtypes(model: Model, weight_dtype: str | None) -> dict[str, str]:
    """Weight format by part. None, or the format that the checkpoint is published in, keeps the
    checkpoint's own parts ("fp8" asks for 128 x 128 blocks where it has them); any other format
    applies to attention, feed-forward and experts, and leaves embedding and output head at 16
    bits, but for those of llama.cpp."""
    own = dict(model.weight_dtypes)
    asked = ("fp8", "fp8_block") if weight_dtype == "fp8" else (weight_dtype,)
    if weight_dtype is None or (weight_dtype != "bf16" and set(asked) & set(own.values())):
        return own
    embedding = weight_dtype if weight_dtype in GGUF else "bf16"
    return {part: embedding if part == "embedding" else weight_dtype for part in WEIGHT_PARTS}


def batch_of(
    models: Sequence[Model],
    chip: Codes,
    weight_dtypes: Sequence[str | None],
    kv_dtypes: Sequence[str],
    deployment: Mapping[str, Floats],
) -> CandidateBatch:
    """n models on n deployments: `models[i]` on chip code `chip[i]`; `deployment` holds any of the
    axes DEPLOYMENT_AXES (1 where it lacks them), EXPERT_AXES, OFFLOAD_AXES, DOMAIN_AXIS, DRAFT_AXIS
    and CAP_AXIS, (n,) each. Block lists are aligned by kind and padded with empty blocks."""
    n = len(models)

    def column(values: Sequence[float] | Floats) -> Floats:
        return np.array(values, dtype=np.float64)

    parts = [
        deployed_dtypes(model, dtype) for model, dtype in zip(models, weight_dtypes, strict=True)
    ]
    tier = deployment.get("offload_tier")
    trained = np.array([trained_codes(model) for model in models], dtype=np.intp).T
    return CandidateBatch(
        hidden_size=column([model.hidden_size for model in models]),
        vocab_size=column([model.vocab_size for model in models]),
        tied_embeddings=column([model.tied_embeddings for model in models]),
        blocks=_aligned_blocks(models),
        weight_dtype={
            part: np.array([CODE[row[part]] for row in parts], dtype=np.intp)
            for part in WEIGHT_PARTS
        },
        kv_dtype=np.array([CODE[dtype] for dtype in kv_dtypes], dtype=np.intp),
        chip=np.asarray(chip, dtype=np.intp),
        training_tokens=column(
            [np.nan if m.training_tokens is None else m.training_tokens for m in models]
        ),
        trained_whole=trained[0],
        trained_in=trained[1],
        **{
            axis: np.broadcast_to(column(deployment.get(axis, np.ones(1))), n).copy()
            for axis in (*DEPLOYMENT_AXES, *EXPERT_AXES, *OFFLOAD_AXES[:2], CAP_AXIS)
            if axis in DEPLOYMENT_AXES or axis in deployment
        },
        offload_tier=None if tier is None else np.broadcast_to(np.array(tier, np.intp), n).copy(),
        domain=np.broadcast_to(column(deployment[DOMAIN_AXIS]), n).copy()
        if DOMAIN_AXIS in deployment
        else None,
        prediction_layers=_prediction_layers(models),
        backend=None,
        **drafts_of(models, deployment.get(DRAFT_AXIS), n),
    )


def batch_of_models(models: Sequence[Model]) -> CandidateBatch:
    """n models as they are, each on one chip."""
    n = len(models)
    return batch_of(models, np.zeros(n, dtype=np.intp), [None] * n, ["bf16"] * n, {})


def one_of(
    model: Model,
    deployment: Mapping[str, Any],
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
) -> CandidateBatch:
    """A batch of one on chip 0; formats are the checkpoint's own where they are not given, the axes
    of the `deployment` (numbers, a tier by its name) 1 where it lacks them."""
    kv = kv_dtype or model.kv_dtype or "bf16"
    chip = np.zeros(1, dtype=np.intp)
    return batch_of([model], chip, [weight_dtype], [kv], axes_of(deployment))


def drafts_of(models: Sequence[Model], drafted: Floats | None, n: int) -> dict[str, Floats]:
    """The fields of `drafted` tokens a step, (n,), of n models or of one."""
    if drafted is None:
        return {}
    tokens = np.broadcast_to(np.asarray(drafted, dtype=np.float64), n).copy()
    if len(models) == 1:
        counts, place = np.unique(tokens, return_inverse=True)
        gains = np.array([published_gain(models[0], int(count)) for count in counts])
        return {DRAFT_AXIS: tokens, "draft_gain": gains[place]}
    gain = [published_gain(model, int(k)) for model, k in zip(models, tokens, strict=True)]
    return {DRAFT_AXIS: tokens, "draft_gain": np.array(gain)}


def published_gain(model: Model, drafted: int) -> float:
    """Tokens of a decode step with so many drafted, as published of the model: between two counts
    on a line, beyond the last as with that. NaN where nothing is published."""
    if drafted == 0:
        return 1.0
    if not model.drafts:
        return np.nan
    counts = [0, *sorted(model.drafts)]
    return float(np.interp(drafted, counts, [1.0, *(model.drafts[k] for k in counts[1:])]))


def _prediction_layers(models: Sequence[Model]) -> Floats | None:
    """(n,) modules, one where nothing is said; None where nothing is said of any."""
    said = [model.prediction_layers for model in models]
    if all(count is None for count in said):
        return None
    return np.array([1.0 if count is None else float(count) for count in said])


def trained_codes(model: Model) -> tuple[int, int]:
    """Codes of the formats of the whole training and of its end: what the model says, else 16 bits
    and that of the narrowest weights that the checkpoint was published with."""
    if model.trained_in is not None:
        return whole_training(model.trained_in), CODE[model.trained_in]
    formats = (model.weight_dtypes[part] for part in WEIGHT_PARTS)
    return BF16, CODE[min(formats, key=lambda name: int(BITS[name]))]


def whole_training(trained_in: str) -> int:
    """The code of the format of a whole training that ends in `trained_in`: nobody trains more
    than the end in int4."""
    return BF16 if trained_in == "int4" else CODE[trained_in]


def _aligned_blocks(models: Sequence[Model]) -> tuple[Block, ...]:
    """The k-th block of a kind of every model, as one block; models without one have count 0."""
    slots: list[tuple[str, int]] = []
    rows: list[dict[tuple[str, int], tuple[float, Mapping[str, float]]]] = []
    for model in models:
        seen: dict[str, int] = {}
        row = {}
        for spec in model.blocks:
            slot = (spec.kind, seen.get(spec.kind, 0))
            seen[spec.kind] = slot[1] + 1
            row[slot] = (float(spec.count), spec.sizes)
            if slot not in slots:
                slots.append(slot)
        rows.append(row)
    blocks = []
    # One order for every batch: a model's sums do not depend on the models beside it.
    for kind, k in sorted(slots, key=lambda slot: (KIND_ORDER.index(slot[0]), slot[1])):
        cells = [row.get((kind, k), (0.0, {})) for row in rows]
        used = [
            name
            for group in OPTIONAL_GROUPS.get(kind, ())
            if any(cell[1].get(name) for cell in cells for name in group)
            for name in group
        ]
        sizes = {
            name: np.array([float(cell[1].get(name, 0.0)) for cell in cells])
            for name in (*BLOCK_SIZES[kind], *used)
        }
        blocks.append(Block(kind, np.array([cell[0] for cell in cells]), sizes))
    return tuple(blocks)


def batch_of_values(values: Mapping[str, NDArray], *, model: Model | None = None) -> CandidateBatch:
    """The candidates of a search space from its axis values, (n,) each (`Space.values`).

    Axes that do not apply are 0 (parallel degrees then count as 1). With `model`, the shape is
    fixed and the values hold the deployment only.
    """
    n = len(values["chip"])
    weight = values.get("weight_dtype", np.full(n, BF16)).astype(np.intp)
    deployment: dict[str, Any] = {
        "chip": values["chip"].astype(np.intp),
        **deployed_fields(values, n),
        "training_tokens": values.get("training_tokens", np.full(n, np.nan)),
        "prediction_layers": values.get("num_nextn_predict_layers"),
    }
    if model is not None:
        return _fixed(model, n, weight, deployment)
    bf16 = np.full(n, BF16)
    end = values.get("trained_in", bf16).astype(np.intp)
    return CandidateBatch(
        hidden_size=values["hidden_size"],
        vocab_size=values["vocab_size"],
        tied_embeddings=values["tied_embeddings"],
        blocks=blocks_of(values, n),
        weight_dtype={"attention": weight, "mlp": weight, "experts": weight, "embedding": bf16},
        trained_whole=_WHOLE[end],
        trained_in=end,
        **deployment,
    )


_WHOLE = np.array([whole_training(name) for name in DTYPES], dtype=np.intp)


def deployed_fields(values: Mapping[str, NDArray], n: int) -> dict[str, Any]:
    """The fields of n candidates that the deployment axes of a space set, but for the chip and the
    format of the weights."""

    def degree(axis: str) -> Floats:
        return np.maximum(values[axis], 1.0) if axis in values else np.ones(n)

    fields: dict[str, Any] = {
        "kv_dtype": values.get("kv_dtype", np.full(n, BF16)).astype(np.intp),
        **{axis: degree(axis) for axis in DEGREES.values()},
        "concurrency": values["concurrency"],
        "domain": values.get(DOMAIN_AXIS),
        **{axis: values.get(axis) for axis in (EXPERT_AXES[0], DRAFT_AXIS, CAP_AXIS)},
    }
    if "backend" in values:
        fields["backend"] = values["backend"].astype(np.intp)
    if "replicas" in values:
        fields["replicas"] = values["replicas"]
    else:
        tensor, pipeline, data = (fields[axis] for axis in CHIP_DEGREES)
        fields["replicas"] = values["chips"] / (tensor * pipeline * data)
    for axis, share in PERCENT_AXES.items():
        if axis in values:
            fields[share] = values[axis] / 100.0
    if "offload_tier" in values:
        fields["offload_tier"] = values["offload_tier"].astype(np.intp)
    return fields


def weight_formats(models: Sequence[Model]) -> dict[str, Codes]:
    """By weight part, (k, formats): the code of what each model's part is in where a format is
    asked for."""
    parts = [[deployed_dtypes(model, dtype) for dtype in DTYPES] for model in models]
    return {
        part: np.array([[CODE[one[part]] for one in row] for row in parts], dtype=np.intp)
        for part in WEIGHT_PARTS
    }


def _fixed(model: Model, n: int, weight: Codes, deployment: dict[str, Any]) -> CandidateBatch:
    """One model n times, with its checkpoint's own parts where the format asked for is its own."""
    said = ("training_tokens", "prediction_layers")  # by the model before the space
    for name in said:
        if getattr(model, name) is not None:
            del deployment[name]
    return replace(
        batch_of_models([model])[np.zeros(n, dtype=np.intp)],
        weight_dtype={part: codes[0, weight] for part, codes in weight_formats([model]).items()},
        **(deployment | drafts_of([model], deployment[DRAFT_AXIS], n)),
    )


def axes_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of one deployment for `batch_of`, (1,) each."""
    axes: dict[str, Any] = {
        axis: np.array([float(deployment[axis])])
        for axis in (*DEPLOYMENT_AXES, *OPTIONAL_AXES, DOMAIN_AXIS)
        if axis in deployment
    }
    if deployment.get("offload_tier") is None:
        return axes
    shares = {axis: np.array([float(deployment[axis])]) for axis in OFFLOAD_AXES[:2]}
    return axes | shares | {"offload_tier": np.array([TIERS.index(deployment["offload_tier"])])}
