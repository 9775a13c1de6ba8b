"""The protocol that every engine follows, and the engine that looks at every point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dse.errors import InputError
from dse.search.evaluator import Evaluator

LEAST_EVALUATIONS = 1_000
MOST_EVALUATIONS = 2_000_000
ENUMERATE = 3_000_000  # points of a space that is not searched but looked at whole

# progress(points evaluated, points expected or None, points on the front)
Progress = Callable[[int, int | None, int], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """Counts, never seconds: distinct points evaluated, and trials asked of an Optuna sampler.
    None leaves the choice to the engine."""

    evaluations: int | None = None
    trials: int | None = None


class Engine:
    """A way to search. `bulk`: whether it evaluates many more points than it hands to the study of
    record, so that a sample has to stand there for the space."""

    name: str
    bulk: bool

    def evaluations(self, size: int) -> int:
        """Default number of evaluations in a space of `size` points: a tenth of it, at least 1,000
        points and at most two million."""
        return min(size, max(LEAST_EVALUATIONS, min(size // 10, MOST_EVALUATIONS)))

    def run(
        self, evaluator: Evaluator, budget: Budget, rng: np.random.Generator, progress: Progress
    ) -> None:
        """Leaves what it finds in the evaluator's archive."""
        raise NotImplementedError


LARGEST = 1_000_000_000


class Exhaustive(Engine):
    """Streams all ranks in order; memory does not grow with the space. With a checkpoint, a
    killed run goes on where it was.

    Raises InputError for a space above 1e9 points or a budget below its size.
    """

    name, bulk = "exhaustive", True

    def evaluations(self, size: int) -> int:
        return size

    def run(
        self, evaluator: Evaluator, budget: Budget, rng: np.random.Generator, progress: Progress
    ) -> None:
        size = evaluator.space.size
        if size > LARGEST:
            raise InputError(
                f"the space has {size:,} points, too many to enumerate",
                field="--engine exhaustive",
                accepted=f"a space of at most {LARGEST:,} points, or another engine",
            )
        if evaluator.limit < size:
            raise InputError(
                f"{evaluator.limit:,} evaluations do not cover the space",
                field="--engine exhaustive",
                accepted=f"at least {size:,} evaluations, or another engine",
            )
        evaluator.sweep(lambda: progress(evaluator.evaluations, size, len(evaluator.archive)))


ENGINES = (Exhaustive(),)
