"""Frames: what a question computes, as named and typed columns, shown in every format.

A frame is a table whose columns are NumPy arrays of one length under keys of the vocabulary
(`dse.vocabulary`), which has their titles, kinds and meanings. The JSON document, the CSV file, the
sheet, the tables of the terminal and the page, and the pictures show the same frame.

    sizes = frame("sizes", "One instance by its size", {"chips": chips, "tpot_s": times})
    Answer(..., blocks=(sizes,), document=document({"model": name}, (sizes,)), data=(sizes,))

`shown` are the columns of the terminal and the page, where not all are; the data has all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dse.answer.answer import Column, Figure, Table
from dse.answer.numbers import axis_title, kind_of, label, share, show
from dse.answer.plots import (
    PALETTE,
    Json,
    bars,
    decades,
    hatch,
    line,
    marks,
    names_axis,
    plain,
    scaled,
    upright,
)
from dse.vocabulary import quantity


def column(key: str, **more: Any) -> Column:
    """The column of a key of the vocabulary; one of words has no kind."""
    row = quantity(key)
    return Column(key, row.short, key if kind_of(key) else "", explain=row.meaning, **more)


def frame(
    name: str,
    caption: str,
    columns: Mapping[str, Any],
    *notes: str,
    shown: Sequence[str] = (),
    first: Sequence[str] = (),
    on_console: bool = True,
) -> Table:
    """`columns` by key: arrays or lists (n,), or one value for all rows. A number that does not
    apply is NaN, a word None. `first` are those beside the picture of the first screen. Raises
    KeyError for a key that the vocabulary lacks, ValueError for columns of two lengths."""
    lists = {key: _cells(values) for key, values in columns.items()}
    n = max((len(cells) for cells in lists.values() if isinstance(cells, list)), default=1)
    lists = {k: cells if isinstance(cells, list) else [cells] * n for k, cells in lists.items()}
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    made = [column(key, first=key in first) for key in lists]
    return Table(name, caption, made, rows, notes, on_console, shown=tuple(shown))


def of_rows(
    name: str,
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    keys: str | Sequence[str],
    *notes: str,
    **more: Any,
) -> Table:
    """The frame of rows of a document, `more` as `frame` takes it. `keys` are a text with spaces
    between, or a sequence, of which a key is left out where no row has a value; each `key=place`
    where a row has the value under another name."""
    columns: dict[str, list[Any]] = {}
    needed = isinstance(keys, str)
    for word in keys.split() if isinstance(keys, str) else keys:
        key, _, place = word.partition("=")
        cells = [row[place or key] if needed else row.get(place or key) for row in rows]
        if needed or any(cell is not None for cell in cells):
            columns[key] = cells
    return frame(name, caption, columns, *notes, **more)


def _cells(values: Any) -> Any:
    """Python's own values of an array or a list, None for NaN; of one value that value."""
    values = _listed(values)
    if not isinstance(values, list | tuple | range):
        return values
    return [None if isinstance(v, float) and math.isnan(v) else v for v in values]


def _listed(values: Any) -> Any:
    """Python's own values of an array; anything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows that have the same keys."""
    return {key: [row[key] for row in rows] for key in rows[0]} if rows else {}


def stacked(by: str, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Any]]:
    """Columns of several subjects under each other, under `by` the subject of each row; NaN where
    one has no such column."""
    keys = dict.fromkeys(key for _, part in parts for key in part)
    columns: dict[str, list[Any]] = {by: [], **{key: [] for key in keys}}
    for subject, part in parts:
        n = len(next(iter(part.values()), ()))
        columns[by] += [subject] * n
        for key in keys:
            columns[key] += _listed(part.get(key, [math.nan] * n))
    return columns


def across(
    name: str,
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    down: str,
    by: str,
    cell: Callable[[Mapping[str, Any]], str],
    *notes: str,
) -> Table:
    """Rows of a frame side by side: a row for each value of the key `down`, a column for each of
    `by`, in the order of their first use; `cell` gives the text of a row."""
    subjects = list(dict.fromkeys(row[by] for row in rows))
    texts = {(row[down], row[by]): cell(row) for row in rows}
    made = [
        {down: what, **{subject: texts.get((what, subject)) for subject in subjects}}
        for what in dict.fromkeys(row[down] for row in rows)
    ]
    columns = [column(down), *(Column(subject, subject) for subject in subjects)]
    return Table(name, caption, columns, made, notes)


def document(facts: Mapping[str, Any], frames: Sequence[Table]) -> dict[str, Any]:
    """The JSON document of an answer: its facts, then the rows of each frame under its name."""
    return {**facts, **{one.name: [dict(row) for row in one.rows] for one in frames}}


