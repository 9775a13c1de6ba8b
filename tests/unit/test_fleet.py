"""`dse.economics.fleet` against brute force, closed forms and its own count of the cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.economics.fleet import settled, solve, with_offer
from dse.economics.fleet_cost import (
    Mix,
    Option,
    capital_usd,
    count,
    discount,
    electricity_usd,
    end_usd,
    upkeep_usd,
)
from dse.economics.tco import usd_per_chip_hour
from dse.questions.fleet.answer import answer_of
from dse.questions.fleet.changes import entries, entry, loosened
from dse.questions.fleet.document import document
from dse.questions.fleet.options import _efficient, options_of
from dse.questions.fleet.words import lead
from dse.schema.costs import Cost
from dse.schema.owning import Owning
from dse.schema.plan import BUY, QUARTER_HOURS, RENT, DemandClass, FleetChip, Limits, Offer, Plan
from dse.schema.plan_reader import load_plan
from dse.schema.traffic import Requests, Traffic

YEAR_S = 8760.0 * 3600.0


def demand(name: str = "chat", per_s: float = 10.0, **more: float) -> DemandClass:
    traffic = Traffic((Requests(1.0, 1000.0, 100.0),), per_s, **more)
    return DemandClass(name, ("m",), traffic, ttft_s=1.0, tpot_s=0.05)


COSTS = load_catalog().costs.changed(
    {
        "life": 4.0 * YEAR_S,
        "cost_of_capital": 0.08,
        "resale": 0.0,
        "maintenance": 0.05,
        "staff": 150.0,
        "space": 100.0,
        "electricity": 0.1,
    }
)
FREE = COSTS.changed(dict.fromkeys(("maintenance", "staff", "space"), 0.0))


def rent(chip: str, usd: float, **more: Any) -> Offer:
    given: dict[str, Any] = {"term_quarters": 12} | more
    return Offer(chip, RENT, f"{chip}, rent", usd, "a test", **given)


def buy(chip: str, usd: float, **more) -> Offer:
    return Offer(chip, BUY, f"{chip}, bought", usd, "a test", **more)


def chip(name: str, *offers: Offer, server: int = 2, stock: int = 0, watts: float = 1e3):
    bought = [offer.usd for offer in offers if offer.way == BUY]
    figure = Cost("price", 1.0, "", "assumed", "a test", "", "")
    owning = Owning(bought[0] if bought else 1e4, 0.0, watts, watts, figure, figure)
    return FleetChip(
        name,
        server,
        watts,
        "",
        4 * server,
        "",
        stock,
        offers,
        owning=owning if bought or stock else None,
    )


def option(chips: dict[str, int], rate: float, klass: str = "chat") -> Option:
    return Option(klass, "m", chips, rate, 0.5, 0.04, " + ".join(chips))


def plan(*chips: FleetChip, **more) -> Plan:
    given = {
        "quarters": 2,
        "discount_rate": 0.08,
        "costs": COSTS,
        "spare_servers": 0,
        "spare_share": 0.0,
        "demand": (demand(),),
        "limits": Limits(),
        "used_after_end": 1.0,
    } | more
    return Plan(
        name="t",
        title="A test",
        description="",
        file="t.yaml",
        price_basis="rental_3yr",
        backend="generic",
        disaggregated=False,
        largest_instance=8,
        chips=chips,
        own=load_catalog().source,
        **given,
    )


def brute(one: Plan, options: list[Option], most: int = 3) -> float:
    """The lowest cost over every number of servers ordered, on, and instances run."""
    orders = [
        (offer.label, q)
        for offer in one.offers
        for q in range(one.quarters)
        if q + offer.lead_quarters < one.quarters
    ]
    best = math.inf
    for counts in itertools.product(range(most + 1), repeat=len(orders)):
        ordered = dict(zip(orders, counts, strict=True))
        on: dict[tuple[str, int], int] = {}
        run: dict[tuple[int, int], int] = {}
        empty = count(one, options, Mix(ordered, {}, {}))
        for q, quarter in enumerate(empty.quarters):
            found = _quarter(one, options, q, quarter.rented, quarter.owned)
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
    for servers in itertools.product(*(range(owned[name] + 1) for name in names)):
        usd = sum(
            n * one.chip(name).server * (upkeep_usd(one, name) + electricity_usd(one, name))
            for n, name in zip(servers, names, strict=True)
        )
        if best is not None and usd >= best[0]:
            continue
        have = dict(zip(names, servers, strict=True))
        for runs in itertools.product(range(6), repeat=len(options)):
            mix = Mix({}, {}, {(k, q): n for k, n in enumerate(runs) if n})
            counted = count(one, options, mix).quarters[q]
            served = all(counted.capacity[c.name] >= c.traffic.peak_per_s(q) for c in one.demand)
            fits = all(
                (1.0 + one.spare_share) * counted.chips_used.get(name, 0)
                <= one.chip(name).server
                * (
                    rented.get(name, 0)
                    + have[name]
                    - (one.spare_servers if counted.chips_used.get(name) else 0)
                )
                for name in names
            )
            if served and fits:
                best = (usd, {(n, q): have[n] for n in names if have[n]}, mix.instances)
                break
    return None if best is None else best[1:]


CASES = {
    "two chips": (
        plan(chip("a", rent("a", 2.0)), chip("b", rent("b", 3.1)), quarters=1),
        [option({"a": 2}, 4.0), option({"b": 2}, 7.0), option({"b": 1}, 3.0)],
    ),
    "grows, and the price falls": (
        plan(
            chip("a", rent("a", 2.0, term_quarters=1, price_change=-0.2)),
            demand=(demand(per_s=6.0, growth=0.5),),
        ),
        [option({"a": 1}, 2.0), option({"a": 2}, 4.5)],
    ),
    "buy later or rent now": (
        plan(
            chip("a", rent("a", 3.0, term_quarters=1), buy("a", 2e4, lead_quarters=1)),
            demand=(demand(per_s=8.0, growth=0.2),),
        ),
        [option({"a": 2}, 4.0)],
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
    "buy one and rent another": (
        plan(
            chip("a", buy("a", 3e4, price_change=-0.1)),
            chip("b", rent("b", 2.6), stock=2),
            demand=(demand(per_s=7.0, growth=0.5),),
        ),
        [option({"a": 2}, 4.0), option({"b": 1}, 2.0)],
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


@settings(max_examples=15, deadline=None)
@given(
    capital=st.floats(1e3, 9e4),
    first=USD_PER_HOUR,
    second=USD_PER_HOUR,
    stock=st.sampled_from([0, 2]),
    per_s=st.floats(1.0, 12.0),
)
def test_no_other_mix_is_cheaper_whatever_the_prices(
    capital: float, first: float, second: float, stock: int, per_s: float
):
    """To buy, to rent or to run what is owned: as cheap as every mix tried; both counts agree."""
    one = plan(
        chip("a", buy("a", capital), rent("a", first, term_quarters=1), stock=stock),
        chip("b", rent("b", second)),
        demand=(demand(per_s=per_s),),
        quarters=1,
    )
    options = [option({"a": 2}, 5.0), option({"b": 1}, 3.0)]
    found = solve(one, options)
    assert found.mix is not None
    counted = count(one, options, found.mix)
    assert not counted.broken
    assert counted.usd == pytest.approx(found.usd, rel=1e-9)
    assert found.usd == pytest.approx(brute(one, options, most=3), rel=2e-4)


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


def test_a_rent_signed_beyond_the_end_costs_the_plan_its_whole_term():
    whole = plan(chip("a", rent("a", 2.0)), discount_rate=0.0, used_after_end=0.0)
    options = [option({"a": 2}, 4.0)]
    found = answer_of(whole, options)
    assert found.solved.usd == pytest.approx(3 * 2 * 2.0 * QUARTER_HOURS * 12)
    assert found.counted is not None
    assert found.counted.written_off_usd == found.counted.committed_usd
    assert found.counted.signed_usd == pytest.approx(found.solved.usd)
    said = lead(found)[0]
    assert said.index("signed for in all") < said.index("2 quarters")


def test_falling_demand_signs_no_more_years_than_every_order_tried():
    """Demand falls by 30% a quarter: one instance of 2 chips a server, 4 requests a second, for
    three years at 1.30 or a quarter at 4.29. Every number of three-year orders in every quarter is
    counted by itself, quarterly ones fill up: the program is within 1%. Where what is signed beyond
    the end weighed nothing, the orders would cost 15% more."""
    quarters, years, days, rate = 4, 1.3, 4.29, 0.1
    one = plan(
        chip("a", rent("a", years), replace(rent("a", days, term_quarters=1), label="daily")),
        quarters=quarters,
        discount_rate=rate,
        demand=(demand(per_s=32.0, growth=-0.3),),
        used_after_end=0.0,
    )
    needed = np.ceil(32.0 * 0.7 ** np.arange(quarters) / 4.0 - 1e-9)
    signed = np.stack(np.meshgrid(*[np.arange(needed[0] + 1)] * quarters, indexing="ij"), -1)
    signed = signed.reshape(-1, quarters)
    worth = (1.0 + rate) ** (-np.arange(quarters + 12) / 4.0)
    each = [worth[q : q + 12].sum() for q in range(quarters)]
    short = np.maximum(needed - np.cumsum(signed, axis=1), 0.0)
    usd = 2.0 * QUARTER_HOURS * (years * signed @ each + days * short @ worth[:quarters])
    options = [option({"a": 2}, 4.0)]
    found = solve(one, options)
    assert usd.min() == pytest.approx(found.usd, rel=1e-9)
    unweighed = solve(replace(one, used_after_end=1.0), options)
    assert unweighed.mix is not None
    assert count(one, options, unweighed.mix).usd > 1.1 * found.usd


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
    assert hourly == pytest.approx(usd_per_chip_hour(catalog, name, "owned_tco").usd_per_chip_hour)
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
    on = count(one, [option({"a": 2}, 4.0)], replace(mix, on={("a", 0): 1})).quarters[0]
    hourly = 1e4 * 0.05 / 8760 + 150 / 8760 + 1.0 * 100 / 730
    assert on.spend["a"].upkeep == pytest.approx(2 * QUARTER_HOURS * hourly)
    assert on.spend["a"].electricity == pytest.approx(2 * QUARTER_HOURS * 1.0 * 0.1)


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
    found = {row.offer.chip: row for row in entries(one, options, solve(one, options), print)}
    assert not found["a"].used
    assert found["a"].usd_at == pytest.approx(2.0, rel=1e-4)
    # With a at 2.5, b is left at 3 x 2.5 / 2.
    assert found["b"].used
    assert found["b"].usd_at == pytest.approx(3.75, rel=1e-4)
    assert found["b"].without == pytest.approx(0.25)


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
        found = solve(one, options)
        assert found.mix is not None
        assert bool(found.mix.orders.get(("a, bought", 0))) is bought
        row = entries(one, options, found, print)[0]
        assert row.used is bought
        assert row.usd_at == pytest.approx(even, rel=1e-3)


def test_dearer_is_never_cheaper():
    options = [option({"a": 2}, 4.0), option({"b": 1}, 3.0)]
    costs = [
        solve(plan(chip("a", rent("a", usd)), chip("b", rent("b", 3.0))), options).usd
        for usd in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    ]
    assert costs == sorted(costs)


def test_what_must_give_is_named_with_by_how_much():
    one = plan(chip("a", rent("a", 2.0), watts=1e3), limits=Limits(watts=5e3, chips=4.0))
    answer = answer_of(one, [option({"a": 2}, 4.0)])
    assert answer.counted is None
    # 10 a second take three servers, 6 kW and 6 chips; two give 8 a second.
    assert [row.limits for row in answer.gives] == [("demand chat",)]
    assert answer.gives[0].needed == pytest.approx((8.0,))
    one = replace(one, limits=Limits(watts=5e3))
    answer = answer_of(one, [option({"a": 2}, 4.0)])
    named = {row.limits[0]: row.needed[0] for row in answer.gives}
    assert named["watts"] == pytest.approx(6e3)
    said = " ".join(lead(answer))
    assert "The power rises from 5 kW to 6 kW" in said
    assert document(answer, [said])["feasible"] is False


def test_a_lead_time_that_is_too_long_is_named():
    one = plan(chip("a", rent("a", 2.0, lead_quarters=1)))
    answer = answer_of(one, [option({"a": 2}, 4.0)])
    assert answer.waits == ("a, rent",)
    assert "With no wait for a, rent, the plan holds" in " ".join(lead(answer))


def test_both_limits_together_where_neither_is_enough_alone():
    one = plan(
        chip("a", rent("a", 2.0), watts=1e3),
        chip("b", rent("b", 2.0), watts=2e3),
        limits=Limits(watts=3e3, racks=1.0, chips=4.0),
        demand=(demand(per_s=40.0),),
    )
    answer = answer_of(one, [option({"a": 2}, 4.0), option({"b": 2}, 4.0)])
    assert answer.counted is None
    assert answer.gives
    assert all(row.limits == ("demand chat",) for row in answer.gives if row.alone)


def test_a_class_that_no_option_serves_is_said():
    one = plan(chip("a", rent("a", 2.0)), demand=(demand(), demand("code")))
    answer = answer_of(one, [option({"a": 2}, 4.0)])
    assert answer.unserved == ("code",)
    assert lead(answer)[0].startswith("No fleet serves code")


def test_what_is_rented_beyond_the_horizon_is_counted_apart():
    one = plan(chip("a", rent("a", 2.0, term_quarters=5)), discount_rate=0.0)
    options = [option({"a": 2}, 4.0)]
    found = solve(one, options)
    assert found.mix is not None
    counted = count(one, options, found.mix)
    assert counted.committed_usd == pytest.approx(counted.usd / 2 * 3)


def test_what_is_bought_is_said_at_what_it_takes_in_cash():
    """Of the cost of a short plan, a purchase is the small part that these quarters are charged."""
    one = plan(chip("a", buy("a", 40e3, life_quarters=20.0)), discount_rate=0.0)
    answer = answer_of(one, [option({"a": 2}, 4.0)])
    assert answer.counted is not None
    bought = answer.counted.bought_usd
    chips = sum(row["chips"] for row in document(answer, [])["orders"])
    assert bought == chips * 40e3 == document(answer, [])["usd_bought"]
    assert any(
        f"paid for in full on arrival: ${bought:,.0f} in cash" in text for text in lead(answer)
    )
    assert answer.counted.usd < bought / 2


def test_what_changes_a_large_fleet_is_no_gap_of_the_solver():
    """The shipped plan of an owner: more power than is used saves nothing, and the price at which
    H200 is bought is the one on either side of which a program solved to the end does without."""
    catalog = load_catalog()
    one = load_plan(Path("search_spaces/plans/a100-owner-grows.yaml"), catalog)
    one = replace(one, used_after_end=1.0)
    options, _ = options_of(one, catalog)
    base, whole = solve(one, options, split=True), solve(one, options)
    free = replace(one, limits=Limits())
    assert solve(free, options, split=True, gap=1e-7).usd == pytest.approx(base.usd, rel=2e-4)
    power = next(row for row in loosened(one, options, whole, print) if row.what == "watts")
    assert power.usd == 0.0
    offer = next(one for one in one.offers if one.label == "h200_sxm, bought")
    found = entry(one, options, base, offer, used=False, split=True)
    assert found.usd_at is not None
    for factor, used in ((0.99, True), (1.02, False)):
        at = with_offer(one, replace(offer, usd=found.usd_at * factor))
        mix = solve(at, options, split=True, gap=1e-7).mix
        assert mix is not None
        assert any(label == offer.label for label, _ in mix.orders) == used


def test_sunk_stock_pays_electricity_and_upkeep_alone():
    one = plan(chip("old", stock=6, watts=800.0), quarters=3, costs=FREE)
    options = [option({"old": 2}, 4.0)]
    usd = 6 * 0.8 * QUARTER_HOURS * 0.1
    assert solve(one, options).usd == pytest.approx(sum(usd * discount(one, q) for q in range(3)))


def test_what_becomes_of_the_stock_is_said():
    def said(usd: float, growth: float) -> str:
        one = plan(chip("old", stock=6), chip("a", rent("a", usd)), demand=(demand(growth=growth),))
        return lead(answer_of(one, [option({"old": 2}, 4.0), option({"a": 2}, 20.0)]))[0]

    assert "run 6 of the 6 old that are owned:" in said(9.0, 0.0)
    assert "leave the 6 old that are owned off:" in said(0.01, 0.0)
    assert "run up to 6 of the 6 old that are owned (6 in quarter 1, 4 in quarter 2):" in said(
        9.0, -0.4
    )


def test_an_option_that_smaller_ones_replace_is_left_out():
    small, large = option({"a": 2}, 4.0), option({"a": 4}, 7.9)
    better, mixed = option({"a": 4}, 9.0), option({"a": 2, "b": 2}, 4.0)
    assert _efficient([large, small, mixed]) == [small]
    assert _efficient([better, small]) == [small, better]


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
