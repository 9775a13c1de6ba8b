"""`dse scale`: what a person and a program see, files, and bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import ask, dse, fits

DENSE = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--chips-up-to", "16")
SPARSE = ("--model", "deepseek-v3", "--chip", "gb200_nvl72", "--chips-up-to", "144")


def test_the_answer_comes_first_and_fits():
    said = dse("scale", *DENSE)
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    assert len(said.out.splitlines()) <= 40
    first = " ".join(said.out.split("\n- ")[1].split())
    assert "one user gains up to" in first
    assert "ms per output token, 80% interval" in first
    assert "expert" not in said.out


def test_detail_has_every_table_and_what_it_rests_on():
    said = dse("scale", *DENSE, "--detail")
    assert "Largest useful collective by jitter" in said.out
    assert "jitter is an input" in " ".join(said.out.split("Rests on:")[1].split())


def test_json_holds_every_question():
    document = ask("scale", *SPARSE, "--against", "b200_sxm")
    assert [entry["chip"] for entry in document["chips"]] == ["gb200_nvl72", "b200_sxm"]
    assert document["chips"][0]["scale_up_chips"] == 72
    sizes = [row for row in document["sizes"] if row["chip"] == "gb200_nvl72"]
    assert {row["chips"] for row in sizes} >= {1, 2, 4, 8, 36, 64, 72, 128, 144}
    assert sizes[0]["tpot_s"] is None
    assert "memory" in sizes[0]["reason"]
    rack = [row for row in document["experts"] if row["chip"] == "gb200_nvl72"]
    by_degree = {row["expert_parallel"]: row for row in rack}
    assert by_degree[72]["slowdown"] == 1.0
    assert by_degree[144]["slowdown"] > 1.5
    assert any("jitter is an input" in text for text in document["assumed"])
    assert any("Experts outgrow the domain" in text for text in document["answer"])


def test_separate_pools_say_from_where_they_are_better():
    document = ask("scale", *SPARSE, "--disaggregated")
    better = min(row["chips"] for row in document["pools"] if row["of_best"] > 1.0)
    assert any(f"better from {better} chips on" in text for text in document["answer"])
    assert all(row["used_chips"] <= row["chips"] for row in document["pools"])


def test_files_are_written(tmp_path: Path):
    document = ask("scale", *DENSE, "--out", tmp_path / "scale")
    assert sorted(path.name for path in (tmp_path / "scale").iterdir()) == [
        "scale.csv",
        "scale.html",
        "scale.json",
        "scale.md",
        "scale.xlsx",
    ]
    written = json.loads((tmp_path / "scale" / "scale.json").read_text())
    assert written.pop("command").startswith("dse ")
    assert written == document
    with (tmp_path / "scale" / "scale.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["chips"] for line in lines] == ["1", "2", "4", "8", "16"]
    row = document["sizes"][2]
    assert float(lines[2]["tpot_s"]) == pytest.approx(row["tpot_s"], rel=1e-8)
    page = (tmp_path / "scale" / "scale.html").read_text()
    assert "Content-Security-Policy" in page
    assert 'id="latency"' in page
    assert 'id="table-experts"' not in page
    assert "One instance by its size" in page


def test_a_chip_without_a_price_has_latencies_and_no_costs(tmp_path: Path):
    chip = ("--chip", "h100_sxm", "--set", "price_basis=flex_start")
    priced = ask("scale", *DENSE)
    found = ask("scale", *DENSE[:2], *DENSE[4:], *chip, "--out", tmp_path)
    for row, other in zip(priced["sizes"], found["sizes"], strict=True):
        assert other["tpot_s"] == row["tpot_s"]
        assert other["usd_per_million_total_tokens.at_limits"] is None
    assert any("no price on basis flex_start" in text for text in found["assumed"])
    assert "$" not in found["answer"][0]
    assert 'id="cost"' not in (tmp_path / "scale.html").read_text()


def test_a_model_that_never_fits_ends_with_3():
    said = dse("scale", "--model", "deepseek-v3", "--chip", "l4", "--chips-up-to", "4")
    assert said.code == 3
    assert "memory: at best a chip needs" in said.err
    assert said.out == ""


def test_limits_that_nothing_meets_are_an_answer(tmp_path: Path):
    document = ask("scale", *DENSE, "--tpot-limit", "10us", "--out", tmp_path)
    assert document["chips"][0]["replica_chips"] is None
    assert "no instance keeps the limits" in document["answer"][0]
    assert "ms a token at best" in document["sizes"][0]["reason"]
    page = (tmp_path / "scale.html").read_text()
    assert 'id="cost"' not in page
    assert 'id="latency"' in page


def test_a_first_token_that_comes_too_late_is_the_reason():
    document = ask("scale", *DENSE, "--ttft-limit", "1 ms")
    reason = document["sizes"][-1]["reason"]
    assert "s for its first token at best" in reason
    assert reason in document["answer"][1]


def test_one_chip_is_no_group():
    said = dse("scale", *DENSE[:4], "--chips-up-to", 1)
    assert said.code == 0, said.err
    assert "the only size looked at that can" in said.out
    assert "1 chips" not in said.out


def test_overlapped_network_is_never_slower():
    plain, hidden = (ask("scale", *DENSE, "--set", f"network_overlap={share}") for share in (0, 1))
    assert hidden["workload"]["network_overlap"] == 1.0
    assert plain["workload"]["network_overlap"] == 0.0  # not what the backend does
    for before, after in zip(plain["sizes"], hidden["sizes"], strict=True):
        assert after["tpot_s"] <= before["tpot_s"]
