"""The tables of `dse fleet` as text, for the console, the page and the spreadsheet, and the rows
of fleet.csv."""

from __future__ import annotations

from dse.answer.numbers import milliseconds, significant
from dse.answer.text_table import Table
from dse.economics.fleet import DEMAND, SUPPLY
from dse.economics.fleet_cost import Counted, Option
from dse.questions.fleet.answer import Answer, owned_prices, split
from dse.questions.fleet.changes import MORE
from dse.questions.fleet.words import dollars, limit_words, price, value_words
from dse.schema.plan import BUY

CSV = (
    "quarter", "chip", "ordered_chips", "rented_chips", "owned_chips", "owned_on_chips",
    "serving_chips", "kilowatts", "rent_usd", "capital_usd", "upkeep_usd",
    "electricity_usd", "usd", "bought_usd",
)  # fmt: skip


def tables(answer: Answer) -> list[Table]:
    """Every table of an answer; without a mix, what is refused alone."""
    made: list[Table] = []
    if answer.counted is not None:
        made = [
            chip_table(answer, answer.counted),
            spend_table(answer.counted),
            use_table(answer.counted),
            instance_table(answer),
            *([owned_table(answer)] if owned_prices(answer.plan) else []),
            price_table(answer),
            change_table(answer),
        ]
    if answer.refused:
        made.append(refused_table(answer))
    return made


def chip_table(answer: Answer, counted: Counted) -> Table:
    rows = [
        (
            row["quarter"], row["chip"], *(f"{row[name]:,}" for name in CSV[2:7]),
            f"{row['kilowatts']:,.1f}", dollars(row["usd"]),
        )
        for row in csv_rows(answer, counted)
    ]  # fmt: skip
    return Table(
        "Chips by quarter",
        ("quarter", "chip", "ordered", "rented", "owned", "owned and on", "serving at peak",
         "kW", "cost"),
        [tuple(str(cell) for cell in row) for row in rows],
        (0, 2, 3, 4, 5, 6, 7, 8),
        ("What is on and does not serve at the peak is spare, or left over of whole servers.",),
    )  # fmt: skip


def csv_rows(answer: Answer, counted: Counted) -> list[dict]:
    """One row for each quarter and chip that is there, by the columns of CSV."""
    plan, mix = answer.plan, answer.solved.mix
    assert mix is not None
    rows = []
    for q, one in enumerate(counted.quarters):
        for chip in plan.chips:
            ordered = sum(
                mix.orders.get((offer.label, q), 0) * chip.server for offer in chip.offers
            )
            rented = one.rented.get(chip.chip, 0) * chip.server
            owned = one.owned[chip.chip] * chip.server
            if not (ordered or rented or owned):
                continue
            on = one.owned_on.get(chip.chip, 0) * chip.server
            spend = one.spend[chip.chip]
            rows.append(
                {
                    "quarter": q + 1,
                    "chip": chip.chip,
                    "ordered_chips": ordered,
                    "rented_chips": rented,
                    "owned_chips": owned,
                    "owned_on_chips": on,
                    "serving_chips": one.chips_used.get(chip.chip, 0),
                    "kilowatts": (rented + on) * chip.watts / 1e3,
                    "rent_usd": spend.rent,
                    "capital_usd": spend.capital,
                    "upkeep_usd": spend.upkeep,
                    "electricity_usd": spend.electricity,
                    "usd": spend.usd,
                    "bought_usd": spend.bought,
                }
            )
    return rows


def spend_table(counted: Counted) -> Table:
    rows = []
    for q, one in enumerate(counted.quarters):
        spends = one.spend.values()
        each = (
            sum(s.rent for s in spends), sum(s.capital for s in spends),
            sum(s.upkeep for s in spends), sum(s.electricity for s in spends),
            one.usd, one.cash_usd,
        )  # fmt: skip
        rows.append((str(q + 1), *map(dollars, each), f"{one.watts / 1e3:,.1f}", str(one.racks)))
    return Table(
        "Spend by quarter",
        ("quarter", "rent", "capital charge", "upkeep", "electricity", "cost", "cash paid", "kW",
         "racks"),
        rows,
        tuple(range(9)),
        ("Cost charges what is bought over its life; cash pays it whole when it arrives. Neither "
         "is discounted. Upkeep is maintenance, staff and space. kW and racks are those that count "
         "against limits.",),
    )  # fmt: skip


def use_table(counted: Counted) -> Table:
    """The share of what the instances can serve, for classes by quarter."""
    rows = [
        (name, words, *(f"{of(one)[name] / one.capacity[name]:.0%}" for one in counted.quarters))
        for name in counted.quarters[0].peak
        for words, of in (("peak", lambda one: one.peak), ("mean", lambda one: one.mean))
    ]
    quarters = tuple(f"Q{q + 1}" for q in range(len(counted.quarters)))
    return Table(
        "Use of the instances by quarter",
        ("class", "demand", *quarters),
        rows,
        tuple(range(2, 2 + len(quarters))),
        ("Demand over what the instances can serve within the latency limits.",),
    )


