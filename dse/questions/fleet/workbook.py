"""The sheets of a fleet's workbook that compute: change a price, a cost, the rate or the demand in
`inputs`, and the cash and the totals of the same orders follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Cell, Column, Formula, Table
from dse.answer.frames import of_rows
from dse.economics.fleet_cost import (
    Flow,
    capital_usd,
    cash_flow,
    discount,
    electricity_usd,
    end_usd,
    order_worth_usd,
    rent_usd,
    tokens,
    upkeep_usd,
)
from dse.economics.tco import yearly_capital
from dse.questions.fleet.solution import Solution, use_rows
from dse.schema.plan import BUY, QUARTER_HOURS, FleetChip, Plan

# Costs of owning that the sheets compute with, and their units.
COSTS = {
    "cost_of_capital": "a year",
    "resale": "share of the capital at the end of life",
    "worth_after_3_years": "share of the capital that a buyer pays then",
    "network_share": "share of the servers",
    "maintenance": "share of the capital a year",
    "staff": "USD a chip and year",
    "space": "USD a kW and month",
    "electricity": "USD/kWh",
    "load_share": "share of the power that follows the load",
}
# Columns of the sheets, in the order of the letters that formulas name them by.
ORDER_COLUMNS = "offer way order_quarter chips first_quarter price_usd last_quarter lasts"
ORDER_COLUMNS += " quarter_usd commits_usd written_off_usd worth_usd"
RUNNING_COLUMNS = "quarter chip chips upkeep_usd electricity_usd"
CASH_COLUMNS = "quarter rent_usd capital_usd upkeep_usd electricity_usd usd bought_usd cash_usd"
CASH_COLUMNS += " worth_usd discount_factor present_usd"


class _Inputs:
    """The rows of `inputs`; each name is a cell that formulas refer to."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Cell]] = []
        self.at: dict[str, str] = {}

    def add(self, name: str, value: Cell, unit: str, source: str = "") -> str:
        self.rows.append({"name": name, "value": value, "unit": unit, "source": source})
        self.at[name] = f"inputs!$B${len(self.rows) + 1}"
        return self.at[name]

    def table(self) -> Table:
        columns = (
            Column("name", "input"),
            Column("value", "value", "input"),
            Column("unit", "unit"),
            Column("source", "source"),
        )
        return Table("inputs", "", columns, self.rows)


def sheets(found: Solution) -> list[Table]:
    """`inputs`, `totals`, `cash`, `orders` and `running`; nothing where nothing keeps the plan."""
    plan, mix, counted = found.plan, found.solved.mix, found.counted
    if mix is None or counted is None:
        return []
    inputs = _inputs(plan)
    orders, running = _orders(found, inputs), _running(found, inputs)
    flows = cash_flow(plan, counted, mix)
    cash = _cash(found, inputs, flows, len(orders.rows), len(running.rows))
    return [inputs.table(), _totals(found, inputs, flows, len(orders.rows)), cash, orders, running]


def _inputs(plan: Plan) -> _Inputs:
    made, costs = _Inputs(), plan.costs
    made.add("discount rate", plan.discount_rate, "a year", "the plan")
    made.add("used after the end", plan.used_after_end, "share", "the plan")
    made.add("demand factor", 1.0, "times the plan's demand; the orders stay", "")
    for name, unit in COSTS.items():
        one = costs.inputs[name]
        source = ", ".join(part for part in (one.kind, one.source, one.date) if part)
        made.add(name.replace("_", " "), one.value, unit, source)
    life = costs.value("life") / (8760.0 * 3600.0)
    made.add("life", life, "years", costs.inputs["life"].source)
    made.add("mean over peak", plan.busy, "share", "the plan's demand")
    for chip in plan.chips:
        if (own := chip.owning) is not None:
            server = made.add(
                f"{chip.chip} server", own.server_usd, "USD a chip, in its server", own.price.source
            )
            network = Formula(f"{server}*(1+{made.at['network share']})", own.capital_usd)
            made.add(f"{chip.chip} capital", network, "USD a chip, with its network", "computed")
            further = Formula(
                "+".join(_line(plan, made, chip, name) for name in own.lines) or "0",
                sum(usd for usd, _ in own.lines.values()),
            )
            names = ", ".join(own.lines) or "none"
            made.add(f"{chip.chip} further lines", further, "USD a chip and year", names)
            made.add(f"{chip.chip} server power", own.server_w / 1e3, "kW a chip", own.power.source)
            made.add(f"{chip.chip} meter power", own.meter_w / 1e3, "kW a chip", own.power.source)
        for offer in chip.offers:
            if offer.way == BUY:
                price: Cell = Formula(made.at[f"{chip.chip} capital"], offer.usd)
                made.add(offer.label, price, "USD a chip, ordered in quarter 1", "computed")
            else:
                unit = "USD a chip-hour, ordered in quarter 1"
                made.add(offer.label, offer.usd, unit, offer.words)
            if offer.price_change:
                made.add(f"{offer.label}, change", offer.price_change, "a quarter", "the plan")
    r, s, y = (made.at[name] for name in ("cost of capital", "resale", "life"))
    rate, resale = costs.value("cost_of_capital"), costs.value("resale")
    charge = sum(yearly_capital(1.0, rate, life, resale))
    made.add(
        "capital charge",
        Formula(f"(1-{s}*(1+{r})^-{y})*{_recovery(r, y)}", charge),
        "share of the price a year",
        "computed: equal payments over the life",
    )
    return made


