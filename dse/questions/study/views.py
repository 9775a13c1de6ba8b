"""The views of a study (`dse.study.views`): sentences, tables, a picture and maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.answer import Block, Column, Figure, Section, Table, table_of_texts
from dse.answer.labels import axis_title, label
from dse.answer.numbers import show, significant
from dse.answer.palette import PALETTE, SYMBOLS, plain
from dse.questions.study.folder import Json
from dse.schema.metrics import EVERY

HEIGHT_PX = 440
MAPS_ABOUT = (
    "The same for each {0} (rows) and {1} (columns): the darker, the nearer to the least price of "
    "its table, which is framed; colourless at three times that. A dash: the loss is not reached."
)
SPARSE = {False: "dense", True: "sparse"}


def named(view: Json, value: Any) -> str:
    """A value of the axis in words."""
    return _value(view["by"], value)


def _value(axis: str, value: Any) -> str:
    """A value of an axis, as a person writes it."""
    if axis == "sparse":
        return SPARSE[bool(value)]
    if axis in EVERY:
        return show(axis, value)
    return f"{value:,}" if type(value) in (int, float) else str(value).lower()


def _cheapest(view: Json, name: str) -> str:
    """`the cheapest dense design`, `the cheapest design on h200_sxm`."""
    if view["by"] == "sparse":
        return f"the cheapest {name} design"
    where = "on" if view["by"] == "chip" else f"with {axis_words(view['by'])}"
    return f"the cheapest design {where} {name}"


def axis_words(name: str) -> str:
    return {"num_experts": "number of experts"}.get(name, name.replace("_", " "))


def view_sections(study: Mapping[str, Any]) -> list[Section]:
    """A section for each view."""
    return [_section(k, view) for k, view in enumerate(study.get("views") or ())]


def _section(k: int, view: Json) -> Section:
    laws, designs = law_view_rows(view), design_rows(view)
    words = (1, len(designs[0]) - 2, len(designs[0]) - 1)
    blocks: list[Block] = [table_of_texts(f"levels-{k}", "", level_rows(view), ()), *maps(k, view)]
    blocks.append(view_figure(k, view))
    if laws:
        over = [law_view_sentence(view)] if law_view_sentence(view) else []
        title = "Under each quality law"
        blocks.append(table_of_texts(f"view-laws-{k}", title, laws, notes=over))
    table = table_of_texts(f"designs-{k}", "", designs, words)
    blocks.append(Section("The designs", [table], folded=True))
    return Section(heading(view), blocks, [about(view)], f"views-{k}", on_console=False)


def about(view: Json) -> str:
    """What the numbers of a view are."""
    return (
        "Of every design of the space that meets the limits, the least "
        f"{label(view['cost']).text} whose predicted loss is at most that of the row. Designs "
        "that are not on the front count too: these are compared with their own kind alone."
    )


def heading(view: Json) -> str:
    names = [named(view, value) for value in view["values"]]
    if view["map"]:
        over = " and ".join(axis_words(name) for name in view["map"])
        return f"Which {over} suit each {axis_words(view['by'])}"
    who = " against ".join(names) if len(names) == 2 else f"each {axis_words(view['by'])}"
    return f"At equal predicted loss: {who}"


def view_answers(study: Mapping[str, Any]) -> list[str]:
    """What each view says, in a sentence or two a view; empty where there is none."""
    return [_answer(view) for view in study.get("views") or ()]


def _answer(view: Json) -> str:
    row = _told(view)
    if row is None:
        return f"No level of predicted loss has designs of two values of {axis_words(view['by'])}."
    found = [
        (best["metrics"][view["cost"]], named(view, value), best)
        for value, best in zip(view["values"], row["best"], strict=True)
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
    said = (
        f"{level} {_cheapest(view, first)} costs {show(view['cost'], low)} per million tokens "
        f"and {_cheapest(view, last)} {show(view['cost'], high)}, {significant(high / low)} times "
        f"as much; the weights of the dearer take {show('memory_bytes', worst['memory_bytes'])} "
        f"against {show('memory_bytes', best['memory_bytes'])}, and a token uses "
        f"{show('active_parameters', worst['metrics']['active_parameters'])} parameters against "
        f"{show('active_parameters', best['metrics']['active_parameters'])}."
    )
    return " ".join(filter(None, [said, *_unreached(view), law_view_sentence(view)]))


def _told(view: Json) -> Json | None:
    """Of the levels that most values reach the lowest, of a map the one in the middle; two must
    reach it."""
    counts = [sum(best is not None for best in row["best"]) for row in view["levels"]]
    most = max(counts, default=0)
    full = [row for row, n in zip(view["levels"], counts, strict=True) if n == most]
    return full[(len(full) - 1) // 2 if view["map"] else 0] if most > 1 else None


def _unreached(view: Json) -> list[str]:
    """How far the values get, where they differ."""
    best = [(min(c["loss"], default=None), named(view, v)) for c, v in _curves(view)]
    known = sorted((loss, name) for loss, name in best if loss is not None)
    said = [
        f"{name.capitalize()}: no design meets the limits." for loss, name in best if loss is None
    ]
    if len(known) > 1 and known[-1][0] - known[0][0] >= 5e-4:
        lowest = ", ".join(f"{name} {loss:.3f}" for loss, name in known)
        said.append(f"The lowest predicted loss within the limits: {lowest}.")
    return said


def _curves(view: Json) -> list[tuple[Json, Any]]:
    return list(zip(view["curves"], view["values"], strict=True))


def _at(view: Json, best: Json) -> str:
    return " × ".join(
        _value(axis, value) for axis, value in zip(view["map"], best["at"], strict=True)
    )


def level_rows(view: Json) -> list[tuple[str, ...]]:
    """A head and a row a level of predicted loss: the least price of each value; of two values
    also price, memory and active parameters of the first over the second, of a map its place."""
    names = [named(view, value) for value in view["values"]]
    pair = len(names) == 2 and not view["map"]
    over = f"{names[0]} ÷ {names[1]}"
    head = ("predicted loss at most", *names)
    if pair:
        head += (f"price, {over}", f"memory of the weights, {over}", f"active parameters, {over}")
    rows: list[tuple[str, ...]] = [head]
    for row in view["levels"]:
        cells = [_price(view, best) for best in row["best"]]
        rows.append((f"{row['level']:g}", *cells, *(_ratios(view, *row["best"]) if pair else ())))
    return rows


def _price(view: Json, best: Json | None) -> str:
    if best is None:
        return "not reached"
    price = show(view["cost"], best["metrics"][view["cost"]])
    return f"{price} at {_at(view, best)}" if view["map"] else price


def _ratios(view: Json, first: Json | None, second: Json | None) -> tuple[str, ...]:
    if first is None or second is None:
        return ("–",) * 3
    pairs = [
        (first["metrics"][name], second["metrics"][name])
        for name in (view["cost"], "active_parameters")
    ]
    pairs.insert(1, (first["memory_bytes"], second["memory_bytes"]))
    return tuple(f"{significant(a / b)}" for a, b in pairs)


def design_rows(view: Json) -> list[tuple[str, ...]]:
    """A head and a row for each level and value: the cheapest design."""
    metrics = (
        view["cost"],
        "predicted_loss",
        "tpot_s",
        "active_parameters",
        "total_parameters",
        "training_tokens",
    )
    rows = [
        (
            "loss at most",
            axis_words(view["by"]),
            *(label(name).text for name in metrics),
            "memory of the weights",
            "shape",
            "deployment",
        )
    ]
    for row in view["levels"]:
        for value, best in zip(view["values"], row["best"], strict=True):
            if best is not None:
                rows.append(
                    (
                        f"{row['level']:g}",
                        named(view, value),
                        *(show(name, best["metrics"][name]) for name in metrics),
                        show("memory_bytes", best["memory_bytes"]),
                        best["shape"],
                        best["deployment"],
                    )
                )
    return rows


def law_view_rows(view: Json) -> list[tuple[str, ...]]:
    """A head and a row a quality law: the least prices at the best loss that all values reach, and
    half-way to the loss of the cheapest; of two values their ratio."""
    if not view["laws"]:
        return []
    names = [named(view, value) for value in view["values"]]
    pair = len(names) == 2
    over = (f"{names[0]} ÷ {names[1]}",) if pair else ()
    head = (
        "quality law",
        "best loss that all reach",
        *names,
        *over,
        "half-way to the cheapest",
        *names,
        *over,
    )
    rows: list[tuple[str, ...]] = [head]
    for row in view["laws"]:
        cells: list[str] = []
        for at in row["levels"]:
            cells += [f"{at['level']:.3f}", *(show(view["cost"], cost) for cost in at["cost"])]
            cells += [significant(at["cost"][0] / at["cost"][1])] * pair
        rows.append((row["law"], *(cells or ["not reached by all", *["–"] * (len(head) - 2)])))
    return rows


def law_view_sentence(view: Json) -> str:
    """How far the ratio of two values moves with the law; empty where it was not asked."""
    ratios = [
        at["cost"][0] / at["cost"][1]
        for row in view["laws"]
        for at in row["levels"]
        if len(at["cost"]) == 2
    ]
    if not ratios:
        return ""
    a, b = (named(view, value) for value in view["values"])
    low, high = min(ratios), max(ratios)
    if low > 1.0 or high < 1.0:
        verdict = f"{b if low > 1.0 else a} is cheaper under every law"
    else:
        verdict = "which is cheaper depends on the law"
    return (
        f"Over all laws and both levels {_cheapest(view, a)} costs {significant(low)} to "
        f"{significant(high)} times as much as {_cheapest(view, b)}: {verdict}."
    )


def maps(k: int, view: Json) -> list[Section]:
    """For each level of loss a table for each value, unfolded for the level of the answer."""
    if not view["map"]:
        return []
    told = _told(view)
    about = [MAPS_ABOUT.format(*(axis_words(name) for name in view["map"]))]
    found = []
    for i, one in enumerate(view["cells"]):
        shown = told is not None and one["level"] == told["level"]
        tables = [
            _map(f"map-{k}-{i}-{j}", view, value, cost)
            for j, (value, cost) in enumerate(zip(view["values"], one["cost"], strict=True))
        ]
        title = f"At a predicted loss of {one['level']:g}"
        found.append(Section(title, tables, about, folded=not shown))
    return found


def _map(name: str, view: Json, value: Any, cost: list[list[float | None]]) -> Table:
    titles = [_value(view["map"][1], column) for column in view["columns"]]
    return Table(
        name,
        named(view, value),
        (Column("at", "", right=True), *(Column(title, title, view["cost"]) for title in titles)),
        [
            {"at": _value(view["map"][0], head), **dict(zip(titles, row, strict=True))}
            for head, row in zip(view["rows"], cost, strict=True)
        ],
        shaded=True,
    )


def view_figure(k: int, view: Json) -> Figure:
    """The least price for each predicted loss, a line a value."""
    cost = view["cost"]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(named(view, value)),
            "x": [one * label(cost).scale for one in curve["cost"]],
            "y": curve["loss"],
            "line": {"shape": "hv", "color": PALETTE[i % len(PALETTE)], "width": 2},
            "marker": {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 7},
        }
        for i, (curve, value) in enumerate(_curves(view))
        if curve["loss"]
    ]
    layout = {
        "height": HEIGHT_PX,
        "xaxis": {"title": {"text": axis_title(cost)}, "type": "log"},
        "yaxis": {"title": {"text": axis_title(view["quality"])}},
    }
    shows = "The least price for each predicted loss, a line for each value."
    return Figure(f"view-{k}", "", {"data": traces, "layout": layout}, shows)
