"""`dse whatif --uncertain` as a person uses it."""

from __future__ import annotations

import csv
import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said, dse, fits, on_page, sheets, unmarked


def risk(*arguments: object) -> Said:
    """Draws and their seed are settings."""
    words = [str(word) for word in arguments]
    for name in ("draws", "seed", "price-interval"):
        if f"--{name}" in words:
            k = words.index(f"--{name}")
            words[k : k + 2] = ["--set", f"{name.replace('-', '_')}={words[k + 1]}"]
    return dse("whatif", *words, "--uncertain", "--detail")


TWO = ("chip: h100_sxm", "chip: [h100_sxm, h200_sxm]")


def test_the_answer_comes_first_and_fits_the_console(space: Callable[..., Path]) -> None:
    said = risk(space(*TWO), "--draws", 1000)
    assert said.code == 0, said.err
    assert said.out.split("\n- ")[1].startswith("Take h")
    assert "Measure next" in said.out
    assert "Standard error of a chance" in " ".join(said.out.split())
    assert fits(said.out, 100)


def test_the_document_says_the_same(space: Callable[..., Path]) -> None:
    found = risk(space(*TWO), "--draws", 1000, "--seed", 4, "--json").json()
    assert (found["draws"], found["seed"], len(found["choices"])) == (1000, 4, 2)
    assert sum(one["chance_first"] for one in found["choices"]) == pytest.approx(1.0)
    first = found["measure_next"][0]
    assert first["chance_wrong_after"] <= found["chance_wrong"]
    served = next(one for one in found["measure_next"] if one["what"] == "serving")
    assert any(line.startswith("vllm bench serve") for line in served["commands"])
    again = risk(space(*TWO), "--draws", 1000, "--seed", 4, "--json").json()
    assert again == found


def test_a_certain_price_is_no_measurement(space: Callable[..., Path]) -> None:
    options = ("--draws", 1000, "--price-interval", 0, "--json")
    found = risk(space(*TWO), *options).json()
    assert {one["what"] for one in found["measure_next"]} == {"serving"}
    assert all(one["kind"] == "given" for one in found["prices"])


def test_demand_pays_for_whole_instances(space: Callable[..., Path]) -> None:
    def nominal(*options: object) -> dict[str, float]:
        found = risk(space(*TWO), "--draws", 1000, "--json", *options).json()
        return {one["chip"]: one[found["objective"]] for one in found["choices"]}

    partly = nominal("--demand", "1280/s..2560/s")
    assert all(partly[chip] >= full for chip, full in nominal().items())


def test_a_shape_of_a_study_on_every_chip(tiny: Path) -> None:
    found = risk(tiny, "--point", "cheapest", "--draws", 1000, "--json").json()
    assert {one["chip"] for one in found["choices"]} == {"h100_sxm", "h200_sxm"}
    assert found["point"] == "cheapest"


def test_one_chip_has_no_rival(space: Callable[..., Path]) -> None:
    said = risk(space(), "--draws", 1000)
    assert said.code == 0, said.err
    assert "There is no other choice." in said.out


def test_the_files_say_what_the_document_says(space: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "risk"
    found = risk(space(*TWO), "--draws", 1000, "--json", "--out", out).json()
    written = json.loads((out / "whatif.json").read_text("utf-8"))
    assert {name: written[name] for name in found} == found
    rows = list(csv.DictReader((out / "whatif.csv").read_text("utf-8").splitlines()))
    assert [row["chip"] for row in rows] == [one["chip"] for one in found["choices"]]
    for row, one in zip(rows, found["choices"], strict=True):
        assert float(row["chance_first"]) == pytest.approx(one["chance_first"])
        high = f"{found['objective']}.high"
        assert float(row[high]) == pytest.approx(one[high])
    assert not any("{" in cell for row in rows for cell in row.values())
    page = unmarked((out / "whatif.html").read_text("utf-8"))
    advice = found["answer"][0].partition(": ")[2]
    assert html.escape(advice) in page
    assert f"Take {on_page(found['advised'])}, served on" in page
    assert 'id="choices"' in page
    assert {"answer", "choices", "measure_next", "prices"} <= set(sheets(out / "whatif.xlsx"))


def test_prices_of_ones_own_turn_the_choice(space: Callable[..., Path], tmp_path: Path) -> None:
    before = risk(space(*TWO), "--draws", 1000, "--json").json()
    other = next(one["chip"] for one in before["choices"] if one["chip"] != before["advised"])
    prices = tmp_path / "mine.csv"
    prices.write_text(
        "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
        f"{other},rental_3yr,0.05,us,2026-11,quote,\n",
        "utf-8",
    )
    after = risk(space(*TWO), "--draws", 1000, "--json", "--prices", prices).json()
    assert after["advised"] == other
    rests = [text for text in after["rests_on"] if text.startswith(f"{other}: price on basis")]
    assert "own price of mine.csv" in rests[0]
    assert after["prices_given"]["prices"] == [str(prices)]


def test_owned_chips_are_priced_by_their_parts(space: Callable[..., Path], tmp_path: Path) -> None:
    path = space(*TWO)
    path.write_text(path.read_text("utf-8").replace("rental_3yr", "owned_tco"), "utf-8")
    costs = tmp_path / "costs.yaml"
    costs.write_text("electricity: 0.30 USD/kWh\n", "utf-8")
    cheap, dear = (
        risk(path, "--draws", 1000, "--json", *given).json() for given in ((), ("--costs", costs))
    )
    for one, two in zip(cheap["price_parts"], dear["price_parts"], strict=True):
        parts = (
            {part["name"]: part["usd_per_chip_hour"] for part in x["parts"]} for x in (one, two)
        )
        before, after = parts
        assert sum(before.values()) == pytest.approx(one["usd_per_chip_hour"])
        assert after["electricity"] > before["electricity"], one["chip"]
    assert "costs of owning that were given: electricity" in dear["rests_on"]
    said = risk(path, "--draws", 1000)
    assert "An owned chip-hour by its parts" in said.out
    assert fits(said.out, 100)


def test_a_chip_that_is_only_announced_is_named(space: Callable[..., Path]) -> None:
    path = space("chip: h100_sxm", "chip: [h100_sxm, vr200_nvl72]")
    path.write_text(path.read_text("utf-8").replace("rental_3yr", "owned_tco"), "utf-8")
    found = risk(path, "--draws", 1000, "--json").json()
    assert "not on general sale: vr200_nvl72 (announced, ramping)" in found["rests_on"]
    warned = any("vr200_nvl72 is not on general sale" in text for text in found["answer"])
    assert warned == (found["advised"] == "vr200_nvl72")


def test_limits_that_no_chip_keeps(space: Callable[..., Path]) -> None:
    said = risk(space("ttft_s <= 2 s", "ttft_s <= 1 us"))
    assert said.code == 3
    assert "no chip" in said.err
