"""Figures with their sources, as chips and racks show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse.answer.answer import Column, Table
from dse.answer.numbers import number
from dse.answer.sentences import Sources

if TYPE_CHECKING:
    from dse.schema.chip import Figure

_KEYS = ("name", "value", "unit", "text", "source", "date", "kind", "quote", "note")


def figure_row(figure: Figure) -> dict[str, Any]:
    """A figure in a document."""
    row = {key: getattr(figure, key) for key in _KEYS}
    others = [figure_row(other) for other in figure.alternatives]
    return row | {"value": number(figure.value), "alternatives": others}


def figure_table(
    figures: Sequence[Mapping[str, Any]], not_chosen: Sequence[Mapping[str, Any]] = ()
) -> Table:
    """Rows of `figure_row`: every figure, what other sources say below it, and the sources by
    number."""
    lines, sources = [], Sources()
    for figure in figures:
        lines.append((figure["name"], figure))
        lines += [("  elsewhere", other) for other in figure["alternatives"]]
    lines += [(f"{figure['name']}, not used", figure) for figure in not_chosen]
    return Table.of(
        "figures",
        "Figures",
        [{**figure, "figure": name} for name, figure in lines],
        (
            Column("figure", "figure"),
            Column("text", "value", right=True),
            Column("kind", "kind"),
            Column("date", "date", of=lambda one: str(one["date"])),
            Column("source", "source", of=lambda one: sources(one["source"])),
        ),
        sources,
    )
