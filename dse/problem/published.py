"""A published shape beside those of a space: as values of its axes, and how far it is from a front.

The front are the shapes, each on its cheapest deployment, that no other beats in both predicted
loss and price. Between two of its points the logarithm of the price is linear in the loss.

- Cost at equal quality: the design's price over the front's at the design's loss.
- Quality at equal cost: the design's loss less the front's at the design's price.

Beyond its best quality the front says nothing (None); beyond its cheapest shape it stays where it
ends, for that shape is better and cheaper at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.pareto import non_dominated
from dse.problem.shape_table import Adapt
from dse.schema.axes import AXES, Axis
from dse.schema.blocks import WEIGHT_PARTS
from dse.schema.dtypes import CODE, DTYPES
from dse.schema.model import BlockSpec, Model
from dse.space.axes import AxisTable
from dse.space.batches import deployed_dtypes, trained_codes
from dse.space.candidates import CandidateBatch, Floats


@dataclass(frozen=True, slots=True)
class Front:
    """Non-dominated shapes in ascending loss and descending price; `rows` are those of the table
    that it was made from. `equivalent` are dense-equivalent parameters, NaN where the law gives
    none."""

    rows: NDArray[np.intp]
    loss: Floats
    price: Floats
    equivalent: Floats


@dataclass(frozen=True, slots=True)
class Distance:
    """`cost_ratio`: price of the design over the front's at equal quality, above 1 where the front
    is cheaper. `nats`: loss of the design less the front's at equal cost, above 0 where the front
    is better; `equivalent_ratio`: the front's dense-equivalent parameters over the design's there.
    `cheaper` and `better` are rows of the nearest real shapes: the cheapest one that is as good,
    the best one that costs no more. None where there is none. `dominating` shapes beat the design
    in both."""

    cost_ratio: float | None
    nats: float | None
    equivalent_ratio: float | None
    cheaper: int | None
    better: int | None
    dominating: int


def front_of(loss: Floats, price: Floats, equivalent: Floats, allowed: NDArray[np.bool_]) -> Front:
    """Of the shapes that are `allowed`, (k,), and have a finite price."""
    rows = np.flatnonzero(allowed & np.isfinite(price) & np.isfinite(loss))
    rows = rows[non_dominated(np.stack([loss[rows], price[rows]], axis=1))]
    rows = rows[np.lexsort((rows, price[rows], loss[rows]))]
    _, first = np.unique(loss[rows], return_index=True)
    rows = rows[first]
    return Front(rows, loss[rows], price[rows], equivalent[rows])


def price_at(front: Front, loss: float) -> float | None:
    """The front's price at a loss; None below its least loss."""
    if not len(front.rows) or loss < front.loss[0]:
        return None
    return float(np.exp(np.interp(loss, front.loss, np.log(front.price))))


def at_price(front: Front, price: float, column: Floats) -> float | None:
    """The front's loss, or another of its columns, at a price; None below its least price."""
    if not len(front.rows) or price < front.price[-1]:
        return None
    return float(np.interp(np.log(price), np.log(front.price[::-1]), column[::-1]))


def distance(
    front: Front,
    loss: Floats,
    price: Floats,
    allowed: NDArray[np.bool_],
    design: tuple[float, float, float],
) -> Distance:
    """Of a design's (loss, price, dense-equivalent parameters) to the front of a table; all unknown
    where the design cannot be served, its price being infinite."""
    own_loss, own_price, own_equivalent = design
    if not np.isfinite(own_price):
        return Distance(None, None, None, None, None, 0)
    there = price_at(front, own_loss)
    best = at_price(front, own_price, front.loss)
    equivalent = at_price(front, own_price, front.equivalent)
    as_good = np.flatnonzero(front.loss <= own_loss)
    affordable = np.flatnonzero(front.price <= own_price)
    beats = allowed & (loss <= own_loss) & (price <= own_price)
    beats &= (loss < own_loss) | (price < own_price)
    ratio = None if equivalent is None else equivalent / own_equivalent
    return Distance(
        cost_ratio=None if there is None else own_price / there,
        nats=None if best is None else own_loss - best,
        equivalent_ratio=ratio if ratio is not None and np.isfinite(ratio) else None,
        cheaper=int(front.rows[as_good[-1]]) if len(as_good) else None,
        better=int(front.rows[affordable[0]]) if len(affordable) else None,
        dominating=int(beats.sum()),
    )


