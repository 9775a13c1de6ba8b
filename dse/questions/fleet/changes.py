"""What would change the answer: the plan solved again with one thing changed. Of a fleet of more
than MANY instances, with instances that need not be whole, before and after: one is small beside
the fleet, and the program is solved in a fraction of the time.

The price at which an offer enters or leaves is exact: with x the cheapest mix at a price, the cost
of x is B + A price; the next price is where that equals the cost without the offer, until no mix
that uses it is cheaper (Dinkelbach, on a cost that is the lowest of straight lines). The price of
what is bought also moves the maintenance of as many chips that are owned already.

What a plan was not free to choose and usually pays (`dse.problem.words`) is tried with the options
that it would add.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dse.answer.numbers import dollars
from dse.catalog import Catalog
from dse.economics.fleet import (
    DEMAND,
    GAP,
    NOTHING,
    OPTIMAL,
    SUPPLY,
    Solved,
    divisible,
    limits_of,
    solve,
    with_limit,
    with_offer,
)
from dse.economics.fleet_cost import Mix, Option, count
from dse.problem.words import FP8, draft_words, format_words, untried_row, wide
from dse.questions.fleet.options import Known, Pays, options_of, predicted_loss, subject_of_class
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import BUY, DemandClass, FleetChip, Offer, Plan

MORE = 0.1  # by which a limit or a demand is changed
STEPS = 16  # of the search for a price
STARTS = (0.5, 0.02)  # of the price, where it begins
QUICK = 200  # nodes of one solve
THOROUGH = 5000  # where the limit of nodes would end the search for a price
LOOSE = 0.01  # a larger gap is no answer
NEAR = 1e-3  # of a price with split instances
TIGHT = 5 * GAP  # a smaller difference is no difference
MOST_CHIPS = 6  # that are tried with what a plan did not choose from, those of least price a rate

NOTHING_KEEPS = "nothing keeps the plan"
LATE = "not known: the limit of nodes was reached"
EVEN = "in or out: the same to the gap of the program"

Progress = Callable[[str], None]
Row = dict[str, Any]


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


def lack(solved: Solved, nothing: str = NOTHING_KEEPS) -> str:
    """Why this is no answer: `nothing` where that is proven, not known where the nodes came to
    their end before or left too large a gap; empty where it is one."""
    if solved.status == NOTHING.status:
        return nothing
    return LATE if solved.mix is None or solved.gap > LOOSE else ""


def loosened(plan: Plan, options: Sequence[Option], base: Solved, progress: Progress) -> list[Row]:
    """A row for each limit and supply that is given, then each demand, `MORE` larger, one at a
    time: by how many dollars the cost changes, None where the program was not solved in time or
    nothing keeps the plan then (`status`). `base` is the answer as it is, with split instances
    where they are so here."""
    split = divisible(plan, options)
    more = {}
    for what, value in limits_of(plan).items():
        kind, _, name = what.partition(" ")
        more[what] = value * (1.0 + MORE)
        if kind == SUPPLY:  # a server at least
            more[what] = max(more[what], value + plan.chip(plan.offer(name).chip).server)
    caps = {what: after for what, after in more.items() if not what.startswith(DEMAND)}
    idle = False
    if len(caps) > 1:  # where more of all of them at once saves nothing, none alone does
        loose = plan
        for what, after in caps.items():
            loose = with_limit(loose, what, after)
        again = solve(loose, options, nodes=QUICK, split=divisible(loose, options))
        idle = again.gap <= LOOSE and base.usd - again.usd < TIGHT * base.usd
    found = []
    for what, value in limits_of(plan).items():
        usd, status, demand = 0.0, base.status, what.startswith(DEMAND)
        if not idle or demand:
            progress(f"{MORE:.0%} more: {what}")
            again = solve(with_limit(plan, what, more[what]), options, nodes=QUICK, split=split)
            usd, status = again.usd - base.usd, again.status
            unsure = base.usd - base.bound + again.usd - again.bound
            if again.gap > LOOSE:
                usd = None
            elif abs(usd) < TIGHT * base.usd or (usd > 0.0) != demand:
                usd = 0.0
            elif abs(usd) < unsure:
                usd = None  # either may still be as much cheaper
        each = None if usd is None else usd / (more[what] - value)
        row = {"limit": what, "value": value, "more": more[what], "usd": usd, "status": status}
        found.append({**row, "usd_per_unit": each})
    return found


def entries(
    plan: Plan, options: Sequence[Option], solved: Solved, base: Solved, progress: Progress
) -> list[Row]:
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
) -> Row:
    """The row of one offer: whether it is in the mix, the price at which the cheapest mix begins,
    or ceases, to use it (None where nothing serves without it, or no price lets it in), and the
    share by which the fleet costs more without it. `base` is the answer at its price, with split
    instances where they are so here."""

    def row(usd_at: float | None, without: float | None, reason: str) -> Row:
        return {
            "offer": offer.label,
            "chip": offer.chip,
            "way": offer.way,
            "price_usd": offer.usd,
            "per": "chip" if offer.way == BUY else "chip-hour",
            "used": used,
            "usd_enters_or_leaves_at": usd_at,
            "fleet_costs_more_without": without,
            "reason": reason or None,
            "price": offer.words,
        }

    without = base
    if base.mix is None or _uses(plan, base.mix, offer):
        nodes = THOROUGH if split else QUICK
        without = solve(_without(plan, offer), options, nodes=nodes, split=split)
    if without.mix is None or without.gap > LOOSE:
        return row(None, None, lack(without, "nothing keeps the plan without it"))
    more = without.usd / base.usd - 1.0 if base.usd > 0.0 else 0.0
    if used != (base.mix is not None and _uses(plan, base.mix, offer)):
        return row(offer.usd, more, EVEN)
    if not any(offer.chip in option.chips for option in options):
        return row(None, more, "serves no class within its limits")
    if used and base.mix is not None:
        even = _even(plan, options, offer, base.mix, without.mix)
        found = _break_even(plan, options, offer, even, without.mix, split) or even
    else:
        tried = (_break_even(plan, options, offer, at, without.mix, split) for at in STARTS)
        found = next((at for at in tried if at is not None), None)
    if found is None:
        return row(None, more, f"not even at {min(STARTS):.0%} of its price")
    if found < 1.0 if used else found > 1.0:
        return row(offer.usd, more, EVEN)
    return row(offer.usd * found, more, "")


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


def renting_alone(plan: Plan, options: Sequence[Option]) -> Solved:
    """The cheapest order that buys nothing: what buying is compared with."""
    rents = tuple(
        replace(chip, offers=tuple(one for one in chip.offers if one.way != BUY))
        for chip in plan.chips
    )
    return solve(replace(plan, chips=rents), options, nodes=QUICK)


def stock_rows(
    plan: Plan, options: Sequence[Option], base: Solved, progress: Progress
) -> list[Row]:
    """What each chip that is owned saves the plan: the price above which it is better sold now;
    None where there is no answer without, for `reason`."""
    found = []
    for chip in plan.chips:
        if not chip.stock:
            continue
        progress(f"without the {chip.chip} that are owned")
        less = tuple(replace(one, stock=0) if one is chip else one for one in plan.chips)
        split = divisible(plan, options)
        again = solve(replace(plan, chips=less), options, nodes=QUICK, split=split)
        reason = lack(again) or lack(base, LATE)
        found.append(
            {
                "chip": chip.chip,
                "chips": chip.stock,
                "saves_usd_per_chip": None
                if reason
                else max(again.usd - base.usd, 0.0) / chip.stock,
                "sale_usd_per_chip": chip.sale_usd,
                "reason": reason,
            }
        )
    return found


def must_give(plan: Plan, options: Sequence[Option], progress: Progress) -> list[Row]:
    """Sets of limits that make the plan feasible when each gives to the value that is needed: those
    that are enough alone, the least share first; else all of them together. Empty where not even
    that is enough: then nothing arrives in time (`waits_for`)."""
    names = list(limits_of(plan))
    found: list[tuple[float, Row]] = []
    for name in names:
        progress(f"without the limit: {name}")
        again = solve(plan, options, relax=[name], nodes=QUICK, gap=GAP)
        share = again.relaxed.get(name, 0.0)
        nothing_left = name.startswith(DEMAND) and share > 1.0 - 1e-6
        if again.mix is not None and not nothing_left:
            found.append((share, _gives(plan, {name: share}, again)))
    if found:
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]
    again = solve(plan, options, relax=names, nodes=QUICK, gap=GAP)
    if again.mix is None or not again.relaxed:
        return []
    return [_gives(plan, again.relaxed, again)]


def _gives(plan: Plan, relaxed: Mapping[str, float], again: Solved) -> Row:
    given = {name: limits_of(plan)[name] for name in relaxed}
    needed = [
        value * (1.0 - relaxed[name])
        if name.startswith(DEMAND)
        else value + max(value, 1.0) * relaxed[name]
        for name, value in given.items()
    ]
    row = {"limits": list(relaxed), "given": list(given.values()), "needed": needed}
    return {**row, "proven_least": again.status == OPTIMAL}


def waits_for(plan: Plan, options: Sequence[Option]) -> list[str]:
    """Offers whose lead time alone makes the plan infeasible: with no wait it would hold."""
    found = []
    for offer in plan.unbroken:
        if offer.lead_quarters:
            prompt = replace(offer, lead_quarters=0)
            again = solve(with_offer(plan, prompt), options, nodes=QUICK)
            if again.mix is not None and math.isfinite(again.usd):
                found.append(offer.label)
    return found


class Search:
    """Solves a plan again with what it did not choose from. `base` is the answer that the changes
    are set against, None where nothing keeps the plan; `known` what was evaluated."""

    def __init__(
        self,
        plan: Plan,
        options: Sequence[Option],
        base: Solved | None,
        known: Known,
        catalog: Catalog,
        progress: Progress,
    ) -> None:
        self.plan, self.options, self.base = plan, options, base
        self.known, self.catalog, self.progress = known, catalog, progress
        self.chips = self._chips()

    def untried(self) -> list[dict[str, Any]]:
        tried = (self._formats(), self._drafts(), self._pools())
        return [one for one in tried if one is not None]

    def _chips(self) -> list[FleetChip]:
        """Chips to try: all of a short plan, else those whose options cost least a request."""
        plan = self.plan
        if len(plan.chips) <= MOST_CHIPS:
            return list(plan.chips)

        def least(chip: FleetChip) -> float:
            """Dollars an hour of a request a second, at best."""
            mine = [option for option in self.options if chip.chip in option.chips]
            rate = max((o.requests_per_s / o.chips[chip.chip] for o in mine), default=0.0)
            usd = min((offer.usd_per_chip_hour for offer in chip.offers), default=0.0)
            return usd / rate if rate else np.inf

        return sorted(plan.chips, key=least)[:MOST_CHIPS]

    def _formats(self) -> dict[str, Any] | None:
        computing = tuple(c for c in self.chips if self.catalog.chip(c.chip).computes(FP8))
        lacks = {one.name: _wide(one) for one in self.plan.demand}
        classes = tuple(
            replace(
                one,
                weight_dtypes=(FP8,) if lacks[one.name][0] else one.weight_dtypes,
                kv_dtypes=(FP8,) if lacks[one.name][1] else one.kv_dtypes,
            )
            for one in self.plan.demand
            if any(lacks[one.name])
        )
        if not classes or not computing:
            return None
        weights, cache = (any(one[k] for one in lacks.values()) for k in (0, 1))
        part = replace(self.plan, demand=classes, chips=computing)
        found = self._again(format_words(weights, cache), part)
        if found is None:
            return None
        nats = [self._nats(part, one, computing[0].chip) for one in classes]
        return found | {"predicted_loss_added": max(nats) if np.isfinite(nats).all() else None}

    def _nats(self, plan: Plan, one: DemandClass, chip: str) -> float:
        """What the formats of a class add to the loss over the checkpoint's, the most of its
        models."""
        formats = (next(iter(one.weight_dtypes), None), next(iter(one.kv_dtypes), None), None)
        narrow, own = (
            [
                predicted_loss(subject_of_class(plan, self.catalog, one, name, chip, each))
                for name in one.models
            ]
            for each in (formats, (None, None, None))
        )
        return max(after - before for after, before in zip(narrow, own, strict=True))

    def _drafts(self) -> dict[str, Any] | None:
        classes: list[DemandClass] = []
        counts: list[int] = []
        for one in self.plan.demand:
            models = [resolve_model(name) for name in one.models]
            known = sorted({count for model in models for count in model.drafts or ()})
            if known and not one.draft_tokens and all(model.drafts for model in models):
                classes.append(replace(one, draft_tokens=tuple(known)))
                counts += known
        if not classes:
            return None
        part = replace(self.plan, demand=tuple(classes), chips=tuple(self.chips))
        return self._again(draft_words(counts), part)

    def _pools(self) -> dict[str, Any] | None:
        classes = tuple(one for one in self.plan.demand if one.percentile is None)
        if self.plan.disaggregated or not classes:
            return None
        chips = tuple(self.chips)
        part = replace(self.plan, demand=classes, chips=chips, disaggregated=True)
        return self._again("pools for prefill and decode", part)

    def _again(self, what: str, part: Plan) -> dict[str, Any] | None:
        """The plan solved with the options of `part`, too; None where that saves nothing that the
        program tells."""
        self.progress(f"not searched: {what}")
        plan, base = self.plan, self.base
        # As the plan's own options say: pools may be larger, and small beside the fleet as well.
        split = () if base is None else divisible(plan, self.options)
        pays: Pays = (lambda _: True) if base is None else self._pays()
        largest = bool(split)
        more, _ = options_of(part, self.catalog, known=self.known, largest=largest, pays=pays)
        options = [*self.options, *(option for option in more if option not in self.options)]
        served = {option.klass for option in options}
        if len(options) == len(self.options) or any(one.name not in served for one in plan.demand):
            return None
        usd = math.inf if base is None else base.usd
        below = math.inf if split else (1.0 - LOOSE) * usd
        again = solve(plan, options, nodes=QUICK, gap=LOOSE, split=split, below=below)
        if again.mix is None or again.gap > LOOSE:
            return None
        saves = 1.0 - again.usd / usd if usd > 0.0 else 0.0
        if saves <= LOOSE:
            return None
        result = _result(plan, options, again.mix)
        return untried_row(what, saves if usd < math.inf else None, result)

    def _pays(self) -> Pays:
        """Whether an option can save: where all is rented and nothing scarce, only if a request
        costs less on it than on the best of the plan's own."""
        plan = self.plan
        scarce = any(not name.startswith(DEMAND) for name in limits_of(plan))
        if scarce or any(chip.stock or chip.owning for chip in plan.chips):
            return lambda _: True
        hour = {one.chip: min(o.usd_per_chip_hour for o in one.offers) for one in plan.chips}

        def each(option: Option) -> float:
            usd = sum(n * hour[chip] for chip, n in option.chips.items())
            return usd / option.requests_per_s

        least = {
            one.name: min(each(o) for o in self.options if o.klass == one.name)
            for one in plan.demand
        }
        return lambda option: each(option) < least[option.klass]


