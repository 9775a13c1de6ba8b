"""dse hardware: what is not yet of another verb."""

from __future__ import annotations

import click

from dse.cli.fit import command as fit
from dse.cli.hardware_compare import compare_chips


@click.group("hardware")
def command() -> None:
    """Chips side by side, and how many a model needs."""


for _command in (compare_chips, fit):
    command.add_command(_command)
