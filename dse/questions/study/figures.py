"""Pictures of the chosen points, as plain dictionaries of plotly's schema: time, floor, operators
under the roof of their chip; and of the choices that decide about each objective.

Fonts, grid and background come from the page's own style, so that dark and light agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Column, Figure, Section, Table
from dse.answer.labels import BOUND_NAMES, label
from dse.answer.numbers import share, significant, time
from dse.answer.plots import (
    BLUE,
    GREEN,
    ORANGE,
    PALETTE,
    PHASES,
    PURPLE,
    SKY,
    VERMILION,
    Operator,
    bars,
    hatch,
    join,
    layout,
    names_axis,
    operators_of,
    plain,
)
from dse.problem.words import axis_words, on_chip
from dse.questions.study.chosen import Chosen, Json, StudyFolder
from dse.questions.study.words import capital, span

# Hatching beside colour, for readers who tell colours badly and for grey paper.
BOUNDS = {
    "compute": (ORANGE, ""),
    "memory": (BLUE, "/"),
    "network": (GREEN, "x"),
    "fixed": (PURPLE, "."),
}
ROW_PX, FRAME_PX = 58, 130
NAMED = 2  # operators of a phase that are named in the picture, those that take most of its time
APART = 1.6  # their names overlap where their rates differ by less than this factor


def time_figures(folder: StudyFolder) -> list[Figure]:
    """Prefill and decode of the chosen points by operator; their scales differ."""
    return [
        Figure(
            f"time-{phase}",
            title,
            _times(folder, f"{phase}_s", axis),
            f"{phase.capitalize()} time by operator, a bar for each point.",
        )
        for phase, title, axis in (
            ("prefill", "Prefill: reading one prompt", "prefill of one prompt (ms)"),
            ("decode", "Decode: one step of the batch", "decode step (ms)"),
        )
    ]


def _times(folder: StudyFolder, key: str, axis: str) -> dict[str, Any]:
    """One bar a chosen point, one segment an operator, coloured by what bounds it (ms)."""
    labels = _labels(folder)
    rows = [
        (name, row, row.get("prefill_bound", row["bound"]) if key == "prefill_s" else row["bound"])
        for name, chosen in zip(labels, folder.chosen, strict=True)
        for row in chosen.detail["breakdown"]
        if row[key]
    ]
    present = {bound for *_, bound in rows}
    legend = [
        _bar(BOUND_NAMES[bound], [None], labels[:1], look, [])
        | {"legendgroup": bound, "hoverinfo": "skip"}
        for bound, look in BOUNDS.items()
        if bound in present
    ]
    traces = []
    for operator in dict.fromkeys(row["operator"] for _, row, _ in rows):
        found = [one for one in rows if one[1]["operator"] == operator]
        looks = [BOUNDS[bound] for *_, bound in found]
        hover = [
            f"{operator}: {time(row[key])}, bound by {BOUND_NAMES[bound]}, efficiency "
            f"{row['efficiency']}"
            for _, row, bound in found
        ]
        sizes, at = [1e3 * row[key] for _, row, _ in found], [name for name, *_ in found]
        look = [colour for colour, _ in looks], [shape for _, shape in looks]
        text = {
            "text": [plain(operator)] * len(found),
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "constraintext": "none",
            "cliponaxis": True,
            "showlegend": False,
        }
        traces.append(_bar(operator, sizes, at, look, hover) | text)
    return {"data": [*legend, *traces], "layout": {**_layout(labels, axis), "meta": "fit"}}


def part_words(part: str) -> str:
    """A part of memory: `KV cache`."""
    return part.replace("_", " ").replace("kv", "KV")


def floor_figure(folder: StudyFolder) -> Figure:
    """Floor and prediction of the decode step with its 80% interval (ms)."""
    labels = _labels(folder)
    floors = [1e3 * chosen.detail["floor_s"] for chosen in folder.chosen]
    predicted = [1e3 * chosen.detail["decode_step_s"] for chosen in folder.chosen]
    ends = [
        [1e3 * end for end in chosen.step_interval or ()] or [middle, middle]
        for chosen, middle in zip(folder.chosen, predicted, strict=True)
    ]
    hover = [
        f"prediction: {time(x / 1e3)}, 80% interval "
        f"{span('decode_step_s', (low / 1e3, high / 1e3))}"
        for x, (low, high) in zip(predicted, ends, strict=True)
    ]
    error = {
        "type": "data",
        "symmetric": False,
        "color": VERMILION,
        "width": 8,
        "array": [high - x for (_, high), x in zip(ends, predicted, strict=True)],
        "arrayminus": [x - low for (low, _), x in zip(ends, predicted, strict=True)],
    }
    drawn = [
        *(
            join([low, high], [name, name], 6) | {"opacity": 0.4}
            for name, low, high in zip(labels, floors, predicted, strict=True)
        ),
        _points("floor", floors, labels, [f"floor: {time(x / 1e3)}" for x in floors])
        | {"marker": _stroke(22, BLUE)},
        _points("prediction, 80% interval", predicted, labels, hover)
        | {"marker": {"symbol": "circle", "size": 12, "color": VERMILION}, "error_x": error},
    ]
    shows = "Floor and prediction of the decode step, with its 80% interval."
    figure = {"data": drawn, "layout": _layout(labels, "decode step (ms)")}
    return Figure("floor-plot", "", figure, shows)


def roof_figures(folder: StudyFolder) -> list[Figure]:
    """For each chosen point whose operators are known: arithmetic intensity against achieved
    TFLOP/s, both logarithmic; marks grow with time."""
    return [
        Figure(
            f"roof-{k}",
            f"{capital(one.under)} on {on_chip(one.item['deployment'])}",
            _roofline(one, found),
            "Arithmetic intensity against rate: each mark an operator, the line the roof.",
        )
        for k, one in enumerate(folder.chosen)
        if (found := operators_of(one.detail))
    ]


def roofs(chosen: Chosen) -> list[tuple[str, float]]:
    """(dtypes, dense peak in FLOP/s) of the arithmetic that the operators run on, lowest first."""
    used = {
        round(row[key], -9)
        for row in chosen.detail["breakdown"]
        for key in ("prefill_peak_flops_per_s", "decode_peak_flops_per_s")
        if row.get(key)
    }
    peaks: Json = chosen.detail.get("peak_flops_per_s", {})
    return [
        ("/".join(d for d, p in peaks.items() if math.isclose(p, peak, rel_tol=1e-3)), peak)
        for peak in sorted(used)
    ]


def _roofline(chosen: Chosen, found: list[Operator]) -> dict[str, Any]:
    bandwidth, peaks = chosen.detail["hbm_bytes_per_s"], roofs(chosen)
    low = min(operator.intensity for operator in found) / 2
    ridges = [peak / bandwidth for _, peak in peaks]
    end = 2 * max(*(operator.intensity for operator in found), *ridges)
    edge = end * (end / low) ** 0.4  # room right of the roofs for their names
    traces: list[dict[str, Any]] = []
    for (name, peak), ridge in zip(peaks, ridges, strict=True):
        rate = 1e-12 * peak
        traces.append(
            join([low, ridge, end], [1e-12 * low * bandwidth, rate, rate])
            | {"line": {"color": "ink", "width": 2}}
        )
        traces.append(
            _points("", [end], [rate], [])
            | _named([f"{name} {significant(rate)}"], "middle right")
            | {"mode": "text", "showlegend": False, "hoverinfo": "skip"}
        )
    sides = _sides(found)
    for phase, _, symbol in PHASES:
        for bound, (colour, _) in BOUNDS.items():
            mine = [o for o in found if o.phase == phase and o.bound == bound]
            if mine:
                name = f"{phase}, {BOUND_NAMES[bound]}"
                traces.append(_marks(mine, sides, name, symbol, colour))
    return {"data": traces, "layout": layout(low, edge, 440)}


def _sides(found: list[Operator]) -> dict[Operator, str]:
    """Operators to name in a picture, each with the side of its mark that the name is on."""
    ends = [math.log(o.intensity) for o in found]
    last = min(ends) + 0.7 * (max(ends) - min(ends))
    named: dict[Operator, str] = {}
    for phase, *_ in PHASES:
        longest = sorted((o for o in found if o.phase == phase), key=lambda o: -o.share)
        for operator in longest[:NAMED]:
            ratios = (operator.achieved / other.achieved for other in named)
            if all(max(ratio, 1 / ratio) > APART for ratio in ratios):
                far = math.log(operator.intensity) > last
                named[operator] = "bottom center" if far else "bottom right"
    return named


def _marks(
    found: list[Operator], sides: dict[Operator, str], name: str, symbol: str, colour: str
) -> dict[str, Any]:
    hover = [
        f"{o.name} ({o.phase}): {time(o.seconds)}, {o.share:.0%} of its phase; "
        f"{significant(o.intensity)} FLOP per byte, {significant(1e-12 * o.achieved)} TFLOP/s, "
        f"{o.achieved / o.attainable:.0%} of the roof"
        for o in found
    ]
    x, y = [o.intensity for o in found], [1e-12 * o.achieved for o in found]
    marker = {
        "symbol": symbol,
        "color": colour,
        "opacity": 0.9,
        "size": [7 + 22 * math.sqrt(o.share) for o in found],
        "line": {"color": BLUE if colour != BLUE else SKY, "width": 1},
    }
    names = [o.name if o in sides else "" for o in found]
    where = [sides.get(o, "bottom left") for o in found]
    return (
        _points(name, x, y, hover)
        | _named(names, where)
        | {"mode": "markers+text", "marker": marker}
    )


def _named(names: Sequence[str], where: str | list[str]) -> dict[str, Any]:
    return {
        "text": [plain(name) for name in names],
        "textposition": where,
        "textfont": {"size": 11},
        "cliponaxis": False,
    }


def _bar(
    name: str, x: Sequence[float | None], y: Sequence[str], look: Any, hover: Sequence[str]
) -> dict[str, Any]:
    """A segment of each bar; `look` is its colour and hatching, one each or one a bar."""
    colour, shape = look
    marker = {"color": colour, "pattern": hatch(shape)}
    return bars(name, x, y, "") | {"marker": marker, **_hover(hover)}


def _points(name: str, x: Sequence[Any], y: Sequence[Any], hover: Sequence[str]) -> dict[str, Any]:
    drawn = {"type": "scatter", "mode": "markers", "x": list(x), "y": list(y)}
    return {**drawn, "name": plain(name), **_hover(hover)}


def _hover(texts: Sequence[str]) -> dict[str, Any]:
    return {"hoverinfo": "text", "hovertext": [plain(text) for text in texts]}


def _stroke(size: int, colour: str) -> dict[str, Any]:
    return {"symbol": "line-ns-open", "size": size, "color": colour, "line": {"width": 4}}


def _labels(folder: StudyFolder) -> list[str]:
    """One label a chosen point, its names on lines of their own."""
    return ["<br>".join(plain(name) for name in one.label.split(", ")) for one in folder.chosen]


def _layout(labels: Sequence[str], title: str) -> dict[str, Any]:
    """Bars stacked to the right, the first point on top."""
    return {
        "barmode": "stack",
        "height": FRAME_PX + ROW_PX * len(labels),
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": list(labels)[::-1],
            "automargin": True,
            "range": [-0.6, len(labels) - 0.4],
        },
    }


TITLE = "Which choices matter"
MOST_SHOWN, LEAST_SHOWN = 12, 0.01
NAMED_AXES, WORTH_NAMING = 2, 0.1
HATCHES = ("", "/", "x", ".", "-")
BAR_PX, AXES_FRAME_PX = 13, 110
EVEN = ("qmc", "random")
ABOUT = (
    "The shares say by how much the values of a choice in the best tenth of {designs:,} designs "
    "differ from its values in all of them, for each objective alone ({method} of Optuna, "
    "arXiv:2304.10255); they add up to 100%. {drawn} A choice counts, too, where only some of its "
    "values leave room under the limits."
)
SAMPLE = (
    "These designs were drawn evenly over the space before any was evaluated, and meet every "
    "constraint."
)


def importance_section(study: Json) -> list[Section]:
    """Nothing for a study without `importance`."""
    found = study.get("importance")
    if not found:
        return []
    about = ABOUT.format(
        designs=found["designs"], method=found["method"], drawn=_drawn(found, study["engine"])
    )
    numbers = Section("The numbers", [_table(found["axes"])], folded=True)
    blocks = [_figure(found["axes"]), numbers]
    return [Section(TITLE, blocks, (sentence(found), about), "importance", on_console=False)]


def sentence(found: Json) -> str:
    """`What decides most about predicted loss: sparse (40%), hidden size (25%); about ...`"""
    parts = []
    for metric, axes in found["axes"].items():
        first, *others = list(axes.items())[:NAMED_AXES]
        named = [first, *(pair for pair in others if pair[1] >= WORTH_NAMING)]
        said = ", ".join(f"{axis_words(axis)} ({share(part)})" for axis, part in named)
        parts.append(f"about {label(metric).text}: {said}")
    return f"What decides most {'; '.join(parts)}."


def _drawn(found: Json, engine: str) -> str:
    if found["stage"] == "sample":
        return SAMPLE
    leans = "" if engine in EVEN else ", nearer to the best than an even draw would be"
    return f"These designs are what {engine} asked for{leans}; they meet every constraint."


def _ordered(axes: Json) -> list[str]:
    """Axes by the largest share that they have of an objective."""
    most: dict[str, float] = {}
    for shares in axes.values():
        for axis, part in shares.items():
            most[axis] = max(most.get(axis, 0.0), part)
    return sorted(most, key=lambda axis: -most[axis])


def _figure(axes: Json) -> Figure:
    """Bars to the right, one an objective for each axis, the most important axis on top."""
    top = [
        axis
        for axis in _ordered(axes)
        if max(shares.get(axis, 0.0) for shares in axes.values()) >= LEAST_SHOWN
    ][:MOST_SHOWN][::-1]
    names = [plain(axis_words(axis)) for axis in top]
    data: list[dict[str, Any]] = []
    for k, (metric, shares) in enumerate(axes.items()):
        text = label(metric).text
        trace = bars(text, [shares.get(axis, 0.0) for axis in top], names, "")
        look = {"color": PALETTE[k % len(PALETTE)], "pattern": hatch(HATCHES[k % len(HATCHES)])}
        hover = {"hovertemplate": f"%{{y}}, {plain(text)}: %{{x:.1%}}<extra></extra>"}
        data.insert(0, trace | {"marker": look, **hover})  # bars of a group are drawn upwards
    layout = {
        "barmode": "group",
        "height": AXES_FRAME_PX + (BAR_PX * len(axes) + 8) * len(top),
        "legend": {"traceorder": "reversed"},
        "xaxis": {"title": {"text": "importance"}, "tickformat": ".0%", "rangemode": "tozero"},
        "yaxis": names_axis(names),
    }
    shows = "How much each choice decides: a bar for each objective, longest on top."
    return Figure("importance-plot", "", {"data": data, "layout": layout}, shows)


def _table(axes: Json) -> Table:
    columns = [
        Column(
            metric,
            label(metric).short,
            "share",
            explain=label(metric).text,
            of=lambda axis, shares=shares: round(shares[axis], 3) if axis in shares else None,
        )
        for metric, shares in axes.items()
    ]
    choice = Column("choice", "choice", of=axis_words)
    return Table.of("importance", "Importance", _ordered(axes), (choice, *columns))
