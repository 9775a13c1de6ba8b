"""`dse whatif`: what a person and a program see, files, and bad input."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import ask, dse, fits

TWO = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--chip", "mi300x")
MODEL = (*TWO, "--set", "concurrency=16")
OWN = ("price_basis: rental_3yr", "price_basis: owned_tco")


def settings(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--set", text)]


def test_without_a_question_the_chips_of_a_model_are_ranked():
    """A study and chips alike: the cheapest first, each with its price at the others' cost."""
    for asked in (
        ("deploy-llama-3-70b",),
        ("--model", "llama-3-8b", "--chip", "h200_sxm", "--chip", "h100_sxm"),
    ):
        found = ask("whatif", *asked)
        chips = found["break_even"]
        assert len(chips) > 1
        assert chips[0]["chip"] == found["winner"]["chip"]
        costs = [row["usd_per_million_total_tokens"] for row in chips]
        assert costs == sorted(costs)


def test_the_answer_comes_first_and_fits(space: Callable[..., Path]):
    said = dse(
        "whatif",
        space(),
        "--set",
        "chip.h100_sxm.price=+25%",
        "--sweep",
        "workload.prompt_tokens=1k..2k:3",
        "--detail",
    )
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    first, second = said.out.split("\n- ")[1:3]
    assert "is cheapest: $" in " ".join(first.split())
    assert "With h100_sxm price +25%, it stays first" in " ".join(second.split())
    assert "25.0% dearer" in " ".join(second.split())
    assert "All 18 points of the space were evaluated" in said.out


def test_that_the_cheapest_chip_cannot_be_priced_as_owned_is_said():
    said = dse(
        "whatif --model llama-3-70b --chip mi355x --chip b200_sxm --set tp=1 --set "
        "weight_dtype=fp8 --set kv_dtype=fp8 --break-even"
    )
    assert "No price or power to own it at: mi355x" in " ".join(said.out.split())
    assert "Owning b200_sxm beats renting it" in " ".join(said.out.split())


