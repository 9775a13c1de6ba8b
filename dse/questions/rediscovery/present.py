"""The Answer of published designs against the front of a space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dse.answer.answer import (
    Answer,
    Block,
    Cell,
    Column,
    Figure,
    Notes,
    Table,
    side_by_side,
    table_of,
)
from dse.answer.numbers import times
from dse.answer.plots import BLUE, bars, names_axis, plain, upright
from dse.questions.rediscovery.answer import Rediscovery, Variant
from dse.questions.rediscovery.expert import Place
from dse.questions.rediscovery.path import Step
from dse.questions.rediscovery.words import (
    KINDS,
    NAMES,
    billions,
    figures,
    law_words,
    lead,
    looked_at,
    most_of_it,
    nats,
    of_all,
    standing,
    step_words,
    value_words,
)

WORDS = {
    "front": "the shapes, each on its cheapest deployment, that no other beats in both predicted "
    "loss and price",
    "leverage": "the compute that a dense model would need for the same loss over the sparse one's",
    "dense-equivalent": "the dense model of equal predicted loss and equal training tokens",
}


def design_answer(found: Rediscovery) -> Answer:
    """One design: where it stands, what the front changes, and which assumption does it."""
    said, case = lead(found), found.case
    return Answer(
        question="compare",
        title=case.title,
        asked=f"{case.title}: {case.expert.name} against the front of {case.study.name}; prices: "
        f"{case.study.price_basis}",
        headline=said[0],
        sentences=[*said[1:], looked_at(found)],
        blocks=(variant_figure(found), *design_blocks(found)),
        rests=(law_words(found),),
        document=document(found),
        data=(table_of("front", [found.table.row(int(i)) for i in found.front.rows]),),
        words=WORDS,
    )


def designs_answer(answers: Sequence[Rediscovery]) -> Answer:
    """Several designs: a line each, and a section of all that is said of each."""
    behind = sum((found.distance.cost_ratio or 0.0) > 1.05 for found in answers)
    return Answer(
        question="compare",
        title="Published designs and the front",
        asked=f"{len(answers)} published designs, each against the front of its space",
        headline=f"{behind} of {len(answers)} published designs cost more than 5% above the front "
        "at equal predicted quality.",
        sentences=of_all(answers),
        blocks=(
            summary(answers),
            *(Notes(found.case.title, lead(found)) for found in answers),
        ),
        rests=(law_words(answers[0]),),
        document={"cases": [document(found) for found in answers]},
        words=WORDS,
    )


def design_blocks(found: Rediscovery) -> list[Block]:
    """What was known, the shapes, the way to the front, and what each assumption is worth."""
    case = found.case
    known = known_table(found)
    made: list[Block] = [known] if known.rows else []
    made.append(shape_table(found))
    if case.held:
        held = " and ".join(case.held)
        made.append(Notes("What is held", [f"{held} at the expert's, because {case.why_held}."]))
    for words, steps in path_words(found):
        said = [f"{k}. {step_words(step)}." for k, step in enumerate(steps, 1)]
        made.append(Notes(words, said))
    if found.causes:
        made.append(cause_table([found]))
    return [*made, variant_table(found)]


def document(found: Rediscovery) -> dict[str, Any]:
    """The document of one case."""
    table, away = found.table, found.distance
    servable = found.servable
    row = table.row(found.expert)
    return {
        "case": found.case.name,
        "title": found.case.title,
        "expert": found.case.expert.id,
        "quality_law": found.case.study.quality_law,
        "price_metric": found.objective,
        "price_basis": found.case.study.price_basis,
        "known": [asdict(one) for one in found.case.known],
        "held": {name: list(values) for name, values in found.case.held.items()},
        "why_held": found.case.why_held or None,
        "shapes": found.shapes,
        "served": found.served,
        "price_interval": list(found.price_interval) if servable else None,
        "kernel_laws": found.known_as,
        "standing": standing(away, servable),
        "answer": lead(found),
        "cost_ratio": away.cost_ratio,
        "nats": away.nats,
        "dense_equivalent_ratio": away.equivalent_ratio,
        "dominating": away.dominating,
        "design": row if servable else {**row, "price": None},
        "grid": [asdict(place) | {"inside": place.inside} for place in found.places],
        "front": [table.row(int(i)) for i in found.front.rows],
        "cheaper": _to(found, away.cheaper, found.to_cheaper),
        "better": _to(found, away.better, found.to_better),
        "causes": found.causes,
        "variants": [
            {
                "key": one.key,
                "with": one.words,
                "front_size": one.front_size,
                "cost_ratio": one.distance.cost_ratio,
                "nats": one.distance.nats,
                "dominating": one.distance.dominating,
            }
            for one in found.variants
        ],
    }


def _to(found: Rediscovery, row: int | None, steps: Sequence[Step]) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        **found.table.row(row),
        "path": [
            {
                "changes": {axis: list(ends) for axis, ends in step.changes.items()},
                "price": step.after["price"],
                "predicted_loss": step.after["predicted_loss"],
                "dense_equivalent_parameters": step.after["dense_equivalent_parameters"],
                "words": step_words(step),
            }
            for step in steps
        ],
    }


def path_words(found: Rediscovery) -> list[tuple[str, list[Step]]]:
    """(heading, steps) of each way that leads to the front."""
    ways = [
        ("To the cheapest shape of the front that is as good", found.to_cheaper),
        ("To the best shape of the front that costs no more", found.to_better),
    ]
    same = found.distance.cheaper == found.distance.better
    return [
        (f"{words}, one parameter at a time, each on its cheapest deployment", steps)
        for k, (words, steps) in enumerate(ways)
        if steps and not (k and same)
    ]


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
