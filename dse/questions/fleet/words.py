"""The answer to a plan in sentences, the recommendation first."""

from __future__ import annotations

from collections.abc import Sequence

from dse import units
from dse.answer.numbers import significant
from dse.economics.fleet import DEMAND, SUPPLY
from dse.economics.fleet_cost import Counted
from dse.questions.fleet.answer import Answer, per_million, split
from dse.questions.fleet.changes import Entry
from dse.schema.plan import BUY, FleetChip, Offer

LIMITS = {
    "watts": "the power", "racks": "the racks", "chips": "the number of chips",
    "usd_per_hour": "the budget per hour", "usd_per_quarter": "the budget per quarter",
    "usd_total": "the budget in all",
}  # fmt: skip
EVEN = 1e-6  # a gap of rounding
_DIMENSION = {"watts": "W", "racks": "count", "chips": "count"}


def lead(answer: Answer) -> list[str]:
    """What to do, what it costs, how sure that is, what would change it."""
    if answer.counted is None:
        return _infeasible(answer)
    return [_what(answer), _how_sure(answer), *_changes(answer)]


def dollars(usd: float) -> str:
    """$1,234, $1.23 million."""
    if abs(usd) >= 999_500:
        return f"${usd / 1e6:,.2f} million"
    return f"${usd:,.0f}" if abs(usd) >= 100 else f"${usd:,.2f}"


def price(offer: Offer, usd: float) -> str:
    """A price of an offer with what it is paid for."""
    return f"${usd:,.0f} a chip" if offer.way == BUY else f"${significant(usd)} per chip-hour"


def value_words(name: str, value: float) -> str:
    """The value of a limit, a supply or a demand with its unit."""
    if name.startswith(DEMAND):
        return f"{value:,.0f} requests/s" if value >= 100.0 else f"{value:.3g} requests/s"
    if name.startswith(SUPPLY):
        return f"{value:,.0f} chips a quarter"
    if name in _DIMENSION:
        return units.format(value, _DIMENSION[name], 4)
    return dollars(value)


def limit_words(name: str) -> str:
    kind, _, rest = name.partition(" ")
    if kind == DEMAND:
        return f"the demand of {rest}"
    return f"the supply of {rest}" if kind == SUPPLY else LIMITS[name]


def _what(answer: Answer) -> str:
    plan, mix, counted = answer.plan, answer.solved.mix, answer.counted
    assert mix is not None
    assert counted is not None
    parts = [
        _orders(answer, offer)
        for offer in plan.offers
        if any(label == offer.label for label, _ in mix.orders)
    ]
    what = and_(parts) if parts else "order nothing"
    on = [_on(chip, counted) for chip in plan.chips if chip.stock]
    if on:
        what += f"; {and_(on)}"
    cost = sum(one.usd for one in counted.quarters)
    return (
        f"{upper(what)}: {dollars(cost)} over {plan.quarters} "
        f"quarter{'s' * (plan.quarters > 1)}, "
        f"${significant(per_million(plan, counted))} per million tokens."
    )


def _on(chip: FleetChip, counted: Counted) -> str:
    """Run up to 496 of the 512 a100_80_sxm that are owned (496 in quarter 1, 72 in quarter 6)."""
    on = [one.owned_on.get(chip.chip, 0) * chip.server for one in counted.quarters]
    owned = f"the {chip.stock:,} {chip.chip} that are owned"
    if not any(on):
        return f"leave {owned} off"
    if len(set(on)) == 1:
        return f"run {on[0]:,} of {owned}"
    ends = f"{on[0]:,} in quarter 1, {on[-1]:,} in quarter {len(on)}"
    return f"run up to {max(on):,} of {owned} ({ends})"


def _orders(answer: Answer, offer: Offer) -> str:
    """Rent 24 h100_sxm on rental_3yr (16 in quarter 1, 8 in quarter 3)."""
    mix = answer.solved.mix
    assert mix is not None
    server = answer.plan.chip(offer.chip).server
    when = sorted((q, n * server) for (label, q), n in mix.orders.items() if label == offer.label)
    what = offer.label.replace(", rent", "").replace(", bought", "")
    text = f"{offer.way} {sum(chips for _, chips in when):,} {what}"
    each = [f"{chips:,} in quarter {q + 1}" for q, chips in when]
    ordered = "ordered " if offer.lead_quarters else ""
    later = ""
    if offer.lead_quarters:
        plural = "s" * (offer.lead_quarters > 1)
        later = f", there {offer.lead_quarters} quarter{plural} later"
    if len(when) == 1:
        each = [f"in quarter {when[0][0] + 1}"]
    return f"{text} ({ordered}{and_(each)}{later})"


