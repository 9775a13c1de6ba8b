"""The tables of a rediscovery as text, which the console and the page both show."""

from __future__ import annotations

from collections.abc import Sequence

from dse.answer.text_table import Table
from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.expert import Place
from dse.questions.rediscovery.words import (
    NAMES,
    billions,
    figures,
    most_of_it,
    nats,
    standing,
    times,
    value_words,
)


def summary(answers: Sequence[Rediscovery]) -> Table:
    """One line a case."""
    rows = []
    for found in answers:
        away, served = found.distance, bool(found.table.served[found.expert])
        rows.append(
            (
                found.case.title,
                standing(away, served),
                times(away.cost_ratio),
                nats(away.nats),
                f"{billions(found.table.equivalent[found.expert])} / {billions(_ahead(found))}",
                f"{away.dominating:,} of {found.served:,}",
                most_of_it(found),
            )
        )
    titles = (
        "case", "the design is", "cost at equal quality", "loss at equal cost",
        "dense equal, its / front's", "beaten by shapes", "cost with one assumption less",
    )  # fmt: skip
    return Table("Distance to the front", titles, rows, (2, 3, 4, 5))


def _ahead(found: Rediscovery) -> float | None:
    ratio = found.distance.equivalent_ratio
    return None if ratio is None else float(found.table.equivalent[found.expert]) * ratio


def known_table(found: Rediscovery) -> Table:
    rows = [
        (one.what, one.value, one.kind, ", ".join(filter(None, (one.source, one.date))) or one.note)
        for one in found.case.known
    ]
    return Table("What was known", ("what", "value", "kind", "source or reason"), rows)


def shape_table(found: Rediscovery) -> Table:
    """The design, where it lies on the grid, and the nearest shapes of the front."""
    rows_of = [found.expert]
    titles = ["", found.case.expert.name, "on the grid"]
    for name, row in (("cheaper", found.distance.cheaper), ("better", found.distance.better)):
        if row is not None:
            rows_of.append(row)
            titles.append(f"front, {name}")
    where = {place.axis: place for place in found.places}
    values = found.table.values
    rows: list[tuple[str, ...]] = []
    for axis in found.table.shape_axes:
        cells = [float(values[axis][row]) for row in rows_of]
        if not any(cells) or axis in ("vocab_size", "tied_embeddings", "attention_bias"):
            continue
        words = [
            value_words(axis, cell) if cell or axis in ("attention", "sparse") else "-"
            for cell in cells
        ]
        rows.append((NAMES.get(axis, axis), words[0], _place(where.get(axis), axis), *words[1:]))
    columns = [dict(figures(found, row)) for row in rows_of]
    for name in columns[0]:
        rows.append((name, columns[0][name], "", *(column[name] for column in columns[1:])))
    return Table("The design and the nearest shapes of the front", tuple(titles), rows)


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
    away = found.distance
    rows = [("as the case says", times(away.cost_ratio), nats(away.nats), f"{away.dominating:,}")]
    rows += [
        (
            one.words,
            times(one.distance.cost_ratio) if one.front_size else "no rival",
            nats(one.distance.nats),
            f"{one.distance.dominating:,}",
        )
        for one in found.variants
    ]
    titles = ("with", "cost at equal quality", "loss above the front", "shapes that beat it")
    return Table("The same with one assumption changed", titles, rows, (1, 2, 3))


def markdown_table(table: Table) -> str:
    """Without its caption."""
    lines = [
        "| " + " | ".join(table.titles) + " |",
        "|" + "|".join("---:" if k in table.right else "---" for k in range(len(table.titles)))
        + "|",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows),
    ]  # fmt: skip
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
