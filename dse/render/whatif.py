"""whatif.html, .md, .json, .csv and .xlsx: the answer of `dse whatif`, its curves and tables."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.answer.glossary import GLOSSARY
from dse.answer.labels import axis_title, label
from dse.answer.numbers import significant
from dse.answer.palette import BLUE, PALETTE, SYMBOLS, VERMILION, hatch, plain
from dse.answer.text_table import Table
from dse.files import write_text
from dse.render import records
from dse.render.markdown import escape
from dse.render.page import answer_page, heads
from dse.render.whatif_sheets import long_rows, questions

Json = Mapping[str, Any]
TEXT = "whatif.md"
DAY = 86_400.0  # seconds
MOST_CHIPS = 7  # drawn in one picture, as many as the palette tells apart
WORDS = {
    "winner": "the point that is best in the objective among all that keep the limits",
    "front": "the points that no other point is as good as in every objective",
    "elasticity": "percent that the objective moves by for one percent of an input",
    "shadow price": "what one step of a limit is worth: the gain where it is looser by that much",
    "break-even": "where two choices cost the same",
    "utilisation": "the share of its hours in which a chip serves",
    "deployment": "one instance of the model with its replicas; a demand takes several",
    "if busy": "the price of a token on a deployment that never waits for requests",
    "deployed anew": "with degrees, formats and load chosen again after the change",
    "envelope": "the best of all deployments at each value of an input",
    **{
        word: GLOSSARY[word]
        for word in (
            "tensor parallel", "time to first token", "time per output token",
            "requests in flight", "tokens", "KV cache", "assumed",
        )
    },
}  # fmt: skip


def write_whatif(
    folder: Path, document: dict[str, Any], tables: Sequence[Table], asked: str
) -> Path:
    """Writes page, text, document and tables into `folder`; `document` is that of
    `dse whatif --json`, with the command. Raises StorageError where they cannot be written."""
    table = records.csv_text(list(long_rows(document)))
    sheets = [(name, records.sheet(rows)) for name, rows in questions(document).items()]
    answer = ("Answer", records.lines(document["answer"]))
    rests = ("Rests on", records.lines(document["assumed"]))
    write_text(folder, TEXT, whatif_markdown(document, tables, asked))
    page = whatif_page(document, tables, asked)
    made = [answer, *sheets, rests]
    return records.write_answer(folder, "whatif", document, table, made, page)


def whatif_markdown(document: Json, tables: Sequence[Table], asked: str) -> str:
    """The answer as GitHub-flavoured Markdown."""
    lines = [f"<!-- {html.escape(document['command'])} -->", ""]
    lines += [f"# What if: {escape(document['title'])}"]
    lines += ["", escape(asked), "", "## The answer", ""]
    lines += [f"- {escape(sentence)}" for sentence in document["answer"]]
    for table in tables:
        lines += ["", f"## {escape(table.caption)}", ""]
        lines += [_row(table.titles), f"|{'---|' * len(table.titles)}"]
        lines += map(_row, table.rows)
        for note in table.notes:
            lines += ["", f"{escape(note)}."]
    lines += ["", "## What it rests on", ""]
    lines += [f"- {escape(text)}" for text in document["assumed"]]
    lines += ["", "## How it was found", ""]
    lines += [f"- {escape(note)}" for note in (document["how"], *document["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def whatif_page(document: Json, tables: Sequence[Table], asked: str) -> str:
    """The page as HTML: the answer first, then the curves, then the numbers."""
    drawn = figures(document)
    return answer_page(
        "whatif.html",
        WORDS,
        document=document,
        command=document.get("command"),
        asked=asked,
        answer=document["answer"],
        drawn=heads(drawn),
        tables=tables,
        rests=document["assumed"],
        notes=[document["how"], *document["notes"]],
        plots={key: one for key, (_, one) in drawn.items()},
    )


def figures(document: Json) -> dict[str, tuple[str, dict[str, Any]]]:
    """{id: (title, figure)} of what was asked."""
    made: dict[str, tuple[str, dict[str, Any]]] = {}
    for k, row in enumerate(document["scenarios"]):
        if row["picture"]["after"][0]:
            made[f"front-{k}"] = (f"The front, before and after {row['name']}", _front(row))
    for k, row in enumerate(document["sweeps"]):
        along, metric = f"along {row['input']}{_dashed(row)}", document["objective"]
        made[f"sweep-{k}"] = (f"The winner {along}", _sweep(row, metric))
        if _held(row):
            made[f"hour-{k}"] = (f"Dollars an hour {along}", _sweep(row, metric, hourly=True))
    if document["sensitivities"]:
        name = label(document["objective"]).text
        made["tornado"] = (
            f"What moves {name}: each input 10% less and 10% more",
            _tornado(document),
        )
    if even := document["break_even"]:
        if len(even["chips"]) > 1:
            made["prices"] = ("Prices per chip-hour, now and at break-even", _prices(even))
        if even["concurrency"]:
            made["requests"] = ("Cost by requests in flight", _requests(even["concurrency"]))
        if even["owning"]:
            made["owning"] = ("Owned, by utilisation, and rented by use (dashed)", _owning(even))
    for k, row in enumerate(document["equal"]):
        made[f"equal-{k}"] = (f"At equal {row['kind']}", _equal(row))
    return made


def _scaled(metric: str, values: Sequence[float | None]) -> list[float | None]:
    scale = label(metric).scale
    return [None if value is None else value * scale for value in values]


def _axis(metric: str) -> dict[str, Any]:
    return {"title": {"text": plain(axis_title(metric))}}


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with a label at each digit where there is room, else at 1, 2 and 5."""
    every = max(values) / min(values) < 8.0
    return {"type": "log", "tickformat": "~g", "dtick": "D1" if every else "D2"}


