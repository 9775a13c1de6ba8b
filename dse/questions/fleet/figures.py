"""The pictures of `dse fleet`: chips by quarter, arrivals against what is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Figure
from dse.answer.numbers import dollars, significant
from dse.answer.plots import BLUE, PALETTE, VERMILION, bars, hatch, names_axis, plain
from dse.economics.fleet_cost import Counted
from dse.questions.fleet.answer import Solution

Json = Mapping[str, Any]


def figures(found: Solution, document: Json) -> list[Figure]:
    if found.counted is None:
        return []
    made = [_arrivals(one, found.counted) for one in document["demand"] if one["arrivals"]]
    if len(kept := [row for row in document["fleets"] if row["chips"]]) > 1:
        made.append(_tokens(kept))
    chips = [chip.chip for chip in found.plan.chips]
    return [*made, _chips(chips, document["by_quarter"])]


def _chips(chips: Sequence[str], quarters: Sequence[Json]) -> Figure:
    traces = []
    for k, chip in enumerate(chips):
        for key, name, shape in (("rented", "rented", ""), ("owned_on", "owned", "/")):
            values = [one["chips"].get(chip, {}).get(key, 0) for one in quarters]
            if any(values):
                texts = [f"{value:,} chips" for value in values]
                traces.append(bar(f"{chip}, {name}", values, texts, k, shape))
    return Figure(
        "chips",
        "Chips that are on",
        {"data": traces, "layout": layout("chips that are on")},
        "Chips that are on by quarter, stacked by chip.",
    )


def bar(
    name: str,
    values: Sequence[float],
    texts: Sequence[str],
    k: int,
    shape: str = "",
    at: Sequence[str] = (),
) -> dict[str, Any]:
    """A part of stacked bars, one a quarter or at each of `at`, with a text to show over each."""
    at = at or [f"Q{q + 1}" for q in range(len(values))]
    pairs = zip(at, texts, strict=True)
    return {
        "type": "bar",
        "name": plain(name),
        "x": list(at),
        "y": list(values),
        "marker": {"color": PALETTE[k % len(PALETTE)], "pattern": hatch(shape)},
        "hoverinfo": "text",
        "hovertext": [plain(f"{where}, {name}: {text}") for where, text in pairs],
    }


def layout(title: str, *, small: bool = False) -> dict[str, Any]:
    """Of stacked bars; `small` for a page of several pictures."""
    return {
        **({"height": 250, "meta": "small"} if small else {"height": 320}),
        "barmode": "stack",
        "bargap": 0.4,
        "showlegend": True,
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": title}, "rangemode": "tozero", "tickformat": "~s"},
    }


def _arrivals(one: Json, counted: Counted) -> Figure:
    """Requests per second by window, what the fleet is sized for and the most that it serves."""
    arrivals, start = one["arrivals"], one["arrivals"]["start_s"]
    scale, unit = (3600.0, "hours") if start[-1] > 6 * 3600.0 else (60.0, "minutes")
    x = [at / scale for at in start]
    window = f"{arrivals['window_s']:g} s"
    each = arrivals["windows_each"]
    busiest = f"busiest of {each} windows of {window}" if each > 1 else f"in windows of {window}"
    most, busy = counted.quarters[0].capacity[one["class"]], one["requests_per_s"]["busy"]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"arrivals, {busiest}",
            "x": x,
            "y": arrivals["busiest_per_s"],
            "line": {"color": BLUE, "width": 1.5, "shape": "hv"},
        },
        level(f"sized for: {significant(busy)}/s", busy, x, "ink", "dash"),
        level(f"serves up to: {significant(most)}/s", most, x, VERMILION, "solid"),
    ]
    layout = {
        "height": 380,
        "xaxis": {"title": {"text": f"{unit} since the first request"}},
        "yaxis": {"title": {"text": "requests per second"}, "rangemode": "tozero"},
    }
    return Figure(
        f"arrivals-{one['class']}",
        f"Arrivals of {one['class']} against what the fleet serves",
        {"data": traces, "layout": layout},
        f"Requests per second of {one['class']} over time, with two levels: what the fleet is "
        "sized for, and the most that it serves within the limits.",
    )


def level(name: str, y: float, x: Sequence[Any], colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [x[0], x[-1]],
        "y": [y, y],
        "line": {"color": colour, "width": 2, "dash": dash},
        "hoverinfo": "name",
    }


def _tokens(fleets: Sequence[Json]) -> Figure:
    """Tokens per dollar of the fleet on each chip alone, the best on top."""
    rows = fleets[::-1]
    names = [plain(row["chip"]) for row in rows]
    millions = [(row["tokens_per_usd"] or 0.0) / 1e6 for row in rows]
    trace = bars("tokens per dollar", millions, names, BLUE) | {
        "text": [
            f"{significant(million)} M: {row['chips']:,} chips, {dollars(row['usd_per_hour'])}/h"
            for million, row in zip(millions, rows, strict=True)
        ],
        "textposition": "auto",
        "hoverinfo": "text",
        "hovertext": [plain(row["words"]) for row in rows],
    }
    title = "million tokens per dollar, at the mean rate"
    layout = {
        "height": 110 + 32 * len(rows),
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": names_axis(names),
    }
    return Figure(
        "tokens",
        "Tokens per dollar by chip",
        {"data": [trace], "layout": layout},
        "Million tokens per dollar of the cheapest fleet on each chip alone.",
    )
