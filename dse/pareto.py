"""Pareto fronts. All objectives are minimised.

Non-dominated sets are of one array or of a stream (`Archive`). How good a front is, hypervolume and
additive epsilon say on a common scale: each objective runs from 0 at the ideal to 1 at the nadir of
the reference front, the true front where it is known, else the non-dominated union of the fronts
compared. Cost, latency and energy are scaled in logarithm.

A front at a resolution: a gain below it is no gain.

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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ids = NDArray[np.int64]
Rows = NDArray[np.intp]

# Rows wait until there are this many, or as many as the front holds: a merge then costs a bounded
# share of the work, however large the front grows. So many at once are compared alone first.
PENDING_ROWS = 20_000


def non_dominated(F: Floats) -> Flags:
    """(n,) True where no other row of F (n, m) is as good everywhere and better somewhere.

    Of equal rows only the first is True. +inf is a value like any other; NaN raises ValueError,
    because it compares as neither better nor worse and would remove every other row.
    """
    import moocore

    _refuse_unknown(F)
    if np.isinf(F).any():
        F = np.nan_to_num(F)  # moocore 0.3 is wrong about +inf and crashes on -inf
    return moocore.is_nondominated(F)


def _refuse_unknown(F: Floats) -> None:
    if np.isnan(F).any():
        raise ValueError("an objective is NaN")


class Archive:
    """The non-dominated rows of everything added, with their ids, ordered by id.

    The content depends on neither the order nor the chunks in which rows came: of equal rows the
    one with the smallest id stays.
    """

    def __init__(self, objectives: int) -> None:
        self._F: Floats = np.empty((0, objectives))
        self._ids: Ids = np.empty(0, dtype=np.int64)
        self._pending: list[tuple[Floats, Ids]] = []
        self._pending_rows = 0
        self._ranked: list[_Ranked] = []  # of a large front: most of it, and what came since

    def add(self, F: Floats, ids: Ids) -> None:
        """Offer rows F (k, m) with ids (k,)."""
        _refuse_unknown(F)
        rows = (F, ids) if len(ids) < PENDING_ROWS else _reduce(F, ids)
        self._pending.append(rows)
        self._pending_rows += len(rows[1])
        if self._pending_rows >= max(PENDING_ROWS, len(self._ids)):
            self._merge()

    @property
    def F(self) -> Floats:
        """(k, m) objectives of the front."""
        self._merge()
        return self._F

    @property
    def ids(self) -> Ids:
        """(k,) ids of the front, increasing."""
        self._merge()
        return self._ids

    def __len__(self) -> int:
        return len(self.ids)

    def _merge(self) -> None:
        if not self._pending:
            return
        large = len(self._ids) >= LARGE and self._F.shape[1] >= MANY_OBJECTIVES
        parts = self._pending if large else [(self._F, self._ids), *self._pending]
        found = _reduce(
            np.concatenate([F for F, _ in parts]), np.concatenate([ids for _, ids in parts])
        )
        self._pending, self._pending_rows = [], 0
        if large:
            self._unite(*found)
        else:
            (self._F, self._ids), self._ranked = found, []

    def _unite(self, F: Floats, ids: Ids) -> None:
        """Take in a front F (k, m) of others, comparing it with this large one alone.

        A row that was on this front still stands for the one that has replaced it: what it
        dominates, that one dominates too. So most of the front need not be ranked again."""
        if not self._ranked:
            self._ranked = [_Ranked(self._F)]
        beaten = np.zeros(len(F), dtype=bool)
        for one in self._ranked:
            beaten[~beaten] = one.attains(F[~beaten])
        new = F[~beaten]
        stays = ~_Ranked(new).attains(self._F)
        own, place = self._ids.copy(), {row: k for k, row in enumerate(_as_bytes(self._F))}
        for row, other in zip(_as_bytes(F[beaten]), ids[beaten].tolist(), strict=True):
            if (k := place.get(row)) is not None and other < own[k]:
                own[k] = other  # of equal rows, the smallest id
        ids = np.concatenate([own[stays], ids[~beaten]])
        order = np.argsort(ids, kind="stable")
        self._F, self._ids = np.concatenate([self._F[stays], new])[order], ids[order]
        most, *since = self._ranked
        new = np.concatenate([*(one.F for one in since), new])
        self._ranked = [most, _Ranked(new)] if len(new) < len(most.F) / 4 else []


def _reduce(F: Floats, ids: Ids) -> tuple[Floats, Ids]:
    order = np.argsort(ids, kind="stable")
    F, ids = F[order], ids[order]
    keep = non_dominated(F)
    return F[keep], ids[keep]


# Fronts from here on are compared with what comes to them, not all with all.
LARGE, MANY_OBJECTIVES = 4_096, 4
PLACES, BATCH = 256, 1024


def _as_bytes(F: Floats) -> list[bytes]:
    """Each row of F (n, m); +0 and -0 are equal."""
    rows = np.ascontiguousarray(F + 0.0)
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel().tolist()


class _Ranked:
    """Rows F (n, m), and of each objective the best 1/256, 2/256, ... of them as sets of bits.

    The rows that are good enough for another one lie between the cuts of two such sets over all
    objectives: those that are in the one and not in the other are compared."""

    def __init__(self, F: Floats) -> None:
        n, self.F = len(F), F
        self._step = max(-(-n // PLACES), 1)
        order = np.argsort(F, axis=0, kind="stable")
        self._values = np.take_along_axis(F, order, axis=0)
        rank = np.empty((n, F.shape[1]), dtype=np.intp)
        np.put_along_axis(rank, order, np.arange(n)[:, None], axis=0)
        firsts = np.arange(0, n + self._step, self._step)
        self._best = []
        for column in rank.T:
            best = np.zeros((len(firsts), 8 * -(-n // 64)), dtype=np.uint8)
            within = np.packbits(column < firsts[:, None], axis=1, bitorder="little")
            best[:, : within.shape[1]] = within
            self._best.append(best.view(np.uint64))

    def attains(self, G: Floats) -> Flags:
        """(k,) whether a row of F is at least as good everywhere as one of G (k, m)."""
        parts = (G[start : start + BATCH] for start in range(0, len(G), BATCH))
        return np.concatenate([np.zeros(0, dtype=bool), *map(self._attains, parts)])

    def _attains(self, G: Floats) -> Flags:
        sure = may = np.full((len(G), self._best[0].shape[1]), np.uint64(2**64 - 1))
        for values, best, column in zip(self._values.T, self._best, G.T, strict=True):
            place = np.searchsorted(values, column, side="right")
            sure = sure & best.take(place // self._step, axis=0)
            may = may & best.take(-(-place // self._step), axis=0)
        found = np.any(sure, axis=1)
        may[found] = 0
        row, word = np.nonzero(may)
        bits = np.unpackbits(
            may[row, word].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
        )
        one, bit = np.nonzero(bits)
        row, which = row[one], 64 * word[one] + bit
        found[row[(self.F[which] <= G[row]).all(axis=1)]] = True
        return found


REFERENCE = 1.1


@dataclass(frozen=True, slots=True)
class Scale:
    """Ideal and nadir of a reference front, (m,) in the objectives' own units.

    `log[j]` scales objective j, which is then never 0, by its logarithm. An objective in which
    ideal and nadir agree is scaled so that twice the ideal is 1 (a difference of 1 when the ideal
    is 0).
    """

    ideal: tuple[float, ...]
    nadir: tuple[float, ...]
    log: tuple[bool, ...]

    @classmethod
    def of(cls, F: Floats, log: Sequence[bool]) -> Scale:
        """The scale of a reference front F (n, m), dominated rows left out.

        ValueError when F is empty or its front is not finite.
        """
        front = F[non_dominated(F)]
        if not len(front) or not np.isfinite(front).all():
            raise ValueError("the reference front is empty or not finite")
        return cls(tuple(front.min(axis=0).tolist()), tuple(front.max(axis=0).tolist()), tuple(log))

    def __call__(self, F: Floats) -> Floats:
        """(n, m) rows of F scaled; a row worse than the nadir exceeds 1."""
        ideal, nadir = self._transform(np.array([self.ideal, self.nadir]))
        degenerate = np.where(self.log, np.log(2.0), np.where(ideal == 0, 1.0, np.abs(ideal)))
        span = np.where(nadir > ideal, nadir - ideal, degenerate)
        return (self._transform(F) - ideal) / span

    def _transform(self, F: Floats) -> Floats:
        """Logarithm where asked; a maximised metric comes negated, and keeps its order."""
        columns = np.asarray(self.log)
        F = np.array(F, dtype=float)
        F[:, columns] = np.sign(F[:, columns]) * np.log(np.abs(F[:, columns]))
        return F


def hypervolume(F: Floats, scale: Scale) -> float:
    """Volume that F (n, m) dominates up to 1.1 in every scaled objective; 0 for no rows.

    Definition: Zitzler and Thiele 1998 (PPSN V); exact, dominated rows and rows beyond the
    reference point change nothing.
    """
    import moocore

    return float(moocore.hypervolume(scale(F), ref=REFERENCE))


def additive_epsilon(A: Floats, B: Floats, scale: Scale) -> float:
    """Smallest shift of A (n, m), in scaled units, that makes it weakly dominate all of B (k, m).

    Zitzler et al. 2003 (IEEE Transactions on Evolutionary Computation 7, 117-132). 0 or less: A
    already does. Infinite for an empty A.
    """
    import moocore

    return float(moocore.epsilon_additive(scale(A), ref=scale(B)))


def share(F: Floats, true_F: Floats, log: Sequence[bool]) -> float:
    """Hypervolume of F over that of the true front, on the true front's scale; at most 1."""
    scale = Scale.of(true_F, log)
    return hypervolume(F, scale) / hypervolume(true_F, scale)


def contributions(F: Floats) -> Floats:
    """(n,) hypervolume that would be lost without each row of scaled objectives F (n, m)."""
    import moocore

    return moocore.hv_contributions(F, ref=np.full(F.shape[1], REFERENCE))


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


KNEE = "knee"


def choose(F: NDArray[np.float64], names: Sequence[str], log: Sequence[bool]) -> dict[str, int]:
    """Row of F (n, m) that is best in each objective, under `names[j]`, and the knee.

    With x the objectives scaled to 0 at the ideal and 1 at the nadir of F's front (`Scale`), the
    individual minima of two objectives lie at (0, 1) and (1, 0). The knee is the row farthest
    below the hyperplane through the corners where one objective is at its ideal and all others at
    their nadir, at distance (m - 1 - sum x) / sqrt(m): for two objectives the chord between the
    minima (Das 1999, Structural Optimization 18, 107-115).

    Ties in an objective go to the smallest sum of x, then to the first row.
    """
    x = Scale.of(F, log)(F)
    total = np.add.reduce(x, axis=1)
    chosen = {name: int(np.lexsort((total, F[:, j]))[0]) for j, name in enumerate(names)}
    chosen[KNEE] = int(np.argmin(total))
    return chosen
