"""Published models on the deployments of a space, and losses as multiples of training compute."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.problem.objective import PhysicsProblem, pose
from dse.study.decide import KNOWN, LOSS, MULTIPLES, compute_multiples, landmarks


def problem_of(space: str) -> PhysicsProblem:
    return pose(dse.load_space(space), dse.load_catalog())


@pytest.fixture(scope="module")
def problem() -> PhysicsProblem:
    return problem_of("quickstart")


def test_a_landmark_is_what_estimate_says_of_it(problem: PhysicsProblem) -> None:
    found = {one["model"]: one for one in landmarks(problem)}
    assert tuple(found) == KNOWN
    for name in ("llama-3-70b", "qwen3-30b-a3b"):
        d = found[name]["deployment"]
        names = (("tp", "tensor_parallel"), ("dp", "data_parallel"), ("ep", "expert_parallel"))
        again = dse.estimate(
            name,
            d["chip"],
            **{short: d[long] for short, long in names},
            replicas=d["replicas"],
            weight_dtype=d["weight_dtype"],
            kv_dtype=d["kv_dtype"],
            concurrency=d["concurrency"],
            prompt_tokens=4096,
            output_tokens=1024,
            price_basis="rental_3yr",
        ).document
        for metric, value in found[name]["metrics"].items():
            assert again[metric] == pytest.approx(value, rel=1e-9)


def test_landmarks_keep_the_limits_and_prefer_no_other_deployment(problem: PhysicsProblem) -> None:
    for one in landmarks(problem):
        if one["metrics"] is not None:
            assert one["metrics"]["tpot_s"] <= 0.030
            assert one["metrics"][LOSS] >= one["loss"]
    losses = {one["model"]: one["loss"] for one in landmarks(problem)}
    # More parameters on the same tokens of one family are never worse.
    assert losses["llama-3-70b"] < losses["llama-3-8b"]
    assert losses["qwen3-235b-a22b"] < losses["qwen3-32b"] < losses["qwen3-8b"]


@pytest.mark.parametrize("space", ["deploy-llama-3-70b", "lifetime-dense", "pools-deepseek-v3"])
def test_no_landmarks_where_no_shape_is_searched_for_its_loss(space: str) -> None:
    assert landmarks(problem_of(space)) == []


def test_a_loss_is_a_multiple_of_the_compute_that_reaches_it(problem: PhysicsProblem) -> None:
    point = problem.space.unrank(np.array([problem.space.size // 3]))
    own = float(problem.metrics(point).values[LOSS][0])
    losses = [own + 0.02, own, own - 0.01, own - 10.0]
    found = compute_multiples(problem, point, losses)
    assert found[1] == pytest.approx(1.0, rel=1e-6)
    assert found[3] is None
    assert found[0] is not None
    assert found[2] is not None
    assert MULTIPLES[0] <= found[0] < 1.0 < found[2] <= MULTIPLES[-1]
