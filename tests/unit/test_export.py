"""Launch commands and training arguments of a point: what they say, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from dse.errors import InputError
from dse.questions.export import STACKS, export_arguments, export_config
from dse.schema.huggingface import ARCHITECTURES, from_config, published_class, write_config
from dse.schema.model import Model, config_of, model_of
from dse.schema.model_catalog import load_models, resolve_model
from tests.helpers_export import DEGREES, MOE, SERVERS, answer, export, flags, read_by_a_shell


def test_vllm_of_a_dense_model():
    made = export("vllm", answer(tensor_parallel=4, pipeline_parallel=2, replicas=3))
    assert made.document["command"][:3] == ["vllm", "serve", "llama-3-70b"]
    assert flags(made) == {
        "--tensor-parallel-size": "4",
        "--pipeline-parallel-size": "2",
        "--max-model-len": "5000",
        "--max-num-seqs": "22",  # 64 requests on three instances
        "--max-num-batched-tokens": "8192",
        "--gpu-memory-utilization": "0.9",
    }
    assert (made.document["instances"], made.document["chips_per_instance"]) == (3, 8)
    assert any("3 instances" in note for note in made.notes)


def test_experts_and_attention_ranks_of_three_servers():
    """64 requests on 8 attention ranks: 8 a rank, 64 in all."""
    vllm = flags(export("vllm", answer(**MOE)))
    assert vllm["--tensor-parallel-size"] == "1"
    assert vllm["--data-parallel-size"] == "8"
    assert vllm["--enable-expert-parallel"] is None
    assert vllm["--max-num-seqs"] == "8"
    sglang = flags(export("sglang", answer(**MOE, backend="sglang")))
    assert [sglang[name] for name in ("--tp-size", "--attn-dp-size", "--ep-size")] == ["8"] * 3
    assert sglang["--max-running-requests"] == "64"
    assert sglang["--chunked-prefill-size"] == str(8 * 16384)
    trtllm = yaml.safe_load(export("trtllm", answer(**MOE, backend="trtllm")).files["options.yaml"])
    assert trtllm["tensor_parallel_size"] == trtllm["moe_expert_parallel_size"] == 8
    assert trtllm["moe_tensor_parallel_size"] == 1
    assert trtllm["enable_attention_dp"] is True
    assert trtllm["max_batch_size"] == 8
    assert trtllm["max_seq_len"] == 5000


def test_the_groups_of_experts_multiply_to_all_ranks():
    point = answer("qwen3-235b-a22b", tensor_parallel=8, expert_parallel=4, backend="trtllm")
    options = yaml.safe_load(export("trtllm", point).files["options.yaml"])
    assert options["moe_expert_parallel_size"] * options["moe_tensor_parallel_size"] == 8
    assert "enable_attention_dp" not in options


@pytest.mark.parametrize(
    ("weights", "vllm", "sglang"),
    [("fp8", "fp8_per_tensor", "fp8"), ("fp8_block", "fp8_per_block", None), ("int4", None, None)],
)
def test_weights_are_quantized_while_loading_or_beforehand(
    weights: str, vllm: str | None, sglang: str | None
):
    point = answer(tensor_parallel=8, weight_dtype=weights)
    for name, flag in (("vllm", vllm), ("sglang", sglang), ("trtllm", None)):
        made = export(name, point)
        assert flags(made).get("--quantization") == flag
        assert any(f"converted to {weights}" in note for note in made.notes) is (flag is None)


def test_a_checkpoint_in_its_own_format_needs_no_flag():
    for name in SERVERS:
        made = export(name, answer(**MOE, backend=name))
        assert "--quantization" not in flags(made)
        assert not any("converted" in note for note in made.notes)


def test_the_cache_in_eight_bits():
    point = answer(tensor_parallel=8, kv_dtype="fp8")
    assert flags(export("vllm", point))["--kv-cache-dtype"] == "fp8"
    assert flags(export("sglang", point))["--kv-cache-dtype"] == "fp8_e4m3"
    options = yaml.safe_load(export("trtllm", point).files["options.yaml"])
    assert options["kv_cache_config"]["dtype"] == "fp8"
    for name in SERVERS:
        with pytest.raises(InputError, match="a cache in int4"):
            export(name, answer(tensor_parallel=8, kv_dtype="int4"))


def test_long_prompts_are_cut_where_they_do_not_fit_a_step():
    for prompt, cut in ((4000, False), (30000, True)):
        point = answer(tensor_parallel=8, backend="trtllm", load={"prompt_tokens": prompt})
        options = yaml.safe_load(export("trtllm", point).files["options.yaml"])
        assert options["enable_chunked_prefill"] is cut


def test_a_prediction_for_another_server_is_said():
    made = export("sglang", answer(tensor_parallel=8, backend="vllm"))
    assert "predicted with backend vllm, not with sglang" in made.notes
    assert flags(made)["--mem-fraction-static"] == "0.88"
    assert export("vllm", answer(tensor_parallel=8)).notes == ()


def test_arrivals_at_random_may_come_in_bursts():
    """The mean in flight is no cap: as many are admitted as where all are queued."""
    load = {"serving": "poisson", "requests_per_second": 0.5}
    made = export("vllm", answer(tensor_parallel=8, load=load, concurrency=1))
    queued = answer(tensor_parallel=8, load={"serving": "offline"})
    assert flags(made)["--max-num-seqs"] == flags(export("vllm", queued))["--max-num-seqs"]
    assert any("arrivals" in note for note in made.notes)


def test_copies_of_experts():
    point = answer(**MOE, redundant_experts=8)
    vllm = flags(export("vllm", point))
    assert json.loads(vllm["--eplb-config"] or "") == {"num_redundant_experts": 8}
    assert flags(export("sglang", point))["--ep-num-redundant-experts"] == "8"
    options = yaml.safe_load(export("trtllm", point).files["options.yaml"])
    assert options["moe_config"]["load_balancer"]["num_slots"] == 264


REFUSALS = [
    ("trtllm", {"chip": "mi300x", "tensor_parallel": 8}, "chips of AMD"),
    ("vllm", {"tensor_parallel": 4, "data_parallel": 2}, "a dense model has replicas"),
    (
        "vllm",
        {"model": "qwen3-235b-a22b", "tensor_parallel": 8, "expert_parallel": 4},
        "expert parallelism 4 in a group of 8 chips",
    ),
    (
        "trtllm",
        {**MOE, "tensor_parallel": 2, "data_parallel": 4},
        "tensor parallelism 2 with data parallelism 4",
    ),
    (
        "vllm",
        {"tensor_parallel": 8, "load": {"draft_tokens": 3, "acceptance": 0.7}},
        "draft model",
    ),
    ("sglang", {"model": "jamba-v0.1", "tensor_parallel": 8}, "JambaForCausalLM"),
    ("sglang", {"chip": "tpu_v5p", "tensor_parallel": 8}, "chips of Google"),
    ("vllm", {"chip": "groq_lpu_v1", "model": "llama-3-8b"}, "chips of Groq"),
    ("sglang", {"model": "windowed"}, "no model with these sliding windows"),
]


@pytest.mark.parametrize(("format_", "point", "reason"), REFUSALS)
def test_what_a_server_cannot_run_is_refused_by_name(
    format_: str, point: dict[str, Any], reason: str
):
    if point.get("model") == "windowed":
        point = {**point, "model": windowed()}
    with pytest.raises(InputError, match=reason):
        export(format_, answer(**point))


def windowed() -> Model:
    """Windows on all layers and shared experts: dots.llm1 alone has both."""
    base = resolve_model("dots.llm1")
    blocks = (
        replace(block, sizes={**block.sizes, "window": 1024})
        if block.kind == "gqa"
        else replace(block, count=4)
        if block.kind == "moe"
        else block
        for block in base.blocks
    )
    kept = tuple(replace(b, count=5) if b.kind == "gqa" else b for b in blocks)
    return replace(base, blocks=kept)


def test_a_server_runs_the_class_that_it_has():
    """Windows in turns with full layers: Qwen3 is written of a shape of nobody's, but vLLM refuses
    it."""
    model = replace(resolve_model("gemma-3-27b"), name="mine", architecture=None)
    point = answer(model, tensor_parallel=8)
    assert export_config(point.model).document["architecture"] == "Qwen3ForCausalLM"
    made = export("vllm", point)
    assert made.document["architecture"] == "Gemma3ForCausalLM"
    assert json.loads(made.files["config.json"])["architectures"] == ["Gemma3ForCausalLM"]


@pytest.mark.parametrize("model", [m for m in load_models().values() if published_class(m)])
def test_a_published_model_keeps_its_class_or_a_note_says_so(model: Model):
    name = published_class(model)
    try:
        made = export_config(model)
    except InputError:
        assert name not in ARCHITECTURES
        return
    said = any(note.startswith(f"published as {name}, ") for note in made.notes)
    assert (made.document["architecture"] == name) is (name in ARCHITECTURES)
    assert said is (name not in ARCHITECTURES)


def test_a_point_of_a_study_is_the_published_model_of_its_name():
    """What a study keeps of a model is its name and its layers."""
    model = resolve_model("qwen3-30b-a3b")
    kept = model_of(config_of(model), "a study")
    assert kept.architecture is None
    assert export_config(kept).document["architecture"] == "Qwen3MoeForCausalLM"
    wider = tuple(
        replace(block, sizes={**block.sizes, "experts": 96}) if block.kind == "moe" else block
        for block in kept.blocks
    )
    other = export_config(replace(kept, blocks=wider))
    assert other.document["architecture"] == "MixtralForCausalLM"  # of that name no longer


def test_a_file_keeps_the_class_that_it_names():
    listed = resolve_model("qwen3-32b")
    read = from_config(write_config(listed).config, "mine", "config.json")
    assert read.architecture == listed.architecture == "Qwen3ForCausalLM"
    assert export_config(read).document["architecture"] == "Qwen3ForCausalLM"
    asked = export_config(read, architecture="llama")
    assert asked.document["architecture"] == "LlamaForCausalLM"
    assert any("published as Qwen3ForCausalLM, which is not taken here" in n for n in asked.notes)


@pytest.mark.parametrize("name", SERVERS)
def test_servers_name_classes_that_exist(name: str):
    stack = STACKS[name]
    assert {*stack.lacks, *stack.windows} <= set(ARCHITECTURES)
    assert not {*stack.lacks} & {*stack.windows}


def test_names_do_not_reach_the_shell():
    hostile = "x'; rm -rf ~ #\n$(reboot)\u2028`id`"
    model = replace(resolve_model("llama-3-70b"), name=hostile, id=hostile)
    made = export("vllm", answer(model, tensor_parallel=8))
    lines = made.files["serve.sh"].split("\n")
    assert lines[1].startswith("# x'; rm -rf ~ # $(reboot) `id` on 8")
    assert read_by_a_shell(made.files["serve.sh"])[:3] == ["vllm", "serve", hostile]
    arguments = export_arguments(model, DEGREES, 4096).files["megatron.sh"]
    assert arguments.startswith("# x'; rm -rf ~ # $(reboot)")


@pytest.mark.parametrize("format_", SERVERS)
@pytest.mark.parametrize(
    ("point", "near"),
    [
        ({"model": "deepseek-v3", "tensor_parallel": 32}, "--tp 16"),
        (
            {"model": "qwen3-30b-a3b", "tensor_parallel": 4, "weight_dtype": "fp8_block"},
            "--tp 2, or --ep 4",
        ),
    ],
)
def test_what_check_refuses_is_not_exported(format_: str, point: dict[str, Any], near: str):
    """By the rules of `dse check`, with their reason; the degrees it names are taken."""
    with pytest.raises(InputError, match="no multiple of 128") as refused:
        export(format_, answer(**point))
    assert refused.value.accepted == f"nearest: {near}"
    axes = {"--tp": "tensor_parallel", "--ep": "expert_parallel"}
    for words in near.split(", or "):
        flag, degree = words.split()
        export(format_, answer(**{**point, axes[flag]: int(degree)}))
