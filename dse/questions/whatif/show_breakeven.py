"""The answer to where choices cost the same: prices, requests in flight, owning against renting."""

from __future__ import annotations

from collections.abc import Sequence

from dse.answer.answer import Block, Column, Figure, Table
from dse.answer.numbers import dollars, share, tenths
from dse.answer.palette import PALETTE, plain
from dse.answer.plots import decades, join, line, marks, names_axis
from dse.economics.priced import price_parts
from dse.questions.scale.words import chips_words
from dse.questions.whatif.solve import words
from dse.questions.whatif.words import Json

MOST_CHIPS = 7  # drawn in one picture, as many as the palette tells apart


def sentences(even: Json) -> list[str]:
    found, chips = [], even["chips"]
    if len(chips) > 1:
        first, other = chips[0], chips[1]
        found.append(
            f"{other['chip']} breaks even with {first['chip']} at "
            f"{dollars(other['break_even_usd_per_chip_hour'])} per chip-hour "
            f"({tenths(other['change'], sign=True)} from {dollars(other['usd_per_chip_hour'])}); "
            f"{first['chip']} stays cheapest up to "
            f"{dollars(first['break_even_usd_per_chip_hour'])} "
            f"({tenths(first['change'], sign=True)})."
        )
    if together := even["concurrency"]:
        found.append(_requests(together))
    if even["owning"] and chips[0]["chip"] in even["owning_left_out"]:
        found.append(f"What owning {chips[0]['chip']} costs is not known (no price or no power).")
    return found + [_owning(row) for row in even["owning"][:1]]


def blocks(even: Json) -> list[Block]:
    together, owning = even["concurrency"], even["owning"]
    found: list[Block] = [_price_figure(even["chips"])] if len(even["chips"]) > 1 else []
    if together:
        found.append(_request_figure(together))
    if owning:
        found.append(_owning_figure(owning[:MOST_CHIPS]))
    found.append(_price_table(even))
    if together:
        found.append(
            Table(
                "requests in flight",
                "Lowest cost at each number of requests in flight",
                (
                    Column("concurrency", "in flight", "count"),
                    Column("cost_a", together["a"], "dollars"),
                    Column("cost_b", together["b"], "dollars"),
                ),
                together["rows"],
                ("Dollars per million tokens, input and output.",),
            )
        )
    if owning:
        prices = [row["price"] for row in owning]
        found += [
            _owning_table(even),
            price_parts(prices, "An owned chip-hour by its parts, always busy"),
            _curve_table(owning),
        ]
    return found


def _requests(row: Json) -> str:
    a, b = row["a"], row["b"]
    if not row["compared"]:
        return f"{a} and {b} keep the limits at no common number of requests in flight."
    ahead, behind = (b, a) if row["b_is_ahead_at_first"] else (a, b)
    if not row["overtakes_at"]:
        return f"{ahead} is cheaper than {behind} at every number of requests in flight."
    places = ", ".join(f"{one:,}" for one in row["overtakes_at"])
    return (
        f"{ahead} is cheaper than {behind} with few requests in flight; the lead changes at "
        f"{places}."
    )


def _owning(row: Json) -> str:
    chip, rent, even = row["chip"], row["rent_usd_per_hour"], row["utilisation"]
    if rent is None:
        said = f"Nobody publishes a price for {chip} by use"
    elif even is None:
        said = f"Owning {chip} costs more than renting it by use at any utilisation"
    else:
        said = (
            f"Owning {chip} beats renting it by use ({dollars(rent)}, {row['rent_basis']}) "
            f"from {share(even)} utilisation: {row['demand_output_tokens_per_s']:,.0f} output "
            f"tokens/s on one instance of {chips_words(row['instance_chips'])}"
        )
    said += f"; always busy it costs {dollars(row['owned_at_full_use'])} per chip-hour"
    if row["committed_usd_per_hour"] is not None:
        said += f", against {dollars(row['committed_usd_per_hour'])} on {row['committed_basis']}"
    return f"{said}."


def _price_table(even: Json) -> Table:
    notes = ["Price x chip-hours of the other over its own, each deployed at its cheapest."]
    if even["any_quality"]:
        notes.append("Of any predicted loss: --limit 'predicted_loss <= ...' holds it.")
    if even["infeasible_chips"]:
        notes.append(f"Nothing feasible: {', '.join(even['infeasible_chips'])}.")
    return Table(
        "break-even",
        "Break-even prices per chip-hour",
        (
            Column("chip", "chip"),
            Column("deployed", "deployed"),
            Column("cost", "per million tokens", "dollars"),
            Column("usd_per_chip_hour", "now", "dollars"),
            Column("break_even_usd_per_chip_hour", "break-even", "dollars"),
            Column("change", "change", "change"),
            Column("against", "with"),
        ),
        [{**row, "deployed": words(row["point"])} for row in even["chips"]],
        notes,
    )


