"""Text as GitHub-flavoured Markdown: escaping, tables, and the whole of an answer."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from dse.answer.answer import Answer, Block, Commands, Explorer, Facts, Figure, Notes, Table


def answer_markdown(answer: Answer) -> str:
    """The answer, its tables, what it rests on and the command."""
    lines = [f"<!-- {html.escape(answer.command)} -->", ""] if answer.command else []
    lines += [f"# {escape(answer.title)}", ""]
    lines += [escape(answer.asked), ""] if answer.asked else []
    lines += [f"**{escape(answer.headline)}**", ""]
    lines += _list(answer.sentences) + blocks_markdown(answer.blocks, 2)
    for title, texts in (("How sure", answer.certainty), ("What it rests on", answer.rests)):
        lines += [f"## {title}", "", *_list(texts)] if texts else []
    if answer.command:
        lines += ["## How to reproduce", "", code(answer.command), ""]
    if answer.words:
        lines += ["## Words", "", *_list(f"{term}: {said}" for term, said in answer.words.items())]
    return "\n".join(lines).rstrip() + "\n"


def blocks_markdown(blocks: Sequence[Block], level: int) -> list[str]:
    """Lines of blocks, their headings at `level`; a picture is said in words."""
    lines, mark = [], "#" * level
    for block in blocks:
        if isinstance(block, Figure):
            continue
        if isinstance(block, Table | Explorer):
            shown = block if isinstance(block, Table) else block.table
            lines += [f"{mark} {escape(shown.caption)}", ""] if shown.caption else []
            lines += table(shown.titles, shown.texts(), shown.right)
            lines += [line for note in shown.notes for line in (escape(note), "")]
        elif isinstance(block, Facts):
            lines += [f"{mark} {escape(block.title)}", ""]
            lines += [f"- {escape(what)}: {escape(said)}" for what, said in block.rows]
            lines += [""]
        elif isinstance(block, Notes):
            lines += [f"{mark} {escape(block.title)}", "", *_list(block.sentences)]
        elif isinstance(block, Commands):
            lines += [f"{mark} {escape(block.title)}", ""]
            lines += [line for text in block.lines for line in (code(text), "")]
        else:
            lines += [f"{mark} {escape(block.title)}", ""] if block.title else []
            lines += [line for text in block.about for line in (escape(text), "")]
            lines += blocks_markdown(block.blocks, level + 1)
    return lines


def table(
    head: Sequence[str], rows: Iterable[Iterable[object]], right: Sequence[int] = ()
) -> list[str]:
    """The lines of a table and an empty one; the columns `right` are aligned to the right."""
    return [
        f"| {' | '.join(map(escape, head))} |",
        f"|{''.join('---:|' if k in right else '---|' for k in range(len(head)))}",
        *(f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows),
        "",
    ]


def _list(texts: Iterable[str]) -> list[str]:
    lines = [f"- {escape(text)}" for text in texts]
    return [*lines, ""] if lines else []


def escape(text: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    one_line = " ".join(str(text).split())
    entities = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", entities)


def code(text: str) -> str:
    """A code span that holds any text on one line."""
    one_line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", one_line)), default=0))
    pad = " " if "`" in one_line else ""
    return f"{fence}{pad}{one_line}{pad}{fence}"
