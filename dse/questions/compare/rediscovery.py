"""Published designs against the front of a space: `dse compare SPACE MODEL`, `rediscovery/NAME`.

By cause: the design and the cheapest shape that is as good differ in a few choices (GROUPS, those
of experts taken together). Each set of them is swapped, and the shape served on its best
deployment: ln(price) + exchange x loss says what it costs at equal quality. What one choice is
worth depends on those made before it, so the mean over all orders is taken (the value of Shapley
1953), over those of which every shape on the way can be served. The shares add up to the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.intervals import interval
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem, pose
from dse.problem.shapes import (
    OF_SHAPES,
    Adapt,
    Distance,
    Front,
    Place,
    Served,
    axis_values,
    best_deployments,
    distance,
    exchange,
    front_of,
    metrics_of,
    places,
    price_metric,
    shapes_of,
    stored_as,
)
from dse.quality import LAWS, depth_factor
from dse.schema.calibration import KINDS
from dse.schema.dtypes import DTYPES
from dse.schema.rediscovery import Case
from dse.space.candidates import CandidateBatch, Floats

Progress = Callable[[str, int, int], None]
NEAR = 300  # shapes that are served again where an assumption changes prices
MOST_CHOICES = 7  # more have too many orders
# Metrics that stand in a table as they are.
METRICS = (
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
SERVED = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "replicas")
SERVED = (*SERVED, "concurrency")


@dataclass(frozen=True, slots=True)
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
        served = {name: self.values[name][at] for name in SERVED if name in self.values}
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
    columns = {name: metrics.values[name] for name in METRICS}
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


def joined(one: Served, other: Served) -> Served:
    """The rows of both, one after the other."""
    return Served(
        np.concatenate([one.price, other.price]),
        {name: np.concatenate([v, other.values[name]]) for name, v in one.values.items()},
    )


MLA_SIZES = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
# What is one choice: axes that mean nothing without each other are swapped together.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "hidden size and layers": ("hidden_size", "num_hidden_layers"),  # depth at a given size
    "attention kind": ("attention",),
    "attention heads": ("head_dim", "num_attention_heads"),
    "KV heads": ("num_key_value_heads",),
    "latent ranks": ("q_lora_rank", "kv_lora_rank"),
    "sliding window": ("sliding_window", "sliding_window_pattern"),
    "dense or sparse": ("sparse",),
    "feed-forward width": ("intermediate_size",),
    "experts": ("num_experts",),
    "experts per token": ("num_experts_per_tok",),
    "expert width": ("moe_intermediate_size",),
    "shared experts": ("num_shared_experts",),
    "dense layers": ("num_dense_layers",),
}
# A choice of kind, and the groups that mean nothing in the other kind.
_KINDS = {
    "dense or sparse": (
        "feed-forward width",
        "experts",
        "experts per token",
        "expert width",
        "shared experts",
        "dense layers",
    ),
    "attention kind": ("attention heads", "KV heads", "latent ranks", *MLA_SIZES),
}


def differing(
    start: Mapping[str, NDArray], end: Mapping[str, NDArray], axes: Sequence[str]
) -> dict[str, list[str]]:
    """Groups of axes in which two shapes, (1,) each, differ: name -> those of its axes."""
    differ = {name for name in axes if start[name][0] != end[name][0]}
    groups = {
        group: [name for name in names if name in differ]
        for group, names in _groups(axes).items()
        if differ.intersection(names)
    }
    for kind, sizes in _KINDS.items():
        if kind in groups:
            groups[kind] += [name for group in sizes for name in groups.pop(group, [])]
    return groups


def _groups(axes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    known = {name for names in GROUPS.values() for name in names}
    return dict(GROUPS) | {name: (name,) for name in axes if name not in known}


def free_of_budgets(problem: PhysicsProblem) -> PhysicsProblem:
    """The problem without limits on shapes; those on serving stay."""
    return replace(
        problem, limits=tuple(one for one in problem.limits if one.metric not in OF_SHAPES)
    )


def swapped(
    here: Mapping[str, NDArray],
    end: Mapping[str, NDArray],
    groups: Mapping[str, Sequence[str]],
    tried: Sequence[set[str]],
) -> dict[str, NDArray]:
    """One shape for each set of groups that is swapped."""
    found = {name: np.repeat(values, len(tried)) for name, values in here.items()}
    for i, taken in enumerate(tried):
        for group in taken:
            for name in groups[group]:
                found[name][i] = end[name][0]
    return found


def table_of(
    problem: PhysicsProblem, shapes: Mapping[str, NDArray], adapt: Adapt, axes: tuple[str, ...]
) -> Shapes:
    """Shapes, each on its best deployment."""
    return tabled(problem, best_deployments(problem, shapes, adapt=adapt), adapt, axes)


# Their number, those of a token and their width make up for each other.
EXPERTS = ("experts", "experts per token", "expert width", "shared experts", "dense layers")


def causes(
    problem: PhysicsProblem,
    start: Mapping[str, NDArray],
    end: Mapping[str, NDArray],
    worth: float,
    adapt: Adapt,
) -> dict[str, float]:
    """{choice: factor of cost at equal quality}, the dearest first; empty where the shapes, (1,) of
    every model axis, differ in more than MOST_CHOICES choices or no order can be served."""
    axes = tuple(axis.name for axis in problem.study.model_axes)
    groups = differing(start, end, axes)
    of_experts = [axis for name in EXPERTS for axis in groups.pop(name, [])]
    if of_experts:
        groups["experts"] = of_experts
    names = list(groups)
    if not names or len(names) > MOST_CHOICES:
        return {}
    sets = [{name for k, name in enumerate(names) if s >> k & 1} for s in range(1 << len(names))]
    here = {name: start[name] for name in axes}
    table = table_of(free_of_budgets(problem), swapped(here, end, groups, sets), adapt, axes)
    score = np.where(table.served, np.log(table.price) + worth * table.loss, np.inf)
    shares = _shares(score, len(names))
    if shares is None:
        return {}
    order = np.argsort(-shares, kind="stable")
    return {names[k]: float(np.exp(shares[k])) for k in order}


def _shares(score: NDArray[np.float64], n: int) -> NDArray[np.float64] | None:
    """(n,) mean fall of `score`, (2^n,) by set, when a member joins; infinite scores are no way."""
    orders = np.array(list(permutations(range(n))))
    sets = np.concatenate(
        [np.zeros((len(orders), 1), dtype=np.intp), np.cumsum(1 << orders, axis=1)], axis=1
    )
    along = score[sets]
    possible = np.isfinite(along).all(axis=1)
    if not possible.any():
        return None
    along, joined = along[possible], orders[possible]
    falls = along[:, :-1] - along[:, 1:]
    return np.array([falls[joined == k].mean() for k in range(n)])


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """What a comparison with a published design found. `shapes` were looked at, `served` can be
    served within the limits. `price_interval` is the 80% interval of the design's price, and
    `known_as` says how the kernel laws behind it are known. `causes` is what each choice of the
    cheapest shape that is as good saves at equal quality, a factor of cost."""

    case: Case
    objective: str
    shapes: int
    served: int
    places: list[Place]
    price_interval: tuple[float, float]
    known_as: str
    table: Shapes
    front: Front
    distance: Distance
    causes: dict[str, float]
    variants: list[Variant]

    @property
    def expert(self) -> int:
        """Its row in the table."""
        return len(self.table.price) - 1

    @property
    def servable(self) -> bool:
        """Whether the design can be served within the limits on any deployment of the space."""
        return bool(self.table.served[self.expert])


def rediscover(
    case: Case, catalog: Catalog, progress: Progress = lambda what, done, total: None
) -> Rediscovery:
    """Every shape of the case's space and the expert's own, each on its best deployment; the
    distance between them, and what it rests on.

    Raises InputError for a space of several chips, one that cannot be enumerated and one whose axes
    cannot say the design.
    """
    problem = pose(case.study, catalog)
    if len(problem.machines.ids) > 1:
        raise InputError(
            f"{len(problem.machines.ids)} chips: {', '.join(problem.machines.ids)}",
            file=str(case.study.path),
            field="deployment.chip",
            accepted="the chip of the design",
        )
    objective = price_metric(problem)
    axes = tuple(axis.name for axis in case.study.model_axes)
    own = axis_values(case.expert, case.study.model_axes)
    adapt = stored_as(case.expert)
    served = best_deployments(
        problem,
        shapes_of(problem),
        adapt=adapt,
        progress=lambda done, total: progress(case.name, done, total),
    )
    design = best_deployments(free_of_budgets(problem), own, adapt=adapt)
    table = tabled(problem, joined(served, design), adapt, axes)
    allowed = _held(case, table)
    front, away = compare(table, allowed)
    own_metrics = metrics_of(problem, design.values, adapt)
    worth = exchange(front, float(table.loss[-1]))
    saved: dict[str, float] = {}
    if (row := away.cheaper) is not None:
        end = {axis: table.values[axis][row : row + 1] for axis in axes}
        saved = causes(problem, own, end, worth, adapt)
    return Rediscovery(
        case=case,
        objective=objective,
        shapes=len(served.price),
        served=int((served.feasible & allowed[:-1]).sum()),
        places=places(own, case.study.model_axes),
        price_interval=_interval(objective, own_metrics),
        known_as=KINDS[own_metrics.provenance[0]],
        table=table,
        front=front,
        distance=away,
        causes=saved,
        variants=_variants(case, problem, table, front, allowed, worth, adapt),
    )


def _interval(metric: str, metrics: Metrics) -> tuple[float, float]:
    """The 80% interval of one point's metric."""
    low, high = interval(metric, metrics.values[metric], metrics.provenance, metrics.spread)
    return float(low[0]), float(high[0])


