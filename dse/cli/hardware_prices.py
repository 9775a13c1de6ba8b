"""dse hardware prices: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import json_option, price_options, read_catalog
from dse.cli.printing import print_json, print_table, print_tables, say


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
@json_option
def list_prices(
    chips: tuple[str, ...],
    basis: str | None,
    since: str | None,
    chip_files: tuple[str, ...],
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
        lead_since,
        price_changes_since,
        price_list,
        tables_since,
    )

    catalog = read_catalog(chip_files)
    if since is not None:
        changes = price_changes_since(catalog, since, chips, basis)
        if as_json:
            print_json(changes)
            return
        say(lead_since(changes), "  ")
        print_tables(tables_since(changes))
        return
    document = price_list(catalog, chips, basis)
    if as_json:
        print_json(document)
    else:
        _print(document, named=bool(chips))


def _print(document: dict[str, Any], named: bool) -> None:
    from dse.cli.costs import print_price
    from dse.economics.priced import parts_table
    from dse.schema.prices import COMPUTED

    rows = document["prices"]
    published = [row for row in rows if row["basis"] not in COMPUTED]
    sources = list(dict.fromkeys(row["source"] for row in published))
    if published:
        print_table(
            ("chip", "basis", "$/chip-hour", "date", "provider", "source"),
            [
                (
                    row["chip"],
                    row["basis"],
                    f"{row['usd_per_chip_hour']:.2f}",
                    row["date"],
                    _short(row["provider"], 22),
                    f"[{sources.index(row['source']) + 1}]"
                    + ("" if row["counted"] else " not counted"),
                )
                for row in published
            ],
            right=(2,),
        )
        print_table(
            ("chip", "basis", "paid, $/chip-hour", "newest", "by"),
            [
                (
                    one["chip"],
                    one["basis"],
                    f"{one['usd_per_chip_hour']:.3f}",
                    one["date"],
                    _short(one["rule"], 34),
                )
                for one in document["paid"]
                if "breakdown" not in one
            ],
            right=(2,),
        )
    for k, source in enumerate(sources, 1):
        say(f"[{k}] {source}", "    ")
    for basis in COMPUTED:
        priced = [one["breakdown"] for one in document["paid"] if one["basis"] == basis]
        if priced and named:
            for one in priced:
                click.echo()
                print_price(one)
        elif priced:
            click.echo(f"\n{basis}:")
            print_tables([parts_table(priced)])
    said = f", as of {document['as_of']}" if document["as_of"] else ""
    say(f"{len(rows):,} prices{said}. Notes: --json.", "  ")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
