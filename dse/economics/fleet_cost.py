"""What a mix of a fleet costs and whether it keeps its plan, counted from the mix alone, apart from
the program that found it (`dse.economics.fleet`).

What is owned costs what the basis `owned_tco` says (`dse.economics.tco`): the capital of what is
bought as level payments over its life; upkeep
(maintenance, staff, space) and electricity of every owned chip that is on, which is drawn as the
mean of the demand over its peak loads it. One that is off pays its capital alone. The capital of
what is in stock already is sunk. Rents, payments and electricity flow through a quarter alike.

The end of the plan writes off what is signed beyond it: rents to the end of their term, and what is
owed on purchases over what they are worth by then (`dse.economics.tco.book_and_worth`). The share
`used_after_end` of both is of use then, and costs the plan nothing.

The cash of an order by quarter: what is paid and received, its worth today, what is still owed, and
what buying returns against another order. What is bought is paid in full when it arrives and worth
something at the end of the plan (`dse.economics.tco.book_and_worth`). Both ways of counting have
the same present value but for the quarter within which a payment falls, where the plan is
discounted at the cost of capital. Payments count from the first day of their quarter. Books are
straight-line over the life, down to the resale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dse.economics.tco import (
    book_and_worth,
    drawn_share,
    electricity_usd_per_hour,
    upkeep_usd_per_hour,
    yearly_capital,
)
from dse.schema.backend import KINDS
from dse.schema.plan import BUY, QUARTER_HOURS, RENT, Offer, Plan

SLACK = 1e-6  # relative, of sums of floats against their limit


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a class: an instance of `chips` by chip id (two chips where prefill and
    decode are apart) that serves `requests_per_s` within the limits: the median of first tokens
    where there is no `percentile`, else that. `formats` are those of weights and cache, `division`
    how it is divided over its chips, `bound` what bounds it ("pools" where prefill and decode are
    apart), `kind` how the kernel laws behind the rate are known, several with commas between."""

    klass: str
    model: str
    chips: Mapping[str, int]
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    label: str
    percentile: int | None = None
    formats: str = ""
    division: str = ""
    concurrency: int = 0
    bound: str = ""
    kind: str = KINDS[0]

    @property
    def divided(self) -> str:
        """`2 x h100_sxm, tp2`: the chips of an instance, and how it is divided over several."""
        several = self.division and sum(self.chips.values()) > 1
        return f"{self.label}, {self.division}" if several else self.label


@dataclass(frozen=True, slots=True)
class Mix:
    """Servers by (offer, quarter ordered), owned servers on by (chip, quarter), instances by
    (place among the options, quarter): whole numbers, unless the program was let split them."""

    orders: Mapping[tuple[str, int], float]
    on: Mapping[tuple[str, int], float]
    instances: Mapping[tuple[int, int], float]


@dataclass(slots=True)
class Spend:
    """Undiscounted dollars of a quarter. `bought` is paid when it arrives, `capital` is its charge
    over its life."""

    rent: float = 0.0
    capital: float = 0.0
    upkeep: float = 0.0
    electricity: float = 0.0
    bought: float = 0.0

    @property
    def usd(self) -> float:
        return self.rent + self.capital + self.upkeep + self.electricity

    @property
    def cash(self) -> float:
        return self.rent + self.bought + self.upkeep + self.electricity


@dataclass(frozen=True, slots=True)
class Quarter:
    """One quarter of a mix: servers and dollars by chip; `capacity` is requests per
    second by class, within the limits. Watts, racks and chips are those that count against the
    limits of the plan."""

    rented: Mapping[str, float]
    owned_on: Mapping[str, float]
    owned: Mapping[str, float]
    chips_used: Mapping[str, float]
    spend: Mapping[str, Spend]
    watts: float
    racks: int
    chips: float
    capacity: Mapping[str, float]

    @property
    def usd(self) -> float:
        return sum(one.usd for one in self.spend.values())

    @property
    def cash_usd(self) -> float:
        return sum(one.cash for one in self.spend.values())


