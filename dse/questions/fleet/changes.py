"""What would change the answer: the plan solved again with one thing changed. Of a fleet of more
than MANY instances, with instances that need not be whole, before and after: one is small beside
the fleet, and the program is solved in a fraction of the time.

The price at which an offer enters or leaves is exact: with x the cheapest mix at a price, the cost
of x is B + A price; the next price is where that equals the cost without the offer, until no mix
that uses it is cheaper (Dinkelbach, on a cost that is the lowest of straight lines). The price of
what is bought also moves the maintenance of as many chips that are owned already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dse.economics.fleet import (
    DEMAND,
    GAP,
    NOTHING,
    SUPPLY,
    Solved,
    divisible,
    limits_of,
    solve,
    with_limit,
    with_offer,
)
from dse.economics.fleet_cost import Mix, Option, count
from dse.schema.plan import Offer, Plan

MORE = 0.1  # by which a limit or a demand is changed
STEPS = 16  # of the search for a price
STARTS = (0.5, 0.02)  # of the price, where it begins
QUICK = 200  # nodes of one solve
THOROUGH = 5000  # where the limit of nodes would end the search for a price
LOOSE = 0.01  # a larger gap is no answer
NEAR = 1e-3  # of a price with split instances
TIGHT = 5 * GAP  # a smaller difference is no difference

LATE = "not known: the limit of nodes was reached"
EVEN = "in or out: the same to the gap of the program"

Progress = Callable[[str], None]


@dataclass(slots=True)
class Steps:
    """Progress that says how many of the steps of an answer are done, and about how many seconds
    the rest takes if steps go on as they did."""

    say: Progress
    plan: Plan
    done: int = 0
    start: float = field(default_factory=time.monotonic)

    @property
    def steps(self) -> int:
        """Instances by class, model and chip, the program, each limit, each price, three ways that
        were not searched, and futures."""
        models = sum(len(one.models) for one in self.plan.demand)
        options = models * (len(self.plan.chips) + self.plan.disaggregated)
        return options + 1 + len(limits_of(self.plan)) + len(self.plan.unbroken) + 4

    def __call__(self, words: str) -> None:
        left = ""
        if self.done:
            each = (time.monotonic() - self.start) / self.done
            left = f", about {each * max(self.steps - self.done, 1):.0f} s left"
        self.done += 1
        self.say(f"{words} ({min(self.done, self.steps)} of {self.steps}{left})")


@dataclass(frozen=True, slots=True)
class Loosened:
    """One limit, supply or demand, `MORE` larger: the cost changes by `usd`. `before` and `after`
    are its values; `usd` is None where the program
    was not solved in time, or nothing keeps the plan then (`status`)."""

    what: str
    before: float
    after: float
    usd: float | None
    status: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One offer. `used`: it is in the mix. `usd_at` is the price at which it enters the mix, or
    leaves it altogether; None where nothing serves without it, or where no price lets it in.
    `without` is the share by which the fleet costs more without it, None where not known."""

    offer: Offer
    used: bool
    usd_at: float | None
    without: float | None
    reason: str


def loosened(
    plan: Plan, options: Sequence[Option], base: Solved, progress: Progress
) -> list[Loosened]:
    """Every limit and every supply that is given, then every demand, one at a time; `base` is the
    answer as it is, with split instances where they are so here."""
    split = divisible(plan, options)
    found = []
    values = {what: (value, _more(plan, what, value)) for what, value in limits_of(plan).items()}
    caps = [what for what in values if not what.startswith(DEMAND)]
    idle = len(caps) > 1 and _idle(plan, options, base, {what: values[what][1] for what in caps})
    for what, (value, more) in values.items():
        kind = what.partition(" ")[0]
        if idle and kind != DEMAND:
            found.append(Loosened(what, value, more, 0.0, base.status))
            continue
        progress(f"{MORE:.0%} more: {what}")
        again = solve(with_limit(plan, what, more), options, nodes=QUICK, split=split)
        usd = None if again.gap > LOOSE else again.usd - base.usd
        if usd is not None and (abs(usd) < TIGHT * base.usd or (usd > 0.0) != (kind == DEMAND)):
            usd = 0.0
        elif usd is not None and abs(usd) < base.usd - base.bound + again.usd - again.bound:
            usd = None  # either may still be as much cheaper
        found.append(Loosened(what, value, more, usd, again.status))
    return found


def lack(solved: Solved, nothing: str) -> str:
    """Why this is no answer: `nothing` where that is proven, not known where the nodes came to
    their end before or left too large a gap; empty where it is one."""
    if solved.status == NOTHING.status:
        return nothing
    return LATE if solved.mix is None or solved.gap > LOOSE else ""


