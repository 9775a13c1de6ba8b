"""The front of a study: its picture on the first screen, the few decisions that it comes to and
what would change them, published models beside it, and the columns to look around in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from dse.answer.answer import Block, Explorer, Figure, Section, Table
from dse.answer.frames import bar_chart, frame, of_rows
from dse.answer.numbers import axis_title, label, percent, show, significant
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
ENDS = ("better than predicted", "worse than predicted")
DATA_BYTES = 900_000  # of the front that one page may carry beside plotly.js (1.2 MB)
FRONT_ROWS = 50  # about so many in other formats
LEAST_IMPORTANCE, MOST_AXES = 0.01, 12
HOW = (
    "A decision stands for the designs of the front that are nearest to it. With quality, speed "
    "and prices varied within their errors {draws} times, the best design was of the decision in "
    "that share of the cases. Wish: {wish}."
)
CHANGED = "error decision given_away"
CAUSES = (
    "Each error alone, at an end of its 80% interval: a price, the speed of a chip, the loss of a "
    "kind of model, and what a decision shares with designs of its kind alone. Given away: what "
    "decision 1 then loses to the best design."
)
PUBLISHED = (
    "Models that anyone can download, by the same law of loss and model of time and price: each "
    "on the deployment of this space that has the least {0} within the limits. Their losses "
    "are predictions from size and training tokens, not results of a benchmark."
)
IMPORTANCE = (
    "By how much the values of a choice in the best tenth of {designs:,} designs differ from its "
    "values in all of them ({method} of Optuna, arXiv:2304.10255). {drawn}"
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
Marked = tuple[str, Json, float | None]  # mark, item of the front, chance to be the best


# The first screen.


def marked(folder: StudyFolder) -> list[Marked]:
    """The decisions of the front; without any, its chosen points."""
    found = folder.study.get("decisions")
    items = {item["point"]: item for item in folder.items}
    if not found:
        return [(str(k), one.item, None) for k, one in enumerate(folder.chosen, 1)]
    drawn = found["start"]["probability"] is not None
    return [
        (str(one["decision"]), items[one["point"]], one["probability"] if drawn else None)
        for one in found["families"]
    ]


def _system(folder: StudyFolder, item: Json) -> str:
    """The chip of an item, or the system where the study compares systems."""
    rows = (folder.study.get("systems") or {}).get("rows", ())
    chip = of_pools(item["deployment"], "chip")
    return next((row["system"] for row in rows if row["chip"] == chip), chip)


def _design(folder: StudyFolder, item: Json) -> str:
    """`Sparse 133B (7.56B active), 8 × b200_sxm fp8, 64 in flight`; without the shape where every
    design has the same."""
    d, metrics, system = item["deployment"], item["metrics"], _system(folder, item)
    where = f"{d['chips']} × {system}" if system == d.get("chip") else system
    served = f"{where} {of_pools(d, 'weight_dtype')}, {round(d['concurrency']):,} in flight"
    if not folder.several_shapes:
        return served
    sizes = [show(name, metrics.get(name)) for name in ("total_parameters", "active_parameters")]
    shape = f"Sparse {sizes[0]} ({sizes[1]} active)"
    if not item["model"].get("num_experts"):
        shape = f"Dense {sizes[0]}"
    return f"{given_name(item) or shape}, {served}"


def decided(folder: StudyFolder) -> Table:
    """A row for each mark: its design, its objectives, how often it is the best, and how much more
    training the first one's model would take to reach its loss."""
    found = folder.study.get("decisions") or {"families": ()}
    families = {one["point"]: one for one in found["families"]}
    rows = []
    for mark, item, chance in marked(folder):
        family = families.get(item["point"], {})
        row = {"decision": mark, "point": item["point"], "design": _design(folder, item)}
        row |= {**item["metrics"], "designs": family.get("designs"), "chance_first": chance}
        rows.append(row | {"compute_multiple": family.get("compute_multiple")})
    keys = ("decision", "design", "point", *folder.wanted, "designs", "chance_first")
    notes = [HOW.format(**found)] if families else []
    caption = "The decisions of this front"
    return of_rows("decisions", caption, rows, (*keys, "compute_multiple"), *notes)


