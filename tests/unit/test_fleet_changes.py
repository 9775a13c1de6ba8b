"""What would change a fleet, and what must give where nothing keeps the plan."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from dse.catalog import load_catalog
from dse.economics.fleet import Solved, divisible, solve, with_offer
from dse.economics.fleet_cost import Mix
from dse.questions.fleet.changes import entry, lack, loosened, waits_for
from dse.questions.fleet.fleet import answer_of
from dse.questions.fleet.options import options_of
from dse.schema.plan import Limits, Plan
from dse.schema.plan_reader import load_plan
from tests.helpers_fleet import buy, chip, demand, option, plan, rent

AT, WITHOUT = "usd_enters_or_leaves_at", "fleet_costs_more_without"


def test_one_price_moves_the_answer_as_arithmetic_says():
    """Three servers of a at p a chip-hour against two of b at 3: they are even at p = 2."""
    options = [option({"a": 2}, 4.0), option({"b": 2}, 5.0)]

    def used(usd: float) -> set[str]:
        one = plan(chip("a", rent("a", usd)), chip("b", rent("b", 3.0)))
        mix = solve(one, options).mix
        assert mix is not None
        return {label for label, _ in mix.orders}

    assert used(1.98) == {"a, rent"}
    assert used(2.02) == {"b, rent"}
    one = plan(chip("a", rent("a", 2.5)), chip("b", rent("b", 3.0)))
    found = {row["chip"]: row for row in answer_of(one, options).document["prices"]}
    assert not found["a"]["used"]
    assert found["a"][AT] == pytest.approx(2.0, rel=1e-4)
    # With a at 2.5, b is left at 3 x 2.5 / 2.
    assert found["b"]["used"]
    assert found["b"][AT] == pytest.approx(3.75, rel=1e-4)
    assert found["b"][WITHOUT] == pytest.approx(0.25)


@pytest.mark.parametrize("stock", [0, 2])
def test_the_price_of_what_is_bought_moves_the_answer_as_arithmetic_says(stock: int):
    """Capital p of a against a rent of 3 for b: even where a's hour, maintenance included, costs
    what b's does. Chips of a that are owned already pay maintenance at that price as well."""
    options = [option({"a": 2}, 4.0), option({"b": 2}, 4.0)]

    def at(usd: float) -> Plan:
        rented = rent("b", 3.0, term_quarters=1)
        return plan(
            chip("a", buy("a", usd), stock=stock),
            chip("b", rented),
            discount_rate=0.0,
        )

    def hour(usd: float) -> float:
        years = math.log(1.08) / (1.0 - 1.08**-4)
        return usd * (years + 0.05) / 8760 + 150 / 8760 + 100 / 730 + 0.1

    even = (3.0 - 150 / 8760 - 100 / 730 - 0.1) * 8760 / (math.log(1.08) / (1.0 - 1.08**-4) + 0.05)
    assert hour(even) == pytest.approx(3.0)
    for usd, bought in ((0.98 * even, True), (1.02 * even, False)):
        one = at(usd)
        made = answer_of(one, options).document
        assert any(order["offer"] == "a, bought" for order in made["orders"]) is bought
        row = made["prices"][0]
        assert row["used"] is bought
        assert row[AT] == pytest.approx(even, rel=1e-3)


def test_the_times_of_a_rent_that_may_be_broken_have_one_price():
    """Held for a year or, at twice the price, for a quarter. Raised with its siblings the rent
    leaves at the price of the rival; one alone would leave the other in its place. With its wait
    goes theirs."""
    whole = rent("a", 2.0, term_quarters=4, lead_quarters=1)
    short = replace(whole, label="a, back", usd=2.0 * 2.0, term_quarters=1, breaks=whole.label)
    options = [option({"a": 2}, 4.0), option({"b": 2}, 4.0)]
    one = plan(
        chip("a", whole, short),
        chip("b", rent("b", 5.0, term_quarters=1)),
        used_after_end=0.0,
        discount_rate=0.0,
        quarters=2,
        demand=(demand(per_s=4.0),),
    )
    moved = with_offer(one, replace(whole, usd=3.0, lead_quarters=0))
    assert {o.label: (o.usd, o.lead_quarters) for o in moved.offers if o.chip == "a"} == {
        "a, rent": (3.0, 0),
        "a, back": (6.0, 0),
    }
    assert waits_for(replace(one, chips=one.chips[:1]), options[:1]) == ["a, rent"]
    # One quarter of service: broken, at 4, it is cheaper than 5; even at 2 x 5 / 4.
    found = {row["offer"]: row for row in answer_of(one, options).document["prices"]}
    assert list(found) == ["a, rent", "b, rent"]
    assert found["a, rent"]["used"]
    assert found["a, rent"][AT] == pytest.approx(2.5, rel=1e-3)
    assert found["a, rent"][WITHOUT] == pytest.approx(1.0 / 9.0)


