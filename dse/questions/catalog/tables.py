"""What several nouns of the catalog show: figures with their sources, and tables of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dse.answer.answer import Column, Table
from dse.answer.numbers import number

if TYPE_CHECKING:
    from dse.schema.chip import Figure


def figure_row(figure: Figure) -> dict[str, Any]:
    """A figure in a document."""
    return {
        "name": figure.name,
        "value": number(figure.value),
        "unit": figure.unit,
        "text": figure.text,
        "source": figure.source,
        "date": figure.date,
        "kind": figure.kind,
        "quote": figure.quote,
        "note": figure.note,
        "alternatives": [figure_row(other) for other in figure.alternatives],
    }


def figure_table(
    figures: Sequence[Mapping[str, Any]], not_chosen: Sequence[Mapping[str, Any]] = ()
) -> Table:
    """Rows of `figure_row`: every figure, what other sources say below it, and the sources by
    number."""
    lines = []
    for figure in figures:
        lines.append((figure["name"], figure))
        lines += [("  elsewhere", other) for other in figure["alternatives"]]
    lines += [(f"{figure['name']}, not used", figure) for figure in not_chosen]
    sources = Sources(figure["source"] for _, figure in lines)
    return Table(
        "figures",
        "Figures",
        (
            Column("figure", "figure"),
            Column("text", "value", right=True),
            Column("kind", "kind"),
            Column("date", "date"),
            Column("source", "source"),
        ),
        [
            {
                "figure": name,
                "text": one["text"],
                "kind": one["kind"],
                "date": str(one["date"]),
                "source": sources.mark(one["source"]),
            }
            for name, one in lines
        ],
        notes=sources.notes(),
    )


class Sources:
    """Sources by number, each once."""

    def __init__(self, texts: Any) -> None:
        self.texts = list(dict.fromkeys(texts))

    def mark(self, text: str) -> str:
        return f"[{self.texts.index(text) + 1}]"

    def notes(self) -> list[str]:
        return [f"[{k}] {text}" for k, text in enumerate(self.texts, 1)]
