"""The page of an answer that ends in a decision: what to take, pictures, numbers, what it rests on.

`dse.render.risk` and `dse.render.traffic` fill it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.answer.text_table import Table
from dse.render.page import answer_page, heads

Json = Mapping[str, Any]
Figures = Mapping[str, tuple[str, dict[str, Any]]]


def decision_page(
    kind: str,
    glossary: Mapping[str, str],
    document: Json,
    tables: Sequence[Table],
    drawn: Figures,
    *,
    meaning: str = "",
    steps: Sequence[str] = (),
) -> str:
    """The page as HTML. `document` has title, asked, answer, rests_on and command; `drawn` are
    {id: (title, figure)}, `meaning` explains them; `steps` are command lines to run next."""
    return answer_page(
        "decision.html",
        glossary,
        kind=kind,
        document=document,
        command=document.get("command"),
        answer=document["answer"],
        drawn=heads(drawn),
        rests=document["rests_on"],
        meaning=meaning,
        tables=tables,
        steps=steps,
        plots={name: figure for name, (_, figure) in drawn.items()},
    )


def named(names: Sequence[str]) -> dict[str, Any]:
    """An upright axis of names, the last on top."""
    return {
        "type": "category", "categoryarray": list(names), "categoryorder": "array",
        "automargin": True,
    }  # fmt: skip
