"""Every shape of a space with its best deployment, and a published shape beside them.

Notation: k shapes, n points. The space has two objectives, `predicted_loss` and one more that is
positive and better when less (the *price* below, whichever metric it is). What a shape costs does
not depend on the quality law or on the other shapes, so that one table answers for every law, every
limit on shapes and every chip.

The front are the shapes, each on its cheapest deployment, that no other beats in both predicted
loss and price. Between two of its points the logarithm of the price is linear in the loss.

- Cost at equal quality: the design's price over the front's at the design's loss.
- Quality at equal cost: the design's loss less the front's at the design's price.

Beyond its best quality the front says nothing (None); beyond its cheapest shape it stays where it
ends, for that shape is better and cheaper at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.numbers import number
from dse.blocks import BLOCK_SIZES
from dse.errors import InputError
from dse.pareto import non_dominated
from dse.physics.intervals import CLASS
from dse.problem.evaluate import Metrics
from dse.problem.mix import whole
from dse.problem.objective import PhysicsProblem
from dse.quality import depth_factor
from dse.record import record
from dse.schema.axes import AXES, Axis
from dse.schema.dtypes import DTYPES
from dse.schema.metrics import METRICS
from dse.schema.model import BlockSpec, Model
from dse.space.batches import DEPLOYMENT_AXES, trained_codes, weight_formats, whole_training
from dse.space.candidates import CandidateBatch, Codes, Floats, Rows
from dse.space.space import Ints, Space, count_deployments, deployed_values


def model_at(batch: CandidateBatch, i: int, name: str, training_tokens: float | None) -> Model:
    """The shape of candidate `i`, its weights kept in 16 bits; what it does not have is left
    out."""
    blocks = tuple(
        BlockSpec(
            block.kind,
            int(block.count[i]),
            {
                size: whole(values[i])
                for size, values in block.sizes.items()
                if values[i] or size in BLOCK_SIZES[block.kind]
            },
        )
        for block in batch.blocks
        if block.count[i] > 0
    )
    modules, trained_in = batch.prediction_layers, DTYPES[batch.trained_in[i]]
    said = trained_in != "bf16" and whole_training(trained_in) == batch.trained_whole[i]
    return Model(
        id=name,
        name=name,
        hidden_size=int(batch.hidden_size[i]),
        vocab_size=int(batch.vocab_size[i]),
        tied_embeddings=bool(batch.tied_embeddings[i]),
        blocks=blocks,
        weight_dtypes=dict.fromkeys(batch.weight_dtype, "bf16"),
        kv_dtype=None,
        training_tokens=training_tokens,
        source="searched",
        prediction_layers=None if modules is None else int(modules[i]),
        trained_in=trained_in if said else None,
    )


QUALITY = "predicted_loss"
LARGEST = 30_000_000  # points; about a minute and a half on two cores
CHUNK = 12_000
# Metrics that the shape alone decides: a limit on one is looked at before any deployment.
OF_SHAPES = ("total_parameters", "active_parameters", "training_tokens", "training_flops")
Progress = Callable[[int, int], None]
Adapt = Callable[[CandidateBatch, Mapping[str, NDArray]], CandidateBatch]


@dataclass(frozen=True, slots=True)
class Served(Rows):
    """k shapes, each on its best deployment on one chip. `price` (k,) is inf where no deployment
    keeps the limits; `values` hold all axes, (k,) each, and mean nothing there."""

    price: Floats
    values: Mapping[str, NDArray]

    @property
    def feasible(self) -> NDArray[np.bool_]:
        return np.isfinite(self.price)


def price_metric(problem: PhysicsProblem) -> str:
    """The objective beside the predicted loss. Raises InputError for other objectives."""
    named = [objective.metric for objective in problem.objectives]
    others = [name for name in named if name != QUALITY]
    if len(named) != 2 or len(others) != 1 or not _price(others[0]):
        raise InputError(
            f"read {', '.join(named)}",
            file=str(problem.study.path),
            field="objectives",
            accepted=f"{QUALITY} and one cost or latency to minimise, such as "
            "usd_per_million_total_tokens: minimize",
        )
    return others[0]


def _price(metric: str) -> bool:
    """One with an interval, so that it is a time or a cost that was predicted."""
    return METRICS[metric].log and METRICS[metric].direction == "minimize" and metric in CLASS


def shapes_of(problem: PhysicsProblem) -> dict[str, NDArray]:
    """Values of the model axes, (k,) each, of every shape of the space. Raises InputError for a
    fixed model and for more shapes and deployments than can be looked at."""
    study = problem.study
    if study.model is not None:
        raise InputError(
            f"the model is fixed: {study.model}",
            file=str(study.path),
            field="model",
            accepted="axes of a shape",
        )
    space = Space(study.name, study.model_axes, study.fingerprint)
    points = space.size * count_deployments(study) * len(problem.machines.ids)
    if points > LARGEST:
        raise InputError(
            f"{space.size:,} shapes with {count_deployments(study):,} deployments each on "
            f"{len(problem.machines.ids)} chips are {points:,} points",
            file=str(study.path),
            field="axes",
            accepted=f"at most {LARGEST:,}: fewer values",
        )
    return space.values(space.unrank(np.arange(space.size)))


def as_they_are(batch: CandidateBatch, values: Mapping[str, NDArray]) -> CandidateBatch:
    return batch


def metrics_of(
    problem: PhysicsProblem, values: Mapping[str, NDArray], adapt: Adapt = as_they_are
) -> Metrics:
    """Metrics of n points by the values of all their axes, on the grid or off it."""
    batch = adapt(problem.batch_of(dict(values)), values)
    return problem.metrics_of(batch, problem.machines)


def best_deployments(
    problem: PhysicsProblem,
    shapes: Mapping[str, NDArray],
    chip: int = 0,
    *,
    adapt: Adapt = as_they_are,
    progress: Progress = lambda done, total: None,
) -> Served:
    """The deployment with the least price of each of k shapes on chip code `chip`, over all that
    the space allows; ties go to the first. `adapt(batch, values)` may change candidates before they
    are evaluated (formats, routing)."""
    k = len(next(iter(shapes.values())))
    kept = np.flatnonzero(_possible(problem, shapes, chip, adapt))
    step = max(CHUNK // count_deployments(problem.study), 1)
    groups = [kept[i : i + step] for i in range(0, len(kept), step)]

    def serve(rows: Ints) -> Served:
        mine = {name: values[rows] for name, values in shapes.items()}
        return _best(problem, mine, chip, adapt)

    price = np.full(k, np.inf)
    found: dict[str, NDArray] = {name: values.copy() for name, values in shapes.items()}
    done = 0
    with ThreadPoolExecutor(2) as pool:
        for rows, served in zip(groups, pool.map(serve, groups), strict=True):
            price[rows] = served.price
            for name, values in served.values.items():
                found.setdefault(name, np.zeros(k, dtype=values.dtype))[rows] = values
            done += len(rows)
            progress(done, len(kept))
    return Served(price, found)


def _possible(
    problem: PhysicsProblem, shapes: Mapping[str, NDArray], chip: int, adapt: Adapt
) -> NDArray[np.bool_]:
    """(k,) whether a shape keeps the limits that no deployment can change."""
    limits = [limit for limit in problem.limits if limit.metric in OF_SHAPES]
    axes = problem.study.deployment_axes  # of which the first value stands for all
    axes = tuple(replace(axis, values=axis.values[:1], by_chip=()) for axis in axes)
    study = replace(problem.study, deployment_axes=axes)
    k = len(next(iter(shapes.values())))
    kept = np.ones(k, dtype=bool)
    for start in range(0, k if limits else 0, CHUNK):
        rows = np.arange(start, min(start + CHUNK, k))
        row, values = deployed_values(study, {name: v[rows] for name, v in shapes.items()})
        one = np.searchsorted(row, np.arange(len(rows)))
        metrics = metrics_of(
            problem, _on(chip, {name: v[one] for name, v in values.items()}), adapt
        )
        for limit in limits:
            kept[rows] &= limit.amount(metrics) <= 0.0
    return kept


def _best(
    problem: PhysicsProblem, shapes: Mapping[str, NDArray], chip: int, adapt: Adapt
) -> Served:
    row, values = deployed_values(problem.study, shapes, chip)
    values = _on(chip, values)
    found = problem.judge(metrics_of(problem, values, adapt))
    column = next(j for j, one in enumerate(problem.objectives) if one.metric != QUALITY)
    price = np.where((found.G <= 0.0).all(axis=1), found.F[:, column], np.inf)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    least = np.minimum.reduceat(price, starts)
    # The first point of each shape that reaches its least price.
    hits = np.flatnonzero(price == least[np.searchsorted(row[starts], row)])
    first = hits[np.flatnonzero(np.diff(row[hits], prepend=-1))]
    return Served(least, {name: v[first] for name, v in values.items()})


def _on(chip: Codes | int, values: Mapping[str, NDArray]) -> dict[str, NDArray]:
    n = len(next(iter(values.values())))
    return {**values, "chip": np.full(n, chip, dtype=np.intp)}


@dataclass(frozen=True, slots=True)
class Front:
    """Non-dominated shapes in ascending loss and descending price; `rows` are those of the table
    that it was made from. `equivalent` are dense-equivalent parameters, NaN where the law gives
    none."""

    rows: NDArray[np.intp]
    loss: Floats
    price: Floats
    equivalent: Floats


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
) -> dict[str, Any]:
    """Of a design's (loss, price, dense-equivalent parameters) to the front of a table.

    `cost_ratio`: price of the design over the front's at equal quality, above 1 where the front is
    cheaper. `nats`: loss of the design less the front's at equal cost, above 0 where the front is
    better; `dense_equivalent_ratio`: the front's dense-equivalent parameters over the design's
    there. `cheaper` and `better` are rows of the nearest real shapes: the cheapest one that is as
    good, the best one that costs no more. None where there is none, and all of them where the
    design cannot be served, its price being infinite. `dominating` shapes beat it in both."""
    own_loss, own_price, own_equivalent = design
    served = np.isfinite(own_price)
    there = price_at(front, own_loss) if served else None
    best = at_price(front, own_price, front.loss) if served else None
    equivalent = at_price(front, own_price, front.equivalent) if served else None
    ratio = np.nan if equivalent is None else equivalent / own_equivalent
    as_good = front.rows[front.loss <= own_loss][-1:] if served else []
    affordable = front.rows[front.price <= own_price][:1] if served else []
    beats = allowed & (loss <= own_loss) & (price <= own_price)
    beats &= (loss < own_loss) | (price < own_price)
    return {
        "cost_ratio": None if there is None else own_price / there,
        "nats": None if best is None else own_loss - best,
        "dense_equivalent_ratio": number(ratio),
        "cheaper": int(as_good[0]) if len(as_good) else None,
        "better": int(affordable[0]) if len(affordable) else None,
        "dominating": int(beats.sum()) if served else 0,
    }


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


# Of each kind of block that a space can say: axis -> size.
SIZES: Mapping[str, Mapping[str, str]] = {
    "gqa": {
        "head_dim": "head_dim",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "attention_bias": "qkv_bias",
        "sliding_window": "window",
    },
    "mla": {size: size for size in BLOCK_SIZES["mla"] if size != "heads"}
    | {"num_attention_heads": "heads"},
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


def stored_as(expert: Model) -> Adapt:
    """Every candidate trained and stored in the number formats of the expert's checkpoint, part by
    part: a quality that a format costs would else be counted against one side alone."""
    tables = weight_formats([expert])
    trained = trained_codes(expert)

    def adapt(batch: CandidateBatch, values: Mapping[str, NDArray]) -> CandidateBatch:
        asked = values["weight_dtype"].astype(np.intp)
        return replace(
            batch,
            weight_dtype={part: codes[0, asked] for part, codes in tables.items()},
            trained_whole=np.full(len(batch), trained[0]),
            trained_in=np.full(len(batch), trained[1]),
        )

    return adapt


# Metrics that stand in a table as they are.
COLUMNS = (
    "predicted_loss",
    "dense_equivalent_parameters",
    "ttft_s",
    "tpot_s",
    "total_parameters",
    "active_parameters",
    "kv_bytes_per_token",
    "running_requests",
    "chips",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "memory_weights_bytes_per_chip",
    "memory_capacity_bytes_per_chip",
)


@record
class Shapes:
    """Rows 0 to k - 1 are the shapes of a space, row k is the expert's own, each on its best
    deployment. `price` (n,), inf where a shape cannot be served within the limits; `columns` (n,)
    each, and `values` of all axes. Columns mean nothing where the price is inf."""

    price: Floats
    columns: Mapping[str, Floats]
    values: Mapping[str, NDArray]
    shape_axes: tuple[str, ...]

    @property
    def loss(self) -> Floats:
        return self.columns["predicted_loss"]

    @property
    def equivalent(self) -> Floats:
        return self.columns["dense_equivalent_parameters"]

    @property
    def served(self) -> NDArray[np.bool_]:
        return np.isfinite(self.price)

    def rows(self, rows: Sequence[int], metric: str) -> dict[str, Any]:
        """Some rows under keys of the vocabulary: axes, price, figures, deployment."""
        at = np.asarray(rows, dtype=np.intp)
        shape = {name: self.values[name][at] for name in self.shape_axes}
        served: dict[str, Any]
        served = {name: self.values[name][at] for name in DEPLOYMENT_AXES if name in self.values}
        for name in ("weight_dtype", "kv_dtype"):
            served[name] = [DTYPES[int(code)] for code in self.values[name][at]]
        price = np.where(np.isfinite(self.price[at]), self.price[at], np.nan)
        found = {name: np.asarray(column)[at] for name, column in self.columns.items()}
        return {**shape, **served, metric: price, **found}


def tabled(
    problem: PhysicsProblem, served: Served, adapt: Adapt, shape_axes: tuple[str, ...]
) -> Shapes:
    """The columns of served shapes."""
    metrics = metrics_of(problem, served.values, adapt)
    columns = {name: metrics.values[name] for name in COLUMNS}
    columns |= quality_terms(served.values, metrics.parameters.active_non_embedding)
    columns["efficiency_leverage"] = metrics.quality.efficiency_leverage
    return Shapes(served.price, columns, served.values, shape_axes)


def quality_terms(values: Mapping[str, NDArray], active: Floats) -> dict[str, Floats]:
    """What the default law makes a loss of, but for the leverage; of a dense shape, an activation
    ratio of 1 and a granularity of 2."""
    zeros = np.zeros(len(active))
    experts = values.get("num_experts", zeros)
    sparse, shared = experts > 0.0, values.get("num_shared_experts", zeros)
    used = values.get("num_experts_per_tok", zeros) + shared
    width = np.where(sparse, values.get("moe_intermediate_size", zeros), values["hidden_size"])
    return {
        "active_non_embedding": active,
        "activation_ratio": np.where(sparse, used, 1.0) / np.where(sparse, experts + shared, 1.0),
        "granularity": 2.0 * values["hidden_size"] / width,
        "depth_factor": depth_factor(values["hidden_size"], values["num_hidden_layers"], active),
    }
