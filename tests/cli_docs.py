"""docs/cli.md, from the real help: `python -m tests.cli_docs > docs/cli.md`."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence

import click

from dse.cli import VERBS, cli

HEAD = """\
# The command line

Generated from the help texts by `python -m tests.cli_docs`; a test fails when this page is stale.

- `--json` prints one JSON document on standard output and nothing else there. What does not apply
  is null. Progress and messages go to standard error.
- Exit codes: 0 done (an infeasible point is an answer: `feasible: false`), 2 bad input, 3 a search
  with nothing feasible (its trials are kept), 4 a study folder or storage that cannot be used.
- A study folder holds `report.html`, `report.md`, `front.csv` (every point of the front),
  `front.json` (the same with shape, deployment, metrics and the command that repeats it),
  `study.json` (the search: sizes, versions, counts, sources) and `journal.log` (the Optuna study).
- `front.csv` has nine significant digits and no times: the same seed, versions, data and kind of
  machine give the same bytes.
- A folder belongs to one space, seed, engine, version and set of hardware data. Another one is
  refused; `--fresh` starts over.
"""

SHARED = """\
## Shared options

Several commands take these; `Also` under a command names which. `--help` is an option of all.
"""
WIDTH = 100
COLUMN = 30
Record = tuple[str, str]


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it, groups before their members."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for verb in VERBS:
        found += _members((verb,), importlib.import_module(f"dse.cli.{verb}").command)
    return found


def _members(
    path: tuple[str, ...], command: click.Command
) -> list[tuple[tuple[str, ...], click.Command]]:
    """A command and those inside it."""
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            found += _members((*path, name), member)
    return found


def context_of(path: tuple[str, ...], command: click.Command) -> click.Context:
    """Where `dse PATH` is read."""
    context = click.Context(cli, info_name="dse", terminal_width=WIDTH, show_default=True)
    known = dict(commands())
    for k, name in enumerate(path[:-1], 1):
        context = click.Context(known[path[:k]], info_name=name, parent=context)
    return click.Context(command, info_name=path[-1], parent=context)


def options_of(path: tuple[str, ...], command: click.Command) -> list[Record]:
    """The options of a command as its help shows them, `--help` left out."""
    context = context_of(path, command)
    asked = (one for one in command.params if isinstance(one, click.Option))
    return [record for one in asked if (record := one.get_help_record(context))]


def shared() -> list[Record]:
    """The options that two commands or more have with the same words, in the order in which they
    are met; of an option that has several texts, the one that most commands have."""
    met = Counter(record for one in commands() for record in options_of(*one))
    usual = {names.split()[0]: (names, said) for (names, said), _ in reversed(met.most_common())}
    return [record for record in met if met[record] > 1 and record in usual.values()]


def listed(records: Iterable[Record]) -> str:
    formatter = click.HelpFormatter(width=WIDTH - 2)
    formatter.write_dl(list(records), col_max=COLUMN)
    return formatter.getvalue().rstrip()


def help_of(path: tuple[str, ...], command: click.Command, known: Sequence[Record]) -> str:
    """The help as a terminal of 100 columns shows it, without the options of `known`."""
    context = context_of(path, command)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    if own := [record for record in options_of(path, command) if record not in known]:
        with formatter.section("Options"):
            formatter.write_dl(own, col_max=COLUMN)
    return formatter.getvalue().rstrip()


def also(path: tuple[str, ...], command: click.Command, known: Sequence[Record]) -> str:
    """Which of the shared options a command takes."""
    taken = options_of(path, command)
    mine, others = ([one for one in known if (one in taken) is has] for has in (True, False))
    if not mine:
        return ""
    most = len(mine) > len(others)
    names = ", ".join(f"`{names.split()[0]}`" for names, _ in (others if most else mine))
    return f"Also: all of the shared options but {names}.\n" if most else f"Also: {names}.\n"


def page() -> str:
    """The whole page."""
    known = shared()
    parts = [HEAD, f"{SHARED}\n```text\n{listed(known)}\n```\n"]
    for path, command in commands():
        level = "#" * (1 + len(path))
        shown = help_of(path, command, known)
        parts.append(f"{level} dse {' '.join(path)}\n\n```text\n{shown}\n```\n")
        parts += filter(None, [also(path, command, known)])
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
