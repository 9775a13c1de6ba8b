"""`dse.economics.fleet` against brute force, and the mixes that it finds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.economics import program
from dse.economics.fleet import Solved, divisible, program_of, settled, solve, with_offer
from dse.economics.fleet_cost import (
    Mix,
    Option,
    count,
    electricity_usd,
    upkeep_usd,
)
from dse.questions.fleet.changes import entry, lack, loosened, waits_for
from dse.questions.fleet.fleet import answer_of
from dse.questions.fleet.options import efficient, options_of
from dse.schema.plan import QUARTER_HOURS, Limits, Plan
from dse.schema.plan_reader import load_plan
from tests.helpers_fleet import buy, chip, demand, option, plan, rent


def brute(one: Plan, options: list[Option], most: int = 3) -> float:
    """The lowest cost over every number of servers ordered, on, and instances run."""
    orders = [
        (offer.label, q)
        for offer in one.offers
        for q in range(one.quarters)
        if q + offer.lead_quarters < one.quarters and q + 1 >= offer.from_quarter
    ]
    best = math.inf
    for counts in itertools.product(range(most + 1), repeat=len(orders)):
        ordered = dict(zip(orders, counts, strict=True))
        on: dict[tuple[str, int], int] = {}
        run: dict[tuple[int, int], float] = {}
        empty = count(one, options, Mix(ordered, {}, {})).by_chip
        for q in range(one.quarters):
            found = _quarter(one, options, q, empty["rented"][q], empty["owned"][q])
            if found is None:
                break
            on |= found[0]
            run |= found[1]
        else:
            counted = count(one, options, Mix(ordered, on, run))
            if not counted.broken:
                best = min(best, counted.usd)
    return best


def _quarter(one: Plan, options: list[Option], q: int, rented, owned):
    """The owned servers that cost least to run, with which some instances serve quarter q."""
    names = [c.chip for c in one.chips]
    best = None
    for servers in itertools.product(*(range(int(owned[k]) + 1) for k in range(len(names)))):
        usd = sum(
            n * one.chip(name).server * (upkeep_usd(one, name) + electricity_usd(one, name))
            for n, name in zip(servers, names, strict=True)
        )
        if best is not None and usd >= best[0]:
            continue
        have = dict(zip(names, servers, strict=True))
        for runs in itertools.product(range(6), repeat=len(options)):
            run = list(zip(runs, options, strict=True))
            used = [sum(n * o.chips.get(name, 0) for n, o in run) for name in names]
            served = all(
                sum(n * o.requests_per_s for n, o in run if o.klass == c.name) >= c.peak_per_s(q)
                for c in one.demand
            )
            fits = all(
                (1.0 + one.spare_share) * chips
                <= c.server * (there + have[c.chip] - (one.spare_servers if chips else 0))
                for c, chips, there in zip(one.chips, used, rented, strict=True)
            )
            if served and fits:
                instances = {(k, q): n for k, n in enumerate(runs) if n}
                best = (usd, {(n, q): have[n] for n in names if have[n]}, instances)
                break
    return None if best is None else best[1:]


CASES = {
    "grows, and the price falls": (
        plan(
            chip("a", rent("a", 2.0, term_quarters=1, price_change=-0.2)),
            demand=(demand(per_s=6.0, growth=0.5),),
        ),
        [option({"a": 1}, 2.0), option({"a": 2}, 4.5)],
    ),
    "buy later or rent now": (
        plan(
            chip(
                "a",
                rent("a", 3.0, term_quarters=1),
                buy("a", 2e4, lead_quarters=1, price_change=-0.1),
            ),
            demand=(demand(per_s=8.0, growth=0.2),),
        ),
        [option({"a": 2}, 4.0)],
    ),
    "cheaper from the second quarter": (
        plan(
            chip("a", rent("a", 3.0, term_quarters=2)),
            chip("b", rent("b", 1.0, from_quarter=2)),
            demand=(demand(per_s=4.0, growth=0.5),),
        ),
        [option({"a": 2}, 4.0), option({"b": 2}, 4.0)],
    ),
    "stock and spares": (
        plan(
            chip("old", stock=4),
            chip("a", rent("a", 2.0)),
            spare_servers=1,
            demand=(demand(per_s=5.0, growth=0.4),),
        ),
        [option({"old": 1}, 1.0), option({"a": 1}, 3.0)],
    ),
    "power, and pools on two chips": (
        plan(
            chip("a", rent("a", 1.0), watts=900.0),
            chip("b", rent("b", 2.5), watts=500.0),
            limits=Limits(watts=5e3),
            spare_share=0.1,
            quarters=1,
        ),
        [option({"a": 2}, 4.0), option({"b": 2}, 4.0), option({"a": 1, "b": 1}, 3.5)],
    ),
    "cash": (
        plan(
            chip("a", rent("a", 3.0), buy("a", 2e4)),
            quarters=1,
            limits=Limits(usd_per_quarter=7e4),
        ),
        [option({"a": 2}, 4.0)],
    ),
}


@pytest.mark.parametrize("used", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("name", CASES)
def test_the_program_is_as_cheap_as_every_mix_tried(name: str, used: float):
    """Whatever share of what is signed beyond the end is of use then."""
    one, options = CASES[name]
    one = replace(one, used_after_end=used)
    found = solve(one, options)
    assert found.mix is not None
    assert found.status == "optimal"
    counted = count(one, options, found.mix)
    assert not counted.broken
    assert counted.usd == pytest.approx(found.usd, rel=1e-9)
    assert found.usd == pytest.approx(brute(one, options), rel=1e-6)


USD_PER_HOUR = st.floats(0.5, 5.0)


@pytest.mark.parametrize(("per_s", "gap"), [(32.0, 1e-9), (100.0, 5e-3)])
def test_falling_demand_signs_no_more_years_than_every_order_tried(per_s: float, gap: float):
    """Demand falls by 30% a quarter: one instance of 2 chips a server, 4 requests a second, for
    three years at 1.30 or a quarter at 4.29. Every number of three-year orders in every quarter is
    counted by itself, quarterly ones fill up: the program is within its gap, of 25 instances that
    of a large fleet. Where what is signed beyond the end weighed nothing, the orders would cost 15%
    more."""
    quarters, years, days, rate = 4, 1.3, 4.29, 0.1
    one = plan(
        chip("a", rent("a", years), replace(rent("a", days, term_quarters=1), label="daily")),
        quarters=quarters,
        discount_rate=rate,
        demand=(demand(per_s=per_s, growth=-0.3),),
        used_after_end=0.0,
    )
    needed = np.ceil(per_s * 0.7 ** np.arange(quarters) / 4.0 - 1e-9)
    signed = np.stack(np.meshgrid(*[np.arange(needed[0] + 1)] * quarters, indexing="ij"), -1)
    signed = signed.reshape(-1, quarters)
    worth = (1.0 + rate) ** (-np.arange(quarters + 12) / 4.0)
    each = [worth[q : q + 12].sum() for q in range(quarters)]
    short = np.maximum(needed - np.cumsum(signed, axis=1), 0.0)
    usd = 2.0 * QUARTER_HOURS * (years * signed @ each + days * short @ worth[:quarters])
    options = [option({"a": 2}, 4.0)]
    found = solve(one, options)
    assert usd.min() == pytest.approx(found.usd, rel=gap)
    assert found.bound <= usd.min() * (1.0 + 1e-9)
    unweighed = solve(replace(one, used_after_end=1.0), options)
    assert unweighed.mix is not None
    assert count(one, options, unweighed.mix).usd > 1.1 * found.usd


@pytest.mark.parametrize(
    ("chips", "rate", "servers"), [({"a": 4}, 2.0, 15), ({"a": 8}, 2.0, 30), ({"a": 8}, 4.0, 15)]
)
def test_many_classes_of_a_large_fleet_are_served_by_more_than_split_instances_say(
    chips: dict[str, int], rate: float, servers: int
):
    """Five classes at 10.1 requests a second, each of which needs one instance more than its tenth
    of one: far more servers than where instances are split, and no fewer keep the plan."""
    one = plan(
        chip("a", rent("a", 2.0), server=8),
        demand=tuple(demand(f"class {k}", per_s=10.1) for k in range(5)),
        quarters=1,
    )
    options = [option(chips, rate, klass.name) for klass in one.demand]
    found = solve(one, options)
    assert found.mix is not None
    assert found.mix.orders == {("a, rent", 0): servers}
    assert found.usd == pytest.approx(servers * 8 * 2.0 * QUARTER_HOURS)
    fewer = replace(one, limits=Limits(chips=8.0 * servers - 8.0))
    assert solve(fewer, options).status == "infeasible"
    assert solve(one, options, below=0.99 * found.usd).mix is None


def test_what_becomes_of_the_stock_is_said():
    def said(usd: float, growth: float) -> str:
        one = plan(chip("old", stock=6), chip("a", rent("a", usd)), demand=(demand(growth=growth),))
        options = [option({"old": 2}, 4.0), option({"a": 2}, 20.0)]
        return answer_of(one, options).headline

    assert "run 6 of the 6 old that are owned:" in said(9.0, 0.0)
    assert "leave the 6 old that are owned off:" in said(0.01, 0.0)
    assert "run up to 6 of the 6 old that are owned (6 in quarter 1, 4 in quarter 2):" in said(
        9.0, -0.4
    )


def test_an_option_that_smaller_ones_replace_is_left_out():
    small, large = option({"a": 2}, 4.0), option({"a": 4}, 7.9)
    better, mixed = option({"a": 4}, 9.0), option({"a": 2, "b": 2}, 4.0)
    assert efficient([large, small, mixed]) == [small]
    assert efficient([better, small]) == [small, better]


def test_each_quarter_is_served_on_the_fewest_chips():
    """Which instances stand on chips that are there anyway is not left to chance: one on two chips
    is enough where three on one each were."""
    one = plan(chip("a", rent("a", 1.0), server=8), demand=(demand(per_s=3.0),))
    options = [option({"a": 1}, 1.0), option({"a": 2}, 3.0)]
    mix = Mix({("a, rent", 0): 1}, {}, {(0, q): 3 for q in range(one.quarters)})
    found = settled(one, options, mix)
    assert found.orders == mix.orders
    assert found.instances == {(1, q): 1 for q in range(one.quarters)}
    assert not count(one, options, found).broken


def as_the_whole_program(
    one: Plan, options: list[Option], split: tuple[str, ...], gap: float = 1e-6
) -> None:
    """The least cost is that of the program itself, with every column and limit."""
    found = solve(one, options, split=split, gap=gap, nodes=20_000)
    plain = program.solve(program_of(one, options, split=split), gap=1e-6, nodes=200_000)
    assert (found.mix is None) == (plain.value is None)
    if found.mix is not None:
        assert found.usd == pytest.approx(plain.usd, rel=max(2.0 * gap, 3e-6))
        assert found.bound <= plain.usd * (1.0 + 1e-6)


@settings(max_examples=20, deadline=None)
@given(
    rates=st.lists(st.floats(0.5, 9.0), min_size=6, max_size=6),
    prices=st.lists(USD_PER_HOUR, min_size=4, max_size=4),
    spares=st.integers(0, 1),
    supply=st.sampled_from([6.0, 40.0, math.inf]),
    watts=st.sampled_from([3e4, math.inf]),
    per_s=st.floats(30.0, 90.0),
)
def test_fewer_columns_and_whole_servers_in_use_say_what_the_whole_program_says(
    rates: list[float],
    prices: list[float],
    spares: int,
    supply: float,
    watts: float,
    per_s: float,
):
    """Instances that need not be whole, every order whole, every option a column: the same cost as
    of the program that has the best options alone and makes servers in use whole."""
    one = plan(
        chip("a", rent("a", prices[0]), buy("a", 1e4 * prices[1], chips_per_quarter=supply)),
        chip("b", rent("b", prices[2], term_quarters=1), stock=6),
        chip("c", rent("c", prices[3], lead_quarters=1)),
        demand=(demand(per_s=per_s, growth=0.3), demand("code", 0.4 * per_s, growth=-0.2)),
        spare_servers=spares,
        limits=Limits(watts=watts),
        quarters=3,
    )
    sizes = ({"a": 1}, {"a": 2}, {"b": 2}, {"a": 1, "b": 1}, {"c": 1}, {"c": 2})
    options = [
        option(chips, rate * sum(chips.values()), klass)
        for chips, rate in zip(sizes, rates, strict=True)
        for klass in ("chat", "code")
    ]
    as_the_whole_program(one, options, ("run",))


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.floats(2.0, 6.0), min_size=6, max_size=6),
    prices=st.lists(st.floats(1.0, 4.0), min_size=4, max_size=4),
    servers=st.lists(st.sampled_from([1, 2, 4]), min_size=3, max_size=3),
    supply=st.sampled_from([12.0, math.inf, math.inf]),
    watts=st.sampled_from([5e4, math.inf, math.inf]),
    lead=st.integers(0, 1),
    used=st.sampled_from([0.0, 1.0]),
)
def test_chips_that_another_replaces_change_neither_a_split_nor_a_whole_fleet(
    rates: list[float],
    prices: list[float],
    servers: list[int],
    supply: float,
    watts: float,
    lead: int,
    used: float,
):
    """Of split servers, where chips that another replaces are left out, and of whole ones, which
    split instances bound and whose chips in use they suggest."""
    one = plan(
        chip("a", rent("a", prices[0]), server=servers[0], watts=1e3),
        chip("b", rent("b", prices[1], chips_per_quarter=supply), server=servers[1], watts=2e3),
        chip("c", rent("c", prices[2], lead_quarters=lead), server=servers[2], watts=500.0),
        demand=(demand(per_s=40.0, growth=0.3), demand("code", 20.0, growth=-0.2)),
        spare_servers=1,
        limits=Limits(watts=watts),
        quarters=3,
        used_after_end=used,
    )
    options = [
        option({name: 1}, rate, klass)
        for (name, klass), rate in zip(
            itertools.product("abc", ("chat", "code")), rates, strict=True
        )
    ]
    as_the_whole_program(one, options, ("run", "servers"))
    as_the_whole_program(one, options, (), gap=1e-4)


# What would change a fleet, and what must give where nothing keeps the plan.


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
    none = Solved(None, math.inf, math.inf, math.inf, "infeasible")
    late = replace(none, status="undecided: the limit of nodes was reached")
    some = Solved(Mix({}, {}, {}), 1.0, 1.0, 0.0, "optimal")
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
