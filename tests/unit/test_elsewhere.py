"""A chosen point on other chips, and its operators under the roof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dse.catalog import load_catalog
from dse.problem.objective import pose
from dse.questions.estimate.again import elsewhere
from dse.schema.study import load_study, resolve_space
from dse.study.run import run


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
