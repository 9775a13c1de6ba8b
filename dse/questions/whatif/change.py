"""Before and after: what enters and leaves the front, how the winner changes, and sweeps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dse.answer.answer import Block, Column, Figure, Table
from dse.answer.numbers import show
from dse.answer.plots import join, marks, metric_axis, plain, scaled, upright
from dse.errors import InputError
from dse.questions.whatif.demand import Demanded, tokens_per_request
from dse.questions.whatif.inputs import DEMAND, Change, Input, change_to, find_input, read_change
from dse.questions.whatif.solve import Progress, Solved, Stand, describe, described, words
from dse.questions.whatif.words import (
    HELD_NOTE,
    Json,
    by_words,
    held_columns,
    load_of,
    metric_columns,
    named,
    taking,
)
from dse.schema.loader import load_yaml

MOST_LISTED = 10
DAY = 86_400.0  # seconds
DRAWN = 400  # points of a front in a picture
MOST_STEPS = 101
REFINE = 40  # halvings of an interval in which the winner changes


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name and what it changes."""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """An input and its steps, ascending or descending."""

    input: Input
    steps: tuple[Change, ...]


def from_flags(settings: Sequence[str], known: Mapping[str, Input]) -> list[Scenario]:
    """All of `--set` together, as one scenario. Raises InputError for an input that is set
    twice."""
    if not settings:
        return []
    changes = tuple(read_change(text, known) for text in settings)
    names = [one.input.name for one in changes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is set twice", field="--set", accepted="each input once")
    return [Scenario(", ".join(_short(one) for one in changes), changes)]


def _short(change: Change) -> str:
    """`workload prompt tokens 2x`, which a narrow column can wrap; ids and metrics as they are."""
    of, _, last = change.input.name.rpartition(".")
    name = last if of == "limit" else last.replace("_", " ")
    of = of.removeprefix("chip.").removeprefix("costs").replace(".", " ")
    return f"{of} {name} {change.written}".strip()


def from_file(path: str, known: Mapping[str, Input]) -> list[Scenario]:
    """The scenarios of a file: `scenarios: {NAME: {INPUT: CHANGE}}`. Raises InputError with file,
    line and field."""
    document = load_yaml(path)
    for key in document.data:
        if key != "scenarios":
            raise document.error((key,), f"unknown field {key!r}", "scenarios")
    written = document.data.get("scenarios")
    if not isinstance(written, Mapping) or not written:
        accepted = "scenarios: {NAME: {INPUT: CHANGE}}"
        raise document.error(("scenarios",), "no scenario", accepted)
    found = []
    for name, changes in written.items():
        if not isinstance(changes, Mapping) or not changes:
            accepted = "INPUT: CHANGE lines, such as chip.all.price: 0.8x"
            raise document.error(("scenarios", name), f"read {changes!r}", accepted)
        read = []
        for one, text in changes.items():
            try:
                read.append(change_to(find_input(str(one), known, str(one)), str(text), str(one)))
            except InputError as error:
                at = ("scenarios", name, one)
                raise document.error(at, error.message, str(error.accepted)) from None
        found.append(Scenario(str(name), tuple(read)))
    return found


def read_sweep(written: str, known: Mapping[str, Input]) -> Sweep:
    """`chip.all.price=0.5x..2x:7`: so many steps, evenly spaced. Raises InputError."""
    field = f"--sweep {written}"
    form = "INPUT=FROM..TO:STEPS, such as chip.h100_sxm.price=1USD/h..4USD/h:7"
    name, equals, rest = written.partition("=")
    ends, colon, count = rest.rpartition(":")
    first, dots, last = ends.partition("..")
    if not (equals and colon and dots):
        raise InputError(f"read {written!r}", field="--sweep", accepted=form)
    one = find_input(name, known, "--sweep")
    if not count.strip().isdigit() or not 2 <= int(count) <= MOST_STEPS:
        message = "a sweep of one point" if count.strip() == "1" else f"read {count!r} steps"
        raise InputError(message, field=field, accepted=f"2 to {MOST_STEPS} steps")
    a, b = change_to(one, first.strip(), field), change_to(one, last.strip(), field)
    if (a.value is None) != (b.value is None):
        raise InputError("one end is a factor", field=field, accepted="two factors or two values")
    if a.factor == b.factor and a.value == b.value:
        raise InputError("a sweep of one point", field=field, accepted="two ends that differ")
    spaced = np.linspace(0.0, 1.0, int(count))
    return Sweep(one, tuple(_between(a, b, float(x)) for x in spaced))


def _between(a: Change, b: Change, x: float) -> Change:
    """The change a share `x` of the way from `a` to `b`."""
    if a.value is None or b.value is None:
        factor = a.factor + x * (b.factor - a.factor)
        return replace(a, factor=factor, written=f"{factor:.4g}x")
    value = a.value + x * (b.value - a.value)
    return replace(a, value=value, written=a.input.show(value))


def scenario_row(stand: Stand, scenario: Scenario) -> dict[str, Any]:
    """What the changes do: the winner after, and the old winner under the changed inputs."""
    before, after = stand.now, stand.under(*scenario.changes)
    problem, a, b = after.problem, before.value, after.value
    stayed = np.isin(after.ids, before.ids)
    kept = None
    if before.winner_id is not None:
        kept = described(problem, before.winner_id)
        found = problem.evaluate(problem.space.unrank(np.array([before.winner_id])))
        kept["feasible"] = bool((found.G <= 0.0).all())
    return {
        "name": scenario.name,
        "changes": [_change_row(change) for change in scenario.changes],
        "winner": after.point,
        "same_winner": after.winner is not None and after.winner_id == before.winner_id,
        "old_winner": kept,
        "change": b / a - 1.0 if a and b is not None else None,
        "demand_of_as_many_requests": _as_many(stand.problem, problem),
        "front": {
            "size_before": len(before.ids),
            "size": len(after.ids),
            "stayed": int(stayed.sum()),
            "entered": _listed(after, ~stayed),
            "left": _listed(before, ~np.isin(before.ids, after.ids)),
            "chips_before": _chips(stand.problem, before.ids),
            "chips": _chips(problem, after.ids),
        },
        "infeasible_because": after.miss if after.winner is None else None,
        "picture": _picture(before, after),
    }


def _as_many(before: Demanded, after: Demanded) -> float | None:
    """The factor of a demand, in tokens, of as many requests as before; None without a demand,
    where requests have as many tokens as before, and where the demand has that factor already."""
    if before.demand is None or after.demand is None:
        return None
    a, b = before.demand.average_tokens_per_s, after.demand.average_tokens_per_s
    longer = tokens_per_request(after) / tokens_per_request(before)
    if a is None or b is None or math.isclose(longer, 1.0):
        return None
    return None if math.isclose(b / a, longer, rel_tol=0.01) else longer


def _picture(before: Solved, after: Solved) -> dict[str, Any]:
    """Two fronts in their first two objectives, those in dollars and seconds before others, thinned
    to DRAWN points each."""
    names = [one.metric for one in before.problem.objectives]
    order = sorted(range(len(names)), key=lambda k: (not names[k].startswith("usd_"), k))
    chosen = order[:2] if len(order) > 1 else [order[0], order[0]]
    latency = [k for k in order if names[k] in ("tpot_s", "ttft_s")]
    if latency:
        chosen = [latency[0], next(k for k in order if k != latency[0])]

    def column(solved: Solved, k: int) -> list[float]:
        sign = solved.problem.objectives[k].sign
        rows = _evenly(len(solved.ids), DRAWN)
        return (sign * solved.F[rows, k]).tolist()

    return {
        "x": names[chosen[0]],
        "y": names[chosen[1]],
        "before": [column(before, k) for k in chosen],
        "after": [column(after, k) for k in chosen],
    }


def _evenly(count: int, most: int) -> np.ndarray:
    """At most so many of `count` rows, evenly."""
    return np.unique(np.linspace(0, count - 1, most).astype(int)) if count else np.zeros(0, int)


def _change_row(change: Change) -> dict[str, Any]:
    one = change.input
    return {
        "input": one.name,
        "written": change.written,
        "before": one.now,
        "after": change.after,
        "before_words": None if one.now is None else one.show(one.now),
        "after_words": change.written if change.after is None else one.show(change.after),
        "unit": one.dimension,
    }


def _chips(problem: Demanded, ids: np.ndarray) -> dict[str, int]:
    """How many points of a front each chip has."""
    if not len(ids):
        return {}
    batch = problem.batch(problem.space.unrank(ids))
    counts = Counter(problem.machines.ids[code] for code in batch.chip)
    return dict(counts.most_common())


def _listed(solved: Solved, mine: np.ndarray) -> dict[str, Any]:
    """Of the front points `mine` (k,): how many, how many of each chip, and a few, evenly by the
    objectives."""
    rows = np.flatnonzero(mine)
    order = rows[np.lexsort((solved.ids[rows], *solved.F[rows].T[::-1]))]
    few = order[_evenly(len(order), MOST_LISTED)]
    return {
        "count": len(rows),
        "chips": _chips(solved.problem, solved.ids[rows]),
        "points": describe(solved.problem, solved.ids[few]),
    }


def sweep_rows(
    stand: Stand,
    sweep: Sweep,
    fixed: Sequence[Change] = (),
    progress: Progress = lambda text: None,
) -> dict[str, Any]:
    """The winner at every step, and between which values it changes. Where two winners meet, the
    crossing of the two is bisected."""
    rows: list[dict[str, Any]] = []
    switches, last = [], None
    for k, step in enumerate(sweep.steps):
        found = stand.under(*fixed, step)
        rows.append(
            {
                **_step(step),
                "objective": found.value,
                "winner": found.point,
                "front_size": len(found.ids),
                "infeasible_because": found.miss if found.winner is None else None,
            }
        )
        if last is not None and last.winner_id != found.winner_id:
            at = _crossing(stand, sweep.steps[k - 1 : k + 1], last, found, fixed)
            was, now = rows[k - 1]["winner"], rows[k]["winner"]
            none = {"value": None, "factor": None, "words": None}
            switches.append(
                {"from": was, "to": now, "after_step": k}
                | (none if at is None else _step(at))
                | {"chip": (was and was["chip"]) != (now and now["chip"])}
            )
        last = found
        progress(f"{sweep.input.name}: step {k + 1} of {len(sweep.steps)}")
    one = sweep.input
    return {
        "input": one.name,
        "unit": one.dimension,
        "now": one.now,
        "rows": rows,
        "switches": switches,
    }


def _step(change: Change) -> dict[str, Any]:
    after, factor = change.after, f"{change.factor:.4g}x"
    return {
        "value": after,
        "factor": None if change.value is not None else change.factor,
        "words": factor if after is None else change.input.show(after),
    }


def _crossing(
    stand: Stand, ends: Sequence[Change], a: Solved, b: Solved, fixed: Sequence[Change]
) -> Change | None:
    """Where, between two steps, the winner of `b` takes the place of that of `a`, the two alone
    compared: None where one of them is nothing feasible."""
    if a.winner_id is None or b.winner_id is None:
        return None
    ids = np.sort(np.array([a.winner_id, b.winner_id]))
    pair = replace(stand, points=replace(stand.points, ids=ids))
    left, right = 0.0, 1.0
    for _ in range(REFINE):
        middle = (left + right) / 2.0
        found = pair.under(*fixed, _between(ends[0], ends[1], middle))
        if found.winner is None:
            return None
        left, right = (left, middle) if found.winner_id == b.winner_id else (middle, right)
    return _between(ends[0], ends[1], right)


def sentences(document: Json, brief: bool = False) -> list[str]:
    """`brief`: of the winner alone, not of the front."""
    metric = document["objective"]
    found = [_scenario_words(row, metric, brief) for row in document["scenarios"]]
    return found + [_sweep_words(row, metric) for row in document["sweeps"]]


def blocks(document: Json) -> list[Block]:
    """Pictures, then the tables."""
    metric = document["objective"]
    scenarios, sweeps = document["scenarios"], document["sweeps"]
    found: list[Block] = [
        _front_figure(k, row) for k, row in enumerate(scenarios) if row["picture"]["after"][0]
    ]
    for k, row in enumerate(sweeps):
        found.append(_sweep_figure(k, row, metric))
        if held_columns(row["rows"]):
            found.append(_sweep_figure(k, row, metric, hourly=True))
    if scenarios:
        found.append(_scenario_table(document))
    for k, row in enumerate(scenarios):
        if any(row["front"][kind]["count"] for kind in ("entered", "left")):
            found.append(_front_table(k, row, metric))
    return found + [_sweep_table(k, row, metric) for k, row in enumerate(sweeps)]


def _scenario_words(row: Json, metric: str, brief: bool) -> str:
    front, winner, old = row["front"], row["winner"], row["old_winner"]
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
        who, then = "it stays first", ""
    else:
        who, then = f"{words(winner)} wins", "the old one no longer keeps the limits; "
        if old["feasible"]:
            was = show(metric, old["metrics"][metric])
            then = f"in its place the old one would be at {was}; "
    rest = then.removesuffix("; ") if brief else f"{then}{moved}"
    found = f"With {row['name']}, {who} at {value}, {by}{'; ' if rest else ''}{rest}."
    times = row["demand_of_as_many_requests"]
    if times is None:
        return found
    other = "longer requests are fewer" if times > 1.0 else "shorter requests are more"
    return (
        f"{found} The demand counts tokens, so {other}: as many as before are demand={times:.3g}x."
    )


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
    found = f"With {row['input']} from {steps[0]['words']} to {steps[-1]['words']}: {values}"
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
    now = {"winner": document["winner"], "change": "", "size": document["front_size"]}
    rows: list[Json] = [{"name": "as things stand", **now}]
    for one in document["scenarios"]:
        rows.append(one | {"size": one["front"]["size"]})
        if one["winner"] is not None and not one["same_winner"]:
            old = one["old_winner"]
            name = "  the old winner then" + ("" if old["feasible"] else " (breaks a limit)")
            rows.append({"name": name, "winner": old, "change": "", "size": ""})
    held = held_columns(rows)
    latencies = ("tpot_s",) if held else ("tpot_s", "ttft_s")
    shown = [name for name in latencies if name in document["winner"]["metrics"]]
    columns = (
        Column("name", "", first=True),
        Column("winner", "winner", of=lambda one: words(one["winner"])),
        *held,
        *metric_columns(document["objective"], *shown, first=1),
        Column("change", "change", "change", first=True),
        Column("size", "front", "count"),
    )
    notes = (HELD_NOTE,) if held else ()
    return Table.of("scenarios", "Before and after: the winner", rows, columns, notes)


def _front_table(k: int, row: Json, metric: str) -> Table:
    front, both = row["front"], ("entered", "left")
    points = [{"kind": kind, "winner": point} for kind in both for point in front[kind]["points"]]
    notes = []
    for kind in both:
        chips = ", ".join(f"{count:,} {chip}" for chip, count in front[kind]["chips"].items())
        notes += [f"{kind}: {chips}."] if chips else []
    total = sum(front[kind]["count"] for kind in both)
    if len(points) < total:
        notes.append(f"{len(points)} of {total:,} are shown, evenly along the front.")
    columns = (
        Column("kind", ""),
        Column("point", "point", of=lambda one: words(one["winner"])),
        *metric_columns(metric, "tpot_s"),
    )
    caption = f"What enters and leaves the front: {row['name']}"
    return Table.of(f"front {k + 1}", caption, points, columns, notes)


def _sweep_table(k: int, row: Json, metric: str) -> Table:
    at = {one["after_step"] for one in row["switches"]}
    steps = [one | {"mark": "*" if j in at else ""} for j, one in enumerate(row["rows"])]
    held = held_columns(steps)
    notes = [HELD_NOTE] if held else []
    notes += ["* another winner than a line above."] if at else []
    if row["input"] == DEMAND and held and at:
        notes.append("Deployments are whole: the lead may change more than once between two lines.")
    title = row["input"].replace(".", " ") if held else row["input"]  # which may wrap
    columns = (
        Column("words", title, right=True, first=True),
        Column("objective", named(metric), metric, first=True),
        *held,
        Column("winner", "winner", of=lambda one: words(one["winner"]) + one["mark"]),
    )
    return Table.of(f"sweep {k + 1}", f"Sweep of {row['input']}", steps, columns, notes)


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
        y = [load_of(step["winner"]).get("usd_per_hour") for step in steps]
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
    unit = "B tokens/day" if of_demand else row["unit"].replace("usd", "USD")
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
