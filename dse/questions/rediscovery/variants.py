"""The same comparison with one assumption changed: which of them makes a design look poor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.problem.objective import PhysicsProblem
from dse.problem.shape_table import Adapt, Served, best_deployments
from dse.questions.rediscovery.front import Distance, Front, distance, front_of
from dse.questions.rediscovery.table import Table
from dse.space.candidates import CandidateBatch, Floats

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
    price: Floats | None = None,
    equivalent: Floats | None = None,
) -> tuple[Front, Distance]:
    """The expert, the last row, against the front of the other rows that are allowed. A column that
    is given takes the place of the table's."""
    loss = table.loss if loss is None else loss
    price = table.price if price is None else price
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