def _wide(one: DemandClass) -> tuple[bool, bool]:
    """Whether weights and cache of a class are in formats of more than 8 bits alone."""
    models = [resolve_model(name) for name in one.models]
    return (
        all(wide(one.weight_dtypes or _own(model)) for model in models),
        all(wide(one.kv_dtypes or (model.kv_dtype or "bf16",)) for model in models),
    )


def _own(model: Model) -> set[str]:
    """Formats of the checkpoint, but for embedding and output head."""
    return {name for part, name in model.weight_dtypes.items() if part != "embedding"}


def _result(plan: Plan, options: Sequence[Option], mix: Mix) -> str:
    """`10 h100_sxm, $114,000`: most chips at once by kind, of whole servers, and dollars not
    discounted."""
    counted = count(plan, options, mix)
    most: Counter[str] = Counter()
    for quarter in counted.quarters:
        for chip in (*quarter.rented, *quarter.owned_on):
            servers = quarter.rented.get(chip, 0) + quarter.owned_on.get(chip, 0)
            most[chip] = max(most[chip], math.ceil(servers - 1e-6) * plan.chip(chip).server)
    chips = [f"{n:,} {chip}" for chip, n in most.items() if n]
    return ", ".join([*chips, dollars(sum(one.usd for one in counted.quarters))])
