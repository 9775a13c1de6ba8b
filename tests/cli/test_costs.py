"""Prices and costs on the command line: catalog prices list, --prices, --as-of, --costs, load."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from dse.answer.numbers import dollars
from dse.data import hardware_dir
from dse.study.folder import FRONT, FRONT_TABLE, read_json
from tests.cli.conftest import ask, dse, fits
from tests.unit.test_rediscovery import TWO_CHIPS

POINT = ["--model", "llama-3-8b", "--chip", "h100_sxm", "--concurrency", "32"]
HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("prices") / "mine.csv"
    path.write_text(f"{HEADER}h100_sxm,rental_3yr,2.6,quote,2026-11,mail,\n", encoding="utf-8")
    return str(path)


def test_prices_of_a_chip_with_dates_and_sources(tmp_path: Path) -> None:
    result = dse("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand")
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(len(line) for line in lines if "://" not in line) <= 100
    assert "[1] " in result.out
    assert "not counted" in result.out
    found = ask("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand")
    assert all(row["source"] and row["date"] for row in found["prices"])
    copy = tmp_path / "copy.yaml"
    text = (hardware_dir() / "chips" / "l40s.yaml").read_text(encoding="utf-8")
    row = "{basis: on_demand, usd_per_chip_hour: 2, provider: x, date: 2026-11, source: quote}"
    copy.write_text(f"{text.replace('l40s', 'mine', 1)}prices: [{row}]\n", encoding="utf-8")
    own = ask("catalog", "prices", "list", "--chip", str(copy))
    assert [(row["chip"], row["usd_per_chip_hour"]) for row in own["prices"]] == [("mine", 2.0)]
    (paid,) = found["paid"]
    counted = [row for row in found["prices"] if row["counted"]]
    assert paid["prices"] == len(counted)


def test_prices_as_of_a_date() -> None:
    now = ask("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand")
    then = ask("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand",
                    "--as-of", "2026-06")  # fmt: skip
    assert len(then["prices"]) < len(now["prices"])
    assert then["paid"] != now["paid"]
    answer = ask("estimate", *POINT, "--set", "price_basis=on_demand", "--as-of", "2026-06")
    assert answer["chip_usd_per_hour"] == then["paid"][0]["usd_per_chip_hour"]
    assert any("2026-06 (--as-of)" in sentence for sentence in answer["assumed"])


def test_own_prices_scale_the_price_of_a_token_and_are_named(mine: str) -> None:
    shipped, own = ask("estimate", *POINT), ask("estimate", *POINT, "--prices", mine)
    ratio = 2.6 / shipped["chip_usd_per_hour"]
    for metric in ("input", "output", "total"):
        name = f"usd_per_million_{metric}_tokens"
        assert own[name] == pytest.approx(shipped[name] * ratio, rel=1e-12)
    assert any("own price of mine.csv" in sentence for sentence in own["assumed"])
    assert ask("estimate", *POINT) == shipped


def test_costs_of_ones_own_move_only_their_part(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("electricity: 0.1738 USD/kWh\n", encoding="utf-8")
    asked = ["estimate", *POINT, "--set", "price_basis=owned_tco"]
    one, two = (ask(*asked, *more)["price"] for more in ([], ["--costs", str(file)]))
    moved = {
        a["name"]: b["usd_per_chip_hour"] / a["usd_per_chip_hour"]
        for a, b in zip(one["parts"], two["parts"], strict=True)
    }
    assert moved.pop("electricity") == pytest.approx(2.0)
    assert set(moved.values()) == {1.0}
    (row,) = [row for row in two["inputs"] if row["name"] == "electricity"]
    assert (row["kind"], row["source"]) == ("given", str(file))


def test_average_load() -> None:
    load = ["--set", "average_load=1B/day", "--set", "peak_over_average=2.5"]
    answer = ask("estimate", *POINT, *load)["at_average_load"]
    busy = ask("estimate", *POINT)
    name = "usd_per_million_total_tokens"
    assert answer[name] == pytest.approx(busy[name] / answer["busy_share"], rel=1e-9)
    assert answer["usd_per_hour"] * 24 == pytest.approx(answer[name] * 1000, rel=1e-9)
    text = dse("estimate", *POINT, *load).out
    assert "At average load" in text
    assert "input" in text[text.index("At average load") :]


def test_a_study_of_owned_chips_says_so_and_compares(tmp_path: Path, mine: str) -> None:
    spaces = Path(__file__).parents[2] / "search_spaces"
    text = (spaces / "tiny.yaml").read_text(encoding="utf-8")
    text = text.replace("price_basis: rental_3yr", "price_basis: owned_tco\n"
                        "demand: {average: 1B/day, peak_over_average: 3}")  # fmt: skip
    space = tmp_path / "owned.yaml"
    space.write_text(text, encoding="utf-8")
    costs = tmp_path / "costs.yaml"
    costs.write_text("chips: {h100_sxm: {server_price: 60000 USD}}\n", encoding="utf-8")
    for name, more in (("a", []), ("b", ["--costs", str(costs)])):
        done = dse(
            "run", str(space), "--engine", "exhaustive", "--out", str(tmp_path / name), *more
        )
        assert done.code == 0, done.err
    page = (tmp_path / "b" / "report.html").read_text(encoding="utf-8")
    assert "What an hour of a chip costs, by parts" in page
    assert "Sized for a peak of 3 times the average" in page
    again = ask("estimate", str(tmp_path / "b"), "cheapest")
    with (tmp_path / "b" / "front.csv").open(encoding="utf-8", newline="") as stream:
        cheapest = min(float(row["usd_per_million_total_tokens"]) for row in csv.DictReader(stream))
    assert again["usd_per_million_total_tokens"] == pytest.approx(cheapest, rel=1e-8)
    assert again["at_average_load"]["usd_per_million_total_tokens"] > cheapest
    found = ask("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    (row,) = (row for row in found["prices"] if row["change"])
    assert row["chip"] == "h100_sxm"
    assert row["change"] > 0.3
    assert found["reference_front"] == "union of both"
    words = dse("compare", str(tmp_path / "a"), str(tmp_path / "b")).out
    assert "h100_sxm" in words
    assert "the cheapest design moves from h100_sxm to h200_sxm" in " ".join(words.split())
    assert "Not by prices alone" not in words


def test_a_space_says_what_it_owns_at() -> None:
    said = dse("catalog", "spaces", "show", "consumer-fleet").out
    words = " ".join(said.split())
    assert "costs of its own: life 4 years (assumed: two generations of cards); " in words
    assert "staff 0 USD/year (assumed: its owner sees to it)" in words
    assert ask("catalog", "spaces", "show", "tiny")["costs"] == []


# dse catalog prices list: computed prices by their parts, and what changed since a date.


def listed(*words: object) -> dict:
    return ask("catalog", "prices", "list", *words)


def test_owned_chips_are_listed_by_parts_that_make_up_their_price() -> None:
    said = dse("catalog", "prices", "list", "--basis", "owned_tco")
    assert said.code == 0
    assert fits(said.out, 100)
    assert "…" not in said.out
    assert "Costs: life 5 years (claimed" in " ".join(said.out.split())
    paid = listed("--basis", "owned_tco")["paid"]
    for one in paid:
        parts = [part["usd_per_chip_hour"] for part in one["breakdown"]["parts"]]
        assert sum(parts) == pytest.approx(one["usd_per_chip_hour"], rel=1e-12)
        (line,) = [row for row in said.out.splitlines() if row.startswith(f"{one['chip']} ")]
        assert line.split()[1:] == [dollars(usd) for usd in (*parts, one["usd_per_chip_hour"])]
        assert f"{one['chip']}: " in said.out


# --prices, --as-of and --costs of dse train, compare, whatif --require and run.


RUN = ("--chip", "h100_sxm", "--chips", 64, "--tokens", "1T", "--tp", 1, "--pp", 1, "--cp", 1)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Prices of one's own: H100 at 2.6 USD an hour, MI300X at 0.1."""
    path = tmp_path / "mine.csv"
    rows = "h100_sxm,rental_3yr,2.6,quote,2026-11,mail,\nmi300x,rental_3yr,0.1,quote,2026,mail,\n"
    path.write_text(HEADER + rows, encoding="utf-8")
    return path


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    path = tmp_path / "costs.yaml"
    path.write_text("electricity: 0.30 USD/kWh\n", encoding="utf-8")
    return path