def _how_sure(answer: Answer) -> str:
    solved, counted = answer.solved, answer.counted
    assert counted is not None
    if solved.status.startswith("feasible"):
        proven = (
            f"the limit of nodes was reached: a mix up to {100 * solved.gap:.2g}% cheaper may exist"
        )
    elif solved.gap > EVEN:
        proven = f"no other mix of the options is more than {100 * solved.gap:.1g}% cheaper"
    else:
        proven = "no other mix of the options is cheaper"
    committed = ""
    if counted.committed_usd:
        committed = (
            f" The rents signed bind for {dollars(counted.committed_usd)} more after the last "
            "quarter."
        )
    return (
        f"Of {len(answer.options)} options, {proven}. Discounted to today it costs "
        f"{dollars(counted.usd)}; a second count, from the orders, says the same."
        + _paid_whole(counted)
        + committed
    )


def _paid_whole(counted: Counted) -> str:
    """What purchases take in cash, of which the cost has the charge of these quarters alone."""
    bought = counted.bought_usd
    if not bought:
        return ""
    charged = sum(one.capital for quarter in counted.quarters for one in quarter.spend.values())
    return (
        f" What is bought is paid whole when it arrives, {dollars(bought)}; the cost has its "
        f"charge for these quarters alone, {dollars(charged)}."
    )


def _changes(answer: Answer) -> list[str]:
    found = []
    if split(answer):
        found.append(
            "The prices and savings that follow are of a program with split instances, which need "
            "not be whole: in so large a fleet, one makes little difference."
        )
    unused = [e for e in answer.entries if not e.used and e.usd_at and not e.reason]
    if unused:
        nearest = max(unused, key=_ratio)
        assert nearest.usd_at is not None
        found.append(
            f"Next in line is {nearest.offer.label}: it enters below "
            f"{price(nearest.offer, nearest.usd_at)}, now "
            f"{price(nearest.offer, nearest.offer.usd)}."
        )
    for row in answer.entries:
        if row.reason.startswith("in or out"):
            found.append(f"With or without {row.offer.label}, the cost is the same to the gap.")
        elif row.used and row.usd_at is not None and row.without is not None:
            found.append(
                f"{row.offer.label} stays up to {price(row.offer, row.usd_at)}, now "
                f"{price(row.offer, row.offer.usd)}; without it the fleet costs "
                f"{row.without:.1%} more."
            )
        elif row.used:
            found.append(f"{row.offer.label}: {row.reason}.")
    for row in answer.loosened:
        if row.status == "infeasible":
            found.append(
                f"Nothing keeps the plan where {limit_words(row.what)} is "
                f"{value_words(row.what, row.after)} instead of "
                f"{value_words(row.what, row.before)}."
            )
        if row.usd is not None and row.usd < -1e-3 * answer.solved.usd:
            found.append(
                f"{upper(limit_words(row.what))} binds: "
                f"{value_words(row.what, row.after)} instead of "
                f"{value_words(row.what, row.before)} saves {dollars(-row.usd)}."
            )
    return found


def _ratio(row: Entry) -> float:
    return (row.usd_at or 0.0) / row.offer.usd if row.offer.usd else 0.0


def _infeasible(answer: Answer) -> list[str]:
    if answer.unserved:
        found = []
        for name in answer.unserved:
            why = [r for r in answer.refused if r.klass == name]
            rows = [f"{r.model} on {r.chip}: {r.reason}" for r in why] or ["no chip may serve it"]
            found.append(f"No fleet serves {name} within its limits. {'; '.join(rows)}.")
        return found
    if answer.solved.status != "infeasible":
        return [f"No fleet was found; {answer.solved.status}, so that one may exist."]
    found = ["No fleet keeps this plan."]
    alone = [row for row in answer.gives if row.alone]
    if alone:
        found[0] += " Any one of these is enough:" if len(alone) > 1 else " One thing must give:"
    for row in answer.gives:
        parts = [
            f"{limit_words(name)} {'falls' if name.startswith(DEMAND) else 'rises'} from "
            f"{value_words(name, given)} to {value_words(name, needed)}"
            for name, given, needed in zip(row.limits, row.given, row.needed, strict=True)
        ]
        least = "" if row.proven else " (not proven to be the least)"
        found.append(upper(f"{and_(parts)}{least}.") if row.alone else
                     f"No limit alone is enough; together: {and_(parts)}{least}.")  # fmt: skip
    for label in answer.waits:
        found.append(f"With no wait for {label}, the plan holds.")
    if not answer.gives and not answer.waits:
        found.append("Nothing that is listed arrives in time for the first quarter.")
    return found


def upper(text: str) -> str:
    """With a capital letter at its start."""
    return text[:1].upper() + text[1:]


def and_(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
