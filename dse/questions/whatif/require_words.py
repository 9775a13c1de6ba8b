"""The answer of `dse.questions.whatif.require` in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dse.problem.words import SHORT, short_deployment, show, spans

NAMES = {
    "hbm_bandwidth": "memory bandwidth", "capacity": "memory capacity", "flops": "FLOP/s",
    "link": "scale-up link", "domain": "scale-up domain", "price": "price", "tdp": "rated power",
}  # fmt: skip

LISTED = 12
STALE = "The hardware data or prices are not those of the study: run it again to compare alike."


def lead(answer: Mapping[str, Any]) -> list[str]:
    """The answer in a sentence or two."""
    chip, study = answer["chip"], answer["study"]
    if answer["on_front"]:
        points = sorted(answer["on_front"])
        some = ", ".join(map(str, points[:LISTED])) + ", ..." * (len(points) > LISTED)
        return [
            f"{chip} is on the front of {study} as it is, with {len(points)} of its "
            f"{answer['front_size']} points: {some}."
        ]
    if answer["enters_as_it_is"]:
        entry = answer["entry"]
        return [
            f"{chip} enters the front of {study} as it is, with {entry['deployments']} "
            f"deployments; the one that beats it by most: {_as(entry)}, {_values(entry)}, "
            f"{_then(entry)}."
        ]
    helped = [row for row in answer["requirements"] if row["entry"]]
    if not helped:
        return [f"No single change of {chip} brings it onto the front of {study}."]
    ranked = sorted(helped, key=lambda row: abs(math.log(row["factor"] or math.inf)))
    first = ranked[0]
    factor = f", {first['factor']:.4g} times what it has" if first["factor"] else ""
    return [
        f"{chip} enters the front of {study} ({answer['front_size']} points) with a "
        f"{NAMES[first['quantity']]} of {first['needed']}{factor}"
        + (", the smallest change that does it alone." if len(ranked) > 1 else ".")
    ]


def rows(answer: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """(quantity, has, needs, factor, enters as) of each that helps."""
    return [
        (
            NAMES[row["quantity"]],
            row["now"] or "-",
            row["needed"],
            f"{row['factor']:.4g}" if row["factor"] else "-",
            "\n".join((_as(row["entry"]), _values(row["entry"]), _then(row["entry"]))),
        )
        for row in answer["requirements"]
        if row["entry"]
    ]


def refused_lines(answer: Mapping[str, Any]) -> list[str]:
    """A sentence for each quantity of which no value helps."""
    reasons: dict[str, list[str]] = {}
    for row in answer["requirements"]:
        if row["entry"]:
            continue
        tried, why = row["tried_to"], row["why_not"]
        if row["bound_by"] and tried:
            value = f"up to {tried:.3g}x" if tried >= 1 else f"down to {tried:.3g}x"
            why = f"no value {value} helps: {why}; bound by {row['bound_by']}"
        reasons.setdefault(why, []).append(NAMES[row["quantity"]])
    return [f"{', '.join(names)}: {why}" for why, names in reasons.items()]


def basis_words(answer: Mapping[str, Any]) -> list[str]:
    """What the answer rests on."""
    shapes = (
        "the study's model"
        if answer["fixed_model"]
        else f"{answer['shapes']} of the {answer['shapes_of_front']} shapes of the front"
    )
    of = f"{answer['candidates']:,} deployments of {shapes}; prices: {answer['price_basis']}."
    lines = [of]
    if answer["requirements"]:
        lines = [
            f"Each quantity alone, others as {answer['chip']} has them; {of} Capacity, domain and "
            "power: the first step of a grid that enters, refined within it; the others: "
            "bisection. Predictions as they stand, without their intervals."
        ]
    if answer["margin"]:
        lines.append(f"To enter is to be better by {answer['margin']:.2%} in cost, time or energy.")
    if answer["evaluations"] < answer["size"]:
        lines.append(
            f"The search saw {answer['evaluations']:,} of its {answer['size']:,} points: what "
            "enters by little may be what it did not see. --margin leaves that out."
        )
    if answer["without_link"]:
        lines.append(
            f"{answer['without_link']:,} deployments are left out: their instance needs a link "
            "whose bandwidth is not known."
        )
    if answer["price_rests_on"]:
        lines.append(f"Prices rest on: {'; '.join(answer['price_rests_on'])}.")
    if answer["stale"]:
        lines.append(STALE)
    return lines


def _as(entry: Mapping[str, Any]) -> str:
    words = short_deployment(entry["deployment"])
    return f"{entry['shape']} on {words}" if entry["shape"] else words


def _values(entry: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{SHORT.get(name, name)} {show(name, value)}"
        for name, value in entry["objectives"].items()
    )


def _then(entry: Mapping[str, Any]) -> str:
    near = entry["nearest"]
    if entry["displaces"]:
        beaten = sorted(entry["displaces"])
        return f"displaces point{'s' * (len(beaten) > 1)} {spans(beaten)}"
    return f"joins the front beside point {near['point']} of {near['chip']}"