def _more(plan: Plan, what: str, value: float) -> float:
    """A tenth more, of a supply a server at least."""
    kind, _, name = what.partition(" ")
    more = value * (1.0 + MORE)
    if kind == SUPPLY:
        more = max(more, value + plan.chip(plan.offer(name).chip).server)
    return more


def _idle(plan: Plan, options: Sequence[Option], base: Solved, caps: Mapping[str, float]) -> bool:
    """Whether more of every limit and supply at once saves nothing: then none alone does."""
    for what, more in caps.items():
        plan = with_limit(plan, what, more)
    split = divisible(plan, options)
    again = solve(plan, options, nodes=QUICK, split=split)
    return again.gap <= LOOSE and base.usd - again.usd < TIGHT * base.usd


def entries(
    plan: Plan, options: Sequence[Option], solved: Solved, base: Solved, progress: Progress
) -> list[Entry]:
    """The price at which each offer enters or leaves, a rent with all its breaks; `base` as in
    `loosened`."""
    split = divisible(plan, options)
    found = []
    for offer in plan.unbroken:
        progress(f"price of {offer.label}")
        used = _uses(plan, solved.mix, offer) if solved.mix is not None else False
        found.append(entry(plan, options, base, offer, used=used, split=split))
    return found


def entry(
    plan: Plan,
    options: Sequence[Option],
    base: Solved,
    offer: Offer,
    *,
    used: bool,
    split: Sequence[str] = (),
) -> Entry:
    """The price of one offer at which the cheapest mix begins, or ceases, to use it; `base` is the
    answer at its price, with split instances where they are so here."""
    without = base
    if base.mix is None or _uses(plan, base.mix, offer):
        nodes = THOROUGH if split else QUICK
        without = solve(_without(plan, offer), options, nodes=nodes, split=split)
    if without.mix is None or without.gap > LOOSE:
        reason = lack(without, "nothing keeps the plan without it")
        return Entry(offer, used, None, None, reason)
    more = without.usd / base.usd - 1.0 if base.usd > 0.0 else 0.0
    if used != (base.mix is not None and _uses(plan, base.mix, offer)):
        return Entry(offer, used, offer.usd, more, EVEN)
    if not any(offer.chip in option.chips for option in options):
        return Entry(offer, used, None, more, "serves no class within its limits")
    if used and base.mix is not None:
        even = _even(plan, options, offer, base.mix, without.mix)
        found = _break_even(plan, options, offer, even, without.mix, split) or even
    else:
        tried = (_break_even(plan, options, offer, at, without.mix, split) for at in STARTS)
        found = next((at for at in tried if at is not None), None)
    if found is not None and (found < 1.0 if used else found > 1.0):
        return Entry(offer, used, offer.usd, more, EVEN)
    reason = "" if found is not None else f"not even at {min(STARTS):.0%} of its price"
    usd = None if found is None else offer.usd * found
    return Entry(offer, used, usd, more, reason)


def _break_even(
    plan: Plan,
    options: Sequence[Option],
    offer: Offer,
    factor: float,
    without: Mix,
    split: Sequence[str],
) -> float | None:
    """The share of its price at which the offer enters, from below; None where the cheapest mix
    does not use it at `factor` of its price."""
    found, nodes = None, QUICK
    for _ in range(STEPS):
        at = with_offer(plan, replace(offer, usd=offer.usd * factor))
        most = (1.0 - GAP) * count(at, options, without).usd
        # A bound on the cost helps to find what is cheaper among whole instances, and makes it
        # slow to prove of split ones that nothing is.
        gap, below = (NEAR, math.inf) if split else (LOOSE, most)
        again = solve(at, options, nodes=nodes, gap=gap, split=split, below=below)
        if again.mix is None or again.usd > most or not _uses(plan, again.mix, offer):
            break
        following = _even(plan, options, offer, again.mix, without)
        if following > factor * (1.0 + GAP):
            factor = found = following
        elif again.gap > GAP and nodes == QUICK:
            nodes = THOROUGH  # this mix is not the cheapest yet
        else:
            break
    return found


def _even(plan: Plan, options: Sequence[Option], offer: Offer, mix: Mix, without: Mix) -> float:
    """The share of the price of an offer at which a mix costs as much as one without it."""
    nothing = with_offer(plan, replace(offer, usd=0.0))
    free, without_free = (count(nothing, options, one).usd for one in (mix, without))
    usd, without_usd = (count(plan, options, one).usd for one in (mix, without))
    slope = (usd - free) - (without_usd - without_free)
    return (without_free - free) / slope if slope > 0.0 else 0.0


def _uses(plan: Plan, mix: Mix, offer: Offer) -> bool:
    return any(plan.offer(label).group == offer.group for label, _ in mix.orders)


def _without(plan: Plan, offer: Offer) -> Plan:
    chips = tuple(
        replace(chip, offers=tuple(one for one in chip.offers if one.group != offer.group))
        for chip in plan.chips
    )
    return replace(plan, chips=chips)
