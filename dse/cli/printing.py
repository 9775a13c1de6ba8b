"""What verbs print: sentences, tables and documents within the console's width."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dse.answer.text_table import Table


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def say(text: str, indent: str = "") -> None:
    """A sentence, wrapped at the console's width; further lines start with `indent`."""
    import textwrap

    lines = textwrap.wrap(
        text, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    click.echo("\n".join(lines))


def say_command(text: str) -> None:
    """A command line, indented, that goes on after a backslash where it is too wide."""
    import textwrap

    from dse.answer.shell import continued

    click.echo(textwrap.indent(continued(text, width() - 2), "  "))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """A plain table within the console's width; columns in `right` are right-aligned and stay on
    one line where half the width is enough for them."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    rows = list(rows)
    whole = sum(max(len(row[k]) for row in [header, *rows]) + 2 for k in right) <= width() // 2
    for k, title in enumerate(header):
        table.add_column(
            title,
            justify="right" if k in right else "left",
            overflow="fold",
            no_wrap=whole and k in right,
        )
    for row in rows:
        table.add_row(*row)
    console = Console(width=width(), highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    text = "\n".join(line.rstrip() for line in capture.get().splitlines())
    click.echo(f"\n{text}\n")


def print_tables(tables: Iterable[Table]) -> None:
    """Each table under its caption, with its notes."""
    for table in tables:
        click.echo()
        say(table.caption)
        print_table(table.titles, table.rows, right=table.right)
        for note in table.notes:
            say(note, "  ")


def print_rests(texts: Iterable[str]) -> None:
    """What an answer rests on, a line each."""
    click.echo("\nRests on:")
    for text in texts:
        say(f"- {text}", "  ")


def print_workloads(answer: dict[str, Any]) -> None:
    """What an estimate says of each workload of a mix; nothing where there is one."""
    from dse.problem.words import MIX, workload_table

    if answer["workload"] is None:
        titles, rows = workload_table(answer["workloads"])
        print_table(titles, rows, right=range(1, len(titles)))
        say(MIX, "  ")


def command_line() -> str:
    """The command that runs now, as it was given."""
    return shlex.join(["dse", *sys.argv[1:]])


def width() -> int:
    """Columns of the console, at most 100."""
    import shutil

    return max(min(shutil.get_terminal_size((100, 24)).columns, 100), 40)