def test_a_limit_of_nodes_is_no_proof_that_nothing_keeps_the_plan():
    none = Solved(None, math.inf, math.inf, math.inf, "infeasible", 0.0)
    late = replace(none, status="undecided: the limit of nodes was reached")
    some = Solved(Mix({}, {}, {}), 1.0, 1.0, 0.0, "optimal", 0.0)
    assert lack(none, "nothing keeps it") == "nothing keeps it"
    assert lack(late, "nothing keeps it").startswith("not known")
    assert lack(replace(some, gap=0.02), "nothing keeps it").startswith("not known")
    assert lack(some, "nothing keeps it") == ""


def test_what_buying_and_stock_save_is_said():
    one = plan(chip("a", buy("a", 100.0), stock=2), demand=(demand(per_s=4.0),))
    said = answer_of(one, [option({"a": 2}, 2.0)]).sentences
    assert "Nothing keeps the plan by renting alone, so that buying has no return." in said
    assert any(text.startswith("The 2 a of stock save $") for text in said)


def test_a_rate_is_said_only_of_what_is_rented_at_one_price():
    """What is bought also takes power and staff by the chip, so that no price says its rate."""
    options = [option({"a": 2}, 4.0), option({"b": 2}, 4.0)]
    for first, said in ((rent("a", 1.0), True), (buy("a", 5e3), False)):
        one = plan(chip("a", first), chip("b", rent("b", 1.5)))
        memo = answer_of(one, options).memo
        assert memo is not None
        words = memo().to_text(10_000)
        assert first.label + " stays up to" in words
        assert ("or down to" in words) is said


def test_what_must_give_is_named_with_by_how_much():
    one = plan(chip("a", rent("a", 2.0), watts=1e3), limits=Limits(watts=5e3, chips=4.0))
    made = answer_of(one, [option({"a": 2}, 4.0)]).document
    assert made["feasible"] is False
    # 10 a second take three servers, 6 kW and 6 chips; two give 8 a second.
    (gives,) = made["must_give"]
    assert gives["limits"] == ["demand chat"]
    assert gives["needed"] == pytest.approx([8.0])
    one = replace(one, limits=Limits(watts=5e3))
    made = answer_of(one, [option({"a": 2}, 4.0)])
    named = {row["limits"][0]: row["needed"][0] for row in made.document["must_give"]}
    assert named["watts"] == pytest.approx(6e3)
    assert "The power rises from 5 kW to 6 kW." in made.sentences
    assert made.document["feasible"] is False


def test_a_lead_time_that_is_too_long_is_named():
    one = plan(chip("a", rent("a", 2.0, lead_quarters=1)))
    found = answer_of(one, [option({"a": 2}, 4.0)])
    assert found.document["lead_time_too_long"] == ["a, rent"]
    assert "With no wait for a, rent, the plan holds." in found.sentences


def test_both_limits_together_where_neither_is_enough_alone():
    one = plan(
        chip("a", rent("a", 2.0), watts=1e3),
        chip("b", rent("b", 2.0), watts=2e3),
        limits=Limits(watts=3e3, racks=1.0, chips=4.0),
        demand=(demand(per_s=40.0),),
    )
    made = answer_of(one, [option({"a": 2}, 4.0), option({"b": 2}, 4.0)]).document
    assert made["must_give"]
    alone = [row["limits"] for row in made["must_give"] if len(row["limits"]) == 1]
    assert all(limits == ["demand chat"] for limits in alone)


def test_a_class_that_no_option_serves_is_said():
    one = plan(chip("a", rent("a", 2.0)), demand=(demand(), demand("code")))
    found = answer_of(one, [option({"a": 2}, 4.0)])
    assert found.headline.startswith("No fleet serves code")


def test_what_changes_a_large_fleet_is_no_gap_of_the_solver():
    """The shipped plan of an owner: more power than is used saves nothing, and the price at which
    H200 is bought is the one on either side of which a program solved to the end does without."""
    catalog = load_catalog()
    one = load_plan(Path("search_spaces/plans/a100-owner-grows.yaml"), catalog)
    one = replace(one, used_after_end=1.0)
    options, _ = options_of(one, catalog)
    split = divisible(one, options)
    base = solve(one, options, split=split)
    free = replace(one, limits=Limits())
    assert solve(free, options, split=split, gap=1e-7).usd == pytest.approx(base.usd, rel=2e-4)
    power = next(
        row for row in loosened(one, options, base, print) if row["limit"] == "the power (W)"
    )
    assert power["usd"] == 0.0
    offer = next(one for one in one.offers if one.label == "h200_sxm, bought")
    found = entry(one, options, base, offer, used=False, split=split)
    assert found[AT] is not None
    for factor, used in ((0.99, True), (1.02, False)):
        at = with_offer(one, replace(offer, usd=found[AT] * factor))
        mix = solve(at, options, split=split, gap=1e-7).mix
        assert mix is not None
        assert any(label == offer.label for label, _ in mix.orders) == used
