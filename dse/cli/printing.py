"""What verbs print within the console's width: sentences, tables, documents, and progress."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from dse.answer.answer import Answer


def deliver(
    answer: Answer, *, out: str | Path | None, as_json: bool, detail: bool | None = None
) -> None:
    """Writes the files of an answer first, where `out` names a folder, then prints it: the document
    alone, or the words (`Answer.to_text`). Whoever reads may stop reading: the files are there."""
    written = [] if out is None else write(answer, out)
    click.echo(answer.to_json() if as_json else answer.to_text(width(), detail))
    if written:
        from dse.render.console import wrapped

        text = f"Written: {', '.join(map(str, written))}"
        click.echo(wrapped(text, width(), "  "), err=as_json)


def write(answer: Answer, out: str | Path) -> list[Path]:
    """The files of an answer, which hold the command that runs now, too."""
    from dataclasses import replace

    return replace(answer, command=command_line()).write(out)


def print_json(document: Any) -> None:
    import json

    click.echo(json.dumps(document, indent=1, allow_nan=False))


def say(text: str, indent: str = "") -> None:
    """A sentence, wrapped at the console's width; further lines start with `indent`."""
    from dse.render.console import wrapped

    click.echo(wrapped(text, width(), indent))


def command_line() -> str:
    """The command that runs now, as it was given."""
    import shlex

    return shlex.join(["dse", *sys.argv[1:]])


def width() -> int:
    """Columns of the console, at most 100."""
    import shutil

    return max(min(shutil.get_terminal_size((100, 24)).columns, 100), 40)


# Progress of work that takes a while, on standard error.

QUIET_S = 2.0


class Progress:
    """A line every two seconds, none before the first two."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self.last >= QUIET_S:
            self.last = time.monotonic()
            click.echo(text, err=True)
