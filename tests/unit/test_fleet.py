"""`dse.economics.fleet` against brute force, closed forms and its own count of the cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from dse.economics.fleet import solve
from dse.economics.fleet_cost import Mix, Option, capital_usd, count, discount
from dse.specs.plan import BUY, QUARTER_HOURS, RENT, DemandClass, FleetChip, Limits, Offer, Plan
from dse.study.fleet.answer import answer_of, document
from dse.study.fleet.changes import entries
from dse.study.fleet.options import _efficient
from dse.study.fleet.words import lead


def demand(name: str = "chat", per_s: float = 10.0, **more: float) -> DemandClass:
    given = {"peak": 1.0, "growth": 0.0} | more
    return DemandClass(
        name, ("m",), per_s, 1000, 100, 1.0, 0.05, given["peak"], given["growth"], math.inf,
        (), (), 0.0,
    )  # fmt: skip


def rent(chip: str, usd: float, **more) -> Offer:
    return Offer(chip, RENT, f"{chip}, rent", usd, "a test", **({"term_quarters": 12} | more))


def buy(chip: str, usd: float, **more) -> Offer:
    return Offer(chip, BUY, f"{chip}, bought", usd, "a test", **more)


def chip(name: str, *offers: Offer, server: int = 2, stock: int = 0, watts: float = 1e3):
    return FleetChip(name, server, watts, "", 4 * server, "", stock, offers)


def option(chips: dict[str, int], rate: float, klass: str = "chat") -> Option:
    return Option(klass, "m", chips, rate, 0.5, 0.04, " + ".join(chips))


def plan(*chips: FleetChip, **more) -> Plan:
    given = {
        "quarters": 2, "discount_rate": 0.08, "usd_per_kwh": 0.1, "spare_servers": 0,
        "spare_share": 0.0, "demand": (demand(),), "limits": Limits(),
    } | more  # fmt: skip
    return Plan(
        name="t", title="A test", description="", file="t.yaml", price_basis="rental_3yr",
        backend="generic", disaggregated=False, largest_instance=8, chips=chips, **given,
    )  # fmt: skip


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
    """The fewest owned servers, by their electricity, with which some instances serve quarter q."""
    names = [c.chip for c in one.chips]
    best = None
    for servers in itertools.product(*(range(owned[name] + 1) for name in names)):
        watts = sum(
            n * one.chip(name).server * one.chip(name).watts
            for n, name in zip(servers, names, strict=True)
        )
        if best is not None and watts >= best[0]:
            continue
        have = dict(zip(names, servers, strict=True))
        for runs in itertools.product(range(6), repeat=len(options)):
            mix = Mix({}, {}, {(k, q): n for k, n in enumerate(runs) if n})
            counted = count(one, options, mix).quarters[q]
            served = all(counted.capacity[c.name] >= c.peak_per_s(q) for c in one.demand)
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
                best = (watts, {(n, q): have[n] for n in names if have[n]}, mix.instances)
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
            chip("old", stock=4), chip("a", rent("a", 2.0)), spare_servers=1,
            demand=(demand(per_s=5.0, growth=0.4),),
        ),
        [option({"old": 1}, 1.0), option({"a": 1}, 3.0)],
    ),
    "power, and pools on two chips": (
        plan(
            chip("a", rent("a", 1.0), watts=900.0), chip("b", rent("b", 2.5), watts=500.0),
            limits=Limits(watts=5e3), spare_share=0.1, quarters=1,
        ),
        [option({"a": 2}, 4.0), option({"b": 2}, 4.0), option({"a": 1, "b": 1}, 3.5)],
    ),
    "cash": (
        plan(
            chip("a", rent("a", 3.0), buy("a", 2e4)), quarters=1,
            limits=Limits(usd_per_quarter=7e4),
        ),
        [option({"a": 2}, 4.0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_program_is_as_cheap_as_every_mix_tried(name: str):
    one, options = CASES[name]
    found = solve(one, options)
    assert found.mix is not None
    assert found.status == "optimal"
    counted = count(one, options, found.mix)
    assert not counted.broken
    assert counted.usd == pytest.approx(found.usd, rel=1e-9)
    assert found.usd == pytest.approx(brute(one, options), rel=1e-6)


def test_a_rent_costs_what_multiplication_says():
    one = plan(chip("a", rent("a", 2.0)), discount_rate=0.0)
    options = [option({"a": 2}, 4.0)]
    assert solve(one, options).usd == pytest.approx(3 * 2 * 2.0 * QUARTER_HOURS * 2)


def test_capital_is_charged_as_an_annuity():
    offer = buy("a", 1000.0, life_quarters=16.0)
    one = plan(chip("a", offer))
    charged = capital_usd(one, offer, 0)
    interest = 1.08**0.25 - 1.0
    worth = sum(charged / (1.0 + interest) ** k for k in range(1, 17))
    assert worth == pytest.approx(1000.0)
    assert capital_usd(replace(one, discount_rate=0.0), offer, 0) == pytest.approx(1000.0 / 16.0)


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


def test_sunk_stock_pays_electricity_alone():
    one = plan(chip("old", stock=6, watts=800.0), quarters=3)
    options = [option({"old": 2}, 4.0)]
    usd = 6 * 0.8 * QUARTER_HOURS * 0.1
    assert solve(one, options).usd == pytest.approx(sum(usd * discount(one, q) for q in range(3)))


def test_an_option_that_smaller_ones_replace_is_left_out():
    small, large = option({"a": 2}, 4.0), option({"a": 4}, 7.9)
    better, mixed = option({"a": 4}, 9.0), option({"a": 2, "b": 2}, 4.0)
    assert _efficient([large, small, mixed]) == [small]
    assert _efficient([better, small]) == [small, better]
