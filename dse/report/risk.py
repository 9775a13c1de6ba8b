"""risk.html, .json, .csv and .xlsx: the answer of `dse risk`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dse.report.figures import BLUE, PALETTE, SYMBOLS, VERMILION, hatch, plain
from dse.report.labels import GLOSSARY
from dse.report.page import answer_page
from dse.report.records import csv_text, lines, sheet
from dse.report.xlsx import workbook
from dse.study.folder import write_bytes, write_json, write_text
from dse.study.numbers import percent
from dse.study.shell import continued
from dse.whatif.paid import paid_rows
from dse.whatif.risk import Risk
from dse.whatif.risk_words import (
    MEANING,
    MOST,
    after,
    commands,
    document,
    facts,
    lead,
    measured,
    rests_on,
    tables,
)

PAGE, DATA, TABLE, BOOK = "risk.html", "risk.json", "risk.csv", "risk.xlsx"
BINS, FARTHEST = 40, math.log(4.0)  # of the margin; what lies beyond is in the last bar
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


def write_risk(folder: Path, found: Risk, command: str) -> Path:
    """Writes the page, the document and the tables into `folder`. Raises StorageError where they
    cannot be written."""
    written = {**document(found), "command": command}
    rows = [_flat(row) for row in written["choices"]]
    write_json(folder, DATA, written)
    write_text(folder, TABLE, csv_text(rows))
    write_bytes(folder, BOOK, workbook(_sheets(found, written, rows)))
    write_text(folder, PAGE, risk_page(found, command))
    return folder / PAGE


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A choice or measurement without objects inside it: an interval becomes two columns."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if name == "interval":
            made["low"], made["high"] = value
        elif name == "deployment":
            made |= {key: one for key, one in (value or {}).items() if key != "chip"}
        elif name != "commands":
            made[name] = value
    return made


def _sheets(found: Risk, written: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
    names = [measured(found, one) for one in found.measurements]
    learned = [
        {"learn": name, **{key: one for key, one in row.items() if key not in LEFT}}
        for name, row in zip(names, written["measure_next"], strict=True)
    ]
    made = [
        ("Answer", lines([found.study.title or found.study.name, *written["answer"]])),
        ("Choices", sheet(rows)),
        ("Measure next", sheet(learned)),
        ("Prices", sheet([_flat(row) for row in written["prices"]])),
        ("Parts of prices", sheet(paid_rows(found.paid))),
        ("Rests on", lines(written["rests_on"])),
    ]
    return [(name, cells) for name, cells in made if cells]


LEFT = ("deployment", "commands")


def risk_page(found: Risk, command: str) -> str:
    """The page as HTML."""
    drawn = figures(found)
    first = found.measurements[0] if found.measurements else None
    steps = [continued(line, 80) for line in commands(found, first)] if first else []
    return answer_page(
        "decision.html",
        WORDS,
        kind="Risk",
        title=found.study.title or found.study.name,
        description=facts(found),
        command=command,
        answer=lead(found),
        heads=[
            {"id": name, "title": title, "height": figure["layout"]["height"]}
            for name, (title, figure) in drawn.items()
        ],
        meaning=MEANING,
        tables=tables(found),
        steps={
            "what": f"The first measurement: {measured(found, first)}.",
            "commands": steps,
        }
        if first and steps
        else None,
        rests=rests_on(found),
        plots={name: figure for name, (_, figure) in drawn.items()},
    )


def figures(found: Risk) -> dict[str, tuple[str, dict[str, Any]]]:
    """{id: (title, figure)}; none where there is one choice."""
    if len(found.uncertain.items) == 1:
        return {}
    made = {"first": _first(found), "margin": _margin(found), "regret": _regret(found)}
    return {**made, "measure": _measure(found)} if found.measurements else made


def _names(found: Risk) -> tuple[list[int], list[str]]:
    """Choices, the one most often first last, and their names."""
    order = [int(i) for i in np.argsort(found.robust.chance_first, kind="stable")]
    return order, [plain(found.uncertain.items[i].chip) for i in order]


def _bars(names: list[str]) -> dict[str, Any]:
    return {"type": "category", "categoryarray": names, "categoryorder": "array",
            "automargin": True}  # fmt: skip


def _first(found: Risk) -> tuple[str, dict[str, Any]]:
    """The chance of each choice to be the best of a draw."""
    order, names = _names(found)
    chance = found.robust.chance_first[order]
    traces = [
        {
            "type": "bar", "orientation": "h", "y": names, "x": (100.0 * chance).tolist(),
            "text": [percent(float(one)) for one in chance], "textposition": "outside",
            "cliponaxis": False, "marker": {"color": BLUE}, "hoverinfo": "skip",
        }
    ]  # fmt: skip
    layout = {
        "height": 110 + 32 * len(order),
        "xaxis": {"title": {"text": "share of draws (%)"},
                  "range": [0, min(112.0 * float(chance.max()) + 1.0, 108.0)]},
        "yaxis": _bars(names),
    }  # fmt: skip
    return "How often each choice is the best", {"data": traces, "layout": layout}


def _regret(found: Risk) -> tuple[str, dict[str, Any]]:
    """Expected regret, its 95th percentile, and the worst."""
    order, names = _names(found)
    robust = found.robust
    traces = []
    for k, (name, values) in enumerate(
        (
            ("in the mean", robust.expected_regret),
            ("in one draw of twenty, or more", robust.regret_95),
            ("every interval at its end", robust.worst_regret),
        )
    ):
        shown = [100.0 * float(values[i]) if math.isfinite(values[i]) else None for i in order]
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name, "y": names, "x": shown,
                "marker": {"color": PALETTE[k], "size": 12, "symbol": SYMBOLS[k]},
                "hovertemplate": "%{y}, " + plain(name) + ": %{x:.3g}%<extra></extra>",
            }
        )  # fmt: skip
    layout = {
        "height": 140 + 32 * len(order),
        "xaxis": {"title": {"text": "costs more than the best of the draw (%)"},
                  "rangemode": "tozero"},
        "yaxis": _bars(names),
    }  # fmt: skip
    return "What being wrong costs: regret", {"data": traces, "layout": layout}


def _margin(found: Risk) -> tuple[str, dict[str, Any]]:
    """How far the best other choice lies above or below the one that is advised, in the draws."""
    take = plain(found.uncertain.items[found.robust.least_regret].chip)
    margin = np.clip(found.robust.margin, -FARTHEST, FARTHEST)
    count, edges = np.histogram(margin, bins=BINS, range=(-FARTHEST, FARTHEST))
    share = 100.0 * count / len(margin)
    middle = (edges[:-1] + edges[1:]) / 2.0
    ahead = 100.0 * float((found.robust.margin > 0.0).mean())
    traces = []
    for name, side, colour, shape in (
        (f"{take} is better: {ahead:.0f}%", middle > 0.0, BLUE, ""),
        (f"another is better: {100.0 - ahead:.0f}%", middle < 0.0, VERMILION, "/"),
    ):
        traces.append(
            {
                "type": "bar", "name": name, "x": middle[side].tolist(), "y": share[side].tolist(),
                "width": float(edges[1] - edges[0]), "hoverinfo": "text",
                "marker": {"color": colour, "pattern": hatch(shape)},
                "hovertext": [
                    f"{100 * math.expm1(a):+.0f}% to {100 * math.expm1(b):+.0f}%: {y:.1f}%"
                    for a, b, y in zip(edges[:-1][side], edges[1:][side], share[side], strict=True)
                ],
            }
        )  # fmt: skip
    ticks = (-0.75, -0.5, -0.25, 0.0, 0.5, 1.0, 2.0, 3.0)
    ends = {-0.75: "-75% or less", 0.0: "same", 3.0: "+300% or more"}
    layout = {
        "height": 340, "barmode": "overlay", "bargap": 0,
        "xaxis": {
            "title": {"text": f"the best other choice costs, over {take}"},
            "range": [-FARTHEST - 0.1, FARTHEST + 0.1],
            "tickvals": [math.log1p(tick) for tick in ticks],
            "ticktext": [ends.get(tick, f"{100 * tick:+.0f}%") for tick in ticks],
        },
        "yaxis": {"title": {"text": "share of draws (%)"}},
    }  # fmt: skip
    return f"By how much {take} wins or loses", {"data": traces, "layout": layout}


def _measure(found: Risk) -> tuple[str, dict[str, Any]]:
    """The chance of a wrong choice before and after each measurement, the most helpful on top."""
    rows = found.measurements[:MOST][::-1]
    names = [plain(measured(found, one).removeprefix("serving on ")) for one in rows]
    now = 100.0 * (1.0 - float(found.robust.chance_first.max()))
    wrong = [100.0 * after(found, one)[0] for one in rows]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "y": [name, name], "x": [now, x],
            "hoverinfo": "skip", "line": {"color": "grid", "width": 5}, "showlegend": False,
        }
        for name, x in zip(names, wrong, strict=True)
    ]  # fmt: skip
    for k, (name, values) in enumerate((("now", [now] * len(rows)), ("after it", wrong))):
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name, "y": names, "x": values,
                "marker": {"color": PALETTE[k], "size": 12, "symbol": SYMBOLS[k]},
                "hovertemplate": "%{y}, " + name + ": %{x:.1f}%<extra></extra>",
            }
        )  # fmt: skip
    layout = {
        "height": 140 + 36 * len(rows),
        "xaxis": {"title": {"text": "chance that the choice is wrong (%)"}},
        "yaxis": _bars(names),
    }
    return "What a measurement would help", {"data": traces, "layout": layout}
