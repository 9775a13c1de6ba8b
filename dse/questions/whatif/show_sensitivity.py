"""The answer to what moves the winner's cost: elasticities and shadow prices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dse.answer.answer import Block, Column, Figure, Table
from dse.answer.labels import label
from dse.answer.numbers import dollars, tenths
from dse.answer.palette import BLUE, VERMILION, hatch, plain
from dse.answer.plots import bars, names_axis
from dse.questions.whatif.words import Json, named

ELASTICITIES = ("elasticity", "elasticity_tpot", "elasticity_optimum")
ENDS = ("at_10_percent_less", "at_10_percent_more")


def sentences(document: Json) -> list[str]:
    return [_moves(document), *_shadows(document["shadow_prices"])]


def blocks(document: Json) -> list[Block]:
    return [_tornado(document), _table(document), _shadow_table(document["shadow_prices"])]


def _moves(document: Json) -> str:
    known = [row for row in document["sensitivities"] if row["elasticity_optimum"] is not None]
    few = [
        f"{row['input']} {row['elasticity_optimum']:+.2f}%"
        for row in known[:4]
        if abs(row["elasticity_optimum"]) >= 0.005
    ]
    metric, whole = named(document["objective"]), _whole(document["sensitivities"])
    if not few:
        return f"No input moves the {metric} near where it stands{whole}."
    moved = f"One percent more of an input moves the {metric}, deployed anew, by"
    return f"{moved}: {', '.join(few)}{whole}."


def _whole(rows: Sequence[Json]) -> str:
    """What a tenth of the demand does, which buys or saves a whole deployment or none."""
    for row in rows:
        less, more = (row[end] for end in ENDS)
        if row["input"] == "demand" and None not in (less, more):
            ends = f"10% less {tenths(less, sign=True)}, 10% more {tenths(more, sign=True)}"
            return f"; of demand, since deployments are whole, {ends}"
    return ""


def _shadows(rows: Sequence[Json]) -> list[str]:
    found = []
    for row in rows:
        if row["gain"] is None:
            continue
        worth = row["usd_per_chip_hour"]
        if row["kind"] == "memory":
            step = f"{row['step']} on {row['input'].split('.')[1]}"
            found.append(
                f"{step} is worth nothing here: memory does not bind."
                if not row["binds"] or worth is None
                else f"{step} is worth {dollars(worth)} per chip-hour here "
                f"({tenths(row['gain'])} of the cost)."
            )
        elif row["binds"]:
            found.append(f"{row['step']} is worth {tenths(row['gain'])}.")
        else:
            found.append(f"{row['step']} is worth nothing here: the limit does not bind.")
    return found


def _table(document: Json) -> Table:
    shown = [row for row in document["sensitivities"] if _moves_at_all(row)]
    still = [row["input"] for row in document["sensitivities"] if not _moves_at_all(row)]
    notes = [
        "Percent for one percent of the input, by central differences of 1%. winner: deployed as "
        "it is; optimum: deployed anew on either side, the envelope."
    ]
    if any(_bends(row) for row in shown):
        notes.append(
            "~ a step, or a bend, lies near: over 10% on either side, it moves by another half or "
            "more."
        )
    if still:
        notes.append(
            f"Less than 0.5% within 10%, and elasticities below 0.005: {', '.join(still)}."
        )
    how = document["sensitivities_how"]
    return Table(
        "sensitivities",
        f"Elasticities of the {named(document['objective'])}, strongest first",
        (
            Column("input", "input"),
            Column("words", "now", right=True),
            Column("elasticity", "winner", "signed"),
            Column("elasticity_tpot", "its tpot", "signed"),
            Column("elasticity_optimum", "optimum", "signed"),
            Column("bends", ""),
            Column("at_10_percent_less", "10% less", "change"),
            Column("at_10_percent_more", "10% more", "change"),
        ),
        [{**row, "bends": "~" if _bends(row) else ""} for row in shown],
        (*notes, f"{how[0].upper()}{how[1:]}."),
    )


def _moves_at_all(row: Json) -> bool:
    moved = any(abs(row[key] or 0.0) >= 5e-3 for key in (*ELASTICITIES, *ENDS))
    return moved or row["elasticity"] is None


def _bends(row: Json) -> bool:
    """Whether 10% on either side say otherwise than 1% do."""
    less, more, near = (row[key] for key in (*ENDS, "elasticity_optimum"))
    if None in (less, more, near) or min(less, more) <= -1.0:
        return False
    wide = (math.log1p(more) - math.log1p(less)) / math.log(1.1 / 0.9)
    return abs(wide - near) > 0.05 + 0.5 * min(abs(wide), abs(near))


def _shadow_table(rows: Sequence[Json]) -> Table:
    return Table(
        "shadow prices",
        "Shadow prices: what a step of a limit is worth, deployed anew",
        (
            Column("step", "step"),
            Column("gain", "gain", "tenths"),
            Column("usd_per_chip_hour", "worth per chip-hour", "dollars"),
            Column("binds", "binds"),
        ),
        rows,
    )


def _tornado(document: Json) -> Figure:
    """Bars of the change of the optimum, strongest on top; inputs without effect are left out."""
    rows = [
        row
        for row in document["sensitivities"]
        if any(abs(row[key] or 0.0) >= 5e-4 for key in ENDS)
    ][::-1]
    names = [plain(row["input"]) for row in rows]
    traces = []
    for key, name, colour, shape in zip(
        ENDS, ("input 10% less", "input 10% more"), (BLUE, VERMILION), ("", "/"), strict=True
    ):
        values = [None if row[key] is None else 100.0 * row[key] for row in rows]
        trace = bars(name, values, names, colour)
        trace["marker"]["pattern"] = hatch(shape)
        traces.append(trace | {"hoverinfo": "x+name"})
    objective = label(document["objective"]).text
    layout = {
        "height": 120 + 44 * max(len(rows), 1),
        "barmode": "group",
        "bargap": 0.35,
        "xaxis": {"title": {"text": plain(f"change of {objective} (%)")}, "zeroline": True},
        "yaxis": names_axis(names),
    }
    return Figure(
        "tornado",
        f"What moves {objective}: each input 10% less and 10% more",
        {"data": traces, "layout": layout},
        f"For each input, by how many percent the {objective} changes where it is 10% less and "
        "10% more, deployed anew.",
    )
