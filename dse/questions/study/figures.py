"""Plotly figures of the chosen points, as plain dictionaries of plotly's schema.

Fonts, grid and background come from the page's own style, so that dark and light agree.
"""

from __future__ import annotations

from typing import Any

from dse.answer.answer import Figure
from dse.answer.labels import BOUND_NAMES
from dse.answer.numbers import bytes_, time
from dse.answer.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW, hatch, plain
from dse.questions.study.folder import Json, StudyFolder

BOUND_COLOURS = {"compute": ORANGE, "memory": BLUE, "network": GREEN, "fixed": PURPLE}
PART_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW)
# Hatching beside colour, for readers who tell colours badly and for grey paper.
BOUND_HATCHES = {"compute": "", "memory": "/", "network": "x", "fixed": "."}
PART_HATCHES = ("", "/", "x", ".", "-", "\\", "|")
ROW_PX, FRAME_PX = 58, 130


def time_figures(folder: StudyFolder) -> list[Figure]:
    """Prefill and decode of the chosen points by operator; their scales differ."""
    return [
        Figure(
            "time-prefill",
            "Prefill: reading one prompt",
            time_figure(folder, "prefill_s"),
            "Prefill time by operator, a bar for each point.",
        ),
        Figure(
            "time-decode",
            "Decode: one step of the batch",
            time_figure(folder, "decode_s"),
            "Decode time by operator, a bar for each point.",
        ),
    ]


def time_figure(folder: StudyFolder, key: str) -> dict[str, Any]:
    """One bar a chosen point, one segment an operator, coloured by what bounds it (ms)."""
    operators = list(
        dict.fromkeys(r["operator"] for c in folder.chosen for r in c.detail["breakdown"])
    )
    present = {_bound(r, key) for c in folder.chosen for r in c.detail["breakdown"] if r[key]}
    traces: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "x": [None], "y": [_rows(folder)[0]],
            "name": BOUND_NAMES[bound], "legendgroup": bound,
            "marker": {"color": colour, "pattern": hatch(BOUND_HATCHES[bound])},
            "hoverinfo": "skip",
        }
        for bound, colour in BOUND_COLOURS.items()
        if bound in present
    ]  # fmt: skip
    for operator in operators:
        found = [
            (label, row)
            for label, chosen in zip(_rows(folder), folder.chosen, strict=True)
            for row in chosen.detail["breakdown"]
            if row["operator"] == operator and row[key]
        ]
        if not found:
            continue
        traces.append(
            {
                "type": "bar", "orientation": "h", "showlegend": False,
                "x": [1e3 * row[key] for _, row in found],
                "y": [label for label, _ in found],
                "text": [plain(operator)] * len(found),
                "textposition": "inside", "insidetextanchor": "middle", "textangle": 0,
                "constraintext": "none", "cliponaxis": True,
                "name": plain(operator),
                "marker": {
                    "color": [BOUND_COLOURS[_bound(row, key)] for _, row in found],
                    "pattern": hatch([BOUND_HATCHES[_bound(row, key)] for _, row in found]),
                },
                "hoverinfo": "text",
                "hovertext": [
                    plain(
                        f"{operator}: {time(row[key])}, bound by "
                        f"{BOUND_NAMES[_bound(row, key)]}, efficiency {row['efficiency']}"
                    )
                    for _, row in found
                ],
            }
        )  # fmt: skip
    title = "prefill of one prompt (ms)" if key == "prefill_s" else "decode step (ms)"
    return {"data": traces, "layout": {**_bars(folder, title), "meta": "fit"}}


