"""Colours, marks and labels of pictures, which a plotly dictionary and the page's scripts share."""

from __future__ import annotations

from typing import Any

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