def exchange(front: Front, loss: float) -> float:
    """What a nat is worth at a loss: d ln(price) / d(-loss) of the front, over the secant between
    its points nearest to 0.005 nats on either side (the ends, where they are nearer)."""
    if len(front.rows) < 2:
        return 0.0
    low = int(np.argmin(np.abs(front.loss - (loss - 0.005))))
    high = int(np.argmin(np.abs(front.loss - (loss + 0.005))))
    if low == high:
        low, high = 0, len(front.rows) - 1
    fall = np.log(front.price[low] / front.price[high])
    return float(fall / (front.loss[high] - front.loss[low]))


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


# Of each kind of block that a space can say: axis -> size.
SIZES: Mapping[str, Mapping[str, str]] = {
    "gqa": {
        "head_dim": "head_dim",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "attention_bias": "qkv_bias",
        "sliding_window": "window",
    },
    "mla": {
        "num_attention_heads": "heads",
        "q_lora_rank": "q_lora_rank",
        "kv_lora_rank": "kv_lora_rank",
        "qk_nope_head_dim": "qk_nope_head_dim",
        "qk_rope_head_dim": "qk_rope_head_dim",
        "v_head_dim": "v_head_dim",
    },
    "mlp": {"intermediate_size": "intermediate_size"},
    "moe": {
        "num_experts": "experts",
        "num_experts_per_tok": "experts_per_token",
        "moe_intermediate_size": "expert_intermediate_size",
    },
}


def axis_values(model: Model, axes: tuple[Axis, ...]) -> dict[str, NDArray]:
    """The model's shape as values of `axes`, (1,) each; an axis that says nothing of it is 0.

    Raises InputError for a model with layers that the axes cannot say.
    """
    found: dict[str, float] = {
        "vocab_size": model.vocab_size,
        "tied_embeddings": model.tied_embeddings,
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "sparse": bool(model.experts),
    }
    for kind in dict.fromkeys(block.kind for block in model.blocks):
        blocks = [block for block in model.blocks if block.kind == kind]
        sizes = SIZES.get(kind, {})
        if not sizes or (len(blocks) > 1 and "sliding_window" not in sizes):
            raise _refusal(model, f"{len(blocks)} kinds of {kind} layers")
        found |= {axis: blocks[0].sizes[size] for axis, size in sizes.items()}
        if kind in AXES["attention"].names:
            found["attention"] = AXES["attention"].names.index(kind)
        if "sliding_window" in sizes:
            found |= _windows(blocks, model)
        if "num_experts" in sizes:
            shared = blocks[0].sizes["shared_intermediate_size"]
            found["num_shared_experts"] = shared / found["moe_intermediate_size"]
        elif "intermediate_size" in sizes and model.experts:
            found["num_dense_layers"] = blocks[0].count
    names = {axis.name for axis in axes}
    if unsaid := [name for name, value in found.items() if value and name not in names]:
        raise _refusal(model, f"{', '.join(unsaid)}, which the space has no axis of")
    return {axis.name: np.array([float(found.get(axis.name, 0.0))]) for axis in axes}


def _refusal(model: Model, what: str) -> InputError:
    return InputError(
        f"{model.name} has {what}",
        field="expert",
        accepted=f"a model of {', '.join(SIZES)} layers, with an axis for each of its sizes",
    )


def _windows(blocks: list[BlockSpec], model: Model) -> dict[str, float]:
    """All layers alike, or full layers among windowed ones in a regular pattern."""
    local = [block for block in blocks if block.sizes["window"]]
    found = {"sliding_window": local[0].sizes["window"] if local else 0}
    if len(blocks) == 1:
        return found
    full = sum(block.count for block in blocks if not block.sizes["window"])
    every = model.num_hidden_layers // full if full else 0
    if not every or model.num_hidden_layers // every != full or len(blocks) != 2:
        raise _refusal(model, "attention layers in no regular pattern")
    return found | {"sliding_window_pattern": every}


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
    trained = trained_codes(expert)

    def adapt(batch: CandidateBatch, values: Mapping[str, NDArray]) -> CandidateBatch:
        asked = values["weight_dtype"].astype(np.intp)
        return replace(
            batch,
            weight_dtype={part: table[asked] for part, table in tables.items()},
            trained_whole=np.full(len(batch), trained[0]),
            trained_in=np.full(len(batch), trained[1]),
        )

    return adapt
