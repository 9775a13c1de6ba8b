"""`dse.economics.fleet_cost` against closed forms, and against the cost that the program counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.economics.fleet_cost import (
    Counted,
    Mix,
    by_quarter,
    count,
    discount,
    irr,
    returned,
)
from dse.schema.plan import Plan
from tests.unit.test_fleet import buy, chip, option, rent
from tests.unit.test_fleet import plan as plan_of

RATE = 0.08  # the cost of capital of those plans


def ordered(mix: dict[tuple[str, int], int], **more: Any) -> tuple[Plan, Counted]:
    made = chip("a", rent("a", 2.0), buy("a", 3e4, lead_quarters=1, life_quarters=16.0))
    plan = replace(plan_of(made, quarters=6), discount_rate=RATE, **more)
    return plan, count(plan, [option({"a": 2}, 1.0)], Mix(mix, {}, {}))


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
    plan, counted = ordered(orders, used_after_end=used)
    flows = by_quarter(plan, counted)
    within = (1.0 - (1.0 + RATE) ** -0.25) * 4.0 / math.log1p(RATE)
    charges = math.fsum(
        discount(plan, q) * usd for q, usd in enumerate(counted.by_chip["capital_usd"].sum(axis=1))
    )
    expected = counted.usd - (1.0 - within) * charges
    assert flows["present_usd"].sum() == pytest.approx(expected, rel=1e-9)
    assert flows["cash_usd"].sum() == pytest.approx(counted.signed_usd, rel=1e-9)
    assert flows["rent_owed_usd"][-1] == 0.0
    booked = flows["depreciation_usd"].sum() + flows["book_usd"][plan.quarters - 1]
    assert booked == pytest.approx(counted.bought_usd, abs=1e-6)


def test_later_rents_are_of_use_and_purchases_are_not() -> None:
    """Of a rent of 12 quarters and a plan of 6, half of the last six; of a purchase none."""
    for label, useful in (("a, rent", 0.5 * 6 * 2 * 2.0 * 2190.0), ("a, bought", 0.0)):
        plan, counted = ordered({(label, 0): 1}, used_after_end=0.5)
        flows = by_quarter(plan, counted)
        later = flows["worth_usd"][plan.quarters + (label == "a, bought") :].sum()
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
    plan, bought = ordered({("a, bought", 0): 1})
    _, rented = ordered({("a, rent", 1): 2})
    ours, theirs = by_quarter(plan, bought), by_quarter(plan, rented)
    found = returned(plan, ours, theirs)
    saves = theirs["present_usd"].sum() - ours["present_usd"].sum()
    assert found["present_usd_saved"] == pytest.approx(saves)
    # Two chips for $60,000 against 4 x $2 x 2,190 h a quarter: paid back in the fourth of them.
    assert found["payback_quarter"] == 2 + math.ceil(60_000 / (4 * 2.0 * 2190.0)) - 1
    assert found["irr_per_year"] is not None
    assert found["irr_per_year"] > plan.discount_rate