@dataclass(frozen=True, slots=True)
class Counted:
    """The whole of a mix. `usd` is discounted, `written_off_usd` the part of it that the end of
    the plan writes off; `committed_usd` the rent that is signed for beyond it, not discounted;
    `broken` names what the mix does not keep."""

    quarters: tuple[Quarter, ...]
    usd: float
    written_off_usd: float
    committed_usd: float
    broken: tuple[str, ...]

    @property
    def within_usd(self) -> float:
        """What the quarters of the plan cost, undiscounted."""
        return sum(one.usd for one in self.quarters)

    @property
    def signed_usd(self) -> float:
        """All that the orders commit to: cash within the plan, and rents after it."""
        return sum(one.cash_usd for one in self.quarters) + self.committed_usd

    @property
    def bought_usd(self) -> float:
        """Dollars paid for what was bought, undiscounted."""
        return sum(one.bought for quarter in self.quarters for one in quarter.spend.values())


def discount(plan: Plan, quarter: int) -> float:
    return (1.0 + plan.discount_rate) ** (-quarter / 4.0)


def serves(offer: Offer, ordered: int, quarter: int) -> bool:
    """Whether what was ordered in one quarter is there in another."""
    since = quarter - ordered - offer.lead_quarters
    lasts = offer.term_quarters if offer.way == RENT else offer.life_quarters
    return 0 <= since < lasts


def rent_usd(offer: Offer, ordered: int) -> float:
    """Dollars per chip and quarter of a rent that was signed in quarter `ordered`."""
    return offer.usd_in(ordered) * QUARTER_HOURS


def capital_usd(plan: Plan, offer: Offer, ordered: int) -> float:
    """Dollars that a purchase costs per chip and quarter of its life."""
    rate, resale = plan.costs.value("cost_of_capital"), plan.costs.value("resale")
    return sum(yearly_capital(offer.usd_in(ordered), rate, offer.life_quarters / 4.0, resale)) / 4.0


def end_usd(plan: Plan, offer: Offer, ordered: int) -> float:
    """Discounted dollars per chip that the end of the plan writes off of an order: below zero
    where a purchase is worth more than is owed on it."""
    end, there = plan.quarters, ordered + offer.lead_quarters
    if offer.way == RENT:
        after = range(end, there + offer.term_quarters)
        lost = rent_usd(offer, ordered) * sum(discount(plan, quarter) for quarter in after)
    else:
        years, age = offer.life_quarters / 4.0, (end - there) / 4.0
        owed, worth = book_and_worth(plan.costs, years, age)
        lost = offer.usd_in(ordered) * (owed - worth) * discount(plan, end)
    return (1.0 - plan.used_after_end) * lost


def upkeep_usd(plan: Plan, chip: str) -> float:
    """Dollars of maintenance, staff and space per owned chip that is on, and quarter."""
    owning = plan.chip(chip).owning
    hourly = {} if owning is None else upkeep_usd_per_hour(owning, plan.costs)
    return sum(hourly.values()) * QUARTER_HOURS


def electricity_usd(plan: Plan, chip: str) -> float:
    """Dollars of electricity per owned chip that is on, and quarter, at the mean load."""
    owning = plan.chip(chip).owning
    if owning is None:
        return 0.0
    return electricity_usd_per_hour(owning, plan.costs, plan.busy) * QUARTER_HOURS


def site_kwh(plan: Plan, counted: Counted) -> float:
    """What is drawn at the plan's own meters in its quarters, at the mean load."""
    watts = sum(one.watts for one in counted.quarters) * drawn_share(plan.costs, plan.busy)
    return watts / 1000.0 * QUARTER_HOURS


def tokens(plan: Plan) -> float:
    """Prompt and output tokens of the mean demand over the horizon."""
    return sum(
        one.mean_per_s(q) * one.tokens * QUARTER_HOURS * 3600.0
        for one in plan.demand
        for q in range(plan.quarters)
    )


def count(plan: Plan, options: Sequence[Option], mix: Mix) -> Counted:
    """Every quarter of a mix, its discounted cost, and the limits of the plan that it breaks."""
    quarters = tuple(_quarter(plan, options, mix, q) for q in range(plan.quarters))
    committed = written_off = 0.0
    for (label, ordered), servers in mix.orders.items():
        offer = plan.offer(label)
        chips = servers * plan.chip(offer.chip).server
        written_off += chips * end_usd(plan, offer, ordered)
        if offer.way == RENT:
            left = max(ordered + offer.lead_quarters + offer.term_quarters - plan.quarters, 0)
            committed += left * chips * rent_usd(offer, ordered)
    return Counted(
        quarters,
        sum(discount(plan, q) * one.usd for q, one in enumerate(quarters)) + written_off,
        written_off,
        committed,
        tuple(_broken(plan, options, mix, quarters)),
    )


