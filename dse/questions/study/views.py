"""The views of a study (`dse.study.views`): sentences, tables, a picture and maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Block, Column, Figure, Section, Table
from dse.answer.labels import axis_title, label
from dse.answer.numbers import show, significant
from dse.answer.plots import PALETTE, SYMBOLS, plain, scaled
from dse.problem.words import axis_words
from dse.questions.study.chosen import Json
from dse.schema.metrics import EVERY

HEIGHT_PX = 440
MAPS_ABOUT = (
    "The same for each {0} (rows) and {1} (columns): the darker, the nearer to the least price of "
    "its table, which is framed; colourless at three times that. A dash: the loss is not reached."
)
SPARSE = {False: "dense", True: "sparse"}
DESIGN = ("predicted_loss", "tpot_s", "active_parameters", "total_parameters", "training_tokens")
LAW_LEVELS = ("best loss that all reach", "half-way to the cheapest")


def _named(axis: str, value: Any) -> str:
    """A value of an axis, as a person writes it."""
    if axis == "sparse":
        return SPARSE[bool(value)]
    if axis in EVERY:
        return show(axis, value)
    return f"{value:,}" if type(value) in (int, float) else str(value).lower()


def _names(view: Json) -> list[str]:
    """The values that a view compares."""
    return view.get("names") or [_named(view["by"], value) for value in view["values"]]


def _cheapest(view: Json, name: str) -> str:
    """`the cheapest dense design`, `the cheapest design on h200_sxm`."""
    if view["by"] == "sparse":
        return f"the cheapest {name} design"
    where = "on" if view["by"] == "chip" else f"with {axis_words(view['by'])}"
    return f"the cheapest design {where} {name}"


def view_sections(study: Mapping[str, Any]) -> list[Section]:
    """A section for each view."""
    return [_section(k, view) for k, view in enumerate(study.get("views") or ())]


def _section(k: int, view: Json) -> Section:
    blocks: list[Block] = [level_table(k, view), *maps(k, view), _figure(k, view)]
    blocks += [_law_table(k, view)] if view["laws"] else []
    blocks.append(Section("The designs", [_design_table(k, view)], folded=True))
    about = (
        "Of every design of the space that meets the limits, the least "
        f"{label(view['cost']).text} whose predicted loss is at most that of the row. Designs "
        "that are not on the front count too: these are compared with their own kind alone."
    )
    return Section(_heading(view), blocks, [about], f"views-{k}", on_console=False)


def _heading(view: Json) -> str:
    names = _names(view)
    if view["map"]:
        over = " and ".join(axis_words(name) for name in view["map"])
        return f"Which {over} suit each {axis_words(view['by'])}"
    kind = "system" if "names" in view else axis_words(view["by"])
    who = " against ".join(names) if len(names) == 2 else f"each {kind}"
    return f"At equal predicted loss: {who}"


def view_answers(study: Mapping[str, Any]) -> list[str]:
    """What each view says, in a sentence or two a view; empty where there is none."""
    return [_answer(view) for view in study.get("views") or ()]


def _answer(view: Json) -> str:
    row = _told(view)
    if row is None:
        return f"No level of predicted loss has designs of two values of {axis_words(view['by'])}."
    found = [
        (best["metrics"][view["cost"]], name, best)
        for name, best in zip(_names(view), row["best"], strict=True)
        if best is not None
    ]
    found.sort(key=lambda one: one[:2])
    level = f"At a predicted loss of {row['level']:g}"
    if view["map"]:
        places: dict[str, list[str]] = {}
        for cost, name, best in found:
            places.setdefault(_at(view, best), []).append(f"{name} ({show(view['cost'], cost)})")
        said = "; ".join(f"{place} for {', '.join(names)}" for place, names in places.items())
        over = " × ".join(axis_words(name) for name in view["map"])
        return f"{level} the cheapest {over} is {said}."
    (low, first, best), (high, last, worst) = found[0], found[-1]
    active = [
        show("active_parameters", one["metrics"]["active_parameters"]) for one in (worst, best)
    ]
    memory = [show("memory_bytes", one["memory_bytes"]) for one in (worst, best)]
    said = (
        f"{level} {_cheapest(view, first)} costs {show(view['cost'], low)} per million tokens "
        f"and {_cheapest(view, last)} {show(view['cost'], high)}, {significant(high / low)} times "
        f"as much; the weights of the dearer take {memory[0]} against {memory[1]}, and a token "
        f"uses {active[0]} parameters against {active[1]}."
    )
    return " ".join([said, *_unreached(view), *_law_sentences(view)])


def _told(view: Json) -> Json | None:
    """Of the levels that most values reach the lowest, of a map the one in the middle; two must
    reach it."""
    counts = [sum(best is not None for best in row["best"]) for row in view["levels"]]
    most = max(counts, default=0)
    full = [row for row, n in zip(view["levels"], counts, strict=True) if n == most]
    return full[(len(full) - 1) // 2 if view["map"] else 0] if most > 1 else None


def _unreached(view: Json) -> list[str]:
    """How far the values get, where they differ."""
    best = [
        (min(curve["loss"], default=None), name)
        for curve, name in zip(view["curves"], _names(view), strict=True)
    ]
    known = sorted((loss, name) for loss, name in best if loss is not None)
    said = [
        f"{name[:1].upper()}{name[1:]}: no design meets the limits."
        for loss, name in best
        if loss is None
    ]
    if len(known) > 1 and known[-1][0] - known[0][0] >= 5e-4:
        lowest = ", ".join(f"{name} {loss:.3f}" for loss, name in known)
        said.append(f"The lowest predicted loss within the limits: {lowest}.")
    return said


def _at(view: Json, best: Json) -> str:
    return " × ".join(
        _named(axis, value) for axis, value in zip(view["map"], best["at"], strict=True)
    )


def level_table(k: int, view: Json) -> Table:
    """A row a level of predicted loss: the least price of each value; of two values also price,
    memory and active parameters of the first over the second, of a map its place."""
    names, cost = _names(view), view["cost"]

    def price(row: Json, i: int) -> str:
        best = row["best"][i]
        if best is None:
            return "not reached"
        said = show(cost, best["metrics"][cost])
        return f"{said} at {_at(view, best)}" if view["map"] else said

    def over(row: Json, size: Any) -> str | None:
        first, second = row["best"]
        return None if first is None or second is None else significant(size(first) / size(second))

    ratios = {
        "price": lambda best: best["metrics"][cost],
        "memory of the weights": lambda best: best["memory_bytes"],
        "active parameters": lambda best: best["metrics"]["active_parameters"],
    }
    columns = [Column("level", "predicted loss at most", right=True, of=_level)]
    columns += [
        Column(f"price_{i}", name, right=True, of=lambda row, i=i: price(row, i))
        for i, name in enumerate(names)
    ]
    if len(names) == 2 and not view["map"]:
        columns += [
            Column(
                what,
                f"{what}, {names[0]} ÷ {names[1]}",
                right=True,
                of=lambda row, size=size: over(row, size),
            )
            for what, size in ratios.items()
        ]
    return Table.of(f"levels-{k}", "", view["levels"], columns, on_console=False)


def _level(row: Json) -> str:
    return f"{row['level']:g}"


def _design_table(k: int, view: Json) -> Table:
    """A row for each level and value: the cheapest design."""
    found = [
        {**best, **best["metrics"], "loss": _level(row), "value": name}
        for row in view["levels"]
        for name, best in zip(_names(view), row["best"], strict=True)
        if best is not None
    ]
    columns = (
        Column("loss", "loss at most", right=True),
        Column("value", axis_words(view["by"])),
        *(Column(name, label(name).text, name) for name in (view["cost"], *DESIGN)),
        Column("memory_bytes", "memory of the weights", "bytes"),
        Column("shape", "shape"),
        Column("deployment", "deployment"),
    )
    return Table.of(f"designs-{k}", "", found, columns, on_console=False)


def _law_table(k: int, view: Json) -> Table:
    """A row a quality law: the least prices at the best loss that all values reach, and half-way
    to the loss of the cheapest; of two values their ratio."""
    names, rows = _names(view), []
    for law in view["laws"]:
        row = {"law": law["law"]}
        for i, at in enumerate(law["levels"]):
            row |= {f"cost_{i}_{j}": cost for j, cost in enumerate(at["cost"])}
            row |= {f"level_{i}": f"{at['level']:.3f}", f"over_{i}": at["cost"][0] / at["cost"][-1]}
        rows.append({"level_0": "not reached by all", **row})
    columns = [Column("law", "quality law")]
    for i, title in enumerate(LAW_LEVELS):
        columns.append(Column(f"level_{i}", title, right=True))
        columns += [Column(f"cost_{i}_{j}", name, view["cost"]) for j, name in enumerate(names)]
        if len(names) == 2:
            columns.append(Column(f"over_{i}", f"{names[0]} ÷ {names[1]}", "rate"))
    title, notes = "Under each quality law", _law_sentences(view)
    return Table(f"view-laws-{k}", title, columns, rows, notes, on_console=False)


def _law_sentences(view: Json) -> list[str]:
    """How far the ratio of two values moves with the law; empty where it was not asked."""
    ratios = [
        at["cost"][0] / at["cost"][1]
        for row in view["laws"]
        for at in row["levels"]
        if len(at["cost"]) == 2
    ]
    if not ratios:
        return []
    a, b = _names(view)
    low, high = min(ratios), max(ratios)
    verdict = "which is cheaper depends on the law"
    if low > 1.0 or high < 1.0:
        verdict = f"{b if low > 1.0 else a} is cheaper under every law"
    return [
        f"Over all laws and both levels {_cheapest(view, a)} costs {significant(low)} to "
        f"{significant(high)} times as much as {_cheapest(view, b)}: {verdict}."
    ]


def maps(k: int, view: Json) -> list[Section]:
    """For each level of loss a table for each value, unfolded for the level of the answer."""
    if not view["map"]:
        return []
    told = _told(view)
    about = [MAPS_ABOUT.format(*(axis_words(name) for name in view["map"]))]
    found = []
    for i, one in enumerate(view["cells"]):
        tables = [
            _map(f"map-{k}-{i}-{j}", view, name, cost)
            for j, (name, cost) in enumerate(zip(_names(view), one["cost"], strict=True))
        ]
        shown = told is not None and one["level"] == told["level"]
        title = f"At a predicted loss of {one['level']:g}"
        found.append(Section(title, tables, about, folded=not shown))
    return found


def _map(name: str, view: Json, caption: str, cost: list[list[float | None]]) -> Table:
    titles = [_named(view["map"][1], column) for column in view["columns"]]
    heads = [_named(view["map"][0], head) for head in view["rows"]]
    columns = [Column("at", "", right=True), *(Column(t, t, view["cost"]) for t in titles)]
    rows = [
        {"at": head, **dict(zip(titles, row, strict=True))}
        for head, row in zip(heads, cost, strict=True)
    ]
    return Table(name, caption, columns, rows, shaded=True)


def _figure(k: int, view: Json) -> Figure:
    """The least price for each predicted loss, a line a value."""
    cost = view["cost"]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(name),
            "x": scaled(cost, curve["cost"]),
            "y": curve["loss"],
            "line": {"shape": "hv", "color": PALETTE[i % len(PALETTE)], "width": 2},
            "marker": {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 7},
        }
        for i, (curve, name) in enumerate(zip(view["curves"], _names(view), strict=True))
        if curve["loss"]
    ]
    layout = {
        "height": HEIGHT_PX,
        "xaxis": {"title": {"text": axis_title(cost)}, "type": "log"},
        "yaxis": {"title": {"text": axis_title(view["quality"])}},
    }
    shows = "The least price for each predicted loss, a line for each value."
    return Figure(f"view-{k}", "", {"data": traces, "layout": layout}, shows)
