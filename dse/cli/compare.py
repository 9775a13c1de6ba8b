"""dse compare: two studies side by side, or two fleets; what prices moved and what that changed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import json_option
from dse.cli.printing import command_line, print_json, print_tables, say
from dse.cli.progress import Progress

if TYPE_CHECKING:
    from dse.answer.text_table import Table


@click.command("compare")
@click.argument("a", metavar="A|SPACE")
@click.argument("b", required=False)
@click.option(
    "--as-of", "dates", multiple=True, metavar="DATE",
    help="Of a SPACE, given twice: two studies of it, at the prices known then.",
)  # fmt: skip
@click.option(
    "--out",
    metavar="DIR",
    help="Write compare.html, compare.json, compare.csv and compare.xlsx there; of a SPACE, also "
    "both studies.",
)
@json_option
def command(a: str, b: str | None, dates: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """What changed from study A to study B: prices, the chosen designs, the front.

    \b
    dse run quickstart --as-of 2026-06 --out studies/june
    dse run quickstart --out studies/now
    dse compare studies/june studies/now --out changes
    dse compare quickstart --as-of 2026-06 --as-of 2026-11
    dse fleet plan.yaml --out fleets/now; dse compare fleets/june fleets/now

    A and B are folders that `dse run` or `dse fleet --out` wrote. Both studies have one price
    basis. entered and left are points of B and A that the other does not have.
    """
    from dse.errors import InputError

    if out == "":
        raise InputError("--out is empty", accepted="a folder")
    if b is not None and dates:
        raise InputError("--as-of does not go with two folders", accepted="one of the two")
    if b is not None:
        _two(Path(a), Path(b), out, as_json)
        return
    if len(dates) != 2:
        raise InputError(
            "'B' is missing", accepted="a second folder, or --as-of twice with a space"
        )
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as folder:
        first, second = (_study(a, date, Path(folder)) for date in _in_order(dates))
        called = None if out else (f"{a} as of {dates[0]}", f"{a} as of {dates[1]}")
        _show(first, second, out, as_json, called)


def _two(a: Path, b: Path, out: str | None, as_json: bool) -> None:
    from dse.questions.compare.fleet import is_fleet

    if is_fleet(a) or is_fleet(b):
        _show_fleets(a, b, out, as_json)
    else:
        _show(a, b, out, as_json)


def _in_order(dates: tuple[str, ...]) -> tuple[str, ...]:
    from dse.errors import InputError
    from dse.schema.own_prices import last_day

    if last_day(dates[0]) >= last_day(dates[1]):
        raise InputError(
            f"read {' and '.join(dates)}", field="--as-of", accepted="the earlier date first"
        )
    return dates


def _study(space: str, date: str, folder: Path) -> Path:
    """A study of a space at the prices of a date, with its report, in a folder of that name."""
    from dse.catalog import load_catalog
    from dse.questions.study import write_report
    from dse.study.run import run_study

    progress = Progress()

    def count(done: int, total: int | None, front: int) -> None:
        of = f" of at most {total:,}" if total else ""
        progress(f"as of {date}: {done:,}{of} points evaluated; front {front:,}")

    run_study(space, folder / date, catalog=load_catalog(as_of=date), progress=count)
    write_report(folder / date)
    return folder / date


def _show(
    a: Path, b: Path, out: str | None, as_json: bool, called: tuple[str, str] | None = None
) -> None:
    from dse.questions.compare.studies import compare
    from dse.questions.compare.words import alike, facts, lead, tables

    found = compare(a, b, called)
    document = {**found.document, "answer": lead(found)}
    _print(document, tables(found), [*facts(found), *alike(document)], as_json)
    if out is not None:
        from dse.render.compare import write_compared

        page = write_compared(Path(out), found, {**document, "command": command_line()})
        click.echo(f"Page: {page}", err=as_json)


def _show_fleets(a: Path, b: Path, out: str | None, as_json: bool) -> None:
    from dse.questions.compare.fleet import compare_fleets, tables
    from dse.questions.compare.words import alike

    document = compare_fleets(a, b)
    _print(document, tables(document), alike(document), as_json)
    if out is not None:
        from dse.render.compare import write_fleets

        page = write_fleets(Path(out), {**document, "command": command_line()})
        click.echo(f"Page: {page}", err=as_json)


def _print(
    document: dict[str, Any], tables: Sequence[Table], rests: Sequence[str], as_json: bool
) -> None:
    if as_json:
        print_json(document)
        return
    say(document["title"])
    for sentence in document["answer"]:
        say(f"- {sentence}", "  ")
    print_tables(tables)
    click.echo("\nHow the two compare:")
    for sentence in rests:
        say(f"- {sentence}", "  ")
