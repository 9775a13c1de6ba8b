"""Training arguments and launch commands of a point: what they say, and what they refuse."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from dse.errors import InputError
from dse.questions.export import STACKS, Export, export_arguments, export_config
from dse.schema.huggingface import ARCHITECTURES, from_config, published_class, write_config
from dse.schema.model import Model, config_of, model_of
from dse.schema.model_catalog import load_models, resolve_model
from tests.helpers_export import DEGREES, MOE, SERVERS, answer, export, flags, read_by_a_shell


def arguments(model: str | Model, sequence: int = 4096, **degrees: int) -> dict[str, str | None]:
    shape = resolve_model(model) if isinstance(model, str) else model
    made = export_arguments(shape, {**DEGREES, **degrees}, sequence)
    text = made.files["megatron.sh"]
    words = shlex.split(text[text.index("=(") + 2 : text.rindex(")")])
    assert words == made.document["arguments"]
    found: dict[str, str | None] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            assert word not in found
            found[word] = None if after.startswith("--") else after
    return found


def test_megatron_arguments_of_qwen3():
    """As scripts/models/qwen3-30B-A3B.sh of THUDM/slime has them (2025-09)."""
    published = {
        "--num-layers": "48",
        "--hidden-size": "2048",
        "--ffn-hidden-size": "6144",
        "--num-attention-heads": "32",
        "--num-query-groups": "4",
        "--kv-channels": "128",
        "--vocab-size": "151936",
        "--moe-ffn-hidden-size": "768",
        "--moe-router-topk": "8",
        "--num-experts": "128",
        "--group-query-attention": None,
        "--swiglu": None,
        "--untie-embeddings-and-output-weights": None,
        "--moe-grouped-gemm": None,
        "--normalization": "RMSNorm",
        "--position-embedding-type": "rope",
        "--disable-bias-linear": None,
        "--qk-layernorm": None,
    }
    written = arguments("qwen3-30b-a3b")
    # All layers are sparse: the width of dense ones is that of no layer.
    del published["--ffn-hidden-size"]
    assert {name: written[name] for name in published} == published


def test_megatron_arguments_of_gpt_oss():
    """Sinks and biases as the guide of scripts for gpt-oss in THUDM/slime has them (2025-11)."""
    written = arguments("gpt-oss-20b")
    assert written["--softmax-type"] == "learnable"
    assert written["--quick-geglu"] is None
    assert written["--glu-linear-offset"] == "1.0"
    assert not {"--disable-bias-linear", "--add-qkv-bias", "--swiglu"} & set(written)


def test_megatron_arguments_have_what_the_class_has():
    assert "--qk-layernorm" in arguments("qwen3-8b")
    assert "--qk-layernorm" not in arguments("llama-3-70b")
    assert "--moe-shared-expert-gate" in arguments("qwen3-next-80b-a3b")
    assert "--add-qkv-bias" in arguments("qwen2.5-7b")
    assert "--normalization" not in arguments("pythia-6.9b")  # LayerNorm, with biases
    assert "--squared-relu" in arguments("nemotron-4-340b")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("gemma-3-27b", "norms after attention and feed-forward; gates of GELU"),
        ("olmo-2-7b", "published as Olmo2ForCausalLM: norms of heads"),
        ("glm-4.5", "use_qk_norm"),
        ("bloom-176b", "ALiBi"),
        ("llama-3-70b", None),
        ("qwen3-8b", None),
    ],
)
def test_what_megatron_arguments_do_not_say_is_noted(model: str, said: str | None):
    notes = export_arguments(resolve_model(model), DEGREES, 2048).notes
    assert len(notes) == 2 + (said is not None)
    assert said is None or said in notes[2]


def test_megatron_arguments_of_latent_attention():
    written = arguments("deepseek-v3", tensor=2, data=8, expert=16)
    assert written["--multi-latent-attention"] is None
    assert written["--q-lora-rank"] == "1536"
    assert written["--qk-head-dim"] == written["--v-head-dim"] == "128"
    assert written["--moe-layer-freq"] == "([0]*3+[1]*58)"
    assert written["--moe-shared-expert-intermediate-size"] == "2048"
    assert written["--expert-model-parallel-size"] == "16"
    assert written["--expert-tensor-parallel-size"] == "1"
    assert "--sequence-parallel" in written
    assert "--q-lora-rank" not in arguments("deepseek-v2-lite")


def test_megatron_arguments_of_windows_and_hybrids():
    gemma = arguments("gemma-3-27b")
    assert (gemma["--window-size"], gemma["--window-attn-skip-freq"]) == ("1023,0", "6")
    assert "--untie-embeddings-and-output-weights" not in gemma
    mistral = arguments("mistral-7b-v0.1")
    assert "--window-attn-skip-freq" not in mistral  # all layers
    hybrid = arguments("qwen3-next-80b-a3b")
    assert hybrid["--experimental-attention-variant"] == "gated_delta_net"
    assert hybrid["--linear-attention-freq"] == "4"
    assert "--attention-output-gate" in hybrid


def test_the_vocabulary_is_padded_for_tensor_parallelism():
    for model, tensor, rows in (
        ("qwen2.5-7b", 1, 152_064),
        ("qwen2.5-7b", 4, 152_064),
        ("llama-3-70b", 8, 129_024),
        ("gpt-2-xl", 1, 50_304),  # 50,257, as Megatron-LM pads it
    ):
        made = export_arguments(resolve_model(model), {**DEGREES, "tensor": tensor}, 1024)
        assert made.document["padded_vocab_size"] == rows
    assert arguments("gpt-2-xl", 1024)["--position-embedding-type"] == "learned_absolute"


@pytest.mark.parametrize(
    ("model", "degrees", "reason"),
    [
        ("llama-3-70b", {"pipeline": 81}, "80 layers in 81 stages"),
        ("llama-3-70b", {"tensor": 7}, "64 heads over 7 ranks"),
        ("mixtral-8x7b", {"expert": 3, "data": 3}, "8 experts over 3 ranks"),
        ("mixtral-8x7b", {"expert": 4}, "expert parallelism 4 in a group of 1"),
        ("jamba-v0.1", {}, "no Mamba layers"),
        ("llama-4-scout", {}, "no chunk of grouped-query attention"),
        ("gpt-2-xl", {}, "no learned positions beyond 1024"),
    ],
)
def test_what_megatron_has_no_argument_for(model: str, degrees: dict[str, int], reason: str):
    with pytest.raises(InputError, match=reason):
        arguments(model, **degrees)


@pytest.mark.parametrize(("layers", "stages"), [(61, 8), (61, 2), (80, 3), (9, 8), (91, 32)])
def test_stages_that_differ_hold_all_layers(layers: int, stages: int):
    base = resolve_model("llama-3-8b")

    def ends(layers: int) -> list[int]:
        blocks = tuple(replace(block, count=layers) for block in base.blocks)
        written = arguments(replace(base, blocks=blocks), pipeline=stages)
        flags = [f"--decoder-{end}-pipeline-num-layers" for end in ("first", "last")]
        return [int(written[flag] or 0) for flag in flags if flag in written]

    first, last = ends(layers)
    between = layers - first - last
    assert first >= last >= 1
    assert between == 0 if stages == 2 else between % (stages - 2) == 0 < between
    assert ends(8 * stages) == []


def test_deepseek_v3_in_eight_stages_gives_the_ends_sizes_of_their_own():
    """8 layers in each of the six stages between: no stage has more than an even split needs."""
    written = arguments("deepseek-v3", pipeline=8)
    assert written["--decoder-first-pipeline-num-layers"] == "7"
    assert written["--decoder-last-pipeline-num-layers"] == "6"
    made = export_arguments(resolve_model("deepseek-v3"), {**DEGREES, "pipeline": 8}, 4096)
    assert "61 layers in 8 stages: 7 in the first, 6 in the last, 8 in each between" in made.notes
    assert "--decoder-first-pipeline-num-layers" not in arguments("llama-3-70b", pipeline=8)


# Launch commands of servers.


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


# Instances on several hosts, and two pools.


def on_host(made: Export, rank: str | None) -> subprocess.CompletedProcess[bytes]:
    """The words of the script's command on one host of several, a zero byte after each."""
    text = made.files["serve.sh"].replace("\nexec ", "\nprintf '%s\\0' ")
    host = {} if rank is None else {"NODE_RANK": rank, "MASTER_ADDR": "10.0.0.7"}
    return subprocess.run(["sh", "-c", text], check=False, capture_output=True, env=host)