def instance_table(answer: Answer) -> Table:
    """Quarters that follow each other with as many of the same instances share a row."""
    mix = answer.solved.mix
    assert mix is not None
    spans: list[tuple[int, int, int, int]] = []  # first and last quarter, option, instances
    for (k, q), instances in sorted(mix.instances.items()):
        if spans and spans[-1][1:] == (q - 1, k, instances):
            spans[-1] = (spans[-1][0], q, k, instances)
        else:
            spans.append((q, q, k, instances))
    rows = []
    for first, last, k, instances in sorted(spans):
        option = answer.options[k]
        quarters = str(first + 1) if first == last else f"{first + 1} to {last + 1}"
        rows.append(
            (
                quarters, option.klass, option.model, f"{instances:,}",
                f"{option.label}{_division(option)}",
                str(option.detail.get("formats", "")).removesuffix(" cache"),
                significant(option.requests_per_s), f"{significant(option.ttft_s)} s",
                f"{milliseconds(option.tpot_s)} ms",
            )
        )  # fmt: skip
    return Table(
        "Instances by quarter",
        ("quarter", "class", "model", "number", "each on", "formats", "rate", "first", "token"),
        rows,
        (0, 3, 6, 7, 8),
        ("Formats: of weights and cache. Rate: requests per second, at most. First: time to the "
         "first token; token: time of each later one. tp, pp, dp, ep: tensor, pipeline, "
         "attention-data and expert parallel.",),
    )  # fmt: skip


def _division(option: Option) -> str:
    """How an instance of several chips is divided."""
    division = str(option.detail.get("division", ""))
    return f", {division}" if division and sum(option.chips.values()) > 1 else ""


def owned_table(answer: Answer) -> Table:
    """Dollars per hour that an owned chip is on, over its life."""
    prices = owned_prices(answer.plan)
    parts = [part.name for part in prices[0].parts]
    rows = [
        (
            one.chip, *(f"{part.usd_per_chip_hour:.3f}" for part in one.parts),
            f"{one.usd_per_chip_hour:.3f}",
        )
        for one in prices
    ]  # fmt: skip
    return Table(
        "What an owned chip costs by the hour, dollars",
        ("chip", *parts, "in all"),
        rows,
        tuple(range(1, len(parts) + 2)),
        ("As the basis owned_tco, busy around the clock. Of chips that are owned already, the "
         "first three are spent and not counted; of one that is off, they alone are paid.",),
    )  # fmt: skip


def _split(answer: Answer) -> str:
    return ", instances split" if split(answer) else ""


def price_table(answer: Answer) -> Table:
    rows = []
    for row in answer.entries:
        at = "–" if row.usd_at is None else price(row.offer, row.usd_at)
        rows.append(
            (
                row.offer.label, price(row.offer, row.offer.usd), "yes" if row.used else "no", at,
                "–" if row.without is None else f"+{row.without:.1%}", row.reason,
            )
        )  # fmt: skip
    return Table(
        f"Prices at which the mix changes{_split(answer)}",
        ("offer", "price", "in the mix", "enters or leaves at", "cost without it", ""),
        rows,
        (1, 3, 4),
        ("An offer is in the mix below the price of the fourth column, all others as they are. "
         "The fifth: the discounted cost of the plan." + _bought(answer),),
    )  # fmt: skip


def _each(what: str, usd: float) -> str:
    """Dollars for one more of a limit, a supply or a demand: `$173 per kW`."""
    if what == "watts":
        return f"{dollars(1e3 * usd)} per kW"
    unit = "request/s" if what.startswith(DEMAND) else what.removesuffix("s")
    unit = "chip a quarter" if what.startswith(SUPPLY) else unit
    return f"{dollars(usd)} per {'dollar' if what.startswith('usd') else unit}"


def _bought(answer: Answer) -> str:
    bought = any(offer.way == BUY for offer in answer.plan.offers)
    return " What is bought has its share of server and network in its price." if bought else ""


def change_table(answer: Answer) -> Table:
    rows = []
    for row in answer.loosened:
        change = "unchanged"
        if row.usd is None:
            late = "not solved in time"
            change = "nothing keeps it" if row.status == "infeasible" else late
        each = "–"
        if row.usd:
            change = f"{'costs' if row.usd > 0 else 'saves'} {dollars(abs(row.usd))}"
            each = _each(row.what, abs(row.usd) / (row.after - row.before))
        rows.append(
            (
                limit_words(row.what), value_words(row.what, row.before),
                value_words(row.what, row.after), change, each,
            )
        )  # fmt: skip
    return Table(
        f"What {MORE:.0%} more of each limit, supply and demand does{_split(answer)}",
        ("what", "now", "with more", "the plan", "that is"),
        rows,
        (1, 2, 3, 4),
        ("Each is solved again, that alone changed; what moves no whole server does nothing.",),
    )


def refused_table(answer: Answer) -> Table:
    return Table(
        "What serves no class",
        ("class", "chip", "model", "why"),
        [(row.klass, row.chip, row.model, row.reason) for row in answer.refused],
        (),
    )
