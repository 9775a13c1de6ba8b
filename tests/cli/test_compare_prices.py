"""`dse compare` of two prices of one space, of a space at two dates, and of two fleets."""

from __future__ import annotations

import csv
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse as dse_library
from dse.answer.answer import Answer
from dse.catalog import load_catalog
from dse.pareto import non_dominated
from dse.study.folder import FLEET, FRONT, STUDY, read_json
from tests.cli.conftest import Said, ask, dse, fits, on_page
from tests.cli.test_fleet import PLAN

HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
SPACE = """\
name: renting
title: An 8B model <on> rented chips
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous}
price_basis: on_demand
model: llama-3-8b
deployment:
  chip: [h100_sxm, h200_sxm, b200_sxm, b300_sxm]
  chips: 8
  tensor_parallel: [1, 2, 4, 8]
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: {from: 8, to: 512, powers_of: 2}
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
constraints: [ttft_s <= 2 s]
"""
COST = "usd_per_million_total_tokens"
FILES = {"compare.html", "compare.json", "compare.csv", "compare.xlsx", "compare.md"}


@pytest.fixture(scope="module")
def renting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("renting") / "renting.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return path


def study(space: Path, name: str, *more: object, **prices: float) -> Path:
    """A study of the space at prices of one's own."""
    file, out = space.parent / f"{name}.csv", space.parent / name
    rows = "".join(
        f"{chip},on_demand,{usd},quote,2026-11,mail of {name},\n" for chip, usd in prices.items()
    )
    file.write_text(HEADER + rows, encoding="utf-8")
    said = dse("run", space, "--out", out, "--prices", file, *more)
    assert said.code == 0, said.err
    return out


@pytest.fixture(scope="module")
def pair(renting: Path) -> tuple[Path, Path]:
    """H200 cheapest at first, then H100."""
    return (
        study(renting, "june", h100_sxm=3.0, h200_sxm=2.0, b200_sxm=9.0, b300_sxm=12.0),
        study(renting, "now", h100_sxm=1.2, h200_sxm=2.0, b200_sxm=4.5, b300_sxm=12.0),
    )


def text(said: Said) -> str:
    assert said.code == 0, said.err
    assert fits(said.out, 100)
    return " ".join(said.out.split())


def chosen(document: dict[str, Any], name: str = "cheapest") -> list[dict[str, Any]]:
    """A chosen design, before and after."""
    return [row for row in document["chosen"] if row["which"] == name]


def alike(document: dict[str, Any]) -> dict[str, bool]:
    return {row["what"]: row["alike"] for row in document["comparable"]}


def test_the_answer_comes_first(pair: tuple[Path, Path]) -> None:
    document = ask("compare", *pair)
    before, after = chosen(document)
    assert (before["chip"], after["chip"]) == ("h200_sxm", "h100_sxm")
    lead = document["answer"][0]
    assert lead.startswith("From june to now, the cheapest design moves from h200_sxm to h100_sxm")
    assert f"{1.0 - after[COST] / before[COST]:.1%} cheaper" in lead
    assert lead.endswith("prices of 2 of 4 chips changed.")
    lines = text(dse("compare", *pair))
    assert lines.index(lead) < lines.index("Prices, USD per chip-hour")
    assert "mail of june" in lines
    assert {row["chip"]: row["change"] for row in document["prices"]} == pytest.approx(
        {"h100_sxm": -0.6, "h200_sxm": 0.0, "b200_sxm": -0.5, "b300_sxm": 0.0}
    )


