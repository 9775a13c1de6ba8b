"""`dse check`: what a person and a program see, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import SHORT, ask, dse, fits

QWEN = ("check", "qwen2.5-7b", "--chip", "h200_sxm", "--tp", "8")
CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_comes_first_and_fits():
    said = dse(*QWEN)
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    first = words(said.out).split(". ")[0]
    assert "cannot run: it breaks heads_divide_by_tensor_parallel" in first
    assert "28 heads over 8 ranks" in first
    assert "vLLM" in first
    assert "tensor parallelism up to 8" in said.out
    assert "1, 2, 4" in said.out
    assert said.out.count("\n") <= 42
    assert "28 -> 32" in said.out
    assert "Do not add the shares of tiles and waves" in words(said.out)


def test_json_is_the_contract():
    document = ask(*QWEN)
    assert document["ok"] is False
    assert document["degrees"]["tp"] == [1, 2, 4]
    assert set(document["degrees"]) >= {"tp", "ep", "pp"}
    assert document["model"] == "Qwen2.5-7B"
    assert document["chip"] == "h200_sxm"
    assert {row["severity"] for row in document["rules"]} <= {"error", "waste", "note"}
    error = document["rules"][0]
    assert error["rule"] == "heads_divide_by_tensor_parallel"
    assert error["severity"] == "error"
    product = document["products"][0]
    assert {"phase", "m", "n", "k", "tile_efficiency", "added_share"} <= set(product)
    assert 24 in [row["num_attention_heads"] for row in document["nearest"]]
    assert all(row["loss_nats"] is not None for row in document["nearest"])


def test_a_config_file_says_the_same_as_the_catalog():
    config = ask("check", CONFIGS / "qwen2.5-7b.json", *QWEN[2:])
    catalog = ask(*QWEN)
    for part in ("degrees", "rules", "products", "steps"):
        assert config[part] == catalog[part]
    assert all(row["loss_nats"] is None for row in config["nearest"])
    told = dse(
        "check", CONFIGS / "qwen2.5-7b.json", *QWEN[2:], "--training-tokens", "18T", "--json"
    )
    assert told.json()["nearest"] == catalog["nearest"]


def test_the_blocks_of_qwen3():
    asked = ("check", "qwen3-30b-a3b", "--chip", "h100_sxm", "--tp", 4)
    blocks = ("--weight-dtype", "fp8_block", "--json")
    document = dse(*asked, *blocks).json()
    assert "192, no multiple of 128" in document["answer"]
    assert document["nearest"][0]["shape_changes"] == "expert_parallel 1 -> 4"
    assert dse(*asked, "--ep", 4, *blocks).json()["ok"] is True


def test_a_chip_with_nothing_known_says_so():
    spread = ("--tp", "2", "--pp", "24", "--weight-dtype", "int8")
    said = dse("check", "qwen2.5-0.5b", "--chip", "groq_lpu_v1", *spread)
    assert said.code == 0, said.err
    assert "no rules of matrix products are known for this chip" in words(said.out)
    every = dse("check", "qwen2.5-0.5b", "--chip", "groq_lpu_v1", *spread, "--detail").out
    assert "added" not in every.split("Products of a prefill")[1].split("\n")[2]


def test_a_chip_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(SHORT)
    document = ask("check", "llama-3-8b", "--chip", file)
    assert document["chip"] == "my_chip"
    assert document["fills"] is None


def test_names_of_a_user_stay_text(tmp_path: Path):
    folder = tmp_path / "[bold]odd"
    folder.mkdir()
    (folder / "config.json").write_text((CONFIGS / "llama-3-8b.json").read_text())
    said = dse("check", folder, "--chip", "h100_sxm")
    assert said.code == 0, said.err
    assert said.out.startswith("[bold]odd on h100_sxm")


def test_a_config_that_is_none(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLMM"], "hidden_size": 64}))
    ended = dse("check", path, "--chip", "h200_sxm")
    assert ended.code == 2
    assert "LlamaForCausalLM" in ended.err


def test_the_model_may_be_an_option_and_files_are_written(tmp_path: Path):
    said = dse("check", "--model", QWEN[1], *QWEN[2:], "--json", "--out", tmp_path)
    assert said.json() == ask(*QWEN)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"check.{end}" for end in ("html", "md", "json", "csv", "xlsx")
    }
    both = dse(*QWEN, "--model", QWEN[1])
    assert both.code == 2
    assert "one of the two" in both.err


def test_a_point_of_a_study_is_checked_as_it_is_deployed(tiny: Path):
    item = json.loads((tiny / "front.json").read_text())["items"][0]
    document = ask("check", tiny, item["point"])
    assert document["ok"]
    assert document["chip"] == item["deployment"]["chip"]
    assert document["model"] == item["model"]["name"]
    for axis in ("tensor_parallel", "expert_parallel"):
        assert document["deployment"][axis] == item["deployment"][axis]
    both = dse("check", tiny, item["point"], "--tp", "2")
    assert both.code == 2
    assert "the point says both" in both.err
    assert "no point 'nothing'" in dse("check", tiny, "nothing").err
