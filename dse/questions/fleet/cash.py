"""Finance's view of a fleet: its cash by quarter, capital and running costs, the worth of what is
left at the end, and what buying returns against renting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Column, Figure, Table
from dse.answer.numbers import dollars, tenths
from dse.economics.fleet_cost import Flow, cash_flow, present_usd, returned, site_kwh
from dse.questions.fleet.answer import NOTHING_KEEPS, Solution
from dse.questions.fleet.figures import bar, layout
from dse.schema.plan import BUY

Json = Mapping[str, Any]
AS_PREDICTED = " That holds if demand, throughput, prices and delivery come as predicted."


def finance(found: Solution) -> dict[str, Any] | None:
    """The document's `finance`: null where nothing keeps the plan."""
    mix, counted, plan = found.solved.mix, found.counted, found.plan
    if mix is None or counted is None:
        return None
    flows = cash_flow(plan, counted, mix)
    against: dict[str, Any] | None = None
    instead = found.instead
    if instead is not None and instead.mix is not None and instead.counted is not None:
        other = cash_flow(plan, instead.counted, instead.mix)
        earns = returned(plan, flows, other)
        against = {
            "usd_signed": instead.counted.signed_usd,
            "present_usd": present_usd(other),
            "present_usd_saved": earns.saves,
            "irr_per_year": earns.irr,
            "payback_quarter": earns.payback,
        }
    return {
        "discount_rate_per_year": plan.discount_rate,
        "present_usd": present_usd(flows),
        "capex_usd": sum(one.bought for one in flows),
        "opex_usd": sum(one.opex for one in flows),
        "worth_at_end_usd": sum(one.worth for one in flows),
        "rents_of_use_usd": sum(one.useful for one in flows),
        "against_renting": against,
        "renting_alone": "" if instead is None else instead.reason,
        "stock": [
            {
                "chip": one.chip.chip,
                "chips": one.chip.stock,
                "saves_usd_per_chip": one.worth_usd,
                "sale_usd_per_chip": one.chip.sale_usd,
                "reason": one.reason,
            }
            for one in found.stock
        ],
        "cash_flow": _rows(flows),
    }


def _rows(flows: Sequence[Flow]) -> list[dict[str, Any]]:
    rows, paid = [], 0.0
    for one in flows:
        paid += one.paid
        rows.append(
            {
                "quarter": one.quarter,
                "rent_usd": one.rent,
                "running_usd": one.upkeep + one.electricity,
                "opex_usd": one.opex,
                "capex_usd": one.bought,
                "cash_usd": one.paid,
                "cash_so_far_usd": paid,
                "worth_usd": one.worth,
                "present_usd": one.present,
                "depreciation_usd": one.depreciation,
                "book_usd": one.book,
                "rent_owed_usd": one.owed,
            }
        )
    return rows


def cash_table(found: Solution, document: Json) -> Table:
    columns = {
        "rent_usd": "rent",
        "running_usd": "running",
        "capex_usd": "bought",
        "cash_usd": "cash paid",
        "cash_so_far_usd": "so far",
        "worth_usd": "worth left",
        "present_usd": "today's worth",
        "depreciation_usd": "depreciation",
        "rent_owed_usd": "rent still owed",
    }
    rows = document["finance"]["cash_flow"]
    shown = {key: title for key, title in columns.items() if any(row[key] for row in rows)}
    return Table(
        "cash",
        "Cash by quarter, and what is still owed",
        (
            Column("quarter", "quarter", "count"),
            *(Column(key, title, "dollars") for key, title in shown.items()),
        ),
        rows,
        (
            f"Quarters after {found.plan.quarters} pay rents to the end of their term. Running: "
            "upkeep and electricity of what is owned. Worth left: what a buyer pays for the chips "
            "when the plan ends, and later rents that are of use. Today's worth: cash paid less "
            f"worth left, discounted by {found.plan.discount_rate:.0%} a year. Depreciation: "
            f"straight-line over the life.{AS_PREDICTED if found.hedged is not None else ''}",
        ),
        on_console=False,
    )