def test_a_design_kept_costs_what_an_estimate_says(pair: tuple[Path, Path]) -> None:
    document = ask("compare", *pair)
    items = {item["names"][0]: item for item in read_json(pair[0], FRONT)["items"] if item["names"]}
    deployment = items["cheapest"]["deployment"]
    found = dse_library.estimate(
        "llama-3-8b",
        deployment["chip"],
        tp=deployment["tensor_parallel"],
        **{key: deployment[key] for key in ("replicas", "concurrency", "weight_dtype", "kv_dtype")},
        prompt_tokens=1024,
        output_tokens=256,
        price_basis="on_demand",
        catalog=load_catalog(prices=pair[1].parent / "now.csv"),
    ).document
    assert document["kept"]["value"] == pytest.approx(found[COST], rel=1e-9)
    over = found[COST] / chosen(document)[1][COST] - 1.0
    assert document["kept"]["over"] == pytest.approx(over)
    assert over > 0.0


def test_what_left_is_beaten_at_the_other_prices(pair: tuple[Path, Path]) -> None:
    """But for what is within the resolution of a design there."""
    document = ask("compare", *pair)
    for status, other in (("left", pair[1]), ("entered", pair[0])):
        there = [item["metrics"] for item in read_json(other, FRONT)["items"]]
        rows = [row for row in document["designs"] if row["became"] == status]
        assert sorted(row["point"] for row in rows) == document[status]
        assert any(
            point[COST] <= row[f"{COST}.elsewhere"] and point["tpot_s"] <= row["tpot_s"]
            for row in rows
            for point in there
        )


def test_chips_count_every_design_of_both_fronts(pair: tuple[Path, Path]) -> None:
    document = ask("compare", *pair)
    keys = ("designs.before", "left", "entered")
    total = [sum(row[key] for row in document["chips"]) for key in keys]
    assert total == [document["front_a"], len(document["left"]), len(document["entered"])]
    for row in document["chips"]:
        assert row["designs.before"] - row["left"] + row["entered"] == row["designs.after"]


def test_there_and_back_is_the_inverse(pair: tuple[Path, Path]) -> None:
    there, back = (dse_library.compare(*way).document for way in (pair, pair[::-1]))
    assert (there["entered"], there["left"]) == (back["left"], back["entered"])
    assert there["ratio"] == pytest.approx(1.0 / back["ratio"])
    ways = [{row["chip"]: 1.0 + row["change"] for row in one["prices"]} for one in (there, back)]
    assert ways[0] == pytest.approx({chip: 1.0 / ratio for chip, ratio in ways[1].items()})


def test_a_price_that_scales_all_chips_moves_no_design(renting: Path) -> None:
    prices = {"h100_sxm": 3.0, "h200_sxm": 2.0, "b200_sxm": 9.0, "b300_sxm": 12.0}
    a = study(renting, "once", **prices)
    b = study(renting, "half", **{chip: usd / 2 for chip, usd in prices.items()})
    document = dse_library.compare(a, b).document
    assert document["entered"] == document["left"] == []
    assert all(row["same_design"] for row in document["chosen"])
    assert document["kept"]["over"] == pytest.approx(0.0, abs=1e-12)
    assert alike(document)["hardware data"]
    assert "50.0% cheaper" in document["answer"][0]
    assert document["answer"][-1].startswith("The front holds the same")


@settings(max_examples=25, deadline=None)
@given(ratios=st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.6, 4.0]), min_size=4, max_size=4))
def test_repriced_designs_leave_where_another_beats_them(
    pair: tuple[Path, Path], ratios: list[float]
) -> None:
    before, items = read_json(pair[0], STUDY), read_json(pair[0], FRONT)["items"]
    rows = before["price"]["rows"]
    ratio = {row["chip"]: r for row, r in zip(rows, ratios, strict=True)}
    for row in rows:
        row["usd_per_chip_hour"] *= ratio[row["chip"]]
    for item in items:
        item["metrics"][COST] *= ratio[item["deployment"]["chip"]]
    values = np.array([[item["metrics"][COST], item["metrics"]["tpot_s"]] for item in items])
    kept = non_dominated(values)
    left = [item["point"] for item, stays in zip(items, kept, strict=True) if not stays]
    with tempfile.TemporaryDirectory() as name:
        after = Path(name)
        (after / STUDY).write_text(json.dumps(before), encoding="utf-8")
        front = {"items": [item for item, stays in zip(items, kept, strict=True) if stays]}
        (after / FRONT).write_text(json.dumps(front), encoding="utf-8")
        document = dse_library.compare(pair[0], after).document
    assert alike(document)["hardware data"]
    assert (document["entered"], document["left"]) == ([], left)
    moved = {row["chip"] for row in document["prices"] if row["change"]}
    assert moved == {c for c, r in ratio.items() if r != 1.0}


