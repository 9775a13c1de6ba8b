"""What a fleet costs, against closed forms (`dse.economics.fleet_cost`)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.economics.fleet import solve
from dse.economics.fleet_cost import (
    Counted,
    Mix,
    by_quarter,
    capital_usd,
    count,
    discount,
    electricity_usd,
    end_usd,
    irr,
    returned,
)
from dse.economics.tco import price_by_parts
from dse.questions.fleet.fleet import answer_of
from dse.schema.costs import read_costs
from dse.schema.loader import Document
from dse.schema.plan import QUARTER_HOURS, Plan
from dse.schema.plan_reader import load_plan
from tests.helpers_fleet import COSTS, FREE, buy, chip, demand, option, plan, rent


def test_a_rent_costs_what_multiplication_says():
    one = plan(chip("a", rent("a", 2.0)), discount_rate=0.0)
    options = [option({"a": 2}, 4.0)]
    assert solve(one, options).usd == pytest.approx(3 * 2 * 2.0 * QUARTER_HOURS * 2)


def test_capital_is_repaid_with_interest_over_its_life():
    offer = buy("a", 1000.0, life_quarters=16.0)
    one = plan(chip("a", offer))
    yearly = 4.0 * capital_usd(one, offer, 0)
    flow = math.log(1.08)  # through the year
    assert yearly * (1.0 - 1.08**-4) / flow == pytest.approx(1000.0)
    resold = replace(one, costs=COSTS.changed({"resale": 0.3}))
    yearly = 4.0 * capital_usd(resold, offer, 0)
    worth = yearly * (1.0 - 1.08**-4) / flow + 300.0 / 1.08**4
    assert worth == pytest.approx(1000.0)
    free = replace(one, costs=COSTS.changed({"cost_of_capital": 0.0}))
    assert capital_usd(free, offer, 0) == pytest.approx(1000.0 / 16.0)


def test_what_is_drawn_on_site_is_what_is_paid_for_and_what_is_emitted():
    """Owned chips alone: dollars of electricity over its price, in kWh; grams of each of them."""
    costs = read_costs(Document("c", {}, None), (), {"carbon": "400 g/kWh"}, COSTS)
    one = plan(chip("a", stock=6), costs=costs)
    made = answer_of(one, [option({"a": 2}, 4.0)]).document
    paid = sum(row["electricity_usd"] for row in made["by_quarter"])
    assert paid > 0.0
    assert made["kwh_on_site"] == pytest.approx(paid / 0.1)
    assert made["co2_kg"] == pytest.approx(paid / 0.1 * 0.4)
    plain = answer_of(plan(chip("a", stock=6)), [option({"a": 2}, 4.0)])
    assert plain.document["co2_kg"] is None


def test_a_rent_signed_beyond_the_end_costs_the_plan_its_whole_term():
    whole = plan(chip("a", rent("a", 2.0)), discount_rate=0.0, used_after_end=0.0)
    options = [option({"a": 2}, 4.0)]
    found = answer_of(whole, options)
    made = found.document
    assert made["usd"] == pytest.approx(3 * 2 * 2.0 * QUARTER_HOURS * 12)
    assert made["usd_written_off"] == made["usd_committed_beyond"]
    assert made["usd_signed"] == pytest.approx(made["usd"])
    words = ("signed for in all", "2 quarters", "written off when the plan ends")
    assert sorted(words, key=found.headline.index) == list(words)


def test_what_is_bought_is_worth_less_than_is_owed_on_it_and_nothing_at_the_end():
    """Paid back with interest, sold at its worth: buying costs the price less the sale."""
    offer = buy("a", 1000.0)
    costs = COSTS.changed({"worth_after_3_years": 0.3})
    for quarters in (1, 6, 12, 15):
        one = plan(
            chip("a", offer),
            quarters=quarters,
            discount_rate=0.08,
            costs=costs,
            used_after_end=0.0,
        )
        paid = sum(discount(one, q) * capital_usd(one, offer, 0) for q in range(quarters))
        # Payments flow through a quarter; the plan discounts each quarter from its start.
        flow = math.log(1.08) / 4.0 / -math.expm1(-math.log(1.08) / 4.0)
        sold = 0.3 ** (quarters / 12.0) * 1.08 ** (-quarters / 4.0)
        assert paid / flow + end_usd(one, offer, 0) == pytest.approx(1000.0 * (1.0 - sold))
    assert end_usd(replace(one, quarters=16), offer, 0) == 0.0


@pytest.mark.parametrize("name", ["h100_sxm", "b200_sxm", "gb200_nvl72"])
def test_a_chip_bought_and_always_on_costs_its_owned_tco_price(name: str, tmp_path: Path):
    """Over its life of five years, per hour, undiscounted."""
    path = tmp_path / "plan.yaml"
    path.write_text(OWNED.replace("CHIP", name), encoding="utf-8")
    catalog = load_catalog()
    one = load_plan(path, catalog)
    server = one.chip(name).server
    mix = Mix(
        {(f"{name}, bought", 0): 1},
        {(name, q): 1 for q in range(20)},
        {(0, q): 1 for q in range(20)},
    )
    counted = count(one, [option({name: server}, 4.0)], mix)
    assert not counted.broken
    hourly = counted.usd / (20 * QUARTER_HOURS * server)
    assert hourly == pytest.approx(price_by_parts(catalog, name, "owned_tco")["usd_per_chip_hour"])
    solved = solve(one, [option({name: server}, 4.0)])
    assert solved.usd == pytest.approx(counted.usd)


OWNED = """\
name: owned
title: One server, bought
quarters: 20
price_basis: rental_3yr
discount_rate: 0 %
demand:
  - {name: chat, model: llama-3-8b, requests_per_second: 1, prompt_tokens: 9, output_tokens: 9,
     ttft: 1 s, tpot: 50 ms}