def _quarter(plan: Plan, options: Sequence[Option], mix: Mix, q: int) -> Quarter:
    rented: dict[str, float] = {}
    on_site: dict[str, float] = {}
    owned: dict[str, float] = {chip.chip: chip.stock // chip.server for chip in plan.chips}
    spend = {chip.chip: Spend() for chip in plan.chips}
    for (label, ordered), servers in mix.orders.items():
        offer = plan.offer(label)
        chips = servers * plan.chip(offer.chip).server
        if not serves(offer, ordered, q):
            continue
        if offer.way == BUY:
            owned[offer.chip] += servers
            spend[offer.chip].capital += chips * capital_usd(plan, offer, ordered)
            if ordered + offer.lead_quarters == q:
                spend[offer.chip].bought += chips * offer.usd_in(ordered)
        else:
            rented[offer.chip] = rented.get(offer.chip, 0) + servers
            spend[offer.chip].rent += chips * rent_usd(offer, ordered)
            if offer.on_site:
                on_site[offer.chip] = on_site.get(offer.chip, 0) + servers
    on = {chip: servers for (chip, at), servers in mix.on.items() if at == q}
    here = {chip.chip: on_site.get(chip.chip, 0) + on.get(chip.chip, 0) for chip in plan.chips}
    for chip, servers in on.items():
        chips = servers * plan.chip(chip).server
        spend[chip].upkeep = chips * upkeep_usd(plan, chip)
        spend[chip].electricity = chips * electricity_usd(plan, chip)
    used: dict[str, float] = {}
    capacity = {one.name: 0.0 for one in plan.demand}
    for (k, at), instances in mix.instances.items():
        if at == q:
            capacity[options[k].klass] += instances * options[k].requests_per_s
            for chip, chips in options[k].chips.items():
                used[chip] = used.get(chip, 0) + instances * chips
    return Quarter(
        rented=rented,
        owned_on=on,
        owned=owned,
        chips_used=used,
        spend=spend,
        watts=sum(n * plan.chip(chip).server * plan.chip(chip).watts for chip, n in here.items()),
        racks=sum(
            math.ceil(n * plan.chip(chip).server / plan.chip(chip).chips_per_rack)
            for chip, n in here.items()
        ),
        chips=sum(n * plan.chip(chip).server for chip, n in here.items()),
        capacity=capacity,
    )


def _broken(
    plan: Plan, options: Sequence[Option], mix: Mix, quarters: Sequence[Quarter]
) -> list[str]:
    """What the mix does not keep, one line each."""
    found: list[str] = []

    def at_most(value: float, limit: float, words: str) -> None:
        if value > limit * (1.0 + SLACK) + SLACK:
            found.append(f"{words}: {value:.6g} over {limit:.6g}")

    for (label, ordered), servers in mix.orders.items():
        offer = plan.offer(label)
        chips = servers * plan.chip(offer.chip).server
        at_most(chips, offer.chips_per_quarter, f"supply of {label} in quarter {ordered + 1}")
    for q, one in enumerate(quarters):
        where = f"in quarter {q + 1}"
        for klass in plan.demand:
            at_most(klass.peak_per_s(q), one.capacity[klass.name], f"peak of {klass.name} {where}")
        for chip in plan.chips:
            used = one.chips_used.get(chip.chip, 0)
            have = one.rented.get(chip.chip, 0) + one.owned_on.get(chip.chip, 0)
            spare = plan.spare_servers if used else 0
            needed = (1.0 + plan.spare_share) * used
            at_most(needed, chip.server * (have - spare), f"chips of {chip.chip} {where}")
            on = one.owned_on.get(chip.chip, 0)
            at_most(on, one.owned[chip.chip], f"owned servers of {chip.chip} {where}")
        limits = plan.limits
        at_most(one.watts, limits.watts, f"watts {where}")
        at_most(one.racks, limits.racks, f"racks {where}")
        at_most(one.chips, limits.chips, f"chips {where}")
        at_most(one.usd / QUARTER_HOURS, limits.usd_per_hour, f"dollars per hour {where}")
        at_most(one.cash_usd, limits.usd_per_quarter, f"dollars {where}")
    at_most(sum(one.cash_usd for one in quarters), plan.limits.usd_total, "dollars in all")
    return found


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