def lines(
    name: str,
    title: str,
    table: Table,
    x: str,
    y: str,
    by: str,
    shows: str,
    *,
    at: Sequence[float] = (),
    hover: Sequence[str] = (),
    interval: bool = False,
    joined: bool = True,
    across: str = "",
) -> Figure:
    """A picture of `y` over `x`, marks for each value of `by`, `joined` by a line; dashed across
    `at`. Over a mark stand its values of `hover`, with `interval` its line has a band from `y.low`
    to `y.high`. Both axes are logarithmic; with a title `across`, `x` is linear."""
    rows: list[Mapping[str, Any]]
    rows = [row for row in table.rows if row[y] is not None and row[x] is not None]
    traces: list[Json] = []
    for k, key in enumerate(dict.fromkeys(row[by] for row in rows)):
        mine = [row for row in rows if row[by] == key]
        xs = scaled(x, [row[x] for row in mine])
        if interval:
            low, high = (scaled(y, [row[f"{y}.{end}"] for row in mine]) for end in ("low", "high"))
            traces.append(band(xs, low, high))
        texts = ["; ".join(_said(one, row) for one in (x, y, *hover)) for row in mine]
        ys = scaled(y, [row[y] for row in mine])
        made = marks(k, str(key), xs, ys, texts)
        if k and not joined:  # so that marks of the first do not vanish behind them
            made["marker"]["symbol"] += "-open"
        drawn = line(k, str(key), xs, ys)["line"]
        drawn_as = {"mode": "lines+markers", "line": drawn} if joined else {}
        traces.append({**made, **drawn_as})
    drawn_y = [value for trace in traces for value in trace["y"]]
    known = [value for trace in traces for value in trace["x"]]
    upright_x = {} if across else powers(known) if kind_of(x) == "count" else decades(known)
    layout = {
        "xaxis": {"title": {"text": plain(across or axis_title(x))}, **upright_x},
        "yaxis": {"title": {"text": plain(axis_title(y))}, **decades(drawn_y)},
        "hovermode": "closest",
        "shapes": [upright(end) for end in at],
    }
    return Figure(name, title, {"data": traces, "layout": layout}, shows)


def bar_chart(
    name: str,
    title: str,
    rows: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    across: str,
    shows: str,
) -> Figure:
    """Bars to the right, a group for each of the named `rows`, the first on top: `series` are their
    values by name, in the unit of the title `across`."""
    names = [plain(row) for row in rows][::-1]
    shapes = ("", "/", "x", "-", "+", ".")
    traces = []
    for k, (one, values) in enumerate(series.items()):
        trace = bars(one, values[::-1], names, PALETTE[k % len(PALETTE)])
        trace["marker"]["pattern"] = hatch(shapes[k % len(shapes)])
        traces.append(trace | {"hoverinfo": "x+name"})
    layout = {
        "height": 100 + (14 + 20 * len(series)) * max(len(names), 1),
        "barmode": "group",
        "xaxis": {"title": {"text": plain(across)}, "zeroline": True},
        "yaxis": names_axis(names),
    }
    return Figure(name, title, {"data": traces, "layout": layout}, shows)


def _said(key: str, row: Mapping[str, Any]) -> str:
    value = row[key]
    words = value if isinstance(value, str) or value is None else show(key, value)
    return f"{label(key).short}: {words or '–'}"


def band(x: Sequence[Any], low: Sequence[Any], high: Sequence[Any]) -> Json:
    """The area of an 80% interval."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *x[::-1]],
        "y": [*low, *high[::-1]],
        "fill": "toself",
        "fillcolor": "rgba(86, 180, 233, 0.22)",
        "line": {"width": 0},
        "name": "80% interval",
        "hoverinfo": "skip",
    }


def powers(values: Sequence[float]) -> Json:
    """A logarithmic axis that names powers of two."""
    ticks = [2**k for k in range(int(max(values, default=1.0)).bit_length() + 1)]
    return {"type": "log", "tickvals": ticks, "ticktext": [str(tick) for tick in ticks]}


def stacked_bars(
    name: str,
    title: str,
    series: Mapping[str, Sequence[float]],
    up: str,
    shows: str,
    *,
    at: Sequence[str] = (),
    line: tuple[str, Sequence[float]] | None = None,
) -> Figure:
    """Upright bars, one a quarter or at each of `at`, in which the `series` by name stand on each
    other, in the unit of the title `up`. `line` is one more series beside them."""
    traces: list[Json] = []
    for k, (one, values) in enumerate(series.items()):
        pattern = hatch("/" if one.endswith((", owned", ", bought")) else "")
        marker = {"color": PALETTE[k % len(PALETTE)], "pattern": pattern}
        traces.append({"type": "bar", "name": plain(one), "y": list(values), "marker": marker})
    if line is not None and any(line[1]):
        drawn = {"type": "scatter", "mode": "lines+markers", "line": {"color": "ink"}}
        traces.append({**drawn, "name": plain(line[0]), "y": list(line[1])})
    for trace in traces:
        trace["x"] = list(at) or [f"Q{quarter + 1}" for quarter in range(len(trace["y"]))]
    layout = {
        "height": 250,
        "meta": "small",
        "barmode": "stack",
        "bargap": 0.4,
        "showlegend": True,
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": up}, "rangemode": "tozero", "tickformat": "~s"},
    }
    return Figure(name, title, {"data": traces, "layout": layout}, shows)


# The parts of a whole, for any question.


def share_bars(name: str, title: str, of: str, shares: Mapping[str, float]) -> Figure:
    """A bar for each key of `shares`, the first on top; `of` names the whole."""
    longest = max(shares, key=lambda key: shares[key])
    return Figure(
        name,
        title,
        {
            "data": [
                {
                    "type": "bar",
                    "orientation": "h",
                    "x": list(shares.values())[::-1],
                    "y": [plain(key) for key in shares][::-1],
                }
            ],
            "layout": {
                "xaxis": {"title": {"text": f"share of {of}"}, "tickformat": ".0%"},
                "yaxis": {"automargin": True},
            },
        },
        f"A bar for each part, as a share of {of}. The longest is {longest}, "
        f"{share(shares[longest])}.",
    )


def memory_parts(parts: Mapping[str, float], capacity: float, caption: str, *notes: str) -> Table:
    """Bytes of each part, and their share of a capacity, which is the last row."""
    sizes = [*parts.values(), capacity]
    columns = {
        "part": [*parts, "capacity"],
        "bytes": sizes,
        "capacity_share": [size / capacity for size in sizes],
    }
    return frame("memory", caption, columns, *notes)
