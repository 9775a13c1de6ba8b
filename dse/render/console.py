"""An answer as the terminal shows it: wrapped sentences and plain tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from dse.answer.answer import Answer, Block, Commands, Explorer, Facts, Notes, Section, Table
from dse.answer.shell import continued
from dse.errors import printable
from dse.render.characters import drawable, scatter_text
from dse.render.plain_table import table_text


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
        parts += ["", f"Rests on {len(rests)} assumptions; --detail lists them and more tables."]
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
