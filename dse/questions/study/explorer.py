"""The front to look around in: columns for the page's script, and a table for other formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dse.answer.answer import Column, Explorer, Table
from dse.answer.labels import axis_title, label
from dse.answer.plots import PALETTE, SYMBOLS
from dse.problem.words import (
    DEPLOYMENT_KEY,
    SHAPE_KEY,
    axis_words,
    given_name,
    in_weights,
    on_chip,
    short_shape,
    short_split,
)
from dse.questions.study.chosen import Json, StudyFolder
from dse.schema.metrics import METRICS

# Text of the front that one page may carry beside plotly.js (1.2 MB).
DATA_BYTES = 900_000
FRONT_ROWS = 50  # about so many in other formats
# Columns of words: key, title, value.
TEXTS: tuple[tuple[str, str, Callable[[Json], str]], ...] = (
    ("chip", "chip", lambda item: on_chip(item["deployment"])),
    ("weights", "weights", lambda item: in_weights(item["deployment"])),
    ("kv", "KV cache", lambda item: item["deployment"]["kv_dtype"]),
    ("kind", "kind", lambda item: "sparse" if item["model"].get("num_experts") else "dense"),
    ("model", "model", given_name),
    ("shape", "shape", lambda item: short_shape(item["model"])),
    ("split", "split", lambda item: short_split(item["deployment"])),
    ("bottleneck", "bound by", lambda item: item["metrics"]["bottleneck"]),
)
# Choices as numbers. All but the first stand on the parallel axes alone: elsewhere `shape` and
# `split` say them.
NUMBERS = (
    "concurrency",
    "num_hidden_layers",
    "hidden_size",
    "num_experts",
    "replicas",
    "tensor_parallel",
    "expert_parallel",
    "scale_up_domain",
)
PARALLEL = (
    "chip",
    "kind",
    "num_hidden_layers",
    "hidden_size",
    "num_experts",
    "total_parameters",
    "active_parameters",
    "weights",
    "kv",
    "chips",
    "replicas",
    "tensor_parallel",
    "expert_parallel",
    "scale_up_domain",
    "concurrency",
)
# Of a longer front the page draws about so many points, and tells so many rows.
DRAWN = {
    "table_rows": 200,
    "printed_rows": 40,
    "drawn_points": 1_500,
    "drawn_lines": 600,
    "palette": PALETTE,
    "symbols": SYMBOLS,
}
NOT_PLOTTED = ("memory_capacity_bytes_per_chip",)


def explorer(folder: StudyFolder) -> Explorer:
    return Explorer(front_table(folder, FRONT_ROWS), front_data(folder))


def front_table(folder: StudyFolder, most: int) -> Table:
    """About `most` points, evenly along the front, with their shape and deployment."""
    total = len(folder.items)
    shown = thin(folder, min(most, total))
    note = (
        f"{len(shown)} of {total:,} points, evenly along the front; front.csv has all."
        if total > most
        else "All of it is in front.csv too."
    )
    texts = [
        Column(key, title, of=of)
        for key, title, of in TEXTS
        if key in ("chip", "split", "weights", "shape", "bottleneck")
    ]
    metrics = [
        Column(metric, label(metric).text, metric, of=lambda item, m=metric: item["metrics"][m])
        for metric in folder.wanted
    ]
    return Table.of(
        "front",
        "The front",
        shown,
        (Column("point", "point", right=True), *texts[:-1], *metrics, texts[-1]),
        notes=(note, f"Shape: {SHAPE_KEY}. Split: {DEPLOYMENT_KEY}; degrees of 1 are left out."),
        on_console=False,
    )


def front_data(folder: StudyFolder, data_bytes: int = DATA_BYTES) -> dict[str, Any]:
    """The front in columns, in display units, for the page's script.

    Text and repeated numbers are stored as codes into `levels`. A front too long for `data_bytes`
    is thinned evenly along its order, chosen points kept; `rows` and `total` say so.
    """
    count = len(folder.items)
    while True:
        data = _columns(folder, thin(folder, count))
        size = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        if size <= data_bytes or count == 1:
            return data
        count = max(1, min(count - 1, int(0.95 * count * data_bytes / size)))


def thin(folder: StudyFolder, count: int) -> list[Json]:
    """About `count` items, evenly spaced in the front's order; chosen points always stay."""
    step = max(1.0, len(folder.items) / count)
    keep = {int(i * step) for i in range(count)}
    points = {chosen.item["point"] for chosen in folder.chosen}
    return [item for i, item in enumerate(folder.items) if i in keep or item["point"] in points]


