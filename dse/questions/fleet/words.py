"""The answer to a plan in sentences, the recommendation first, and what it rests on."""

from __future__ import annotations

from dse import units
from dse.answer.numbers import dollars, percent, share, significant, tenths, time
from dse.answer.sentences import listed
from dse.economics.fleet import DEMAND, MANY, SUPPLY
from dse.economics.fleet_cost import Counted, Mix
from dse.economics.prices import as_of_words, evidence_words, unsold_rests, unsold_sentences
from dse.economics.scenarios import Hedged
from dse.problem.words import sentence
from dse.questions.fleet.answer import Solution, owned_prices, per_million, single, split
from dse.questions.fleet.changes import EVEN, Entry, Loosened
from dse.schema.plan import BUY, DemandClass, FleetChip, Offer, Plan

# A limit in words, the dimension of its value (dollars where it has none), and what follows that.
LIMITS = {
    "usd_per_hour": ("the budget per hour", "", " an hour"),
    "usd_per_quarter": ("the budget per quarter", "", " a quarter"),
    "usd_total": ("the total budget", "", " in all"),
    "watts": ("the power", "W", ""),
    "racks": ("the racks", "count", " racks"),
    "chips": ("the number of chips", "count", " chips"),
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
ROUNDING = 1e-6  # of a gap
EXCESS = 0.04  # of a service level, that is explained
NOT_SAID = (
    "Not said of an order at a service level: the prices and limits at which it changes, what "
    "buying returns against renting, what stock saves. The same plan without a level says them."
)
WORDS = {
    "instance": "one copy of the model on as many chips as it is divided over",
    "option": "one way to serve a class: a model, its formats, a chip, and how an instance is "
    "divided, at its highest load within the latency limits",
    "capital charge": "the price of what is bought, with its share of server and network, as "
    "equal payments over its life, interest included",
    "upkeep": "maintenance, staff and space of owned chips that are on",
    "split": "counted as if instances need not be whole",
    "peak": "the highest demand of a quarter, for which the fleet is sized",
    "use": "demand over what the instances can serve within the latency limits",
    "at the meter": "with the share of a chip in server, network and cooling",
    "discounted": "later dollars counted for less, by the yearly rate of the plan",
    "on-demand": "rented by the hour, given back at will",
    "window": "a stretch of the trace of equal length, in which arrivals are counted",
    "percentile": "of times to first token: as many percent of the requests wait no longer",
    "class": "requests of one kind, with limits of their own",
    "cached": "tokens of a prompt whose keys and values are there already, so that no prefill "
    "is spent on them",
}


def lead(found: Solution) -> list[str]:
    """What to do, what it costs, how sure that is, what would change it."""
    if found.counted is None:
        first = _infeasible(found) if found.hedged is None else _hedged(found, found.hedged)
        return [*first, *sentence(found.untried)]
    assert found.solved.mix is not None
    ordered = {label for label, _ in found.solved.mix.orders}
    chips = dict.fromkeys(offer.chip for offer in found.plan.offers if offer.label in ordered)
    unsold = unsold_sentences(found.unsold, chips)
    if found.hedged is not None:
        more = (*unsold, *price_check(found), *_traffic(found), NOT_SAID)
        return [*_hedged(found, found.hedged), *more]
    more = (*sentence(found.untried), *_traffic(found), *_how_sure(found), *_changes(found))
    return [_what(found), *_served(found), *unsold, *price_check(found), *more]


def _hedged(found: Solution, one: Hedged) -> list[str]:
    """What to order now, how sure that is, what it costs, what it would save to know more."""
    plan = found.plan
    assert plan.service_level is not None
    now = [
        _orders(plan, Mix({(offer.label, 0): one.order[offer.label]}, {}, {}), offer)
        for offer in plan.offers
        if offer.label in one.order
    ]
    serves = f"it serves {tenths(one.share)} of futures"
    cost = f"{dollars(one.usd)} in the mean"
    range_ = f"{dollars(one.low)} to {dollars(one.high)} in 80% of them"
    words = [f"Order now: {listed(now) or 'nothing'}: {serves}, at {cost}, {range_}."]
    if not one.reached:
        words.append(
            f"No order was found that serves {percent(plan.service_level)} of futures within the "
            "limits; this one serves most."
        )
    if one.reached and one.less is not None and one.share > plan.service_level + EXCESS:
        fewer = f"with one server less it serves {percent(one.less)} of futures"
        words.append(
            f"This is the smallest order of whole servers: {fewer}."
            if one.less < plan.service_level
            else f"A smaller order costs more in the mean: {fewer}."
        )
    if plan.quarters > 1:
        words.append("What is ordered later is decided once the future is seen.")
    words += [
        f"The first quarter's peak may be {percent(one.headroom)} higher than predicted, at the "
        "predicted throughput: that is the headroom that the order holds.",
        f"Futures are {one.counted:,} that the order was not chosen in; costs are discounted.",
        f"To see the future before ordering would save {dollars(one.waiting_usd)} "
        f"({tenths(one.waiting_usd / one.usd)}) in the mean; to measure throughput alone, "
        f"{dollars(one.measuring_usd)} ({tenths(one.measuring_usd / one.usd)}).",
    ]
    if found.counted is None:
        return [*words, "If all comes as predicted, no later order serves the plan."]
    what = _what(found)
    return [*words, f"If all comes as predicted: {what[:1].lower()}{what[1:]}"]


def sure_words(found: Solution) -> str:
    """How sure the order is, and what would change it."""
    if found.hedged is not None:
        return " ".join(price_check(found))
    served = [f"{text.partition(' (`')[0]}." for text in _served(found)]
    return f"How sure: {' '.join([*served, *price_check(found), *_changes(found)[:1]])}"


def _served(found: Solution) -> list[str]:
    """How many futures the order serves where no service level is asked."""
    if found.served is None:
        return []
    return [
        f"Of 100 futures, with demand, throughput, prices and delivery drawn together, the first "
        f"orders serve {round(100.0 * found.served)} (`--service-level 80%` orders for a share)."
    ]


def price_check(found: Solution) -> list[str]:
    """What to check of the prices of the orders before they are signed."""
    assert found.solved.mix is not None
    ordered = {label for label, _ in found.solved.mix.orders}
    taken = {(offer.chip, offer.basis) for offer in found.plan.offers if offer.label in ordered}
    return evidence_words([row for row in found.priced if (row["chip"], row["basis"]) in taken])


def price(way: str, usd: float | None) -> str | None:
    """A price with what it is paid for."""
    if usd is None:
        return None
    return f"{dollars(usd)} a chip" if way == BUY else f"${significant(usd)} per chip-hour"


def value_words(name: str, value: float) -> str:
    """The value of a limit, a supply or a demand with its unit."""
    if name.startswith(DEMAND):
        rate = f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
        return f"{rate} requests/s"
    if name.startswith(SUPPLY):
        return f"{value:,.0f} chips a quarter"
    dimension = LIMITS[name][1]
    return units.format(value, dimension, 4) if dimension else dollars(value)


def limit_words(name: str) -> str:
    kind, _, rest = name.partition(" ")
    return f"the {kind} of {rest}" if kind in (DEMAND, SUPPLY) else LIMITS[name][0]


def percentile_words(percentile: int | None) -> str:
    """For which first tokens a limit holds."""
    return "the median" if percentile in (None, 50) else f"{percentile}%"


def asked_words(plan: Plan) -> str:
    """The plan in one line."""
    quarters = "One quarter" if plan.quarters == 1 else f"{plan.quarters} quarters"
    basis = f"rents on the basis {plan.price_basis} unless a chip says otherwise"
    if all(offer.way == BUY for offer in plan.offers):
        basis = "chips are bought, at the costs of owned_tco"
    parts = [plan.title, plan.description, f"{quarters}; {basis}"]
    for name, (_, _, after) in LIMITS.items():
        if (value := getattr(plan.limits, name)) != float("inf"):
            parts.append(f"At most {value_words(name, value)}{after}")
    parts += [f"{chip.stock:,} {chip.chip} are owned" for chip in plan.chips if chip.stock]
    if plan.spare_servers:
        parts.append(f"{_several(plan.spare_servers, 'spare server')} of each chip that is used")
    if plan.spare_share:
        parts.append(f"{share(plan.spare_share)} spare chips")
    return "".join(f"{part.rstrip('.')}. " for part in parts if part).rstrip()


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _what(found: Solution) -> str:
    plan, mix, counted = found.plan, found.solved.mix, found.counted
    assert mix is not None
    assert counted is not None
    ordered = {label for label, _ in mix.orders}
    parts = [_orders(plan, mix, offer) for offer in plan.offers if offer.label in ordered]
    what = listed(parts) or "order nothing"
    if on := [_on(chip, counted) for chip in plan.chips if chip.stock]:
        what += f"; {listed(on)}"
    within = _several(plan.quarters, "quarter")
    cost = f"{dollars(counted.within_usd)} over {within}"
    if counted.signed_usd > counted.within_usd * (1.0 + ROUNDING):
        cost = (
            f"{dollars(counted.signed_usd)} signed for in all, {dollars(counted.within_usd)} of it "
            f"the cost of the {within}"
        )
    each = dollars(per_million(plan, counted))
    return f"{upper(what)}: {cost}, {each} per million tokens."


def _on(chip: FleetChip, counted: Counted) -> str:
    """Run up to 496 of the 512 a100_80_sxm that are owned (496 in quarter 1, 72 in quarter 6)."""
    on = [one.owned_on.get(chip.chip, 0) * chip.server for one in counted.quarters]
    most = max(one.owned.get(chip.chip, 0) for one in counted.quarters) * chip.server
    what = "owned" if most == chip.stock else "owned or bought"
    owned = f"the {most:,} {chip.chip} that are {what}"
    if not any(on):
        return f"leave {owned} off"
    if len(set(on)) == 1:
        return f"run {on[0]:,} of {owned}"
    ends = f"{on[0]:,} in quarter 1, {on[-1]:,} in quarter {len(on)}"
    return f"run up to {max(on):,} of {owned} ({ends})"


def _orders(plan: Plan, mix: Mix, offer: Offer) -> str:
    """Rent 24 h100_sxm on rental_3yr (16 in quarter 1, 8 in quarter 3)."""
    server = plan.chip(offer.chip).server
    when = sorted((q, n * server) for (label, q), n in mix.orders.items() if label == offer.label)
    what = offer.label.replace(", rent", "").replace(", bought", "")
    each = [f"{chips:,} in quarter {q + 1}" for q, chips in when]
    said = listed(each) if len(when) > 1 else f"in quarter {when[0][0] + 1}"
    if offer.lead_quarters:
        said = f"ordered {said}, there {_several(offer.lead_quarters, 'quarter')} later"
    return f"{offer.way} {sum(chips for _, chips in when):,} {what} ({said})"


def _traffic(found: Solution) -> list[str]:
    """Of a plan of one class and quarter: what comes, what the fleet serves, how chips compare."""
    counted, plan = found.counted, found.plan
    if counted is None or not single(plan):
        return []
    one, quarter = plan.demand[0], counted.quarters[0]
    first = "the median first token"
    if one.percentile not in (None, 50):
        first = f"the {one.percentile}th percentile of times to first token"
    sentences = [
        f"It serves up to {significant(quarter.capacity[one.name])} requests/s with {first} within "
        f"{time(one.ttft_s)} and {time(one.tpot_s)} per token after it. It is sized for "
        f"{significant(one.traffic.peak_per_s(0))} requests/s; the mean is "
        f"{significant(one.traffic.requests_per_s)}."
    ]
    mean = one.traffic.mean
    sentences.append(
        f"A request has {mean.prompt_tokens:,.0f} prompt and {mean.output_tokens:,.0f} output "
        f"tokens in the mean{_groups(one)}."
    )
    kept = [row for row in found.alone if row.counted is not None]
    if len(kept) > 1:
        best, second = (row.counted.usd for row in kept[:2] if row.counted is not None)
        dearer = f", {tenths(second / best - 1.0)} dearer" if best > 0.0 else ""
        chips = f"{kept[0].chip} is cheapest, then {kept[1].chip}"
        sentences.append(f"With one chip alone, {chips}{dearer}.")
    chips = sum(quarter.chips_used.values())
    if found.by_means is not None and found.by_means != chips:
        sentences.append(
            f"Planned by means alone (mean lengths, mean rate, median first token), "
            f"{found.by_means:,} chips would serve instead of {chips:,}."
        )
    return sentences


def _groups(one: DemandClass) -> str:
    groups = len(one.traffic.streams)
    return f", in {groups} groups of lengths" if groups > 1 else ""


def _how_sure(found: Solution) -> list[str]:
    solved, counted = found.solved, found.counted
    assert counted is not None
    if solved.status.startswith("feasible"):
        proven = (
            f"the search stopped at its limit of nodes, and a mix up to {share(solved.gap)} "
            "cheaper may exist"
        )
    elif solved.gap > ROUNDING:
        proven = f"no other mix of the options is more than {share(solved.gap)} cheaper"
    else:
        proven = "no other mix of the options is cheaper"
    sentences = [
        f"Of {len(found.options)} options, {proven}. Discounted to today it costs "
        f"{dollars(counted.usd)}; a separate count from the orders agrees."
    ]
    if counted.bought_usd:
        charged = sum(one.capital for quarter in counted.quarters for one in quarter.spend.values())
        sentences.append(
            f"Chips that are bought are paid for in full on arrival: {dollars(counted.bought_usd)} "
            f"in cash. The cost counts only their charge for these quarters, {dollars(charged)}."
        )
    if counted.committed_usd:
        sentences.append(
            f"The rental contracts run on after the last quarter and cost "
            f"{dollars(counted.committed_usd)} more."
        )
    return [*sentences, *_at_the_end(found.plan, counted)]


def _at_the_end(plan: Plan, counted: Counted) -> list[str]:
    """What the end of the plan writes off, and how to say that it is of use then."""
    lost = counted.written_off_usd
    if abs(lost) <= ROUNDING * counted.usd:
        return []
    kept = f"{plan.used_after_end:.0%} of" if plan.used_after_end else "nothing of"
    what = ["rents to the end of their term"] * (counted.committed_usd > 0.0)
    what += ["what is owed on purchases over their worth by then"] * (counted.bought_usd > 0.0)
    said = f"{dollars(lost)} is written off" if lost > 0.0 else f"{dollars(-lost)} is gained"
    return [
        f"Of the discounted cost, {said} when the plan ends ({listed(what)}): "
        f"{kept} it is taken to be of use after that (`used_after_end`)."
    ]


def _changes(found: Solution) -> list[str]:
    sentences = []
    if split(found):
        sentences.append(
            "The prices and savings that follow are of a program with split instances, which need "
            f"not be whole (nor need servers, of more than {MANY}): in so large a fleet, one makes "
            "little difference."
        )
    unused = [e for e in found.entries if not e.used and e.usd_at and not e.reason]
    if unused:
        nearest = max(unused, key=_ratio)
        assert nearest.usd_at is not None
        sentences.append(
            f"Next is {nearest.offer.label}: it would be used below "
            f"{price(nearest.offer.way, nearest.usd_at)}; it costs "
            f"{price(nearest.offer.way, nearest.offer.usd)} now."
        )
    for row in found.entries:
        sentences += _of_offer(row)
    for row in found.loosened:
        sentences += _of_limit(row, found.solved.usd)
    return sentences


def _of_offer(row: Entry) -> list[str]:
    if row.reason == EVEN:
        return [f"With or without {row.offer.label}, the cost is the same to the solver's gap."]
    if row.used and row.usd_at is not None and row.without is not None:
        return [
            f"{row.offer.label} stays in the fleet up to {price(row.offer.way, row.usd_at)}; it "
            f"costs {price(row.offer.way, row.offer.usd)} now. Without it the plan costs "
            f"{tenths(row.without)} more."
        ]
    return [f"{row.offer.label}: {row.reason}."] if row.used else []


def _of_limit(row: Loosened, usd: float) -> list[str]:
    more = f"{value_words(row.what, row.after)} instead of {value_words(row.what, row.before)}"
    if row.status == "infeasible":
        return [f"No fleet keeps the plan if {limit_words(row.what)} is {more}."]
    if row.usd is not None and row.usd < -1e-3 * usd:
        return [f"{upper(limit_words(row.what))} binds: {more} saves {dollars(-row.usd)}."]
    return []


def _ratio(row: Entry) -> float:
    return (row.usd_at or 0.0) / row.offer.usd if row.offer.usd else 0.0


def _infeasible(found: Solution) -> list[str]:
    if found.unserved:
        sentences = []
        for name in found.unserved:
            why = [r for r in found.refused if r.klass == name]
            rows = [f"{r.model} on {r.chip}: {r.reason}" for r in why] or ["no chip may serve it"]
            sentences.append(f"No fleet serves {name} within its limits. {'; '.join(rows)}.")
        return sentences
    if found.solved.status != "infeasible":
        return [f"No fleet was found; {found.solved.status}, so that one may exist."]
    sentences = ["No fleet keeps this plan."]
    alone = [row for row in found.gives if row.alone]
    if alone:
        several = len(alone) > 1
        sentences[0] += " Any one of these changes is enough:" if several else " One must change:"
    for row in found.gives:
        parts = [
            f"{limit_words(name)} {'falls' if name.startswith(DEMAND) else 'rises'} from "
            f"{value_words(name, given)} to {value_words(name, needed)}"
            for name, given, needed in zip(row.limits, row.given, row.needed, strict=True)
        ]
        least = "" if row.proven else " (a smaller change may be enough)"
        together = "" if row.alone else "No limit alone is enough; together: "
        text = f"{listed(parts)}{least}."
        sentences.append(f"{together}{text}" if together else upper(text))
    for label in found.waits:
        sentences.append(f"With no wait for {label}, the plan holds.")
    if not found.gives and not found.waits:
        sentences.append("Nothing that is listed arrives in time for the first quarter.")
    return sentences


def assumptions(found: Solution) -> list[str]:
    """What the answer rests on."""
    plan = found.plan
    rests = [
        f"later quarters are discounted by {plan.discount_rate:.0%} a year",
        *_futures_words(found),
        *_owned_words(plan),
        *_rate_words(plan),
        "every instance of a class stands ready for its peak; requests go to any of them",
    ]
    if found.counted is not None and split(found):
        rests.append(
            f"more than {MANY} instances: the prices at which the mix changes, and what more of a "
            "limit, a supply or a demand does, come from a program whose instances need not be "
            f"whole (split), nor its servers where these are more than {MANY}"
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


def _futures_words(found: Solution) -> list[str]:
    """From what futures are drawn."""
    if found.hedged is None and found.served is None:
        return []
    one = found.plan.uncertainty
    prices = "the spread of published rows, 15% where there are too few (assumed)"
    if one.prices is not None:
        prices = f"{one.prices:.0%} either way"
    known = f" but for {listed(one.measured)}, measured" if one.measured else ""
    late = any(offer.lead_quarters for offer in found.plan.offers)
    return [
        f"futures: demand errs by {one.demand:.0%} either way (80% interval) in the first quarter "
        "and by as much more in each that follows, all classes together (`uncertainty`, assumed "
        f"unless given); throughput by the model's 80% intervals{known}; prices by {prices}"
        + (f"; what has a lead time is a quarter late in {one.late:.0%} of them" if late else ""),
        "futures: a future is served if later orders, decided once it is seen, meet every peak "
        "within every limit; instances and servers of later quarters are split there, and so are "
        "the servers by which knowing more is valued",
    ]


def _rate_words(plan: Plan) -> list[str]:
    """At which load each class is served."""
    found = ["rates are predictions of the roofline model (dse validate says how close they are)"]
    steady = [one.name for one in plan.demand if one.percentile is None]
    if steady:
        found.append(
            f"{', '.join(steady)}: the highest steady load within the limits, in the median; "
            "arrivals are taken as even within the peak"
        )
    found += [
        f"{one.name}: the highest rate of random (Poisson) arrivals that keeps "
        f"{percentile_words(one.percentile)} of first tokens in time; each instance takes its "
        f"share at random{_groups(one)}"
        for one in plan.demand
        if one.percentile is not None
    ]
    found += [
        f"{one.name} from {one.traffic.source}{'' if _groups(one) else ', at its mean lengths'}"
        for one in plan.demand
        if one.traffic.source
    ]
    return found


def _owned_words(plan: Plan) -> list[str]:
    """How owned chips are counted, and which of their costs are assumed."""
    if not owned_prices(plan):
        return []
    costs = plan.costs.inputs
    given = ", ".join(f"{words} {costs[name].text}" for name, words in OWNED_COSTS.items())
    found = [
        "owned chips cost what the basis owned_tco says: capital as level payments over "
        f"{costs['life'].text} at {costs['cost_of_capital'].text} a year (that of stock is sunk), "
        "and maintenance, staff, space and electricity at the mean load while they are on. A chip "
        "that is off pays its capital alone. Rents include all of it",
        f"costs of owning: {given} (maintenance a year, staff a chip)",
    ]
    if left := [name for name, one in plan.costs.lines.items() if not one.counted]:
        found.append(f"not counted unless `lines:` of the costs asks for them: {', '.join(left)}")
    assumed = [name for name, one in costs.items() if one.kind == "assumed" and name in OWNED_COSTS]
    if assumed:
        found.append(f"of these, assumed: {', '.join(assumed)}")
    return found


def upper(text: str) -> str:
    """With a capital letter at its start."""
    return text[:1].upper() + text[1:]
