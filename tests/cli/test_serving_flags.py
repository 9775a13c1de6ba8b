"""Arrivals, drafts and cached prefixes: flags of an estimate and keys of a space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ask, dse, fits

POINT = ("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm")


def poisson(rate: float) -> tuple[str, ...]:
    return ("--serving", "poisson", "--set", f"requests_per_second={rate}")


SPACE = """
name: arrivals
workload:
  prompt_tokens: 1024
  output_tokens: 128
  serving: poisson
  requests_per_second: 4
  draft_tokens: 3
  acceptance: 0.7
  prefix_hit_rate: 0.5
price_basis: rental_3yr
model: llama-3-8b
deployment:
  chip: [h100_sxm, l40s]
  tensor_parallel: [1, 2]
  replicas: 1
  weight_dtype: bf16
  kv_dtype: bf16
  concurrency: 1
objectives: {usd_per_million_total_tokens: minimize, ttft_p99_s: minimize}
constraints: [ttft_p99_s <= 2 s]
"""


def test_percentiles_of_arrivals_at_random() -> None:
    answer = ask(*POINT, *poisson(4))
    assert answer["ttft_s"] < answer["ttft_p90_s"] < answer["ttft_p99_s"]
    assert 0 < answer["utilisation"] < 1
    assert answer["workload"]["requests_per_second"] == 4
    said = dse(*POINT, *poisson(4))
    assert fits(said.out, 100)
    assert "99th percentile" in said.out
    assert "in flight" not in said.out.split("metric")[0]


def test_too_many_arrivals_are_an_answer() -> None:
    answer = ask(*POINT, *poisson(1e4))
    assert not answer["feasible"]
    assert answer["violations"][0]["constraint"] == "arrivals_within_capacity"
    assert answer["ttft_p99_s"] is None


POOLS = ("estimate", "--serving", "disaggregated", "--model", "deepseek-v3", "--chip", "h200_sxm",
    "--dp", 8, "--ep", 8, "--set", "prefill_tp=8", "--concurrency", 64)  # fmt: skip


def test_disaggregated_pools_add_up() -> None:
    answer = ask(*POOLS, "--set", "prefill_workers=2")
    prefill, decode = answer["prefill_pool"]["deployment"], answer["decode_pool"]["deployment"]
    assert (prefill["chips"], decode["chips"]) == (16, 8)
    rate = answer["output_tokens_per_s"]
    assert answer["output_tokens_per_s_per_chip"] == pytest.approx(rate / 24)
    paid = answer["usd_per_million_output_tokens_all_in"] * rate / 1e6 * 3600
    one = ask("estimate", "--model", "deepseek-v3", "--chip", "h200_sxm", "--tp", 8)
    assert paid == pytest.approx(24 * one["chip_usd_per_hour"])
    said = dse(*POOLS)
    assert fits(said.out, 100)
    assert "transfer of the cache" in said.out


def test_each_pool_is_paid_at_its_own_price() -> None:
    same, other = (ask(*POOLS, *flags) for flags in ((), ("--set", "prefill_chip=b200_sxm")))
    name = "usd_per_million_output_tokens"
    assert other[name] == pytest.approx(same[name], rel=0.02)
    assert other["usd_per_million_input_tokens"] != same["usd_per_million_input_tokens"]
    assert other["prefill_s"] < same["prefill_s"]


def test_stages_of_the_decode_pool_are_those_of_pp() -> None:
    one, two = (ask(*POOLS, "--pp", n, "--set", "prefill_pp=1") for n in (1, 2))
    pools = ("prefill_pool", "decode_pool")
    stages = [two[pool]["deployment"]["pipeline_parallel"] for pool in pools]
    assert stages == [1, 2]
    assert two["chips"] - one["chips"] == one["decode_pool"]["deployment"]["chips"]


def test_a_space_of_arrivals_is_searched_and_its_points_reproduce(tmp_path: Path) -> None:
    (tmp_path / "arrivals.yaml").write_text(SPACE, encoding="utf-8")
    out = tmp_path / "out"
    said = dse("run", tmp_path / "arrivals.yaml", "--out", out, "--seed", 1)
    assert said.code == 0, said.err
    front = json.loads((out / "front.json").read_text(encoding="utf-8"))
    items = front["items"] if isinstance(front, dict) else front
    again = ask("estimate", out, 1)
    for name in ("ttft_p99_s", "tpot_s", "utilisation"):
        assert again[name] == pytest.approx(items[0]["metrics"][name], rel=1e-9)
    assert again["workload"]["draft_tokens"] == 3


RATES = (
    "output_tokens_per_s", "output_tokens_per_s_per_chip", "usd_per_million_total_tokens",
    "usd_per_million_output_tokens_all_in",
)  # fmt: skip


def test_below_capacity_the_rate_is_that_of_the_arrivals() -> None:
    """No interval says that more could leave than arrives."""
    below = ask(*POINT, *poisson(4))
    above = ask(*POINT, *poisson(1e4))
    for metric in RATES:
        assert metric not in below["intervals"]
        assert below["provenance"][metric] == "derived"
        assert metric in above["intervals"]
    assert "tpot_s" in below["intervals"]
    assert ask(*POINT)["intervals"].keys() >= set(RATES)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (poisson(4), "Poisson arrivals"),
        (("--set", "draft_tokens=2", "--set", "acceptance=0.5"), "speculative decoding"),
        (("--set", "prefix_hit_rate=0.5"), "cached prefixes"),
        (("--set", "workloads=a=1:100/10,b=1:200/10"), "a mix of workloads"),
    ],
)
def test_an_answer_says_that_no_measured_row_is_like_it(flags: tuple, words: str) -> None:
    plain = ask(*POINT)["assumed"]
    assert not any("no measured row has" in sentence for sentence in plain)
    assumed = ask(*POINT, *flags)["assumed"]
    assert f"no measured row has {words}: intervals are those of closed loops without" in assumed


def test_a_module_that_drafts_is_not_left_out() -> None:
    model = ("--model", "deepseek-v3", "--chip", "h200_sxm", "--tp", 8, "--json")
    drafts = ("--set", "draft_tokens=1", "--set", "acceptance=0.8")
    left_out = "DeepSeek-V3: the multi-token-prediction module is left out"
    assert left_out in dse("estimate", *model).json()["assumed"]
    assumed = dse("estimate", *model, *drafts).json()["assumed"]
    assert left_out not in assumed
    assert any("a multi-token-prediction module of one mean layer" in text for text in assumed)
    other = dse("estimate", *model[2:], "--model", "deepseek-v4-flash", *drafts).json()["assumed"]
    assert "DeepSeek-V4-Flash: the mixtures of residual streams are left out" in other


def test_copies_of_experts_need_ranks() -> None:
    model = ("estimate", "--model", "deepseek-v3", "--chip", "h200_sxm", "--dp", 8)
    said = dse(*model, "--set", "redundant_experts=32")
    assert said.code == 2
    assert "--set redundant_experts" in said.err
    answer = ask(*model, "--ep", 8, "--set", "redundant_experts=32")
    assert answer["feasible"]
    uneven = ask(*model, "--ep", 8, "--set", "redundant_experts=30")
    assert [row["constraint"] for row in uneven["violations"]] == [
        "experts_divide_by_expert_parallel"
    ]


def test_a_front_says_all_that_its_points_rest_on(tmp_path: Path) -> None:
    """front.json and an estimate of the same point: one list."""
    text = (
        SPACE[: SPACE.index("workload:")]
        + """workload:
  {prompt_tokens: 1024, output_tokens: 128, serving: continuous}