def _held(case: Case, table: Shapes) -> NDArray[np.bool_]:
    """(k + 1,) shapes that keep what the designers had settled on."""
    allowed = table.served.copy()
    for name, values in case.held.items():
        allowed &= np.isin(table.values[name], values)
    return allowed


def _variants(
    case: Case,
    problem: PhysicsProblem,
    table: Shapes,
    front: Front,
    allowed: NDArray[np.bool_],
    worth: float,
    adapt: Adapt,
) -> list[Variant]:
    found: list[Variant] = []

    def add(key: str, words: str, pair: tuple[Front, Distance]) -> None:
        found.append(Variant(key, words, pair[1], len(pair[0].rows)))

    for law in LAWS:
        if law != problem.study.quality_law:
            loss, equivalent = _relearned(problem, table, adapt, quality_law=law)
            pair = compare(table, allowed, loss=loss, equivalent=equivalent)
            add(f"law {law}", f"quality law `{law}`", pair)
    for key, (words, mask) in limits_on_shapes(table).items():
        add(key, words, compare(table, allowed & mask))
    if table.columns["activation_ratio"][-1] < 1.0:
        rows = nearest(table, front, allowed, worth)
        again = served_again(free_of_budgets(problem), table, rows, uniform_routing(adapt))
        near = replace(
            table,
            price=again.price,
            columns={name: column[rows] for name, column in table.columns.items()},
        )
        words = f"experts chosen equally often (the {len(rows) - 1} shapes nearest to the front)"
        add("routing", words, compare(near, again.feasible))
    if case.held:
        words = f"{' and '.join(case.held)} free, not held at the expert's"
        add("free", words, compare(table, table.served.copy()))
    tokens = problem.study.training_tokens
    assert tokens is not None  # of every case
    budget = 6.0 * tokens * float(table.columns["active_parameters"][-1])
    loss, equivalent = _relearned(
        problem, table, adapt, training_tokens=None, training_compute=budget
    )
    words = f"no end to the corpus: every shape trained for the design's {budget:.2e} FLOP"
    add("tokens", words, compare(table, allowed, loss=loss, equivalent=equivalent))
    return found


