"""One case: the space's shapes, the expert's shape, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.errors import InputError
from dse.physics.intervals import interval
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem, pose
from dse.problem.shape_table import (
    Adapt,
    Served,
    best_deployments,
    metrics_of,
    price_metric,
    shapes_of,
)
from dse.quality import LAWS
from dse.questions.rediscovery.causes import causes
from dse.questions.rediscovery.expert import Place, axis_values, places, stored_as
from dse.questions.rediscovery.front import Distance, Front, distance, exchange, front_of
from dse.questions.rediscovery.path import Step, free_of_budgets, path
from dse.questions.rediscovery.table import Table, joined, tabled
from dse.schema.calibration import KINDS
from dse.schema.rediscovery import Case
from dse.space.candidates import CandidateBatch, Floats

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Rediscovery:
    """What a comparison with a published design found. `shapes` were looked at, `served` can be
    served within the limits. `price_interval` is the 80% interval of the design's price, and
    `known_as` says how the kernel laws behind it are known. `to_cheaper` and `to_better` lead from
    the expert to the nearest front shapes; `causes` is what each choice of the cheaper one saves at
    equal quality, a factor of cost."""

    case: Case
    objective: str
    shapes: int
    served: int
    places: list[Place]
    price_interval: tuple[float, float]
    known_as: str
    table: Table
    front: Front
    distance: Distance
    to_cheaper: list[Step]
    to_better: list[Step]
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
    paths, saved = {}, {}
    for name, row in (("cheaper", away.cheaper), ("better", away.better)):
        end = {} if row is None else {axis: table.values[axis][row : row + 1] for axis in axes}
        paths[name] = path(problem, own, end, worth, adapt) if end else []
        if end and name == "cheaper":
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
        to_cheaper=paths["cheaper"],
        to_better=paths["better"],
        causes=saved,
        variants=_variants(case, problem, table, front, allowed, worth, adapt),
    )


def _interval(metric: str, metrics: Metrics) -> tuple[float, float]:
    """The 80% interval of one point's metric."""
    low, high = interval(metric, metrics.values[metric], metrics.provenance, metrics.spread)
    return float(low[0]), float(high[0])


def _held(case: Case, table: Table) -> NDArray[np.bool_]:
    """(k + 1,) shapes that keep what the designers had settled on."""
    allowed = table.served.copy()
    for name, values in case.held.items():
        allowed &= np.isin(table.values[name], values)
    return allowed


def _variants(
    case: Case,
    problem: PhysicsProblem,
    table: Table,
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
    problem: PhysicsProblem, table: Table, adapt: Adapt, **changed: Any
) -> tuple[Floats, Floats]:
    """(loss, dense-equivalent parameters) of every row where the study differs in what is said of
    training. What serving costs does not depend on it."""
    other = replace(problem, study=replace(problem.study, **changed))
    metrics = metrics_of(other, table.values, adapt)
    return metrics.values["predicted_loss"], metrics.values["dense_equivalent_parameters"]


# The same comparison with one assumption changed: which of them makes a design look poor.

NEAR = 300  # shapes that are served again where an assumption changes prices


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
    table: Table,
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


def limits_on_shapes(table: Table) -> dict[str, tuple[str, NDArray[np.bool_]]]:
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


def nearest(table: Table, front: Front, allowed: NDArray[np.bool_], worth: float) -> NDArray:
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


def served_again(problem: PhysicsProblem, table: Table, rows: NDArray, adapt: Adapt) -> Served:
    """The shapes of some rows on the deployments that are best under another `adapt`."""
    shapes = {name: table.values[name][rows] for name in table.shape_axes}
    return best_deployments(problem, shapes, adapt=adapt)