def _owning_table(even: Json) -> Table:
    first = even["owning"][0]
    committed, left = first["committed_basis"], even["owning_left_out"]
    notes = ["Owned: paid busy or not, but for the electricity that depends on the load."]
    if committed:
        notes.append(f"{committed} is paid busy or not, too; by use, only while it serves.")
    if left:
        notes.append(f"No price or power to own it at: {', '.join(left)}.")
    return Table(
        "owning",
        "Owning against renting, per chip-hour",
        (
            Column("chip", "chip"),
            Column("owned_at_full_use", "owned, always busy", "dollars"),
            *([Column("committed_usd_per_hour", committed, "dollars")] if committed else []),
            Column("rent_usd_per_hour", f"by use ({first['rent_basis']})", "dollars"),
            Column("utilisation", "owning wins from", "share"),
            Column("demand_output_tokens_per_s", "output tokens/s", "count"),
            Column("instance", "of an instance"),
        ),
        even["owning"],
        notes,
    )


def _curve_table(owning: Sequence[Json]) -> Table:
    rows = [{"chip": row["chip"], **one} for row in owning for one in row["curve"]]
    columns = (
        Column("chip", "chip"),
        Column("utilisation", "utilisation", "share"),
        Column("owned", "owned, per hour of service", "dollars"),
    )
    caption = "An owned chip by its utilisation"
    return Table("owning by utilisation", caption, columns, rows, on_console=False)


def _price_figure(chips: Sequence[Json]) -> Figure:
    """A line a chip from its price now to its break-even price."""
    rows = chips[::-1]
    names = [plain(row["chip"]) for row in rows]
    ends = (("usd_per_chip_hour", "now"), ("break_even_usd_per_chip_hour", "break-even"))
    traces = [
        join([row[key] for key, _ in ends], [name, name], 5)
        for name, row in zip(names, rows, strict=True)
    ]
    for k, (key, when) in enumerate(ends):
        hover = [
            f"{row['chip']} {when}: {dollars(row[key])}, with {row['against']}" for row in rows
        ]
        traces.append(marks(k, when, [row[key] for row in rows], names, hover))
    layout = {
        "height": 110 + 34 * len(rows),
        "xaxis": {"title": {"text": "USD per chip-hour"}, "rangemode": "tozero"},
        "yaxis": names_axis(names),
    }
    return Figure(
        "prices",
        "Prices per chip-hour, now and at break-even",
        {"data": traces, "layout": layout},
        "The price of each chip now, and the one at which it costs as much as the chip that it is "
        "held against.",
    )


def _request_figure(row: Json) -> Figure:
    traces = []
    for k, (key, chip) in enumerate((("cost_a", row["a"]), ("cost_b", row["b"]))):
        known = [one for one in row["rows"] if one[key] is not None]
        x, y = [one["concurrency"] for one in known], [one[key] for one in known]
        traces.append(marks(k, chip, x, y) | line(k, chip, x, y) | {"mode": "lines+markers"})
    ticks = [one["concurrency"] for one in row["rows"]]
    upwards = decades([y for trace in traces for y in trace["y"]])
    layout = {
        "height": 380,
        "xaxis": {
            "type": "log",
            "title": {"text": "requests in flight"},
            "tickvals": ticks,
            "ticktext": [str(tick) for tick in ticks],
        },
        "yaxis": {"title": {"text": "USD per million tokens"}} | upwards,
    }
    return Figure(
        "requests",
        "Cost by requests in flight",
        {"data": traces, "layout": layout},
        f"The lowest cost per million tokens of {row['a']} and {row['b']} within the limits, at "
        "each number of requests in flight.",
    )


def _owning_figure(rows: Sequence[Json]) -> Figure:
    """Dollars per hour of service of an owned chip against its utilisation, and its rent."""
    traces = []
    for k, row in enumerate(rows):
        x = [100.0 * one["utilisation"] for one in row["curve"]]
        traces.append(line(k, row["chip"], x, [one["owned"] for one in row["curve"]]))
        if (rent := row["rent_usd_per_hour"]) is not None:
            flat = join([x[0], x[-1]], [rent, rent], 1)
            flat["line"] |= {"color": PALETTE[k], "dash": "dash"}
            traces.append(flat)
    upwards = decades([y for trace in traces for y in trace["y"]])
    layout = {
        "height": 400,
        "xaxis": {"title": {"text": "utilisation (%)"}, "range": [0, 101]},
        "yaxis": {"title": {"text": "USD per chip-hour of service"}} | upwards,
    }
    return Figure(
        "owning",
        "Owning by utilisation",
        {"data": traces, "layout": layout},
        "What an owned chip costs per hour that it serves, by the share of its hours in which it "
        "does. Dashed: its rent by use.",
    )
