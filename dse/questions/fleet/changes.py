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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse import units
from dse.answer.numbers import dollars, significant
from dse.catalog import Catalog
from dse.data import rows_beside
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
from dse.economics.fleet_cost import Mix, Option, count, unserved
from dse.problem.words import FP8, draft_words, format_words, untried_row, wide
from dse.questions.fleet.options import Known, options_of, predicted_loss, subject_of_class
from dse.schema.model_catalog import resolve_model
from dse.schema.plan import BUY, FleetChip, Offer, Plan

MORE = 0.1  # by which a limit or a demand is changed
STEPS = 16  # of the search for a price
STARTS = (0.5, 0.02)  # of the price, where it begins
QUICK = 200  # nodes of one solve
THOROUGH = 5000  # where the limit of nodes would end the search for a price
LOOSE = 0.01  # a larger gap is no answer
NEAR = 1e-3  # of a price with split instances
TIGHT = 5 * GAP  # a smaller difference is no difference
MOST_CHIPS = 6  # that are tried with what a plan did not choose from, those of least price a rate

# A limit, a demand or a supply in words, and the unit of its value.
LIMITS = {row["name"]: row for row in rows_beside(__file__, "limits.csv")}

NOTHING_KEEPS = "nothing keeps the plan"
LATE = "not known: the limit of nodes was reached"
EVEN = "in or out: the same to the gap of the program"

Progress = Callable[[str], None]
Row = dict[str, Any]


def lack(solved: Solved, nothing: str = NOTHING_KEEPS) -> str:
    """Why this is no answer: `nothing` where that is proven, not known where the nodes came to
    their end before or left too large a gap; empty where it is one."""
    if solved.status == NOTHING.status:
        return nothing
    return LATE if solved.mix is None or solved.gap > LOOSE else ""


def loosened(plan: Plan, options: Sequence[Option], base: Solved, progress: Progress) -> list[Row]:
    """A row for each limit and supply that is given, then each demand, `MORE` larger, one at a
    time: by how many dollars the cost changes, None where the program was not solved in time or
    nothing keeps the plan then (`status`), and the `effect` in words. `base` is the answer as it
    is, with split instances where they are so here."""
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
        effect = "not known" if usd is None else "unchanged"
        if usd:
            effect = f"{value_words(what, more[what])} instead of {value_words(what, value)} "
            effect += f"{'saves' if usd < 0.0 else 'costs'} {dollars(abs(usd))}"
        unit = LIMITS[what.partition(" ")[0]]["unit"]
        limit = limit_words(what) + (f" ({unit})" if unit else "")
        row = {"limit": limit, "value": value, "more": more[what]}
        row |= {"usd": usd, "status": status, "effect": effect}
        found.append({**row, "usd_per_unit": None if usd is None else usd / (more[what] - value)})
    return found


def value_words(name: str, value: float) -> str:
    """The value of a limit, a supply or a demand with its unit."""
    kind = name.partition(" ")[0]
    unit = LIMITS[kind]["unit"]
    if kind in (DEMAND, SUPPLY):
        return f"{value:,.0f} {unit}" if value >= 100.0 or kind == SUPPLY else f"{value:.3g} {unit}"
    return dollars(value) if unit == "USD" else units.format(value, unit or "count", 4)


