"""Scenarios and sweeps: what wins after a change, what enters and leaves the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dse.answer.answer import Block, Cell, Column, Figure, Table
from dse.answer.numbers import show
from dse.answer.palette import plain
from dse.answer.plots import join, marks, metric_axis, scaled, upright
from dse.questions.whatif.inputs import DEMAND
from dse.questions.whatif.solve import words
from dse.questions.whatif.words import (
    HELD_NOTE,
    Json,
    by_words,
    held_cells,
    held_columns,
    named,
    taking,
)

DAY = 86_400.0  # seconds


def sentences(document: Json) -> list[str]:
    metric = document["objective"]
    found = [_scenario_words(row, metric) + _requests_kept(row) for row in document["scenarios"]]
    return found + [_sweep_words(row, metric) for row in document["sweeps"]]


def blocks(document: Json) -> list[Block]:
    """Pictures, then the tables."""
    metric = document["objective"]
    found: list[Block] = [
        _front_figure(k, row)
        for k, row in enumerate(document["scenarios"])
        if row["picture"]["after"][0]
    ]
    for k, row in enumerate(document["sweeps"]):
        found.append(_sweep_figure(k, row, metric))
        if held_columns(step["winner"] for step in row["rows"]):
            found.append(_sweep_figure(k, row, metric, hourly=True))
    if document["scenarios"]:
        found.append(_scenario_table(document))
    for k, row in enumerate(document["scenarios"]):
        found += _front_table(k, row, metric)
    found += [_sweep_table(k, row, metric) for k, row in enumerate(document["sweeps"])]
    return found


def _scenario_words(row: Json, metric: str) -> str:
    front, winner = row["front"], row["winner"]
    if winner is None:
        return f"With {row['name']}, nothing is feasible: {row['infeasible_because']}."
    moved = (
        f"{_moving(front['entered']['count'], 'enter')} the front and "
        f"{_moving(front['left']['count'], 'leave')} it "
        f"({front['size_before']:,} before, {front['size']:,} after)"
    )
    value = show(metric, winner["metrics"][metric]) + taking(winner)
    by = by_words(metric, row["change"])
    if row["same_winner"]:
        return f"With {row['name']}, it stays first at {value}, {by}; {moved}."
    old = row["old_winner"]
    was = (
        f"in its place the old one would be at {show(metric, old['metrics'][metric])}"
        if old["feasible"]
        else "the old one no longer keeps the limits"
    )
    return f"With {row['name']}, {words(winner)} wins at {value}, {by}; {was}; {moved}."


def _requests_kept(row: Json) -> str:
    """A demand counts tokens, so that longer requests are fewer."""
    times = row["demand_of_as_many_requests"]
    if times is None:
        return ""
    other = "longer requests are fewer" if times > 1.0 else "shorter requests are more"
    return f" The demand counts tokens, so {other}: as many as before are demand={times:.3g}x."


def _moving(count: int, verb: str) -> str:
    """`1 enters`, `14 enter`."""
    return f"{count:,} {verb}{'s' if count == 1 else ''}"


def _sweep_words(row: Json, metric: str) -> str:
    steps = row["rows"]
    values = " to ".join(
        "nothing feasible"
        if steps[k]["winner"] is None
        else show(metric, steps[k]["objective"]) + taking(steps[k]["winner"])
        for k in (0, -1)
    )
    found = f"{row['input']} from {steps[0]['words']} to {steps[-1]['words']}: {values}"
    changes = [one for one in row["switches"] if one["chip"]]
    if not row["switches"]:
        return f"{found}; the winner stays {words(steps[0]['winner'])}."
    if not changes:
        count = len(row["switches"])
        times = "once" if count == 1 else f"{count} times"
        return f"{found}; the chip stays, its deployment changes {times}."
    return f"{found}; {', '.join(_switch(one, steps) for one in changes)}."


def _switch(one: Json, steps: Sequence[Json]) -> str:
    k = one["after_step"]
    between = f"between {steps[k - 1]['words']} and {steps[k]['words']}"
    if one["to"] is None:
        return f"{between} nothing keeps the limits any more"
    if one["from"] is None:
        return f"{between} {one['to']['chip']} begins to keep the limits"
    at = f"at {one['words']}" if one["words"] else between
    return f"{one['to']['chip']} takes over from {one['from']['chip']} {at}"


def _scenario_table(document: Json) -> Table:
    metric = document["objective"]
    held = held_columns([document["winner"], *(row["winner"] for row in document["scenarios"])])
    latencies = ("tpot_s",) if held else ("tpot_s", "ttft_s")
    metrics = [metric, *(name for name in latencies if name in document["winner"]["metrics"])]

    def row(name: str, point: Json | None, **cells: Cell) -> dict[str, Cell]:
        own = {} if point is None else point["metrics"]
        shown = {key: own.get(key) for key in metrics}
        return {"scenario": name, "winner": words(point), **held_cells(point), **shown, **cells}

    rows = [row("as things stand", document["winner"], change="", front=document["front_size"])]
    for one in document["scenarios"]:
        front = one["front"]["size"]
        rows.append(row(one["name"], one["winner"], change=one["change"], front=front))
        if one["winner"] is not None and not one["same_winner"]:
            old = one["old_winner"]
            name = "  the old winner then" + ("" if old["feasible"] else " (breaks a limit)")
            rows.append(row(name, old, change="", front=""))
    columns = (
        Column("scenario", ""),
        Column("winner", "winner"),
        *held,
        *(Column(name, named(name), name) for name in dict.fromkeys(metrics)),
        Column("change", "change", "change"),
        Column("front", "front", "count"),
    )
    notes = (HELD_NOTE,) if held else ()
    return Table("scenarios", "Before and after: the winner", columns, rows, notes)


def _front_table(k: int, row: Json, metric: str) -> list[Table]:
    front = row["front"]
    metrics = list(dict.fromkeys([metric, "tpot_s"]))
    rows = [
        {"kind": kind, "point": words(point)} | {key: point["metrics"].get(key) for key in metrics}
        for kind in ("entered", "left")
        for point in front[kind]["points"]
    ]
    if not rows:
        return []
    notes = [
        f"{kind}: " + ", ".join(f"{count:,} {chip}" for chip, count in front[kind]["chips"].items())
        for kind in ("entered", "left")
        if front[kind]["count"]
    ]
    total = front["entered"]["count"] + front["left"]["count"]
    if len(rows) < total:
        notes.append(f"{len(rows)} of {total:,} are shown, evenly along the front")
    columns = (
        Column("kind", ""),
        Column("point", "point"),
        *(Column(name, named(name), name) for name in metrics),
    )
    caption = f"What enters and leaves the front: {row['name']}"
    return [Table(f"front {k + 1}", caption, columns, rows, [f"{note}." for note in notes])]


def _sweep_table(k: int, row: Json, metric: str) -> Table:
    last, rows = None, []
    held = held_columns(one["winner"] for one in row["rows"])
    for one in row["rows"]:
        now = words(one["winner"])
        mark = "" if last is None or now == last else "*"
        rows.append(
            {"input": one["words"], metric: one["objective"], "winner": now + mark}
            | held_cells(one["winner"])
        )
        last = now
    notes = [HELD_NOTE] if held else []
    notes += ["* another winner than a line above."] if row["switches"] else []
    if row["input"] == DEMAND and held and row["switches"]:
        notes.append("Deployments are whole: the lead may change more than once between two lines.")
    title = row["input"].replace(".", " ") if held else row["input"]  # which may wrap
    columns = (
        Column("input", title, right=True),
        Column(metric, named(metric), metric),
        *held,
        Column("winner", "winner"),
    )
    return Table(f"sweep {k + 1}", f"Sweep of {row['input']}", columns, rows, notes)


def _front_figure(k: int, row: Json) -> Figure:
    """Both fronts in two objectives, logarithmic."""
    picture, traces = row["picture"], []
    for i, name in enumerate(("before", "after")):
        x, y = (
            scaled(picture[key], values) for key, values in zip("xy", picture[name], strict=True)
        )
        trace = marks(i, name, x, y)
        trace["marker"] |= {
            "size": 8 if i else 11,
            "symbol": "x" if i else "circle-open",
            "line": {"width": 2},
        }
        traces.append(trace)
    axes = {
        f"{key}axis": metric_axis(picture[key], [v for trace in traces for v in trace[key]])
        for key in "xy"
    }
    return Figure(
        f"front-{k}",
        f"The front, before and after {row['name']}",
        {"data": traces, "layout": {"height": 380, "hovermode": "closest", **axes}},
        f"Every point of the front before and after: {named(picture['x'])} across, "
        f"{named(picture['y'])} upwards, both logarithmic.",
    )


def _sweep_figure(k: int, row: Json, metric: str, hourly: bool = False) -> Figure:
    """The winner's objective at every step, or what is paid an hour; a colour and mark a chip."""
    steps = row["rows"]
    of_demand = row["input"] == DEMAND and row["unit"] == "tokens/s"
    scale = DAY / 1e9 if of_demand else 1.0
    x = [step["factor"] if step["value"] is None else step["value"] * scale for step in steps]
    if hourly:
        y = [held_cells(step["winner"]).get("usd_per_hour") for step in steps]
    else:
        y = scaled(metric, [step["objective"] for step in steps])
    traces: list[dict[str, Any]] = [join(x, y)]
    chips = dict.fromkeys(step["winner"]["chip"] for step in steps if step["winner"])
    for i, chip in enumerate(chips):
        mine = [j for j, s in enumerate(steps) if s["winner"] and s["winner"]["chip"] == chip]
        hover = [f"{steps[j]['words']}: {steps[j]['winner']['words']}" for j in mine]
        traces.append(marks(i, chip, [x[j] for j in mine], [y[j] for j in mine], hover))
    ends = [
        one["factor"] if one["value"] is None else one["value"] * scale
        for one in row["switches"]
        if one["chip"]
    ]
    shown = [end for end in ends if end is not None]
    unit = "B tokens/day" if of_demand else row["unit"]
    unit = "factor" if steps[0]["value"] is None else unit
    upwards = {"title": {"text": "USD an hour"}} if hourly else metric_axis(metric)
    layout = {
        "height": 380,
        "hovermode": "closest",
        "xaxis": {"title": {"text": plain(f"{row['input']} ({unit})")}},
        "yaxis": upwards | {"rangemode": "tozero"},
        "shapes": [upright(end) for end in shown],
    }
    what = "Dollars an hour" if hourly else "The winner"
    dashed = " At a dashed line another chip takes over." if shown else ""
    return Figure(
        f"hour-{k}" if hourly else f"sweep-{k}",
        f"{what} along {row['input']}",
        {"data": traces, "layout": layout},
        f"{'What is paid an hour' if hourly else named(metric).capitalize()} for the winner at "
        f"each step of {row['input']}, a colour for each chip.{dashed}",
    )