def train(*more: object) -> dict:
    return ask("train", "llama-3-8b", *RUN, *more)


def test_a_run_is_priced_by_ones_own_prices(ours: Path) -> None:
    shipped, own = train(), train("--prices", ours)
    assert own["usd_per_chip_hour"] == 2.6
    assert own["usd"] / shipped["usd"] == pytest.approx(2.6 / shipped["usd_per_chip_hour"])
    assert any("own price of mine.csv" in text for text in own["assumed"])
    assert own["days"] == shipped["days"]


def test_a_run_on_owned_chips_has_its_parts(costs: Path) -> None:
    asked = ("--price-basis", "owned_tco", "--costs", costs)
    document = train(*asked)
    parts = document["price"]["parts"]
    assert sum(part["usd_per_chip_hour"] for part in parts) == pytest.approx(
        document["usd_per_chip_hour"], rel=1e-12
    )
    assert document["usd"] == pytest.approx(
        document["chip_hours"] * document["usd_per_chip_hour"], rel=1e-12
    )
    assert any(text.endswith("given: electricity") for text in document["assumed"])
    said = dse("train", "llama-3-8b", *RUN, *asked)
    assert "cost of capital" in said.out
    assert fits(said.out, 100)
    assert "price" not in train()


USD = "usd_per_million_total_tokens"


