"""A large vectorised sample, then every one-parameter neighbour of the front until none helps.

The neighbourhood search is Pareto local search (Paquete, Chiarandini and Stuetzle 2004, LNEMS 535,
177-199) with its expansions made in bulk: a round evaluates the neighbours of many points of the
front at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.search.engine import Budget, Progress, tenth
from dse.search.evaluator import Batch, Evaluator, SeenIds
from dse.search.frontier import promising

LEAST_SAMPLE = 2_000
MOST_SAMPLE = 100_000
LEAST_EXPANDED, MOST_EXPANDED = 8, 64
VAIN_SAMPLES = 3


class ParetoLocal:
    """Sample and neighbourhood rounds, repeated with fresh samples until three in a row bring
    nothing new or the evaluations are spent."""

    name = "pareto-local"

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
    size = evaluator.space.size // 100
    n = min(max(LEAST_SAMPLE, min(size, MOST_SAMPLE)), max(1, evaluator.left // 4))
    return evaluator.evaluate(evaluator.space.sample(rng, n))


def refine(evaluator: Evaluator, rng: np.random.Generator, progress: Progress) -> None:
    """Expand 8 to 64 points a round until the evaluations are spent or three samples in a row
    bring nothing new. First the front; when all of it is expanded, the points that are better
    than the front but for a small violation; when those are too, a fresh sample.

    Each round takes the most useful points of that moment, so that no evaluation goes to the
    neighbours of a point that has been dominated since.
    """
    space, expanded = evaluator.space, SeenIds(evaluator.space.size)
    width = min(max(evaluator.limit // 1_000, LEAST_EXPANDED), MOST_EXPANDED)
    vain, sampled = 0, evaluator.archive.ids
    while evaluator.left and vain <= VAIN_SAMPLES:
        ids = _promising(evaluator, expanded, rng)
        if len(ids):
            expanded.add(ids[:width])
            evaluator.evaluate(space.neighbours(space.unrank(ids[:width])))
        else:
            vain = vain + 1 if np.array_equal(sampled, evaluator.archive.ids) else 1
            sampled = evaluator.archive.ids
            if not len(sample(evaluator, rng)):
                return
        progress(evaluator.evaluations, evaluator.limit, len(evaluator.archive))


def _promising(
    evaluator: Evaluator, expanded: SeenIds, rng: np.random.Generator
) -> NDArray[np.int64]:
    front, relaxed = evaluator.archive, evaluator.relaxed
    return promising(
        front,
        relaxed,
        ~expanded.contains(front.ids),
        ~expanded.contains(relaxed.ids),
        [objective.log for objective in evaluator.problem.objectives],
        rng,
    )


ENGINES = (ParetoLocal(),)