chips:
  - {chip: CHIP, buy: {}}
"""


def test_electricity_is_that_of_the_mean_load():
    """At a peak of four times the mean, a quarter of what depends on the load is drawn; of two
    classes, the tokens weigh."""
    busy = plan(chip("a", stock=2))
    idle = replace(busy, demand=(demand(peak=4.0),))
    share = COSTS.value("load_share")
    ratio = electricity_usd(idle, "a") / electricity_usd(busy, "a")
    assert ratio == pytest.approx(1.0 - share * 0.75)
    two = replace(busy, demand=(demand(per_s=3.0, peak=4.0), demand("code", 1.0)))
    assert two.busy == pytest.approx(4.0 / 13.0)


def test_a_server_that_is_off_pays_its_capital_alone():
    one = plan(chip("a", buy("a", 1e4)), quarters=1, demand=(demand(per_s=3.0),))
    mix = Mix({("a, bought", 0): 1}, {}, {})
    assert count(one, [option({"a": 2}, 4.0)], mix).usd == pytest.approx(
        2 * capital_usd(one, one.offers[0], 0)
    )
    on = count(one, [option({"a": 2}, 4.0)], replace(mix, on={("a", 0): 1})).by_chip
    hourly = 1e4 * 0.05 / 8760 + 150 / 8760 + 1.0 * 100 / 730
    assert on["upkeep_usd"].sum() == pytest.approx(2 * QUARTER_HOURS * hourly)
    assert on["electricity_usd"].sum() == pytest.approx(2 * QUARTER_HOURS * 1.0 * 0.1)


def test_what_is_bought_is_paid_in_full_and_charged_for_the_quarters_of_the_plan():
    """Of the cost of a short plan, a purchase is the small part that these quarters are charged."""
    one = plan(chip("a", buy("a", 40e3, life_quarters=20.0)), discount_rate=0.0)
    made = answer_of(one, [option({"a": 2}, 4.0)]).document
    assert made["usd_bought"] == 40e3 * sum(row["chips"] for row in made["orders"])
    assert made["usd_bought"] == sum(row["bought_usd"] for row in made["by_quarter"])
    assert made["usd"] < made["usd_bought"] / 2


def test_sunk_stock_pays_electricity_and_upkeep_alone():
    one = plan(chip("old", stock=6, watts=800.0), quarters=3, costs=FREE)
    options = [option({"old": 2}, 4.0)]
    usd = 6 * 0.8 * QUARTER_HOURS * 0.1
    assert solve(one, options).usd == pytest.approx(sum(usd * discount(one, q) for q in range(3)))


# Cash by quarter, against closed forms and against the cost that the program counts.


RATE = 0.08  # the cost of capital of those plans


def ordered(mix: dict[tuple[str, int], int], **more: Any) -> tuple[Plan, Counted]:
    made = chip("a", rent("a", 2.0), buy("a", 3e4, lead_quarters=1, life_quarters=16.0))
    one = plan(made, quarters=6, discount_rate=RATE, **more)
    return one, count(one, [option({"a": 2}, 1.0)], Mix(mix, {}, {}))


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a, rent", "a, bought"]), st.integers(0, 4)),
        st.integers(1, 9),
        min_size=1,
    ),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_cash_is_worth_what_the_program_counts(
    orders: dict[tuple[str, int], int], used: float
) -> None:
    """A level payment falls within its quarter and cash on its first day, which is all the
    difference, at one rate of interest."""
    one, counted = ordered(orders, used_after_end=used)
    flows = by_quarter(one, counted)
    within = (1.0 - (1.0 + RATE) ** -0.25) * 4.0 / math.log1p(RATE)
    charges = math.fsum(
        discount(one, q) * usd for q, usd in enumerate(counted.by_chip["capital_usd"].sum(axis=1))
    )
    expected = counted.usd - (1.0 - within) * charges
    assert flows["present_usd"].sum() == pytest.approx(expected, rel=1e-9)
    assert flows["cash_usd"].sum() == pytest.approx(counted.signed_usd, rel=1e-9)
    assert flows["rent_owed_usd"][-1] == 0.0
    booked = flows["depreciation_usd"].sum() + flows["book_usd"][one.quarters - 1]
    assert booked == pytest.approx(counted.bought_usd, abs=1e-6)


def test_later_rents_are_of_use_and_purchases_are_not() -> None:
    """Of a rent of 12 quarters and a plan of 6, half of the last six; of a purchase none."""
    for label, useful in (("a, rent", 0.5 * 6 * 2 * 2.0 * 2190.0), ("a, bought", 0.0)):
        one, counted = ordered({(label, 0): 1}, used_after_end=0.5)
        flows = by_quarter(one, counted)
        later = flows["worth_usd"][one.quarters + (label == "a, bought") :].sum()
        assert later == pytest.approx(useful)


def test_the_rate_of_return_is_that_of_a_textbook() -> None:
    year = np.zeros(5)
    year[0], year[4] = -100.0, 110.0
    assert irr(year) == [pytest.approx(0.10)]
    level = np.array([-100.0] + [30.0] * 4)
    (rate,) = irr(level)
    worth = sum(30.0 * (1.0 + rate) ** (-q / 4.0) for q in range(1, 5))
    assert worth == pytest.approx(100.0)
    assert irr(np.array([1.0, 2.0])) == []


def test_buying_returns_and_pays_back_against_renting() -> None:
    one, bought = ordered({("a, bought", 0): 1})
    _, rented = ordered({("a, rent", 1): 2})
    ours, theirs = by_quarter(one, bought), by_quarter(one, rented)
    found = returned(one, ours, theirs)
    saves = theirs["present_usd"].sum() - ours["present_usd"].sum()
    assert found["present_usd_saved"] == pytest.approx(saves)
    # Two chips for $60,000 against 4 x $2 x 2,190 h a quarter: paid back in the fourth of them.
    assert found["payback_quarter"] == 2 + math.ceil(60_000 / (4 * 2.0 * 2190.0)) - 1
    assert found["irr_per_year"] is not None
    assert found["irr_per_year"] > one.discount_rate