def _line(plan: Plan, inputs: _Inputs, chip: FleetChip, name: str) -> str:
    """Dollars a chip and year of a line of one's own (`dse.schema.costs`) as a formula."""
    assert chip.owning is not None
    one, (usd, _) = plan.costs.lines[name], chip.owning.lines[name]
    if one.per == "capital":
        return f"{one.value!r}*{inputs.at[f'{chip.chip} capital']}"
    life = plan.costs.value("life") / (8760.0 * 3600.0)
    return f"{usd * life!r}/{inputs.at['life']}" if one.once else repr(usd)


def _recovery(rate: str, years: str) -> str:
    """`dse.economics.tco.recovery_factor` as a formula."""
    return f"IF({rate}=0,1/({years}),LN(1+{rate})/(1-(1+{rate})^-({years})))"


def _orders(found: Solution, inputs: _Inputs) -> Table:
    """A row for each order; dollars of a quarter, in all, and at the end of the plan."""
    plan, at, rows = found.plan, inputs.at, []
    r, s, y, charge = (at[n] for n in ("cost of capital", "resale", "life", "capital charge"))
    used, rate, end = at["used after the end"], at["discount rate"], plan.quarters
    for (label, q), servers in sorted(found.mix.orders.items(), key=lambda one: one[0][::-1]):
        offer, k = plan.offer(label), len(rows) + 2
        chips, first = servers * plan.chip(offer.chip).server, q + offer.lead_quarters + 1
        change = at.get(f"{label}, change")
        text = at[label] + (f"*(1+{change})^{q}" if change else "")
        row: dict[str, Any] = {
            "offer": label,
            "way": offer.way,
            "order_quarter": q + 1,
            "chips": chips,
        }
        row |= {"first_quarter": first, "price_usd": Formula(text, offer.usd_in(q))}
        if offer.way == BUY:
            last, age = first + offer.life_quarters - 1, (end - first + 1) / 4.0
            left = f"({y}-{age!r})"
            owed = f"({charge}/{_recovery(r, left)}+{s}*(1+{r})^-{left})"
            worth = f"MAX({at['worth after 3 years']}^({age!r}/3),{s})"
            each, paid = capital_usd(plan, offer, q), offer.usd_in(q)
            quarter = f"D{k}*F{k}*{charge}/4"
            signed = f"D{k}*F{k}"
            kept = f"IF({left}<=0,0,{worth}+{used}*({owed}-{worth}))"
            ends = f"D{k}*F{k}*IF({left}<=0,0,(1-{used})*({owed}-{worth}))*(1+{rate})^-{end / 4!r}"
            left_usd = order_worth_usd(plan, offer, q)
            worth_cell = Formula(f"D{k}*F{k}*{kept}", chips * left_usd)
        else:
            last = first + offer.term_quarters - 1
            each = rent_usd(offer, q)
            paid = each * offer.term_quarters
            quarter, signed = f"D{k}*F{k}*{QUARTER_HOURS!r}", f"I{k}*{offer.term_quarters}"
            after = max(last - end, 0)
            v = f"(1+{rate})^-0.25"
            # What lies after the plan, each quarter discounted: a geometric sum.
            total = f"IF({rate}=0,{after},({v})^{end}*(1-({v})^{after})/(1-{v}))"
            ends, worth_cell = f"I{k}*(1-{used})*{total}", Formula(f"0*I{k}", 0.0)
        row |= {
            "last_quarter": last,
            "lasts": "rented" if offer.way != BUY else "owned",
            "quarter_usd": Formula(quarter, chips * each),
            "commits_usd": Formula(signed, chips * paid),
            "written_off_usd": Formula(ends, chips * end_usd(plan, offer, q)),
            "worth_usd": worth_cell,
        }
        rows.append(row)
    return of_rows("order cost", "", rows, ORDER_COLUMNS)


