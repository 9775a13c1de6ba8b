"""dse report: write the report of a study again, from what the study holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dse.cli.options import law_option


@click.command("report")
@click.argument("study", type=click.Path(path_type=Path))
@law_option("all: search again under every quality law, and say where the answer depends on it.")
def command(study: Path, law: str | None) -> None:
    """Write report.html and report.md of a study folder again; nothing is evaluated without --law.

    \b
    dse report studies/quickstart
    dse report studies/quickstart --law all
    """
    from dse.errors import InputError
    from dse.quality.laws import ALL
    from dse.render import write_report
    from dse.study.folder import read_study

    document = read_study(study)[0]
    if law is None:
        write_report(study)
        click.echo(f"{study / 'report.html'}")
        return
    if law != ALL:
        raise InputError(
            f"read {law!r}: the front of another law is another study",
            field="--law",
            accepted=f"{ALL}, or dse run SPACE --law {law} --out DIR",
        )
    _under_every_law(study, document)


def _under_every_law(study: Path, document: dict[str, Any]) -> None:
    """Runs the study's own command again, which adds no trial, with --law all."""
    from shlex import split

    from dse.cli.run import command as run
    from dse.errors import InputError
    from dse.quality.laws import ALL

    words = split(document.get("command", ""))
    if words[:2] != ["dse", "run"]:
        raise InputError(
            f"{study} does not say how it was made",
            accepted=f"dse run {document['space']} --out {study} --law all",
        )
    with run.make_context("run", words[2:]) as asked:
        own = [name for name in asked.params["laws"] if name != ALL]
        asked.params |= {"out": study, "laws": (*own, ALL)}
        run.invoke(asked)
