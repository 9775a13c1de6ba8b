"""A scatter in characters, for terminals."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.answer import Figure
from dse.answer.numbers import significant

SIGNS = ("•", "+", "×", "○", "▪", "△", "*", "~")
PUBLISHED = "◆"
HEIGHT = 14
Json = Mapping[str, Any]


def drawable(figure: Figure) -> bool:
    """Whether both axes of a figure say their range."""
    layout = figure.plotly["layout"]
    return all("range" in layout.get(name, ()) for name in ("xaxis", "yaxis"))


def scatter_text(figure: Figure, width: int, height: int = HEIGHT) -> str:
    """The marks of a figure whose axes say their range: later traces lie over earlier ones, and
    those with texts are their texts. Within `width` columns."""
    from html import unescape  # noqa: PLC0415 - 6 ms, for what has a picture

    layout, traces = figure.plotly["layout"], figure.plotly["data"]
    across, up = layout["xaxis"], layout["yaxis"]
    ends = [f"{_end(up, k):>{_margin(up)}}" for k in (1, 0)]
    columns = width - _margin(up) - 2
    cells = [[" "] * columns for _ in range(height)]
    legend = []
    for trace, sign in zip(traces, _signs(traces), strict=True):
        if "text" not in trace:
            legend.append(f"{sign} {unescape(trace['name'])}")
        for k, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
            h, v = _share(across, x), _share(up, y)
            if h is None or v is None:
                continue
            at, line = round(h * (columns - 1)), round((1.0 - v) * (height - 1))
            for i, one in enumerate(trace["text"][k] if "text" in trace else sign):
                cells[line][min(at + i, columns - 1)] = one
    blank = " " * _margin(up)
    heads = [ends[0], *[blank] * (height - 2), ends[1]]
    left, right = (_end(across, k) for k in (0, 1))
    title, between = unescape(across["title"]["text"]), columns - len(left) - len(right)
    fits = len(title) + 4 <= between
    legend[-1] += "; numbers are the decisions"
    words = ["   ".join(legend)] if fits else [title, "   ".join(legend)]
    return "\n".join(
        [
            *_lines(unescape(up["title"]["text"]), blank, columns),
            *(f"{head} │{''.join(row)}".rstrip() for head, row in zip(heads, cells, strict=True)),
            f"{blank} └{'─' * columns}",
            f"{blank}  {left}{title if fits else '':^{between}}{right}",
            *(line for text in words for line in _lines(text, blank, columns)),
        ]
    )


def _lines(text: str, blank: str, columns: int) -> list[str]:
    return [f"{blank}  {line}" for line in textwrap.wrap(text, columns)]


def _signs(traces: Sequence[Json]) -> list[str]:
    """Of each trace; diamonds are published models."""
    free = iter(SIGNS * len(traces))
    diamonds = (str(trace["marker"]["symbol"]).startswith("diamond-tall") for trace in traces)
    return [PUBLISHED if diamond else next(free) for diamond in diamonds]


def _share(axis: Json, value: float | None) -> float | None:
    """Where a value lies on an axis, 0 to 1; None beyond its ends."""
    log = axis.get("type") == "log"
    if value is None or (log and value <= 0.0):
        return None
    low, high = axis["range"]
    at = ((math.log10(value) if log else value) - low) / (high - low)
    return at if 0.0 <= at <= 1.0 else None


def _end(axis: Json, k: int) -> str:
    value = axis["range"][k]
    return significant(10.0**value if axis.get("type") == "log" else value)


def _margin(axis: Json) -> int:
    return max(len(_end(axis, k)) for k in (0, 1))
