"""The cash of an order by quarter: what is paid and received, its worth today, what is still owed,
and what buying returns against another order.

`dse.economics.fleet_cost` counts what is bought as level payments over its life; here it is paid in
full when it arrives and worth something at the end of the plan
(`dse.economics.tco.book_and_worth`). Both ways have the same present value but for the quarter
within which a payment falls, where the plan is discounted at the cost of capital. Payments count
from the first day of their quarter. Books are straight-line over the life, down to the resale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dse.economics.fleet_cost import Counted, Mix, discount, rent_usd, serves
from dse.economics.tco import book_and_worth
from dse.schema.plan import BUY, RENT, Offer, Plan

REAL = 1e-9  # of a root: a smaller imaginary part is none


@dataclass(frozen=True, slots=True)
class Flow:
    """One quarter, the first 1, those after the plan too: undiscounted dollars. `worth` is what the
    chips that were bought bring when the plan ends, and of later rents the share that is of use
    (`useful`). `owed` is rent that is signed for and not yet paid at its end, `book` the books'
    value of what was bought, `present` today's worth of what is paid less `worth`."""

    quarter: int
    rent: float
    bought: float
    upkeep: float
    electricity: float
    worth: float
    useful: float
    depreciation: float
    book: float
    owed: float
    present: float

    @property
    def opex(self) -> float:
        return self.rent + self.upkeep + self.electricity

    @property
    def paid(self) -> float:
        return self.opex + self.bought


def cash_flow(plan: Plan, counted: Counted, mix: Mix) -> tuple[Flow, ...]:
    """Every quarter of the plan, then those for which rents are signed; the first after the plan
    also receives what is bought is worth."""
    orders = [
        (plan.offer(label), ordered, servers * plan.chip(plan.offer(label).chip).server)
        for (label, ordered), servers in mix.orders.items()
    ]
    end = plan.quarters
    rents = [one for one in orders if one[0].way == RENT]
    last = max((at + one.lead_quarters + one.term_quarters for one, at, _ in rents), default=end)
    last = max(last, end + bool(counted.bought_usd))
    rent = [
        sum(chips * rent_usd(one, at) for one, at, chips in rents if serves(one, at, q))
        for q in range(last)
    ]
    flows = []
    for q in range(last):
        spends = counted.quarters[q].spend.values() if q < end else ()
        bought, upkeep, electricity = (
            sum(getattr(one, name) for one in spends)
            for name in ("bought", "upkeep", "electricity")
        )
        useful = plan.used_after_end * rent[q] if q >= end else 0.0
        worth = useful + (worth_usd(plan, mix) if q == end else 0.0)
        paid = rent[q] + bought + upkeep + electricity
        books = [_books(plan, one, at, chips, q) for one, at, chips in orders if one.way == BUY]
        flows.append(
            Flow(
                quarter=q + 1,
                rent=rent[q],
                bought=bought,
                upkeep=upkeep,
                electricity=electricity,
                worth=worth,
                useful=useful,
                depreciation=sum(one for one, _ in books) if q < end else 0.0,
                book=sum(one for _, one in books) if q < end else 0.0,
                owed=sum(rent[q + 1 :]),
                present=discount(plan, q) * (paid - worth),
            )
        )
    return tuple(flows)


def worth_usd(plan: Plan, mix: Mix) -> float:
    """Dollars that what was bought is worth when the plan ends."""
    return sum(
        servers * plan.chip(plan.offer(label).chip).server * order_worth_usd(plan, offer, ordered)
        for (label, ordered), servers in mix.orders.items()
        if (offer := plan.offer(label)).way == BUY
    )


def order_worth_usd(plan: Plan, offer: Offer, ordered: int) -> float:
    """The same of a chip of a purchase: what a buyer pays; of the share `used_after_end` what is
    owed on it, as it goes on to earn that."""
    age = (plan.quarters - ordered - offer.lead_quarters) / 4.0
    owed, worth = book_and_worth(plan.costs, offer.life_quarters / 4.0, age)
    return offer.usd_in(ordered) * (worth + plan.used_after_end * (owed - worth))


def _books(plan: Plan, offer: Offer, ordered: int, chips: float, q: int) -> tuple[float, float]:
    """(depreciation in quarter q, value at its end) of a purchase, dollars."""
    since = q - ordered - offer.lead_quarters
    if since < 0:
        return 0.0, 0.0
    usd, lost = chips * offer.usd_in(ordered), 1.0 - plan.costs.value("resale")
    before, after = (min(age / offer.life_quarters, 1.0) for age in (since, since + 1))
    return usd * lost * (after - before), usd * (1.0 - lost * after)


def present_usd(flows: Sequence[Flow]) -> float:
    """Today's worth of all that is paid, less what is received."""
    return sum(one.present for one in flows)


@dataclass(frozen=True, slots=True)
class Return:
    """What an order earns against another: `saves` of today's worth; `irr` a year, the rate at
    which it would save nothing (of several the nearest on the side where it turns), None where it
    saves or loses at any rate; `payback` the quarter from which on it has cost less in all, None
    where only what is left pays it back."""

    irr: float | None
    payback: int | None
    saves: float


def returned(plan: Plan, ours: Sequence[Flow], other: Sequence[Flow]) -> Return:
    """What the first order earns by the cash that it pays earlier than the second."""
    last = max(len(ours), len(other))
    paid, worth = np.zeros(last), np.zeros(last)
    for flows, sign in ((ours, -1.0), (other, 1.0)):
        paid[: len(flows)] += [sign * one.paid for one in flows]
        worth[: len(flows)] -= [sign * one.worth for one in flows]
    behind = np.flatnonzero(np.cumsum(paid) < 0.0)
    payback = 1 if not len(behind) else int(behind[-1]) + 2
    saves = present_usd(other) - present_usd(ours)
    rates, now = irr(paid + worth), plan.discount_rate
    if saves > 0.0:
        rate = min((one for one in rates if one > now), default=None)
    else:
        rate = max((one for one in rates if one <= now), default=None)
    return Return(rate, payback if payback <= last else None, saves)


def irr(quarters: np.ndarray) -> list[float]:
    """Every rate a year at which flows (n,) of quarters are worth nothing today."""
    roots = np.roots(quarters[::-1])  # in 1 / (1 + rate of a quarter)
    real = roots.real[(abs(roots.imag) < REAL) & (roots.real > REAL)]
    return sorted(float(root**-4.0 - 1.0) for root in real)
