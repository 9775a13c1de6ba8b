"""An answer as the terminal shows it: wrapped sentences and plain tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from dse.answer.answer import Answer, Block, Commands, Explorer, Facts, Notes, Section, Table
from dse.answer.shell import continued


def answer_text(answer: Answer, width: int = 100) -> str:
    """What was asked, the answer first, then tables and what it rests on, within `width`."""
    parts = [wrapped(answer.asked or answer.title, width)]
    parts += [wrapped(f"- {text}", width, "  ") for text in (answer.headline, *answer.sentences)]
    parts += blocks_text(answer.blocks, width)
    for title, texts in (("How sure:", answer.certainty), ("Rests on:", answer.rests)):
        if texts:
            parts += ["", title, *(wrapped(f"- {text}", width, "  ") for text in texts)]
    return "\n".join(parts)


def blocks_text(blocks: Sequence[Block], width: int) -> Iterator[str]:
    """Each block as lines; pictures are for pages."""
    for block in blocks:
        if isinstance(block, Table):
            if block.on_console:
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
            yield from blocks_text([block.table], width)
        elif isinstance(block, Facts) and block.on_console:
            yield from ("", wrapped(block.title, width))
            yield from (wrapped(f"- {what}: {said}", width, "  ") for what, said in block.rows)
        elif isinstance(block, Section) and block.on_console:
            yield from ("", wrapped(block.title, width)) if block.title else ()
            yield from (wrapped(text, width) for text in block.about)
            yield from blocks_text(block.blocks, width)


def wrapped(text: str, width: int, indent: str = "") -> str:
    """A sentence in lines of at most `width`; further lines start with `indent`."""
    lines = textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def command_text(command: str, width: int) -> str:
    """A command line, indented, that goes on after a backslash where it is too wide."""
    return textwrap.indent(continued(command, width - 2), "  ")


def table_text(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int], width: int
) -> str:
    """A plain table within `width`; columns in `right` are right-aligned and stay on one line where
    half the width is enough for them."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    rows = list(rows)
    whole = sum(max(len(row[k]) for row in [header, *rows]) + 2 for k in right) <= width // 2
    for k, title in enumerate(header):
        table.add_column(
            title,
            justify="right" if k in right else "left",
            overflow="fold",
            no_wrap=whole and k in right,
        )
    for row in rows:
        table.add_row(*row)
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
