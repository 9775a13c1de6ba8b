"""Colours, marks, traces and axes that the pictures of several questions share, and operators under
the roof of their chip."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.answer.labels import label

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
    """A logarithmic axis with a label at each digit where there is room, else at 1, 2 and 5; a
    linear one where few digits would lie between the ends."""
    known = [value for value in values if value]
    span = max(known) / min(known) if known else 1.0
    if span < 3.0:
        return {"tickformat": "~g"}
    return {"type": "log", "tickformat": "~g", "dtick": "D1" if span < 8.0 else "D2"}


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


# Operators under the roof of their chip (Williams, Waterman and Patterson, Communications of the
# ACM 52, 2009): attainable FLOP/s = min(peak, intensity * bandwidth).

# Phase, the key of its times in a breakdown, its mark.
PHASES = (("prefill", "prefill_s", "circle"), ("decode", "decode_s", "diamond"))


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator in one phase: `intensity` in FLOP per byte, rates in FLOP/s, `share` of the
    phase's time."""

    name: str
    phase: str
    bound: str
    seconds: float
    share: float
    intensity: float
    achieved: float
    attainable: float


def operators_of(detail: Mapping[str, Any]) -> list[Operator]:
    """Every operator that computes, in both phases, of `breakdown` and `hbm_bytes_per_s`; empty
    where these hold no flops."""
    bandwidth = detail.get("hbm_bytes_per_s")
    if not bandwidth:
        return []
    found = []
    for phase, key, _ in PHASES:
        total = sum(row[key] or 0.0 for row in detail["breakdown"])
        for row in detail["breakdown"]:
            flops, moved = row.get(f"{phase}_flops"), row.get(f"{phase}_bytes")
            if not (flops and moved and row[key]):
                continue
            intensity = flops / moved
            bound = row.get("prefill_bound", row["bound"]) if phase == "prefill" else row["bound"]
            found.append(
                Operator(
                    name=row["operator"],
                    phase=phase,
                    bound=bound,
                    seconds=row[key],
                    share=row[key] / total,
                    intensity=intensity,
                    achieved=flops / row[key],
                    attainable=min(row[f"{phase}_peak_flops_per_s"], intensity * bandwidth),
                )
            )
    return found


def layout(low: float, high: float, height: int) -> dict[str, Any]:
    """Of any roofline picture, for intensities from `low` to `high`; `height` in pixels."""
    return {
        "height": height,
        "xaxis": {
            "type": "log",
            "title": {"text": "arithmetic intensity (FLOP per byte)"},
            "dtick": 1,
            "range": [math.log10(low), math.log10(high)],
        },
        "yaxis": {"type": "log", "title": {"text": "TFLOP/s of one chip"}, "dtick": 1},
        "hovermode": "closest",
    }
