"""Launch commands of instances on several hosts and of two pools."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from dse.errors import InputError
from dse.questions.export import Export
from tests.helpers_export import MOE, SERVERS, answer, export, read_by_a_shell


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