def test_a_chip_that_gets_a_price_enters(renting: Path) -> None:
    a = study(renting, "early", "--as-of", "2026-06", h100_sxm=3.0, h200_sxm=2.0, b200_sxm=9.0)
    b = study(renting, "late", h100_sxm=3.0, h200_sxm=2.0, b200_sxm=9.0, b300_sxm=1.0)
    document = dse_library.compare(a, b).document
    (row,) = (row for row in document["prices"] if row["chip"] == "b300_sxm")
    ends = [row[f"usd_per_chip_hour.{end}"] for end in ("before", "after")]
    assert (ends, row["change"]) == ([None, 1.0], None)
    (space,) = [one for one in document["comparable"] if one["what"] == "space"]
    assert space["alike"]
    assert "b300_sxm" in space["note"]
    entered = [one for one in document["designs"] if one["became"] == "entered"]
    assert {one["chip"] for one in entered} == {"b300_sxm"}
    assert all(one.get(f"{COST}.elsewhere") is None for one in entered)


def test_what_differs_beside_prices_is_said(renting: Path, pair: tuple[Path, Path]) -> None:
    other = renting.parent / "longer.yaml"
    other.write_text(SPACE.replace("output_tokens: 256", "output_tokens: 512"), encoding="utf-8")
    document = ask("compare", pair[0], study(other, "longer", h100_sxm=1.0))
    assert document["kept"] is None
    assert all(f"{COST}.elsewhere" not in row for row in document["designs"])
    assert any("they serve different workloads" in sentence for sentence in document["answer"])


