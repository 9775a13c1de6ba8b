"""The front of predicted loss and price over shapes, and how far a design is from it.

The front is the set of shapes, each on its best deployment, that no other shape beats in both.
Between two neighbours of it the logarithm of the price is taken to be linear in the loss.

- Cost at equal quality: the design's price over the front's at the design's loss.
- Quality at equal cost: the design's loss less the front's at the design's price.

Beyond its best quality the front says nothing (None); beyond its cheapest shape it stays where it
ends, for that shape is better and cheaper at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.pareto import non_dominated
from dse.space.candidates import Floats


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
