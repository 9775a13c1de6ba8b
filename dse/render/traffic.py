"""traffic.html, .json, .csv and .xlsx: the answer of `dse traffic`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dse.answer.glossary import GLOSSARY
from dse.answer.numbers import significant
from dse.answer.palette import BLUE, VERMILION, plain
from dse.answer.text_table import Table
from dse.render.decision import Json, decision_page, named
from dse.render.records import csv_text, flat, kept, lines, sheet, write_answer

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


def write_traffic(folder: Path, document: dict[str, Any], tables: Sequence[Table]) -> Path:
    """Writes the page, the document and the tables into `folder`; `document` is that of
    `dse traffic --json`, with the command. Raises StorageError where they cannot be written."""
    rows = [flat(row) for row in document["fleets"]]
    page = traffic_page(document, tables)
    return write_answer(folder, "traffic", document, csv_text(rows), _sheets(document, rows), page)


def _sheets(document: Json, rows: list[dict[str, Any]]) -> list[Any]:
    arrivals = document["arrivals"] or {"start_s": (), "busiest_per_s": ()}
    by_window = zip(arrivals["start_s"], arrivals["busiest_per_s"], strict=True)
    return kept(
        ("Answer", lines([document["title"], *document["answer"]])),
        ("Fleets", sheet(rows)),
        ("Classes", sheet(document["classes"])),
        ("Arrivals", sheet([{"start_s": t, "requests_per_s": rate} for t, rate in by_window])),
        ("Prices", sheet(document["price_parts"])),
        ("Rests on", lines(document["rests_on"])),
    )


def traffic_page(document: Json, tables: Sequence[Table]) -> str:
    """The page as HTML."""
    drawn = {} if document["arrivals"] is None else {"arrivals": _arrivals(document)}
    return decision_page("Traffic", WORDS, document, tables, {**drawn, "tokens": _tokens(document)})


def _arrivals(document: Json) -> tuple[str, dict[str, Any]]:
    """Requests per second by window, and the rates that the best fleet is sized for and keeps."""
    arrivals, best = document["arrivals"], document["fleets"][0]
    chip, each = plain(best["chip"]), arrivals["windows_each"]
    start = arrivals["start_s"]
    scale, unit = (3600.0, "hours") if start[-1] > 6 * 3600.0 else (60.0, "minutes")
    x = [at / scale for at in start]
    window = f"{arrivals['window_s']:g} s"
    traces = [
        {
            "type": "scatter", "mode": "lines", "x": x, "y": arrivals["busiest_per_s"],
            "name": f"requests in windows of {window}"
            if each == 1
            else f"busiest of {each} windows of {window}",
            "line": {"color": BLUE, "width": 1.5, "shape": "hv"}, "hovertemplate": "%{y:.3g}/s",
        },
        _level("sized for", document["requests_per_s"]["busy"], x, "ink", "dash"),
        _level(f"{chip} serves at most", best["most_requests_per_s"], x, VERMILION, "solid"),
    ]  # fmt: skip
    layout = {
        "height": 380,
        "xaxis": {"title": {"text": f"{unit} since the first request"}},
        "yaxis": {"title": {"text": "requests per second"}, "rangemode": "tozero"},
    }
    return f"Arrivals against what the {chip} fleet serves", {"data": traces, "layout": layout}


def _level(name: str, y: float, x: list[float], colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": f"{name}: {significant(y)}/s",
        "x": [x[0], x[-1]], "y": [y, y], "line": {"color": colour, "width": 2, "dash": dash},
        "hoverinfo": "name",
    }  # fmt: skip


def _tokens(document: Json) -> tuple[str, dict[str, Any]]:
    """Tokens per dollar of every chip's fleet, the best on top."""
    rows = document["fleets"][::-1]
    names = [plain(one["chip"]) for one in rows]
    traces = [
        {
            "type": "bar", "orientation": "h", "y": names,
            "x": [one["tokens_per_usd"] / 1e6 for one in rows],
            "text": [
                f"{significant(one['tokens_per_usd'] / 1e6)} M: {one['chips']:,} chips, "
                f"${significant(one['usd_per_hour'])}/h"
                for one in rows
            ],
            "textposition": "auto", "marker": {"color": BLUE}, "hoverinfo": "text",
            "hovertext": [plain(one["words"]) for one in rows],
        }
    ]  # fmt: skip
    layout = {
        "height": 110 + 32 * len(rows),
        "xaxis": {"title": {"text": "million tokens per dollar, at the mean rate"},
                  "rangemode": "tozero"},
        "yaxis": named(names),
    }  # fmt: skip
    return "Tokens per dollar by chip", {"data": traces, "layout": layout}
