"""dse hardware prices: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from pathlib import Path

import click

from dse.cli.options import json_option, out_option, price_options, read_catalog
from dse.cli.printing import command_line, deliver


@click.command("prices")
@click.option(
    "--chip", "chips", multiple=True, metavar="CHIP", help="Of one chip; may be repeated."
)
@click.option("--basis", metavar="BASIS", help="On one basis only.")
@click.option(
    "--since", metavar="DATE", help="Only what changed since then: by prices known then, and now."
)
@click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
@price_options
@out_option("prices")
@json_option
def list_prices(
    chips: tuple[str, ...],
    basis: str | None,
    since: str | None,
    chip_files: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """Every price of an hour, oldest first, and what each chip costs by them.

    \b
    dse hardware prices --chip h100_sxm --basis on_demand
    dse hardware prices --basis on_demand --as-of 2026-06
    dse hardware prices --basis owned_tco --costs my_costs.yaml
    dse hardware prices --since 2026-Q2

    A chip with several prices on a basis costs their median, of a provider the newest; a row that
    another has superseded is listed and not counted. Computed prices are shown by parts with what
    they rest on, those of a chip asked for by name input by input.
    """
    from dse.questions.compare.price_list import (
        price_changes_since,
        price_list,
        prices_answer,
        since_answer,
    )

    catalog, line = read_catalog(chip_files), command_line()
    if since is not None:
        answer = since_answer(price_changes_since(catalog, since, chips, basis), line)
    else:
        answer = prices_answer(price_list(catalog, chips, basis), bool(chips), line)
    deliver(answer, out=out, as_json=as_json)
