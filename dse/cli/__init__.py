"""The command line: one module per verb, nothing heavy imported before a verb runs. A module whose
first line says "dse NAME: what it does." is a verb; nothing lists them."""

from __future__ import annotations

import atexit
import codecs
import gc
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from dse import __version__
from dse.data import rows_beside
from dse.errors import Doubt, DseError, InputError, acting, printable


def _verbs() -> dict[str, str]:
    """What each verb does: the first line of its module, `dse NAME: what it does.`"""
    found = {}
    folder = os.path.dirname(__file__)
    for name in sorted(os.listdir(folder)):
        verb, ending = os.path.splitext(name)
        if ending == ".py":
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                first = next((line for line in file if not line.startswith("#")), "")
            title, _, words = first.partition(": ")
            if title == f'"""dse {verb}':
                found[verb] = words.rstrip().removesuffix('"""').removesuffix(".")
    return found


VERBS = _verbs()
# Allocations between two searches for cycles of garbage: a short command leaves few, a search whole
# arrays.
COLLECT_AFTER = 2_000

# What else a person calls an argument than its name.
CALLED = {
    "model": ("config",),
    "models": ("config",),
    "what": ("study", "studies", "chip", "plan", "space", "model"),
}


class Lazy(click.Group):
    """Imports what a command needs when it is run; one that does not exist gets the near ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint} (accepted: {', '.join(known)})")
        return super().resolve_command(ctx, args)


class _Verbs(Lazy):
    """Imports a verb's module when the verb is run; `--help` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"dse.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if moved := _moved(args):
            raise click.UsageError(moved, ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # click would end with 1; whoever read had read enough
            _silence()
            return None
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def moved() -> dict[str, str]:
    """Verbs that are gone, and what to type instead."""
    return {row["was"]: row["is"] for row in rows_beside(__file__, "moved.csv")}


def _moved(args: Sequence[str]) -> str:
    """What a verb that is gone is called now; nothing for one that is there."""
    gone, there = moved(), args[0] in VERBS
    for words in (args[:2], args[:1]):
        new = gone.get(" ".join(words))
        if new and there and len(words) == 2:
            group = importlib.import_module(f"dse.cli.{args[0]}").command
            new = "" if words[1] in getattr(group, "commands", {}) else new
        elif there:
            new = ""
        if new:
            return f"dse {' '.join(words)} is now dse {new}"
    return ""


@click.group(cls=_Verbs, context_settings={"max_content_width": 100, "show_default": True})
@click.version_option(__version__, prog_name="dse", message="%(prog)s %(version)s")
def cli() -> None:
    """Choose model architectures and hardware together.

    \b
    dse run quickstart                                       search shapes and deployments
    dse estimate --model llama-3-70b --chip h100_sxm --tp 8  predict one point
    dse catalog spaces list                                  what can be searched

    `dse COMMAND --help` has the options of a command. Exit codes: 0 done, 2 bad input, 3 a search
    with nothing feasible, 4 a folder or storage that cannot be used.
    """


@contextmanager
def _doubts_as_notes() -> Iterator[None]:
    """Doubts of what was read are notes on standard error, each once."""
    said: set[str] = set()

    def note(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, Doubt):
            others(message, category, *place, **more)
        elif str(message) not in said:
            said.add(str(message))
            click.echo(f"note: {printable(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", Doubt)
        others, warnings.showwarning = warnings.showwarning, note
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: prints user errors without a traceback and ends with their exit code."""
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)  # what is left goes with the process, unsearched
    codecs.register_error("dse", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dse")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        for place, word in enumerate(given, 1):
            if found := acting(word):  # the word itself may hold a password
                said = f"argument {place} contains the character {found}"
                raise InputError(said, accepted="text without it")
        with _doubts_as_notes():
            cli.main(args=given, standalone_mode=False)
        sys.stdout.flush()
    except DseError as error:
        click.echo(f"dse: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        shown = io.StringIO()
        if other := _other_way(error, given):
            error = click.UsageError(other, getattr(error, "ctx", None))
        error.show(shown)
        click.echo(printable(shown.getvalue()), err=True, nl=False)
        sys.exit(2)
    except ArithmeticError as error:
        click.echo(f"dse: a figure is too large or too small to count with: {error}", err=True)
        sys.exit(2)
    except click.Abort:
        click.echo("dse: stopped; what a study has stored is kept, run it again to go on", err=True)
        sys.exit(130)
    except BrokenPipeError:
        _silence()
        sys.exit(0)
    except OSError as error:
        about = f": {str(error.filename)[:80]}" if error.filename else ""
        click.echo(f"dse: cannot go on: {error.strerror or error}{printable(about)}", err=True)
        _silence()
        sys.exit(4)


def _other_way(error: click.ClickException, words: Sequence[str]) -> str:
    """What to tell who gave an argument as an option, or a model as an argument; or nothing."""
    import re

    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return ""
    root = str(context.find_root().info_name)
    verb = f"dse{context.command_path.removeprefix(root)}"
    params = context.command.params
    if not isinstance(error, click.NoSuchOption):
        extra = re.search(r"extra argument \((\S+)\)", error.message)
        arguments = any(isinstance(one, click.Argument) for one in params)
        if not extra or arguments or not any("--model" in one.opts for one in params):
            return ""
        return f"{error.message}. A model is given as --model: {verb} --model {extra[1]}"
    option = error.option_name
    called = option.lstrip("-")
    for one in params:
        own = str(one.name)
        names = (own, *re.findall(r"\w+", (one.metavar or "").lower()), *CALLED.get(own, ()))
        if isinstance(one, click.Argument) and called in names:
            behind = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
            behind += words[words.index(option) + 1 :][:1] if option in words else []
            value = next((word for word in behind if not word.startswith("-")), called.upper())
            return f"{error.message} The {called} is given without {option}: {verb} {value}"
    return ""


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """What a console without these characters shows in their place."""
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in lost), error.end


_ASCII = {"─": "-", "–": "-", "×": "x", "µ": "u", "∞": "inf", "…": "..."}


def _silence() -> None:
    """Standard output is gone; what it still holds must not complain when Python ends."""
    with suppress(io.UnsupportedOperation):  # a stream of this process alone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
