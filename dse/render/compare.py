"""compare.html, compare.json, compare.csv and compare.xlsx: the answer of `dse compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dse.answer.glossary import GLOSSARY
from dse.answer.labels import axis_title, label
from dse.answer.numbers import show, significant
from dse.answer.palette import PALETTE, SYMBOLS, hatch, plain
from dse.answer.text_table import Table
from dse.pareto import non_dominated
from dse.questions.compare import fleet as compare_fleet
from dse.questions.compare.studies import Compared, Side, cost_metric
from dse.questions.compare.words import alike, design_rows, facts, tables
from dse.render.page import answer_page, heads
from dse.render.records import csv_text, kept, lines, sheet, write_answer
from dse.render.xlsx import Cell

FLEET_WORDS = {
    "offer": "a way to get a chip, and its price: rented by the hour, or bought",
    **{word: GLOSSARY[word] for word in ("tokens", "chip-hour")},
}
WORDS = {
    "digest": "a fingerprint of the hardware data: the same digest, the same figures",
    "additive epsilon": "how far one front must be shifted, in scaled objectives, to be as good "
    "everywhere as the other",
    **{
        word: GLOSSARY[word]
        for word in (
            "front", "knee", "hypervolume", "objective", "tokens", "tensor parallel", "replicas",
            "KV heads", "time per output token", "time to first token", "predicted loss",
            "chip-hour", "evaluated", "engine", "requests in flight", "expert parallel",
        )
    },
}  # fmt: skip
Figure = dict[str, Any]
Drawn = dict[str, tuple[str, Figure]]


def write_compared(folder: Path, found: Compared, document: dict[str, Any]) -> Path:
    """Writes the page, the document and the tables into `folder`; `document` is that of
    `dse compare --json`, with the command. Raises StorageError where they cannot be written."""
    rows = design_rows(found)
    return _write(
        folder,
        document,
        tables(found),
        [*facts(found), *alike(document)],
        figures(found),
        rows,
        ("Designs", sheet(rows)),
        WORDS,
    )


def write_fleets(folder: Path, document: dict[str, Any]) -> Path:
    """The same of two fleets; `document` is that of `dse.questions.compare.fleet`, with the
    command."""
    rows = document["by_quarter"]
    return _write(
        folder,
        document,
        compare_fleet.tables(document),
        alike(document),
        fleet_figures(document),
        rows,
        ("Quarters", sheet(rows)),
        FLEET_WORDS,
    )


def _write(
    folder: Path,
    document: dict[str, Any],
    shown: Sequence[Table],
    rests: Sequence[str],
    drawn: Drawn,
    rows: Sequence[Mapping[str, Any]],
    named: tuple[str, list[list[Cell]]],
    glossary: Mapping[str, str],
) -> Path:
    """The four files of a comparison: `rows` make the table, `named` shows them in the workbook."""
    sheets = kept(
        ("Answer", lines([document["title"], *document["answer"]])),
        ("Prices", sheet(document["all_prices"])),
        *((one.caption, [list[Cell](row) for row in (one.titles, *one.rows)]) for one in shown),
        named,
        ("Whether they compare", lines(rests)),
    )
    html = page(document, shown, rests, drawn, glossary)
    return write_answer(folder, "compare", document, csv_text(rows), sheets, html)


def page(
    document: Mapping[str, Any],
    shown: Sequence[Table],
    rests: Sequence[str],
    drawn: Drawn,
    glossary: Mapping[str, str],
) -> str:
    """The page as HTML: the answer, pictures, tables, and whether the two compare."""
    return answer_page(
        "compare.html",
        glossary,
        document=document,
        command=document["command"],
        answer=document["answer"],
        drawn=heads(drawn),
        tables=shown,
        rests=rests,
        plots={key: one for key, (_, one) in drawn.items()},
    )


def figures(found: Compared) -> Drawn:
    """{id: (title, figure)}: prices before and after, and both fronts in two objectives."""
    document, made = found.document, {}
    if document["all_prices"]:
        unit = "USD per chip-hour"
        made["prices"] = ("Prices by chip", pairs_figure(document["all_prices"], document, unit))
    cost = cost_metric(found.objectives)
    metrics = [o["metric"] for o in found.objectives]
    y = cost or metrics[0]
    for k, x in enumerate(metric for metric in metrics if metric != y):
        title = f"Least {label(y).text} at each {label(x).text}"
        made[f"front-{k}"] = (title, front_figure(found, x, y))
    return made


def fleet_figures(document: Mapping[str, Any]) -> Drawn:
    """Prices of what is rented and of what is bought, and the chips that are held by quarter."""
    made: Drawn = {}
    for per, title in (("chip-hour", "Rents"), ("chip", "Prices of chips that are bought")):
        if rows := [row for row in document["all_prices"] if row["per"] == per]:
            made[per] = (title, pairs_figure(rows, document, f"USD per {per}"))
    if document["by_quarter"]:
        made["chips"] = ("Chips that are held", chips_figure(document))
    return made


def chips_figure(document: Mapping[str, Any]) -> Figure:
    """Two stacks a quarter, before and after; owned chips are hatched."""
    names, rows = document["names"], document["by_quarter"]
    chips = list(dict.fromkeys(row["chip"] for row in rows))
    quarters = sorted({row["quarter"] for row in rows})
    held = {(row["quarter"], row["chip"]): row for row in rows}
    bars = [(f"Q{q}<br>{plain(names[side])}", q, side) for q in quarters for side in "ab"]
    traces = []
    for j, chip in enumerate(chips):
        for way, shape in (("rented", ""), ("owned", "/")):
            values = [held.get((q, chip), {}).get(f"{way}_{side}", 0) for _, q, side in bars]
            if any(values):
                traces.append(
                    {
                        "type": "bar", "name": plain(f"{chip}, {way}"),
                        "x": [name for name, *_ in bars], "y": values,
                        "marker": {"color": PALETTE[j % len(PALETTE)], "pattern": hatch(shape)},
                        "hoverinfo": "text",
                        "hovertext": [
                            plain(f"Q{q}, {names[side]}: {value:,} {chip}, {way}")
                            for (_, q, side), value in zip(bars, values, strict=True)
                        ],
                    }
                )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 380, "barmode": "stack", "bargap": 0.3, "showlegend": True,
            "xaxis": {"type": "category"},
            "yaxis": {"title": {"text": "chips"}, "rangemode": "tozero", "tickformat": "~s"},
        },
    }  # fmt: skip


def pairs_figure(
    rows: Sequence[Mapping[str, Any]], document: Mapping[str, Any], unit: str
) -> Figure:
    """A line for each row (`chip`, `a`, `b`) from before to after."""
    names = [plain(row["chip"]) for row in rows[::-1]]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "y": [name, name], "x": [row["a"], row["b"]],
            "hoverinfo": "skip", "line": {"color": "grid", "width": 5}, "showlegend": False,
        }
        for name, row in zip(names, rows[::-1], strict=True)
        if row["a"] and row["b"]
    ]  # fmt: skip
    for k, side in enumerate("ab"):
        known = [(name, row) for name, row in zip(names, rows[::-1], strict=True) if row[side]]
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": plain(document["names"][side]),
                "y": [name for name, _ in known], "x": [row[side] for _, row in known],
                "marker": {
                    "color": PALETTE[k], "size": (15, 9)[k], "line": {"width": (2, 0)[k]},
                    "symbol": ("circle-open", "circle")[k],
                },
                "hoverinfo": "text",
                "hovertext": [
                    f"{name}, {plain(document['names'][side])}: ${significant(row[side])}"
                    for name, row in known
                ],
            }
        )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 130 + 34 * len(rows),
            "xaxis": {"title": {"text": plain(unit)}, "rangemode": "tozero"},
            "yaxis": {
                "type": "category", "categoryarray": names, "categoryorder": "array",
                "automargin": True, "range": [-0.6, len(names) - 0.4],
            },
        },
    }  # fmt: skip


def front_figure(found: Compared, x: str, y: str) -> Figure:
    """The best designs of both fronts in two objectives, a colour and mark for each chip; open and
    dashed before, filled after."""
    chips = [row["chip"] for row in found.document["chips"]]
    traces = []
    for k, side in enumerate((found.a, found.b)):
        best = _best(side, x, y)
        traces.append(
            {
                "type": "scatter", "mode": "lines", "hoverinfo": "skip", "name": plain(side.name),
                "x": _scaled(best, x), "y": _scaled(best, y),
                "line": {"color": "grid", "width": 1.5, "dash": ("dash", "solid")[k]},
            }
        )  # fmt: skip
        for j, chip in enumerate(chips):
            items = [item for item in best if item["deployment"]["chip"] == chip]
            if not items:
                continue
            symbol = SYMBOLS[j % len(SYMBOLS)]
            traces.append(
                {
                    "type": "scatter", "mode": "markers",
                    "name": plain(f"{chip}, {side.name}"),
                    "x": _scaled(items, x), "y": _scaled(items, y),
                    "marker": {
                        "color": PALETTE[j % len(PALETTE)], "size": (13, 8)[k],
                        "symbol": (f"{symbol}-open", symbol)[k], "line": {"width": (2, 0)[k]},
                    },
                    "hoverinfo": "text",
                    "hovertext": [
                        plain(
                            f"{side.name}, point {item['point']}: "
                            f"{show(y, item['metrics'][y])}, {show(x, item['metrics'][x])}; "
                            f"{found.words(item)}"
                        )
                        for item in items
                    ],
                }
            )  # fmt: skip
    directions = {o["metric"]: o for o in found.objectives}
    return {
        "data": traces,
        "layout": {
            "height": 420, "hovermode": "closest",
            "xaxis": _axis(directions[x], traces, "x"), "yaxis": _axis(directions[y], traces, "y"),
        },
    }  # fmt: skip


def _axis(objective: Mapping[str, Any], traces: Sequence[Figure], key: str) -> dict[str, Any]:
    """Logarithmic where the objective is; a label at each digit where there is room."""
    title = {"text": plain(axis_title(objective["metric"]))}
    values = [value for trace in traces for value in trace[key]]
    if not objective["log"] or min(values) <= 0.0:
        return {"title": title}
    every = max(values) / min(values) < 8.0
    return {"title": title, "type": "log", "tickformat": "~g", "dtick": "D1" if every else "D2"}


def _best(side: Side, x: str, y: str) -> list[Mapping[str, Any]]:
    """Designs of a front that no other of it beats in both objectives, from left to right."""
    metrics = [o["metric"] for o in side.study["objectives"]]
    columns = [metrics.index(x), metrics.index(y)]
    F, items = side.F[:, columns], list(side.items.values())
    rows = np.flatnonzero(non_dominated(F))
    return sorted((items[i] for i in rows), key=lambda item: item["metrics"][x])


def _scaled(items: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    return [item["metrics"][metric] * label(metric).scale for item in items]
