"""`dse estimate --detail` and --why-not: where a point's time, memory and money go, and why it is
not on a front."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dse.study.folder import FRONT, read_json
from tests.cli.conftest import ask, dse

POINT = ("--model", "deepseek-v3", "--chip", "h200_sxm", "--tp", "8", "--concurrency", "64")


def test_operators_add_up_to_the_step():
    document = ask("estimate", "--detail", *POINT)
    total = sum(row["decode_s"] for row in document["breakdown"])
    assert total == pytest.approx(document["decode_step_s"], rel=1e-9)
    assert document["floor_s"] < document["decode_step_s"]
    assert {row["bound"] for row in document["breakdown"]} <= {
        "compute",
        "memory",
        "network",
        "fixed",
    }
    parts = sum(row["bytes"] for row in document["memory"])
    assert parts == pytest.approx(document["memory_bytes_per_chip"])


def test_json_is_the_estimate_and_more():
    estimate = ask("estimate", *POINT)
    explained = ask("estimate", "--detail", *POINT)
    assert {key: explained[key] for key in estimate} == estimate


def test_a_point_of_a_study(tiny: Path):
    item = next(i for i in read_json(tiny, FRONT)["items"] if "knee" in i["names"])
    document = ask("estimate", "--detail", tiny, "knee")
    assert document["tpot_s"] == item["metrics"]["tpot_s"]


@pytest.fixture
def study(space: Callable[..., Path], tmp_path: Path) -> Path:
    assert dse("run", space(), "--out", tmp_path / "study").code == 0
    return tmp_path / "study"


def why_not(study: Path, *flags: object) -> dict:
    model = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--kv-dtype", "bf16")
    return ask("estimate", "--why-not", study, *model, *flags)


def test_why_not_a_point_that_is_on_the_front(study: Path):
    item = read_json(study, FRONT)["items"][0]
    deployment = item["deployment"]
    document = why_not(
        study,
        *("--tp", deployment["tensor_parallel"], "--concurrency", deployment["concurrency"]),
        *("--weight-dtype", deployment["weight_dtype"]),
    )
    assert document["on_front"]
    assert document["reasons"] == ["it is on the front: point 1 has the same values"]


def test_why_not_a_beaten_point(study: Path):
    flags = ("--weight-dtype", "bf16", "--tp", 1, "--concurrency", 16)  # fp8 is as dear and faster
    document = why_not(study, *flags)
    assert not document["on_front"]
    items = {item["point"]: item for item in read_json(study, FRONT)["items"]}
    mine = dse(
        *("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", *flags),
        *("--prompt-tokens", 1024, "--output-tokens", 256, "--json"),
    ).json()
    assert document["dominated_by"]
    for point in document["dominated_by"]:
        for metric in ("usd_per_million_total_tokens", "tpot_s"):
            assert items[point]["metrics"][metric] <= mine[metric]


def test_why_not_a_point_that_breaks_a_rule_or_a_limit(study: Path):
    document = why_not(study, "--tp", 3)
    assert any("heads_divide_by_tensor_parallel" in reason for reason in document["reasons"])
    document = why_not(study, "--tp", 1, "--concurrency", 100_000)
    assert any("ttft_s <= 2 s" in reason for reason in document["reasons"])


def test_why_not_uses_the_study_workload(study: Path):
    said = dse(
        "estimate",
        "--why-not",
        study,
        "--model",
        "llama-3-8b",
        "--chip",
        "h100_sxm",
        "--prompt-tokens",
        5,
    )
    assert said.code == 2
    assert "--prompt-tokens" in said.err
