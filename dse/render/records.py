"""Rows of a document as CSV and as the sheets of a workbook, and the files of an answer."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.files import write_bytes, write_json, write_text
from dse.render.xlsx import Cell, workbook

Row = Mapping[str, Any]


def write_answer(
    folder: Path,
    stem: str,
    document: dict[str, Any],
    table: str,
    sheets: Sequence[tuple[str, list[list[Cell]]]],
    page: str,
) -> Path:
    """Writes STEM.json, .csv, .xlsx and .html into `folder`, the page last; returns the page's
    path. Raises StorageError where they cannot be written."""
    write_json(folder, f"{stem}.json", document)
    write_text(folder, f"{stem}.csv", table)
    write_bytes(folder, f"{stem}.xlsx", workbook(sheets))
    write_text(folder, f"{stem}.html", page)
    return folder / f"{stem}.html"


def csv_text(rows: Sequence[Row], head: Sequence[str] = ()) -> str:
    """Rows of equal keys under them, numbers in nine significant digits. No row leaves the head,
    where it is given, or ""."""
    head = head or (list(rows[0]) if rows else ())
    if not head:
        return ""
    text = io.StringIO()
    lines = csv.DictWriter(text, head, lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: _nine(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _nine(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def sheet(rows: Sequence[Row]) -> list[list[Cell]]:
    """The same for a workbook, numbers as they are."""
    if not rows:
        return []
    head = list(rows[0])
    return [list[Cell](head), *([_cell(row.get(name)) for name in head] for row in rows)]


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):  # counts by name
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return value


def lines(texts: Sequence[str]) -> list[list[Cell]]:
    """Sentences, a row each."""
    return [[text] for text in texts]


def kept(*sheets: tuple[str, list[list[Cell]]]) -> list[tuple[str, list[list[Cell]]]]:
    """Those with a row."""
    return [(name, cells) for name, cells in sheets if cells]