def _relearned(
    problem: PhysicsProblem, table: Shapes, adapt: Adapt, **changed: Any
) -> tuple[Floats, Floats]:
    """(loss, dense-equivalent parameters) of every row where the study differs in what is said of
    training. What serving costs does not depend on it."""
    other = replace(problem, study=replace(problem.study, **changed))
    metrics = metrics_of(other, table.values, adapt)
    return metrics.values["predicted_loss"], metrics.values["dense_equivalent_parameters"]


@dataclass(frozen=True, slots=True)
class Variant:
    """`words` say what is changed, so that they follow `with`. `front_size` is 0 where no rival is
    left."""

    key: str
    words: str
    distance: Distance
    front_size: int

    @property
    def distance_known(self) -> bool:
        return self.distance.cost_ratio is not None or self.distance.nats is not None


def compare(
    table: Shapes,
    allowed: NDArray[np.bool_],
    *,
    loss: Floats | None = None,
    equivalent: Floats | None = None,
) -> tuple[Front, Distance]:
    """The expert, the last row, against the front of the other rows that are allowed. A column that
    is given takes the place of the table's."""
    loss = table.loss if loss is None else loss
    price = table.price
    equivalent = table.equivalent if equivalent is None else equivalent
    rivals = allowed.copy()
    rivals[-1] = False
    front = front_of(loss, price, equivalent, rivals)
    design = (float(loss[-1]), float(price[-1]), float(equivalent[-1]))
    return front, distance(front, loss, price, rivals, design)