def test_older_chip_figures_are_not_taken_for_prices(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    study_json, front = read_json(pair[0], STUDY), read_json(pair[0], FRONT)
    study_json["sources"][0]["figure"] += " once"
    (older / STUDY).write_text(json.dumps(study_json), encoding="utf-8")
    (older / FRONT).write_text(json.dumps(front), encoding="utf-8")
    found = dse_library.compare(older, pair[1]).document
    assert not alike(found)["hardware data"]
    assert found["kept"] is None
    # The same figures, and a model that says otherwise of the same designs.
    study_json["sources"] = read_json(pair[0], STUDY)["sources"]
    for item in front["items"]:
        item["metrics"]["tpot_s"] *= 1.01
    (older / STUDY).write_text(json.dumps(study_json), encoding="utf-8")
    (older / FRONT).write_text(json.dumps(front), encoding="utf-8")
    assert not alike(dse_library.compare(older, pair[0]).document)["hardware data"]


def test_the_files_hold_the_same_answer(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = dse("compare", *pair, "--out", out)
    assert said.out.endswith(f"{out / 'compare.html'}\n")
    assert {path.name for path in out.iterdir()} == FILES
    printed = ask("compare", *pair)
    written = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert written["command"].startswith("dse ")
    assert {key: written[key] for key in printed} == printed
    with (out / "compare.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for status in ("entered", "left"):
        found = sorted(int(row["point"]) for row in rows if row["became"] == status)
        assert found == printed[status]
    assert len(rows) == printed["front_a"] + printed["front_b"]
    page = (out / "compare.html").read_text(encoding="utf-8")
    assert on_page("moves from h200_sxm to h100_sxm") in page
    assert "An 8B model &lt;on&gt; rented chips" in page
    assert "<on>" not in page
    assert "mail of june" in page
    with zipfile.ZipFile(out / "compare.xlsx") as book:
        names = book.read("xl/workbook.xml").decode()
    assert all(f'name="{name}"' in names for name in ("answer", "prices", "designs"))


def test_a_space_at_two_dates_in_one_command(renting: Path, tmp_path: Path) -> None:
    dates = ("--as-of", "2026-06", "--as-of", "2026-11")
    document = ask("compare", renting, *dates)
    assert document["as_of"] == {"a": "2026-06", "b": "2026-11"}
    assert document["a"] == f"{renting} as of 2026-06"
    assert document["answer"][0].startswith("From 2026-06 to 2026-11, the cheapest design")
    then, now = (
        {
            row["chip"]: row["usd_per_chip_hour"]
            for row in ask(f"catalog prices list --as-of {date} --basis on_demand")["paid"]
        }
        for date in dates[1::2]
    )
    chips = {
        row["chip"]: tuple(row[f"usd_per_chip_hour.{end}"] for end in ("before", "after"))
        for row in document["prices"]
        if row["change"] != 0.0
    }
    assert chips
    assert chips == {chip: (then.get(chip), now[chip]) for chip in chips}
    out = tmp_path / "kept"
    assert dse("compare", renting, *dates, "--out", out).code == 0
    assert {path.name for path in out.iterdir()} == {*FILES, "2026-06", "2026-11"}
    again = ask("compare", out / "2026-06", out / "2026-11")
    assert again["answer"] == document["answer"]


def test_finished_studies_have_their_own_prices(pair: tuple[Path, Path], tmp_path: Path) -> None:
    costs = tmp_path / "costs.yaml"
    costs.write_text("electricity: 0.30 USD/kWh\n", encoding="utf-8")
    said = dse("compare", *pair, "--costs", costs)
    assert said.code == 2
    assert "--costs does not go with two studies" in said.err


def fleet(folder: Path, rent: float, count: int, **other: object) -> Path:
    """A fleet.json of one rented chip, or of another that is bought."""
    usd = count * rent * 2190.0
    document = {
        "plan": "p",
        "title": "A <plan>",
        "answer": [],
        "feasible": True,
        "price_basis": "spot",
        "quarters": 1,
        "usd": usd,
        "usd_undiscounted": usd,
        "usd_per_million_tokens": usd / 1e5,
        "orders": [
            {
                "way": "rent",
                "chip": "h100_sxm",
                "offer": "h100_sxm, rent",
                "chips": count,
                "order_quarter": 1,
            }
        ],
        "chips": [{"quarter": 1, "chip": "h100_sxm", "rented_chips": count, "owned_chips": 0}],
        "prices": [
            {"offer": "h100_sxm, rent", "price_usd": rent, "per": "chip-hour"},
            {"offer": "mi300x, buy", "price_usd": 15e3, "per": "chip"},
        ],
    }
    folder.mkdir()
    (folder / FLEET).write_text(json.dumps(document | other), encoding="utf-8")
    return folder


def test_two_fleets(tmp_path: Path) -> None:
    a, b = fleet(tmp_path / "june", 3.0, 16), fleet(tmp_path / "now", 2.4, 24)
    document = ask("compare", a, b)
    lead = document["answer"][0]
    assert "order 24 h100_sxm (rent, quarter 1) instead of 16 h100_sxm (rent, quarter 1)" in lead
    assert "20.0% more ($126,144 over 1 quarters, before $105,120)" in lead
    assert document["ratio"] == pytest.approx(1.2)
    (row,) = [row for row in document["prices"] if row["change"]]
    assert (row["offer"], row["per"]) == ("h100_sxm, rent", "chip-hour")
    assert row["change"] == pytest.approx(-0.2)
    out = tmp_path / "out"
    assert dse("compare", a, b, "--out", out).code == 0
    assert {path.name for path in out.iterdir()} == FILES
    page = (out / "compare.html").read_text(encoding="utf-8")
    assert "A &lt;plan&gt;" in page


def test_two_answers_of_the_library_are_two_fleets(tmp_path: Path) -> None:
    folders = fleet(tmp_path / "june", 3.0, 16), fleet(tmp_path / "now", 2.4, 24, plan="q")
    fleets = [Answer("fleet", one.name, "", document=read_json(one, FLEET)) for one in folders]
    answer, same = dse_library.compare(*fleets), dse_library.compare(*folders)
    assert answer.document["names"] == {"a": "p", "b": "q"}
    for key in ("ratio", "orders", "chips", "prices"):
        assert answer.document[key] == same.document[key]


def test_two_plans_are_solved_and_compared(tmp_path: Path) -> None:
    """Plans go by name or by path, and a fleet that was written stands beside a plan."""
    shipped = ("dense-70b-billion-tokens", "a100-owner-grows")
    assert "does not go with two plans" in dse("compare", *shipped, "--law", "abnar").err
    a, b = tmp_path / "small.yaml", tmp_path / "large.yaml"
    a.write_text(PLAN, encoding="utf-8")
    b.write_text(PLAN.replace("60", "200").replace("name: small", "name: large"), "utf-8")
    document = ask("compare", a, b, "--out", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert document["names"] == {"a": "small", "b": "large"}
    alone = [ask("fleet", one, "--out", tmp_path / one.stem) for one in (a, b)]
    assert [document[f"usd_{side}"] for side in "ab"] == [one["usd"] for one in alone]
    assert document["ratio"] > 1.0
    mixed = ask("compare", tmp_path / "small", b)
    assert mixed["ratio"] == document["ratio"]
    assert "--law does not go with two plans" in dse("compare", a, b, "--law", "abnar").err


def test_fleets_of_other_plans_are_said(tmp_path: Path) -> None:
    a = fleet(tmp_path / "a", 3.0, 16)
    b = fleet(tmp_path / "b", 3.0, 16, plan="q", usd_per_million_tokens=0.5)
    answer = " ".join(ask("compare", a, b)["answer"])
    assert "the orders stay" in answer
    assert "Not by prices alone: plan: p and q." in answer
    assert "Not by prices alone: demand" in answer
    nothing = dict.fromkeys(("usd", "usd_undiscounted", "usd_per_million_tokens"))
    empty = {"feasible": False, "orders": [], "chips": [], "prices": []}
    c = fleet(tmp_path / "c", 3.0, 16, **nothing, **empty)
    assert "nothing keeps the plan of c" in text(dse("compare", a, c))


def test_a_fleet_and_a_study_do_not_compare(tmp_path: Path, tiny: Path) -> None:
    said = dse("compare", fleet(tmp_path / "a", 3.0, 16), tiny)
    assert said.code == 2
    assert "is not a fleet" in said.err


def test_a_damaged_fleet_is_said(tmp_path: Path) -> None:
    a, b = fleet(tmp_path / "a", 3.0, 16), fleet(tmp_path / "b", 3.0, 16, orders=[{}])
    said = dse("compare", a, b)
    assert said.code == 4
    assert "orders[0] lacks 'way'" in said.err


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("price", {"rows": [{"chip": "h100_sxm"}]}, "price.rows[0] lacks 'usd_per_chip_hour'"),
        ("sources", [3], "sources[0] is no object"),
        ("own_prices", "june", "own_prices is 'june'"),
    ],
)
def test_a_damaged_study_is_said(
    pair: tuple[Path, Path], tmp_path: Path, key: str, value: object, says: str
) -> None:
    (tmp_path / STUDY).write_text(json.dumps(read_json(pair[0], STUDY) | {key: value}))
    (tmp_path / FRONT).write_text(json.dumps(read_json(pair[0], FRONT)))
    said = dse("compare", tmp_path, pair[1])
    assert said.code == 4
    assert says in said.err
