"""dse catalog racks list, and --domain: as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dse.physics.racks import BOUNDS
from dse.schema.system import shipped_racks
from tests.cli.conftest import dse
from tests.unit.test_racks import OWN, SPACE

POINT = ("--model", "deepseek-v3", "--chip", "h100_sxm", "--tp", 8, "--dp", 16, "--ep", 128)


def test_the_list_names_every_rack_and_what_stops_it() -> None:
    said = dse("catalog", "racks", "list")
    assert said.code == 0
    rows = dse("catalog", "racks", "list", "--json").json()
    assert [row["id"] for row in rows] == list(shipped_racks())
    for row in rows:
        assert row["id"] in said.out
        assert row["bound"] in BOUNDS
        assert row["largest"] >= row["domain"]


@pytest.mark.parametrize("rack", shipped_racks())
def test_a_rack_says_what_bounds_its_domain_within_100_columns(rack: str) -> None:
    said = dse("catalog", "racks", "show", rack)
    assert said.code == 0
    bounds, _, _ = said.out.partition("Figures")  # sources are as long as they are
    assert max(map(len, bounds.splitlines())) <= 100
    answer = dse("catalog", "racks", "show", rack, "--json").json()
    assert f"it ends at {answer['largest']:,} chips, stopped by {answer['bound']}" in said.out
    assert [row["rack_bound"] for row in answer["bounds"]] == list(BOUNDS)
    assert any(row["next_breaks"] for row in answer["bounds"])
    assert all(figure["source"] and figure["date"] for figure in answer["figures"])
    assert "112 kW" not in said.out
    assert rack != "gb200_nvl72" or all(
        word in said.out for word in ("111.6 kW", "assumed", "derived", "sg.news.yahoo.com")
    )


@pytest.mark.parametrize(
    ("rack", "words"),
    [
        ("gb200_nvl27", ("unknown rack", "did you mean gb200_nvl72?")),
        ("none.yaml", ("none.yaml", "no such file")),
    ],
)
def test_bad_input_is_one_line(rack: str, words: tuple[str, ...]) -> None:
    said = dse("catalog", "racks", "show", rack)
    assert said.code == 2
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    for word in words:
        assert word in said.err


def test_a_rack_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "my_rack.yaml"
    path.write_text(OWN, encoding="utf-8")
    assert "27 of 27 figures are assumed" in dse("catalog", "racks", "show", path).out
    path.write_text(OWN.replace("power_feed: 40 kW", "power_feed: 40 kg"), encoding="utf-8")
    said = dse("catalog", "racks", "show", path)
    assert said.code == 2
    assert "my_rack.yaml:9: power_feed: read '40 kg'" in said.err


def test_an_estimate_in_a_hypothetical_domain() -> None:
    answer = dse("estimate", *POINT, "--set", "scale_up_domain=128", "--json").json()
    plain = dse("estimate", *POINT, "--json").json()
    assert answer["deployment"]["scale_up_domain"] == 128
    assert "scale_up_domain" not in plain["deployment"]
    assert answer["tpot_s"] < plain["tpot_s"]
    assert answer["feasible"]
    assert any("128 chips is hypothetical: hgx_h100 has 8" in text for text in answer["assumed"])
    assert any("no rack was named" in text for text in answer["assumed"])
    held = dse(
        "estimate",
        *POINT,
        "--set",
        "scale_up_domain=128",
        "--set",
        "rack=hypothetical_copper",
        "--json",
    ).json()
    assert [row["constraint"] for row in held["violations"]] == ["rack_cable_reach"]
    text = dse(
        "estimate", *POINT, "--set", "scale_up_domain=128", "--set", "rack=hypothetical_copper"
    ).out
    assert "hypothetical domain 128" in text
    assert "breaks rack_cable_reach" in text


def test_explain_takes_the_domain_too() -> None:
    said = dse("estimate", "--detail", *POINT, "--set", "scale_up_domain=64")
    assert said.code == 0
    assert "hypothetical domain 64" in said.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--set", "rack=gb200_nvl72"), "--set rack: a rack without a domain"),
        (
            ("--set", "scale_up_domain=16", "--chip", "mi300x"),
            "mi300x has full_mesh scale-up links",
        ),
        (("--set", "scale_up_domain=0"), "--set scale_up_domain: read 0"),
    ],
)
def test_a_domain_that_cannot_be(flags: tuple, words: str) -> None:
    said = dse("estimate", *POINT, *flags)
    assert said.code == 2
    assert words in said.err


def test_a_study_of_ones_own_rack(tmp_path: Path) -> None:
    (tmp_path / "my_rack.yaml").write_text(
        OWN.replace("racks_per_domain: 2", "racks_per_domain: 1"), encoding="utf-8"
    )
    text = SPACE.replace("RACK", "rack: my_rack.yaml").replace("CHIP", "h200_sxm")
    text = text.replace("DOMAIN", "  data_parallel: [1, 2, 8]\n  scale_up_domain: [8, 16, 32, 64]")
    (tmp_path / "space.yaml").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    said = dse("run", tmp_path / "space.yaml", "--out", out)
    assert said.code == 0, said.err
    assert "The scale-up domain is hypothetical" in said.out
    study = json.loads((out / "study.json").read_text(encoding="utf-8"))
    (row,) = study["rack"]["chips"]
    assert f"stopped by {row['bound']}" in said.out
    removed = {t["constraint"]: t["violated"] for t in study["constraint_tallies"]}
    assert removed[row["bound"]] > 0
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "hypothetical domain" in report
    assert (out / "front.csv").read_text(encoding="utf-8").splitlines()[0].count("scale_up_domain")
    items = json.loads((out / "front.json").read_text(encoding="utf-8"))["items"]
    again = dse("estimate", out, items[0]["point"], "--json").json()
    assert again["tpot_s"] == items[0]["metrics"]["tpot_s"]
    assert again["deployment"] == items[0]["deployment"]


def test_pools_of_one_hypothetical_domain_need_no_network() -> None:
    pools = ("--model", "deepseek-v3", "--chip", "h200_sxm", "--serving", "disaggregated")
    pools += ("--dp", 8, "--ep", 8, "--set", "prefill_tp=8", "--set", "prefill_workers=2")
    plain = dse("estimate", *pools, "--json").json()
    joined = dse("estimate", *pools, "--set", "scale_up_domain=64", "--json").json()
    assert joined["transfer_s"] < plain["transfer_s"]
    assert joined["tpot_s"] == pytest.approx(plain["tpot_s"], rel=0.01)


def test_why_not_takes_the_rack_of_the_study(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert dse("run", "rack-domain", "--out", out).code == 0
    flags = (*POINT, "--replicas", 2, "--weight-dtype", "fp8", "--kv-dtype", "fp8")
    said = dse(
        "estimate", "--why-not", out, *flags, "--concurrency", 1024, "--set", "scale_up_domain=128"
    )
    assert said.code == 0, said.err
    assert "breaks rack_cable_reach" in said.out
