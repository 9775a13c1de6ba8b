"""What the shipped studies offer: nothing on a front is refused by check or export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dse
from benchmarks.shipped.__main__ import main, study_of
from benchmarks.shipped.designs import design
from benchmarks.shipped.servable import servable


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> dse.Study:
    return study_of("deploy-llama-3-70b", None, tmp_path_factory.mktemp("studies"))


def test_two_small_studies_are_served_as_they_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(["attention-kinds", "rack-domain", "--studies", str(tmp_path), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["space"] for row in document["served"]] == ["attention-kinds", "rack-domain"]
    assert all(row["points"] and not row["check"] + row["export"] for row in document["served"])
    assert [row["space"] for row in document["designs"]] == ["attention-kinds"]


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
def test_a_named_server_takes_the_whole_front(backend: str, tmp_path: Path) -> None:
    """Chips of all vendors, tensor beside data parallelism, experts in part: each server refuses
    some of them, so its front may not have them."""
    row = servable(study_of("deploy-deepseek-v3", backend, tmp_path))
    assert row["backend"] == backend
    assert (row["check"], row["export"]) == (0, 0), row["examples"]
    assert row["by"][backend] == row["points"] > 0


def test_what_is_refused_is_counted_and_named(deployed: dse.Study) -> None:
    """Three ranks for 64 heads, in a place where the search put one that divides."""
    kept = servable(deployed)
    assert (kept["check"], kept["export"]) == (0, 0)
    items: list[dict[str, Any]] = deployed.front.items
    first = items[0]
    broken = {**first, "deployment": {**first["deployment"], "tensor_parallel": 3}}
    changed = dse.Study(deployed.folder)
    changed.front.items[0] = broken
    row = servable(changed)
    assert (row["check"], row["export"]) == (1, 1)
    assert all("64 heads over 3 ranks" in words for words in row["examples"])


def test_a_design_beyond_published_models_is_named(tmp_path: Path) -> None:
    study = study_of("attention-kinds", None, tmp_path)
    assert not design(study)["beyond"]
    item = next(one for one in study.front.items if one["point"] == study.start.point)
    for block in item["model"]["blocks"]:
        block["count"] = 20  # of a hidden size of 4,096: 204.8 a layer
    words = [one for one in design(study)["beyond"] if one.startswith("hidden size over layers")]
    assert words == [
        "hidden size over layers 204.8; published: to 153.6; Snowflake-Arctic alone has as much"
    ]
