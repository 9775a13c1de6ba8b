"""dse claims: what people hold to be true about models and hardware, as numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from dse.cli.columns import wrapped
from dse.cli.options import json_option
from dse.cli.printing import print_json, print_table, say, width


@click.command("claims")
@click.argument("number", metavar="[N]", required=False, type=int)
@click.option("--markdown", metavar="FILE", help="Write the claims, with evidence, as Markdown.")
@json_option
def command(number: int | None, markdown: str | None, as_json: bool) -> None:
    """Claims about models and hardware, confirmed, qualified or contradicted.

    \b
    dse claims          all of them, one line each
    dse claims 2        one, with its rule and its evidence
    dse claims --markdown docs/claims.md

    Each verdict is computed from predictions and measured rows by a rule that is printed with it.
    """
    from pathlib import Path

    from dse.accuracy.claims.engine import claim, claims
    from dse.accuracy.claims.page import document
    from dse.accuracy.claims.page import markdown as page
    from dse.errors import StorageError

    asked = [claim(n) for n in (claims() if number is None else (number,))]
    last, found = time.monotonic(), []
    for k, one in enumerate(asked):
        if time.monotonic() - last > 2.0:
            last = time.monotonic()
            click.echo(f"{k} of {len(asked)} done, now claim {one.number}", err=True)
        found.append((one, one.found()))
    if markdown is not None:
        words = ["dse claims", *([str(number)] if number is not None else [])]
        text = page(found, " ".join([*words, "--markdown", "docs/claims.md"]))
        try:
            Path(markdown).write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{markdown}: cannot be written: {error.strerror}") from error
    if as_json:
        items = document(found)
        print_json(items if number is None else items[0])
    elif number is None:
        _print_all(found)
    else:
        _print_one(*found[0])
    if markdown is not None:
        click.echo(f"Written: {markdown}", err=as_json)


def _print_all(found: list[tuple[Any, Any]]) -> None:
    print_table(
        ("", "claim", "verdict", "in numbers"),
        [(str(one.number), one.text, finding.verdict, finding.number) for one, finding in found],
    )
    say("dse claims N prints the rule and the evidence of one.")


def _numbers(rows: Sequence[Sequence[str]]) -> list[int]:
    """Columns whose cells start with a digit, or hold no number at all."""
    return [
        k
        for k in range(1, len(rows[0]) if rows else 0)
        if all(row[k].lstrip("$-")[:1].isdigit() or row[k] == "–" for row in rows)
    ]


def _print_one(one: Any, finding: Any) -> None:
    say(f"Claim {one.number}: {one.text}", "  ")
    say(f"{finding.verdict.capitalize()}: {finding.number}.", "  ")
    for name, text in (
        ("Rule", one.rule),
        ("Holds for", finding.conditions),
        ("What the numbers are", finding.kinds),
        ("Not known", finding.unknown),
    ):
        if text:
            say(f"{name}: {text}", "  ")
    for table in finding.tables:
        click.echo("")
        say(f"{table.title}:", "  ")
        right = _numbers(table.rows)
        head, rows = wrapped(table.head, table.rows, width(), right)
        print_table(head, rows, right=right)
    if one.commands:
        click.echo("Commands:")
        for line in one.commands:
            click.echo(f"  {line}")