def limits_on_shapes(table: Shapes) -> dict[str, tuple[str, NDArray[np.bool_]]]:
    """Key -> (words, mask): shapes no farther than the expert in one term of the law, or at least
    as rich in what no law sees."""
    columns, values = table.columns, table.values
    found = {}
    ratio, grain = columns["activation_ratio"], columns["granularity"]
    if ratio[-1] < 1.0:
        found["sparsity"] = (
            f"no shape sparser than the expert's ({ratio[-1]:.2%} of the experts used)",
            ratio >= ratio[-1],
        )
        found["granularity"] = (
            f"no experts finer than the expert's (granularity {grain[-1]:.3g})",
            grain <= grain[-1],
        )
    zeros = np.zeros(len(aspect_of(values)))
    size = np.maximum(values.get("head_dim", zeros), values.get("v_head_dim", zeros))
    heads = values["num_attention_heads"] * size
    cache = columns["kv_bytes_per_token"]
    found["attention"] = (
        f"attention no smaller than the expert's ({values['num_attention_heads'][-1]:,.0f} query "
        f"heads of its size, {cache[-1] / 1e3:.4g} kB of cache a token)",
        (heads >= heads[-1]) & (cache >= cache[-1]),
    )
    aspect = aspect_of(values)
    found["depth"] = (
        f"hidden size over layers within 10% of the expert's ({aspect[-1]:.0f})",
        np.abs(aspect / aspect[-1] - 1.0) <= 0.1,
    )
    words, every = "all of these at once", table.served.copy()
    for _, mask in found.values():
        every &= mask
    return found | {"all": (words, every)}


def aspect_of(values: Mapping[str, NDArray]) -> Floats:
    """(n,) hidden size over layers."""
    return values["hidden_size"] / values["num_hidden_layers"]


def nearest(table: Shapes, front: Front, allowed: NDArray[np.bool_], worth: float) -> NDArray:
    """Up to NEAR rows of the table closest to its front, those of the front and the expert's
    included, by ln(price) + worth x loss."""
    score = np.log(table.price) + worth * table.loss
    score[~allowed] = np.inf
    score[front.rows] = -np.inf
    score[-1] = np.inf
    order = np.argsort(score, kind="stable")[:NEAR]
    return np.append(np.sort(order[np.isfinite(table.price[order])]), len(score) - 1)


def uniform_routing(adapt: Adapt) -> Adapt:
    """Experts chosen equally often."""

    def changed(batch: CandidateBatch, values: Mapping[str, NDArray]) -> CandidateBatch:
        return replace(adapt(batch, values), routing_skew=np.zeros(len(batch)))

    return changed


def served_again(problem: PhysicsProblem, table: Shapes, rows: NDArray, adapt: Adapt) -> Served:
    """The shapes of some rows on the deployments that are best under another `adapt`."""
    shapes = {name: table.values[name][rows] for name in table.shape_axes}
    return best_deployments(problem, shapes, adapt=adapt)
