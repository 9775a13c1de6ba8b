"""The probability that a point is on the front."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dse.catalog import load_catalog
from dse.pareto import Scale, non_dominated
from dse.physics.intervals import COMMON
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space
from dse.search.parallel import HERE
from dse.study import decide
from dse.study.decide import front_probability
from dse.study.laws import compare_laws
from tests.helpers_spaces import space


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


def test_the_regret_without_errors_is_that_of_the_scaled_front(problem, front) -> None:
    """The mean of the objectives of a design, scaled over the front, less the least."""
    items: list[dict] = [{"names": []} for _ in front]
    how = {"engine": "exhaustive", "seed": 0, "executor": HERE, "progress": lambda *_: None}
    compare_laws(sure(problem, 0.5, 1.0), front, items, {}, **how)
    F = problem.evaluate(front).F
    scaled = Scale.of(F, tuple(one.log for one in problem.objectives))(F).mean(axis=1)
    found = [item["laws"]["regret"]["leverage"] for item in items]
    assert found == pytest.approx((scaled - scaled.min()).tolist(), abs=1e-12)


@pytest.fixture(scope="module")
def two() -> PhysicsProblem:
    """One deployment on either of two chips, all else held."""
    chips = {"chip": ["h100_sxm", "h200_sxm"], "concurrency": 16}
    cost = {"usd_per_million_total_tokens": "minimize"}
    return pose(load_study(space(chips, objectives=cost)), load_catalog())


def related(problem: PhysicsProblem, *kin: str) -> PhysicsProblem:
    return replace(problem, machines=replace(problem.machines, kin=kin))


@pytest.mark.parametrize(("shared", "kin"), [(0.6, "xx"), (1.0, "xx"), (0.6, "xy"), (1.0, "xy")])
def test_of_two_kin_the_better_stays_so_more_often(two, shared, kin, monkeypatch) -> None:
    """ln cost differs with variance 2 sd^2 (1 - shared COMMON); of strangers, with 2 sd^2."""
    monkeypatch.setattr(decide, "FRONT_DRAWS", 8_000)
    index = two.space.unrank(np.arange(2, dtype=np.int64))
    first, second = np.log(two.evaluate(index).F[:, 0])
    sd = abs(second - first)
    problem = related(sure(two, shared, math.exp(sd * decide.P90)), *kin)
    found = front_probability(problem, index, 3)
    part = shared * COMMON if kin == "xx" else 0.0
    expected = norm.cdf((second - first) / (sd * math.sqrt(2.0 * (1.0 - part))))
    assert found == pytest.approx([expected, 1.0 - expected], abs=0.02)  # 4 standard errors


def test_the_chips_of_a_study_know_their_kin(problem, two, front) -> None:
    assert len(set(two.machines.kin)) == 1
    strangers = related(problem, "x", "y")
    a, b, c = (front_probability(one, front, 7) for one in (problem, problem, strangers))
    assert a.tobytes() == b.tobytes() != c.tobytes()