SPANNING = {"model": "deepseek-v3", "tensor_parallel": 16, "pipeline_parallel": 2}


def test_an_instance_on_several_hosts_is_started_on_each():
    """32 chips are four hosts of eight."""
    vllm = export("vllm", answer(**SPANNING))
    assert vllm.document["hosts_per_instance"] == 4
    assert "an instance spans 4 hosts of 8 chips" in vllm.notes[0]
    first, last = (on_host(vllm, rank).stdout.decode().split("\0") for rank in "03")
    for words, rank in ((first, "0"), (last, "3")):
        at = words.index("--nnodes")
        told = f"--nnodes 4 --node-rank {rank} --master-addr 10.0.0.7"
        assert words[at : at + 6] == told.split()
    assert "--headless" not in first
    assert last[-2] == "--headless"
    sglang = export("sglang", answer(**SPANNING, backend="sglang"))
    words = on_host(sglang, "1").stdout.decode().split("\0")
    assert words[words.index("--dist-init-addr") + 1] == "10.0.0.7:20000"
    assert words[words.index("--node-rank") + 1] == "1"
    unset = on_host(sglang, None)
    assert unset.returncode != 0
    assert b"NODE_RANK" in unset.stderr


def test_tensorrt_llm_on_several_hosts_is_one_job():
    made = export("trtllm", answer(**SPANNING, backend="trtllm"))
    words = read_by_a_shell(made.files["serve.sh"])
    job = "srun --nodes 4 --ntasks-per-node 8 --mpi=pmix trtllm-llmapi-launch"
    assert words[:9] == [*job.split(), "trtllm-serve", "deepseek-v3"]


