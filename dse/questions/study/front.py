"""The front of a study: its picture on the first screen, how sure the first decision is, published
models beside the front, and the columns to look around in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dse.answer.answer import Explorer, Figure, Table
from dse.answer.frames import frame, of_rows
from dse.answer.numbers import axis_title, label, show, significant
from dse.answer.plots import PALETTE, SYMBOLS, VERMILION, plain, scaled
from dse.answer.sentences import listed
from dse.problem.words import (
    DEPLOYMENT_KEY,
    SHAPE_KEY,
    axis_words,
    brief_shape,
    given_name,
    of_pools,
    short_deployment,
    short_shape,
    short_split,
)
from dse.questions.study.points import QUALITY, Json, StudyFolder, span
from dse.schema.metrics import METRICS

MARGIN = 0.07  # of an axis, at either end
WISHED = "all objectives alike"
LIKELY = 0.1  # share of the cases from which on another decision is named
DATA_BYTES = 900_000  # of the front that one page may carry beside plotly.js (1.2 MB)
FRONT_ROWS = 50  # about so many in other formats
PUBLISHED = (
    "Models that anyone can download, by the same law of loss and model of time and price: each "
    "on the deployment of this space that has the least {0} within the limits. Their losses "
    "are predictions from size and training tokens, not results of a benchmark."
)
# Of a longer front the page draws about so many points, and tells so many rows.
DRAWN: dict[str, Any] = {
    "table_rows": 200,
    "printed_rows": 40,
    "drawn_points": 1_500,
    "drawn_lines": 600,
    "palette": PALETTE,
    "symbols": SYMBOLS,
}


# The first screen.


def opening_figure(folder: StudyFolder) -> Figure:
    """The front in two objectives, chips told apart, with the decisions and the published models
    that lie within its range."""
    x, y = folder.axes()
    axes = {m: _axis(folder, m) for m in (x, y)}

    def dots(
        name: str, of: Sequence[Json], texts: Iterable[str], marker: Json, **more: Any
    ) -> Json:
        places = {
            key: scaled(metric, [one["metrics"].get(metric) for one in of])
            for key, metric in (("x", x), ("y", y))
        }
        look = {"type": "scatter", "mode": "markers", "hoverinfo": "text", "marker": marker}
        more |= {"customdata": [one["point"] for one in of if "point" in one]}
        return {**look, "name": plain(name), **places, "hovertext": list(map(plain, texts)), **more}

    systems: dict[str, list[Json]] = {}
    for item in folder.thin(DRAWN["drawn_points"]):
        systems.setdefault(folder.system(item), []).append(item)
    data = []
    for k, (system, items) in enumerate(systems.items()):
        look = {"symbol": SYMBOLS[k % len(SYMBOLS)], "color": PALETTE[k % len(PALETTE)]}
        look |= {"size": 6, "opacity": 0.75}
        data.append(dots(system, items, (f"point {item['point']}" for item in items), look))
    models = [one for one in folder.study.get("landmarks") or () if one["metrics"]]
    inside = [one for one in models if all(_within(axes[m], m, one["metrics"][m]) for m in axes)]
    said = "Each mark is a design that no other beats; numbers are the decisions."
    if inside:
        names = [plain(one["name"]) for one in inside]
        texts = [f"{one['name']}: {_amounts(folder, one['metrics'])}" for one in inside]
        look = {"symbol": "diamond-tall", "size": 10, "color": "ink"}
        data.append(dots("published", inside, texts, look, meta=names))
        by = label(inside[0]["best_in"]).text
        said += f" Diamonds: published models by the same laws, each where its {by} is least."
    marks = [one for one in folder.marks if one.number]
    for some, colour, size in ((marks[1:], "ink", 21), (marks[:1], VERMILION, 27)):
        items = [one.item for one in some]
        texts = [
            f"point {item['point']}: {brief_shape(item)}; {_amounts(folder, item['metrics'])}"
            for item in items
        ]
        look = {"symbol": "circle", "size": size, "color": colour}
        disc = {"mode": "markers+text", "textfont": {"size": 12, "color": "paper"}}
        disc |= {"showlegend": False, "cliponaxis": False, "text": [one.number for one in some]}
        if some:
            data.append(dots("decisions", items, texts, look, **disc))
    if hidden := [label(m).text for m in folder.wanted if m not in (x, y)]:
        said += f" Not drawn: {listed(hidden)}, in which a mark that looks beaten may win."
    layout = {"xaxis": axes[x], "yaxis": axes[y], "meta": "named"}
    return Figure("opening-plot", "", {"data": data, "layout": layout}, said)


def _amounts(folder: StudyFolder, metrics: Json) -> str:
    return ", ".join(f"{label(m).text} {show(m, metrics[m])}" for m in folder.wanted)


def _axis(folder: StudyFolder, metric: str) -> dict[str, Any]:
    """The axis of a metric over the front, logarithmic where the objective is and spans more than
    three to one; `range` in the units of the page."""
    objective = {one["metric"]: one for one in folder.objectives}.get(metric, {})
    known = [item["metrics"].get(metric) for item in folder.items]
    ends = [label(metric).scale * value for value in known if value is not None] or [0.0]
    low, high = min(ends), max(ends)
    look: dict[str, Any] = {
        "title": {"text": plain(axis_title(metric, objective.get("direction")))}
    }
    if objective.get("log") and low > 0.0 and high / low > 3.0:
        low, high = math.log10(low), math.log10(high)
        look |= {"type": "log", "tickformat": "~g", "dtick": 1 if high - low > 2.0 else "D2"}
    wide = MARGIN * (high - low) or MARGIN * abs(high) or 1.0
    return look | {"range": [low - wide, high + wide]}


def _within(axis: Json, metric: str, value: float | None) -> bool:
    if value is None:
        return False
    at = label(metric).scale * value
    if axis.get("type") == "log":
        at = math.log10(at) if at > 0.0 else -math.inf
    return axis["range"][0] <= at <= axis["range"][1]


# How sure the first decision is.


def how_sure(folder: StudyFolder) -> str:
    """How often the first decision is the best one, the 80% intervals of its objectives (without a
    loss, whose errors are common to all designs), and what would change it first; empty where
    nothing was drawn."""
    found = folder.study["decisions"]
    if not folder.drawn:
        return ""
    start, (first, *others) = found["start"], found["families"]
    alike = "each objective counting alike, and " * (len(folder.objectives) > 1)
    of = "" if found["wish"] == WISHED else f" for the wish “{found['wish']}”"
    said = (
        f"With {'' if of else alike}quality, speed and prices varied within their errors, decision "
        f"{first['decision']} or a design near it is the best in {start['probability']:.0%} of "
        f"cases{of}"
    )
    likely = [one for one in others if (one["probability"] or 0.0) >= LIKELY]
    likely.sort(key=lambda one: -one["probability"])
    if likely:
        named = [f"decision {one['decision']} in {one['probability']:.0%}" for one in likely]
        said += f" ({', '.join(named)})"
    if start["kept"] < 0.995:
        said += f", and keeps the limits in {start['kept']:.0%}"
    intervals = folder.start.metrics.get("intervals", {})
    known = [m for m in folder.wanted if m in intervals and label(m).kind != "nats"]
    ends = [f"{label(m).text} {span(m, intervals[m])}" for m in known]
    texts = [f"{said}.", f"In 80% of cases {listed(ends)}." if ends else "", _first_turns(found)]
    return " ".join(filter(None, texts))


def _first_turns(found: Json) -> str:
    """For each objective, how much more it must count for another decision; empty without any."""
    nearest: dict[str, Json] = {}
    for turn in found["turns"]:
        if "factor" in turn:
            nearest.setdefault(turn["objective"], turn)
    said = [
        f"{label(m).text}{'' if k else ' counts'} {significant(turn['factor'], 2)} times"
        f"{'' if k else ' as much'} (then decision {turn['decision']})"
        for k, (m, turn) in enumerate(sorted(nearest.items(), key=lambda one: one[1]["factor"]))
    ]
    return f"Another decision is the best if {listed(said, 'or')}." if said else ""


# Published models beside the front.


def landmark_tables(folder: StudyFolder) -> list[Table]:
    """A row for each published model, the best loss first; nothing without any."""
    known = sorted(folder.study.get("landmarks") or (), key=lambda one: one["loss"])
    if not known:
        return []
    rows = []
    for one in known:
        served = "no deployment of this space can serve it within the limits"
        if one["deployment"] is not None:
            served = short_deployment(one["deployment"], folder.held)
        metrics = one["metrics"] or {QUALITY: one["loss"]}
        rows.append({"name": one["name"], **metrics, "deployed": served})
    others = [m for m in folder.wanted if m != QUALITY]
    note = PUBLISHED.format(label(known[0]["best_in"]).text)
    keys = ("name", QUALITY, *others, "deployed")
    caption = "Published models on the same chips"
    return [of_rows("landmarks", caption, rows, keys, note, on_console=False)]


# The front to look around in.

# Columns of words: key, title, the key of the vocabulary under which the table of other formats
# shows it (empty: it does not), value.
TEXTS: tuple[tuple[str, str, str, Callable[[Json], str]], ...] = (
    ("chip", "chip", "chip", lambda item: of_pools(item["deployment"], "chip")),
    ("weights", "weights", "weight_dtype", lambda i: of_pools(i["deployment"], "weight_dtype")),
    ("kv", "KV cache", "", lambda item: item["deployment"]["kv_dtype"]),
    ("kind", "kind", "", lambda item: "sparse" if item["model"].get("num_experts") else "dense"),
    ("model", "model", "", given_name),
    ("shape", "shape", "shape", lambda item: short_shape(item["model"])),
    ("split", "split", "division", lambda item: short_split(item["deployment"])),
    ("bottleneck", "bound by", "bottleneck", lambda item: item["metrics"]["bottleneck"]),
)
# Choices as numbers. All but the first stand on the parallel axes alone: elsewhere `shape` and
# `split` say them.
NUMBERS = (
    *("concurrency", "num_hidden_layers", "hidden_size", "num_experts"),
    *("replicas", "tensor_parallel", "expert_parallel", "scale_up_domain"),
)
PARALLEL = (
    *("chip", "kind", "num_hidden_layers", "hidden_size", "num_experts", "total_parameters"),
    *("active_parameters", "weights", "kv", "chips", "replicas", "tensor_parallel"),
    *("expert_parallel", "scale_up_domain", "concurrency"),
)
NOT_PLOTTED = ("memory_capacity_bytes_per_chip",)


def explorer(folder: StudyFolder) -> Explorer:
    """About FRONT_ROWS points as a table, evenly along the front, and its columns for the page's
    script."""
    total = len(folder.items)
    shown = folder.thin(min(FRONT_ROWS, total))
    note = "All of it is in front.csv too."
    if total > FRONT_ROWS:
        note = f"{len(shown)} of {total:,} points, evenly along the front; front.csv has all."
    columns: dict[str, Any] = {"point": [item["point"] for item in shown]}
    columns |= {key: [of(item) for item in shown] for _, _, key, of in TEXTS if key}
    columns |= {m: [item["metrics"][m] for item in shown] for m in folder.wanted}
    keys = f"Shape: {SHAPE_KEY}. Split: {DEPLOYMENT_KEY}; degrees of 1 are left out."
    table = frame("front", "The front", columns, note, keys, on_console=False)
    return Explorer(table, front_data(folder))


def front_data(folder: StudyFolder) -> dict[str, Any]:
    """The front in columns, in display units, for the page's script.

    Text and repeated numbers are stored as codes into `levels`. A front too long for DATA_BYTES
    is thinned evenly along its order, chosen points kept; `rows` and `total` say so.
    """
    count = len(folder.items)
    while True:
        data = _columns(folder, folder.thin(count))
        size = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        if size <= DATA_BYTES or count == 1:
            return data
        count = max(1, min(count - 1, int(0.95 * count * DATA_BYTES / size)))


def _columns(folder: StudyFolder, items: Sequence[Json]) -> dict[str, Any]:
    names = {one.item["point"]: one.named for one in folder.marks}
    objectives = {o["metric"]: o for o in folder.objectives}
    decisions = [str(item.get("decision", "")) for item in items]
    texts = [("names", "chosen as", [names.get(item["point"], "") for item in items])]
    texts += [(key, title, [of(item) for item in items]) for key, title, _, of in TEXTS]
    columns = [{"key": key, "label": title, **_coded(values)} for key, title, values in texts]
    decided = _coded(decisions, sorted(set(decisions)))
    columns.insert(1, {"key": "decision", "label": "decision", **decided})
    for key in NUMBERS:
        values = [item["model"].get(key, item["deployment"].get(key)) for item in items]
        if any(value is not None for value in values):
            said = {"label": axis_words(key), "axis": axis_words(key)}
            columns.append(_number(key, values) | said | {"axes_only": key != "concurrency"})
    for metric in dict.fromkeys((*objectives, *METRICS, "overtraining_ratio")):
        values = [item["metrics"].get(metric) for item in items]
        known = any(isinstance(value, int | float) for value in values)
        if metric not in NOT_PLOTTED and (known or metric in objectives):
            own = objectives.get(metric, {})
            axis = axis_title(metric, own.get("direction"))
            columns.append(_number(metric, values) | {"axis": axis, "log": own.get("log", False)})
    columns = [column for column in columns if column.get("levels") != [""]]
    by_key = {column["key"]: column for column in columns}
    x, y = folder.axes()
    parallel = [key for key in dict.fromkeys((*PARALLEL, *objectives)) if key in by_key]
    return {
        "total": len(folder.items),
        "rows": len(items),
        "point": [item["point"] for item in items],
        "columns": columns,
        "objectives": list(objectives),
        "parallel": [key for key in parallel if _differs(by_key[key])],
        "x": x,
        "y": y,
        "study": folder.name,
        **DRAWN,
    }


def _differs(column: dict[str, Any]) -> bool:
    return len(set(column.get("levels") or column["values"]) - {None}) > 1


def _number(metric: str, values: Sequence[float | None]) -> dict[str, Any]:
    known = label(metric)
    digits = 5 if known.kind == "nats" else 4
    shown: list[float | None] = []
    for value in values:
        rounded = None if value is None else float(f"{value * known.scale:.{digits}g}")
        whole = rounded is not None and rounded.is_integer() and abs(rounded) < 1e15
        shown.append(int(rounded) if rounded is not None and whole else rounded)
    title = axis_title(metric)
    column: dict[str, Any] = {"key": metric, "label": title, "axis": title, "number": True}
    return column | (_coded(shown) if 2 * len(set(shown)) < len(shown) else {"values": shown})


def _coded(values: Sequence[Any], levels: Sequence[Any] | None = None) -> dict[str, Any]:
    """The values by their levels, which come in this order, or as they are met."""
    codes = {level: code for code, level in enumerate(levels or dict.fromkeys(values))}
    return {"levels": list(codes), "codes": [codes[value] for value in values]}
