"""Columns that break between words where they can, never inside one."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

GAP = 2  # what `print_table` puts between columns


def wrapped(
    header: Sequence[str], rows: Sequence[Sequence[str]], room: int, numbers: Collection[int] = ()
) -> tuple[list[str], list[list[str]]]:
    """The header and the rows with line breaks, so that the table is `room` wide where its longest
    words allow it. Cells of the columns `numbers` stay on one line where that leaves room."""
    table = [list(header), *map(list, rows)]
    columns = list(zip(*table, strict=True))
    room -= GAP * len(columns)
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
    """Widths from `least` on, each column's next place to the one that lacks the largest factor."""
    widths, most = list(least), [max(map(len, column)) for column in columns]
    for _ in range(room - sum(widths)):
        k = max(range(len(widths)), key=lambda k: most[k] / widths[k])
        if most[k] <= widths[k]:
            break
        widths[k] += 1
    return widths


def _broken(cell: str, columns: int) -> str:
    return textwrap.fill(cell, columns, break_long_words=False, break_on_hyphens=False) or cell
