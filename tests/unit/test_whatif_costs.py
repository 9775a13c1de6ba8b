"""Costs of owned chips under change: finite differences of full reruns, bounds, refusals."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.catalog import load_catalog
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError
from dse.problem.demanded import TOTAL as COST
from dse.problem.objective import pose
from dse.questions.whatif.inputs import inputs_of, scenarios_of, subject_of, sweep_of
from dse.questions.whatif.moves import elasticities, scenario, sweep
from dse.questions.whatif.solve import Stand, all_points, solve
from dse.questions.whatif.ties import break_even, owning
from dse.schema.costs import RULES
from dse.schema.study import load_study
from dse.search.run import search
from tests.helpers_whatif import PAIR, SPACE, asked_of, changed, chip_of, pair

__all__ = ["pair"]


def owned_at(chip: str, use: float) -> float:
    """Dollars by the hour that it serves, as `dse catalog prices list` says of owned_tco."""
    catalog = load_catalog()
    costs = catalog.costs.changed({"utilisation": use})
    return usd_per_chip_hour(catalog, chip, "owned_tco", costs).usd_per_chip_hour


@given(rent=st.floats(0.05, 20.0), chip=st.sampled_from(["h100_sxm", "mi300x", "l40s"]))
@settings(max_examples=30, deadline=None)
def test_an_owned_chip_costs_its_rent_at_break_even_utilisation(rent: float, chip: str):
    """The closed form is where the two curves cross, found by bisection."""
    catalog = load_catalog()
    found = owning(catalog, chip, rent, catalog.costs)
    assert found is not None
    assert found["owned_at_full_use"] == pytest.approx(owned_at(chip, 1.0), rel=1e-12)
    for point in found["curve"]:
        owned = owned_at(chip, point["utilisation"])
        assert point["owned"] == pytest.approx(owned, rel=1e-12)
    low, high = 1e-3, 1.0
    if owned_at(chip, high) > rent:
        assert found["utilisation"] is None
        return
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if owned_at(chip, middle) > rent else (low, middle)
    assert found["utilisation"] == pytest.approx(high, rel=1e-9)


def test_the_parts_of_an_owned_hour_are_said_with_their_sources():
    document = dse.whatif(yaml.safe_load(SPACE.format(**PAIR)), break_even=True).document
    row = document["owning"][0]
    parts = row["price"]["parts"]
    assert math.fsum(part["usd_per_chip_hour"] for part in parts) == pytest.approx(
        row["owned_at_full_use"], rel=1e-12
    )
    said = [text for text in document["assumed"] if text.startswith("owning: ")]
    for name in ("life 5 years", "electricity 0.0869 USD/kWh", f"{row['chip']} "):
        assert any(text.startswith(f"owning: {name}") for text in said), name
    assert all("; " in text for text in said)  # each with its source


def test_owned_chips_are_held_against_rent_by_use(tmp_path: Path):
    text = SPACE.format(**PAIR).replace("rental_3yr", "owned_tco")
    asked = asked_of(tmp_path, text)
    points = all_points(asked)
    rows = {row["chip"]: row for row in break_even(Stand(asked, points)).facts["owning"]}
    on_demand = asked.catalog.prices.select("on_demand")["h100_sxm"]
    assert rows["h100_sxm"]["rent_basis"] == "on_demand"
    assert rows["h100_sxm"]["rent_usd_per_hour"] == on_demand.usd_per_chip_hour
    assert rows["h100_sxm"]["committed_usd_per_hour"] is None
    assert 0.0 < rows["h100_sxm"]["utilisation"] < 1.0
    price = float(asked.problem.machines.usd_per_chip_hour[0])
    assert rows["h100_sxm"]["owned_at_full_use"] == pytest.approx(price, rel=1e-12)


OWNED = """\
price_basis: owned_tco
costs: {{{costs}}}
"""
COSTS = {
    "life": "4 years",
    "cost_of_capital": "9 %",
    "resale": "12 %",
    "server_factor": "1.4",
    "network_share": "19 %",
    "maintenance": "5 %",
    "staff": "150 USD/year",
    "server_power_factor": "1.82",
    "facility_factor": "1.36",
    "electricity": "0.09 USD/kWh",
    "load_share": "70 %",
    "space": "184 USD/kW-month",
    "utilisation": "60 %",
}


def owned_space(folder: Path, chips: str = "{}", **changed: float) -> Path:
    """A space of one L40S, priced as a card with its rated power; each of `changed` multiplies a
    cost as its owner would write it anew."""
    lines = []
    for name, text in COSTS.items():
        number, _, unit = text.partition(" ")
        lines.append(f"{name}: {float(number) * changed.get(name, 1.0)!r} {unit}".strip())
    costs = ", ".join([*lines, f"chips: {chips}"])
    text = SPACE.format(**{**PAIR, "chips": "l40s"}).replace("[1, 2, 4]", "[1]")
    text = text.replace("price_basis: rental_3yr\n", OWNED.format(costs=costs))
    file = folder / "owned.yaml"
    file.write_text(text.replace("tpot_s <= 20 ms", "tpot_s <= 60 ms"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory):
    asked = subject_of(str(owned_space(tmp_path_factory.mktemp("owned"))), load_catalog())
    points = all_points(asked)
    before = solve(asked.problem, points, COST)
    return asked, points, before, elasticities(Stand(asked, points))


def lowest(path: Path) -> float:
    catalog = load_catalog()
    return float(search(pose(load_study(path, catalog), catalog), "exhaustive").front.F[:, 0].min())


@pytest.mark.parametrize("name", RULES)
def test_the_elasticity_to_a_cost_is_a_full_reruns(tmp_path: Path, owned, name: str):
    mine = next(row for row in owned[3] if row["input"] == f"costs.{name}")
    low, high = (lowest(owned_space(tmp_path, **{name: x})) for x in (0.99, 1.01))
    expected = (math.log(high) - math.log(low)) / (math.log(1.01) - math.log(0.99))
    assert mine["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)
    assert mine["elasticity_tpot"] == 0.0


@pytest.mark.parametrize(("name", "unit"), [("price", "USD"), ("power", "W")])
def test_the_elasticity_to_a_chips_own_cost_is_a_full_reruns(tmp_path, owned, name, unit):
    mine = next(row for row in owned[3] if row["input"] == f"costs.l40s.{name}")
    low, high = (
        lowest(owned_space(tmp_path, f"{{l40s: {{{name}: {mine['now'] * x!r} {unit}}}}}"))
        for x in (0.99, 1.01)
    )
    expected = (math.log(high) - math.log(low)) / (math.log(1.01) - math.log(0.99))
    assert mine["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)


def test_a_cost_at_its_bound_is_differed_on_one_side(tmp_path: Path):
    """No more than every hour can carry the cost: only less of it is looked at."""
    asked = asked_of(tmp_path, SPACE.format(**PAIR).replace("rental_3yr", "owned_tco"))
    points = all_points(asked)
    before = solve(asked.problem, points, COST)
    chip = chip_of(before)
    rows = elasticities(Stand(asked, points))
    mine = next(row for row in rows if row["input"] == "costs.utilisation")
    expected = math.log(owned_at(chip, 0.99) / owned_at(chip, 1.0)) / math.log(0.99)
    assert mine["elasticity"] == pytest.approx(expected, abs=1e-9)
    assert mine["at_10_percent_more"] is None
    assert "costs.resale" not in [row["input"] for row in rows]  # 0


def test_a_price_of_a_chip_takes_the_place_of_that_of_its_server(owned):
    subject = owned[0]
    for texts, usd in (
        (["costs.l40s.price=10000 USD"], 14000),
        (["costs.l40s.price=2x"], 22400),
        (["costs.l40s.server_price=20 kUSD"], 20000),
    ):
        costs = changed(subject, *texts).study.costs
        price = usd_per_chip_hour(subject.catalog, "l40s", "owned_tco", costs)
        assert price.parts[0].rule.startswith(f"{usd:,} USD")
    with pytest.raises(InputError, match="both say what it costs to buy"):
        changed(subject, "costs.l40s.price=1 kUSD", "costs.l40s.server_price=2 kUSD")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("costs.elektricity=2x", "did you mean costs.electricity"),
        ("costs.electricity=0.1 EUR/kWh", "0.087 USD/kWh"),
        ("costs.electricity=-0.1 USD/kWh", "negative"),
        ("costs.utilisation=2x", "costs.utilisation would be 1.2 .*at most 100 %"),
        ("costs.utilisation=0 %", "more than 0 %"),
        ("costs.server_factor=0.5x", "1 or more"),
        ("costs.l40s.price=0 USD", "more than 0 USD"),
        ("costs.l40s.price=-100%", "would be 0 USD .*more than 0 USD"),
        ("costs.l40s.server_price=2x", "no value that could be multiplied"),
    ],
)
def test_wrong_costs_say_what_is_accepted(owned, text: str, says: str):
    with pytest.raises(InputError, match=says) as caught:
        changed(owned[0], text)
    assert "accepted" in str(caught.value)


def test_costs_are_swept_and_stand_in_scenarios(owned, tmp_path: Path):
    asked, points, before, _ = owned
    known = inputs_of(asked)
    steps = sweep_of("costs.utilisation=30%..90%:3", known)
    found = [row["objective"] for row in sweep(Stand(asked, points), steps).facts["rows"]]
    assert found[1] == pytest.approx(before.value, rel=1e-12)
    assert found == sorted(found, reverse=True)
    file = tmp_path / "s.yaml"
    file.write_text("scenarios: {dear: {costs.electricity: 0.18USD/kWh, costs.l40s.power: 1 kW}}")
    row = scenario(Stand(asked, points), *scenarios_of(str(file), known).popitem()).facts
    again = lowest(owned_space(tmp_path, "{l40s: {power: 1 kW}}", electricity=2.0))
    assert row["winner"]["metrics"][COST] == pytest.approx(again, rel=1e-12)
