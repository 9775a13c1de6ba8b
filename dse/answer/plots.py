"""Colours, marks, traces and axes that the pictures of several questions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.numbers import label

Json = dict[str, Any]
# Okabe and Ito's palette, without black and grey (they vanish on a dark page).
BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#F0E442",
)
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, YELLOW)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "x")


def plain(text: str) -> str:
    """`text` as plotly prints it literally: its labels read a subset of HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def hatch(shape: str | list[str]) -> dict[str, Any]:
    """A bar's pattern, white on its colour, faint enough for text over it."""
    faint = {"fgcolor": "#fff", "fgopacity": 0.45, "size": 7, "solidity": 0.18}
    return {"shape": shape, "fillmode": "overlay", **faint}


def scaled(metric: str, values: Sequence[float | None]) -> list[float | None]:
    """Values in SI in the unit of the metric's axis."""
    scale = label(metric).scale
    return [None if value is None else value * scale for value in values]


def decades(values: Sequence[float | None]) -> Json:
    """A logarithmic axis with a label at each digit where there is room, else at 1, 2 and 5, or at
    powers of ten; a linear one where few digits would lie between the ends."""
    known = [value for value in values if value]
    span = max(known) / min(known) if known else 1.0
    if span < 3.0:
        return {"tickformat": "~g"}
    return {
        "type": "log",
        "tickformat": "~g",
        "dtick": "D1" if span < 8.0 else "D2" if span < 1e4 else 1,
    }


def names_axis(names: Sequence[str]) -> Json:
    """An upright axis of names, the last on top."""
    return {
        "type": "category",
        "categoryarray": list(names),
        "categoryorder": "array",
        "automargin": True,
    }


def marks(k: int, name: str, x: Sequence[Any], y: Sequence[Any], hover: Sequence[str] = ()) -> Json:
    """Marks of the `k`th colour and symbol, with a text to show over each."""
    texts = {"hoverinfo": "text", "hovertext": [plain(text) for text in hover]} if hover else {}
    marker = {
        "color": PALETTE[k % len(PALETTE)],
        "size": 12,
        "symbol": SYMBOLS[k % len(SYMBOLS)],
    }
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "x": list(x),
        "y": list(y),
        "marker": marker,
        **texts,
    }


def line(k: int, name: str, x: Sequence[Any], y: Sequence[Any], dash: str = "solid") -> Json:
    """A line of the `k`th colour."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": PALETTE[k % len(PALETTE)], "width": 2, "dash": dash},
    }


def bars(name: str, values: Sequence[float | None], names: Sequence[str], colour: str) -> Json:
    """Bars to the right, one for each name."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": plain(name),
        "x": list(values),
        "y": list(names),
        "marker": {"color": colour},
    }


def upright(x: float) -> Json:
    """A dashed line across the picture at `x`."""
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "layer": "below",
        "line": {"color": "grid", "width": 2, "dash": "dash"},
    }