def limit_words(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return f"{LIMITS[kind]['words']} {rest}".rstrip()


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

    def other(one: Offer) -> Offer | None:
        return None if one.group == offer.group else one

    without = base
    if base.mix is None or _uses(plan, base.mix, offer):
        nodes = THOROUGH if split else QUICK
        without = solve(plan.with_offers(other), options, nodes=nodes, split=split)
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


def offer_price(row: Row, key: str) -> str:
    """`$1.30 per chip-hour`, of a row of `entries`."""
    usd = row[key]
    return (
        f"{dollars(usd)} a chip" if row["per"] == "chip" else f"${significant(usd)} per chip-hour"
    )


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
        saves = None if reason else max(again.usd - base.usd, 0.0) / chip.stock
        row = {"chip": chip.chip, "chips": chip.stock, "saves_usd_per_chip": saves}
        found.append({**row, "sale_usd_per_chip": chip.sale_usd, "reason": reason})
    return found


def stock_words(row: Row) -> str:
    """Whether what is owned is better kept or sold now."""
    kept, worth = f"the {row['chips']:,} {row['chip']} of stock", row["saves_usd_per_chip"]
    if worth is None:
        return f"What {kept} save: {row['reason']}."
    sale = row["sale_usd_per_chip"]
    now = "" if sale is None else f" (now {dollars(sale)})"
    return (
        f"T{kept[1:]} save {dollars(worth)} each over the plan: keep them unless a buyer pays more "
        f"than that and their worth at its end{now}."
    )


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
            found.append((share, _gives(plan, again, [name])))
    if found:
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]
    again = solve(plan, options, relax=names, nodes=QUICK, gap=GAP)
    if again.mix is None or not again.relaxed:
        return []
    return [_gives(plan, again, list(again.relaxed))]


def _gives(plan: Plan, again: Solved, names: Sequence[str]) -> Row:
    """The limits of a program that exceeds them, as they are given and as they are needed."""
    limits = limits_of(plan)
    needed = [
        limits[name] * (1.0 - again.relaxed.get(name, 0.0))
        if name.startswith(DEMAND)
        else limits[name] + max(limits[name], 1.0) * again.relaxed.get(name, 0.0)
        for name in names
    ]
    row = {"limits": list(names), "given": [limits[name] for name in names], "needed": needed}
    return {**row, "proven_least": again.status == OPTIMAL}


def waits_for(plan: Plan, options: Sequence[Option]) -> list[str]:
    """Offers whose lead time alone makes the plan infeasible: with no wait it would hold."""
    found = []
    for offer in plan.unbroken:
        if offer.lead_quarters:
            prompt = with_offer(plan, replace(offer, lead_quarters=0))
            if solve(prompt, options, nodes=QUICK).mix is not None:
                found.append(offer.label)
    return found


def _untried_parts(
    plan: Plan, chips: Sequence[FleetChip], catalog: Catalog
) -> Iterator[tuple[str, Plan]]:
    """(what it is called, the plan with that alone to choose from) of each thing that the plan left
    out and that usually pays: narrow formats, drafts, pools."""
    plan = replace(plan, chips=tuple(chips))
    computing = tuple(one for one in chips if catalog.chip(one.chip).computes(FP8))
    narrow, weights, cache = [], False, False
    for one in plan.demand:
        models = [resolve_model(name) for name in one.models]
        own = [
            {name for part, name in model.weight_dtypes.items() if part != "embedding"}
            for model in models
        ]
        wide_weights = all(wide(one.weight_dtypes or formats) for formats in own)
        wide_cache = all(wide(one.kv_dtypes or (model.kv_dtype or "bf16",)) for model in models)
        weights, cache = weights or wide_weights, cache or wide_cache
        given = {"weight_dtypes": wide_weights, "kv_dtypes": wide_cache}
        if more := {name: (FP8,) for name, is_wide in given.items() if is_wide}:
            narrow.append(replace(one, **more))
    if narrow and computing:
        yield format_words(weights, cache), replace(plan, demand=tuple(narrow), chips=computing)
    drafted, counts = [], []
    for one in plan.demand:
        models = [resolve_model(name) for name in one.models]
        known = sorted({count for model in models for count in model.drafts or ()})
        if known and not one.draft_tokens and all(model.drafts for model in models):
            drafted.append(replace(one, draft_tokens=tuple(known)))
            counts += known
    if drafted:
        yield draft_words(counts), replace(plan, demand=tuple(drafted))
    steady = tuple(one for one in plan.demand if one.percentile is None)
    if steady and not plan.disaggregated:
        yield "pools for prefill and decode", replace(plan, demand=steady, disaggregated=True)


