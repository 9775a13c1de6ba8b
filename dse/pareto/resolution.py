"""A front at a resolution: a gain below it is no gain.

Of each objective, `step` is the difference that counts for nothing. With x the objectives in units
of their steps, a design a can stand for a design b where

- a gives away at most one step in every objective: x_a <= x_b + 1, and
- it gains more in all than it gives away: sum x_a < sum x_b (of equal sums, the one that is better
  in the first objective in which they differ).

The sum falls from b to a, so no chain of designs that stand for each other closes. Designs are
taken in ascending order of the sum, and one is left out only where a design that is kept can stand
for it: a chain of small steps cannot eat the whole front.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dse.pareto.front import non_dominated

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]

BLOCK = 256  # so many rows are compared pair by pair


def resolved(F: Floats, step: Sequence[float], relative: Sequence[bool]) -> Flags:
    """(n,) True where a row of the front F (n, m) is kept at a resolution.

    `step[j]` is in the unit of objective j, or a share of it where `relative[j]` (0.005: a factor
    of 1.005). In an objective whose step is 0 every difference counts: no row stands for one that
    is better there, and between two rows within the other steps it decides. With all steps 0 every
    row of a front is kept.

    Which rows are kept does not depend on their order, but where two are equal the first stays.
    """
    if not any(step):
        return non_dominated(F)
    x, allowed = _scaled(F, step, relative)
    rank = np.empty(len(x))
    order = _order(F, x, allowed)
    rank[order] = np.arange(len(x))
    free = ~_covered(x, allowed, rank, order, order)
    rest = order[~free]
    rest = rest[~_covered(x, allowed, rank, rest, order[free])]
    kept = np.zeros(len(x), dtype=bool)
    kept[order[free]] = True
    kept[_greedy(x, allowed, rank, rest)] = True
    return kept


def _greedy(x: Floats, allowed: Floats, rank: Floats, rows: Rows) -> Rows:
    """Those of `rows`, in order, that are kept where no other row is: the first half alone, then
    what that leaves of the second."""
    if len(rows) > BLOCK:
        half = len(rows) // 2
        first = _greedy(x, allowed, rank, rows[:half])
        rest = rows[half:]
        rest = rest[~_covered(x, allowed, rank, rest, first)]
        return np.concatenate([first, _greedy(x, allowed, rank, rest)])
    y = x[rows]
    covers: Flags = np.asarray((y[:, None, :] - allowed <= y[None, :, :]).all(axis=2))
    left = np.ones(len(rows), dtype=bool)
    for i in range(len(rows)):
        if left[i]:
            left[i + 1 :] &= ~covers[i, i + 1 :]
    return rows[left]


def _scaled(F: Floats, step: Sequence[float], relative: Sequence[bool]) -> tuple[Floats, Floats]:
    """(n, m) objectives in steps, and (m,) how many of these count for nothing: 1, or 0 of an
    objective without a step, which stays in its own unit."""
    ratio, steps = np.asarray(relative, dtype=bool), np.asarray(step, dtype=float)
    x = np.array(F, dtype=float)
    amount = np.maximum(np.abs(x[:, ratio]), np.finfo(float).tiny)
    x[:, ratio] = np.where(np.signbit(x[:, ratio]), -1.0, 1.0) * np.log(amount)
    unit = np.where(ratio, np.log1p(steps), steps)
    return x / np.where(steps > 0.0, unit, 1.0), np.where(steps > 0.0, 1.0, 0.0)


def _order(F: Floats, x: Floats, allowed: Floats) -> Rows:
    """Rows by the objectives without a step, then by the sum of the others, then by F, so that none
    comes behind one that it can stand for."""
    coarse = allowed > 0.0
    total = np.add.reduce(x[:, coarse], axis=1)
    return np.lexsort((*F.T[::-1], total, *x[:, ~coarse].T[::-1]))


def _covered(x: Floats, allowed: Floats, rank: Floats, rows: Rows, by: Rows) -> Flags:
    """Whether one of the rows `by` comes before each of `rows` and gives away at most the allowed:
    the row with what it may give away dominates, the rank as one more objective."""
    could = np.column_stack([x[by] - allowed, rank[by] + 0.5])
    held = np.column_stack([x[rows], rank[rows]])
    return ~non_dominated(np.concatenate([could, held]))[len(by) :]