def _columns(folder: StudyFolder, items: Sequence[Json]) -> dict[str, Any]:
    names = {chosen.item["point"]: chosen.label for chosen in folder.chosen}
    objectives = {o["metric"]: o for o in folder.objectives}
    columns = [_text("names", "chosen as", [names.get(item["point"], "") for item in items])]
    of_decision = [str(item.get("decision", "")) for item in items]
    columns.append(_text("decision", "decision", of_decision, sorted(set(of_decision))))
    columns += [_text(key, title, [of(item) for item in items]) for key, title, of in TEXTS]
    for key in NUMBERS:
        values = [item["model"].get(key, item["deployment"].get(key)) for item in items]
        if any(value is not None for value in values):
            named = {"label": axis_words(key), "axis": axis_words(key)}
            columns.append(_number(key, values) | named | {"axes_only": key != "concurrency"})
    for metric in dict.fromkeys((*objectives, *METRICS, "overtraining_ratio")):
        values = [item["metrics"].get(metric) for item in items]
        known = any(isinstance(value, int | float) for value in values)
        if metric not in NOT_PLOTTED and (known or metric in objectives):
            own = objectives.get(metric, {})
            axis = axis_title(metric, own.get("direction"))
            columns.append(_number(metric, values) | {"axis": axis, "log": own.get("log", False)})
    columns = [column for column in columns if column.get("levels") != [""]]
    by_key = {column["key"]: column for column in columns}
    listed = dict.fromkeys((*PARALLEL, *objectives))
    x, y = folder.axes()
    if x == y:  # one objective: against the first other number
        y = next(c["key"] for c in columns if c.get("number") and c["key"] != x)
    return {
        "total": len(folder.items),
        "rows": len(items),
        "point": [item["point"] for item in items],
        "columns": columns,
        "objectives": list(objectives),
        "parallel": [key for key in listed if key in by_key and _differs(by_key[key])],
        "x": x,
        "y": y,
        "study": folder.name,
        **DRAWN,
    }


def _differs(column: dict[str, Any]) -> bool:
    return len(set(column.get("levels") or column["values"]) - {None}) > 1


def _text(
    key: str, text: str, values: list[str], levels: Sequence[str] | None = None
) -> dict[str, Any]:
    return {"key": key, "label": text, **_coded(values, levels)}


def _number(metric: str, values: Sequence[float | None]) -> dict[str, Any]:
    known = label(metric)
    digits = 5 if known.kind == "nats" else 4
    shown = [None if v is None else _short(v * known.scale, digits) for v in values]
    title = axis_title(metric)
    column: dict[str, Any] = {"key": metric, "label": title, "axis": title, "number": True}
    return column | (_coded(shown) if 2 * len(set(shown)) < len(shown) else {"values": shown})


def _coded(values: Sequence[Any], levels: Sequence[Any] | None = None) -> dict[str, Any]:
    """The values by their levels, which come in this order, or as they are met."""
    codes = {level: code for code, level in enumerate(levels or dict.fromkeys(values))}
    return {"levels": list(codes), "codes": [codes[value] for value in values]}


def _short(value: float, digits: int) -> float | int:
    """`value` with `digits` significant digits; an integer where it is one."""
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