def opening_table(folder: StudyFolder) -> Table:
    """The same in fewer columns."""
    table = decided(folder)
    small = ("decision", "design", *folder.wanted, "chance_first")
    shown = [column.key for column in table.columns if column.key in small]
    return Table("opening", "", table.columns, table.rows, shown=shown)


def opening_figure(folder: StudyFolder) -> Figure:
    """The front in two objectives, chips told apart, with the marks and the published models that
    lie within its range."""
    x, y = folder.axes()
    if x == y:
        y = next(m for m in ("tpot_s", "ttft_s", "usd_per_million_total_tokens") if m != x)
    axes = {m: _axis(folder, m) for m in (x, y)}

    def dots(
        name: str, of: Sequence[Json], texts: Sequence[str], marker: Json, **more: Any
    ) -> Json:
        places = {
            key: scaled(metric, [one["metrics"].get(metric) for one in of])
            for key, metric in (("x", x), ("y", y))
        }
        look = {"type": "scatter", "mode": "markers", "hoverinfo": "text", "marker": marker}
        return {**look, "name": plain(name), **places, "hovertext": list(map(plain, texts)), **more}

    systems: dict[str, list[Json]] = {}
    for item in folder.thin(1_500):
        systems.setdefault(_system(folder, item), []).append(item)
    data = []
    for k, (system, items) in enumerate(systems.items()):
        look = {"symbol": SYMBOLS[k % len(SYMBOLS)], "color": PALETTE[k % len(PALETTE)]}
        look |= {"size": 6, "opacity": 0.75}
        numbers = [item["point"] for item in items]
        texts = [f"point {n}" for n in numbers]
        data.append(dots(system, items, texts, look, customdata=numbers))
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
    marks = marked(folder)
    for some, colour, size in ((marks[1:], "ink", 21), (marks[:1], VERMILION, 27)):
        items = [item for _, item, _ in some]
        texts = [
            f"point {item['point']}: {brief_shape(item)}; {_amounts(folder, item['metrics'])}"
            for item in items
        ]
        look = {"symbol": "circle", "size": size, "color": colour}
        disc = {"mode": "markers+text", "textfont": {"size": 12, "color": "paper"}}
        disc |= {"showlegend": False, "cliponaxis": False, "text": [mark for mark, *_ in some]}
        disc |= {"customdata": [item["point"] for item in items]}
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


# The decisions, and how sure the first of them is.


def how_sure(folder: StudyFolder) -> str:
    """`With quality, speed and prices varied within their errors, decision 1 or a design near it is
    the best in 83% of cases (...)`; empty where nothing was drawn."""
    found = folder.study.get("decisions")
    if not found or found["start"]["probability"] is None:
        return ""
    start, (first, *others) = found["start"], found["families"]
    said = (
        f"With quality, speed and prices varied within their errors, decision {first['decision']} "
        f"or a design near it is the best in {start['probability']:.0%} of cases"
    )
    if found["wish"] != WISHED:
        said += f" for the wish “{found['wish']}”"
    elif len(folder.objectives) > 1:
        said = said.replace("With ", "With each objective counting alike, and ", 1)
    likely = [one for one in others if (one["probability"] or 0.0) >= LIKELY]
    likely.sort(key=lambda one: -one["probability"])
    if likely:
        named_ = [f"decision {one['decision']} in {one['probability']:.0%}" for one in likely]
        said += f" ({', '.join(named_)})"
    if start["kept"] < 0.995:
        said += f", and keeps the limits in {start['kept']:.0%}"
    return f"{said}."


def opening_sure(folder: StudyFolder) -> str:
    """How sure the first decision is, the 80% intervals of its objectives (without a loss, whose
    errors are common to all designs), and what would change it first; empty without draws."""
    sure = how_sure(folder)
    if not sure:
        return ""
    intervals = folder.start.metrics.get("intervals", {})
    known = [m for m in folder.wanted if m in intervals and label(m).kind != "nats"]
    ends = [f"{label(m).text} {span(m, intervals[m])}" for m in known]
    said = [sure, f"In 80% of cases {listed(ends)}." if ends else "", first_turns(folder)]
    return " ".join(filter(None, said))


