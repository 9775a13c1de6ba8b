"""A published shape as values of the axes of a space, and where it stands on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.problem.shape_table import Adapt
from dse.schema.axes import AXES, Axis
from dse.schema.blocks import WEIGHT_PARTS
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.schema.model import BlockSpec, Model
from dse.space.axes import AxisTable
from dse.space.batches import deployed_dtypes
from dse.space.candidates import CandidateBatch


@dataclass(frozen=True, slots=True)
class Place:
    """Where a published value stands on an axis: `on` the grid, or between its neighbours `below`
    and `above` (None: beyond the end)."""

    axis: str
    value: float
    on: bool
    below: float | None
    above: float | None

    @property
    def inside(self) -> bool:
        return self.on or (self.below is not None and self.above is not None)


def axis_values(model: Model, axes: tuple[Axis, ...]) -> dict[str, NDArray]:
    """The model's shape as values of `axes`, (1,) each; an axis that says nothing of it is 0.

    Raises InputError for a model with layers that the axes cannot say.
    """
    found = {
        "vocab_size": float(model.vocab_size),
        "tied_embeddings": float(model.tied_embeddings),
        "hidden_size": float(model.hidden_size),
        "num_hidden_layers": float(model.num_hidden_layers),
    }
    by_kind: dict[str, list[BlockSpec]] = {}
    for block in model.blocks:
        by_kind.setdefault(block.kind, []).append(block)
    for kind, blocks in by_kind.items():
        reader = _READERS.get(kind)
        if reader is None or (len(blocks) > 1 and kind != "gqa"):
            _refuse(model, f"{len(blocks)} kinds of {kind} layers")
        else:
            found |= reader(blocks, model)
    found["sparse"] = float("num_experts" in found)
    dense_layers = found.pop("mlp_layers", 0.0)
    if found["sparse"]:
        found["num_dense_layers"] = dense_layers
    names = {axis.name for axis in axes}
    unsaid = [name for name, value in found.items() if value and name not in names]
    if unsaid:
        _refuse(model, f"{', '.join(unsaid)}, which the space has no axis of")
    return {axis.name: np.array([float(found.get(axis.name, 0.0))]) for axis in axes}


def _refuse(model: Model, what: str) -> NoReturn:
    raise InputError(
        f"{model.name} has {what}",
        field="expert",
        accepted=f"a model of {', '.join(_READERS)} layers, with an axis for each of its sizes",
    )


def _grouped(blocks: list[BlockSpec], model: Model) -> dict[str, float]:
    """All layers alike, or full layers among windowed ones in a regular pattern."""
    sizes = blocks[0].sizes
    local = [block for block in blocks if block.sizes["window"]]
    full = sum(block.count for block in blocks) - sum(block.count for block in local)
    found = {
        "head_dim": sizes["head_dim"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "attention_bias": sizes["qkv_bias"],
        "sliding_window": local[0].sizes["window"] if local else 0,
    }
    if len(blocks) > 1:
        every = model.num_hidden_layers // full if full else 0
        regular = every and model.num_hidden_layers // every == full and len(blocks) == 2
        if not regular:
            _refuse(model, "attention layers in no regular pattern")
        found["sliding_window_pattern"] = every
    return {name: float(value) for name, value in found.items()}


def _latent(blocks: list[BlockSpec], model: Model) -> dict[str, float]:
    sizes = blocks[0].sizes
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {
        "attention": float(AXES["attention"].names.index("mla")),
        "num_attention_heads": float(sizes["heads"]),
        **{name: float(sizes[name]) for name in names},
    }


def _dense(blocks: list[BlockSpec], model: Model) -> dict[str, float]:
    block = blocks[0]
    return {
        "intermediate_size": float(block.sizes["intermediate_size"]),
        "mlp_layers": float(block.count),
    }


def _experts(blocks: list[BlockSpec], model: Model) -> dict[str, float]:
    sizes = {name: float(size) for name, size in blocks[0].sizes.items()}
    width = sizes["expert_intermediate_size"]
    return {
        "num_experts": sizes["experts"],
        "num_experts_per_tok": sizes["experts_per_token"],
        "moe_intermediate_size": width,
        "num_shared_experts": sizes["shared_intermediate_size"] / width,
    }


_READERS = {"gqa": _grouped, "mla": _latent, "mlp": _dense, "moe": _experts}


def places(expert: Mapping[str, NDArray], axes: tuple[Axis, ...]) -> list[Place]:
    """Where the expert stands on every axis that says something of it."""
    found = []
    for axis in axes:
        value = float(expert[axis.name][0])
        if AXES[axis.name].kind in ("flag", "name") or (value == 0.0 and axis.when):
            continue
        n = len(axis.values)
        known = {name: np.repeat(values, n) for name, values in expert.items()}
        sizes = np.unique(AxisTable(axis).values(np.arange(n) if n > 1 else None, None, known, n))
        below, above = sizes[sizes < value], sizes[sizes > value]
        found.append(
            Place(
                axis.name,
                value,
                bool((sizes == value).any()),
                float(below[-1]) if len(below) else None,
                float(above[0]) if len(above) else None,
            )
        )
    return found


def stored_as(expert: Model) -> Adapt:
    """Every candidate trained and stored in the number formats of the expert's checkpoint, part by
    part: a quality that a format costs would else be counted against one side alone."""
    tables = {
        part: np.array([CODE[deployed_dtypes(expert, dtype)[part]] for dtype in DTYPES], np.intp)
        for part in WEIGHT_PARTS
    }
    # Bits of an element: block scales are not precision (dse.problem.evaluate).
    bits = float(min(int(BITS[expert.weight_dtypes[part]]) for part in WEIGHT_PARTS))

    def adapt(batch: CandidateBatch, values: Mapping[str, NDArray]) -> CandidateBatch:
        asked = values["weight_dtype"].astype(np.intp)
        return replace(
            batch,
            weight_dtype={part: table[asked] for part, table in tables.items()},
            trained_bits=np.full(len(batch), bits),
        )

    return adapt