def _front(row: Json) -> dict[str, Any]:
    """Both fronts in two objectives, logarithmic."""
    picture = row["picture"]
    traces = []
    for k, (key, name) in enumerate((("before", "before"), ("after", "after"))):
        x, y = picture[key]
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name,
                "x": _scaled(picture["x"], x), "y": _scaled(picture["y"], y),
                "marker": {
                    "color": PALETTE[k], "size": 11 if k == 0 else 8,
                    "symbol": "circle-open" if k == 0 else "x", "line": {"width": 2},
                },
            }
        )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 380, "hovermode": "closest",
            "xaxis": _axis(picture["x"]) | _decades(picture["before"][0] + picture["after"][0]),
            "yaxis": _axis(picture["y"]) | _decades(picture["before"][1] + picture["after"][1]),
        },
    }  # fmt: skip


def _hourly(step: Json) -> float | None:
    """Dollars an hour that the demand takes at a step of a sweep."""
    load = step["winner"] and step["winner"]["at_average_load"]
    return load and load["usd_per_hour"]


def _held(row: Json) -> bool:
    """Whether a demand is served along a sweep."""
    return any(_hourly(step) is not None for step in row["rows"])


def _dashed(row: Json) -> str:
    some = any(one["chip"] and one["words"] for one in row["switches"])
    return " (dashed: another chip takes over)" if some else ""


def _sweep(row: Json, metric: str, hourly: bool = False) -> dict[str, Any]:
    """The winner's objective at every step, or what is paid an hour, one colour and mark a chip."""
    steps = row["rows"]
    of_demand = row["input"] == "demand" and row["unit"] == "tokens/s"
    scale = DAY / 1e9 if of_demand else 1.0
    x = [step["factor"] if step["factor"] is not None and step["value"] is None
         else step["value"] * scale for step in steps]  # fmt: skip
    y = [_hourly(step) for step in steps]
    if not hourly:
        y = _scaled(metric, [step["objective"] for step in steps])
    chips = list(dict.fromkeys(step["winner"]["chip"] for step in steps if step["winner"]))
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip",
            "showlegend": False, "line": {"color": "grid", "width": 2},
        }
    ]  # fmt: skip
    for k, chip in enumerate(chips):
        rows = [
            i for i, step in enumerate(steps) if step["winner"] and step["winner"]["chip"] == chip
        ]
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": plain(chip),
                "x": [x[i] for i in rows], "y": [y[i] for i in rows],
                "marker": {
                    "color": PALETTE[k % len(PALETTE)], "size": 11,
                    "symbol": SYMBOLS[k % len(SYMBOLS)],
                },
                "hoverinfo": "text",
                "hovertext": [
                    plain(f"{steps[i]['words']}: {steps[i]['winner']['words']}") for i in rows
                ],
            }
        )  # fmt: skip
    unit = "B tokens/day" if of_demand else row["unit"]
    unit = "factor" if steps[0]["value"] is None else unit
    ends = [
        one["value"] * scale if one["value"] is not None else one["factor"]
        for one in row["switches"]
        if one["chip"]
    ]
    return {
        "data": traces,
        "layout": {
            "height": 380, "hovermode": "closest",
            "xaxis": {"title": {"text": plain(f"{row['input']} ({unit})")}},
            "yaxis": ({"title": {"text": "USD an hour"}} if hourly else _axis(metric))
            | {"rangemode": "tozero"},
            "shapes": [_upright(end) for end in ends if end is not None],
        },
    }  # fmt: skip


def _upright(x: float) -> dict[str, Any]:
    return {
        "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
        "line": {"color": "grid", "width": 2, "dash": "dash"},
    }  # fmt: skip


