"""dse hardware: what is not yet of another verb."""

from __future__ import annotations

import click

from dse.cli.fit import command as fit


@click.group("hardware")
def command() -> None:
    """How many chips a model needs."""


command.add_command(fit)
