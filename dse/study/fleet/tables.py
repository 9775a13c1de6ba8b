"""The tables of `dse fleet` as text, for the console, the page and the spreadsheet, and the rows
of fleet.csv."""

from __future__ import annotations

from dse.economics.fleet_cost import Counted
from dse.study.fleet.answer import Answer
from dse.study.fleet.changes import MORE
from dse.study.fleet.words import dollars, limit_words, price, value_words
from dse.study.scale.words import milliseconds, significant
from dse.study.text_table import Table

CSV = (
    "quarter", "chip", "ordered_chips", "rented_chips", "owned_chips", "owned_on_chips",
    "serving_chips", "kilowatts", "rent_usd", "capital_usd", "running_usd", "usd", "bought_usd",
)  # fmt: skip


def tables(answer: Answer) -> list[Table]:
    """Every table of an answer; without a mix, what is refused alone."""
    made: list[Table] = []
    if answer.counted is not None:
        made = [
            chip_table(answer, answer.counted),
            quarter_table(answer, answer.counted),
            instance_table(answer),
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
                    "running_usd": spend.running,
                    "usd": spend.usd,
                    "bought_usd": spend.bought,
                }
            )
    return rows


def quarter_table(answer: Answer, counted: Counted) -> Table:
    names = [one.name for one in answer.plan.demand]
    rows = []
    for q, one in enumerate(counted.quarters):
        spends = one.spend.values()
        rows.append(
            (
                str(q + 1), dollars(sum(s.rent for s in spends)),
                dollars(sum(s.capital for s in spends)), dollars(sum(s.running for s in spends)),
                dollars(one.usd), dollars(one.cash_usd), f"{one.watts / 1e3:,.1f}", str(one.racks),
                *(
                    f"{one.peak[name] / one.capacity[name]:.0%} / "
                    f"{one.mean[name] / one.capacity[name]:.0%}"
                    for name in names
                ),
            )
        )  # fmt: skip
    return Table(
        "Spend and use by quarter",
        ("quarter", "rent", "capital charge", "electricity", "cost", "cash paid", "kW", "racks",
         *(f"{name}, peak / mean use" for name in names)),
        rows,
        tuple(range(8 + len(names))),
        ("Cost charges what is bought over its life; cash pays it whole when it arrives. Neither "
         "is discounted. kW and racks are those that count against limits.",),
    )  # fmt: skip


def instance_table(answer: Answer) -> Table:
    mix = answer.solved.mix
    assert mix is not None
    rows = []
    for (k, q), instances in sorted(mix.instances.items(), key=lambda item: item[0][::-1]):
        option = answer.options[k]
        rows.append(
            (
                str(q + 1), option.klass, option.model, f"{instances:,}", option.label,
                str(option.detail.get("division", "")), str(option.detail.get("formats", "")),
                significant(option.requests_per_s), significant(option.ttft_s),
                milliseconds(option.tpot_s),
            )
        )  # fmt: skip
    return Table(
        "Instances by quarter",
        ("quarter", "class", "model", "instances", "each on", "division", "weights, cache",
         "requests/s each", "first token, s", "ms per token"),
        rows,
        (0, 3, 7, 8, 9),
        ("tp, pp, dp, ep: tensor, pipeline, attention-data and expert parallel.",),
    )  # fmt: skip


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
        "Prices at which the mix changes",
        ("offer", "price", "in the mix", "enters or leaves at", "cost without it", ""),
        rows,
        (1, 3, 4),
        ("An offer is in the mix below the price of the fourth column, all others as they are. "
         "The fifth: the discounted cost of the plan.",),
    )  # fmt: skip


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
            each = dollars(abs(row.usd) / (row.after - row.before))
            if row.what == "watts":
                each = f"{dollars(1e3 * abs(row.usd) / (row.after - row.before))} per kW"
        rows.append(
            (
                limit_words(row.what), value_words(row.what, row.before),
                value_words(row.what, row.after), change, each,
            )
        )  # fmt: skip
    return Table(
        f"What {MORE:.0%} more of each limit, supply and demand does",
        ("what", "now", "with more", "the plan", "a unit of it"),
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
