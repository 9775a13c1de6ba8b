"""An evaluation frees its arrays when it is done: what waits for the garbage collector adds up to
gigabytes in a long search."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.study import load_study, resolve_space

SPACES = ("quickstart", "consumer-fleet", "pools-deepseek-v3", "lifetime-dense", "attention-kinds")


@pytest.fixture(scope="module")
def problem(request: pytest.FixtureRequest) -> PhysicsProblem:
    catalog = load_catalog()
    return pose(load_study(resolve_space(request.param), catalog), catalog)


@pytest.mark.parametrize("problem", SPACES, indirect=True)
@pytest.mark.parametrize("points", [1, 6_000])
def test_an_evaluation_leaves_no_garbage(problem: PhysicsProblem, points: int):
    index = problem.space.sample(np.random.default_rng(0), points)
    problem.evaluate(index)  # with tables that are made once
    gc.disable()
    try:
        for _ in range(3):  # what runs beside a test may leave some of its own
            gc.collect()
            problem.evaluate(index)
            if not (left := gc.collect()):
                break
        assert left == 0
    finally:
        gc.enable()