def test_a_basket_says_what_its_prices_rest_on(tmp_path: Path, ours: Path, costs: Path) -> None:
    space = tmp_path / "two.yaml"
    space.write_text(TWO_CHIPS, encoding="utf-8")
    own = ask("compare", space, "--by", "chip", "--prices", ours)
    shipped = ask("compare", space, "--by", "chip")
    assert "own price of mine.csv" in " ".join(own["assumed"])
    assert "own price" not in " ".join(shipped["assumed"])
    # A price level of a chip cancels in a regret, and is all of the change of a price.
    one, other = (
        next(r for r in d["choices"] if (r["which"], r["chip"]) == ("least worst", "h100_sxm"))
        for d in (shipped, own)
    )
    assert other["regret"] == pytest.approx(one["regret"], rel=1e-9)
    assert other[USD] / one[USD] == pytest.approx(2.6 / 1.3)
    space.write_text(TWO_CHIPS.replace("rental_3yr", "owned_tco"), encoding="utf-8")
    said = dse("compare", space, "--by", "chip", "--costs", costs, "--detail")
    assert fits(said.out, 100)
    assert "costs of owning that were given: electricity" in " ".join(said.out.split())
    found = ask("compare", space, "--by", "chip", "--costs", costs)
    assert [row["chip"] for row in found["prices"]] == found["chips"]


def test_a_chip_enters_at_a_price_of_ones_own(
    space: Callable[..., Path], tmp_path: Path, ours: Path
) -> None:
    study = tmp_path / "study"
    assert dse("run", space(), "--out", study).code == 0
    asked = ("whatif", study, "--require", "mi300x")
    shipped, own = ask(*asked), ask(*asked, "--prices", ours)
    assert own["usd_per_chip_hour"] == 0.1
    assert own["enters_as_it_is"]
    assert not shipped["stale"]
    assert own["stale"]
    assert "Prices rest on" not in dse(*asked).out
    mine_said = dse(*asked, "--prices", ours, "--detail").out
    assert "own price of mine.csv" in " ".join(mine_said.split())


def test_a_shared_study_is_of_one_set_of_prices(
    space: Callable[..., Path], tmp_path: Path, ours: Path
) -> None:
    run = ("run", space(), "--storage", f"sqlite:///{tmp_path / 'study.db'}")
    assert dse(*run, "--prices", ours, "--out", tmp_path / "shared").code == 0
    assert "with other hardware data" in dse(*run, "--out", tmp_path / "other").err
    alone = dse("run", space(), "--prices", ours, "--jobs", 1, "--out", tmp_path / "alone")
    assert alone.code == 0, alone.err
    fronts = {(tmp_path / name / FRONT_TABLE).read_bytes() for name in ("shared", "alone")}
    assert len(fronts) == 1
    dearer = read_json(tmp_path / "alone", FRONT)["items"][0]["metrics"]["chip_usd_per_hour"]
    assert dearer == pytest.approx(2.6)


def test_prices_and_costs_that_count_for_nothing_are_said(tmp_path: Path, costs: Path) -> None:
    path = tmp_path / "typo.csv"
    path.write_text(f"{HEADER}h100_sxm,rental_3y,1,quote,2026-11,mail,\n", encoding="utf-8")
    assumed = train("--prices", path, "--costs", costs)["assumed"]
    assert "no row of typo.csv is on basis on_demand: none of your prices counts" in assumed
    assert "costs of costs.yaml count for chips that are owned alone" in assumed


@pytest.mark.parametrize("date", ["soon", "2026-13", "2026-02-30", "11/2026"])
def test_a_price_of_ones_own_has_a_date(tmp_path: Path, date: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}h100_sxm,rental_3yr,1,quote,{date},mail,\n", encoding="utf-8")
    said = dse("train", "llama-3-8b", *RUN, "--prices", path)
    assert said.code == 2
    assert f"mine.csv:2: date: read '{date}': not a date (accepted: 2025, 2025-Q2" in said.err
