"""Pages in docs/ that a tool writes: a page from its template, or the part of a page between a
comment that names the command and the one that ends it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
END = "<!-- end of what it writes -->"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(tool: str, parts: Mapping[str, str]) -> str:
    """The template beside the file `tool`, each `{name}` of it replaced. Raises KeyError for a name
    that is not there."""
    template = Path(tool).with_suffix(".md").read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], template)


def write(page: str, command: str, text: str) -> None:
    """Put `text` where `page` says that `command` writes; ValueError where it does not say so."""
    path, begin = DOCS / page, f"<!-- written by `{command}` -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"{path} has no {begin} with {END} after it")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}", encoding="utf-8")
