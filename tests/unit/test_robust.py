"""The probability that a point is on the front."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.pareto.front import non_dominated
from dse.specs.catalog import load_catalog
from dse.specs.study import load_study, resolve_space
from dse.study.physics import PhysicsProblem, pose
from dse.study.robust import front_probability


@pytest.fixture(scope="module")
def problem() -> PhysicsProblem:
    return pose(load_study(resolve_space("tiny")), load_catalog())


@pytest.fixture(scope="module")
def front(problem: PhysicsProblem) -> np.ndarray:
    index = problem.space.unrank(np.arange(problem.space.size, dtype=np.int64))
    found = problem.evaluate(index)
    feasible = (found.G <= 0.0).all(axis=1)
    index, F = index[feasible], found.F[feasible]
    return index[non_dominated(F)]


def sure(problem: PhysicsProblem, shared: float, spread: float) -> PhysicsProblem:
    ends = {name: np.tile([1 / spread, spread], (3, 1)) for name in problem.machines.spread}
    return replace(problem, machines=replace(problem.machines, spread=ends, shared_error=shared))


def test_without_errors_the_front_is_the_front(problem, front) -> None:
    assert (front_probability(sure(problem, 0.5, 1.0), front, 0) == 1.0).all()


def test_an_error_that_points_share_keeps_their_order(problem, front) -> None:
    shared, own = (front_probability(sure(problem, s, 1.5), front, 0).mean() for s in (1.0, 0.0))
    assert shared > own


def test_wider_intervals_make_the_front_less_sure(problem, front) -> None:
    means = [front_probability(sure(problem, 0.5, s), front, 0).mean() for s in (1.01, 1.2, 2.0)]
    assert means[0] > means[1] > means[2]


def test_the_same_seed_gives_the_same_numbers(problem, front) -> None:
    a, b = (front_probability(problem, front, 7) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert ((a >= 0.0) & (a <= 1.0)).all()
