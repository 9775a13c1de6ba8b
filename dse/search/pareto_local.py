"""A large vectorised sample, then every one-parameter neighbour of the front, and some
two-parameter ones, until none helps.

The neighbourhood search is Pareto local search (Paquete, Chiarandini and Stuetzle 2004, LNEMS 535,
177-199) with its expansions made in bulk: a round evaluates the neighbours of many points of the
front at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.search.engine import Budget, Progress, tenth
from dse.search.evaluator import SEARCH, Batch, Evaluator, SeenIds, promising
from dse.search.record import active_axes

LEAST_SAMPLE = 2_000
MOST_SAMPLE = 100_000
LEAST_EXPANDED, MOST_EXPANDED = 8, 64
VAIN = 6
# Expanded points that become trials: the way of the search, until it is near the front.
MOST_SHOWN = 500


class ParetoLocal:
    """A sample, then rounds of moves until nothing helps or the evaluations are spent."""

    name, bulk = "pareto-local", True

    def evaluations(self, size: int) -> int:
        return tenth(size)

    def run(
        self, evaluator: Evaluator, budget: Budget, rng: np.random.Generator, progress: Progress
    ) -> None:
        sample(evaluator, rng)
        refine(evaluator, rng, progress)


def sample(evaluator: Evaluator, rng: np.random.Generator) -> Batch:
    """Evaluate a random sample: a hundredth of the space, from 2,000 to 100,000 points, at most a
    quarter of the evaluations left."""
    return evaluator.evaluate(evaluator.space.sample(rng, _sample_size(evaluator)))


def leap(evaluator: Evaluator, rng: np.random.Generator) -> Batch:
    """Evaluate as many random two-parameter neighbours of the front: where two choices only pay
    together (more chips and a wider split), no single step leads on. Axes that begin to count with
    a move (those of experts, once there are experts) take random values."""
    space, ids = evaluator.space, evaluator.archive.ids
    if not len(ids):
        return sample(evaluator, rng)
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
    batch = evaluator.evaluate(space.canonical(index))
    return batch if len(batch) else sample(evaluator, rng)


def _sample_size(evaluator: Evaluator) -> int:
    size = evaluator.space.size // 100
    return min(max(LEAST_SAMPLE, min(size, MOST_SAMPLE)), max(1, evaluator.left // 4))


def refine(evaluator: Evaluator, rng: np.random.Generator, progress: Progress) -> None:
    """Expand 8 to 64 points a round until the evaluations are spent or nothing helps. First the
    front; when all of it is expanded, the points that are better than the front but for a small
    violation; when those are too, two-parameter moves, at last a fresh sample. Six of
    these in a row that bring nothing new end the search.

    Each round takes the most useful points of that moment, so that no evaluation goes to the
    neighbours of a point that has been dominated since.
    """
    space, expanded = evaluator.space, SeenIds(evaluator.space.size)
    width = min(max(evaluator.limit // 1_000, LEAST_EXPANDED), MOST_EXPANDED)
    vain, looked, shown = 0, evaluator.archive.ids, 0
    while evaluator.left:
        ids = _promising(evaluator, expanded, rng)
        if len(ids):
            expanded.add(ids[:width])
            evaluator.publish_ids(ids[:width][: MOST_SHOWN - shown], SEARCH)
            shown = min(shown + width, MOST_SHOWN)
            evaluator.evaluate(space.neighbours(space.unrank(ids[:width])))
        else:
            vain = vain + 1 if np.array_equal(looked, evaluator.archive.ids) else 1
            if vain > VAIN:
                return
            looked = evaluator.archive.ids
            move = sample if vain == VAIN else leap
            if not len(move(evaluator, rng)):
                return
        progress(evaluator.evaluations, evaluator.limit, len(evaluator.archive))


def _promising(
    evaluator: Evaluator, expanded: SeenIds, rng: np.random.Generator
) -> NDArray[np.int64]:
    return promising(
        evaluator.archive,
        evaluator.relaxed,
        lambda ids: ~expanded.contains(ids),
        [objective.log for objective in evaluator.problem.objectives],
        rng,
    )


ENGINES = (ParetoLocal(),)