def first_turns(folder: StudyFolder) -> str:
    """What would change the decision first: for each objective, how much more it must count."""
    nearest: dict[str, Json] = {}
    for turn in folder.study["decisions"]["turns"]:
        if "factor" in turn:
            nearest.setdefault(turn["objective"], turn)
    if not nearest:
        return ""
    said = [
        f"{label(m).text}{'' if k else ' counts'} {significant(turn['factor'], 2)} times"
        f"{'' if k else ' as much'} (then decision {turn['decision']})"
        for k, (m, turn) in enumerate(sorted(nearest.items(), key=lambda one: one[1]["factor"]))
    ]
    return f"Another decision is the best if {listed(said, 'or')}."


def _given_away(folder: StudyFolder, regret: float) -> str:
    found = folder.study["decisions"]
    if found["regret_in"] == "amount":
        return f"{significant(regret, 2)} of {label(found['best']).text}"
    of = "of the front's range" if found["best"] is None else f"of {label(found['best']).text}"
    return f"{regret:.1%} {of}"


def change_section(folder: StudyFolder) -> list[Section]:
    """What would change the decision: the weight of an objective or the limit from which another
    is the best, and the errors that make another the best; none where nothing does."""
    found = folder.study.get("decisions") or {}
    blocks: list[Block] = []
    about: list[str] = []
    if turns := found.get("turns"):
        rows = [
            {
                "objective": label(turn["objective"]).text,
                "counts": f"{significant(turn['factor'], 2)} times as much"
                if "factor" in turn
                else f"limited to {show(turn['objective'], turn['limit'])}",
                "decision": str(turn["decision"]),
            }
            for turn in turns
        ]
        keys = "objective counts decision"
        blocks.append(of_rows("turns", "If one objective counts for more", rows, keys))
    if found.get("causes"):
        here = found["unmoved"]["decision"]
        turned = [
            {
                "error": _at_end(one, k),
                "decision": str(end["decision"]),
                "given_away": _given_away(folder, end["regret"]),
                "regret": end["regret"],
            }
            for one in found["causes"]
            for k, end in enumerate(one["ends"])
            if end["decision"] != here
        ]
        turned.sort(key=lambda row: -row["regret"])
        nothing = "" if turned else "; no error alone, at an end of its 80% interval, changes that"
        about.append(f"As predicted, decision {here} is the best{nothing}.")
        if turned:
            table = of_rows("errors-alone", "Errors that change it", turned, CHANGED, CAUSES)
            blocks.append(table)
    if not blocks:
        return []
    return [Section("What would change the decision", blocks, about, "changes", on_console=False)]


def _at_end(one: Json, end: int) -> str:
    """`price of h100_sxm 15% higher`, `loss of sparse models worse than predicted`."""
    if isinstance(one["name"], str):
        of = f"{one['of']} of {one['name']}{' models' * (one['of'] == 'loss')}"
    else:
        of = f"{one['of']} of decision {one['name']} and its kin"
    if one["factors"] is None:
        return f"{of} {ENDS[end]}"
    by = one["factors"][end] - 1.0
    return f"{of} {percent(abs(by))} {'higher' if by > 0.0 else 'lower'}"


# Published models beside the front, and the choices that decide most.


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


def importance_section(study: Json) -> list[Section]:
    """Which choices decide about each objective; nothing for a study without `importance`."""
    found = study.get("importance")
    if not found:
        return []
    most: dict[str, float] = {}
    for shares in found["axes"].values():
        for axis, part in shares.items():
            most[axis] = max(most.get(axis, 0.0), part)
    ordered = sorted(most, key=lambda axis: -most[axis])
    top = [axis for axis in ordered if most[axis] >= LEAST_IMPORTANCE][:MOST_AXES]
    series = {
        label(metric).text: [100.0 * shares.get(axis, 0.0) for axis in top]
        for metric, shares in found["axes"].items()
    }
    drawn = f"These designs are what {study['engine']} asked for."
    if found["stage"] == "sample":
        drawn = "These designs were drawn evenly over the space before any was evaluated."
    shows = IMPORTANCE.format(designs=found["designs"], method=found["method"], drawn=drawn)
    names = [axis_words(axis) for axis in top]
    figure = bar_chart("importance-plot", "", names, series, "importance (%)", shows)
    return [Section("Which choices matter", [figure], [], "importance", on_console=False)]


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
    names = {chosen.item["point"]: chosen.label for chosen in folder.chosen}
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
    if x == y:  # one objective: against the first other number
        y = next(c["key"] for c in columns if c.get("number") and c["key"] != x)
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
