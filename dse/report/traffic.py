"""traffic.html, .json, .csv and .xlsx: the answer of `dse traffic`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dse.report.figures import BLUE, VERMILION, plain
from dse.report.labels import GLOSSARY
from dse.report.page import answer_page
from dse.report.records import csv_text, lines, sheet
from dse.report.xlsx import workbook
from dse.study.folder import write_bytes, write_json, write_text
from dse.study.numbers import significant
from dse.whatif.paid import paid_rows
from dse.whatif.traffic import Answer
from dse.whatif.traffic_words import deployment, document, first_words, lead, rests_on, tables

PAGE, DATA, TABLE, BOOK = "traffic.html", "traffic.json", "traffic.csv", "traffic.xlsx"
MOST_DRAWN = 400  # windows; of more, the busiest of as many in a row
WORDS = {
    "window": "a stretch of the trace of equal length, in which arrivals are counted",
    "percentile": "of times to first token: as many percent of the requests wait no longer",
    "instance": "one copy of the model on as many chips as it is divided over",
    "load": "arrivals over what the fleet can serve at all; near 100% requests wait without end",
    "class": "requests of about the same lengths, served at their mean lengths",
    "cached": "tokens of a prompt whose keys and values are there already, so that no prefill "
    "is spent on them",
    **{
        word: GLOSSARY[word]
        for word in (
            "time to first token", "time per output token", "tensor parallel", "pipeline parallel",
            "attention data-parallel", "expert parallel", "tokens", "prefill", "assumed",
        )
    },
}  # fmt: skip


def write_traffic(folder: Path, answer: Answer, command: str) -> Path:
    """Writes the page, the document and the tables into `folder`. Raises StorageError where they
    cannot be written."""
    found = {**document(answer), "command": command}
    rows = fleet_rows(found, answer)
    write_json(folder, DATA, found)
    write_text(folder, TABLE, csv_text(rows))
    write_bytes(folder, BOOK, workbook(_sheets(answer, found, rows)))
    write_text(folder, PAGE, traffic_page(answer, command))
    return folder / PAGE


def fleet_rows(found: dict[str, Any], answer: Answer) -> list[dict[str, Any]]:
    """The fleets of the document, flat, the cheapest first."""
    return [
        row | {"deployment": deployment(one)}
        for row, one in zip(found["fleets"], answer.sized.fleets, strict=True)
    ]


def _sheets(answer: Answer, found: dict[str, Any], rows: list[dict[str, Any]]) -> list[Any]:
    windows = answer.windows
    counted = [] if windows is None else windows.requests
    made = [
        ("Answer", lines([answer.study.title or answer.study.name, *found["answer"]])),
        ("Fleets", sheet(rows)),
        ("Classes", sheet(found["classes"])),
        ("Windows", sheet([{"window": k, "requests": int(n)} for k, n in enumerate(counted)])),
        ("Prices", sheet(paid_rows(answer.paid))),
        ("Rests on", lines(found["rests_on"])),
    ]
    return [(name, cells) for name, cells in made if cells]


def traffic_page(answer: Answer, command: str) -> str:
    """The page as HTML."""
    drawn = figures(answer)
    targets = answer.targets
    return answer_page(
        "decision.html",
        WORDS,
        kind="Traffic",
        title=answer.study.title or answer.study.name,
        description=f"The cheapest fleet on each chip that keeps the {first_words(targets)} within "
        f"{targets.ttft_s:g} s and every class of requests within {1e3 * targets.tpot_s:g} ms per "
        "output token.",
        command=command,
        answer=lead(answer),
        heads=[
            {"id": name, "title": title, "height": figure["layout"]["height"]}
            for name, (title, figure) in drawn.items()
        ],
        meaning="",
        tables=tables(answer),
        steps=None,
        rests=rests_on(answer),
        plots={name: figure for name, (_, figure) in drawn.items()},
    )


def figures(answer: Answer) -> dict[str, tuple[str, dict[str, Any]]]:
    """{id: (title, figure)}."""
    made = {} if answer.windows is None else {"arrivals": _arrivals(answer)}
    return {**made, "tokens": _tokens(answer)}


def _arrivals(answer: Answer) -> tuple[str, dict[str, Any]]:
    """Requests per second by window, and the rates that the best fleet is sized for and keeps."""
    windows, best = answer.windows, answer.sized.fleets[0]
    assert windows is not None
    count = len(windows.requests)
    every = -(-count // MOST_DRAWN)
    starts = np.arange(0, count, every)
    rates = np.maximum.reduceat(windows.per_s, starts)
    scale, unit = (3600.0, "hours") if count * windows.seconds > 6 * 3600.0 else (60.0, "minutes")
    x = starts * windows.seconds / scale
    ends = [float(x[0]), float(x[-1])]
    long = f"{windows.seconds:g} s"
    what = f"requests in windows of {long}" if every == 1 else f"busiest of {every} windows"
    traces = [
        {
            "type": "scatter", "mode": "lines", "name": what, "x": x.tolist(), "y": rates.tolist(),
            "line": {"color": BLUE, "width": 1.5, "shape": "hv"}, "hovertemplate": "%{y:.3g}/s",
        },
        _level("the fleet is sized for", answer.traffic.busy_per_s, ends, "ink", "dash"),
        _level(f"{best.chip} serves at most", best.most_per_s, ends, VERMILION, "solid"),
    ]  # fmt: skip
    layout = {
        "height": 380,
        "xaxis": {"title": {"text": f"{unit} since the first request"}},
        "yaxis": {"title": {"text": "requests per second"}, "rangemode": "tozero"},
    }
    return f"Arrivals against what the {best.chip} fleet serves", {"data": traces, "layout": layout}


def _level(name: str, y: float, ends: list[float], colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": plain(f"{name}: {significant(y)}/s"),
        "x": ends, "y": [y, y], "line": {"color": colour, "width": 2, "dash": dash},
        "hoverinfo": "name",
    }  # fmt: skip


def _tokens(answer: Answer) -> tuple[str, dict[str, Any]]:
    """Tokens per dollar of every chip's fleet, the best on top."""
    rows = answer.sized.fleets[::-1]
    names = [plain(one.chip) for one in rows]
    traces = [
        {
            "type": "bar", "orientation": "h", "y": names,
            "x": [one.tokens_per_usd / 1e6 for one in rows],
            "text": [
                f"{significant(one.tokens_per_usd / 1e6)} M: {one.chips:,} chips, "
                f"${significant(one.usd_per_hour)}/h"
                for one in rows
            ],
            "textposition": "auto", "marker": {"color": BLUE}, "hoverinfo": "text",
            "hovertext": [
                plain(f"{one.instances:,} x {one.chips // one.instances} {one.chip} "
                      f"{deployment(one)}") for one in rows
            ],
        }
    ]  # fmt: skip
    layout = {
        "height": 110 + 32 * len(rows),
        "xaxis": {"title": {"text": "million tokens per dollar, at the mean rate"},
                  "rangemode": "tozero"},
        "yaxis": {"type": "category", "categoryarray": names, "categoryorder": "array",
                  "automargin": True},
    }  # fmt: skip
    return "Tokens per dollar by chip", {"data": traces, "layout": layout}
