"""risk.html, .json, .csv and .xlsx: the answer of `dse risk`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import percent
from dse.answer.palette import BLUE, PALETTE, SYMBOLS, VERMILION, hatch, plain
from dse.answer.shell import continued
from dse.answer.text_table import Table
from dse.render.decision import Json, decision_page, named
from dse.render.records import csv_text, flat, kept, lines, sheet, write_answer

MOST, HELPS = 6, 0.0005  # choices and measurements drawn; chance that one of these saves
WORDS = {
    "draw": "one guess of all that is not known: prices, errors of the model, demand",
    "choice": "a chip in the configuration that is cheapest on it at the prediction",
    "prediction": "what the model says, with every price as published",
    "regret": "what a choice costs over what the best choice of the same draw costs, less 1",
    "80% interval": "where the figure is taken to lie four times out of five",
    "configuration": "degrees and number formats; requests in flight are chosen again in every "
    "draw",
    "standard error": "how far a chance may be off because draws are random",
    "kernel laws": "how fast the chip runs matrix products, attention and collectives, by their "
    "size",
    "fitted": "the kernel laws were measured on the chip",
    **{
        word: GLOSSARY[word]
        for word in (
            "time to first token", "time per output token", "tensor parallel", "pipeline parallel",
            "attention data-parallel", "expert parallel", "tokens", "requests in flight", "assumed",
        )
    },
}  # fmt: skip


def write_risk(folder: Path, document: dict[str, Any], tables: Sequence[Table]) -> Path:
    """Writes the page, the document and the tables into `folder`; `document` is that of
    `dse risk --json`, with the command. Raises StorageError where they cannot be written."""
    rows = [flat(row) for row in document["choices"]]
    page = risk_page(document, tables)
    return write_answer(folder, "risk", document, csv_text(rows), _sheets(document, rows), page)


def _sheets(document: Json, rows: list[dict[str, Any]]) -> list[Any]:
    learned = [
        {name: value for name, value in row.items() if name not in ("deployment", "commands")}
        for row in document["measure_next"]
    ]
    return kept(
        ("Answer", lines([document["title"], *document["answer"]])),
        ("Choices", sheet(rows)),
        ("Measure next", sheet(learned)),
        ("Prices", sheet([flat(row) for row in document["prices"]])),
        ("Parts of prices", sheet(document["price_parts"])),
        ("Rests on", lines(document["rests_on"])),
    )


def risk_page(document: Json, tables: Sequence[Table]) -> str:
    """The page as HTML."""
    steps = document["measure_next"][0]["commands"] if document["measure_next"] else []
    return decision_page(
        "Risk", WORDS, document, tables, figures(document),
        meaning=document["meaning"], steps=[continued(line, 80) for line in steps],
    )  # fmt: skip


def figures(document: Json) -> dict[str, tuple[str, dict[str, Any]]]:
    """{id: (title, figure)}; none where there is one choice."""
    if len(document["choices"]) == 1:
        return {}
    made = {"first": _first(document), "margin": _margin(document), "regret": _regret(document)}
    return {**made, "measure": _measure(document)} if document["measure_next"] else made


def _ranked(document: Json) -> tuple[list[Json], list[str]]:
    """Choices, the one most often first last, and their names."""
    rows = sorted(document["choices"], key=lambda one: one["chance_first"])
    return rows, [plain(one["name"]) for one in rows]


def _first(document: Json) -> tuple[str, dict[str, Any]]:
    """The chance of each choice to be the best of a draw."""
    rows, names = _ranked(document)
    chance = [one["chance_first"] for one in rows]
    traces = [
        {
            "type": "bar", "orientation": "h", "y": names, "x": [100.0 * one for one in chance],
            "text": [percent(one) for one in chance], "textposition": "outside",
            "cliponaxis": False, "marker": {"color": BLUE}, "hoverinfo": "skip",
        }
    ]  # fmt: skip
    layout = {
        "height": 110 + 32 * len(rows),
        "xaxis": {"title": {"text": "share of draws (%)"},
                  "range": [0, min(112.0 * max(chance) + 1.0, 108.0)]},
        "yaxis": named(names),
    }  # fmt: skip
    return "How often each choice is the best", {"data": traces, "layout": layout}


def _regret(document: Json) -> tuple[str, dict[str, Any]]:
    """Expected regret, its 95th percentile, and the worst, of the choices where it is least."""
    rows = sorted(document["choices"], key=lambda one: one["expected_regret"])[:MOST][::-1]
    names = [plain(one["name"]) for one in rows]
    traces = []
    for k, (name, key) in enumerate(
        (
            ("in the mean", "expected_regret"),
            ("in one draw of twenty, or more", "regret_95"),
            ("every interval at its end", "worst_regret"),
        )
    ):
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name, "y": names,
                "x": [None if one[key] is None else 100.0 * one[key] for one in rows],
                "marker": {"color": PALETTE[k], "size": 12, "symbol": SYMBOLS[k]},
                "hovertemplate": "%{y}, " + name + ": %{x:.3g}%<extra></extra>",
            }
        )  # fmt: skip
    layout = {
        "height": 150 + 32 * len(rows),
        "xaxis": {"title": {"text": "costs more than the best of the draw (%)"},
                  "rangemode": "tozero"},
        "yaxis": named(names),
    }  # fmt: skip
    return "What being wrong costs: the least regrets", {"data": traces, "layout": layout}


def _margin(document: Json) -> tuple[str, dict[str, Any]]:
    """How far the best other choice lies above or below the one that is advised, in the draws."""
    take, rows = plain(document["advised"]), document["margin"]
    chance = {plain(one["name"]): one["chance_first"] for one in document["choices"]}[take]
    traces = []
    for name, wins, colour, shape in (
        (f"{take} is best: {percent(chance)}", True, BLUE, ""),
        (f"another is: {percent(1.0 - chance)}", False, VERMILION, "/"),
    ):
        mine = [row for row in rows if (row["to"] > 0.0) == wins]
        ends = [(math.log1p(row["from"]), math.log1p(row["to"])) for row in mine]
        traces.append(
            {
                "type": "bar", "name": name,
                "x": [(a + b) / 2.0 for a, b in ends], "width": [b - a for a, b in ends],
                "y": [100.0 * row["share"] for row in mine],
                "marker": {"color": colour, "pattern": hatch(shape)}, "hoverinfo": "text",
                "hovertext": [
                    f"{100 * row['from']:+.0f}% to {100 * row['to']:+.0f}%: "
                    f"{100 * row['share']:.1f}%"
                    for row in mine
                ],
            }
        )  # fmt: skip
    low, high = rows[0]["from"], rows[-1]["to"]
    ticks = {low: f"{100 * low:.0f}%", -0.5: "-50%", 0.0: "same", 1.0: "+100%",
              high: f"+{100 * high:.0f}%"}  # fmt: skip
    layout = {
        "height": 360, "barmode": "overlay", "bargap": 0,
        "xaxis": {
            "title": {
                "text": f"the best other choice costs, over {take}<br>(outermost bars: or beyond)"
            },
            "range": [math.log1p(low) - 0.2, math.log1p(high) + 0.2],
            "tickvals": [math.log1p(tick) for tick in ticks], "ticktext": list(ticks.values()),
            "tickangle": 0,
        },
        "yaxis": {"title": {"text": "share of draws (%)"}},
    }  # fmt: skip
    return f"By how much {take} wins or loses", {"data": traces, "layout": layout}


def _measure(document: Json) -> tuple[str, dict[str, Any]]:
    """The chance of a wrong choice before and after each measurement, the most helpful on top."""
    best, *others = document["measure_next"][:MOST]
    rows = [*(one for one in others[::-1] if one["chance_saved"] >= HELPS), best]
    names = [_two_lines(one["words"].removeprefix("serving on ")) for one in rows]
    now = [100.0 * one["chance_wrong_now"] for one in rows]
    wrong = [100.0 * one["chance_wrong_after"] for one in rows]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "y": [name, name], "x": list(ends),
            "hoverinfo": "skip", "line": {"color": "grid", "width": 5}, "showlegend": False,
        }
        for name, *ends in zip(names, now, wrong, strict=True)
    ]  # fmt: skip
    for k, (name, values) in enumerate((("now", now), ("after it", wrong))):
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name, "y": names, "x": values,
                "marker": {"color": PALETTE[k], "size": 12, "symbol": SYMBOLS[k]},
                "hovertemplate": "%{y}, " + name + ": %{x:.1f}%<extra></extra>",
            }
        )  # fmt: skip
    layout = {
        "height": 140 + 44 * len(rows),
        "xaxis": {"title": {"text": "chance of a wrong choice (%)"}},
        "yaxis": named(names),
    }
    return "What a measurement would help", {"data": traces, "layout": layout}


def _two_lines(words: str) -> str:
    """Chips on one line, how they are used on the next."""
    count, chip, *rest = words.split(" ", 2)
    return "<br>".join(map(plain, (f"{count} {chip}", *rest)))
