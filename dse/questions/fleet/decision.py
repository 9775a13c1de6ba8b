"""The decision in sentences, what it rests on, and the memo: one page for who signs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse import units
from dse.answer.answer import Answer, Facts, Figure, Notes, Opening, Section, Table
from dse.answer.frames import of_rows, stacked_bars
from dse.answer.numbers import dollars, percent, share, significant, tenths, time
from dse.answer.plots import plain
from dse.answer.sentences import listed
from dse.economics.fleet import DEMAND, MANY, SUPPLY, divisible, solve
from dse.economics.fleet_cost import Option, count, tokens
from dse.economics.prices import as_of_words, evidence_words, unsold_rests
from dse.economics.scenarios import Hedged
from dse.physics.intervals import UNKNOWN
from dse.problem.words import untried_words
from dse.questions.fleet.changes import LOOSE, NOTHING_KEEPS, QUICK, lack
from dse.questions.fleet.solution import Solution, single
from dse.schema.plan import BUY, RENT, DemandClass, FleetChip, Offer, Plan

Rows = Mapping[str, Any]
# A limit in words, and the dimension of its value (dollars where it has none).
LIMITS = {
    "usd_per_hour": ("the budget per hour", ""),
    "usd_per_quarter": ("the budget per quarter", ""),
    "usd_total": ("the total budget", ""),
    "watts": ("the power", "W"),
    "racks": ("the racks", "count"),
    "chips": ("the number of chips", "count"),
}
# Costs of owning that the answer names, as `dse.schema.costs.RULES` does, in words.
OWNED_COSTS = {
    "resale": "resale",
    "server_factor": "server over chips",
    "network_share": "network",
    "maintenance": "maintenance",
    "staff": "staff",
    "space": "space",
    "electricity": "electricity",
}
ROUNDING = 1e-6  # of a sum
BINDS = 1e-3  # of the cost: a limit that saves less when it is looser does not bind
NOT_SAID = (
    "Not said of an order at a service level: the prices and limits at which it changes, what "
    "buying returns against renting, what stock saves. The same plan without a level says them."
)


def sentences(found: Solution, facts: Mapping[str, Any]) -> list[str]:
    """What to do and what it costs, then what else decides, the weightiest first."""
    if found.counted is None:
        first = _infeasible(found) if found.hedged is None else _hedged(found, found.hedged)
        return [*first, *untried_words(found.untried)]
    if found.hedged is not None:
        return [*_hedged(found, found.hedged), *to_check(found), NOT_SAID]
    said = [_what(found)]
    if found.solved.status.startswith("feasible"):
        said.append(
            "The search stopped at its limit of nodes, and a mix up to "
            f"{share(found.solved.gap)} cheaper may exist."
        )
    said += untried_words(found.untried)
    said += [*served(found), *to_check(found), *_binding(found), *_traffic(found)]
    return [*said, *_against_renting(found, facts["finance"]), *_stock(found), *_nearest(found)]


def _what(found: Solution) -> str:
    """`Rent 24 h100_sxm on rental_3yr (in quarter 1): $1.2M over 6 quarters, $0.31 per million
    tokens.`"""
    plan, counted = found.plan, found.counted
    assert counted is not None
    orders = {(label, q): n for (label, q), n in found.mix.orders.items()}
    what = listed([_ordered(plan, orders, offer) for offer in found.ordered]) or "order nothing"
    kept = [_kept_on(found, chip) for chip in plan.chips if chip.stock]
    what += f"; {listed(kept)}" if kept else ""
    within = _several(plan.quarters, "quarter")
    cost = f"{dollars(counted.within_usd)} over {within}"
    if counted.signed_usd > counted.within_usd * (1.0 + ROUNDING):
        cost = (
            f"{dollars(counted.signed_usd)} signed for in all, {dollars(counted.within_usd)} of it "
            f"the cost of the {within}"
        )
    each = dollars(counted.within_usd / tokens(plan) * 1e6)
    return f"{_upper(what)}: {cost}, {each} per million tokens."


def _ordered(plan: Plan, orders: Mapping[tuple[str, int], float], offer: Offer) -> str:
    """`rent 24 h100_sxm on rental_3yr (16 in quarter 1, 8 in quarter 3)`."""
    server = plan.chip(offer.chip).server
    when = sorted((q, n * server) for (label, q), n in orders.items() if label == offer.label)
    what = offer.label.replace(", rent", "").replace(", bought", "")
    each = [f"{chips:,} in quarter {q + 1}" for q, chips in when]
    said = listed(each) if len(when) > 1 else f"in quarter {when[0][0] + 1}"
    if offer.lead_quarters:
        said = f"ordered {said}, there {_several(offer.lead_quarters, 'quarter')} later"
    return f"{offer.way} {sum(chips for _, chips in when):,} {what} ({said})"


def _kept_on(found: Solution, chip: FleetChip) -> str:
    """`run up to 496 of the 512 a100_80_sxm that are owned (496 in quarter 1, 72 in quarter 6)`."""
    assert found.counted is not None
    quarters = found.counted.quarters
    on = [one.owned_on.get(chip.chip, 0) * chip.server for one in quarters]
    most = max(one.owned.get(chip.chip, 0) for one in quarters) * chip.server
    what = "owned" if most == chip.stock else "owned or bought"
    own = f"the {most:,} {chip.chip} that are {what}"
    if not any(on):
        return f"leave {own} off"
    if len(set(on)) == 1:
        return f"run {on[0]:,} of {own}"
    ends = f"{on[0]:,} in quarter 1, {on[-1]:,} in quarter {len(on)}"
    return f"run up to {max(on):,} of {own} ({ends})"


def _hedged(found: Solution, one: Hedged) -> list[str]:
    """What to order now, how sure that is, what it costs, what it would save to know more."""
    plan = found.plan
    assert plan.service_level is not None
    orders = {(label, 0): float(servers) for label, servers in one.order.items()}
    now = [_ordered(plan, orders, o) for o in plan.offers if o.label in one.order]
    said = [
        f"Order now: {listed(now) or 'nothing'}: it serves {tenths(one.share)} of futures, at "
        f"{dollars(one.usd)} in the mean, {dollars(one.low)} to {dollars(one.high)} in 80% of them."
    ]
    if not one.reached:
        said.append(
            f"No order was found that serves {percent(plan.service_level)} of futures within the "
            "limits; this one serves most."
        )
    said += [
        f"The first quarter's peak may be {percent(one.headroom)} higher than predicted.",
        f"To see the future before ordering would save {dollars(one.waiting_usd)} in the mean; to "
        f"measure throughput alone, {dollars(one.measuring_usd)}.",
    ]
    if found.counted is None:
        said.append("If all comes as predicted, no later order serves the plan.")
    return said


def served(found: Solution) -> list[str]:
    """How many futures the order serves where no service level is asked."""
    if found.served is None:
        return []
    return [
        f"Of 100 futures, the first orders serve {round(100.0 * found.served)} "
        "(`--service-level 80%` orders for a share)."
    ]


def to_check(found: Solution) -> list[str]:
    """What to check of chips and prices before the orders are signed."""
    chips = dict.fromkeys(offer.chip for offer in found.ordered)
    unsold = [f"{chip} ({found.unsold[chip]})" for chip in chips if chip in found.unsold]
    said = [f"Not on general sale: {listed(unsold)}; the next may have to do."] if unsold else []
    taken = {(offer.chip, offer.basis) for offer in found.ordered}
    rows = [row for row in found.priced if (row["chip"], row["basis"]) in taken]
    return [*said, *evidence_words(rows)]


def _binding(found: Solution) -> list[str]:
    """The limit of which a tenth more saves most."""
    rows = [row for row in found.limits if row["usd"] and row["usd"] < -BINDS * found.solved.usd]
    if not rows:
        return []
    row = min(rows, key=lambda row: row["usd"])
    name, more = row["limit"], value_words(row["limit"], row["more"])
    now = value_words(name, row["value"])
    return [
        f"{_upper(limit_words(name))} binds: {more} instead of {now} saves {dollars(-row['usd'])}."
    ]


def _nearest(found: Solution) -> list[str]:
    """The offer that comes in first as prices fall; where none is left, the dearest that stays."""
    known = [row for row in found.prices if row["usd_enters_or_leaves_at"] and row["price_usd"]]
    known = [row for row in known if row["reason"] is None]
    if not known:
        return []

    def ratio(row: Mapping[str, Any]) -> float:
        return row["usd_enters_or_leaves_at"] / row["price_usd"]

    unused = [row for row in known if not row["used"]]
    row = max(unused, key=ratio) if unused else min(known, key=ratio)
    at, now = price(row, "usd_enters_or_leaves_at"), price(row, "price_usd")
    if unused:
        return [f"Next is {row['offer']}: it would be used below {at}; it costs {now} now."]
    return [f"{row['offer']} stays in the fleet up to {at}; it costs {now} now."]


def _traffic(found: Solution) -> list[str]:
    """Of a plan of one class and quarter: what the fleet serves."""
    if found.counted is None or not single(found.plan):
        return []
    one, quarter = found.plan.demand[0], found.counted.quarters[0]
    first = "the median first token"
    if one.percentile not in (None, 50):
        first = f"the {one.percentile}th percentile of times to first token"
    said = (
        f"It serves up to {significant(quarter.capacity[one.name])} requests/s with {first} within "
        f"{time(one.ttft_s)} and {time(one.tpot_s)} per token after it, and is sized for "
        f"{significant(one.peak_per_s(0))}"
    )
    chips = sum(quarter.chips_used.values())
    if found.by_means is not None and found.by_means != chips:
        said += f"; planned by means alone, {found.by_means:,} chips would serve, not {chips:,}"
    return [f"{said}."]


def _against_renting(found: Solution, money: Mapping[str, Any]) -> list[str]:
    """What buying returns against the cheapest order that only rents."""
    other = money["against_renting"]
    if other is None:
        if money["renting_alone"] == NOTHING_KEEPS:
            return ["Nothing keeps the plan by renting alone, so that buying has no return."]
        if money["renting_alone"]:
            return [f"What buying returns against renting alone is {money['renting_alone']}."]
        return []
    saves, rate, back = (
        other[key] for key in ("present_usd_saved", "irr_per_year", "payback_quarter")
    )
    earns = "pays at any rate of interest" if saves > 0.0 else "pays at no rate of interest"
    if rate is not None:
        earns = f"returns {tenths(rate)} a year"
    paid = f"paid back in quarter {back}" if back else "paid back only by what is left"
    return [
        f"Buying, {dollars(money['capex_usd'])} in cash, {earns} against the cheapest order that "
        f"only rents and {'saves' if saves > 0.0 else 'costs'} {dollars(abs(saves))} of today's "
        f"worth; it is {paid}."
    ]


def _stock(found: Solution) -> list[str]:
    """Whether what is owned is better kept or sold now."""
    said = []
    for row in found.stock:
        kept, worth = f"the {row['chips']:,} {row['chip']} of stock", row["saves_usd_per_chip"]
        if worth is None:
            said.append(f"What {kept} save: {row['reason']}.")
            continue
        sale = row["sale_usd_per_chip"]
        now = "" if sale is None else f" (now {dollars(sale)})"
        said.append(
            f"{_upper(kept)} save {dollars(worth)} each over the plan: keep them unless a buyer "
            f"pays more than that and their worth at its end{now}."
        )
    return said


def _infeasible(found: Solution) -> list[str]:
    """That nothing keeps the plan, why, and what must change."""
    said = []
    for name in found.unserved:
        why = [row for row in found.refused if row["class"] == name]
        rows = [f"{row['model']} on {row['chip']}: {row['reason']}" for row in why]
        reason = "; ".join(rows) or "no chip may serve it"
        said.append(f"No fleet serves {name} within its limits. {reason}.")
    if said:
        return said
    if found.solved.status != "infeasible":
        return [f"No fleet was found; {found.solved.status}, so that one may exist."]
    alone = [row for row in found.gives if len(row["limits"]) == 1]
    said = ["No fleet keeps this plan."]
    if alone:
        more = "Any one of these changes is enough:" if len(alone) > 1 else "One must change:"
        said = [f"{said[0]} {more}"]
    for row in found.gives:
        parts = []
        for name, given, needed in zip(row["limits"], row["given"], row["needed"], strict=True):
            moves = "falls" if name.startswith(DEMAND) else "rises"
            ends = f"{value_words(name, given)} to {value_words(name, needed)}"
            parts.append(f"{limit_words(name)} {moves} from {ends}")
        least = "" if row["proven_least"] else " (a smaller change may be enough)"
        start = "" if len(row["limits"]) == 1 else "no limit alone is enough; together: "
        said.append(_upper(f"{start}{listed(parts)}{least}."))
    said += [f"With no wait for {label}, the plan holds." for label in found.waits]
    if len(said) == 1:
        said.append("Nothing that is listed arrives in time for the first quarter.")
    return said


def price(row: Mapping[str, Any], key: str) -> str:
    """`$1.30 per chip-hour`, of a row of the frame `prices`."""
    usd = row[key]
    return (
        f"{dollars(usd)} a chip" if row["per"] == "chip" else f"${significant(usd)} per chip-hour"
    )


def value_words(name: str, value: float) -> str:
    """The value of a limit, a supply or a demand with its unit."""
    if name.startswith(DEMAND):
        rate = f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
        return f"{rate} requests/s"
    if name.startswith(SUPPLY):
        return f"{value:,.0f} chips a quarter"
    dimension = LIMITS[name][1]
    return units.format(value, dimension, 4) if dimension else dollars(value)


def unit(name: str) -> str:
    """What follows the name of a limit whose value is a bare number: ` (W)`."""
    kind = name.partition(" ")[0]
    units_ = {DEMAND: " (requests/s)", SUPPLY: " (chips a quarter)", "watts": " (W)"}
    return units_.get(kind, " (USD)" if kind.startswith("usd") else "")


def limit_words(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return f"the {kind} of {rest}" if kind in (DEMAND, SUPPLY) else LIMITS[name][0]


def asked(plan: Plan) -> str:
    """The plan in one line."""
    basis = f"rents on the basis {plan.price_basis} unless a chip says otherwise"
    if all(offer.way == BUY for offer in plan.offers):
        basis = "chips are bought, at the costs of owned_tco"
    parts = [plan.title, plan.description, f"{_several(plan.quarters, 'quarter')}; {basis}"]
    for name in LIMITS:
        if (value := getattr(plan.limits, name)) != float("inf"):
            parts.append(f"{_upper(limit_words(name))}: at most {value_words(name, value)}")
    parts += [f"{chip.stock:,} {chip.chip} are owned" for chip in plan.chips if chip.stock]
    if plan.spare_servers:
        parts.append(f"{_several(plan.spare_servers, 'spare server')} of each chip that is used")
    if plan.spare_share:
        parts.append(f"{share(plan.spare_share)} spare chips")
    return "".join(f"{part.rstrip('.')}. " for part in parts if part).rstrip()


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _upper(text: str) -> str:
    """With a capital letter at its start."""
    return text[:1].upper() + text[1:]


def assumptions(found: Solution) -> list[str]:
    """What the answer rests on."""
    plan = found.plan
    one = plan.uncertainty
    rests = [f"later quarters are discounted by {plan.discount_rate:.0%} a year"]
    if found.hedged is not None or found.served is not None:
        prices = "the spread of published rows, 15% where there are too few (assumed)"
        if one.prices is not None:
            prices = f"{one.prices:.0%} either way"
        known = f" but for {listed(one.measured)}, measured" if one.measured else ""
        rests.append(
            f"futures: demand errs by {one.demand:.0%} either way (80% interval) in the first "
            "quarter and by as much more in each that follows; throughput by the model's 80% "
            f"intervals{known}; prices by {prices}; a delivery is a quarter late in {one.late:.0%} "
            "of them (`uncertainty`, assumed unless given)"
        )
    if any(chip.owning is not None for chip in plan.chips):
        rests += _owned_words(plan)
    rests.append("rates are predictions of the roofline model (dse validate says how close)")
    for each in plan.demand:
        load = "the highest steady load within the limits, in the median"
        if each.percentile is not None:
            load = (
                f"the highest rate of random (Poisson) arrivals that keeps {each.percentile}% of "
                "first tokens in time"
            )
        source = f"; from {each.source}" if each.source else ""
        rests.append(f"{each.name}: {load}{source}")
    if found.counted is not None and found.split:
        rests.append(
            f"more than {MANY} instances: prices and limits at which the mix changes come from a "
            "program whose instances need not be whole (split)"
        )
    rests += [f"prices of {file} before the shipped ones" for file in plan.own.prices]
    rests += as_of_words(plan.own)
    rests += [f"costs of owning of {file}" for file in plan.costs.files]
    rests += unsold_rests(found.unsold)
    rests += [f"{offer.label}: {offer.words}" for offer in plan.offers]
    rests += [
        f"{chip.chip}: {chip.watts / 1e3:.3g} kW a chip at the meter ({chip.power_words}); "
        f"{chip.chips_per_rack} chips a rack ({chip.rack_words})"
        for chip in plan.chips
    ]
    return list(dict.fromkeys([*rests, *plan.assumed]))


def _owned_words(plan: Plan) -> list[str]:
    """How owned chips are counted, and which of their costs are assumed."""
    costs = plan.costs.inputs
    given = ", ".join(f"{words} {costs[name].text}" for name, words in OWNED_COSTS.items())
    assumed = [name for name, one in costs.items() if one.kind == "assumed" and name in OWNED_COSTS]
    found = [
        "owned chips cost what the basis owned_tco says: capital as level payments over "
        f"{costs['life'].text} at {costs['cost_of_capital'].text} a year (that of stock is sunk), "
        "the rest at the mean load while they are on",
        f"costs of owning: {given} (maintenance a year, staff a chip)"
        + (f"; assumed: {', '.join(assumed)}" if assumed else ""),
    ]
    if left := [name for name, one in plan.costs.lines.items() if not one.counted]:
        found.append(f"not counted unless `lines:` of the costs asks for them: {', '.join(left)}")
    return found


def cash_figure(frames: Mapping[str, Table]) -> Figure:
    """Cash by quarter, stacked, and what is owed after each."""
    table = frames["by_quarter"]

    def dollars_of(key: str) -> list[float]:
        return [value or 0.0 for value in table[key]]

    upkeep, electricity = dollars_of("upkeep_usd"), dollars_of("electricity_usd")
    series = {
        "rent": dollars_of("rent_usd"),
        "bought": dollars_of("bought_usd"),
        "running": [a + b for a, b in zip(upkeep, electricity, strict=True)],
    }
    return stacked_bars(
        "cash",
        "Cash and commitments",
        {name: values for name, values in series.items() if any(values)},
        "dollars",
        "Dollars paid by quarter: rent, purchases, upkeep and electricity. The line is the rent "
        "that is signed for and still to be paid.",
        line=("rent still owed", dollars_of("rent_owed_usd")),
    )


def memo(found: Solution, document: Rows, frames: Mapping[str, Table]) -> Answer:
    """The page; `document` is that of the whole answer, whose plan is kept."""
    headline, *said = document["answer"]
    otherwise, rests = _otherwise(found), _rests(found, frames)
    if found.hedged is not None:
        otherwise, rests = [NOT_SAID], [*rests, *(text for text in said if text != NOT_SAID)]
    return Answer(
        question="memo",
        title=f"Decision memo: {found.plan.title}",
        headline=headline,
        document=document,
        asked="",
        names=found.names,
        blocks=(
            _committed(found, document, frames),
            Section(
                "If the throughput is off, and power", [_errors(found), *_power(found, frames)]
            ),
            Notes("What it rests on", rests),
            Notes("When to decide otherwise", otherwise),
            Section("Ask each vendor to show, before you sign", [_proof(found)]),
        ),
        opening=Opening(
            asked="",
            headline=headline,
            figure=cash_figure(frames),
            table=frames.get("orders"),
            sure=" ".join(to_check(found)),
        ),
    )


def _committed(found: Solution, document: Rows, frames: Mapping[str, Table]) -> Facts:
    money = document["finance"]
    cash = [value or 0.0 for value in frames["by_quarter"]["cash_usd"]]
    title, strong = "What it commits to", []
    if (one := found.hedged) is not None:
        title = "What it serves, and commits to if all comes as predicted"
        strong = [
            ("of futures served", tenths(one.share)),
            ("discounted, mean of futures", dollars(one.usd)),
            ("in 80% of them", f"{dollars(one.low)} to {dollars(one.high)}"),
            ("more peak than predicted", percent(one.headroom)),
        ]
    strong += [
        ("signed for in all", dollars(document["usd_signed"])),
        ("of it in quarter 1", dollars(cash[0])),
        ("most a quarter", dollars(max(cash))),
        ("capital", dollars(money["capex_usd"])),
        ("running costs", dollars(money["opex_usd"])),
    ]
    if money["worth_at_end_usd"]:
        useful = ", with later rents that are of use" if money["rents_of_use_usd"] else ""
        strong.append((f"worth left{useful}", dollars(money["worth_at_end_usd"])))
    rate = share(money["discount_rate_per_year"])
    strong.append((f"today's worth, at {rate}", dollars(money["present_usd"])))
    other = money["against_renting"] or {}
    if (irr := other.get("irr_per_year")) is not None:
        strong.append(("return on buying, a year", tenths(irr)))
    if (back := other.get("payback_quarter")) is not None:
        strong.append(("paid back in quarter", f"{back}"))
    return Facts(title, (), strong)


def _rests(found: Solution, frames: Mapping[str, Table]) -> list[str]:
    said = []
    for one in found.plan.demand:
        mean, growth = one.mean, one.growth_per_quarter
        grows = f", changing by {share(growth)} a quarter" if growth else ""
        said.append(
            f"Demand of {one.name}: {significant(one.requests_per_s)} requests a second on "
            f"average, {significant(one.peak_per_s(0))} at the peak{grows}, each of "
            f"{mean.prompt_tokens:,.0f} prompt and {mean.output_tokens:,.0f} output tokens."
        )
    low, high = interval(found)
    use = max(frames["use"]["peak_use"])
    return [
        *said,
        "Throughput is predicted by a model that is calibrated on measurements; in four cases of "
        f"five the measured one is {share(low)} to {share(high)} of it.",
        f"At the peak the chips that serve are used to {share(use)} at most.",
        *(untried_words(found.untried) if found.hedged is None else ()),
    ]


def _otherwise(found: Solution) -> list[str]:
    """By price, and by the throughput that costs as much where a price says it."""
    said, rented = [], _rented_alone(found.plan)
    for row in found.prices:
        usd, at = row["price_usd"], row["usd_enters_or_leaves_at"]
        if not usd or not at or row["reason"]:
            continue
        ends = f"{price(row, 'usd_enters_or_leaves_at')} ({price(row, 'price_usd')} now)"
        text, as_rate = "", row["chip"] in rented
        if row["used"]:
            rate = f", or down to {share(usd / at)} of its predicted throughput" if as_rate else ""
            text = f"{row['offer']} stays up to {ends}{rate}."
            if row["fleet_costs_more_without"]:
                text += f" Without it: {tenths(row['fleet_costs_more_without'])} dearer."
        elif usd / at < 2.0:
            rate = f", or at {significant(usd / at)} times its predicted throughput"
            text = f"{row['offer']} comes in below {ends}{rate if as_rate else ''}."
        said += [text] if text else []
    for row in found.limits:
        if row["limit"].startswith(DEMAND) and row["usd"]:
            said.append(
                f"A tenth more {limit_words(row['limit'])[4:]} costs {dollars(row['usd'])}."
            )
            break
    said += _stock(found)
    return said or ["No price of what is offered changes the order within a factor of two."]


def _rented_alone(plan: Plan) -> set[str]:
    """Chips of which only rents of one price are to be had. A share less throughput costs what a
    price that is higher by as much does; what is owned also takes power and staff, by the chip."""
    return {
        one.chip
        for one in plan.chips
        if not one.stock
        and len({offer.group for offer in one.offers}) == 1
        and one.offers[0].way == RENT
    }


def interval(found: Solution) -> tuple[float, float]:
    """The widest 80% interval of measured over predicted throughput of what serves."""
    used = {kind for k, _ in found.mix.instances for kind in found.options[k].kind.split(", ")}
    ends = [found.spread.get(kind, UNKNOWN) for kind in used] or [UNKNOWN]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _errors(found: Solution) -> Figure:
    """Chips to order where every instance serves less or more than predicted."""
    low, high = interval(found)
    factors = (low, (1.0 + low) / 2.0, 1.0, (1.0 + high) / 2.0, high)
    found_at = [_ordered_at(found, factor) for factor in factors]
    at = [f"{100 * (factor - 1.0):+.0f}%" if factor != 1.0 else "predicted" for factor in factors]
    labels = [f"{x}<br>{plain(words)}" for x, (_, words) in zip(at, found_at, strict=True)]
    kinds = dict.fromkeys(kind for chips, _ in found_at for kind in chips)
    when = "order" if found.hedged is None else "later orders; those of quarter 1 stay"
    return stacked_bars(
        "errors",
        "The order against the error of throughput",
        {kind: [chips.get(kind, 0) for chips, _ in found_at] for kind in kinds},
        "chips to order",
        "Chips to order, and dollars signed for, if every chip serves so much less or more than "
        f"predicted and this is known before the {when}.",
        at=labels,
    )


def _ordered_at(found: Solution, factor: float) -> tuple[dict[str, int], str]:
    """(chips by name and way, dollars signed for) at a factor on every throughput; (none, why)
    where there is no answer."""
    plan, mix, counted = found.plan, found.mix, found.counted
    if factor != 1.0:
        options = [
            replace(one, requests_per_s=one.requests_per_s * factor) for one in found.options
        ]
        again = solve(plan, options, nodes=QUICK, gap=LOOSE, split=divisible(plan, options))
        if reason := lack(again):
            return {}, "none keeps it" if reason == NOTHING_KEEPS else "not known"
        assert again.mix is not None
        mix, counted = again.mix, count(plan, options, again.mix)
    assert counted is not None
    chips: dict[str, int] = {}
    for (label, _), split in mix.orders.items():
        servers, offer = math.ceil(split - 1e-6), plan.offer(label)
        name = offer.chip + (", bought" if offer.way == BUY else "")
        chips[name] = chips.get(name, 0) + servers * plan.chip(offer.chip).server
    return chips, dollars(counted.signed_usd)


def _power(found: Solution, frames: Mapping[str, Table]) -> list[Figure]:
    kilowatts = [watts / 1e3 for watts in frames["by_quarter"]["watts"] if watts is not None]
    if not any(kilowatts):
        return []
    cap, against = found.plan.limits.watts, "no cap is given"
    level = None
    if cap != math.inf:
        level, against = (
            (f"cap: {cap / 1e3:,.0f} kW", [cap / 1e3] * len(kilowatts)),
            "against the cap",
        )
    return [
        stacked_bars(
            "power",
            f"Power, {against}",
            {"power at the meter": kilowatts},
            "kW at the meter",
            "Kilowatts by quarter of the chips that stand on one's own site and are on.",
            line=level,
        )
    ]


def _proof(found: Solution) -> Table:
    """What each vendor is to show: what serves, at which rate, within which limits. One would
    decide otherwise where what is ordered shows less than that rate, or what is not ordered more;
    no single price says it of what is owned or stands in two pools."""
    low, _ = interval(found)
    known = [row for row in found.prices if row["usd_enters_or_leaves_at"] and not row["reason"]]
    ratio = {row["chip"]: row["price_usd"] / row["usd_enters_or_leaves_at"] for row in known}
    options = [found.options[k] for k in dict.fromkeys(k for k, _ in sorted(found.mix.instances))]
    chips = {chip for option in options for chip in option.chips}
    rivals = [row for row in found.prices if not row["used"] and row["usd_enters_or_leaves_at"]]
    near = min(
        rivals, key=lambda row: row["price_usd"] / row["usd_enters_or_leaves_at"], default=None
    )
    if near is not None and near["price_usd"] < 2.0 * near["usd_enters_or_leaves_at"]:
        options += _best(found.options, near["chip"]) if near["chip"] not in chips else []
    rented = _rented_alone(found.plan)
    classes = {one.name: one for one in found.plan.demand}
    rows = []
    for option in options:
        chip, *more = option.chips
        known_at = chip in ratio and chip in rented and not more
        rows.append(
            {
                "on": option.divided.replace(" x ", " ", 1),
                "model": f"{option.model}, {option.formats}",
                "asked": _limits(classes[option.klass]),
                "requests_per_s": option.requests_per_s,
                "requests_per_s.low": low * option.requests_per_s,
                "otherwise_per_s": option.requests_per_s * ratio[chip] if known_at else None,
            }
        )
    return of_rows("proof", "", rows, tuple(rows[0]))


def _best(options: Sequence[Option], chip: str) -> list[Option]:
    """The option of a chip with most for its chips, for each class."""
    found: dict[str, Option] = {}
    for one in options:
        each = one.requests_per_s / sum(one.chips.values())
        best = found.get(one.klass)
        if set(one.chips) == {chip} and (
            best is None or each > best.requests_per_s / sum(best.chips.values())
        ):
            found[one.klass] = one
    return list(found.values())


def _limits(one: DemandClass) -> str:
    of = "the median" if one.percentile in (None, 50) else f"{one.percentile}%"
    return (
        f"{one.mean.prompt_tokens:,.0f} + {one.mean.output_tokens:,.0f} tokens, "
        f"first in {time(one.ttft_s)} ({of}), then {time(one.tpot_s)}"
    )
