"""Printing of what a chip costs by the hour, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dse.cli.printing import width


def print_price(price: Mapping[str, Any]) -> None:
    """The parts of a price and every input with its kind and date; sources by number."""
    from dse.problem.price_words import price_tables
    from dse.render.console import blocks_text

    click.echo("\n".join(blocks_text(price_tables(price), width())))
