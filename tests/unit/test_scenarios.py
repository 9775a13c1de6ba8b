"""`dse.economics.scenarios` against closed forms and enumeration; draws against their intervals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.economics.fleet import solve
from dse.economics.fleet_cost import Option
from dse.economics.scenarios import (
    Counter,
    Futures,
    Hedged,
    Program,
    futures_of,
    hedged,
    margins,
)
from dse.schema.plan import Limits, Plan
from tests.helpers_fleet import chip, demand, option, plan, rent

LEVEL = 0.8
SD = 0.25
DRAWN = 500


def plan_of(*offers: float, per_s: float = 100.0, **more: Any) -> Plan:
    """Chips at dollars an hour, one by one, for one class."""
    names = ("h100_sxm", "mi300x", "b200_sxm")[: len(offers)]
    chips = (chip(name, rent(name, usd), server=1) for name, usd in zip(names, offers, strict=True))
    return plan(*chips, **{"quarters": 1, "demand": (demand(per_s=per_s),), **more})


def options_of(plan: Plan, rate: float = 1.0) -> list[Option]:
    return [option({chip.chip: 1}, rate) for chip in plan.chips]


def futures(plan: Plan, count: int, seed: int, *, demand: float = 0.0, rate: float = 0.0):
    """Log-normal with these standard deviations; rates err by chip."""
    rng = np.random.default_rng(seed)
    of_demand = np.exp(demand * rng.standard_normal((count, 1, plan.quarters)))
    of_rate = np.exp(rate * rng.standard_normal((count, len(plan.chips))))
    return Futures(of_demand, of_rate, np.ones((count, len(plan.offers))), np.zeros(count, bool))


def solved(plan: Plan, options: list[Option], *, level: float = LEVEL, **errors: float) -> Hedged:
    counter = Counter(plan, options, futures(plan, DRAWN, 2, **errors))
    return hedged(plan, options, futures(plan, 60, 1, **errors), counter, level, {})


@pytest.mark.parametrize("level", [0.6, 0.8, 0.9])
def test_one_chip_is_the_quantile_of_a_newsvendor(level: float):
    plan = plan_of(2.0)
    one = solved(plan, options_of(plan), level=level, demand=SD)
    wanted = 100.0 * math.exp(SD * NormalDist().inv_cdf(level))
    assert sum(one.order.values()) == pytest.approx(wanted, rel=0.05)
    assert one.reached
    assert one.share == pytest.approx(level, abs=0.03)
    assert one.headroom == pytest.approx(sum(one.order.values()) / 100.0 - 1.0, abs=1e-6)


def test_two_chips_that_err_apart_need_less_than_one():
    alone, both = plan_of(2.0), plan_of(2.0, 2.0)
    one = solved(alone, options_of(alone), rate=SD)
    two = solved(both, options_of(both), rate=SD)
    assert min(two.order.values()) > 0.2 * sum(two.order.values())
    assert sum(two.order.values()) < sum(one.order.values())
    assert two.usd < one.usd


@pytest.mark.parametrize("prices", [(2.0, 2.1), (2.0, 1.9, 2.2)])
def test_the_order_is_nearly_the_cheapest_of_all_that_serve_enough(prices: tuple[float, ...]):
    plan = plan_of(*prices, per_s=12.0)
    options = options_of(plan)
    one = solved(plan, options, rate=SD, demand=0.1)
    seen = futures(plan, DRAWN, 2, rate=SD, demand=0.1)
    enough = [
        sum(n * usd for n, usd in zip(order, prices, strict=True))
        for order in itertools.product(range(22), repeat=len(prices))
        if (
            np.array(order) * seen.rate @ np.ones(len(prices)) >= 12.0 * seen.demand[:, 0, 0]
        ).mean()
        >= LEVEL
    ]
    paid = sum(
        one.order.get(offer.label, 0) * usd for offer, usd in zip(plan.offers, prices, strict=True)
    )
    assert one.reached
    assert paid <= min(enough) * 1.08


def test_what_can_wait_is_not_ordered_now():
    """Demand doubles in the second quarter: rents without a lead time are ordered then, those with
    one are ordered now."""
    plan = plan_of(2.0, quarters=2, demand=(demand(per_s=100.0, growth=1.0),))
    now = solved(plan, options_of(plan), demand=SD)
    assert sum(now.order.values()) == pytest.approx(100.0 * math.exp(SD * 0.84), rel=0.06)


def test_what_is_signed_is_ordered_though_it_is_more_than_the_prediction_needs():
    plan = plan_of(2.0, 2.1)
    options = options_of(plan)
    first, second = (offer.label for offer in plan.offers)
    assert solve(plan, options).mix.orders == {(first, 0): 100}  # type: ignore[union-attr]
    for split in ((), ("run",), ("run", "servers")):
        found = solve(replace(plan, signed={first: 250, second: 7}), options, split=split)
        assert found.mix is not None
        assert found.mix.orders == pytest.approx({(first, 0): 250, (second, 0): 7})
    none = solve(replace(plan, signed={}), options)
    assert none.status == "infeasible"


def test_what_is_late_is_not_counted_upon():
    """Three times the demand in the second quarter: half of what serves it is ordered a quarter
    before, and the other offer has no more."""
    plan = plan_of(1.0, 2.0, quarters=2)
    waits = replace(plan.chips[0].offers[0], lead_quarters=1, chips_per_quarter=100.0)
    scarce = replace(plan.chips[1].offers[0], chips_per_quarter=100.0)
    plan = replace(
        plan,
        demand=(replace(plan.demand[0], growth_per_quarter=2.0),),
        chips=(
            replace(plan.chips[0], offers=(waits,)),
            replace(plan.chips[1], offers=(scarce,)),
        ),
    )
    options = options_of(plan)
    even = Futures.predicted(plan, options)
    late = replace(even, late=np.ones(1, bool))
    order = {offer.label: 100 for offer in plan.offers}
    found = [margins(Program(plan, options), one, order)[0] for one in (even, late)]
    assert found == pytest.approx([1.0, 2.0 / 3.0])


def test_a_cap_that_leaves_too_little_is_said():
    plan = plan_of(2.0, limits=Limits(watts=110e3))
    one = solved(plan, options_of(plan), demand=SD)
    most = math.floor(110e3 / plan.chips[0].watts)
    assert not one.reached
    assert one.share == pytest.approx(NormalDist().cdf(math.log(most / 100.0) / SD), abs=0.04)


def test_knowing_more_is_worth_more():
    plan = plan_of(2.0, 2.1)
    one = solved(plan, options_of(plan), rate=SD, demand=SD)
    assert 0.0 <= one.measuring_usd <= one.waiting_usd + 1e-6 * one.usd
    assert one.waiting_usd > 0.0
    assert one.low < one.usd < one.high or one.low == pytest.approx(one.high)
    sure = solved(plan, options_of(plan))
    assert sure.waiting_usd == pytest.approx(0.0, abs=2e-2 * sure.usd)
    assert sure.share == 1.0


def test_whole_instances_count_in_a_small_fleet():
    """Two servers of three chips hold one instance of two chips each: split ones would be three."""
    plan = plan_of(2.0, per_s=2.9)
    plan = replace(plan, chips=(replace(plan.chips[0], server=3),))
    options = [replace(options_of(plan)[0], chips={"h100_sxm": 2})]
    sure = Futures.predicted(plan, options)
    counter = Counter(plan, options, sure)
    label = plan.offers[0].label
    assert [counter.share({label: n}) for n in (1, 2, 3)] == [0.0, 1.0, 1.0]
    needs_three = Counter(plan, options, sure.larger(1.1))
    assert [needs_three.share({label: n}) for n in (2, 3)] == [0.0, 1.0]


def test_draws_are_those_of_the_published_intervals():
    catalog = load_catalog()
    plan = plan_of(2.0, 2.0, 2.0, quarters=4)
    options = options_of(plan)
    drawn = futures_of(plan, options, catalog, 20_000, (3, 1))
    low, high = catalog.calibration.spread["throughput"]["fitted"]
    for k in range(3):
        assert np.quantile(drawn.rate[:, k], [0.1, 0.9]) == pytest.approx([low, high], rel=0.02)
    sd = math.log(1.2) / 1.2815515594
    spread = np.log(drawn.demand[:, 0]).std(axis=0)
    assert spread == pytest.approx(sd * np.sqrt([1, 2, 3, 4]), rel=0.03)
    assert (drawn.price == 1.0).all()  # the plan's own
    given = replace(plan, uncertainty=replace(plan.uncertainty, measured=("mi300x",), prices=0.3))
    again = futures_of(given, options, catalog, 2000, (3, 1))
    assert (again.rate[:, 1] == 1.0).all()
    assert np.quantile(again.price[:, 0], [0.1, 0.9]) == pytest.approx([1 / 1.3, 1.3], rel=0.05)


def test_the_same_seed_draws_the_same_and_chips_behind_move_nothing():
    catalog = load_catalog()
    two, three = plan_of(2.0, 2.0), plan_of(2.0, 2.0, 2.0)
    first, again = (futures_of(two, options_of(two), catalog, 50, (0, 1)) for _ in range(2))
    other = futures_of(two, options_of(two), catalog, 50, (1, 1))
    more = futures_of(three, options_of(three), catalog, 50, (0, 1))
    assert (first.rate == again.rate).all()
    assert (first.demand == again.demand).all()
    assert (first.rate != other.rate).any()
    assert (first.rate == more.rate[:, :2]).all()
