"""The pictures of two studies, or two fleets, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.answer.answer import Figure
from dse.answer.labels import label
from dse.answer.numbers import dollars, show
from dse.answer.palette import PALETTE, SYMBOLS, hatch, plain
from dse.answer.plots import join, marks, metric_axis, names_axis, scaled
from dse.pareto import non_dominated
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


def chips_figure(document: Json) -> Figure:
    """Chips held by quarter: two stacks a quarter, before and after; owned chips are hatched."""
    names, rows = document["names"], document["by_quarter"]
    chips = list(dict.fromkeys(row["chip"] for row in rows))
    quarters = sorted({row["quarter"] for row in rows})
    held = {(row["quarter"], row["chip"]): row for row in rows}
    bars = [(f"Q{q}<br>{plain(names[side])}", q, side) for q in quarters for side in "ab"]
    traces = []
    for j, chip in enumerate(chips):
        for way, shape in (("rented", ""), ("owned", "/")):
            values = [held.get((q, chip), {}).get(f"{way}_{side}", 0) for _, q, side in bars]
            if not any(values):
                continue
            hover = [
                plain(f"Q{q}, {names[side]}: {value:,} {chip}, {way}")
                for (_, q, side), value in zip(bars, values, strict=True)
            ]
            traces.append(
                {
                    "type": "bar",
                    "name": plain(f"{chip}, {way}"),
                    "x": [name for name, *_ in bars],
                    "y": values,
                    "marker": {"color": PALETTE[j % len(PALETTE)], "pattern": hatch(shape)},
                    "hoverinfo": "text",
                    "hovertext": hover,
                }
            )
    layout = {
        "height": 380,
        "barmode": "stack",
        "bargap": 0.3,
        "showlegend": True,
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": "chips"}, "rangemode": "tozero", "tickformat": "~s"},
    }
    shows = "Chips that are held in each quarter, before and after. Owned chips are hatched."
    return Figure("chips", "Chips that are held", {"data": traces, "layout": layout}, shows)


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