@pytest.mark.parametrize(
    ("chip", "degrees", "hosts"),
    [
        ("h200_sxm", {"tensor_parallel": 8}, 1),
        ("h200_sxm", {"data_parallel": 32, "expert_parallel": 32}, 4),
        ("h200_sxm", {"tensor_parallel": 4, "pipeline_parallel": 3}, 2),  # 6 chips of each
        ("gb200_nvl72", {"data_parallel": 8, "expert_parallel": 8}, 2),
        ("l40s", {"tensor_parallel": 8, "pipeline_parallel": 4}, 4),
    ],
)
def test_hosts_hold_whole_ranks(chip: str, degrees: dict[str, int], hosts: int):
    point = answer("deepseek-v3", chip, **degrees)
    made = export("vllm", point)
    assert made.document["hosts_per_instance"] == hosts
    assert ("--nnodes" in made.document["command"]) is (hosts > 1)
    assumed = any("taken to have 4 chips" in note for note in made.notes)
    assert assumed is (chip == "gb200_nvl72")


def pools(format_: str, prefill: dict[str, Any], **decode: Any) -> Export:
    """Prefill and decode on pools of their own, for one server."""
    model = {"model": "deepseek-v3", "kv_dtype": "fp8", "backend": format_}
    decoding = answer(**{**model, **decode})
    return export(format_, replace(decoding, prefill=answer(**{**model, **prefill})))


PREFILLS = {"tensor_parallel": 8, "replicas": 3, "concurrency": 64}
DECODES = {"data_parallel": 16, "expert_parallel": 16, "replicas": 2, "concurrency": 64}