price_basis: rental_3yr
model: mixtral-8x7b
deployment: {chip: h100_sxm, tensor_parallel: [2, 8], replicas: 1, weight_dtype: bf16,
  kv_dtype: bf16, concurrency: 8}
objectives: {tpot_s: minimize}
"""
    )
    (tmp_path / "sparse.yaml").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    assert dse("run", tmp_path / "sparse.yaml", "--out", out).code == 0
    item = json.loads((out / "front.json").read_text(encoding="utf-8"))["items"][0]
    again = ask("estimate", out, 1)["assumed"]
    assert any("routing skew" in sentence for sentence in item["metrics"]["assumed"])
    assert item["metrics"]["assumed"] == again[:-1]


def test_pools_say_what_one_pool_says() -> None:
    answer = ask(*POOLS)
    assert answer["e2e_s"] == pytest.approx(answer["ttft_s"] + 511 * answer["tpot_s"])
    assert answer["bottleneck"] == answer["decode_pool"]["bottleneck"]
    assert answer["prefill_pool"]["bottleneck"].startswith("prefill: ")
    assert 0.0 < answer["mfu"] < 1.0
    assert 0.0 < answer["mbu"] < 1.0
    assert answer["provenance"]["ttft_s"] == "fitted"
    assert set(answer["provenance"]) - {"latency_floor_s"} == set(answer["intervals"])
    for pool in ("prefill_pool", "decode_pool"):
        base, used, most = (
            answer[pool][f"memory_{name}bytes_per_chip"] for name in ("base_", "", "capacity_")
        )
        assert base < used < most
    other = ask(*POOLS, "--set", "prefill_chip=b200_sxm")
    assert "that the two can be joined is assumed" in other["assumed"][0]


def test_a_cache_cannot_cross_a_link_without_a_figure() -> None:
    flags = ("estimate", "--serving", "disaggregated", "--model", "llama-3-70b")
    for chips in (("--chip", "mtia_300"), ("--chip", "h100_sxm", "--set", "prefill_chip=mtia_300")):
        said = dse(*flags, *chips)
        assert said.code == 2
        assert "mtia_300 has no bandwidth_per_direction of scale-out network" in said.err


def test_the_rate_is_of_all_workloads_together() -> None:
    loads = ("--set", "workloads=chat=3:1000/250,retrieval=1:6000/400")
    point = ("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--serving", "poisson")
    answer = ask(*point, *loads, "--set", "requests_per_second=2")
    assert answer["feasible"]
    assert answer["output_tokens_per_s"] == pytest.approx(1.5 * 250 + 0.5 * 400)
    assert [load["requests_per_second"] for load in answer["workloads"]] == [1.5, 0.5]
    full = ask(*point, *loads, "--set", "requests_per_second=1000")
    assert "arrivals_within_capacity" in [row["constraint"] for row in full["violations"]]
