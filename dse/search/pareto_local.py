"""A large vectorised sample, then every one-parameter neighbour of the front, and some
two-parameter ones, until none helps.

The neighbourhood search is Pareto local search (Paquete, Chiarandini and Stuetzle 2004, LNEMS 535,
177-199) with its expansions made in bulk: a round evaluates the neighbours of many points of the
front at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dse.pareto import Archive, Ids, Scale, contributions
from dse.search.evaluator import (
    SEARCH,
    TOLERATED,
    Batch,
    Engine,
    Evaluator,
    Progress,
    SeenIds,
    Trials,
)
from dse.search.record import active_axes

LEAST_SAMPLE = 2_000
MOST_SAMPLE = 100_000
# Points expanded in a round: those of the front, and near it where the front has none left. A
# thousandth of the evaluations, and a 500th.
LEAST_EXPANDED, MOST_EXPANDED, MOST_NEAR = 8, 64, 256
VAIN = 6
# Expanded points that become trials: the way of the search, until it is near the front.
MOST_SHOWN = 500
RANKED_OBJECTIVES = (2, 3)  # of which contributions to the hypervolume are quick to compute


class ParetoLocal(Engine):
    """A sample, then rounds of moves until nothing helps or the evaluations are spent."""

    name, bulk = "pareto-local", True

    def run(
        self, evaluator: Evaluator, trials: Trials, rng: np.random.Generator, progress: Progress
    ) -> None:
        evaluator.look(drawn(evaluator, rng))
        refine(evaluator, rng, progress)


def drawn(evaluator: Evaluator, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random sample, index (n, d): a hundredth of the space, from 2,000 to 100,000 points, at
    most a quarter of the evaluations left."""
    return evaluator.space.sample(rng, _sample_size(evaluator))


def sample(evaluator: Evaluator, rng: np.random.Generator) -> Batch:
    """Evaluate a random sample."""
    return evaluator.evaluate(drawn(evaluator, rng))


def leaps(evaluator: Evaluator, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many random two-parameter neighbours of the front, index (n, d): where two choices only
    pay together (more chips and a wider split), no single step leads on. Axes that begin to count
    with a move (those of experts, once there are experts) take random values."""
    space, ids = evaluator.space, evaluator.archive.ids
    if not len(ids):
        return drawn(evaluator, rng)
    front = space.unrank(ids)
    chosen = rng.integers(len(ids), size=_sample_size(evaluator))
    index, active = front[chosen], active_axes(space, front)
    for axis in np.flatnonzero(~active.all(axis=0)):
        idle = np.flatnonzero(~active[chosen, axis])
        index[idle, axis] = rng.integers(space.cardinalities[axis], size=len(idle))
    rows, many = np.arange(len(index)), np.flatnonzero(space.cardinalities > 1)
    for _ in range(2):
        axis = rng.choice(many, len(index))
        values = space.cardinalities[axis]
        # a step of 1 to values - 1 around the circle: any other value, each as likely
        index[rows, axis] = (index[rows, axis] + rng.integers(1, values)) % values
    return space.canonical(index)


def _sample_size(evaluator: Evaluator) -> int:
    size = evaluator.space.size // 100
    return min(max(LEAST_SAMPLE, min(size, MOST_SAMPLE)), max(1, evaluator.left // 4))


def refine(evaluator: Evaluator, rng: np.random.Generator, progress: Progress) -> None:
    """Expand points in rounds until the evaluations are spent or nothing helps. First the front, 8
    to 64 a round; where it has fewer left, the points that are better than the front but for a
    small violation, up to 256; when those are expanded too, two-parameter moves, at last a fresh
    sample. Six of these in a row that bring nothing new end the search.

    Each round takes the most useful points of that moment, so that no evaluation goes to the
    neighbours of a point that has been dominated since.
    """
    space, expanded = evaluator.space, SeenIds(evaluator.space.size)
    width = min(max(evaluator.limit // 1_000, LEAST_EXPANDED), MOST_EXPANDED)
    near = min(max(evaluator.limit // 500, width), MOST_NEAR)
    log = [objective.log for objective in evaluator.problem.objectives]
    vain, looked, shown = 0, evaluator.archive.ids, 0

    def fresh(ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ~expanded.contains(ids)

    while evaluator.left:
        ids = promising(
            evaluator.archive, evaluator.relaxed, fresh, log, rng, width=width, near=near
        )
        if len(ids):
            expanded.add(ids)
            evaluator.publish_ids(ids[: MOST_SHOWN - shown], SEARCH)
            shown = min(shown + len(ids), MOST_SHOWN)
            evaluator.look(space.neighbours(space.unrank(ids)))
        else:
            vain = vain + 1 if np.array_equal(looked, evaluator.archive.ids) else 1
            if vain > VAIN:
                return
            looked = evaluator.archive.ids
            found = evaluator.look(leaps(evaluator, rng)) if vain < VAIN else 0
            if not (found or evaluator.look(drawn(evaluator, rng))):
                return
        progress(evaluator.evaluations, evaluator.limit, len(evaluator.archive))


def promising(
    front: Archive,
    relaxed: Archive,
    fresh: Callable[[Ids], NDArray[np.bool_]],
    log: Sequence[bool],
    rng: np.random.Generator,
    width: int,
    near: int,
) -> Ids:
    """Ids worth expanding, the best first.

    `fresh(ids)` says which were not expanded yet. First `width` of the feasible `front`, by what
    they alone contribute to its hypervolume (at random with more than three objectives, where
    contributions are slow to compute, and with one). Where it has fewer, infeasible points of
    `relaxed` (the archive whose last objective is the sum of violations), least violation first;
    while something is feasible, those that exceed their limits by at most 100% in sum. Of these
    there are many and each is worth little: where no other is left, `near` are taken. Where that is
    no more than `width`, evaluations are few, and what is left of the front is taken alone.
    """
    unexpanded = fresh(front.ids)
    best = front.ids[:0]
    if unexpanded.any():
        best = _by_contribution(front, unexpanded, log, rng)[:width]
    if len(best) and (len(best) == width or near == width):
        return best
    violation, ids = relaxed.F[:, -1], relaxed.ids
    most = TOLERATED if len(front) else np.inf
    left = fresh(ids) & (violation > 0) & (violation <= most)
    rest = ids[left][np.lexsort((ids[left], violation[left]))]
    return np.concatenate([best, rest[: width - len(best) if len(best) else near]])


def _by_contribution(
    front: Archive, fresh: NDArray[np.bool_], log: Sequence[bool], rng: np.random.Generator
) -> Ids:
    F, ids = front.F, front.ids
    if F.shape[1] not in RANKED_OBJECTIVES:
        return rng.permutation(ids[fresh])
    gain = contributions(Scale.of(F, log)(F))
    return ids[fresh][np.argsort(-gain[fresh], kind="stable")]


ENGINES = (ParetoLocal(),)
