"""The command line: one module per verb, nothing heavy imported before a verb runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from dse import __version__
from dse.errors import DseError

VERBS = {
    "run": "search a space and write the Pareto-front report",
    "estimate": "predict one point, a point of a study, or every row of a file",
    "explain": "where time, memory, money and energy of one point go",
    "compare": "two studies side by side: hypervolume, what entered and left the front",
    "report": "write the report of a study again",
    "hardware": "the chips: list, show, check",
    "models": "the published models: list, show",
    "spaces": "the search spaces: list, show, check",
}


class _Lazy(click.Group):
    """Imports a verb's module when the verb is run; `--help` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"dse.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Lazy, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="dse", message="%(prog)s %(version)s")
def cli() -> None:
    """Choose model architectures and hardware together.

    \b
    dse run quickstart                                       search shapes and deployments
    dse estimate --model llama-3-70b --chip h100_sxm --tp 8  predict one point
    dse spaces list                                          what can be searched
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: prints user errors without a traceback and ends with their exit code."""
    try:
        cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except DseError as error:
        click.echo(f"dse: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("dse: stopped; what was computed is kept in the study folder", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
