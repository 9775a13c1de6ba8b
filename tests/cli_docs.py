"""docs/cli.md, from the real help: `python -m tests.cli_docs > docs/cli.md`."""

from __future__ import annotations

import importlib

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
        for name, member in command.commands.items():
            found += _members((*path, name), member)
    return found


def help_of(path: tuple[str, ...], command: click.Command) -> str:
    """The help as a terminal of 100 columns shows it."""
    parent = click.Context(cli, info_name="dse", terminal_width=100, show_default=True)
    known = dict(commands())
    for k, name in enumerate(path[:-1], 1):
        parent = click.Context(known[path[:k]], info_name=name, parent=parent)
    return command.get_help(click.Context(command, info_name=path[-1], parent=parent))


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path, command in commands():
        level = "#" * (1 + len(path))
        parts.append(f"{level} dse {' '.join(path)}\n\n```text\n{help_of(path, command)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