def memory_figure(folder: StudyFolder) -> Figure:
    """One bar a chosen point, one segment a part of memory, a line at the chip's capacity (GB)."""
    parts = list(dict.fromkeys(r["part"] for c in folder.chosen for r in c.detail["memory"]))
    labels = _rows(folder)
    traces: list[dict[str, Any]] = []
    for k, part in enumerate(parts):
        sizes = [
            next((row["bytes"] for row in c.detail["memory"] if row["part"] == part), 0.0)
            for c in folder.chosen
        ]
        name = plain(part.replace("_", " ").replace("kv", "KV"))
        traces.append(
            {
                "type": "bar", "orientation": "h", "x": [1e-9 * size for size in sizes],
                "y": labels, "name": name,
                "marker": {
                    "color": PART_COLOURS[k % len(PART_COLOURS)],
                    "pattern": hatch(PART_HATCHES[k % len(PART_HATCHES)]),
                },
                "hoverinfo": "text",
                "hovertext": [f"{name}: {bytes_(size) if size else '0'}" for size in sizes],
            }
        )  # fmt: skip
    capacities = [chosen.detail["capacity_bytes"] for chosen in folder.chosen]
    traces.append(
        {
            "type": "scatter", "mode": "markers", "x": [1e-9 * size for size in capacities],
            "y": labels, "name": "capacity of the chip",
            "marker": {"symbol": "line-ns-open", "size": 34, "color": "ink", "line": {"width": 4}},
            "hoverinfo": "text",
            "hovertext": [f"capacity: {bytes_(size)}" for size in capacities],
        }
    )  # fmt: skip
    drawn = {"data": traces, "layout": _bars(folder, "memory of one chip (GB)")}
    return Figure("memory-plot", "", drawn, "Memory by part, a bar for each point.")


def floor_figure(folder: StudyFolder) -> Figure:
    """Floor and prediction of the decode step with its 80% interval (ms)."""
    labels = _rows(folder)
    floors = [1e3 * chosen.detail["floor_s"] for chosen in folder.chosen]
    predicted = [1e3 * chosen.detail["decode_step_s"] for chosen in folder.chosen]
    intervals = [
        [1e3 * end for end in chosen.step_interval or ()] or [middle, middle]
        for chosen, middle in zip(folder.chosen, predicted, strict=True)
    ]
    gaps = [
        {
            "type": "scatter", "mode": "lines", "x": [low, high], "y": [name, name],
            "line": {"color": "grid", "width": 6}, "opacity": 0.4,
            "hoverinfo": "skip", "showlegend": False,
        }
        for name, low, high in zip(labels, floors, predicted, strict=True)
    ]  # fmt: skip
    drawn = {
        "data": [
            *gaps,
            {
                "type": "scatter", "mode": "markers", "x": floors, "y": labels, "name": "floor",
                "marker": {"symbol": "line-ns-open", "size": 22, "color": BLUE,
                           "line": {"width": 4}},
                "hoverinfo": "text", "hovertext": [f"floor: {time(x / 1e3)}" for x in floors],
            },
            {
                "type": "scatter", "mode": "markers", "x": predicted, "y": labels,
                "name": "prediction, 80% interval",
                "marker": {"symbol": "circle", "size": 12, "color": VERMILION},
                "error_x": {
                    "type": "data", "symmetric": False, "color": VERMILION, "width": 8,
                    "array": [i[1] - x for i, x in zip(intervals, predicted, strict=True)],
                    "arrayminus": [x - i[0] for i, x in zip(intervals, predicted, strict=True)],
                },
                "hoverinfo": "text",
                "hovertext": [
                    f"prediction: {time(x / 1e3)}<br>80% interval {time(i[0] / 1e3)} to "
                    f"{time(i[1] / 1e3)}"
                    for i, x in zip(intervals, predicted, strict=True)
                ],
            },
        ],
        "layout": _bars(folder, "decode step (ms)"),
    }  # fmt: skip
    shows = "Floor and prediction of the decode step, with its 80% interval."
    return Figure("floor-plot", "", drawn, shows)


def _bound(row: Json, key: str) -> str:
    """What bounds an operator in the phase of `key`; one `bound` may stand for both phases."""
    return row.get("prefill_bound", row["bound"]) if key == "prefill_s" else row["bound"]


def _rows(folder: StudyFolder) -> list[str]:
    """One label a chosen point, its names on lines of their own."""
    return ["<br>".join(plain(name) for name in chosen.labels) for chosen in folder.chosen]


def _bars(folder: StudyFolder, title: str) -> dict[str, Any]:
    labels = _rows(folder)
    return {
        "barmode": "stack",
        "height": FRAME_PX + ROW_PX * len(labels),
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": {
            "type": "category", "categoryorder": "array", "categoryarray": labels[::-1],
            "automargin": True, "range": [-0.6, len(labels) - 0.4],
        },
    }  # fmt: skip
