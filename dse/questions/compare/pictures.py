"""The pictures of studies, fleets and chips side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Figure
from dse.answer.labels import label
from dse.answer.numbers import dollars, show, significant, time
from dse.answer.plots import (
    PALETTE,
    SYMBOLS,
    join,
    marks,
    metric_axis,
    names_axis,
    plain,
    scaled,
)
from dse.answer.roofline import PHASES, Operator, layout, operators_of
from dse.pareto import non_dominated
from dse.questions.compare.chips import estimated
from dse.questions.compare.studies import Compared, Side, cost_metric

Json = Mapping[str, Any]


def study_figures(found: Compared) -> list[Figure]:
    """Prices before and after, and both fronts in two objectives."""
    document = found.document
    made = [price_figure("prices", "Prices by chip", document["all_prices"], document, "chip-hour")]
    made = made if document["all_prices"] else []
    cost = cost_metric(found.objectives)
    metrics = [o["metric"] for o in found.objectives]
    y = cost or metrics[0]
    for k, x in enumerate(metric for metric in metrics if metric != y):
        made.append(_front_figure(f"front-{k}", found, x, y))
    return made


def _legend(document: Json) -> str:
    names = document["names"]
    return f"Open marks are {names['a']}, filled ones {names['b']}."


def price_figure(name: str, title: str, rows: Sequence[Json], document: Json, per: str) -> Figure:
    """A line for each row (`chip`, `a`, `b`) from the price before to that after."""
    rows = rows[::-1]
    names = [plain(row["chip"]) for row in rows]
    traces = [
        join([row["a"], row["b"]], [chip, chip], 5)
        for chip, row in zip(names, rows, strict=True)
        if row["a"] and row["b"]
    ]
    for k, side in enumerate("ab"):
        known = [row for row in rows if row[side]]
        when = document["names"][side]
        hover = [f"{row['chip']}, {when}: {dollars(row[side])}" for row in known]
        trace = marks(
            k, when, [row[side] for row in known], [plain(row["chip"]) for row in known], hover
        )
        trace["marker"] |= _marker(k, "circle", 15, 9)
        traces.append(trace)
    layout = {
        "height": 130 + 34 * len(rows),
        "xaxis": {"title": {"text": plain(f"USD per {per}")}, "rangemode": "tozero"},
        "yaxis": names_axis(names) | {"range": [-0.6, len(names) - 0.4]},
    }
    shows = f"The price of each before and after. {_legend(document)}"
    return Figure(name, title, {"data": traces, "layout": layout}, shows)


def _marker(k: int, symbol: str, *sizes: int) -> dict[str, Any]:
    """An open mark before, a filled one after."""
    return {
        "size": sizes[k],
        "symbol": (f"{symbol}-open", symbol)[k],
        "line": {"width": (2, 0)[k]},
    }


def _front_figure(name: str, found: Compared, x: str, y: str) -> Figure:
    """The best designs of both fronts in two objectives, a colour and mark for each chip."""
    chips = [row["chip"] for row in found.document["chips"]]
    traces = []
    for k, side in enumerate((found.a, found.b)):
        best = _best(side, x, y)
        path = join(_values(best, x), _values(best, y))
        path |= {"name": plain(side.name), "showlegend": True}
        path["line"] |= {"width": 1.5, "dash": ("dash", "solid")[k]}
        traces.append(path)
        for j, chip in enumerate(chips):
            items = [item for item in best if item["deployment"]["chip"] == chip]
            if not items:
                continue
            hover = [
                f"{side.name}, point {item['point']}: {show(y, item['metrics'][y])}, "
                f"{show(x, item['metrics'][x])}; {found.words(item)}"
                for item in items
            ]
            trace = marks(j, f"{chip}, {side.name}", _values(items, x), _values(items, y), hover)
            trace["marker"] |= _marker(k, SYMBOLS[j % len(SYMBOLS)], 13, 8)
            traces.append(trace)
    log = {o["metric"]: o["log"] for o in found.objectives}
    axes = {
        key: metric_axis(metric, values if log[metric] and min(values) > 0.0 else ())
        for key, metric in (("x", x), ("y", y))
        for values in ([value for trace in traces for value in trace[key]],)
    }
    layout = {"height": 420, "hovermode": "closest", "xaxis": axes["x"], "yaxis": axes["y"]}
    title = f"Least {label(y).text} at each {label(x).text}"
    shows = (
        "The designs of both fronts that no other of their front beats in these two. "
        f"{_legend(found.document)}"
    )
    return Figure(name, title, {"data": traces, "layout": layout}, shows)


def _best(side: Side, x: str, y: str) -> list[Json]:
    """Designs of a front that no other of it beats in both objectives, from left to right."""
    metrics = [o["metric"] for o in side.study["objectives"]]
    columns = [metrics.index(x), metrics.index(y)]
    F, items = side.F[:, columns], list(side.items.values())
    rows = np.flatnonzero(non_dominated(F))
    return sorted((items[i] for i in rows), key=lambda item: item["metrics"][x])


def _values(items: Sequence[Json], metric: str) -> list[float]:
    return [value or 0.0 for value in scaled(metric, [item["metrics"][metric] for item in items])]


LEAST_PX = 8
NEAR = 1.6  # a name goes below all marks within this factor of its intensity
DASHES = ("solid", "dash", "dot", "dashdot")
ROOF = (
    "A roof is the most that a chip can do: on its slope memory is the limit, on its flat part "
    "arithmetic."
)
OPERATORS = (
    "Each mark, in the colour of its chip, is an operator of the model. It grows with the "
    "operator's time, and lies as far below its roof as kernels, launches and links keep it. "
    "All-reduces and other operators without arithmetic are in the tables."
)


def roof_figures(document: Mapping[str, Any]) -> list[Figure]:
    """The operators of both phases under the roof of each chip; without a model, the roofs."""
    made = []
    for phase, *_ in PHASES:
        if drawn := roofline_of_chips(document, phase):
            title = f"Roofline: {phase}"
            shows = _left_out(
                f"{ROOF} {OPERATORS}", document, drawn, "The model cannot be estimated there."
            )
            made.append(Figure(f"roof-{phase}", title, drawn, shows))
    if not made and (drawn := roofs_alone(document)):
        shows = _left_out(
            f"{ROOF} Roofs are at the bf16 peak.",
            document,
            drawn,
            "It takes a bf16 peak and a memory bandwidth.",
        )
        made.append(Figure("roof-chips", "Rooflines at bf16", drawn, shows))
    return made


def _left_out(text: str, document: Mapping[str, Any], drawn: Mapping[str, Any], why: str) -> str:
    """`text`, and which chips have no roof."""
    known = {trace.get("name") for trace in drawn["data"]}
    missing = [chip["id"] for chip in document["chips"] if plain(chip["id"]) not in known]
    return f"{text} No roof: {', '.join(missing)}. {why}" if missing else text


def roofline_of_chips(document: Mapping[str, Any], phase: str) -> dict[str, Any] | None:
    """Intensity against TFLOP/s in one phase, a roof for each chip; None where no chip was
    estimated. Marks are operators and grow with their time."""
    found = []
    for k, chip in enumerate(chip["id"] for chip in document["chips"]):
        point = next((p for p in estimated(document) if p["chip"] == chip), None)
        if point is None:
            continue
        detail = {"breakdown": point["operators"], "hbm_bytes_per_s": point["hbm_bytes_per_s"]}
        mine = [o for o in operators_of(detail) if o.phase == phase]
        peak = max(row.get(f"{phase}_peak_flops_per_s") or 0.0 for row in point["operators"])
        if mine and peak:
            found.append((k, chip, point["hbm_bytes_per_s"], peak, mine))
    if not found:
        return None
    every = [o for *_, mine in found for o in mine]
    low = min(o.intensity for o in every) / 2
    ridges = [peak / bandwidth for _, _, bandwidth, peak, _ in found]
    high = 2 * max([o.intensity for o in every] + ridges)
    traces = []
    for k, chip, bandwidth, peak, mine in found:
        traces.append(_roof(k, chip, low, high, bandwidth, peak))
        traces.append(_marks(k, chip, mine))
    traces.append(_name([mine for *_, mine in found], low, high))
    return {"data": traces, "layout": layout(low, high, 460)}


def roofs_alone(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """A roof at the bf16 peak for each chip that has the figures; None where none has."""
    rows = [
        (k, chip["id"], chip["figures"]["memory_bandwidth"], chip["figures"].get("peak_bf16"))
        for k, chip in enumerate(document["chips"])
    ]
    known = [(k, c, band["value"], peak["value"]) for k, c, band, peak in rows if band and peak]
    if not known:
        return None
    ridges = [peak / band for _, _, band, peak in known]
    low, high = min(ridges) / 100, max(ridges) * 8
    traces = [_roof(k, chip, low, high, band, peak) for k, chip, band, peak in known]
    return {"data": traces, "layout": layout(low, high, 460)}


def _roof(
    k: int, chip: str, low: float, high: float, bandwidth: float, peak: float
) -> dict[str, Any]:
    words = f"{chip}: {significant(1e-12 * bandwidth)} TB/s, {significant(1e-12 * peak, 4)} TFLOP/s"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(chip),
        "x": [low, peak / bandwidth, high],
        "y": [1e-12 * low * bandwidth, 1e-12 * peak, 1e-12 * peak],
        "line": {"color": PALETTE[k % len(PALETTE)], "width": 2, "dash": DASHES[k % len(DASHES)]},
        "hoverinfo": "text",
        "hovertext": [plain(words)] * 3,
    }


def _name(chips: list[list[Operator]], low: float, high: float) -> dict[str, Any]:
    """The operator that takes most of the phase on the first chip, named below its marks."""
    longest = max(chips[0], key=lambda o: o.share)
    x = longest.intensity
    near = [o.achieved for mine in chips for o in mine if 1 / NEAR < o.intensity / x < NEAR]
    side = "left" if x > math.sqrt(low * high) else "right"
    return {
        "type": "scatter",
        "mode": "text",
        "x": [x],
        "y": [0.6e-12 * min(near)],
        "text": [plain(longest.name)],
        "showlegend": False,
        "textposition": f"bottom {side}",
        "textfont": {"size": 12},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _marks(k: int, chip: str, found: list[Operator]) -> dict[str, Any]:
    hover = [
        f"{chip}: {o.name}, {time(o.seconds)}, {o.share:.0%} of its phase; "
        f"{significant(o.intensity)} FLOP per byte, {o.achieved / o.attainable:.0%} of the roof; "
        f"bound by {o.bound}"
        for o in found
    ]
    trace = marks(k, chip, [o.intensity for o in found], [1e-12 * o.achieved for o in found], hover)
    trace["marker"] |= {
        "symbol": f"{trace['marker']['symbol']}-open",
        "size": [LEAST_PX + 16 * math.sqrt(o.share) for o in found],
        "line": {"width": 2},
    }
    return trace | {"showlegend": False}
