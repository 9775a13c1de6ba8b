"""The Answer of `dse whatif --require`: what a chip must have to enter a front."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Answer, Block, Cell, Column, Notes, Table
from dse.economics.priced import inputs_words, price_parts
from dse.problem.words import SHORT, short_deployment, show, spans

Json = Mapping[str, Any]
NAMES = {
    "hbm_bandwidth": "memory bandwidth",
    "capacity": "memory capacity",
    "flops": "FLOP/s",
    "link": "scale-up link",
    "domain": "scale-up domain",
    "price": "price",
    "tdp": "rated power",
}
LISTED = 12
STALE = "The hardware data or prices are not those of the study: run it again to compare alike."


def require_answer(document: Json, command: str = "") -> Answer:
    """`document` is that of `dse.questions.whatif.require.require`."""
    blocks: list[Block] = [_table(document)] if _helped(document) else []
    if refused := _refused(document):
        blocks.append(Notes("No value of these helps", refused))
    prices = [document["price"]] if document["price"] else []
    return Answer(
        question="whatif",
        title=f"What {document['chip']} needs to enter the front of {document['study']}",
        headline=_headline(document),
        blocks=[*blocks, *([price_parts(prices)] if prices else [])],
        rests=[*_basis(document), *inputs_words(prices)],
        command=command,
        document=document,
    )


def _helped(document: Json) -> list[Json]:
    return [row for row in document["requirements"] if row["entry"]]


def _headline(document: Json) -> str:
    chip, study = document["chip"], document["study"]
    if document["on_front"]:
        points = sorted(document["on_front"])
        some = ", ".join(map(str, points[:LISTED])) + ", ..." * (len(points) > LISTED)
        return (
            f"{chip} is on the front of {study} as it is, with {len(points)} of its "
            f"{document['front_size']} points: {some}."
        )
    if document["enters_as_it_is"]:
        entry = document["entry"]
        return (
            f"{chip} enters the front of {study} as it is, with {entry['deployments']} "
            f"deployments; the best of them: {_entry(entry)}."
        )
    helped = _helped(document)
    if not helped:
        return f"No single change of {chip} brings it onto the front of {study}."
    first = min(helped, key=lambda row: abs(math.log(row["factor"] or math.inf)))
    factor = f", {first['factor']:.4g} times what it has" if first["factor"] else ""
    return (
        f"{chip} enters the front of {study} ({document['front_size']} points) with a "
        f"{NAMES[first['quantity']]} of {first['needed']}{factor}"
        + (", the smallest change that does it alone." if len(helped) > 1 else ".")
    )


def _table(document: Json) -> Table:
    rows: list[dict[str, Cell]] = [
        {**row, "quantity": NAMES[row["quantity"]], "enters": _entry(row["entry"])}
        for row in _helped(document)
    ]
    columns = (
        Column("quantity", "quantity"),
        Column("now", "has", right=True),
        Column("needed", "needs", right=True),
        Column("factor", "factor", "number"),
        Column("enters", "enters as"),
    )
    caption = "What the chip needs, each quantity changed alone"
    return Table("requirements", caption, columns, rows)


def _refused(document: Json) -> list[str]:
    """A sentence for the quantities of which no value helps, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in document["requirements"]:
        if row["entry"]:
            continue
        tried, why = row["tried_to"], row["why_not"]
        if row["bound_by"] and tried:
            value = f"up to {tried:.3g}x" if tried >= 1 else f"down to {tried:.3g}x"
            why = f"no value {value} helps: {why}; bound by {row['bound_by']}"
        reasons.setdefault(why, []).append(NAMES[row["quantity"]])
    return [f"{', '.join(names)}: {why}." for why, names in reasons.items()]


def _basis(document: Json) -> list[str]:
    """What the answer rests on."""
    shapes = (
        "the study's model"
        if document["fixed_model"]
        else f"{document['shapes']} of the {document['shapes_of_front']} shapes of the front"
    )
    lines = [
        f"{document['candidates']:,} deployments of {shapes}; prices: {document['price_basis']}."
    ]
    if document["requirements"]:
        lines.append(
            f"Each quantity is changed alone, the others as {document['chip']} has them. "
            "Capacity, domain and power: the first step of a grid that enters, refined within it; "
            "the others: bisection. Predictions as they stand, without their intervals."
        )
    if document["margin"]:
        lines.append(
            f"To enter is to be better by {document['margin']:.2%} in cost, time or energy."
        )
    if document["evaluations"] < document["size"]:
        lines.append(
            f"The search saw {document['evaluations']:,} of its {document['size']:,} points: what "
            "enters by little may be what it did not see. --margin leaves that out."
        )
    if document["without_link"]:
        lines.append(
            f"{document['without_link']:,} deployments are left out: their instance needs a link "
            "whose bandwidth is not known."
        )
    lines += [f"{text}." for text in document["price_rests_on"]]
    return lines + [STALE] * document["stale"]


def _entry(entry: Json) -> str:
    """`8 mi300x TP8 fp8/fp8 c64, $/M 0.07, joins the front beside point 3 of h200_sxm`."""
    deployed = short_deployment(entry["deployment"])
    deployed = f"{entry['shape']} on {deployed}" if entry["shape"] else deployed
    values = [f"{SHORT.get(name, name)} {show(name, v)}" for name, v in entry["objectives"].items()]
    near = entry["nearest"]
    then = f"joins the front beside point {near['point']} of {near['chip']}"
    if entry["displaces"]:
        beaten = sorted(entry["displaces"])
        then = f"displaces point{'s' * (len(beaten) > 1)} {spans(beaten)}"
    return f"{deployed}: {', '.join(values)}; {then}"
