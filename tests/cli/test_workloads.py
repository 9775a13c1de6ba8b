"""Several workloads on the command line and in a study."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dse.study.folder import FRONT, FRONT_TABLE, STUDY, read_json
from tests.cli.conftest import SMALL, ask, dse, fits

POINT = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--tp", 2, "--concurrency", 16)
LOADS = ("--set", "workloads=chat=7:1000/250,retrieval=3:6000/400")
ONE = "workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous, backend: current}\n"
SEVERAL = """\
workloads:
  - {name: chat, weight: 7, prompt_tokens: 1000, output_tokens: 250, serving: continuous}
  - {name: retrieval, weight: 3, prompt_tokens: 6000, output_tokens: 400, serving: continuous,
     constraints: [ttft_s <= 1 s]}
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of two workloads."""
    folder = tmp_path_factory.mktemp("mixed")
    path = folder / "mixed.yaml"
    path.write_text(SMALL.replace(ONE, SEVERAL), encoding="utf-8")
    said = dse("run", path, "--out", folder / "study")
    assert said.code == 0, said.err
    assert "Workloads: 70% chat (1,000 prompt" in said.out
    assert fits(said.out, 100)
    return folder / "study"


def items(folder: Path) -> list[dict]:
    return read_json(folder, FRONT)["items"]


def test_every_point_is_reproduced_by_its_command(mixed: Path):
    for item in items(mixed):
        command = item["command"].split()
        assert command[0] == "dse"
        document = ask(*command[1:])
        assert document["workloads"] == item["workloads"]
        assert document["workload"] is None
        same = {key: value for key, value in item["metrics"].items() if key != "assumed"}
        assert {key: document[key] for key in same} == same


def test_each_workload_is_what_it_is_alone():
    document = ask("estimate", *POINT, *LOADS)
    for load in document["workloads"]:
        lengths = (
            "--prompt-tokens", load["prompt_tokens"], "--output-tokens", load["output_tokens"],
        )  # fmt: skip
        alone = ask("estimate", *POINT, *lengths)
        for metric in ("ttft_s", "tpot_s", "usd_per_million_total_tokens", "bottleneck", "mbu"):
            assert load[metric] == alone[metric]
    assert [load["weight"] for load in document["workloads"]] == [0.7, 0.3]
    assert document["tpot_s"] == max(load["tpot_s"] for load in document["workloads"])


def test_one_workload_by_the_flag_is_the_lengths():
    flag = ask("estimate", *POINT, "--set", "workloads=chat=2:1000/250")
    lengths = ("--prompt-tokens", 1000, "--output-tokens", 250)
    assert flag == ask("estimate", *POINT, *lengths)


def test_the_detail_names_the_workload_of_its_operators(mixed: Path):
    document = ask("estimate", "--detail", mixed, "knee")
    heaviest = max(document["workloads"], key=lambda load: load["chip_seconds_share"])
    assert document["breakdown_of"] == heaviest["name"]
    total = sum(row["decode_s"] for row in document["breakdown"])
    assert total == pytest.approx(heaviest["decode_step_s"], rel=1e-9)
    said = dse("estimate", "--detail", mixed, "knee")
    assert f"Under {heaviest['name']}, which takes most" in said.out


def test_report_and_study_name_the_mix(mixed: Path):
    study = read_json(mixed, STUDY)
    assert study["workload"] is None
    assert [load["name"] for load in study["workloads"]] == ["chat", "retrieval"]
    text = (mixed / "report.md").read_text(encoding="utf-8")
    for words in (
        "Workloads: 70% chat (1,000 prompt and 250 output tokens",
        "Several workloads share the deployment's time",
        "| chat | 70% |",
        "| retrieval | 30% |",
        r"retrieval: ttft\_s &lt;= 1 s",
    ):
        assert words in text
    page = (mixed / "report.html").read_text(encoding="utf-8")
    assert "time to first token of retrieval" in page
    with (mixed / FRONT_TABLE).open(encoding="utf-8") as file:
        assert "workloads" not in next(csv.reader(file))


@pytest.mark.parametrize(
    "loads", [[], [3], [{"name": "chat"}], "chat", [{"name": 3, "weight": 1, "serving": "x"}]]
)
def test_damaged_workloads(mixed: Path, tmp_path: Path, loads: object):
    study = read_json(mixed, STUDY) | {"workloads": loads}
    (tmp_path / STUDY).write_text(json.dumps(study), encoding="utf-8")
    (tmp_path / FRONT).write_bytes((mixed / FRONT).read_bytes())
    for arguments in (("estimate", tmp_path, 1), ("run", tmp_path)):
        said = dse(*arguments)
        assert (said.code, said.out) == (4, "")
        assert "workloads" in said.err


def test_spaces(space: Callable[..., Path]):
    path = space(ONE, SEVERAL)
    assert "18 points" in dse("catalog", "spaces", "check", path).out
    row = ask("catalog", "spaces", "show", path)
    assert row["constraints"] == ["ttft_s <= 2 s", "retrieval: ttft_s <= 1 s"]
    assert [load["weight"] for load in row["workloads"]] == [0.7, 0.3]
    said = dse("catalog", "spaces", "show", path)
    assert fits(said.out, 100)
    assert "30% retrieval" in said.out
    wrong = dse("catalog", "spaces", "check", space(ONE, SEVERAL.replace("weight: 3", "weight: 0")))
    assert wrong.code == 2
    assert ":5: workloads[1].weight" in wrong.err
