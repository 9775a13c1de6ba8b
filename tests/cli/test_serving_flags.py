"""Arrivals, drafts and cached prefixes: flags of an estimate and keys of a space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import dse, fits

POINT = ("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm")
POISSON = ("--serving", "poisson", "--requests-per-second")
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
    answer = dse(*POINT, *POISSON, 4, "--json").json()
    assert answer["ttft_s"] < answer["ttft_p90_s"] < answer["ttft_p99_s"]
    assert 0 < answer["utilisation"] < 1
    assert answer["workload"]["requests_per_second"] == 4
    said = dse(*POINT, *POISSON, 4)
    assert fits(said.out, 100)
    assert "99th percentile" in said.out
    assert "in flight" not in said.out.split("metric")[0]


def test_too_many_arrivals_are_an_answer() -> None:
    answer = dse(*POINT, *POISSON, 1e4, "--json").json()
    assert not answer["feasible"]
    assert answer["violations"][0]["constraint"] == "arrivals_within_capacity"
    assert answer["ttft_p99_s"] is None


def test_a_closed_loop_has_no_percentiles() -> None:
    answer = dse(*POINT, "--json").json()
    assert answer["ttft_p99_s"] is None
    assert answer["utilisation"] is None
    assert "percentile" not in dse(*POINT).out


def test_drafts_and_cached_prefixes_shorten_what_they_should() -> None:
    plain = dse(*POINT, "--concurrency", 1, "--json").json()
    flags = ("--draft-tokens", 3, "--acceptance", 0.8, "--prefix-hit-rate", 0.5)
    helped = dse(*POINT, "--concurrency", 1, *flags, "--json").json()
    assert helped["tpot_s"] < 0.6 * plain["tpot_s"]
    assert helped["prefill_s"] < plain["prefill_s"]
    said = dse("explain", *POINT[1:], *flags)
    assert fits(said.out, 100)
    assert "3 drafted tokens accepted at 0.8" in said.out


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (POISSON[:2], "requests_per_second"),
        (("--requests-per-second", "3"), "requests_per_second"),
        (("--draft-tokens", "3"), "draft_tokens"),
        (("--draft-share", "0.1"), "draft_share"),
        (("--acceptance", "1.5"), "--acceptance"),
        ((*POISSON, "3", "--concurrency", "4"), "--concurrency"),
    ],
)
def test_what_does_not_belong_together_is_refused(flags, named) -> None:
    said = dse(*POINT, *flags)
    assert said.code == 2
    assert named in said.err
    assert "accepted" in said.err


POOLS = ("estimate", "--serving", "disaggregated", "--model", "deepseek-v3", "--chip", "h200_sxm",
    "--dp", 8, "--ep", 8, "--prefill-tp", 8, "--concurrency", 64)  # fmt: skip


def test_disaggregated_pools_add_up() -> None:
    answer = dse(*POOLS, "--prefill-workers", 2, "--json").json()
    prefill, decode = answer["prefill_pool"]["deployment"], answer["decode_pool"]["deployment"]
    assert (prefill["chips"], decode["chips"]) == (16, 8)
    rate = answer["output_tokens_per_s"]
    assert answer["output_tokens_per_s_per_chip"] == pytest.approx(rate / 24)
    paid = answer["usd_per_million_output_tokens_all_in"] * rate / 1e6 * 3600
    one = dse(
        "estimate", "--model", "deepseek-v3", "--chip", "h200_sxm", "--tp", 8, "--json"
    ).json()
    assert paid == pytest.approx(24 * one["chip_usd_per_hour"])
    said = dse(*POOLS)
    assert fits(said.out, 100)
    assert "transfer of the cache" in said.out


def test_each_pool_is_paid_at_its_own_price() -> None:
    same, other = (
        dse(*POOLS, *flags, "--json").json() for flags in ((), ("--prefill-chip", "b200_sxm"))
    )
    name = "usd_per_million_output_tokens"
    assert other[name] == pytest.approx(same[name], rel=0.02)
    assert other["usd_per_million_input_tokens"] != same["usd_per_million_input_tokens"]
    assert other["prefill_s"] < same["prefill_s"]


@pytest.mark.parametrize("flags", [("--replicas", 2), ("--requests-per-second", 2), ("--pp", 2)])
def test_pools_refuse_what_they_do_not_take(flags) -> None:
    said = dse(*POOLS, *flags)
    assert said.code == 2
    assert flags[0] in said.err
    said = dse("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--prefill-tp", 4)
    assert said.code == 2
    assert "--prefill-tp" in said.err


def test_a_space_of_arrivals_is_searched_and_its_points_reproduce(tmp_path: Path) -> None:
    (tmp_path / "arrivals.yaml").write_text(SPACE, encoding="utf-8")
    out = tmp_path / "out"
    said = dse("run", tmp_path / "arrivals.yaml", "--out", out, "--seed", 1)
    assert said.code == 0, said.err
    front = json.loads((out / "front.json").read_text(encoding="utf-8"))
    items = front["items"] if isinstance(front, dict) else front
    again = dse("estimate", out, 1, "--json").json()
    for name in ("ttft_p99_s", "tpot_s", "utilisation"):
        assert again[name] == pytest.approx(items[0]["metrics"][name], rel=1e-9)
    assert again["workload"]["draft_tokens"] == 3


@pytest.mark.parametrize(
    ("written", "instead", "named"),
    [
        ("requests_per_second: 4", "title: no rate", "requests_per_second"),
        ("serving: poisson", "serving: continuous", "requests_per_second"),
        ("acceptance: 0.7", "title: unknown", "draft_tokens"),
        ("concurrency: 1", "concurrency: [1, 8]", "concurrency"),
        ("prefix_hit_rate: 0.5", "prefix_hit_rate: 1.0", "prefix_hit_rate"),
    ],
)
def test_mistakes_of_a_space_are_named(tmp_path: Path, written, instead, named) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SPACE.replace(written, instead), encoding="utf-8")
    said = dse("spaces", "check", path)
    assert said.code == 2
    assert named in said.err
