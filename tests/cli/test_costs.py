"""Prices and costs on the command line: catalog prices list, --prices, --as-of, --costs, load."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dse.data import hardware_dir
from tests.cli.conftest import dse

POINT = ["--model", "llama-3-8b", "--chip", "h100_sxm", "--concurrency", "32"]
HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"


def document(*words: object) -> dict:
    return dse(*words, "--json").json()


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
    found = document("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand")
    assert all(row["source"] and row["date"] for row in found["prices"])
    copy = tmp_path / "copy.yaml"
    text = (hardware_dir() / "chips" / "l40s.yaml").read_text(encoding="utf-8")
    row = "{basis: on_demand, usd_per_chip_hour: 2, provider: x, date: 2026-11, source: quote}"
    copy.write_text(f"{text.replace('l40s', 'mine', 1)}prices: [{row}]\n", encoding="utf-8")
    own = document("catalog", "prices", "list", "--chip", str(copy))
    assert [(row["chip"], row["usd_per_chip_hour"]) for row in own["prices"]] == [("mine", 2.0)]
    (paid,) = found["paid"]
    counted = [row for row in found["prices"] if row["counted"]]
    assert paid["prices"] == len(counted)


def test_prices_as_of_a_date() -> None:
    now = document("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand")
    then = document("catalog", "prices", "list", "--chip", "h100_sxm", "--basis", "on_demand",
                    "--as-of", "2026-06")  # fmt: skip
    assert len(then["prices"]) < len(now["prices"])
    assert then["paid"] != now["paid"]
    answer = document("estimate", *POINT, "--set", "price_basis=on_demand", "--as-of", "2026-06")
    assert answer["chip_usd_per_hour"] == then["paid"][0]["usd_per_chip_hour"]
    assert any("2026-06 (--as-of)" in sentence for sentence in answer["assumed"])


def test_own_prices_scale_the_price_of_a_token_and_are_named(mine: str) -> None:
    shipped, own = document("estimate", *POINT), document("estimate", *POINT, "--prices", mine)
    ratio = 2.6 / shipped["chip_usd_per_hour"]
    for metric in ("input", "output", "total"):
        name = f"usd_per_million_{metric}_tokens"
        assert own[name] == pytest.approx(shipped[name] * ratio, rel=1e-12)
    assert any("own price of mine.csv" in sentence for sentence in own["assumed"])
    assert document("estimate", *POINT) == shipped


def test_owned_chips_are_priced_by_parts() -> None:
    answer = document("estimate", *POINT, "--set", "price_basis=owned_tco")
    price = answer["price"]
    parts = sum(part["usd_per_chip_hour"] for part in price["parts"])
    assert parts == pytest.approx(answer["chip_usd_per_hour"], rel=1e-12)
    shown = dse("catalog", "chips", "show", "h100_sxm").out
    assert "cost of capital" in shown
    assert "USD/kWh" in shown
    assert "no owned_tco: trn2_16 has no price" in dse("catalog", "chips", "show", "trn2_16").out
    plain = document("estimate", *POINT)
    assert "price" not in plain
    assert "at_average_load" not in plain


def test_costs_of_ones_own_move_only_their_part(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("electricity: 0.1738 USD/kWh\n", encoding="utf-8")
    asked = ["estimate", *POINT, "--set", "price_basis=owned_tco"]
    one, two = (document(*asked, *more)["price"] for more in ([], ["--costs", str(file)]))
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
    answer = document("estimate", *POINT, *load)["at_average_load"]
    busy = document("estimate", *POINT)
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
    again = document("estimate", str(tmp_path / "b"), "cheapest")
    with (tmp_path / "b" / "front.csv").open(encoding="utf-8", newline="") as stream:
        cheapest = min(float(row["usd_per_million_total_tokens"]) for row in csv.DictReader(stream))
    assert again["usd_per_million_total_tokens"] == pytest.approx(cheapest, rel=1e-8)
    assert again["at_average_load"]["usd_per_million_total_tokens"] > cheapest
    found = document("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    (row,) = (row for row in found["prices"] if row["change"])
    assert row["chip"] == "h100_sxm"
    assert row["change"] > 0.3
    assert found["reference_front"] == "union of both"
    words = dse("compare", str(tmp_path / "a"), str(tmp_path / "b")).out
    assert "h100_sxm" in words
    assert "the cheapest design moves from h100_sxm to h200_sxm" in " ".join(words.split())
    assert "Not by prices alone" not in words


def test_idle_hours_are_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("utilisation: 60 %\n", encoding="utf-8")
    asked = ["estimate", *POINT, "--set", "price_basis=owned_tco", "--costs", str(file)]
    for load in (["--set", "average_load=1B/day"], ["--set", "peak_over_average=2"]):
        said = dse(*asked, *load)
        assert (said.code, said.out) == (2, "")
        assert "utilisation of 60% and a demand both count idle hours" in said.err
        assert "drop `utilisation` from the costs" in said.err
    assert dse(*asked).code == 0
    rented = ["estimate", *POINT, "--costs", str(file), "--set", "peak_over_average=2"]
    assert dse(*rented).code == 0


def test_a_space_says_what_it_owns_at() -> None:
    said = dse("catalog", "spaces", "show", "consumer-fleet").out
    words = " ".join(said.split())
    assert "costs of its own: life 4 years (assumed: two generations of cards); " in words
    assert "staff 0 USD/year (assumed: its owner sees to it)" in words
    assert document("catalog", "spaces", "show", "tiny")["costs"] == []


TRAIN = "train llama-3-8b --chip h100_sxm --chips 8 --tokens 1T"
ESTIMATE = f"estimate {' '.join(POINT)}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("catalog prices list --basis on_demnd", "dse: unknown price basis 'on_demnd'"),
        ("catalog prices list --basis purchase", "owned_tco prices a chip that is bought"),
        (f"{TRAIN} --price-basis rental_3y", "unknown price basis 'rental_3y'; did you mean"),
        ("catalog prices list --chip h100_smx", "did you mean h100_sxm?"),
        ("catalog prices list --as-of june", "2025-06-30"),
        ("catalog prices list --as-of 2020", "--as-of: no price of any chip as of 2020"),
        (f"{ESTIMATE} --as-of 2020", "no price on basis 'rental_3yr' as of 2020"),
        ("catalog prices list --prices /", "/: cannot be read: Is a directory"),
        ("catalog prices list --prices /dev/null", "/dev/null:1: empty (accepted: chip,"),
        ("catalog prices list --prices none.csv", "none.csv: no such file"),
        (f"{ESTIMATE} --costs none.yaml", "none.yaml"),
        (f"{ESTIMATE} --set price_basis=owned_toc", "did you mean owned_tco?"),
        (f"{ESTIMATE} --set average_load=1B", "1B/day"),
        (f"{ESTIMATE} --set peak_over_average=0.5", "--set peak_over_average"),
        (
            f"{ESTIMATE.replace('h100_sxm', 'trn2_16')} --set price_basis=owned_tco"
            " --set peak_over_average=2",
            "no price at average load",
        ),
        (f"{ESTIMATE} --serving disaggregated --set average_load=1/s", "does not go with"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(line: str, says: str) -> None:
    result = dse(*line.split())
    assert result.code == 2
    assert says in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert result.out == ""
