"""The files of an answer: JSON, CSV, XLSX, Markdown and the page, each written whole."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from markupsafe import Markup

from dse.answer.answer import Answer, Cell, Formula, Table
from dse.answer.numbers import kind_of
from dse.files import json_text, write_files

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what no XML 1.0 text may hold
_FORBIDDEN = re.compile(r"[\[\]:*?/\\']")  # in the name of a sheet
LONGEST_NAME = 31
NARROW, WIDE = 9, 60  # characters of a column
# Looks of cells, by their place in templates/xlsx/styles.xml.
PLAIN, HEAD, DOLLARS, SHARE, COUNT, INPUT, WORDS = range(7)
# The parts of an .xlsx file beside its sheets, and their templates.
_PARTS = {
    "[Content_Types].xml": "content_types.xml",
    "_rels/.rels": "rels.xml",
    "xl/workbook.xml": "workbook.xml",
    "xl/_rels/workbook.xml.rels": "workbook_rels.xml",
    "xl/styles.xml": "styles.xml",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet: rows of cells, None an empty one; `looks` are those of its columns, PLAIN where they
    end. Its first row is its head, but for a sheet of words alone (`head` false)."""

    name: str
    rows: Sequence[Sequence[Cell]]
    looks: Sequence[int] = ()
    head: bool = True


def workbook(sheets: Sequence[Sheet]) -> bytes:
    """The bytes of an .xlsx file."""
    from dse.render.page import environment  # noqa: PLC0415 - jinja2, which a CSV file needs not

    made = environment()
    names = [_FORBIDDEN.sub(" ", sheet.name)[:LONGEST_NAME] for sheet in sheets]
    parts = {part: (template, {"names": names}) for part, template in _PARTS.items()}
    for k, sheet in enumerate(sheets, 1):
        parts[f"xl/worksheets/sheet{k}.xml"] = ("sheet.xml", _shown(sheet))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (template, shown) in parts.items():
            text = made.get_template(f"xlsx/{template}").render(shown)
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text.encode("utf-8"))
    return stream.getvalue()


def _shown(sheet: Sheet) -> dict[str, Any]:
    """The sheet, its rows as XML and the widths of its columns, for its template."""
    lines = []
    for k, row in enumerate(sheet.rows):
        looks = [HEAD] * len(row) if sheet.head and k == 0 else [*sheet.looks, *[PLAIN] * len(row)]
        lines.append(f"<row>{''.join(map(_cell, row, looks))}</row>")
    columns = zip_longest(*sheet.rows)
    words = [[len(str(cell)) for cell in c if not isinstance(cell, Formula)] for c in columns]
    widths = [min(max(max(lengths, default=0) + 2, NARROW), WIDE) for lengths in words]
    # Each cell is escaped.
    return {"sheet": sheet, "rows": Markup("".join(lines)), "widths": widths}  # noqa: S704


def _cell(value: Cell, look: int = PLAIN) -> str:
    style = f' s="{look}"' if look else ""
    if value is None:
        return f"<c{style}/>"
    if isinstance(value, Formula):
        if isinstance(value.value, str):
            return f'<c{style} t="str"><f>{escape(value.text)}</f><v>{escape(value.value)}</v></c>'
        return f"<c{style}><f>{escape(value.text)}</f><v>{value.value!r}</v></c>"
    if isinstance(value, str):
        text = escape(_NO_XML.sub("", value))
        return f'<c{style} t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
    return f"<c{style}><v>{value!r}</v></c>"


# The files of an answer: JSON, CSV, XLSX, Markdown and the page, each written whole.

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
    for table in {table.name: table for table in (*answer.data, *answer.tables)}.values():
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
