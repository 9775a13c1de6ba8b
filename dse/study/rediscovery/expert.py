"""A published shape as values of the axes of a space, and where it stands on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dse.candidates import CandidateBatch
from dse.dtypes import BITS, CODE, DTYPES
from dse.errors import InputError
from dse.space.axes import AxisTable, Values
from dse.space.batches import deployed_dtypes
from dse.specs.axes import AXES, Axis
from dse.specs.blocks import WEIGHT_PARTS
from dse.specs.model import BlockSpec, Model
from dse.study.shape_table import Adapt


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


def axis_values(model: Model, axes: tuple[Axis, ...]) -> dict[str, Values]:
    """The model's shape as values of `axes`, (1,) each; an axis that says nothing of it is 0.

    Raises InputError for a model with layers that the axes cannot say.
    """
    found = {
        "vocab_size": model.vocab_size,
        "tied_embeddings": float(model.tied_embeddings),
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
    }
    for block in model.blocks:
        found |= _READERS.get(block.kind, _refuse)(block, model)
    found["sparse"] = float("num_experts" in found)
    if "num_experts" in found and "intermediate_size" in found:
        found["num_dense_layers"] = found.pop("mlp_layers")
    found.pop("mlp_layers", None)
    unsaid = [name for name, value in found.items() if value and name not in _named(axes)]
    if unsaid:
        raise InputError(
            f"{model.name} has {', '.join(unsaid)}, which the space does not have",
            field="model", accepted="these axes, of one value or more",
        )  # fmt: skip
    return {axis.name: np.array([float(found.get(axis.name, 0.0))]) for axis in axes}


def _named(axes: tuple[Axis, ...]) -> set[str]:
    return {axis.name for axis in axes}


def _attention(block: BlockSpec, model: Model) -> dict[str, float]:
    sizes = block.sizes
    return {
        "head_dim": sizes["head_dim"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "sliding_window": sizes["window"],
    }


def _dense(block: BlockSpec, model: Model) -> dict[str, float]:
    return {"intermediate_size": block.sizes["intermediate_size"], "mlp_layers": block.count}


def _experts(block: BlockSpec, model: Model) -> dict[str, float]:
    sizes = block.sizes
    width = sizes["expert_intermediate_size"]
    return {
        "num_experts": sizes["experts"],
        "num_experts_per_tok": sizes["experts_per_token"],
        "moe_intermediate_size": width,
        "num_shared_experts": sizes["shared_intermediate_size"] / width,
    }


def _refuse(block: BlockSpec, model: Model) -> dict[str, float]:
    raise InputError(
        f"{model.name} has {block.kind} layers", field="model", accepted=", ".join(_READERS)
    )


_READERS = {"gqa": _attention, "mlp": _dense, "moe": _experts}


def places(expert: Mapping[str, Values], axes: tuple[Axis, ...]) -> list[Place]:
    """Where the expert stands on every axis that says something of it."""
    found = []
    for axis in axes:
        value = float(expert[axis.name][0])
        if AXES[axis.name].kind == "flag" or (value == 0.0 and axis.when):
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
    bits = min(BITS[expert.weight_dtypes[part]] for part in WEIGHT_PARTS)

    def adapt(batch: CandidateBatch, values: Mapping[str, Values]) -> CandidateBatch:
        asked = values["weight_dtype"].astype(np.intp)
        return replace(
            batch,
            weight_dtype={part: table[asked] for part, table in tables.items()},
            trained_bits=np.full(len(batch), bits),
        )

    return adapt
