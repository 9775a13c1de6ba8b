"""What a mix of a fleet costs and whether it keeps its plan, counted from the mix alone, apart from
the program that found it (`dse.economics.fleet`).

What is owned costs what the basis `owned_tco` says (`dse.economics.tco`): the capital of what is
bought as level payments over its life; upkeep (maintenance, staff, space) and electricity of every
owned chip that is on, which is drawn as the mean of the demand over its peak loads it. One that is
off pays its capital alone. The capital of what is in stock already is sunk. Rents, payments and
electricity flow through a quarter alike.

The end of the plan writes off what is signed beyond it: rents to the end of their term, and what is
owed on purchases over what they are worth by then (`dse.economics.tco.book_and_worth`). The share
`used_after_end` of both is of use then, and costs the plan nothing.

The cash of an order by quarter: what is paid and received, its worth today, what is still owed, and
what buying returns against another order. What is bought is paid in full when it arrives and worth
something at the end of the plan (`dse.economics.tco.book_and_worth`). Both ways of counting have
the same present value but for the quarter within which a payment falls, where the plan is
discounted at the cost of capital. Payments count from the first day of their quarter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.economics.tco import (
    book_and_worth,
    drawn_share,
    electricity_usd_per_hour,
    upkeep_usd_per_hour,
    yearly_capital,
)
from dse.schema.backend import KINDS
from dse.schema.plan import BUY, QUARTER_HOURS, RENT, DemandClass, Offer, Plan

Floats = NDArray[np.float64]
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


def unserved(plan: Plan, options: Sequence[Option]) -> list[DemandClass]:
    """Classes that no option serves."""
    served = {option.klass for option in options}
    return [one for one in plan.demand if one.name not in served]


@dataclass(frozen=True, slots=True)
class Mix:
    """Servers by (offer, quarter ordered), owned servers on by (chip, quarter), instances by
    (place among the options, quarter): whole numbers, unless the program was let split them."""

    orders: Mapping[tuple[str, int], float]
    on: Mapping[tuple[str, int], float]
    instances: Mapping[tuple[int, int], float]


def orders_of(plan: Plan, mix: Mix) -> list[tuple[Offer, int, float, float]]:
    """Offer, quarter, servers and chips of each order."""
    orders = [(plan.offer(label), q, servers) for (label, q), servers in mix.orders.items()]
    return [(*one, one[2] * plan.chip(one[0].chip).server) for one in orders]


# What `Counted.by_chip` has: servers, chips in use, undiscounted dollars. `bought_usd` is paid when
# it arrives, `capital_usd` its charge over its life.
SERVERS = ("rented", "owned", "on")
DOLLARS = ("rent_usd", "capital_usd", "upkeep_usd", "electricity_usd")
BY_CHIP = (*SERVERS, "serving_chips", *DOLLARS, "bought_usd")


@dataclass(frozen=True, slots=True)
class Counted:
    """The whole of a mix. `by_chip` are arrays (quarters, chips of the plan), `capacity` (quarters,
    classes) requests per second within the limits; `watts`, `racks` and `chips` (quarters,) count
    against the limits of the plan, so do the dollars `usd_by_quarter` and those paid, `cash_usd`.
    `usd` is discounted, `written_off_usd` the part of it that the end of the plan writes off;
    `committed_usd` the rent that is signed for beyond it, not discounted; `broken` names what the
    mix does not keep."""

    mix: Mix
    by_chip: Mapping[str, Floats]
    capacity: Floats
    watts: Floats
    racks: Floats
    chips: Floats
    usd: float
    written_off_usd: float
    committed_usd: float
    broken: tuple[str, ...]

    @property
    def usd_by_quarter(self) -> Floats:
        return np.sum([self.by_chip[name] for name in DOLLARS], axis=(0, 2))

    @property
    def cash_usd(self) -> Floats:
        paid = ("rent_usd", "bought_usd", "upkeep_usd", "electricity_usd")
        return np.sum([self.by_chip[name] for name in paid], axis=(0, 2))

    @property
    def within_usd(self) -> float:
        """What the quarters of the plan cost, undiscounted."""
        return float(self.usd_by_quarter.sum())

    @property
    def signed_usd(self) -> float:
        """All that the orders commit to: cash within the plan, and rents after it."""
        return float(self.cash_usd.sum()) + self.committed_usd

    @property
    def bought_usd(self) -> float:
        """Dollars paid for what was bought, undiscounted."""
        return float(self.by_chip["bought_usd"].sum())


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
    watts = float(counted.watts.sum()) * drawn_share(plan.costs, plan.busy)
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
    column = {chip.chip: k for k, chip in enumerate(plan.chips)}
    classes = {one.name: k for k, one in enumerate(plan.demand)}
    server = [chip.server for chip in plan.chips]
    by = {name: np.zeros((plan.quarters, len(column))) for name in BY_CHIP}
    by["owned"] += [chip.stock // chip.server for chip in plan.chips]
    on_site, capacity = by["on"].copy(), np.zeros((plan.quarters, len(classes)))
    committed = written_off = 0.0
    for offer, ordered, servers, chips in orders_of(plan, mix):
        k, first = column[offer.chip], ordered + offer.lead_quarters
        there = [q for q in range(plan.quarters) if serves(offer, ordered, q)]
        written_off += chips * end_usd(plan, offer, ordered)
        if offer.way == BUY:
            by["owned"][there, k] += servers
            by["capital_usd"][there, k] += chips * capital_usd(plan, offer, ordered)
            if first < plan.quarters:
                by["bought_usd"][first, k] += chips * offer.usd_in(ordered)
            continue
        by["rented"][there, k] += servers
        by["rent_usd"][there, k] += chips * rent_usd(offer, ordered)
        on_site[there, k] += servers * offer.on_site
        after = max(first + offer.term_quarters - plan.quarters, 0)
        committed += after * chips * rent_usd(offer, ordered)
    for (chip, q), servers in mix.on.items():
        k = column[chip]
        by["on"][q, k], chips = servers, servers * server[k]
        by["upkeep_usd"][q, k] = chips * upkeep_usd(plan, chip)
        by["electricity_usd"][q, k] = chips * electricity_usd(plan, chip)
    for (k, q), instances in mix.instances.items():
        capacity[q, classes[options[k].klass]] += instances * options[k].requests_per_s
        for chip, chips in options[k].chips.items():
            by["serving_chips"][q, column[chip]] += instances * chips
    here = (on_site + by["on"]) * server
    racks = np.ceil(here / [chip.chips_per_rack for chip in plan.chips])
    counted = Counted(
        mix=mix,
        by_chip=by,
        capacity=capacity,
        watts=(here * [chip.watts for chip in plan.chips]).sum(axis=1),
        racks=racks.sum(axis=1),
        chips=here.sum(axis=1),
        usd=0.0,
        written_off_usd=written_off,
        committed_usd=committed,
        broken=(),
    )
    discounted = sum(discount(plan, q) * usd for q, usd in enumerate(counted.usd_by_quarter))
    broken = tuple(_broken(plan, counted))
    return replace(counted, usd=float(discounted) + written_off, broken=broken)


def _broken(plan: Plan, counted: Counted) -> list[str]:
    """What the mix does not keep, one line each."""
    found: list[str] = []

    def at_most(value: Any, limit: Any, words: str) -> None:
        """Of values by quarter each, or of one."""
        for q, (one, most) in enumerate(np.broadcast(value, limit)):
            if one > most * (1.0 + SLACK) + SLACK:
                where = f" in quarter {q + 1}" if np.ndim(value) else ""
                found.append(f"{words}{where}: {one:.6g} over {most:.6g}")

    limits, by = plan.limits, counted.by_chip
    for offer, ordered, _, chips in orders_of(plan, counted.mix):
        at_most(chips, offer.chips_per_quarter, f"supply of {offer.label} in quarter {ordered + 1}")
        at_most(offer.from_quarter, ordered + 1.0, f"first quarter of {offer.label}")
    for k, one in enumerate(plan.demand):
        peaks = np.array([one.peak_per_s(q) for q in range(plan.quarters)])
        at_most(peaks, counted.capacity[:, k], f"peak of {one.name}")
    for k, chip in enumerate(plan.chips):
        rented, owned, on, used = (by[name][:, k] for name in (*SERVERS, "serving_chips"))
        spare = np.where(used > 0.0, plan.spare_servers, 0)
        needed = (1.0 + plan.spare_share) * used
        at_most(needed, chip.server * (rented + on - spare), f"chips of {chip.chip}")
        at_most(on, owned, f"owned servers of {chip.chip}")
    at_most(counted.watts, limits.watts, "watts")
    at_most(counted.racks, limits.racks, "racks")
    at_most(counted.chips, limits.chips, "chips")
    at_most(counted.usd_by_quarter / QUARTER_HOURS, limits.usd_per_hour, "dollars per hour")
    at_most(counted.cash_usd, limits.usd_per_quarter, "dollars")
    at_most(counted.cash_usd.sum(), limits.usd_total, "dollars in all")
    return found


REAL = 1e-9  # of a root: a smaller imaginary part is none


def by_quarter(plan: Plan, counted: Counted) -> dict[str, NDArray[Any]]:
    """Columns (n,) of every quarter of the plan, then of those for which rents are signed, under
    the keys of the vocabulary: undiscounted dollars, NaN where a quarter has none. After the plan,
    `worth_usd` is the share of later rents that is of use, and in the first of these quarters what
    was bought is worth. `rent_owed_usd` is rent that is signed for and not yet paid at the end of a
    quarter, `book_usd` the books' value of what was bought, `present_usd` today's worth of what is
    paid less `worth_usd`."""
    orders, end = orders_of(plan, counted.mix), plan.quarters
    rents = [at + o.lead_quarters + o.term_quarters for o, at, *_ in orders if o.way == RENT]
    last = max([*rents, end + bool(counted.bought_usd)])
    within, quarters = np.arange(last) < end, np.arange(last)
    rent, depreciation, book, left = np.zeros(last), np.zeros(last), np.zeros(last), 0.0
    for offer, at, _, chips in orders:
        if offer.way == RENT:
            rent += [chips * rent_usd(offer, at) * serves(offer, at, q) for q in range(last)]
            continue
        # The books: a straight line from the price to the resale, over the life.
        since, life = quarters - at - offer.lead_quarters, offer.life_quarters
        left += chips * order_worth_usd(plan, offer, at)
        usd, lost = chips * offer.usd_in(at), 1.0 - plan.costs.value("resale")
        before, after = (np.minimum(age / life, 1.0) for age in (since, since + 1))
        there = within & (since >= 0)
        depreciation += np.where(there, usd * lost * (after - before), 0.0)
        book += np.where(there, usd * (1.0 - lost * after), 0.0)

    def padded(values: Floats) -> Floats:
        return np.append(values, np.zeros(last - end))

    paid = {name: padded(counted.by_chip[name].sum(axis=1)) for name in (*DOLLARS, "bought_usd")}
    cash = rent + paid["bought_usd"] + paid["upkeep_usd"] + paid["electricity_usd"]
    worth = np.where(within, 0.0, plan.used_after_end * rent)
    worth += np.where(quarters == end, left, 0.0)
    there = {name: paid[name] for name in DOLLARS[1:]}
    there["usd"] = padded(counted.usd_by_quarter)
    there |= {"watts": padded(counted.watts), "racks": padded(counted.racks)}
    return {
        "quarter": quarters + 1,
        "rent_usd": rent,
        **{name: np.where(within, values, np.nan) for name, values in there.items()},
        "bought_usd": paid["bought_usd"],
        "cash_usd": cash,
        "cash_so_far_usd": np.cumsum(cash),
        "worth_usd": worth,
        "present_usd": (1.0 + plan.discount_rate) ** (-quarters / 4.0) * (cash - worth),
        "depreciation_usd": depreciation,
        "book_usd": book,
        "rent_owed_usd": np.cumsum(rent[::-1])[::-1] - rent,
    }


def order_worth_usd(plan: Plan, offer: Offer, ordered: int) -> float:
    """Dollars that a chip of a purchase is worth when the plan ends: what a buyer pays; of the
    share `used_after_end` what is owed on it, as it goes on to earn that."""
    age = (plan.quarters - ordered - offer.lead_quarters) / 4.0
    owed, worth = book_and_worth(plan.costs, offer.life_quarters / 4.0, age)
    return offer.usd_in(ordered) * (worth + plan.used_after_end * (owed - worth))


def returned(
    plan: Plan, ours: Mapping[str, Floats], other: Mapping[str, Floats]
) -> dict[str, float | int | None]:
    """What the first order earns by the cash that it pays earlier than the second, of `by_quarter`
    each: `present_usd_saved` of today's worth; `irr_per_year`, the rate at which it would save
    nothing (of several the nearest on the side where it turns), None where it saves or loses at any
    rate; `payback_quarter`, from which on it has cost less in all, None where only what is left
    pays it back."""
    last = max(len(ours["quarter"]), len(other["quarter"]))
    paid, worth = np.zeros(last), np.zeros(last)
    for flows, sign in ((ours, -1.0), (other, 1.0)):
        paid[: len(flows["quarter"])] += sign * flows["cash_usd"]
        worth[: len(flows["quarter"])] -= sign * flows["worth_usd"]
    behind = np.flatnonzero(np.cumsum(paid) < 0.0)
    payback = 1 if not len(behind) else int(behind[-1]) + 2
    saves = float(other["present_usd"].sum() - ours["present_usd"].sum())
    rates, now = irr(paid + worth), plan.discount_rate
    if saves > 0.0:
        rate = min((one for one in rates if one > now), default=None)
    else:
        rate = max((one for one in rates if one <= now), default=None)
    return {
        "present_usd_saved": saves,
        "irr_per_year": rate,
        "payback_quarter": payback if payback <= last else None,
    }


def irr(quarters: np.ndarray) -> list[float]:
    """Every rate a year at which flows (n,) of quarters are worth nothing today."""
    roots = np.roots(quarters[::-1])  # in 1 / (1 + rate of a quarter)
    real = roots.real[(abs(roots.imag) < REAL) & (roots.real > REAL)]
    return sorted(float(root**-4.0 - 1.0) for root in real)
