"""CandidateBatch from models and deployments, and from the values of a search space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.schema.blocks import BLOCK_SIZES, OPTIONAL_GROUPS, WEIGHT_PARTS
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.schema.model import Model
from dse.space.candidates import Block, CandidateBatch, Codes, Floats
from dse.space.shapes import blocks_of

BF16 = CODE["bf16"]
KIND_ORDER = tuple(BLOCK_SIZES)
DEPLOYMENT_AXES = (
    "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "replicas",
    "concurrency",
)  # fmt: skip
EXPERT_AXES = ("redundant_experts", "routing_skew")  # of sparse models, where they are given
# Shares in a memory tier, and its code (`dse.schema.tiers.TIERS`), where something is put there.
OFFLOAD_AXES = ("weights_offloaded", "kv_offloaded", "offload_tier")
PERCENT_AXES = {f"{share}_percent": share for share in OFFLOAD_AXES[:2]}
DOMAIN_AXIS = "scale_up_domain"  # hypothetical, where it is given


def deployed_dtypes(model: Model, weight_dtype: str | None) -> dict[str, str]:
    """Weight format by part. None, or the format that the checkpoint is published in, keeps the
    checkpoint's own parts ("fp8" asks for 128 x 128 blocks where it has them); any other format
    applies to attention, feed-forward and experts, and leaves embedding and output head at 16
    bits."""
    own = dict(model.weight_dtypes)
    asked = ("fp8", "fp8_block") if weight_dtype == "fp8" else (weight_dtype,)
    if weight_dtype is None or (weight_dtype != "bf16" and set(asked) & set(own.values())):
        return own
    return {part: "bf16" if part == "embedding" else weight_dtype for part in WEIGHT_PARTS}


def batch_of(
    models: Sequence[Model],
    chip: Codes,
    weight_dtypes: Sequence[str | None],
    kv_dtypes: Sequence[str],
    deployment: Mapping[str, Floats],
) -> CandidateBatch:
    """n models on n deployments: `models[i]` on chip code `chip[i]`; `deployment` holds the axes
    DEPLOYMENT_AXES, (n,) each, and any of EXPERT_AXES, OFFLOAD_AXES and DOMAIN_AXIS. Block lists
    are aligned by kind and padded with empty blocks."""
    n = len(models)

    def column(values: Sequence[float] | Floats) -> Floats:
        return np.array(values, dtype=np.float64)

    parts = [
        deployed_dtypes(model, dtype) for model, dtype in zip(models, weight_dtypes, strict=True)
    ]
    tier = deployment.get("offload_tier")
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
        trained_bits=column([_trained_bits(model) for model in models]),
        **{
            axis: np.broadcast_to(column(deployment[axis]), n).copy()
            for axis in (
                *DEPLOYMENT_AXES,
                *(axis for axis in (*EXPERT_AXES, *OFFLOAD_AXES[:2]) if axis in deployment),
            )
        },
        offload_tier=None if tier is None else np.broadcast_to(np.array(tier, np.intp), n).copy(),
        domain=np.broadcast_to(column(deployment[DOMAIN_AXIS]), n).copy()
        if DOMAIN_AXIS in deployment
        else None,
        prediction_layers=_prediction_layers(models),
    )


def _prediction_layers(models: Sequence[Model]) -> Floats | None:
    """(n,) modules, one where nothing is said; None where nothing is said of any."""
    said = [model.prediction_layers for model in models]
    if all(count is None for count in said):
        return None
    return np.array([1.0 if count is None else float(count) for count in said])


def _trained_bits(model: Model) -> float:
    """Bits of an element of the narrowest weights that the checkpoint was published with: block
    scales are not precision."""
    return float(min(int(BITS[model.weight_dtypes[part]]) for part in WEIGHT_PARTS))


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
    if "replicas" in values:
        replicas = values["replicas"]
    else:
        used = _degree(values, "tensor_parallel", n) * _degree(values, "pipeline_parallel", n)
        replicas = values["chips"] / (used * _degree(values, "data_parallel", n))
    weight, kv = (
        values.get(name, np.full(n, BF16)).astype(np.intp) for name in ("weight_dtype", "kv_dtype")
    )
    deployment: dict[str, Any] = {
        "chip": values["chip"].astype(np.intp),
        "kv_dtype": kv,
        "tensor_parallel": _degree(values, "tensor_parallel", n),
        "pipeline_parallel": _degree(values, "pipeline_parallel", n),
        "data_parallel": _degree(values, "data_parallel", n),
        "expert_parallel": _degree(values, "expert_parallel", n),
        "replicas": replicas,
        "concurrency": values["concurrency"],
        "training_tokens": values.get("training_tokens", np.full(n, np.nan)),
        "domain": values.get(DOMAIN_AXIS),
        "prediction_layers": values.get("num_nextn_predict_layers"),
    }
    for axis, share in PERCENT_AXES.items():
        if axis in values:
            deployment[share] = values[axis] / 100.0
    if "offload_tier" in values:
        deployment["offload_tier"] = values["offload_tier"].astype(np.intp)
    if model is not None:
        return _fixed(model, n, weight, deployment)
    bf16 = np.full(n, BF16)
    return CandidateBatch(
        hidden_size=values["hidden_size"],
        vocab_size=values["vocab_size"],
        tied_embeddings=values["tied_embeddings"],
        blocks=blocks_of(values, n),
        weight_dtype={"attention": weight, "mlp": weight, "experts": weight, "embedding": bf16},
        trained_bits=np.full(n, BITS["bf16"]),
        **deployment,
    )


def _degree(values: Mapping[str, NDArray], axis: str, n: int) -> Floats:
    return np.maximum(values[axis], 1.0) if axis in values else np.ones(n)


def _fixed(model: Model, n: int, weight: Codes, deployment: dict[str, Any]) -> CandidateBatch:
    """One model n times, with its checkpoint's own parts where the format asked for is its own."""
    one = np.ones(n)
    by_dtype = [deployed_dtypes(model, dtype) for dtype in DTYPES]
    table = {
        part: np.array([CODE[parts[part]] for parts in by_dtype], dtype=np.intp)
        for part in WEIGHT_PARTS
    }
    if model.training_tokens is not None:
        deployment["training_tokens"] = model.training_tokens * one
    if model.prediction_layers is not None:
        deployment["prediction_layers"] = model.prediction_layers * one
    return CandidateBatch(
        hidden_size=model.hidden_size * one,
        vocab_size=model.vocab_size * one,
        tied_embeddings=model.tied_embeddings * one,
        blocks=tuple(
            Block(block.kind, block.count * one, {k: v * one for k, v in block.sizes.items()})
            for block in _aligned_blocks([model])
        ),
        weight_dtype={part: codes[weight] for part, codes in table.items()},
        trained_bits=_trained_bits(model) * one,
        **deployment,
    )
