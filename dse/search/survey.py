"""The sample that stands for the whole space in the study of record, for what optuna-dashboard
draws from it (which axes decide about an objective).

Points are drawn over the grid in Latin hypercubes (McKay, Beckman and Conover 1979, Technometrics
21, 239-245): in each block every value of an axis is drawn equally often, to within one. Which
points and in which order depends on the axes and the seed alone, so nothing that was evaluated has
a say in it. Of this order the first designs that keep every constraint are stored, and the first
that break one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dse.pareto import Ids
from dse.problem.protocol import Problem
from dse.search.evaluator import Batch, Engine
from dse.space.space import Space

MOST_KEPT, MOST_REFUSED = 1_500, 500
BLOCK = 2_048
MOST_DRAWN = 16 * BLOCK
# The part of a search's evaluations that goes to its survey.
SHARE = 10
# Beside the numbers of the work units, with which a seed is shared.
_UNIT = 2_000_000


@dataclass(frozen=True, slots=True)
class Survey:
    """What was drawn, ids (n,), in order; of it the designs that are stored: `kept` meet every
    constraint, `refused` break one."""

    ids: Ids
    kept: Batch
    refused: Batch


def blocks(space: Space, seed: int, most: int) -> Iterator[Ids]:
    """Canonical points (n, d), distinct over all blocks, of at most `most` draws. Of a space of no
    more points than a block, all of them."""
    rng = np.random.Generator(np.random.PCG64([seed, _UNIT]))
    size = min(BLOCK, most)
    if space.size <= size:
        yield space.unrank(rng.permutation(space.size))
        return
    seen = np.empty(0, dtype=np.int64)
    for _ in range(most // size if size else 0):
        columns = [rng.permutation(size) * int(n) // size for n in space.cardinalities]
        index = space.canonical(np.column_stack(columns))
        ids = space.rank(index)
        first = np.sort(np.unique(ids, return_index=True)[1])
        new = first[~np.isin(ids[first], seen)]
        seen = np.concatenate([seen, ids[new]])
        yield index[new]


def take(problem: Problem, engine: Engine, seed: int, limit: int) -> Survey | None:
    """Draw and evaluate blocks until both kinds of design are enough: at most 32,768 points, and a
    tenth of a search of `limit` evaluations that is not of the whole space. They are in no account
    of an evaluator yet. None for an engine whose own trials are what it evaluates, and for too few
    evaluations."""
    whole = limit >= problem.space.size
    most = min(MOST_DRAWN, limit if whole else limit // SHARE)
    if not engine.bulk or not most:
        return None
    drawn: list[Batch] = []
    kept = refused = 0
    for index in blocks(problem.space, seed, most):
        found = problem.evaluate(index)
        drawn.append(Batch(problem.space.rank(index), index, found.F, found.G))
        feasible = int((drawn[-1].violation == 0).sum())
        kept, refused = kept + feasible, refused + len(index) - feasible
        if kept >= MOST_KEPT and refused >= MOST_REFUSED:
            break
    everything = Batch.of(drawn)
    feasible = everything.violation == 0
    return Survey(
        everything.ids,
        everything.take(np.flatnonzero(feasible)[:MOST_KEPT]),
        everything.take(np.flatnonzero(~feasible)[:MOST_REFUSED]),
    )
