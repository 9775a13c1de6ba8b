"""The answer to which chip wins at an equal budget or level."""

from __future__ import annotations

from dse.answer.answer import Block, Cell, Column, Figure, Table
from dse.answer.labels import axis_title
from dse.answer.numbers import priced, tenths
from dse.answer.palette import BLUE, plain
from dse.answer.plots import bars, metric_axis, names_axis, scaled
from dse.questions.whatif.breakeven import COST
from dse.questions.whatif.equal import RATE, level_words
from dse.questions.whatif.solve import words
from dse.questions.whatif.words import Json, counted, named


def sentence(row: Json) -> str:
    first, rest = row["rows"][0], row["rows"][1:]
    if row["metric"] == RATE:
        verb, none = "serves most", "; no deployment of another chip fits"
        value = f"{first['value']:,.0f} output tokens/s from {counted(first['chips'], 'chip')}"
    else:
        verb, none = "is cheapest", "; no other chip keeps it"
        value = priced(row["metric"], first["value"])
    then = f"; next {rest[0]['chip']}, {tenths(rest[0]['over_best'], sign=True)}" if rest else none
    return f"At equal {row['kind']} ({level_words(row)}), {first['chip']} {verb}: {value}{then}."


def blocks(row: Json, winners_load: Json | None) -> list[Block]:
    """`winners_load`: what the demand takes of the winner, where there is one."""
    return [_figure(row), _table(row, winners_load), *_draws(row)]


def _table(row: Json, load: Json | None) -> Table:
    more = row["metric"] == RATE
    rows: list[dict[str, Cell]] = []
    for one in row["rows"]:
        metrics, own = one["point"]["metrics"], one["point"]["at_average_load"]
        # a budget is served at the full rate
        cost = own["busy_usd_per_million_total_tokens"] if own else metrics[COST]
        rows.append(
            {**one, "deployed": words(one["point"]), COST: cost, "tpot_s": metrics["tpot_s"]}
        )
    notes = [f"Without --at, the level is {_whose(row, load)}."] * row["level_is_the_winners"]
    if row["without"]:
        notes.append(f"No deployment: {', '.join(row['without'])}.")
    value = ("output tokens/s", "count") if more else (named(row["metric"]), row["metric"])
    columns = [
        Column("chip", "chip"),
        Column("value", *value),
        Column("over_best", "to best", "change"),
        Column("deployments", "deployments", "count"),
        Column("chips", "chips", "count"),
        Column("deployed", "each" if more else "deployed"),
        Column(COST, "$/M total", COST),
        Column("tpot_s", "per token", "tpot_s"),
    ]
    if not more:
        columns = [c for c in columns if c.key not in ("deployments", "chips", COST)]
    caption = f"At equal {row['kind']}: {level_words(row)}"
    return Table(f"equal {row['kind']}", caption, columns, rows, notes)


def _whose(row: Json, load: Json | None) -> str:
    if row["metric"] != RATE:
        return "the winner's"
    if load is None or load["deployments"] is None:
        return "that of ten of the winner's deployments"
    return f"that of the winner's {counted(load['deployments'], 'deployment')} for the demand"


def _draws(row: Json) -> list[Table]:
    """From which figure the watts of each chip follow; nothing where no watts are compared."""
    rows = []
    for one in row["rows"]:
        if not (draw := one["draw"]):
            continue
        sign = "/" if draw["over"] else "x"
        known = " ".join(f"{sign} {value:.4g} {name}" for name, value in draw["factors"].items())
        rows.append(
            {
                "chip": one["chip"],
                "watts_per_chip": draw["watts_per_chip"],
                "figure_w": draw["figure_w"],
                "of": f"{draw['of']} ({draw['kind']})",
                "how": known or "as published",
            }
        )
    if not rows:
        return []
    where = "at the meter" if row["kind"] == "power" else "of the server"
    columns = (
        Column("chip", "chip"),
        Column("watts_per_chip", "counted", "power"),
        Column("figure_w", "from", "power"),
        Column("of", "what that counts"),
        Column("how", "how it follows"),
    )
    notes = [f"{text[0].upper()}{text[1:]}." for text in row["assumed"]]
    return [Table(f"draw {row['kind']}", f"What a chip draws, {where}", columns, rows, notes)]


def _figure(row: Json) -> Figure:
    rows = row["rows"][::-1]
    names = [plain(one["chip"]) for one in rows]
    values = scaled(row["metric"], [one["value"] for one in rows])
    hover = [plain(one["point"]["words"]) for one in rows]
    trace = bars("", values, names, BLUE) | {"hoverinfo": "text", "hovertext": hover}
    layout = {
        "height": 100 + 30 * len(rows),
        "xaxis": metric_axis(row["metric"]) | {"rangemode": "tozero"},
        "yaxis": names_axis(names),
    }
    return Figure(
        f"equal-{row['kind']}",
        f"At equal {row['kind']}: {level_words(row)}",
        {"data": [trace], "layout": layout},
        f"{axis_title(row['metric'])} of each chip at equal {row['kind']}.",
    )
