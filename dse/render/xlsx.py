"""Tables as an .xlsx workbook, a sheet each: Office Open XML, ECMA-376 part 1, with inline strings
and numbers only, so that no other package is needed. Equal tables make equal bytes."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

Cell = str | float | int | None
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what no XML 1.0 text may hold
_FORBIDDEN = re.compile(r"[\[\]:*?/\\']")  # in the name of a sheet
LONGEST_NAME = 31


def workbook(sheets: Sequence[tuple[str, Sequence[Sequence[Cell]]]]) -> bytes:
    """The bytes of an .xlsx file. Each sheet is (name, rows); None is an empty cell."""
    names = [_FORBIDDEN.sub(" ", name)[:LONGEST_NAME] for name, _ in sheets]
    numbers = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{k}.xml" '
            f'ContentType="{_TYPE}.worksheet+xml"/>'
            for k in numbers
        )
        + "</Types>",
        "_rels/.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>",
        "xl/workbook.xml": f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(
            f'<sheet name={quoteattr(name)} sheetId="{k}" r:id="rId{k}"/>'
            for k, name in zip(numbers, names, strict=True)
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">'
        + "".join(
            f'<Relationship Id="rId{k}" Type="{_OFFICE}/worksheet" '
            f'Target="worksheets/sheet{k}.xml"/>'
            for k in numbers
        )
        + "</Relationships>",
    }
    for k, (_, rows) in zip(numbers, sheets, strict=True):
        lines = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
        parts[f"xl/worksheets/sheet{k}.xml"] = (
            f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
        )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text.encode("utf-8"))
    return stream.getvalue()


def _cell(value: Cell) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, str):
        text = escape(_NO_XML.sub("", value))
        return f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
    return f"<c><v>{value!r}</v></c>"
