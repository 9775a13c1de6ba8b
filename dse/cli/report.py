"""dse report: write the report of a study again, from what the study holds."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("study", type=click.Path(path_type=Path))
def command(study: Path) -> None:
    """Write report.html and report.md of a study folder again; nothing is evaluated.

    \b
    dse report studies/quickstart
    """
    from dse.report import write_report
    from dse.study.folder import read_study

    read_study(study)
    write_report(study)
    click.echo(f"{study / 'report.html'}")
