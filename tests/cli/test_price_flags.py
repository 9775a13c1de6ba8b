"""--prices, --as-of and --costs of dse train, compare, whatif --require and run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dse.study.folder import FRONT, FRONT_TABLE, read_json
from tests.cli.conftest import dse, fits
from tests.unit.test_basket import SPACE as TWO_CHIPS

HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
RUN = ("--chip", "h100_sxm", "--chips", 64, "--tokens", "1T", "--tp", 1, "--pp", 1, "--cp", 1)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
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
    return dse("train", "llama-3-8b", *RUN, *more, "--json").json()


def test_a_run_is_priced_by_ones_own_prices(mine: Path) -> None:
    shipped, own = train(), train("--prices", mine)
    assert own["usd_per_chip_hour"] == 2.6
    assert own["usd"] / shipped["usd"] == pytest.approx(2.6 / shipped["usd_per_chip_hour"])
    assert any("own price of mine.csv" in text for text in own["assumed"])
    assert own["days"] == shipped["days"]


def test_a_run_is_priced_as_of_a_date() -> None:
    asked = ("--price-basis", "on_demand")
    then, now = train(*asked, "--as-of", "2026-06"), train(*asked)
    assert then["usd_per_chip_hour"] != now["usd_per_chip_hour"]
    assert any("2026-06 (--as-of)" in text for text in then["assumed"])


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


def test_a_basket_says_what_its_prices_rest_on(tmp_path: Path, mine: Path, costs: Path) -> None:
    space = tmp_path / "two.yaml"
    space.write_text(TWO_CHIPS, encoding="utf-8")
    own = dse("compare", space, "--by", "chip", "--prices", mine, "--json").json()
    shipped = dse("compare", space, "--by", "chip", "--json").json()
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
    found = dse("compare", space, "--by", "chip", "--costs", costs, "--json").json()
    assert [row["chip"] for row in found["prices"]] == found["chips"]


def test_a_chip_enters_at_a_price_of_ones_own(
    space: Callable[..., Path], tmp_path: Path, mine: Path
) -> None:
    study = tmp_path / "study"
    assert dse("run", space(), "--out", study).code == 0
    asked = ("whatif", study, "--require", "mi300x")
    shipped, own = dse(*asked, "--json").json(), dse(*asked, "--prices", mine, "--json").json()
    assert own["usd_per_chip_hour"] == 0.1
    assert own["enters_as_it_is"]
    assert not shipped["stale"]
    assert own["stale"]
    assert "Prices rest on" not in dse(*asked).out
    mine_said = dse(*asked, "--prices", mine, "--detail").out
    assert "own price of mine.csv" in " ".join(mine_said.split())


def test_requirements_are_priced_as_the_study_was(
    space: Callable[..., Path], tmp_path: Path, mine: Path
) -> None:
    study = tmp_path / "study"
    assert dse("run", space(), "--out", study, "--prices", mine).code == 0
    answer = dse("whatif", study, "--require", "mi300x", "--json").json()
    assert answer["usd_per_chip_hour"] == 0.1
    assert not answer["stale"]


def test_a_shared_study_is_of_one_set_of_prices(
    space: Callable[..., Path], tmp_path: Path, mine: Path
) -> None:
    run = ("run", space(), "--storage", f"sqlite:///{tmp_path / 'study.db'}")
    assert dse(*run, "--prices", mine, "--out", tmp_path / "shared").code == 0
    assert "with other hardware data" in dse(*run, "--out", tmp_path / "other").err
    alone = dse("run", space(), "--prices", mine, "--jobs", 1, "--out", tmp_path / "alone")
    assert alone.code == 0, alone.err
    fronts = {(tmp_path / name / FRONT_TABLE).read_bytes() for name in ("shared", "alone")}
    assert len(fronts) == 1
    dearer = read_json(tmp_path / "alone", FRONT)["items"][0]["metrics"]["chip_usd_per_hour"]
    assert dearer == pytest.approx(2.6)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "llama-3-8b", *RUN),
        ("compare", "basket-h200-tpu-trn2", "--by", "chip"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(words: tuple[object, ...]) -> None:
    for flag, value, says in (
        ("--prices", "none.csv", "none.csv: no such file"),
        ("--costs", "none.yaml", "none.yaml"),
        ("--as-of", "june", "2025-06-30"),
    ):
        said = dse(*words, flag, value)
        assert said.code == 2
        assert says in said.err
        assert len(said.err.strip().splitlines()) == 1


def test_prices_and_costs_that_count_for_nothing_are_said(tmp_path: Path, costs: Path) -> None:
    path = tmp_path / "typo.csv"
    path.write_text(f"{HEADER}h100_sxm,rental_3y,1,quote,2026-11,mail,\n", encoding="utf-8")
    assumed = train("--prices", path, "--costs", costs)["assumed"]
    assert "no row of typo.csv is on basis rental_3yr: none of your prices counts" in assumed
    assert "costs of costs.yaml count for chips that are owned alone" in assumed


@pytest.mark.parametrize("date", ["soon", "2026-13", "2026-02-30", "11/2026"])
def test_a_price_of_ones_own_has_a_date(tmp_path: Path, date: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}h100_sxm,rental_3yr,1,quote,{date},mail,\n", encoding="utf-8")
    said = dse("train", "llama-3-8b", *RUN, "--prices", path)
    assert said.code == 2
    assert f"mine.csv:2: date: read '{date}': not a date (accepted: 2025, 2025-Q2" in said.err