def _running(found: Solution, inputs: _Inputs) -> Table:
    """A row for each chip that is owned and on, and quarter."""
    plan, at, rows = found.plan, inputs.at, []
    for (chip, q), servers in sorted(found.mix.on.items(), key=lambda one: one[0][::-1]):
        k, chips = len(rows) + 2, servers * plan.chip(chip).server
        own = plan.chip(chip).owning
        assert own is not None
        upkeep = (
            f"C{k}*({at[f'{chip} capital']}*{at['maintenance']}/4+{at['staff']}/4"
            f"+{at[f'{chip} further lines']}/4"
            f"+{at[f'{chip} server power']}*{at['space']}*3)"
        )
        load = f"(1-{at['load share']}+{at['load share']}*{at['mean over peak']})"
        drawn = f"C{k}*{at[f'{chip} meter power']}*{at['electricity']}*{load}*{QUARTER_HOURS!r}"
        rows.append(
            {
                "quarter": q + 1,
                "chip": chip,
                "chips": chips,
                "upkeep_usd": Formula(upkeep, chips * upkeep_usd(plan, chip)),
                "electricity_usd": Formula(drawn, chips * electricity_usd(plan, chip)),
            }
        )
    return of_rows("running cost", "", rows, RUNNING_COLUMNS)


def _cash(
    found: Solution, inputs: _Inputs, flows: Sequence[Flow], orders: int, running: int
) -> Table:
    plan, counted, rows = found.plan, found.counted, []
    assert counted is not None

    def of(column: str) -> str:
        return f"'order cost'!${column}$2:${column}${max(orders, 1) + 1}"

    def run(column: str) -> str:
        return f"'running cost'!${column}$2:${column}${max(running, 1) + 1}"

    used, rate = inputs.at["used after the end"], inputs.at["discount rate"]
    for one in flows:
        k, q = len(rows) + 2, one.quarter
        within = q <= plan.quarters
        spend = counted.quarters[q - 1].spend.values() if within else ()
        capital = sum(each.capital for each in spend)
        there = f"({of('E')}<=A{k})*({of('G')}>A{k}-1)"
        rent = f'SUMPRODUCT(({of("B")}="rent")*{there}*{of("I")})'
        charge = f'SUMPRODUCT(({of("B")}="buy")*{there}*{of("I")})' if within else "0"
        worth = f"SUM({of('L')})" if q == plan.quarters + 1 else "0"
        worth += "" if within else f"+{used}*B{k}"
        cost = one.opex + capital
        rows.append(
            {
                "quarter": q,
                "rent_usd": Formula(rent, one.rent),
                "capital_usd": Formula(charge, capital),
                "upkeep_usd": Formula(f"SUMIF({run('A')},A{k},{run('D')})", one.upkeep),
                "electricity_usd": Formula(f"SUMIF({run('A')},A{k},{run('E')})", one.electricity),
                "usd": Formula(f"B{k}+C{k}+D{k}+E{k}" if within else "0", cost if within else 0.0),
                "bought_usd": Formula(
                    f'SUMPRODUCT(({of("B")}="buy")*({of("E")}=A{k})*{of("J")})', one.bought
                ),
                "cash_usd": Formula(f"B{k}+D{k}+E{k}+G{k}", one.paid),
                "worth_usd": Formula(worth, one.worth),
                "discount_factor": Formula(f"(1+{rate})^-((A{k}-1)/4)", discount(plan, q - 1)),
                "present_usd": Formula(f"J{k}*(H{k}-I{k})", one.present),
            }
        )
    return of_rows("cash flow", "", rows, CASH_COLUMNS)


def _totals(found: Solution, inputs: _Inputs, flows: Sequence[Flow], orders: int) -> Table:
    plan, counted = found.plan, found.counted
    assert counted is not None
    last, factor = len(flows) + 1, inputs.at["demand factor"]

    def cash(column: str) -> str:
        return f"'cash flow'!${column}$2:${column}${last}"

    ended = f"SUM('order cost'!$K$2:$K${max(orders, 1) + 1})"
    use = max(row["peak_use"] for row in use_rows(plan, counted))
    every = tokens(plan)
    present, paid = sum(one.present for one in flows), sum(one.paid for one in flows)
    rows: list[dict[str, Cell]] = []

    def add(name: str, text: str, value: float | str, unit: str) -> None:
        rows.append({"name": name, "value": Formula(text, value), "unit": unit})

    add("signed for in all", f"SUM({cash('H')})", paid, "USD")
    add("cost of the plan", f"SUM({cash('F')})", counted.within_usd, "USD")
    discounted = f"SUMPRODUCT({cash('F')}*{cash('J')})+{ended}"
    add("discounted cost, with what is written off", discounted, counted.usd, "USD")
    add("today's worth of the cash", f"SUM({cash('K')})", present, "USD")
    add("capital", f"SUM({cash('G')})", counted.bought_usd, "USD")
    add("running costs and rent", "B2-B6", paid - counted.bought_usd, "USD")
    each = f"B3/({every!r}*{factor})*1000000"
    add("cost per million tokens", each, counted.within_usd / every * 1e6, "USD")
    add("highest use at the peak", f"{use!r}*{factor}", use, "share of what the chips serve")
    holds = 'IF(B9<=1.000001,"yes","no: order again")'
    add("the orders serve the demand", holds, "yes", "")
    columns = (Column("name", "total"), Column("value", "value", "dollars"), Column("unit", "unit"))
    return Table("totals", "", columns, rows)
