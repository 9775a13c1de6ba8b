"""The files of an answer: JSON, CSV, XLSX, Markdown and the page, each written whole."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from dse.answer.answer import Answer, Cell, Formula, Table
from dse.answer.numbers import kind_of
from dse.files import json_text, write_files

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what no XML 1.0 text may hold
_FORBIDDEN = re.compile(r"[\[\]:*?/\\']")  # in the name of a sheet
LONGEST_NAME = 31
NARROW, WIDE = 9, 60  # characters of a column
# Looks of cells, by their place in styles.xml.
PLAIN, HEAD, DOLLARS, SHARE, COUNT, INPUT, WORDS = range(7)
_STYLES = (
    f'{_HEAD}<styleSheet xmlns="{_MAIN}">'
    '<numFmts count="2"><numFmt numFmtId="164" formatCode="#,##0.00"/>'
    '<numFmt numFmtId="165" formatCode="0.0%"/></numFmts>'
    '<fonts count="2"><font><sz val="10"/><name val="Arial"/></font>'
    '<font><b/><sz val="10"/><name val="Arial"/></font></fonts>'
    '<fills count="3"><fill><patternFill patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill><fill><patternFill patternType="solid">'
    '<fgColor rgb="FFFFF2CC"/></patternFill></fill></fills>'
    '<borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="7">'
    + "".join(
        f'<xf numFmtId="{number}" fontId="{font}" fillId="{fill}" borderId="0" xfId="0" '
        'applyNumberFormat="1" applyFont="1" applyFill="1" applyAlignment="1">'
        f'<alignment vertical="top" wrapText="{wrap}"/></xf>'
        for number, font, fill, wrap in (
            (0, 0, 0, 0),
            (0, 1, 0, 1),
            (164, 0, 0, 0),
            (165, 0, 0, 0),
            (3, 0, 0, 0),
            (0, 0, 2, 0),
            (0, 0, 0, 1),
        )
    )
    + "</cellXfs></styleSheet>"
)


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
    names = [_FORBIDDEN.sub(" ", sheet.name)[:LONGEST_NAME] for sheet in sheets]
    numbers = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_TYPE}.styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{k}.xml" '
            f'ContentType="{_TYPE}.worksheet+xml"/>'
            for k in numbers
        )
        + "</Types>",
        "_rels/.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>",
        "xl/workbook.xml": f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">'
        "<bookViews><workbookView/></bookViews><sheets>"
        + "".join(
            f'<sheet name={quoteattr(name)} sheetId="{k}" r:id="rId{k}"/>'
            for k, name in zip(numbers, names, strict=True)
        )
        + '</sheets><calcPr calcId="191029" fullCalcOnLoad="1"/></workbook>',
        "xl/_rels/workbook.xml.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
        + "".join(
            f'<Relationship Id="rId{k}" Type="{_OFFICE}/worksheet" '
            f'Target="worksheets/sheet{k}.xml"/>'
            for k in numbers
        )
        + f'<Relationship Id="rId{len(sheets) + 1}" Type="{_OFFICE}/styles" '
        'Target="styles.xml"/></Relationships>',
        "xl/styles.xml": _STYLES,
    }
    for k, sheet in zip(numbers, sheets, strict=True):
        parts[f"xl/worksheets/sheet{k}.xml"] = _worksheet(sheet)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text.encode("utf-8"))
    return stream.getvalue()


def _worksheet(sheet: Sheet) -> str:
    lines = []
    for k, row in enumerate(sheet.rows):
        looks = [HEAD] * len(row) if sheet.head and k == 0 else [*sheet.looks, *[PLAIN] * len(row)]
        lines.append(f"<row>{''.join(map(_cell, row, looks))}</row>")
    pane = '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    views = f'<sheetView workbookViewId="0">{pane if sheet.head else ""}</sheetView>'
    columns = max((len(row) for row in sheet.rows), default=0)
    words = [
        [len(str(row[c])) for row in sheet.rows if c < len(row) and not isinstance(row[c], Formula)]
        for c in range(columns)
    ]
    widths = [max(lengths, default=0) + 2 for lengths in words]
    cols = "".join(
        f'<col min="{c}" max="{c}" width="{min(max(width, NARROW), WIDE)}" customWidth="1"/>'
        for c, width in enumerate(widths, 1)
    )
    cols = f"<cols>{cols}</cols>" if cols else ""
    return (
        f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews>{views}</sheetViews>'
        f"{cols}<sheetData>{''.join(lines)}</sheetData></worksheet>"
    )


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