def _tornado(document: Json) -> dict[str, Any]:
    """Bars of the change of the optimum, strongest on top; inputs without effect are left out."""
    ends = (("at_10_percent_less", "input 10% less", BLUE, ""),
            ("at_10_percent_more", "input 10% more", VERMILION, "/"))  # fmt: skip
    rows = [
        row
        for row in document["sensitivities"]
        if any(abs(row[key] or 0.0) >= 5e-4 for key, *_ in ends)
    ][::-1]
    names = [plain(row["input"]) for row in rows]
    traces = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": names,
            "x": [None if row[key] is None else 100.0 * row[key] for row in rows],
            "marker": {"color": colour, "pattern": hatch(shape)}, "hoverinfo": "x+name",
        }
        for key, name, colour, shape in ends
    ]  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 120 + 44 * max(len(rows), 1), "barmode": "group", "bargap": 0.35,
            "xaxis": {
                "title": {"text": plain(f"change of {label(document['objective']).text} (%)")},
                "zeroline": True,
            },
            "yaxis": {"type": "category", "categoryarray": names, "categoryorder": "array",
                      "automargin": True},
        },
    }  # fmt: skip


def _prices(even: Json) -> dict[str, Any]:
    """A line a chip from its price now to its break-even price."""
    rows = even["chips"][::-1]
    names = [plain(row["chip"]) for row in rows]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "y": [name, name], "hoverinfo": "skip",
            "x": [row["usd_per_chip_hour"], row["break_even_usd_per_chip_hour"]],
            "line": {"color": "grid", "width": 5}, "showlegend": False,
        }
        for name, row in zip(names, rows, strict=True)
    ]  # fmt: skip
    for k, (key, name) in enumerate(
        (("usd_per_chip_hour", "now"), ("break_even_usd_per_chip_hour", "break-even"))
    ):
        traces.append(
            {
                "type": "scatter", "mode": "markers", "y": names, "x": [row[key] for row in rows],
                "name": name, "marker": {"color": PALETTE[k], "size": 13, "symbol": SYMBOLS[k]},
                "hoverinfo": "text",
                "hovertext": [
                    plain(f"{row['chip']} {name}: ${significant(row[key])}, with {row['against']}")
                    for row in rows
                ],
            }
        )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 110 + 34 * len(rows),
            "xaxis": {"title": {"text": "USD per chip-hour"}, "rangemode": "tozero"},
            "yaxis": {"type": "category", "categoryarray": names, "categoryorder": "array",
                      "automargin": True},
        },
    }  # fmt: skip


def _requests(row: Json) -> dict[str, Any]:
    traces = []
    for k, (key, chip) in enumerate((("cost_a", row["a"]), ("cost_b", row["b"]))):
        known = [one for one in row["rows"] if one[key] is not None]
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": plain(chip),
                "x": [one["concurrency"] for one in known], "y": [one[key] for one in known],
                "line": {"color": PALETTE[k], "width": 2},
                "marker": {"color": PALETTE[k], "size": 9, "symbol": SYMBOLS[k]},
            }
        )  # fmt: skip
    ticks = [one["concurrency"] for one in row["rows"]]
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "xaxis": {"type": "log", "title": {"text": "requests in flight"}, "tickvals": ticks,
                      "ticktext": [str(tick) for tick in ticks]},
            "yaxis": {"title": {"text": "USD per million tokens"}}
            | _decades([y for trace in traces for y in trace["y"]]),
        },
    }  # fmt: skip


def _owning(even: Json) -> dict[str, Any]:
    """Dollars per hour of service of an owned chip against its utilisation, and its rent."""
    traces = []
    rows = even["owning"][:MOST_CHIPS]
    for k, row in enumerate(rows):
        x = [100.0 * one["utilisation"] for one in row["curve"]]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plain(row["chip"]),
                "x": x,
                "y": [one["owned"] for one in row["curve"]],
                "line": {"color": PALETTE[k], "width": 2},
            }
        )
        if row["rent_usd_per_hour"] is None:
            continue
        traces.append(
            {
                "type": "scatter", "mode": "lines", "showlegend": False, "x": [x[0], x[-1]],
                "y": [row["rent_usd_per_hour"]] * 2, "hoverinfo": "skip",
                "line": {"color": PALETTE[k], "width": 1, "dash": "dash"},
            }
        )  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 400,
            "xaxis": {"title": {"text": "utilisation (%)"}, "range": [0, 101]},
            "yaxis": {"title": {"text": "USD per chip-hour of service"}}
            | _decades([y for trace in traces for y in trace["y"]]),
        },
    }  # fmt: skip


def _equal(row: Json) -> dict[str, Any]:
    rows = row["rows"][::-1]
    names = [plain(one["chip"]) for one in rows]
    return {
        "data": [
            {
                "type": "bar", "orientation": "h", "y": names,
                "x": _scaled(row["metric"], [one["value"] for one in rows]),
                "marker": {"color": BLUE}, "hoverinfo": "text",
                "hovertext": [plain(one["point"]["words"]) for one in rows],
            }
        ],
        "layout": {
            "height": 100 + 30 * len(rows),
            "xaxis": _axis(row["metric"]) | {"rangemode": "tozero"},
            "yaxis": {"type": "category", "categoryarray": names, "categoryorder": "array",
                      "automargin": True},
        },
    }  # fmt: skip
