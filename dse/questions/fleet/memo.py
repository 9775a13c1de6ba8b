"""The decision memo of a fleet: one page for who signs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Column, Facts, Figure, Notes, Opening, Section, Table
from dse.answer.numbers import dollars, percent, share, significant, tenths, time
from dse.answer.plots import VERMILION, plain
from dse.economics.fleet import divisible, solve
from dse.economics.fleet_cost import Option, count
from dse.physics.intervals import UNKNOWN
from dse.questions.fleet.answer import NOTHING_KEEPS, Solution
from dse.questions.fleet.cash import cash_figure, commitments, stock_words
from dse.questions.fleet.changes import LOOSE, QUICK, lack
from dse.questions.fleet.document import divided
from dse.questions.fleet.figures import bar, layout, level
from dse.questions.fleet.words import NOT_SAID, lead, percentile_words, price, price_check
from dse.schema.plan import BUY, RENT, DemandClass, Plan

Json = Mapping[str, Any]
ROWS = 8  # of the table of orders


def memo(found: Solution, document: Json) -> Answer:
    """The page; `document` is that of the whole answer, whose plan is kept."""

    drawn = [_errors(found), *_power(found, document)]
    return Answer(
        question="memo",
        title=f"Decision memo: {found.plan.title}",
        headline=lead(found)[0],
        document=document,
        asked="",
        names=found.names,
        blocks=(
            _facts(found, document),
            Section("If the throughput is off, and power", drawn),
            Notes("What it rests on", _rests(found, document)),
            Notes("When to decide otherwise", _otherwise(found, document)),
            Section("Ask each vendor to show, before you sign", [_proof(found)]),
        ),
        opening=Opening(
            asked="",
            headline=lead(found)[0],
            figure=cash_figure(document),
            table=order_table(found, document),
            sure=" ".join(price_check(found)),
        ),
    )


def order_table(found: Solution, document: Json) -> Table:
    """What to order, by when, and the cash of each order, the rest of the cash in a row below."""
    rows = []
    for row in commitments(found, document)[:ROWS]:
        way = "buy" if row["way"] == BUY else f"rent, {_years(row['term_quarters'])}"
        rows.append(
            {
                "what": f"{row['chips']:,} {row['chip']}",
                "way": way,
                "by": f"quarter {row['order_quarter']}",
                "from": f"quarter {row['first_quarter']}",
                "usd": row["usd"],
            }
        )
    left = document["usd_signed"] - sum(row["usd"] for row in rows)
    if left > 1e-6 * document["usd_signed"]:
        more = len(document["orders"]) - len(rows)
        what = (
            f"{more} later orders, upkeep and electricity" if more > 0 else "to run what is owned"
        )
        rows.append({"what": what, "usd": left, "way": "", "by": "", "from": ""})
    total = {"what": "in all", "usd": document["usd_signed"], "way": "", "by": "", "from": ""}
    columns = (
        Column("what", "order"),
        Column("way", "how"),
        Column("by", "order by start of"),
        Column("from", "serves from"),
        Column("usd", "commits to", "dollars"),
    )
    note = "Orders after quarter 1 are as predicted; they are decided once the future is seen."
    notes = (note,) if found.hedged is not None and found.plan.quarters > 1 else ()
    return Table("orders", "", columns, [*rows, total], notes)


def _years(quarters: int) -> str:
    if quarters % 4:
        return f"{quarters * 3} months"
    return "1 year" if quarters == 4 else f"{quarters // 4} years"


def _facts(found: Solution, document: Json) -> Facts:
    money, rows = document["finance"], document["finance"]["cash_flow"]
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
        ("of it in quarter 1", dollars(rows[0]["cash_usd"])),
        ("most a quarter", dollars(max(row["cash_usd"] for row in rows))),
        ("capital", dollars(money["capex_usd"])),
        ("running costs", dollars(money["opex_usd"])),
    ]
    if money["worth_at_end_usd"]:
        left = "worth left"
        if money["rents_of_use_usd"]:
            left += ", with later rents that are of use"
        strong.append((left, dollars(money["worth_at_end_usd"])))
    strong.append(
        (
            f"today's worth, at {share(money['discount_rate_per_year'])}",
            dollars(money["present_usd"]),
        )
    )
    if (other := money["against_renting"]) is not None:
        irr, back = other["irr_per_year"], other["payback_quarter"]
        if irr is not None:
            strong.append(("return on buying, a year", tenths(irr)))
        if back is not None:
            strong.append(("paid back in quarter", f"{back}"))
    return Facts(title, (), strong)


def _rests(found: Solution, document: Json) -> list[str]:
    plan, low_high = found.plan, _interval(found)
    said = []
    for one in plan.demand:
        mean, traffic = one.traffic.mean, one.traffic
        grows = f", changing by {share(traffic.growth)} a quarter" if traffic.growth else ""
        said.append(
            f"Demand of {one.name}: {significant(traffic.requests_per_s)} requests a second on "
            f"average, {significant(traffic.peak_per_s(0))} at the peak{grows}, each of "
            f"{mean.prompt_tokens:,.0f} prompt and {mean.output_tokens:,.0f} output tokens."
        )
    low, high = low_high
    said.append(
        "Throughput is predicted by a model that is calibrated on measurements; in four cases of "
        f"five the measured one is {share(low)} to {share(high)} of it."
    )
    use = max(u["peak"] for q in document["by_quarter"] for u in q["utilisation"].values())
    said.append(f"At the peak the chips that serve are used to {share(use)} at most.")
    if found.hedged is not None:
        left = {*price_check(found), NOT_SAID}
        return said + [text for text in lead(found)[1:] if text not in left]
    kept = ("Not searched", "not on general sale", "written off")
    return said + [text for text in lead(found)[1:] if any(words in text for words in kept)]


def _otherwise(found: Solution, document: Json) -> list[str]:
    """By price, and by the throughput that costs as much where a price says it."""
    if found.hedged is not None:
        return [NOT_SAID]
    said, rented_alone = [], _rented_alone(found.plan)
    for row in found.entries:
        offer, at = row.offer, row.usd_at
        if at is None or not offer.usd or not at or row.reason:
            continue
        now, as_rate = price(offer.way, offer.usd), offer.chip in rented_alone
        if row.used:
            text = f"{offer.label} stays up to {price(offer.way, at)} ({now} now)"
            if as_rate:
                text += f", or down to {share(offer.usd / at)} of its predicted throughput"
            dearer = f" Without it: {tenths(row.without)} dearer." if row.without else ""
            said.append(f"{text}.{dearer}")
        elif offer.usd / at < 2.0:
            text = f"{offer.label} comes in below {price(offer.way, at)} ({now} now)"
            if as_rate:
                text += f", or at {significant(offer.usd / at)} times its predicted throughput"
            said.append(f"{text}.")
    more = next((row for row in found.loosened if row.what.startswith("demand") and row.usd), None)
    if more is not None and more.usd:
        said.append(
            f"A tenth more {more.what.replace('demand', 'demand of')} costs {dollars(more.usd)}."
        )
    said += stock_words(found)
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


def _interval(found: Solution) -> tuple[float, float]:
    """The widest 80% interval of measured over predicted throughput of what serves."""
    used = {
        kind
        for k, _ in _mix(found).instances
        for kind in str(found.options[k].detail.get("kind")).split(", ")
    }
    ends = [found.spread.get(kind, UNKNOWN) for kind in used] or [UNKNOWN]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _mix(found: Solution) -> Any:
    assert found.solved.mix is not None
    return found.solved.mix


def _errors(found: Solution) -> Figure:
    """Chips to order where every instance serves less or more than predicted."""
    low, high = _interval(found)
    later = "later orders; those of quarter 1 stay"
    factors = (low, (1.0 + low) / 2.0, 1.0, (1.0 + high) / 2.0, high)
    orders: list[dict[str, int] | None] = []
    texts: list[str] = []
    for factor in factors:
        chips, words = _ordered(found, factor)
        orders.append(chips)
        texts.append(words)
    at = [f"{100 * (factor - 1.0):+.0f}%" if factor != 1.0 else "predicted" for factor in factors]
    labels = [f"{x}<br>{plain(text)}" for x, text in zip(at, texts, strict=True)]
    kinds = dict.fromkeys(kind for one in orders for kind in one or {})
    traces = []
    for k, kind in enumerate(kinds):
        chips = [(one or {}).get(kind, 0) for one in orders]
        traces.append(bar(kind, chips, [f"{n:,} chips" for n in chips], k, at=labels))
    return Figure(
        "errors",
        "The order against the error of throughput",
        {"data": traces, "layout": layout("chips to order", small=True)},
        "Chips to order, and dollars signed for, if every chip serves so much less or more than "
        f"predicted and this is known before the {'order' if found.hedged is None else later}.",
    )


def _ordered(found: Solution, factor: float) -> tuple[dict[str, int] | None, str]:
    """(chips by name and way, dollars signed for) at a factor on every throughput; (None, why)
    where there is no answer."""
    plan, mix, counted = found.plan, found.solved.mix, found.counted
    if factor != 1.0:
        options = [
            replace(one, requests_per_s=one.requests_per_s * factor) for one in found.options
        ]
        again = solve(plan, options, nodes=QUICK, gap=LOOSE, split=divisible(plan, options))
        if reason := lack(again, NOTHING_KEEPS):
            return None, "none keeps it" if reason == NOTHING_KEEPS else "not known"
        mix = again.mix
        counted = None if mix is None else count(plan, options, mix)
    if mix is None or counted is None:
        return None, "not known"
    chips: dict[str, int] = {}
    for (label, _), split in mix.orders.items():
        servers, offer = math.ceil(split - 1e-6), plan.offer(label)
        name = offer.chip + (", bought" if offer.way == BUY else "")
        chips[name] = chips.get(name, 0) + servers * plan.chip(offer.chip).server
    return chips, dollars(counted.signed_usd)


def _power(found: Solution, document: Json) -> list[Figure]:
    quarters = document["by_quarter"]
    kw = [one["watts"] / 1e3 for one in quarters]
    if not any(kw):
        return []
    x, cap = [f"Q{one['quarter']}" for one in quarters], found.plan.limits.watts
    traces = [bar("power at the meter", kw, [f"{one:,.0f} kW" for one in kw], 0)]
    if cap != float("inf"):
        traces.append(level(f"cap: {cap / 1e3:,.0f} kW", cap / 1e3, x, VERMILION, "dash"))
    against = "against the cap" if cap != float("inf") else "no cap is given"
    return [
        Figure(
            "power",
            f"Power, {against}",
            {"data": traces, "layout": layout("kW at the meter", small=True)},
            "Kilowatts by quarter of the chips that stand on one's own site and are on.",
        )
    ]


def _proof(found: Solution) -> Table:
    """What each vendor is to show: what serves, at which rate, within which limits."""
    low, _ = _interval(found)
    ratio = {row.offer.chip: row for row in found.entries if row.usd_at and not row.reason}
    used = dict.fromkeys(k for k, _ in sorted(_mix(found).instances))
    rows = [found.options[k] for k in used]
    rivals = [r for r in found.entries if not r.used and r.usd_at and r.offer.usd < 2 * r.usd_at]
    chips = {chip for option in rows for chip in option.chips}
    near = max(rivals, key=lambda r: (r.usd_at or 0.0) / r.offer.usd, default=None)
    if near is not None and near.offer.chip not in chips:
        rows += _best(found.options, near.offer.chip)
    rented_alone = _rented_alone(found.plan)
    classes = {one.name: one for one in found.plan.demand}

    def must(option: Option) -> float | None:
        """The rate at which one would decide otherwise; None where no single price says it."""
        (chip, *more) = option.chips
        row = ratio.get(chip)
        if row is None or row.usd_at is None or more or chip not in rented_alone:
            return None
        return option.requests_per_s * row.offer.usd / row.usd_at

    def on(option: Option) -> str:
        return divided(option).replace(" x ", " ", 1)

    columns = (
        Column("on", "machine", of=on),
        Column("runs", "runs", of=lambda row: f"{row.model}, {row.detail.get('formats', '')}"),
        Column("limits", "within", of=lambda row: _limits(classes[row.klass])),
        Column("rate", "predicted requests/s", "rate", of=lambda row: row.requests_per_s),
        Column("low", "low end", "rate", of=lambda row: low * row.requests_per_s),
        Column("must", "decide otherwise at", "rate", of=must),
    )
    note = (
        "One machine of each, with the requests of the plan as they come. Low end: nine in ten "
        "measurements are above it."
    )
    if found.hedged is not None or all(must(row) is None for row in rows):
        return Table.of("proof", "", rows, columns[:-1], (note,))
    note += (
        " Decide otherwise: what is ordered shows less than that, or what is not ordered shows "
        "more; a dash where no single price says it."
    )
    return Table.of("proof", "", rows, columns, (note,))


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
    return (
        f"{one.traffic.mean.prompt_tokens:,.0f} + {one.traffic.mean.output_tokens:,.0f} tokens, "
        f"first in {time(one.ttft_s)} ({percentile_words(one.percentile)}), then {time(one.tpot_s)}"
    )
