"""A table of text, which the console, a page and a spreadsheet all show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` of text under `titles`; the columns in `right` are numbers. `notes` explain it."""

    caption: str
    titles: tuple[str, ...]
    rows: list[tuple[str, ...]]
    right: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
