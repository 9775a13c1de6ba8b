"""Published models on the deployments of a space, and losses as multiples of training compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dse
from dse.catalog import load_catalog
from dse.problem.objective import PhysicsProblem, pose
from dse.questions.estimate.again import elsewhere
from dse.schema.study import load_study, resolve_space
from dse.study.decide import KNOWN, MULTIPLES, QUALITY, compute_multiples, landmarks
from dse.study.definition import posed_study
from dse.study.run import run

COST = "usd_per_million_total_tokens"


def problem_of(space: str) -> PhysicsProblem:
    catalog = dse.load_catalog()
    return posed_study(space, catalog, "auto", 0, "0", "model", None, None).problem


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
            assert one["metrics"][QUALITY] >= one["loss"]
    losses = {one["model"]: one["loss"] for one in landmarks(problem)}
    # More parameters on the same tokens of one family are never worse.
    assert losses["llama-3-70b"] < losses["llama-3-8b"]
    assert losses["qwen3-235b-a22b"] < losses["qwen3-32b"] < losses["qwen3-8b"]


@pytest.mark.parametrize("space", ["deploy-llama-3-70b", "lifetime-dense", "pools-deepseek-v3"])
def test_no_landmarks_where_no_shape_is_searched_for_its_loss(space: str) -> None:
    assert landmarks(problem_of(space)) == []


def test_a_loss_is_a_multiple_of_the_compute_that_reaches_it(problem: PhysicsProblem) -> None:
    point = problem.space.unrank(np.array([problem.space.size // 3]))
    own = float(problem.metrics(point).values[QUALITY][0])
    losses = [own + 0.02, own, own - 0.01, own - 10.0]
    found = compute_multiples(problem, point, losses)
    assert found[1] == pytest.approx(1.0, rel=1e-6)
    assert found[3] is None
    assert found[0] is not None
    assert found[2] is not None
    assert MULTIPLES[0] <= found[0] < 1.0 < found[2] <= MULTIPLES[-1]


# A chosen point on other chips, and its operators under the roof.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    run("tiny", out=path, catalog=load_catalog())
    return path


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_the_own_chip_gives_the_points_own_numbers(folder: Path) -> None:
    study, items = read(folder, "study.json"), read(folder, "front.json")["items"]
    priced = set(load_catalog().prices.select(study["price_basis"]))
    for detail in study["chosen"].values():
        item = items[detail["point"] - 1]
        rows = {row["chip"]: row for row in detail["elsewhere"]}
        assert set(rows) <= priced
        assert len(rows) > 3
        own = rows[item["deployment"]["chip"]]
        assert own["feasible"]
        for metric, value in own["metrics"].items():
            assert value == pytest.approx(item["metrics"][metric], rel=1e-9)
        for row in rows.values():
            assert (row["why_not"] is None) == row["feasible"]


def test_a_point_too_large_for_a_chip_says_so(folder: Path) -> None:
    problem = pose(load_study(resolve_space("tiny")), load_catalog())
    item = read(folder, "front.json")["items"][0]
    item["deployment"] |= {"tensor_parallel": 1, "replicas": item["deployment"]["chips"]}
    for block in item["model"]["blocks"]:
        block["count"] *= 200
    reasons = [row["why_not"] for row in elsewhere(problem, load_catalog(), item)]
    assert reasons
    assert all("memory_capacity" in reason for reason in reasons if "no figure" not in reason)


def test_operators_count_their_flops_and_stay_under_the_roof(folder: Path) -> None:
    study, items = read(folder, "study.json"), read(folder, "front.json")["items"]
    for detail in study["chosen"].values():
        metrics = items[detail["point"] - 1]["metrics"]
        split = items[detail["point"] - 1]["deployment"]
        assert set(detail["peak_flops_per_s"]) >= {"bf16"}
        for phase in ("prefill", "decode"):
            for row in detail["breakdown"]:
                if row.get(f"{phase}_peak_flops_per_s"):
                    peak = row[f"{phase}_peak_flops_per_s"]
                    assert min(
                        abs(peak / known - 1) for known in detail["peak_flops_per_s"].values()
                    ) == pytest.approx(0.0, abs=1e-9)
                    seconds = row[f"{phase}_s"] * (1 + 1e-9)
                    assert row[f"{phase}_flops"] <= peak * seconds
        # A multiplication and an addition for each active parameter and token, and attention.
        tokens = min(study["workload"]["prompt_tokens"], 8192)
        flops = sum(row.get("prefill_flops", 0.0) for row in detail["breakdown"])
        # One prompt alone: its experts are spread over attention ranks that have no prompt.
        whole = 2 * metrics["active_parameters"] * tokens / split["tensor_parallel"]
        assert 0.7 * whole / split["data_parallel"] < flops < 4 * whole
