"""`dse export`: shapes and points for transformers, servers and Megatron-LM."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import ask, dse, fits

POINT = ("--model", "llama-3-70b", "--chip", "h200_sxm", "--tp", 8)


def test_a_point_of_a_study_is_exported_and_estimated_alike(tiny: Path, tmp_path: Path):
    """What comes back from config.json predicts as the point does, bit for bit."""
    item = json.loads((tiny / "front.json").read_text())["items"][0]
    point = str(item["point"])
    document = ask("export", tiny, point, "--format", "hf", "--out", tmp_path / "shape")
    assert document["written"] == [str(tmp_path / "shape" / "config.json")]
    assert document["parameters"]["counted"] == item["metrics"]["total_parameters"]
    config = json.loads((tmp_path / "shape" / "config.json").read_text())
    assert config["architectures"] == [document["architecture"]]
    assert config["max_position_embeddings"] == 1536

    own = ask("estimate", tiny, point)
    axes = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    words: list[object] = []
    for flag, axis in zip(("--tp", "--pp", "--dp", "--ep"), axes, strict=True):
        words += [flag, own["deployment"][axis]]
    for key in ("chip", "replicas", "concurrency", "weight_dtype", "kv_dtype"):
        words += [f"--{key.replace('_', '-')}", own["deployment"][key]]
    for key in ("prompt_tokens", "output_tokens", "serving", "backend"):
        words += [f"--{key.replace('_', '-')}", own["workload"][key]]
    words += ["--set", f"training_tokens={item['model']['training_tokens']!r}"]
    words += ["--set", f"price_basis={own['price_basis']}"]
    again = ask("estimate", "--model", tmp_path / "shape", *words)
    assert set(own) == set(again)
    for name in set(own) - {"model", "assumed", "violations", "feasible"}:
        assert own[name] == again[name], name


def test_the_note_gives_the_training_tokens(tiny: Path):
    said = ask("export", tiny, "1", "--format", "hf")
    item = json.loads((tiny / "front.json").read_text())["items"][0]
    note = next(note for note in said["notes"] if "training_tokens" in note)
    tokens = note.split("training_tokens=")[1].split()[0]
    assert float(tokens) == item["model"]["training_tokens"]


def test_without_a_folder_the_file_is_printed_alone():
    said = dse("export", "--model", "deepseek-v3", "--format", "hf")
    assert said.code == 0
    assert json.loads(said.out)["architectures"] == ["DeepseekV3ForCausalLM"]
    assert "note: " in said.err


def test_one_file_may_be_named(tmp_path: Path):
    path = tmp_path / "new" / "llama.json"
    said = dse("export", "--model", "llama-3-8b", "--format", "hf", "--out", path)
    assert said.code == 0
    assert [file.name for file in path.parent.iterdir()] == ["llama.json"]
    assert f"Wrote {path}." in said.out.replace("\n  ", " ")
    assert "LlamaForCausalLM: 8,030,261,248 parameters." in said.out
    assert "The count of dse is the same." in said.out
    assert fits(said.out, 100)
    assert dse("estimate", "--model", path, "--chip", "h100_sxm").code == 0


def test_a_server_gets_its_command_and_the_class_it_runs(tmp_path: Path):
    said = dse(
        "export", *POINT, "--format", "trtllm", "--out", tmp_path, "--set", "checkpoint=/w/l"
    )
    assert said.code == 0
    assert {file.name for file in tmp_path.iterdir()} == {
        "serve.sh",
        "options.yaml",
        "config.json",
    }
    script = (tmp_path / "serve.sh").read_text()
    assert "exec trtllm-serve /w/l " in script
    assert yaml.safe_load((tmp_path / "options.yaml").read_text())["tensor_parallel_size"] == 8
    assert "Checked against TensorRT-LLM 1.3." in said.out


@pytest.mark.parametrize("server", ["vllm", "sglang", "trtllm"])
def test_the_backend_is_the_server_unless_one_is_named(server: str):
    alone = ask("export", *POINT, "--format", server)
    assert not any("predicted with" in note for note in alone["notes"])
    assert alone["command"][0] in ("vllm", "python", "trtllm-serve")
    assert alone["chips_per_instance"] == 8
    other = ask("export", *POINT, "--format", server, "--backend", "generic")
    assert f"predicted with backend generic, not with {server}" in other["notes"]


def test_a_point_of_a_study_for_every_format(tiny: Path):
    for name in ("hf", "vllm", "sglang", "trtllm", "megatron"):
        said = dse("export", tiny, "best", "--format", name)
        assert said.code == 0, said.err
    assert "served" in said.err  # the degrees of megatron.sh


def test_megatron_arguments_are_sourced_by_a_shell():
    degrees = ("--tp", 2, "--ep", 16, "--dp", 8, "--context", 4096)
    said = dse("export", "--model", "deepseek-v3", "--format", "megatron", *degrees)
    assert said.code == 0
    text = said.out
    words = shlex.split(text[text.index("=(") + 2 : text.rindex(")")])
    assert words[:6] == ["--num-layers", "61", "--hidden-size", "7168", "--seq-length", "4096"]
    assert text.startswith("# DeepSeek-V3: arguments of Megatron-LM")


def test_a_class_may_be_asked_for():
    said = ask("export", "--model", "qwen3-8b", "--format", "hf", "--set", "architecture=qwen3")
    assert said["architecture"] == "Qwen3ForCausalLM"
    assert said["parameters"]["beyond"] == {"norms of query and key heads": 9216}
    config = json.loads(said["files"]["config.json"])
    assert config["model_type"] == "qwen3"


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "taken").write_text("a file")
    ended = dse("export", *POINT, "--format", "vllm", "--out", tmp_path / "taken")
    assert ended.code == 4
    assert "cannot be written" in ended.err
    assert (tmp_path / "taken").read_text() == "a file"


def test_pools_of_flags_are_written_with_their_router(tmp_path: Path):
    asked = ("export", "--model", "deepseek-v3", "--chip", "h200_sxm", "--dp", 8, "--ep", 8)
    pools = ("--serving", "disaggregated", "--set", "prefill_tp=8", "--set", "prefill_workers=2")
    said = dse(*asked, *pools, "--format", "sglang", "--out", tmp_path)
    assert said.code == 0, said.err
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"prefill.sh", "decode.sh", "router.sh", "config.json"}
    said = dse(*asked, "--set", "prefill_tp=8", "--format", "sglang")
    assert said.code == 2
    assert "--serving disaggregated" in said.err
