"""dse hardware: what is not yet of another verb."""

from __future__ import annotations

import click

from dse.cli.fit import command as fit
from dse.cli.hardware_compare import compare_chips
from dse.cli.hardware_require import require_chip


@click.group("hardware")
def command() -> None:
    """Chips side by side, what a chip must have, and how many a model needs."""


for _command in (compare_chips, require_chip, fit):
    command.add_command(_command)
