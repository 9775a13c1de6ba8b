"""One shape for several chips, and what it costs against each chip's own best.

Notation: k shapes, c chips. p[i, j] is the least price of shape i on chip j, over all deployments
that keep the limits. Chip j's own best is the cheapest shape on it, b[j] = min over i of p[i, j].

    regret[i, j] = p[i, j] / b[j] - 1        worst[i] = max over j        mean[i] = mean over j

A price level of a chip cancels. Only shapes that every chip can serve have a regret; own bests are
those of all shapes. The space bounds the quality from below, or else each chip's own best were the
smallest shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.economics.priced import price_documents, prices_rest_on
from dse.errors import InputError, NothingFeasible
from dse.pareto import non_dominated
from dse.problem.evaluate import Metrics
from dse.problem.objective import on_terms, pose
from dse.problem.shape_table import (
    QUALITY,
    Served,
    best_deployments,
    metrics_of,
    price_metric,
    shapes_of,
)
from dse.schema.study import Study
from dse.space.candidates import Floats

FLOORS = (QUALITY, "dense_equivalent_parameters")  # what bounds quality from below
LEVELS = 24  # of quality, at which the regret of one shape for all is worked out
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Level:
    """The best shape for all chips where each chip's own best must have at most this loss."""

    loss: float
    shape: int
    regret: Floats

    @property
    def worst(self) -> float:
        return float(self.regret.max())


@dataclass(frozen=True, slots=True)
class Basket:
    """`price`, `loss`, `equivalent` and `regret` are (k, c), the price inf where a chip cannot
    serve a shape; `worst` and `mean` are (k,), inf where not every chip can. `own` holds each
    chip's own best, (c,) rows; `least_worst` and `least_mean` are rows; `front` are the rows that
    are not dominated in (loss, worst regret), in ascending regret. A loss is that on the chip where
    it is highest, for a deployment may quantise. `price_rests_on` are sentences, `price_parts` the
    prices of owned chips (`dse.economics.priced`)."""

    study: Study
    objective: str
    chips: tuple[str, ...]
    served: tuple[Served, ...]
    metrics: tuple[Metrics, ...]
    price: Floats
    loss: Floats
    equivalent: Floats
    regret: Floats
    worst: Floats
    mean: Floats
    own: NDArray[np.intp]
    least_worst: int
    least_mean: int
    front: NDArray[np.intp]
    levels: tuple[Level, ...]
    price_rests_on: tuple[str, ...]
    price_parts: tuple[dict[str, Any], ...]

    @property
    def shared(self) -> int:
        """Shapes that every chip can serve."""
        return int(np.isfinite(self.worst).sum())

    def shape(self, i: int) -> Mapping[str, float]:
        """Values of the model axes of one shape."""
        values = self.served[0].values
        return {axis.name: float(values[axis.name][i]) for axis in self.study.model_axes}


def basket(
    study: Study, catalog: Catalog, progress: Progress = lambda what, done, total: None
) -> Basket:
    """Every shape of the space on every chip of it.

    Raises InputError for a space of one chip, without a limit on quality, or too large to
    enumerate, and NothingFeasible where no shape can be served on all chips.
    """
    catalog = on_terms(catalog, study)
    problem = pose(study, catalog)
    objective = price_metric(problem)
    _check(study, problem.machines.ids)
    shapes, served = shapes_of(problem), []
    for code, chip in enumerate(problem.machines.ids):
        served.append(
            best_deployments(
                problem,
                shapes,
                code,
                progress=lambda done, total, chip=chip: progress(chip, done, total),
            )
        )
    metrics = tuple(metrics_of(problem, one.values) for one in served)
    price = np.stack([one.price for one in served], axis=1)
    ok = np.isfinite(price)
    losses = np.stack([one.values[QUALITY] for one in metrics], axis=1)
    equals = np.stack([one.values["dense_equivalent_parameters"] for one in metrics], axis=1)
    shared = ok.all(axis=1)
    if not shared.any():
        counts = ", ".join(
            f"{chip} {n:,}" for chip, n in zip(problem.machines.ids, ok.sum(axis=0), strict=True)
        )
        raise NothingFeasible(
            f"none of {len(price):,} shapes can be served within the limits on all chips; served "
            f"on {counts}"
        )
    own, chips = np.argmin(price, axis=0), problem.machines.ids
    regret = price / price[own, np.arange(len(own))] - 1.0
    worst = np.where(shared, regret.max(axis=1), np.inf)
    mean = np.where(shared, regret.mean(axis=1), np.inf)
    loss = np.where(shared, losses.max(axis=1), np.inf)
    rows = np.flatnonzero(shared)
    front = rows[non_dominated(np.stack([loss[rows], worst[rows]], axis=1))]
    return Basket(
        study=study,
        objective=objective,
        chips=chips,
        served=tuple(served),
        metrics=metrics,
        price=price,
        loss=loss,
        equivalent=np.where(shared, equals.min(axis=1), np.nan),
        regret=regret,
        worst=worst,
        mean=mean,
        own=own,
        least_worst=int(np.argmin(worst)),
        least_mean=int(np.argmin(mean)),
        front=front[np.lexsort((front, loss[front], worst[front]))],
        levels=_levels(price, np.where(ok, losses, np.inf), loss),
        price_rests_on=tuple(prices_rest_on(catalog, chips, study.price_basis)),
        price_parts=tuple(price_documents(catalog, chips, study.price_basis)),
    )


def _check(study: Study, chips: tuple[str, ...]) -> None:
    if len(chips) < 2:
        raise InputError(
            f"one chip: {', '.join(chips)}",
            file=str(study.path),
            field="deployment.chip",
            accepted="two chips or more",
        )
    if not any(limit.metric in FLOORS for limit in study.constraints):
        raise InputError(
            "no limit on quality: each chip's own best would be the smallest shape",
            file=str(study.path),
            field="constraints",
            accepted="such as dense_equivalent_parameters >= 80B",
        )


def _levels(price: Floats, losses: Floats, loss: Floats) -> tuple[Level, ...]:
    """From the loosest loss that a shape for all chips has to that which a tenth of these reach.
    `losses` (k, c) are those of each chip's deployment, inf where it cannot serve the shape."""
    reached = loss[np.isfinite(loss)]
    found = []
    for level in np.linspace(reached.max(), np.quantile(reached, 0.1), LEVELS):
        best = np.where(losses <= level, price, np.inf).min(axis=0)
        regret = price / best - 1.0
        worst = np.where(loss <= level, regret.max(axis=1), np.inf)
        row = int(np.argmin(worst))
        found.append(Level(float(level), row, regret[row]))
    return tuple(found)
