"""The tables of a comparison with published designs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dse.answer.answer import Cell, Column, Table
from dse.answer.numbers import times
from dse.questions.rediscovery.answer import Rediscovery
from dse.questions.rediscovery.expert import Place
from dse.questions.rediscovery.words import (
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
    columns = (
        Column("case", "case"),
        Column("standing", "the design is"),
        Column("cost_ratio", "cost at equal quality", right=True),
        Column("nats", "loss at equal cost", right=True),
        Column("dense_equivalent", "dense equal, its / front's", right=True),
        Column("beaten_by", "beaten by shapes", right=True),
        Column("assumption", "cost with one assumption less"),
    )
    rows = []
    for found in answers:
        away, served = found.distance, bool(found.table.served[found.expert])
        own, ahead = billions(found.table.equivalent[found.expert]), billions(_ahead(found))
        rows.append(
            {
                "case": found.case.title,
                "standing": standing(away, served),
                "cost_ratio": times(away.cost_ratio),
                "nats": nats(away.nats),
                "dense_equivalent": f"{own} / {ahead}",
                "beaten_by": f"{away.dominating:,} of {found.served:,}",
                "assumption": most_of_it(found),
            }
        )
    return Table("summary", "Distance to the front", columns, rows)


def _ahead(found: Rediscovery) -> float | None:
    ratio = found.distance.equivalent_ratio
    return None if ratio is None else float(found.table.equivalent[found.expert]) * ratio


def known_table(found: Rediscovery) -> Table:
    columns = (
        Column("what", "what"),
        Column("value", "value"),
        Column("kind", "kind"),
        Column("source", "source or reason"),
    )
    rows = [
        {"what": one.what, "value": one.value, "kind": one.kind}
        | {"source": ", ".join(filter(None, (one.source, one.date))) or one.note}
        for one in found.case.known
    ]
    return Table("known", "What was known", columns, rows)


def shape_table(found: Rediscovery) -> Table:
    """The design, where it lies on the grid, and the nearest shapes of the front."""
    rows_of = {"design": found.expert}
    for name, row in (("cheaper", found.distance.cheaper), ("better", found.distance.better)):
        if row is not None:
            rows_of[name] = row
    where = {place.axis: place for place in found.places}
    values = found.table.values
    rows: list[Mapping[str, Cell]] = []
    for axis in found.table.shape_axes:
        cells = {name: float(values[axis][row]) for name, row in rows_of.items()}
        if not any(cells.values()) or axis in ("vocab_size", "tied_embeddings", "attention_bias"):
            continue
        cell_of: dict[str, Cell] = {
            "name": NAMES.get(axis, axis),
            "grid": _place(where.get(axis), axis),
        }
        for name, cell in cells.items():
            said = cell or axis in ("attention", "sparse")
            cell_of[name] = value_words(axis, cell) if said else None
        rows.append(cell_of)
    columns = {name: figures(found, row) for name, row in rows_of.items()}
    for title in columns["design"]:
        rows.append({"name": title, "grid": ""} | {k: one[title] for k, one in columns.items()})
    titles = (
        Column("name", ""),
        Column("design", found.case.expert.name),
        Column("grid", "on the grid"),
        *(Column(name, f"front, {name}") for name in rows_of if name != "design"),
    )
    return Table("shapes", "The design and the nearest shapes of the front", titles, rows)


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
    every = [("as the case says", away, True)]
    every += [(one.words, one.distance, bool(one.front_size)) for one in found.variants]
    rows = [
        {
            "with": words,
            "cost_ratio": times(one.cost_ratio) if rivals else "no rival",
            "nats": nats(one.nats),
            "dominating": one.dominating,
        }
        for words, one, rivals in every
    ]
    columns = (
        Column("with", "with"),
        Column("cost_ratio", "cost at equal quality", right=True),
        Column("nats", "loss above the front", right=True),
        Column("dominating", "shapes that beat it", "count"),
    )
    return Table("variants", "The same with one assumption changed", columns, rows)
