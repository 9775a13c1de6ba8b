"""A plain table within a width: columns break between words where they can."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

_GAP = 2  # blanks between columns


def table_text(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int], width: int
) -> str:
    """The header, a rule and the rows within `width`. Columns in `right` are right-aligned, and
    their cells stay on one line where that leaves room."""
    head, body = wrapped(header, list(rows), width, right)
    table = [[cell.split("\n") for cell in row] for row in (head, *body)]
    widths = [max(len(line) for row in table for line in row[k]) for k in range(len(head))]
    lines = [line for row in table for line in _lines(row, widths, right)]
    tall = max(map(len, table[0]))
    rule = "─" * (sum(widths) + _GAP * (len(widths) - 1))
    return "\n".join([*lines[:tall], rule, *lines[tall:]])


def _lines(row: list[list[str]], widths: Sequence[int], right: Collection[int]) -> list[str]:
    """The lines of one row; cells with fewer lines are blank below."""
    gap = " " * _GAP
    return [
        gap.join(
            text.rjust(widths[k]) if k in right else text.ljust(widths[k])
            for k, cell in enumerate(row)
            for text in (cell[n] if n < len(cell) else "",)
        ).rstrip()
        for n in range(max(map(len, row)))
    ]


def wrapped(
    header: Sequence[str], rows: Sequence[Sequence[str]], room: int, numbers: Collection[int] = ()
) -> tuple[list[str], list[list[str]]]:
    """The header and the rows with line breaks, so that the table is `room` wide. Words are broken
    where the longest of them leave no room. Cells of the columns `numbers` stay on one line where
    that leaves room."""
    table = [list(header), *map(list, rows)]
    columns = list(zip(*table, strict=True))
    room -= _GAP * (len(columns) - 1)
    least = [_least(column, k in numbers) for k, column in enumerate(columns)]
    if sum(least) > room:
        least = [_least(column, False) for column in columns]
    widths = _shared(least, columns, room)
    cells = [[_broken(cell, widths[k]) for k, cell in enumerate(row)] for row in table]
    return cells[0], cells[1:]


def _least(column: Sequence[str], whole: bool) -> int:
    """The longest word of a column; of numbers the longest cell below the header."""
    title, *cells = column
    words = [*title.split(), *(cells if whole else " ".join(cells).split())]
    return max(map(len, words), default=1)


def _shared(least: Sequence[int], columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Widths from `least` on, each column's next place to the one that lacks the largest factor;
    where they have no room, the widest gives."""
    widths, most = list(least), [max(map(len, column)) for column in columns]
    for _ in range(room - sum(widths)):
        k = max(range(len(widths)), key=lambda k: most[k] / widths[k])
        if most[k] <= widths[k]:
            break
        widths[k] += 1
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    return widths


def _broken(cell: str, columns: int) -> str:
    """A cell in lines of at most `columns`."""
    if len(cell) <= columns:
        return cell
    return textwrap.fill(cell, columns, break_on_hyphens=False) or cell