def untried(
    plan: Plan,
    options: Sequence[Option],
    base: Solved | None,
    known: Known,
    catalog: Catalog,
    progress: Progress,
) -> list[Row]:
    """What the plan did not choose from and would save more than LOOSE with, each solved with the
    options that it adds. `base` is the answer that it is set against, None where nothing keeps the
    plan; `known` what was evaluated. Of many chips those whose options cost least a request are
    tried."""
    hour = {
        one.chip: min((offer.usd_per_chip_hour for offer in one.offers), default=0.0)
        for one in plan.chips
    }

    def each(option: Option) -> float:
        """Dollars an hour of a request a second."""
        return sum(n * hour[chip] for chip, n in option.chips.items()) / option.requests_per_s

    def least(chip: FleetChip) -> float:
        rates = [o.requests_per_s / o.chips[chip.chip] for o in options if chip.chip in o.chips]
        return hour[chip.chip] / max(rates) if rates else math.inf

    chips = list(plan.chips)
    if len(chips) > MOST_CHIPS:
        chips = sorted(chips, key=least)[:MOST_CHIPS]
    # As the plan's own options say: pools may be larger, and small beside the fleet as well.
    split = () if base is None else divisible(plan, options)
    usd = math.inf if base is None else base.usd
    below = math.inf if split else (1.0 - LOOSE) * usd
    scarce = any(not name.startswith(DEMAND) for name in limits_of(plan))
    scarce = scarce or any(one.stock or one.owning for one in plan.chips)
    best: dict[str, float] = {}
    for option in options:
        best[option.klass] = min(best.get(option.klass, math.inf), each(option))

    def pays(option: Option) -> bool:
        """Whether pools can save: where all is rented and nothing scarce, only if a request costs
        less on them than on the best of the plan's own."""
        return base is None or scarce or each(option) < best[option.klass]

    found = []
    for what, part in _untried_parts(plan, chips, catalog):
        progress(f"not searched: {what}")
        more, _ = options_of(part, catalog, known=known, largest=bool(split), pays=pays)
        every = [*options, *(option for option in more if option not in options)]
        if len(every) == len(options) or unserved(plan, every):
            continue
        again = solve(plan, every, nodes=QUICK, gap=LOOSE, split=split, below=below)
        saves = 1.0 - again.usd / usd if usd > 0.0 else 0.0
        if again.mix is None or again.gap > LOOSE or saves <= LOOSE:
            continue
        nats = _nats(plan, part, catalog) if what.startswith(FP8) else None
        result = _result(plan, every, again.mix)
        found.append(untried_row(what, saves if usd < math.inf else None, result, nats))
    return found


def _nats(plan: Plan, part: Plan, catalog: Catalog) -> float | None:
    """What the formats of a part add to the loss over the checkpoint's, the most of its models;
    None where a loss is not known."""
    added, chip = [], part.chips[0].chip
    for one in part.demand:
        formats = (next(iter(one.weight_dtypes), None), next(iter(one.kv_dtypes), None), None)
        for name in one.models:
            after, before = (
                predicted_loss(subject_of_class(plan, catalog, one, name, chip, each))
                for each in (formats, (None, None, None))
            )
            added.append(after - before)
    return max(added) if np.isfinite(added).all() else None


def _result(plan: Plan, options: Sequence[Option], mix: Mix) -> str:
    """`10 h100_sxm, $114,000`: most chips at once by kind, of whole servers, and dollars not
    discounted."""
    counted = count(plan, options, mix)
    servers = np.ceil(counted.by_chip["rented"] + counted.by_chip["on"] - 1e-6).max(axis=0)
    most = [round(n) * chip.server for n, chip in zip(servers, plan.chips, strict=True)]
    chips = [f"{n:,} {chip.chip}" for n, chip in zip(most, plan.chips, strict=True) if n]
    return ", ".join([*chips, dollars(counted.within_usd)])
