"""Energy of `dse estimate`: the table of --detail, tokens per joule by batch, power caps."""

from __future__ import annotations

import pytest

from tests.cli.conftest import dse

POINT = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--concurrency", 32)


def test_explain_prints_where_the_joules_go() -> None:
    said = dse("estimate", "--detail", *POINT)
    assert said.code == 0
    for level in ("arithmetic", "on chip", "memory", "idle", "total"):
        assert f"\n{level} " in said.out
    assert "of it moves data" in said.out
    assert "142 W idle, at most 700 W" in " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 100


def test_explain_as_json_adds_up() -> None:
    document = dse("estimate", "--detail", *POINT, "--json").json()
    rows = document["energy"]["joules_per_output_token"]
    assert [row["level"] for row in rows] == [
        "arithmetic", "on_chip", "memory", "links", "network", "idle",
    ]  # fmt: skip
    joules = sum(row["joules"] for row in rows)
    assert joules == pytest.approx(document["joules_per_output_token"], rel=1e-9)
    for row in rows:
        assert row["prefill"] + row["decode"] == pytest.approx(row["joules"], rel=1e-9)
    assert document["energy"]["clock"] == {"prefill": None, "decode": None}
    assert document["watts_per_chip"] < 700
    known = document["provenance"]
    assert known["watts_per_chip"] == "assumed"
    low, high = document["intervals"]["joules_per_output_token"]
    assert low < document["joules_per_output_token"] < high


def test_a_power_cap_slows_and_is_said() -> None:
    full = dse("estimate", *POINT, "--json").json()
    capped = dse("estimate", *POINT, "--set", "power_cap=400W", "--json").json()
    assert capped["power_cap_w"] == 400
    assert capped["watts_per_chip"] <= 400
    assert capped["prefill_s"] > full["prefill_s"]
    assert capped["tokens_per_joule"] > full["tokens_per_joule"]
    assert any("power cap" in sentence for sentence in capped["assumed"])
    said = dse("estimate", "--detail", *POINT, "--set", "power_cap=400W")
    assert "each at 400 W at most" in said.out
    assert "The cap leaves" in said.out


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ("900W", "its rated power is 700 W"),
        ("120 W", "its idle power is 142 W"),
        ("500", "unit is missing"),
        ("500 GB", "a size, not a power"),
    ],
)
def test_a_cap_that_cannot_be(cap: str, words: str) -> None:
    said = dse("estimate", *POINT, "--set", f"power_cap={cap}")
    assert said.code == 2
    assert "--set power_cap" in said.err
    assert words in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_a_chip_without_a_rated_power() -> None:
    point = ("--model", "llama-3-8b", "--chip", "tpu_v6e", "--tp", 4)
    answer = dse("estimate", *point, "--json").json()
    assert answer["joules_per_output_token"] is None
    assert answer["watts_per_chip"] is None
    assert "no power figure" in dse("estimate", "--detail", *point).out
    said = dse("estimate", *point, "--set", "power_cap=200W")
    assert said.code == 2
    assert "has no tdp" in said.err


def test_disaggregated_pools_have_energy() -> None:
    answer = dse(
        "estimate", "--serving", "disaggregated", "--model", "llama-3-8b", "--chip", "h100_sxm",
        "--set", "prefill_workers=2", "--set", "decode_workers=2", "--concurrency", 64, "--json",
    ).json()  # fmt: skip
    assert answer["provenance"]["watts_per_chip"] == "assumed"
    drawn = answer["watts_per_chip"] * 4 / answer["output_tokens_per_s"]
    assert drawn == pytest.approx(answer["joules_per_output_token"], rel=0.02)
    assert 142 < answer["watts_per_chip"] < 700
