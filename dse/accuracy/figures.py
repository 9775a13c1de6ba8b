"""Predicted against measured, a picture for each metric and serving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.accuracy.words import NAMES, unit
from dse.answer.answer import Figure
from dse.answer.palette import PALETTE, SYMBOLS, plain

BAND = 0.2
ENOUGH_ROWS = 100  # fewer rows are better read in a table
DRAWN_ROWS = 1_000  # in a picture, evenly thinned: a page stays below 6 MB


def figures(scores: Sequence[Mapping[str, Any]], predicted: pd.DataFrame) -> list[Figure]:
    """One for each score over ENOUGH_ROWS rows or more; all, where none has so many."""
    overall = [item for item in scores if item["by"] == "all"]
    large = [item for item in overall if item["rows"] >= ENOUGH_ROWS] or overall
    scored = predicted[predicted["status"] == "ok"]
    return [
        _figure(scored, item["metric"], item["serving"])
        for item in sorted(large, key=lambda item: -item["rows"])
    ]


def _figure(scored: pd.DataFrame, metric: str, serving: str) -> Figure:
    rows = scored[(scored["metric"] == metric) & (scored["serving"] == serving)]
    count = len(rows)
    rows = rows.iloc[np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))]
    ends = [float(rows["value"].min()), float(rows["value"].max())]
    lines = (("exact", 0.0, "solid"), ("20% off", BAND, "dot"), ("", -BAND, "dot"))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": ends,
            "y": [end * (1.0 + off) for end in ends],
            "line": {"color": "ink", "width": 1, "dash": dash},
            "name": name,
            "showlegend": bool(name),
            "hoverinfo": "skip",
        }
        for name, off, dash in lines
    ]
    for k, chip in enumerate(rows["chip"].value_counts().index):
        mine = rows[rows["chip"] == chip]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(str(chip)),
                "x": [float(f"{value:.4g}") for value in mine["value"]],
                "y": [float(f"{value:.4g}") for value in mine["predicted"]],
                "text": [plain(f"{model} on {chip}") for model in mine["model"]],
                "marker": {
                    "color": PALETTE[k % len(PALETTE)],
                    "symbol": SYMBOLS[k // len(PALETTE) % len(SYMBOLS)],
                    "size": 6,
                    "opacity": 0.7,
                },
            }
        )
    name = f"{NAMES[metric]} ({serving})"
    layout = {
        "height": 520,
        "xaxis": {"title": {"text": f"measured, {unit(metric)}"}, "type": "log"},
        "yaxis": {"title": {"text": f"predicted, {unit(metric)}"}, "type": "log"},
    }
    return Figure(
        f"{metric}-{serving}",
        f"{name}: predicted against measured",
        {"data": data, "layout": layout},
        f"{count:,} rows, {len(rows):,} of them drawn, a colour for each chip. A prediction is "
        "exact on the line, and within 20% of the measured value between the dotted lines.",
    )