def stock_words(found: Solution) -> list[str]:
    """Whether what is owned is better kept or sold now."""
    said = []
    for one in found.stock:
        chip, worth, sale = one.chip, one.worth_usd, one.chip.sale_usd
        if worth is None:
            kept = f"the {chip.stock:,} {chip.chip} of stock"
            if one.reason == NOTHING_KEEPS:
                said.append(f"Nothing keeps the plan without {kept}.")
            else:
                said.append(f"What {kept} save is {one.reason}.")
            continue
        text = (
            f"The {chip.stock:,} {chip.chip} of stock save {dollars(worth)} each over the plan: "
            "keep them unless a buyer pays more than that and their worth at its end"
        )
        if sale is not None:
            text += f" (now {dollars(sale)}, {dollars(sale * chip.stock)} for all)"
        said.append(f"{text}.")
    return said


def finance_words(found: Solution, money: Json | None) -> list[str]:
    """Today's worth of the cash, and what buying returns; nothing where nothing is bought. `money`
    is what `finance` gives."""
    if money is None or not money["capex_usd"]:
        return []
    left = "the chips are"
    if money["rents_of_use_usd"]:
        left = "the chips, and later rents that are of use, are"
    said = (
        f"Of the cash, {dollars(money['capex_usd'])} is capital and {dollars(money['opex_usd'])} "
        f"running cost; less {dollars(money['worth_at_end_usd'])} that {left} worth "
        f"when the plan ends, all of it is {dollars(money['present_usd'])} today."
    )
    if found.hedged is not None:
        return [said + AS_PREDICTED]
    quarters, other = found.plan.quarters, money["against_renting"]
    if other is None:
        if (reason := money["renting_alone"]) == NOTHING_KEEPS:
            none = "Nothing keeps the plan by renting alone, so that buying has no return."
        else:
            none = f"What buying returns against renting alone is {reason}."
        return [said, none]
    back = other["payback_quarter"]
    paid = f"it is paid back in quarter {back}" if back else "it is paid back only by what is left"
    if back and back > quarters:
        paid += f", {back - quarters} after the plan"
    saves, rate = other["present_usd_saved"] > 0.0, other["irr_per_year"]
    verb = "saves" if saves else "costs"
    earns = "pays at any rate of interest" if saves else "pays at no rate of interest"
    if rate is not None:
        earns = f"returns {tenths(rate)} a year"
    return [
        said,
        f"Against the cheapest order that only rents, buying {earns} and {verb} "
        f"{dollars(abs(other['present_usd_saved']))} of today's worth; {paid}.",
    ]


def carbon_words(found: Solution) -> list[str]:
    """What is emitted for the chips on one's own site, where the costs say the CO2 of a kWh."""
    carbon = found.plan.costs.carbon
    if carbon is None or found.counted is None:
        return []
    kwh = site_kwh(found.plan, found.counted)
    elsewhere = any(not offer.on_site for offer in found.plan.offers)
    said = (
        f"The chips on this site draw {kwh / 1e3:,.0f} MWh in {found.plan.quarters} quarters: "
        f"{kwh * carbon.value / 1e6:,.0f} t of CO2 at {carbon.text}"
    )
    said += f" ({carbon.date})" if carbon.date else ""
    return [said + ("; those at a provider's site are not counted." if elsewhere else ".")]


def cash_figure(document: Json) -> Figure:
    """Cash by quarter, stacked, and what is owed after each."""
    rows = document["finance"]["cash_flow"]
    parts = (("rent", "rent_usd"), ("bought", "capex_usd"), ("running", "running_usd"))
    traces = [
        bar(name, [row[key] for row in rows], [dollars(row[key]) for row in rows], k)
        for k, (name, key) in enumerate(parts)
        if any(row[key] for row in rows)
    ]
    owed = [row["rent_owed_usd"] for row in rows]
    if any(owed):
        line = bar("rent still owed", owed, list(map(dollars, owed)), len(parts))
        traces.append({**line, "type": "scatter", "mode": "lines+markers"})
    shows = "Dollars paid by quarter: rent, purchases, upkeep and electricity"
    return Figure(
        "cash",
        "Cash and commitments",
        {"data": traces, "layout": layout("dollars", small=True)},
        f"{shows}. The line is the rent that is signed for and still to be paid.",
    )


def commitments(found: Solution, document: Json) -> list[dict[str, Any]]:
    """The orders with the cash that each commits to, and a row for what runs on one's own site."""
    rows = []
    for row in document["orders"]:
        offer = found.plan.offer(row["offer"])
        if row["way"] == BUY:
            usd = row["chips"] * row["usd_per_chip"]
        else:
            hours = offer.term_quarters * 8760.0 / 4.0
            usd = row["chips"] * row["usd_per_chip_hour"] * hours
        rows.append({**row, "term_quarters": offer.term_quarters, "usd": usd})
    return rows
