"""What finance and who signs need of a fleet: the memo, one page, and the sheets of the workbook
that compute: change a price, a running cost or the demand in `inputs`, and the cash and the totals
of the same orders follow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.answer.answer import (
    Answer,
    Cell,
    Column,
    Facts,
    Figure,
    Formula,
    Notes,
    Opening,
    Section,
    Table,
)
from dse.answer.frames import of_rows, stacked_bars
from dse.answer.numbers import dollars, percent, share, significant, tenths, time
from dse.answer.plots import plain
from dse.economics.fleet import divisible, solve
from dse.economics.fleet_cost import (
    Counted,
    Mix,
    Option,
    capital_usd,
    count,
    discount,
    electricity_usd,
    end_usd,
    order_worth_usd,
    orders_of,
    rent_usd,
    tokens,
    upkeep_usd,
)
from dse.physics.intervals import UNKNOWN
from dse.questions.fleet.changes import (
    LOOSE,
    NOTHING_KEEPS,
    QUICK,
    Row,
    lack,
    offer_price,
    stock_words,
)
from dse.schema.plan import BUY, RENT, Plan

Json = Mapping[str, Any]


def cash_figure(frames: Mapping[str, Table]) -> Figure:
    """Cash by quarter, stacked, and what is owed after each."""
    spend = {
        key: [v or 0.0 for v in frames["by_quarter"][key]]
        for key in ("rent_usd", "bought_usd", "upkeep_usd", "electricity_usd", "rent_owed_usd")
    }
    running = zip(spend["upkeep_usd"], spend["electricity_usd"], strict=True)
    series = {
        "rent": spend["rent_usd"],
        "bought": spend["bought_usd"],
        "running": [upkeep + electricity for upkeep, electricity in running],
    }
    return stacked_bars(
        "cash",
        "Cash and commitments",
        {name: values for name, values in series.items() if any(values)},
        "dollars",
        "Dollars paid by quarter: rent, purchases, upkeep and electricity. The line is the rent "
        "that is signed for and still to be paid.",
        line=("rent still owed", spend["rent_owed_usd"]),
    )


def memo(
    plan: Plan,
    options: Sequence[Option],
    counted: Counted,
    answer: Answer,
    changes: Mapping[str, Any],
    frames: Mapping[str, Table],
    spread: Mapping[str, tuple[float, float]],
    check: Sequence[str],
) -> Answer:
    """The page of an answer; `changes` has rows of what would change it, `spread` is the 80%
    interval of measured over predicted throughput by its kind, `check` what to look at before the
    orders are signed."""
    made, hedged = answer.document, plan.signed is not None
    ends = interval(options, counted.mix, spread)
    rests, otherwise = [], []
    for one in plan.demand:
        mean, growth = one.mean, one.growth_per_quarter
        grows = f", changing by {share(growth)} a quarter" if growth else ""
        rests.append(
            f"Demand of {one.name}: {significant(one.requests_per_s)} requests a second on "
            f"average, {significant(one.peak_per_s(0))} at the peak{grows}, each of "
            f"{mean.prompt_tokens:,.0f} prompt and {mean.output_tokens:,.0f} output tokens."
        )
    rests.append(
        "Throughput is predicted by a model that is calibrated on measurements; in four cases of "
        f"five the measured one is {share(ends[0])} to {share(ends[1])} of it."
    )
    used = max(frames["use"]["peak_use"])
    rests.append(f"At the peak the chips that serve are used to {share(used)} at most.")
    if hedged:
        rests += answer.sentences[:-1]
        otherwise = [answer.sentences[-1]]
    else:
        rests += [text for text in answer.sentences if text.startswith("Not searched")]
        otherwise = _otherwise(plan, changes)
    kilowatts = [watts / 1e3 for watts in frames["by_quarter"]["watts"] if watts is not None]
    cap = plan.limits.watts / 1e3
    limit = (f"cap: {cap:,.0f} kW", [cap] * len(kilowatts)) if cap < math.inf else None
    power = stacked_bars(
        "power",
        f"Power, {'no cap is given' if limit is None else 'against the cap'}",
        {"power at the meter": kilowatts},
        "kW at the meter",
        "Kilowatts by quarter of the chips that stand on one's own site and are on.",
        line=limit,
    )
    errors = _errors(plan, options, counted, ends)
    pictures = [errors, power] if any(kilowatts) else [errors]
    return Answer(
        question="memo",
        title=f"Decision memo: {plan.title}",
        headline=answer.headline,
        document=made,
        names=answer.names,
        blocks=(
            Facts(*_committed(made)),
            Section("If the throughput is off, and power", pictures),
            Notes("What it rests on", rests),
            Notes("When to decide otherwise", otherwise),
            Section(
                "Ask each vendor to show, before you sign",
                [_proof(plan, options, counted.mix, changes["prices"], ends[0])],
            ),
        ),
        opening=Opening(
            asked="",
            headline=answer.headline,
            figure=cash_figure(frames),
            table=frames.get("orders"),
            sure=" ".join(check),
        ),
    )


def _committed(made: Json) -> tuple[str, tuple[()], list[tuple[str, str]]]:
    """The heading, no rows, and the numbers that a page prints large."""
    money, futures = made["finance"], made["futures"] or {}
    cash = [row["cash_usd"] for row in made["by_quarter"]]
    title, strong = "What it commits to", []
    if futures.get("service_level") is not None:
        title = "What it serves, and commits to if all comes as predicted"
        strong = [
            ("of futures served", tenths(futures["share"])),
            ("discounted, mean of futures", dollars(futures["usd"])),
            ("in 80% of them", f"{dollars(futures['low'])} to {dollars(futures['high'])}"),
            ("more peak than predicted", percent(futures["headroom"])),
        ]
    strong += [
        ("signed for in all", dollars(made["usd_signed"])),
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
    return title, (), strong


def _otherwise(plan: Plan, changes: Mapping[str, Sequence[Row]]) -> list[str]:
    """By price, and by the throughput that costs as much where a price says it."""
    said, rented = [], _rented_alone(plan)
    for row in changes["prices"]:
        usd, at = row["price_usd"], row["usd_enters_or_leaves_at"]
        if not usd or not at or row["reason"]:
            continue
        ends = (
            f"{offer_price(row, 'usd_enters_or_leaves_at')} ({offer_price(row, 'price_usd')} now)"
        )
        as_rate = row["chip"] in rented
        if row["used"]:
            rate = f", or down to {share(usd / at)} of its predicted throughput" if as_rate else ""
            text = f"{row['offer']} stays up to {ends}{rate}."
            if row["fleet_costs_more_without"]:
                text += f" Without it: {tenths(row['fleet_costs_more_without'])} dearer."
            said.append(text)
        elif usd / at < 2.0:
            rate = f", or at {significant(usd / at)} times its predicted throughput"
            said.append(f"{row['offer']} comes in below {ends}{rate if as_rate else ''}.")
    demands = [
        row for row in changes["limits"] if row["limit"].startswith("the demand") and row["usd"]
    ]
    for row in demands[:1]:
        name = row["limit"].partition(" (")[0].removeprefix("the ")
        said.append(f"A tenth more {name} costs {dollars(row['usd'])}.")
    said += [stock_words(row) for row in changes["stock"]]
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


def interval(
    options: Sequence[Option], mix: Mix, spread: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    """The widest 80% interval of measured over predicted throughput of what serves."""
    used = {kind for k, _ in mix.instances for kind in options[k].kind.split(", ")}
    ends = [spread.get(kind, UNKNOWN) for kind in used] or [UNKNOWN]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _errors(
    plan: Plan, options: Sequence[Option], counted: Counted, ends: tuple[float, float]
) -> Figure:
    """Chips to order where every instance serves less or more than predicted."""
    low, high = ends
    at, found = [], []
    for factor in (low, (1.0 + low) / 2.0, 1.0, (1.0 + high) / 2.0, high):
        name, mix, signed = "predicted", counted.mix, dollars(counted.signed_usd)
        if factor != 1.0:
            name = f"{100 * (factor - 1.0):+.0f}%"
            rates = [replace(one, requests_per_s=one.requests_per_s * factor) for one in options]
            again = solve(plan, rates, nodes=QUICK, gap=LOOSE, split=divisible(plan, rates))
            mix, reason = again.mix, lack(again)
            signed = "none keeps it" if reason == NOTHING_KEEPS else "not known"
            if mix is not None and not reason:
                signed = dollars(count(plan, rates, mix).signed_usd)
            mix = None if reason else mix
        chips: dict[str, int] = {}
        for offer, _, servers, _ in () if mix is None else orders_of(plan, mix):
            kind = offer.chip + (", bought" if offer.way == BUY else "")
            held = math.ceil(servers - 1e-6) * plan.chip(offer.chip).server
            chips[kind] = chips.get(kind, 0) + held
        at.append(f"{name}<br>{plain(signed)}")
        found.append(chips)
    kinds = dict.fromkeys(kind for chips in found for kind in chips)
    when = "order" if plan.signed is None else "later orders; those of quarter 1 stay"
    return stacked_bars(
        "errors",
        "The order against the error of throughput",
        {kind: [chips.get(kind, 0) for chips in found] for kind in kinds},
        "chips to order",
        "Chips to order, and dollars signed for, if every chip serves so much less or more than "
        f"predicted and this is known before the {when}.",
        at=at,
    )


def _proof(
    plan: Plan, options: Sequence[Option], mix: Mix, prices: Sequence[Row], low: float
) -> Table:
    """What each vendor is to show: what serves, at which rate, within which limits. One would
    decide otherwise where what is ordered shows less than that rate, or what is not ordered more;
    no single price says it of what is owned or stands in two pools."""
    known = [
        (row["price_usd"] / at, row) for row in prices if (at := row["usd_enters_or_leaves_at"])
    ]
    ratio = {row["chip"]: times for times, row in known if not row["reason"]}
    serving = [options[k] for k in dict.fromkeys(k for k, _ in sorted(mix.instances))]
    chips = {chip for option in serving for chip in option.chips}
    rivals = [(times, row["chip"]) for times, row in known if not row["used"]]
    times, near = min(rivals, default=(math.inf, ""))
    if times < 2.0 and near not in chips:
        alone = [option for option in options if set(option.chips) == {near}]
        for name in dict.fromkeys(option.klass for option in alone):
            mine = (option for option in alone if option.klass == name)
            serving.append(max(mine, key=lambda one: one.requests_per_s / one.chips[near]))
    rented, classes = _rented_alone(plan), {one.name: one for one in plan.demand}
    rows = []
    for option in serving:
        chip, *more = option.chips
        one = classes[option.klass]
        of = "the median" if one.percentile in (None, 50) else f"{one.percentile}%"
        known_at = chip in ratio and chip in rented and not more
        rows.append(
            {
                "on": option.divided.replace(" x ", " ", 1),
                "model": f"{option.model}, {option.formats}",
                "asked": f"{one.mean.prompt_tokens:,.0f} + {one.mean.output_tokens:,.0f} tokens, "
                f"first in {time(one.ttft_s)} ({of}), then {time(one.tpot_s)}",
                "requests_per_s": option.requests_per_s,
                "requests_per_s.low": low * option.requests_per_s,
                "otherwise_per_s": option.requests_per_s * ratio[chip] if known_at else None,
            }
        )
    return of_rows("proof", "", rows, tuple(rows[0]))


# The sheets that compute, in the order of the letters that formulas name their columns by.
ORDER_COLUMNS = "offer way order_quarter chips first_quarter last_quarter price_usd quarter_usd"
ORDER_COLUMNS += " commits_usd written_off_usd worth_usd"
CASH_COLUMNS = "quarter rent_usd capital_usd upkeep_usd electricity_usd usd bought_usd cash_usd"
CASH_COLUMNS += " worth_usd discount_factor present_usd"


def sheets(plan: Plan, counted: Counted, spend: Mapping[str, Any], used: float) -> list[Table]:
    """`inputs`, `totals`, `cash flow` and `order cost`, of the orders as they are: all is linear in
    the prices, in the running costs of a chip that is owned and on, and in the demand. `used` is
    the highest share of what the chips serve that a peak takes."""
    inputs: list[dict[str, Cell]] = []

    def add(name: str, value: Cell, unit: str, source: str) -> str:
        inputs.append({"name": name, "value": value, "unit": unit, "source": source})
        return f"inputs!$B${len(inputs) + 1}"

    demand = add("demand factor", 1.0, "times the plan's demand; the orders stay", "")
    price = {
        offer.label: add(
            offer.label,
            offer.usd,
            "USD a chip" if offer.way == BUY else "USD a chip-hour",
            offer.words,
        )
        for offer in plan.offers
    }
    running = {"upkeep_usd": upkeep_usd, "electricity_usd": electricity_usd}
    unit = "USD a chip that is owned and on, and quarter"
    each = [
        (key, k, add(f"{chip.chip} {key[:-4]}", usd(plan, chip.chip), unit, "computed"))
        for k, chip in enumerate(plan.chips)
        if chip.owning is not None
        for key, usd in running.items()
    ]
    orders: list[dict[str, Cell]] = []
    for offer, q, _, chips in sorted(
        orders_of(plan, counted.mix), key=lambda one: (one[1], one[0].label)
    ):
        k, usd, first = len(orders) + 2, offer.usd_in(q), q + offer.lead_quarters + 1
        if offer.way == BUY:
            lasts, quarterly, signed = offer.life_quarters, capital_usd(plan, offer, q), usd
            left = order_worth_usd(plan, offer, q)
        else:
            lasts, quarterly, left = offer.term_quarters, rent_usd(offer, q), 0.0
            signed = quarterly * lasts
        # Dollars of a chip of the order, that are as many times its price.
        linear = {"quarter_usd": quarterly, "commits_usd": signed, "worth_usd": left}
        linear["written_off_usd"] = end_usd(plan, offer, q)
        orders.append(
            {
                "offer": offer.label,
                "way": offer.way,
                "order_quarter": q + 1,
                "chips": chips,
                "first_quarter": first,
                "last_quarter": first + lasts - 1,
                "price_usd": Formula(f"{price[offer.label]}*{usd / offer.usd!r}", usd),
                **{
                    key: Formula(f"D{k}*G{k}*{value / usd!r}", chips * value)
                    for key, value in linear.items()
                },
            }
        )

    def of(column: str, sheet: str = "order cost", rows: int = max(len(orders), 1)) -> str:
        return f"'{sheet}'!${column}$2:${column}${rows + 1}"

    cash: list[dict[str, Cell]] = []
    for q, quarter in enumerate(spend["quarter"].tolist()):
        k, within = len(cash) + 2, quarter <= plan.quarters
        there = f"({of('E')}<=A{k})*({of('F')}>A{k}-1)*{of('H')})"
        on = {
            key: "+".join(
                f"{float(counted.by_chip['on'][q, at]) * plan.chips[at].server!r}*{cell}"
                for named, at, cell in each
                if named == key and within
            )
            for key in running
        }
        worth = f"SUM({of('K')})" if quarter == plan.quarters + 1 else "0"
        worth += "" if within else f"+{plan.used_after_end!r}*B{k}"
        factor = discount(plan, q)
        paid = f'SUMPRODUCT(({of("B")}="buy")*({of("E")}=A{k})*{of("I")})'
        capital = f'SUMPRODUCT(({of("B")}="buy")*{there}' if within else "0"
        texts = {
            "rent_usd": f'SUMPRODUCT(({of("B")}="rent")*{there}',
            "capital_usd": capital,
            **{key: text or "0" for key, text in on.items()},
            "usd": f"B{k}+C{k}+D{k}+E{k}" if within else "0",
            "bought_usd": paid,
            "cash_usd": f"B{k}+D{k}+E{k}+G{k}",
            "worth_usd": worth,
            "present_usd": f"J{k}*(H{k}-I{k})",
        }
        now = {key: float(np.nan_to_num(spend[key][q])) for key in texts}
        sums = {key: Formula(text, now[key]) for key, text in texts.items()}
        cash.append({"quarter": quarter, "discount_factor": factor, **sums})

    flow = {column: of(column, "cash flow", len(cash)) for column in "FGHJK"}
    every, paid_usd = tokens(plan), float(spend["cash_usd"].sum())
    discounted = f"SUMPRODUCT({flow['F']}*{flow['J']})+SUM({of('J')})"
    present_usd = float(spend["present_usd"].sum())
    totals = [
        ("signed for in all", f"SUM({flow['H']})", paid_usd, "USD"),
        ("cost of the plan", f"SUM({flow['F']})", counted.within_usd, "USD"),
        ("discounted cost, with what is written off", discounted, counted.usd, "USD"),
        ("today's worth of the cash", f"SUM({flow['K']})", present_usd, "USD"),
        ("capital", f"SUM({flow['G']})", counted.bought_usd, "USD"),
        ("running costs and rent", "B2-B6", paid_usd - counted.bought_usd, "USD"),
        (
            "cost per million tokens",
            f"B3/({every!r}*{demand})*1000000",
            counted.within_usd / every * 1e6,
            "USD",
        ),
        ("highest use at the peak", f"{used!r}*{demand}", used, "share of what the chips serve"),
        (
            "the orders serve the demand",
            'IF(B9<=1.000001,"yes","no: order again")',
            "yes",
            "",
        ),
    ]
    rows = [{"name": n, "value": Formula(text, now), "unit": u} for n, text, now, u in totals]
    unit, source = Column("unit", "unit"), Column("source", "source")
    named = (Column("name", "input"), Column("value", "value", "input"), unit, source)
    summed = (Column("name", "total"), Column("value", "value", "dollars"), unit)
    return [
        Table("inputs", "", named, inputs),
        Table("totals", "", summed, rows),
        of_rows("cash flow", "", cash, CASH_COLUMNS),
        of_rows("order cost", "", orders, ORDER_COLUMNS),
    ]
