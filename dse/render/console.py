"""An answer as the terminal shows it: wrapped sentences, plain tables, and a scatter in
characters."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dse.answer.answer import (
    Answer,
    Block,
    Commands,
    Explorer,
    Facts,
    Figure,
    Notes,
    Section,
    Table,
)
from dse.answer.numbers import significant
from dse.answer.sentences import rests_in_short
from dse.errors import printable

_GAP = 2  # blanks between columns


def table_text(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int], width: int
) -> str:
    """The header, a rule and the rows within `width`. Columns in `right` are right-aligned, and
    their cells stay on one line where that leaves room."""
    head, body = broken_table(header, list(rows), width, right)
    table = [[cell.split("\n") for cell in row] for row in (head, *body)]
    widths = [max(len(line) for row in table for line in row[k]) for k in range(len(head))]
    lines = [line for row in table for line in _row_lines(row, widths, right)]
    tall = max(map(len, table[0]))
    rule = "─" * (sum(widths) + _GAP * (len(widths) - 1))
    return "\n".join([*lines[:tall], rule, *lines[tall:]])


def _row_lines(row: list[list[str]], widths: Sequence[int], right: Collection[int]) -> list[str]:
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


def broken_table(
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


# A scatter in characters, for terminals.

SIGNS = ("•", "+", "×", "○", "▪", "△", "*", "~")
PUBLISHED = "◆"
HEIGHT = 14
Json = Mapping[str, Any]


def drawable(figure: Figure) -> bool:
    """Whether both axes of a figure say their range."""
    layout = figure.plotly["layout"]
    return all("range" in layout.get(name, ()) for name in ("xaxis", "yaxis"))


def scatter_text(figure: Figure, width: int, height: int = HEIGHT) -> str:
    """The marks of a figure whose axes say their range: later traces lie over earlier ones, and
    those with texts are their texts. Within `width` columns."""
    from html import unescape

    layout, traces = figure.plotly["layout"], figure.plotly["data"]
    across, up = layout["xaxis"], layout["yaxis"]
    ends = [f"{_end(up, k):>{_margin(up)}}" for k in (1, 0)]
    columns = width - _margin(up) - 2
    cells = [[" "] * columns for _ in range(height)]
    legend = []
    for trace, sign in zip(traces, _signs(traces), strict=True):
        if "text" not in trace:
            legend.append(f"{sign} {unescape(trace['name'])}")
        for k, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
            h, v = _share(across, x), _share(up, y)
            if h is None or v is None:
                continue
            at, line = round(h * (columns - 1)), round((1.0 - v) * (height - 1))
            for i, one in enumerate(trace["text"][k] if "text" in trace else sign):
                cells[line][min(at + i, columns - 1)] = one
    blank = " " * _margin(up)
    heads = [ends[0], *[blank] * (height - 2), ends[1]]
    left, right = (_end(across, k) for k in (0, 1))
    title, between = unescape(across["title"]["text"]), columns - len(left) - len(right)
    fits = len(title) + 4 <= between
    legend[-1] += "; numbers are the decisions"
    words = ["   ".join(legend)] if fits else [title, "   ".join(legend)]
    return "\n".join(
        [
            *_lines(unescape(up["title"]["text"]), blank, columns),
            *(f"{head} │{''.join(row)}".rstrip() for head, row in zip(heads, cells, strict=True)),
            f"{blank} └{'─' * columns}",
            f"{blank}  {left}{title if fits else '':^{between}}{right}",
            *(line for text in words for line in _lines(text, blank, columns)),
        ]
    )


def _lines(text: str, blank: str, columns: int) -> list[str]:
    return [f"{blank}  {line}" for line in textwrap.wrap(text, columns)]


def _signs(traces: Sequence[Json]) -> list[str]:
    """Of each trace; diamonds are published models."""
    free = iter(SIGNS * len(traces))
    diamonds = (str(trace["marker"]["symbol"]).startswith("diamond-tall") for trace in traces)
    return [PUBLISHED if diamond else next(free) for diamond in diamonds]


def _share(axis: Json, value: float | None) -> float | None:
    """Where a value lies on an axis, 0 to 1; None beyond its ends."""
    log = axis.get("type") == "log"
    if value is None or (log and value <= 0.0):
        return None
    low, high = axis["range"]
    at = ((math.log10(value) if log else value) - low) / (high - low)
    return at if 0.0 <= at <= 1.0 else None


def _end(axis: Json, k: int) -> str:
    value = axis["range"][k]
    return significant(10.0**value if axis.get("type") == "log" else value)


def _margin(axis: Json) -> int:
    return max(len(_end(axis, k)) for k in (0, 1))


# Command lines as a shell reads them over several lines.

_HELD = "\0"  # in place of a space that no line ends at


def continued(command: str, columns: int) -> str:
    """`command` in lines of at most `columns`, each but the last ending in a backslash; an option
    stands beside its value."""
    held = re.sub(r"(?<=\s)(--[\w-]+) (?=[^\s-])", rf"\1{_HELD}", command)
    lines = textwrap.wrap(
        held,
        columns - 2,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return " \\\n".join(lines).replace(_HELD, " ")


# An answer as the terminal shows it: wrapped sentences and plain tables.


def answer_text(answer: Answer, width: int = 100, detail: bool | None = None) -> str:
    """What was asked, the answer first, then tables and what it rests on, within `width`. Where
    nothing but the verb was asked, the answer is the first line. Where `detail` is false,
    what it rests on is counted alone; where it is true, tables for the page are there, too."""
    first, *rest = [*([answer.asked] if answer.asked else []), answer.headline, *answer.sentences]
    parts = [wrapped(first, width, "  "), *(wrapped(f"- {text}", width, "  ") for text in rest)]
    if answer.opening and drawable(answer.opening.figure):
        parts += ["", scatter_text(answer.opening.figure, width)]
    parts += blocks_text(answer.blocks, width, every=bool(detail))
    rests = answer.rests
    if rests and detail is False:
        parts += ["", wrapped(rests_in_short(rests), width, "  ")]
        rests = ()
    for title, texts in (("How sure:", answer.certainty), ("Rests on:", rests)):
        if texts:
            parts += ["", title, *(wrapped(f"- {text}", width, "  ") for text in texts)]
    return printable("\n".join(parts))


def blocks_text(blocks: Sequence[Block], width: int, *, every: bool = False) -> Iterator[str]:
    """Each block as lines; pictures are for pages, and but for `every` what is not `on_console`."""
    for block in blocks:
        if isinstance(block, Table):
            if block.on_console or every:
                yield from ("", wrapped(block.caption, width)) if block.caption else ("",)
                yield f"\n{table_text(block.titles, block.texts(), block.right, width)}\n"
                yield from (wrapped(note, width, "  ") for note in block.notes)
        elif isinstance(block, Notes):
            yield from ("", wrapped(block.title, width))
            yield from (wrapped(f"- {text}", width, "  ") for text in block.sentences)
        elif isinstance(block, Commands):
            yield from ("", wrapped(block.title, width))
            yield from (command_text(line, width) for line in block.lines)
        elif isinstance(block, Explorer):
            yield from blocks_text([block.table], width, every=every)
        elif isinstance(block, Facts) and (block.on_console or every):
            yield from ("", wrapped(block.title, width))
            yield from (wrapped(f"- {what}: {said}", width, "  ") for what, said in block.rows)
        elif isinstance(block, Section) and (block.on_console or every):
            yield from ("", wrapped(block.title, width)) if block.title else ()
            yield from (wrapped(text, width) for text in block.about)
            yield from blocks_text(block.blocks, width, every=every)


def wrapped(text: str, width: int, indent: str = "") -> str:
    """A sentence in lines of at most `width`; further lines start with `indent`."""
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def command_text(command: str, width: int) -> str:
    """A command line, indented, that goes on after a backslash where it is too wide."""
    return textwrap.indent(continued(command, width - 2), "  ")
