"""dse rediscover: how far the front lands from designs that experts published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import json_option, law_option, read_catalog
from dse.cli.printing import print_json, print_table, print_tables, say
from dse.cli.progress import CountProgress


@click.command("rediscover")
@click.argument("case", required=False)
@law_option("Quality law that predicts the loss; else that of each case's space.")
@click.option("--markdown", metavar="FILE", help="Write the answer, with evidence, as Markdown.")
@json_option
def command(case: str | None, law: str | None, markdown: str | None, as_json: bool) -> None:
    """How far the front lands from designs that experts published, and why.

    \b
    dse rediscover                                 all shipped cases, one line each
    dse rediscover deepseek-v3                     one, with what the front changes and why
    dse rediscover --markdown docs/rediscovery.md

    CASE is a shipped name or the path of a case file (search_spaces/rediscovery). Every shape of
    its space and the expert's own are served on their cheapest deployments; what differs is swapped
    one parameter at a time, and the comparison is repeated with one assumption changed at a time.
    """
    from dse.questions.rediscovery import rediscover
    from dse.questions.rediscovery.page import document
    from dse.questions.rediscovery.page import markdown as page
    from dse.schema.rediscovery import load_case, resolve_case, shipped_cases

    paths = [resolve_case(case)] if case else list(shipped_cases().values())
    catalog, progress = read_catalog(), CountProgress("shapes served")
    cases = [load_case(path, law, catalog) for path in paths]
    answers = [rediscover(one, catalog, progress) for one in cases]
    if markdown is not None:
        words = ["dse rediscover", *([case] if case else []), *([f"--law {law}"] if law else [])]
        text = page(answers, " ".join([*words, "--markdown docs/rediscovery.md"]))
        _write(Path(markdown), text)
    if as_json:
        items = document(answers)
        print_json(items[0] if case else items)
    elif case:
        _print_one(answers[0])
    else:
        _print_all(answers)
    if markdown is not None:
        click.echo(f"Written: {markdown}", err=as_json)


def _write(file: Path, text: str) -> None:
    from dse.errors import StorageError

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{file}: cannot be written: {error.strerror}") from error


def _print_all(answers: list[Any]) -> None:
    from dse.questions.rediscovery.tables import summary
    from dse.questions.rediscovery.words import law_words, lead

    table = summary(answers)
    print_table(table.titles, table.rows, table.right)
    for found in answers:
        say(f"{found.case.title}: {' '.join(lead(found))}", "  ")
    say(law_words(answers[0]))
    click.echo("`dse rediscover CASE` says what the front changes, and why.")


def _print_one(found: Any) -> None:
    from dse.questions.rediscovery.page import path_words
    from dse.questions.rediscovery.tables import known_table, shape_table, variant_table
    from dse.questions.rediscovery.words import law_words, lead, looked_at, step_words

    say(found.case.title)
    for sentence in lead(found):
        say(f"- {sentence}", "  ")
    say(looked_at(found))
    print_tables([known_table(found), shape_table(found)])
    if found.case.held:
        say(f"Held at the expert's: {' and '.join(found.case.held)}, because {found.case.why_held}")
    for words, steps in path_words(found):
        click.echo()
        say(words)
        for k, step in enumerate(steps, 1):
            say(f"{k}. {step_words(step)}", "   ")
    print_tables([variant_table(found)])
    say(law_words(found))
