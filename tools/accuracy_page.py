"""The scores as a Markdown page: `python -m tools.accuracy_page docs/accuracy.md`.

`accuracy_page.md` beside this file is the page without its tables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.accuracy.validate import validate
from dse.answer.answer import Answer, Table
from dse.answer.numbers import tenths
from dse.files import write_text
from dse.render.markdown import escape, table
from dse.vocabulary import quantity
from tools.written import filled

# What the tables by chip, model and software show: a column each.
SHOWN = (
    ("tpot_s", "continuous"),
    ("ttft_s", "continuous"),
    ("output_tokens_per_s", "offline"),
    ("tokens_per_s_per_chip", "pretrain"),
)
PICKS = tuple(f"decisions{held}{by}" for held in ("", "_held_out") for by in ("", "_sureness"))


def page(answer: Answer, command: str) -> str:
    """`answer` is that of `dse.validate(cross_validate=True)`."""
    tables = dict.fromkeys(PICKS, "")  # rows may have no need to decide
    tables |= {one.name: "\n".join(_lines(one)) for one in answer.tables}
    scores = next(one for one in answer.tables if one.name == "scores")
    meanings = (quantity(column.key) for column in scores.columns[2:])
    return filled(
        __file__,
        tables
        | {by: "\n".join(_by(answer.document["scores"], by)) for by in ("chip", "model", "backend")}
        | {
            "command": command,
            "sentences": "\n".join(f"- {escape(s)}" for s in (answer.headline, *answer.sentences)),
            "columns": escape(". ".join(f"{row.short}: {row.meaning}" for row in meanings)) + ".",
        },
    )


def _lines(one: Table) -> list[str]:
    whole = replace(one, shown=())
    return table(whole.titles, whole.texts())


def _by(scores: Sequence[Mapping[str, Any]], by: str) -> list[str]:
    """A row a chip, model or software: the error of each metric that is SHOWN."""
    found = {
        (item["key"], item["metric"], item["serving"]): tenths(item["group_median_error"])
        for item in scores
        if item["by"] == by and (item["metric"], item["serving"]) in SHOWN
    }
    keys = sorted({key for key, _, _ in found})
    rows = [(key, *(found.get((key, *shown), "–") for shown in SHOWN)) for key in keys]
    return table((by, *map(" ".join, SHOWN)), rows)


def main(path: Path) -> None:
    """Scores of the shipped rows, held-out ones among them."""
    answer = validate(cross_validate=True, progress=lambda text: print(text, file=sys.stderr))
    text = page(answer, f"python -m tools.accuracy_page {path}")
    write_text(path.parent, path.name, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
