"""The answer to a plan in sentences, the recommendation first."""

from __future__ import annotations

from collections.abc import Sequence

from dse import units
from dse.economics.fleet import DEMAND, SUPPLY
from dse.specs.plan import BUY, Offer
from dse.study.fleet.answer import Answer, per_million
from dse.study.fleet.changes import Entry

LIMITS = {
    "watts": "the power", "racks": "the racks", "chips": "the number of chips",
    "usd_per_hour": "the budget per hour", "usd_per_quarter": "the budget per quarter",
    "usd_total": "the budget in all",
}  # fmt: skip
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
    return f"${usd:,.0f} a chip" if offer.way == BUY else f"${usd:,.3g} per chip-hour"


def value_words(name: str, value: float) -> str:
    """The value of a limit, a supply or a demand with its unit."""
    if name.startswith(DEMAND):
        return f"{value:.3g} requests/s"
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
    orders = []
    for (label, q), servers in sorted(mix.orders.items(), key=lambda item: (item[0][1], item[0])):
        offer = next(one for one in plan.offers if one.label == label)
        chips = servers * plan.chip(offer.chip).server
        when = f"in quarter {q + 1}"
        if offer.lead_quarters:
            when += f" for quarter {q + 1 + offer.lead_quarters}"
        orders.append(f"{offer.way} {chips:,} {label.replace(f', {offer.way}', '').replace(', bought', '')} {when}")
    on = [
        f"{max(q.owned_on.get(chip.chip, 0) for q in counted.quarters) * chip.server:,} of the "
        f"{chip.stock:,} {chip.chip} that are owned"
        for chip in plan.chips
        if chip.stock
    ]
    what = and_(orders) if orders else "order nothing"
    if on:
        what += f", run at most {and_(on)}"
    cost = sum(one.usd for one in counted.quarters)
    return (
        f"{what[0].upper()}{what[1:]}: {dollars(cost)} over {plan.quarters} "
        f"quarter{'s' * (plan.quarters > 1)}, "
        f"${per_million(plan, counted):.3g} per million tokens."
    )


def _how_sure(answer: Answer) -> str:
    solved, counted = answer.solved, answer.counted
    assert counted is not None
    proven = "no other mix of the options is cheaper" if solved.status == "optimal" else (
        f"the time limit was reached: a mix up to {solved.gap:.2%} cheaper may exist"
    )
    if solved.status == "optimal" and solved.gap > 0.0:
        proven = f"no other mix of the options is more than {solved.gap:.2%} cheaper"
    committed = ""
    if counted.committed_usd:
        committed = (
            f" The rents signed bind for {dollars(counted.committed_usd)} more after the last "
            "quarter."
        )
    return (
        f"Of {len(answer.options)} options, {proven} (discounted {dollars(counted.usd)}; counted "
        f"again from the mix, the same)." + committed
    )


def _changes(answer: Answer) -> list[str]:
    found = []
    unused = [e for e in answer.entries if not e.used and e.usd_at is not None]
    if unused:
        nearest = max(unused, key=_ratio)
        assert nearest.usd_at is not None
        found.append(
            f"Next in line is {nearest.offer.label}: it enters below "
            f"{price(nearest.offer, nearest.usd_at)}, now {price(nearest.offer, nearest.offer.usd)}."
        )
    for row in answer.entries:
        if row.used and row.usd_at is not None and row.without_usd is not None:
            found.append(
                f"{row.offer.label} stays up to {price(row.offer, row.usd_at)}, now "
                f"{price(row.offer, row.offer.usd)}; without it the fleet costs "
                f"{row.without_usd / answer.solved.usd - 1.0:.1%} more."
            )
        elif row.used:
            found.append(f"{row.offer.label}: {row.reason}.")
    for row in answer.loosened:
        if row.usd is not None and row.usd < -1e-3 * answer.solved.usd:
            found.append(
                f"{limit_words(row.what).capitalize()} binds: "
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
        found.append(f"{and_(parts)}{least}.".capitalize() if row.alone else
                     f"No limit alone is enough; together: {and_(parts)}{least}.")  # fmt: skip
    for label in answer.waits:
        found.append(f"With no wait for {label}, the plan holds.")
    if not answer.gives and not answer.waits:
        found.append("Nothing that is listed arrives in time for the first quarter.")
    return found


def and_(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)
