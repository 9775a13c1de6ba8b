"""dse hardware prices: every price with its source and date, and what is paid by it."""

from __future__ import annotations

from typing import Any

import click

from dse.cli.options import json_option, price_options
from dse.cli.printing import print_json, print_table, say


@click.command("prices")
@click.option(
    "--chip", "chips", multiple=True, metavar="CHIP", help="Of one chip; may be repeated."
)
@click.option("--basis", metavar="BASIS", help="On one basis only.")
@click.option(
    "--chip-file", "chip_files", multiple=True, metavar="FILE", help="A chip file of yours."
)
@price_options
@json_option
def list_prices(
    chips: tuple[str, ...], basis: str | None, chip_files: tuple[str, ...], as_json: bool
) -> None:
    """Every price of an hour, oldest first, and what each chip costs by them.

    \b
    dse hardware prices --chip h100_sxm --basis on_demand
    dse hardware prices --basis on_demand --as-of 2026-06
    dse hardware prices --basis owned_tco --costs my_costs.yaml

    A chip with several prices on a basis costs their median; a row that another has superseded is
    listed and not counted.
    """
    from dse.economics.tco import with_basis
    from dse.errors import InputError
    from dse.specs.catalog import load_catalog
    from dse.specs.own_prices import first_day, in_force
    from dse.specs.prices import COMPUTED, SUPERSEDED

    catalog = load_catalog(extra_chip_files=chip_files)
    for chip in chips:
        catalog.chip(chip)
    for computed in COMPUTED:
        catalog = with_basis(catalog, computed)
    if basis is not None:
        catalog.prices.select(basis)
    rows = [
        row
        for row in catalog.prices.rows
        if (not chips or row.chip in chips) and basis in (None, row.basis)
    ]
    if not rows:
        asked = [*chips, *([basis] if basis else [])]
        own = in_force()
        then = f" as of {own.as_of}" if own.as_of else ""
        raise InputError(
            f"no price of {', '.join(asked) or 'any chip'}{then}",
            field="--basis" if basis else "--chip",
            accepted="another basis or date, or --prices FILE with rows of yours",
        )
    rows.sort(key=lambda row: (row.chip, row.basis, first_day(row.date), row.line))
    paid = [
        {"chip": chip, "basis": one, "usd_per_chip_hour": price.usd_per_chip_hour,
         "rule": price.rule, "date": price.newest_date, "prices": len(price.rows)}
        for one in sorted({row.basis for row in rows})
        for chip, price in sorted(catalog.prices.select(one).items())
        if not chips or chip in chips
    ]  # fmt: skip
    document: dict[str, Any] = {
        "as_of": in_force().as_of,
        "files": list(in_force().prices),
        "prices": [
            {"chip": row.chip, "basis": row.basis, "usd_per_chip_hour": row.usd_per_chip_hour,
             "provider": row.provider, "date": row.date, "source": row.source,
             "note": row.note or None, "counted": not row.note.startswith(SUPERSEDED)}
            for row in rows
        ],
        "paid": paid,
    }  # fmt: skip
    if as_json:
        print_json(document)
        return
    _print(document, basis in COMPUTED)


def _print(document: dict[str, Any], computed: bool) -> None:
    from dse.specs.prices import COMPUTED

    rows = document["prices"]
    published = [row for row in rows if row["basis"] not in COMPUTED]
    sources = list(dict.fromkeys(row["source"] for row in published))
    if not computed:
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
        ],
        right=(2,),
    )
    said = f", as of {document['as_of']}" if document["as_of"] else ""
    for k, source in enumerate(sources, 1):
        say(f"[{k}] {source}", "    ")
    say(f"{len(rows):,} prices{said}. Notes, and what computed prices rest on: --json.", "  ")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