def test_files_are_written_and_names_escaped(space: Callable[..., Path], tmp_path: Path):
    file = space("title: A dense model on one server", "title: <script>alert(1)</script>")
    out = tmp_path / "page"
    said = dse("whatif", file, "--set", "chip.h100_sxm.price=2x", "--sensitivities", "--out", out)
    assert said.code == 2  # one question at a time
    scenario = tmp_path / "s.yaml"
    scenario.write_text("scenarios: {'<b>dear</b>': {chip.all.price: 2x}}\n")
    said = dse(
        "whatif",
        file,
        "--scenario",
        scenario,
        "--sensitivities",
        "--break-even",
        "--sweep",
        "chip.h100_sxm.price=0.5x..2x:3",
        "--out",
        out,
    )
    assert said.code == 0, said.err
    assert sorted(path.name for path in out.iterdir()) == [
        "whatif.csv",
        "whatif.html",
        "whatif.json",
        "whatif.md",
        "whatif.xlsx",
    ]
    page = (out / "whatif.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<b>dear" not in page
    for figure in ("front", "sweep-chip-h100_sxm-price", "tornado"):
        assert f'id="{figure}"' in page
    assert "<b>" not in (out / "whatif.md").read_text(encoding="utf-8")
    document = json.loads((out / "whatif.json").read_text())
    assert document["command"].startswith("dse ")
    with (out / "whatif.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    told = {row["input"]: row["elasticity"] for row in document["sensitivities"]}
    mine = [row for row in rows if row["part"] == "sensitivities"]
    named = {row["row"]: row["value"] for row in mine if row["quantity"] == "input"}
    found = {named[r["row"]]: float(r["value"]) for r in mine if r["quantity"] == "elasticity"}
    assert found == pytest.approx({name: told[name] for name in found}, rel=1e-8)
    asked = {"scenarios", "sweep", "sensitivities", "shadow_prices", "owning", "inputs"}
    assert asked <= {row["part"] for row in rows}
    book = zipfile.ZipFile(out / "whatif.xlsx").read("xl/workbook.xml").decode()
    assert all(f'name="{name}"' in book for name in {"answer", "data", *asked})


def test_a_study_folder_is_read_again(tiny: Path):
    document = ask("whatif", tiny, "--set", "chip.h200_sxm.price=0.5x")
    study = json.loads((tiny / "study.json").read_text())
    assert document["front_size"] == study["exact_front_size"]
    assert document["scenarios"][1]["chip"] == "h200_sxm"


def test_an_owned_chip_has_costs_that_move_its_price(space: Callable[..., Path]):
    said = ask("whatif", space(*OWN), "--set", "costs.utilisation=0.5x")
    assert said["scenarios"][1]["change"] > 0.9
    said = ask("whatif", space(*OWN), "--set", "costs.electricity=+50%")
    assert 0.0 < said["scenarios"][1]["change"] < 0.1
    said = dse("whatif", space(*OWN), "--sensitivities", "--break-even", "--detail")
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    for words in ("costs.life", "An owned chip-hour by its parts", "electricity 0.0869"):
        assert words in said.out
    said = dse("whatif", space(), "--set", "costs.electricity=+50%")
    assert (said.code, said.out) == (2, "")
    assert "costs.electricity: costs of owning count on the price basis owned_tco only" in said.err


def test_break_even_takes_costs_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("chips: {h100_sxm: {server_price: 20000 USD}}\n", encoding="utf-8")
    asked = ("whatif", *MODEL, "--break-even", "--json")
    shipped, mine = (
        next(row for row in dse(*asked, *more).json()["owning"] if row["chip"] == "h100_sxm")
        for more in ((), ("--costs", file))
    )
    assert mine["owned_at_full_use"] < shipped["owned_at_full_use"]
    assert mine["owning_wins_from"] < shipped["owning_wins_from"]
    said = dse(*asked[:-1], "--detail", "--costs", file).out
    assert f"] {file}" in " ".join(said.split())


def test_a_changed_space_is_refused(space: Callable[..., Path], tmp_path: Path):
    file, out = space(), tmp_path / "study"
    assert dse("run", file, "--out", out).code == 0
    space("concurrency: [1, 16, 64]", "concurrency: [1, 16]")
    said = dse("whatif", out, "--sensitivities")
    assert said.code == 2
    assert f"{file} has changed since {out} was made from it" in said.err
    file.unlink()
    for kind in ((), ("--uncertain",)):
        said = dse("whatif", out, *kind)
        assert said.code == 2
        assert f"{out} was made from the space file {file}, which is not here" in said.err


def test_a_demand_is_bought_and_said_in_text_json_and_page(
    space: Callable[..., Path], tmp_path: Path
):
    out = tmp_path / "page"
    demand = ("--demand", "2B/day", "--peak-over-average", "2.5")
    said = dse("whatif", space(), *demand, "--sweep", "demand=0.5x..4x:3", "--out", out)
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    text = " ".join(said.out.split())
    document = json.loads((out / "whatif.json").read_text())
    load = document["winner"]["at_average_load"]
    held, chips = load["deployments"], load["chips"]
    assert f"takes {held} deployments" in text
    assert f"{chips:,.0f} chips in total" in text
    paid = load["usd_per_hour"] / (2e9 / 24) * 1e6
    assert document["winner"]["usd_per_million_total_tokens"] == pytest.approx(paid)
    assert paid > load["busy_usd_per_million_total_tokens"]
    assert f"${load['usd_per_year']:,.0f} a year" in text
    page = (out / "whatif.html").read_text(encoding="utf-8")
    assert 'id="sweep-demand"' in page
    assert "takes " in (out / "whatif.md").read_text(encoding="utf-8")


def test_prices_costs_and_dates_of_the_command(space: Callable[..., Path], tmp_path: Path):
    prices, costs = tmp_path / "mine.csv", tmp_path / "mine.yaml"
    prices.write_text(
        "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
        "h100_sxm,rental_3yr,0.5,me,2026-11-01,a mail,\n"
    )
    said = dse("whatif", space(), "--prices", prices, "--detail")
    assert "own price of mine.csv" in " ".join(said.out.split())
    assert "price of h100_sxm: $0.50" in said.out
    costs.write_text("electricity: 0.5 USD/kWh\n")
    said = dse("whatif", *MODEL, "--price-basis", "owned_tco", "--costs", costs, "--detail")
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    text = " ".join(said.out.split())
    assert "An owned chip-hour by its parts" in text
    assert "electricity 0.5 USD/kWh (given" in text


def test_a_study_is_asked_at_the_prices_that_it_was_made_with(
    space: Callable[..., Path], tmp_path: Path
):
    """Those of --prices and --as-of are in study.json; the flags of a what-if come before them."""
    out, prices = tmp_path / "study", tmp_path / "mine.csv"
    head = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
    prices.write_text(f"{head}h100_sxm,rental_3yr,0.5,me,2026-11-01,a mail,\n")
    assert dse("run", space(), "--out", out, "--prices", prices, "--as-of", "2026-06").code == 0
    front = json.loads((out / "front.json").read_text())["items"]
    cheapest = min(item["metrics"]["usd_per_million_total_tokens"] for item in front)
    document = ask("whatif", out)
    winner = document["winner"]["usd_per_million_total_tokens"]
    assert winner == pytest.approx(cheapest, rel=1e-8)
    assert not any("have changed" in note for note in document["notes"])
    assert any("as they were known in 2026-06" in text for text in document["assumed"])
    prices.with_name("other.csv").write_text(
        f"{head}h100_sxm,rental_3yr,1.0,me,2026-11-01,a mail,\n"
    )
    other = ask("whatif", out, "--prices", tmp_path / "other.csv")
    dear = other["winner"]["usd_per_million_total_tokens"]
    assert dear == pytest.approx(2.0 * cheapest, rel=1e-8)
    assert any("as this command gives them" in note for note in other["notes"])


def test_a_sweep_says_where_nothing_is_left():
    said = dse(
        "whatif --model llama-3-8b --chip h100_sxm --set tp=1 --set weight_dtype=fp8 --set "
        "requests_per_second=4 --detail --sweep demand=1..12:3"
    )
    assert said.code == 0, said.err
    text = " ".join(said.out.split())
    assert "gives way to nothing feasible between 6.5 requests/s and 12 requests/s" in text
    assert "The one point of the space was evaluated" in text


def test_nothing_feasible_is_exit_code_3():
    said = dse("whatif", *MODEL, "--limit", "tpot_s <= 1 us")
    assert said.code == 3
    assert "the nearest one breaks tpot_s <= 1 us" in said.err


def test_a_limit_takes_the_place_of_the_usual_one_on_its_metric_alone() -> None:
    said = ask("whatif", *MODEL, "--limit", "tpot_s <= 30 ms", "--sensitivities")
    assert sorted(said["limits"]) == ["tpot_s <= 30 ms", "ttft_s <= 2 s"]


def test_a_few_chips_in_whole_servers_cost_what_dse_fleet_says(tmp_path: Path) -> None:
    """A billion tokens a day of Llama 3 70B at a peak of 2.5: eight H100, where single chips are
    four MI355X."""
    said = ask(
        "whatif deploy-llama-3-70b --demand 1B/day --peak-over-average 2.5 --set",
        "whole_servers=true",
    )
    load = said["winner"]["at_average_load"]
    assert (said["winner"]["chip"], load["chips"]) == ("h100_sxm", 8)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    fleet = ask("fleet", plan)
    hours = 8760 / 4
    assert fleet["by_quarter"][0]["usd"] / hours == pytest.approx(load["usd_per_hour"])
    assert fleet["instances"][0]["on"] == "2 x h100_sxm"
    assert any("in whole servers" in note and "8 h100_sxm" in note for note in said["notes"])
    assert dse("whatif", "deploy-llama-3-70b", *settings("whole_servers=true")).code == 2


PLAN = """\
name: one
title: A billion tokens a day
quarters: 1
price_basis: rental_3yr
demand:
  - {name: all, model: llama-3-70b, tokens_per_day: 1B, prompt_tokens: 2048, output_tokens: 512,
     ttft: 2 s, tpot: 50 ms, peak_over_average: 2.5, weight_dtype: [fp8], kv_dtype: [fp8]}
chips:
  - chip: h100_sxm
  - chip: h200_sxm
  - chip: mi300x
  - chip: mi355x
"""
