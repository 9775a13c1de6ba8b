"""Memory tiers and `dse estimate --fit` as a person uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SHORT, ask, dse, fits

POINT = ("estimate", "--model", "llama-3-70b", "--chip", "h100_sxm", "--tp", 8)
SPLIT = (*POINT, "--set", "weights_offloaded=0.5", "--set", "kv_offloaded=0.25")


def test_capacity_without_bandwidth_starves_the_compute() -> None:
    """Claim 9: 0, 50 and 100% of the weights in host DRAM."""
    answers = [ask(*POINT, "--set", f"weights_offloaded={share}") for share in (0, 0.5, 1)]
    rates = [answer["output_tokens_per_s"] for answer in answers]
    assert rates[0] > 4 * rates[1] > 4 * 1.5 * rates[2]
    for metric in ("mfu", "output_tokens_per_s"):
        values = [answer[metric] for answer in answers]
        assert values == sorted(values, reverse=True)
    assert answers[0]["bottleneck"] != "decode: memory tier"
    assert [answer["bottleneck"] for answer in answers[1:]] == ["decode: memory tier"] * 2
    assert answers[0]["provenance"]["tpot_s"] == "fitted"
    assert answers[1]["provenance"]["tpot_s"] == "assumed"


def test_an_estimate_says_what_lies_where_and_what_that_rests_on() -> None:
    said = dse(*SPLIT)
    assert said.code == 0
    assert fits(said.out, 100)
    words = " ".join(said.out.split())
    assert "50% of the weights and 25% of the cache in host memory" in words
    answer = ask(*SPLIT)
    assumed = " ".join(answer["assumed"])
    assert "host capacity: 2 TB of a DGX H100 over its 8 GPUs" in assumed
    assert "routed experts and cache on demand" in assumed
    assert answer["deployment"]["offload_tier"] == "host"
    parts = answer["memory_bytes_per_chip_parts"]
    assert parts["weights"] < answer["tier_bytes_per_chip"] < answer["tier_capacity_bytes_per_chip"]
    plain = ask(*POINT)
    assert not {name for name in plain if name.startswith("tier_")}
    assert "offload_tier" not in plain["deployment"]


def test_the_detail_shows_the_wait() -> None:
    arguments = ("estimate", "--detail", *SPLIT[1:], "--set", "offload_tier=flash")
    answer = ask(*arguments)
    waits = next(r for r in answer["breakdown"] if r["operator"] == "wait for the memory tier")
    assert waits["decode_s"] == pytest.approx(answer["tier_wait_s"])
    assert waits["bound"] == "memory"
    assert "wait for the memory tier" in dse(*arguments).out


def test_ones_own_chip_brings_its_memories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        f"{SHORT}host_link_bandwidth: 64 GB/s\nextra_memories:\n"
        "- {kind: host, capacity: 100 GB, bandwidth: 20 GB/s}\n"
        "- {kind: CXL, capacity: 1 TB, bandwidth: 50 GB/s}\n"
    )
    Path("mine.yaml").write_text(text, encoding="utf-8")
    point = (
        "estimate",
        "--model",
        "llama-3-8b",
        "--chip",
        "./mine.yaml",
        "--set",
        "weights_offloaded=1",
    )
    host, cxl = (ask(*point, "--set", f"offload_tier={tier}") for tier in ("host", "cxl"))
    assert host["tier_capacity_bytes_per_chip"] == 100e9
    assert cxl["tier_capacity_bytes_per_chip"] == 1e12
    assert host["latency_floor_s"] == pytest.approx(2.5 * cxl["latency_floor_s"])
    Path("mine.yaml").write_text(text.replace("50 GB/s", "50 GB"), encoding="utf-8")
    wrong = dse("catalog", "chips", "check", "mine.yaml")
    assert wrong.code == 2
    assert "mine.yaml:10: extra_memories[1].bandwidth" in wrong.err


def test_pools_and_the_list_of_tiers() -> None:
    point = ("estimate", "--serving", "disaggregated", *POINT[1:], "--set", "prefill_tp=8")
    plain, split = (
        ask(*point, *more) for more in ((), ("--set", "kv_offloaded=1", "--concurrency", 64))
    )
    assert split["tpot_s"] > plain["tpot_s"]
    assert split["provenance"]["tpot_s"] == "assumed"
    words = " ".join(dse("catalog", "chips", "show", "gh200_141").out.split())
    assert "memory tiers: host (host LPDDR5X) 480 GB at 384 GB/s; flash 3.84 TB" in words
    tiers = ask("catalog", "chips", "show", "sn40l")["tiers"]
    assert [tier["name"] for tier in tiers] == ["host", "attached", "flash"]


def test_the_backend_of_a_chip_is_taken_and_said() -> None:
    point = ("estimate", "--model", "llama-3-8b", "--chip", "wse3", "--concurrency", 1)
    own, asked = ask(*point), ask(*point, "--backend", "vllm")
    assert own["workload"]["backend"] == "compiled"
    assert "backend compiled, the default of wse3: no --backend was given" in own["assumed"]
    assert asked["workload"]["backend"] == "vllm"
    assert not any("default of wse3" in text for text in asked["assumed"])
    gpu = ask(*POINT)
    assert gpu["workload"]["backend"] == "generic"
    assert not any(text.startswith("backend") for text in gpu["assumed"])


FIT = (
    "estimate", "--fit", "--chip", "groq_lpu_v1", "--model", "llama-3-70b", "--weight-dtype",
    "int8", "--concurrency", 1,
)  # fmt: skip
ONE = ("--concurrency", 1)


def test_fit_answers_first_and_its_command_reproduces_it() -> None:
    said = dse(*FIT)
    assert said.code == 0
    assert fits(said.out, 100)
    answer = ask(*FIT)
    assert f"\n- groq_lpu_v1: {answer['fewest']['chips']:,} chips at least." in said.out
    again = ask(*answer["command"].split()[1:])
    assert again["feasible"]
    assert again["tpot_s"] == answer["fewest"]["tpot_s"]
    assert again["deployment"]["chips"] == answer["fewest"]["chips"]


def test_fit_of_more_chips_than_a_domain_says_so() -> None:
    said = dse("estimate", "--fit", "--chip", "groq3_lp30", "--model", "deepseek-v3", *ONE)
    assert "More chips than one scale-up domain has (256)" in said.out


def test_a_model_that_does_not_fit_is_an_answer() -> None:
    said = dse("estimate --fit --chip wse3 --model deepseek-v3 --set most_chips=4", *ONE)
    assert said.code == 3
    assert "\n- Does not fit: DeepSeek-V3" in said.out
    assert "fill the memory of 16 chips" in said.out