@pytest.mark.parametrize("name", SERVERS)
def test_the_router_knows_every_worker_of_both_pools(name: str):
    made = pools(name, PREFILLS, **DECODES)
    host = {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.7", "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.8"}
    for pool, chips, workers in (("prefill", 8, 3), ("decode", 16, 2)):
        text = made.files[f"{pool}.sh"].replace("\nexec ", "\nprintf '%s\\0' ")
        ended = subprocess.run(["sh", "-c", text], check=True, capture_output=True, env=host)
        described = made.document[f"{pool}_pool"]
        assert len(ended.stdout.decode().split("\0")) - 1 == len(described["command"])
        assert (described["chips_per_instance"], described["instances"]) == (chips, workers)
        assert any(f"{workers} {pool} workers" in note for note in made.notes)
        routed = made.files.get("router.yaml", made.files["router.sh"])
        port = {"vllm": 8000, "sglang": 30000, "trtllm": 8001}[name]
        assert all(f"{pool}-{k}:{port}" in routed for k in range(1, workers + 1))
        assert f"{pool}-{workers + 1}:" not in routed
        assert f"--port {port}" in made.files[f"{pool}.sh"]
    assert read_by_a_shell(made.files["router.sh"]) == made.document["router"]["command"]


def test_each_pool_is_told_its_part():
    vllm = pools("vllm", PREFILLS, **DECODES)
    for pool, role in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        words = vllm.document[f"{pool}_pool"]["command"]
        told = json.loads(words[words.index("--kv-transfer-config") + 1])
        assert told == {"kv_connector": "NixlConnector", "kv_role": role}
    sglang = pools("sglang", PREFILLS, **DECODES)
    for pool in ("prefill", "decode"):
        words = sglang.document[f"{pool}_pool"]["command"]
        assert words[words.index("--disaggregation-mode") + 1] == pool
    trtllm = pools("trtllm", PREFILLS, **DECODES)
    first, second = (yaml.safe_load(trtllm.files[f"{pool}.yaml"]) for pool in ("prefill", "decode"))
    assert first["disable_overlap_scheduler"] is True
    assert "disable_overlap_scheduler" not in second
    for options in (first, second):
        assert options["cache_transceiver_config"]["max_tokens_in_buffer"] >= 4000
    router = yaml.safe_load(trtllm.files["router.yaml"])
    assert router["context_servers"]["num_instances"] == 3
    assert len(router["generation_servers"]["urls"]) == 2
    assert "options.yaml" not in trtllm.files


@pytest.mark.parametrize("name", SERVERS)
def test_modules_of_the_model_draft_in_both_pools(name: str):
    said = {"vllm": "speculative-config", "sglang": "num-draft-tokens", "trtllm": "num_nextn"}[name]
    for tokens, here in ((0, False), (1, True)):
        made = pools(name, PREFILLS, **DECODES, draft_tokens=tokens)
        texts = [made.files.get(f"{p}.yaml", made.files[f"{p}.sh"]) for p in ("prefill", "decode")]
        assert [said in text for text in texts] == [here, here]
    alone = export(name, answer(**MOE, backend=name, draft_tokens=1))
    assert said in alone.files.get("options.yaml", alone.files["serve.sh"])


def test_what_two_pools_cannot_do_is_refused_by_name():
    stages = {"tensor_parallel": 8, "pipeline_parallel": 2}
    with pytest.raises(InputError, match="no cache of pipeline stages"):
        pools("vllm", stages, **DECODES)
    pools("sglang", stages, **DECODES, draft_tokens=1)
    with pytest.raises(InputError, match="drafts in pipeline stages"):
        pools("sglang", PREFILLS, **stages, draft_tokens=1)
    hybrid = {"model": "qwen3-next-80b-a3b", "kv_dtype": "bf16"}
    pools("vllm", {**hybrid, "tensor_parallel": 4}, **hybrid, tensor_parallel=4)
    with pytest.raises(InputError, match="equal tensor parallelism"):
        pools("vllm", {**hybrid, "tensor_parallel": 4}, **hybrid, tensor_parallel=2)
