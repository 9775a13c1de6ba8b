"""The tables of a comparison with published designs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dse.answer.answer import Cell, Column, Figure, Table, side_by_side
from dse.answer.numbers import times
from dse.answer.palette import BLUE, plain
from dse.answer.plots import bars, names_axis, upright
from dse.questions.rediscovery.answer import Rediscovery, Variant
from dse.questions.rediscovery.expert import Place
from dse.questions.rediscovery.words import (
    KINDS,
    NAMES,
    billions,
    figures,
    most_of_it,
    nats,
    standing,
    value_words,
)


def summary(answers: Sequence[Rediscovery]) -> Table:
    """One line a case."""

    def beside(found: Rediscovery) -> str:
        own, ratio = float(found.table.equivalent[found.expert]), found.distance.equivalent_ratio
        return f"{billions(own)} / {billions(None if ratio is None else own * ratio)}"

    return Table.of(
        "summary",
        "Distance to the front",
        answers,
        (
            Column("case", "case", of=lambda one: one.case.title),
            Column(
                "standing", "the design is", of=lambda one: standing(one.distance, one.servable)
            ),
            Column(
                "cost_ratio",
                "cost at equal quality",
                right=True,
                of=lambda one: times(one.distance.cost_ratio),
            ),
            Column(
                "nats", "loss at equal cost", right=True, of=lambda one: nats(one.distance.nats)
            ),
            Column("dense_equivalent", "dense equal, its / front's", right=True, of=beside),
            Column(
                "beaten_by",
                "beaten by shapes",
                right=True,
                of=lambda one: f"{one.distance.dominating:,} of {one.served:,}",
            ),
            Column("assumption", "cost with one assumption less", of=most_of_it),
        ),
    )


def known_table(found: Rediscovery) -> Table:
    return Table.of(
        "known",
        "What was known",
        found.case.known,
        (
            Column("what", "what"),
            Column("value", "value"),
            Column("kind", "kind"),
            Column(
                "source",
                "source or reason",
                of=lambda one: ", ".join(filter(None, (one.source, one.date))) or one.note,
            ),
        ),
    )


def shape_table(found: Rediscovery) -> Table:
    """The design, where it lies on the grid, and the nearest shapes of the front."""
    near = {"cheaper": found.distance.cheaper, "better": found.distance.better}
    rows_of = {name: row for name, row in near.items() if row is not None}
    where = {place.axis: place for place in found.places}
    rows: list[tuple[str, list[Cell]]] = []
    for axis in found.table.shape_axes:
        values = found.table.values[axis]
        cells = [float(values[row]) for row in (found.expert, *rows_of.values())]
        if not any(cells) or axis in ("vocab_size", "tied_embeddings", "attention_bias"):
            continue
        own, *others = [
            value_words(axis, cell) if cell or axis in KINDS else None for cell in cells
        ]
        rows.append((NAMES.get(axis, axis), [own, _place(where.get(axis), axis), *others]))
    columns = [figures(found, row) for row in rows_of.values()]
    for title, own in figures(found, found.expert).items():
        rows.append((title, [own, "", *(one[title] for one in columns)]))
    titles = {"name": "", "design": found.case.expert.name, "grid": "on the grid"}
    titles |= {name: f"front, {name}" for name in rows_of}
    caption = "The design and the nearest shapes of the front"
    return side_by_side("shapes", caption, titles, rows)


def _place(place: Place | None, axis: str) -> str:
    if place is None or (place.below is None and place.above is None):
        return "given" if place is not None and place.on else ""
    low, high = (
        "" if end is None else value_words(axis, end) for end in (place.below, place.above)
    )
    if place.on:
        return "yes" if low and high else "yes, at an end"
    return f"no, {low} or {high}" if place.inside else "no, outside"


def variant_table(found: Rediscovery) -> Table:
    as_said = Variant("", "as the case says", found.distance, len(found.front.rows))

    def cost(one: Variant) -> str:
        known = one is as_said or one.front_size
        return times(one.distance.cost_ratio) if known else "no rival"

    return Table.of(
        "variants",
        "The same with one assumption changed",
        [as_said, *found.variants],
        (
            Column("with", "with", of=lambda one: one.words, first=True),
            Column("cost_ratio", "cost at equal quality", right=True, of=cost, first=True),
            Column(
                "nats", "loss above the front", right=True, of=lambda one: nats(one.distance.nats)
            ),
            Column(
                "dominating",
                "shapes that beat it",
                "count",
                of=lambda one: one.distance.dominating,
            ),
        ),
    )


def variant_figure(found: Rediscovery) -> Figure:
    """What the design costs over the front, as the case says and with one assumption changed."""
    known = [("as the case says", found.distance.cost_ratio)]
    known += [(one.words, one.distance.cost_ratio) for one in found.variants if one.front_size]
    rows = [
        (plain(words.partition(" (")[0].partition(":")[0].replace("`", "")), ratio)
        for words, ratio in known
        if ratio is not None
    ][::-1]
    names = [words for words, _ in rows]
    title = "cost, times that of the front"
    layout = {
        "height": 110 + 46 * len(rows),
        "xaxis": {"title": {"text": title}},
        "yaxis": names_axis(names),
        "shapes": [upright(1.0)],
    }
    return Figure(
        "variants-plot",
        "What it costs over the front, with one assumption changed",
        {"data": [bars(title, [ratio for _, ratio in rows], names, BLUE)], "layout": layout},
        "A bar for each assumption. At the dashed line it costs what the front does; left of it, "
        "less.",
    )


def cause_table(answers: Sequence[Rediscovery]) -> Table:
    """What each choice of the cheaper shape saves, a column a case."""
    of = [one.causes for one in answers]
    choices = dict.fromkeys(name for causes in of for name in causes)
    rows: list[tuple[str, list[Cell]]] = [
        (name, [times(causes.get(name)) if name in causes else None for causes in of])
        for name in choices
    ]
    rows.append(("all together", [times(math.prod(c.values())) if c else None for c in of]))
    titles = {"name": "choice"} | {one.case.name: one.case.title for one in answers}
    return side_by_side("causes", "What is saved at equal quality, by choice", titles, rows)
