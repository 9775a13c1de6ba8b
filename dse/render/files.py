"""The files of an answer: JSON, CSV, XLSX, Markdown and the page, each written whole."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from dse.answer.answer import Answer, Cell, Formula, Table
from dse.answer.numbers import kind_of
from dse.files import json_text, write_files
from dse.render.xlsx import COUNT, DOLLARS, INPUT, PLAIN, SHARE, WORDS, Sheet, workbook

# Of the kinds of columns, in a workbook; an input is to be changed.
LOOKS = {"dollars": DOLLARS, "share": SHARE, "count": COUNT, "input": INPUT}


def write_answer_files(answer: Answer, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Writes QUESTION.FORMAT into `folder` for each of `formats`, and memo.html where the answer
    has one: all or none. JSON is the document and the command."""
    made = {f"{answer.question}.{name}": _content(answer, name) for name in formats}
    if answer.memo is not None and "html" in formats:
        made["memo.html"] = answer.memo().to_html().encode("utf-8")
    write_files(folder, made)
    return [folder / name for name in made]


def _content(answer: Answer, name: str) -> bytes:
    if name == "xlsx":
        return answer.to_xlsx()
    if name == "json":
        found, command = answer.document, {"command": answer.command} if answer.command else {}
        named = {**found, **command} if isinstance(found, Mapping) else found
        return json_text(named).encode("utf-8")
    made = {"csv": answer.to_csv, "md": answer.to_markdown, "html": answer.to_html}[name]
    return made().encode("utf-8")


def table_csv(table: Table) -> str:
    """Raw values under the columns' keys, numbers in nine significant digits."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([column.key for column in table.columns])
    lines.writerows([_nine(cell) for cell in row] for row in table.values())
    return text.getvalue()


def _nine(value: Cell) -> Cell:
    return f"{value:.9g}" if isinstance(value, float) else value


def answer_workbook(answer: Answer) -> bytes:
    """The answer in words, the sheets that compute, then a sheet for each table, its numbers raw
    under keys."""
    words = [answer.title, answer.asked, answer.headline, *answer.sentences]
    words += [*answer.certainty, *answer.rests, answer.command]
    sheets = [Sheet("answer", [[text] for text in words if text], (WORDS,), head=False)]
    sheets += [_sheet(table, table.titles) for table in answer.sheets]
    for table in (*answer.data, *answer.tables):
        sheets.append(_sheet(table, [column.key for column in table.columns]))
    return workbook(sheets)


def _sheet(table: Table, head: Sequence[str]) -> Sheet:
    rows = [[_plain(cell) for cell in row] for row in table.values()]
    return Sheet(
        table.name,
        [list(head), *rows],
        [LOOKS.get(c.kind and kind_of(c.kind), PLAIN) for c in table.columns],
    )


def _plain(value: Cell) -> str | float | int | Formula | None:
    return ("yes" if value else "no") if isinstance(value, bool) else value
