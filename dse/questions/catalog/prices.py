"""`dse catalog prices`: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any

from dse.answer.answer import Answer, Block, table_of
from dse.answer.frames import of_rows
from dse.answer.numbers import significant
from dse.answer.sentences import Sources
from dse.catalog import Catalog, load_catalog
from dse.economics.prices import (
    STALE_DAYS,
    catalog_day,
    evidence_rows,
    price_parts,
    price_tables,
    rests_on,
)
from dse.economics.tco import price_by_parts, with_basis
from dse.errors import InputError
from dse.options import Opt
from dse.schema.prices import COMPUTED, PRICE_TIERS, PriceRow, first_day


def list_prices(
    *,
    chips: Annotated[tuple[str, ...], Opt("Of one chip; may be repeated.", metavar="CHIP")] = (),
    basis: Annotated[str | None, Opt("On one basis only.", metavar="BASIS")] = None,
    catalog: Catalog | None = None,
) -> Answer:
    """Every price of an hour, oldest first, and what each chip costs by them. A chip with several
    prices on a basis costs their median, of a provider the newest; a row that another has
    superseded is listed and not counted. Computed prices are shown by parts with what they rest
    on, those of a chip asked for by name input by input.

    In the document `prices` are rows of the files, and `paid` what a chip costs by them on each
    basis, with its `breakdown` where that is computed. Raises InputError for a chip, a basis or a
    date that is none, and where no price is left."""
    catalog, named = (catalog or load_catalog()).with_chips(chips, "--chip")
    catalog = _computed(catalog, named, basis)
    rows = [
        row
        for row in catalog.prices.rows
        if (not named or row.chip in named) and basis in (None, row.basis)
    ]
    if not rows:
        raise _none(catalog, named, basis)
    rows.sort(key=lambda row: (row.chip, row.basis, first_day(row.date), row.line))
    used: set[PriceRow] = set()
    for name in {row.basis for row in rows}:
        used.update(*(price.rows for price in catalog.prices.select(name).values()))
    keys = ("chip", "basis", "usd_per_chip_hour", "provider", "date", "source")
    prices = [
        {key: getattr(row, key) for key in keys}
        | {"note": row.note or None, "counted": row in used}
        for row in rows
    ]
    paid = paid_by(catalog, named, basis)
    for one in paid:
        if one["basis"] in COMPUTED:
            one["breakdown"] = price_by_parts(catalog, one["chip"], one["basis"])
    sources = Sources()
    published = [
        row | {"source": sources(row["source"]) + ("" if row["counted"] else " not counted")}
        for row in prices
        if row["basis"] not in COMPUTED
    ]
    keys = "chip basis usd_per_chip_hour date provider source"
    by_them = [row for row in paid if "breakdown" not in row]
    tables = [
        of_rows("prices", "Published prices", published, keys, *sources),
        of_rows(
            "paid",
            "What a chip costs by them",
            by_them,
            "chip basis usd_per_chip_hour date price_rule=rule",
        ),
    ]
    day = catalog.source.as_of
    as_of = f", as of {day}" if day else ""
    return Answer(
        question="prices",
        title="Prices of an hour of a chip",
        asked=f"Prices of an hour of a chip{as_of}",
        headline=f"{len(rows):,} price{'s' * (len(rows) != 1)}{as_of}. Notes: --json.",
        blocks=[*(tables if published else ()), *_owned(paid, named=bool(named))],
        document={
            "as_of": day,
            "files": list(catalog.source.prices),
            "prices": prices,
            "paid": paid,
        },
        data=(table_of("data", prices),),
    )


def show_price(
    chip: Annotated[str, Opt(positional=True)], *, catalog: Catalog | None = None
) -> Answer:
    """What CHIP costs by commitment: spot, on demand, one year, three years, owned, as far as there
    are quotes, each with how many, how far apart, of when, and what to check.

    Raises InputError for an unknown chip and for one without a price."""
    catalog, chip = (catalog or load_catalog()).with_chip(chip)
    catalog = _computed(catalog, [chip], None)
    known = [basis for basis in PRICE_TIERS if basis in catalog.prices.bases()]
    rows = evidence_rows(catalog, [(chip, basis) for basis in known])
    if not rows:
        raise _none(catalog, [chip], None)
    day = catalog_day(catalog)
    shown = [
        row
        | {
            "quotes": f"{row['quotes']}: "
            + " to ".join(dict.fromkeys(significant(row[end]) for end in ("low_usd", "high_usd"))),
            "check": ", ".join(row["warnings"]),
        }
        for row in rows
    ]
    tiers = of_rows(
        "tiers",
        "Dollars an hour of a chip",
        shown,
        "basis price_tier=tier usd_per_chip_hour quotes providers dates price_check=check",
        "Paid: the median of the quotes, of a provider the newest. On owned_tco quotes are of the "
        f"chip bought. Old: none within {STALE_DAYS} days. Below owning: the lower of owned_tco "
        "and owned_tco_neocloud.",
    )
    return Answer(
        question="price",
        title=f"Prices of {chip} by commitment",
        headline=f"{chip} as of {day}, by how long one commits; each with its dates.",
        blocks=[tiers],
        document={"chip": chip, "as_of": day, "prices": rows},
        data=(table_of("data", rows),),
    )


def _owned(paid: list[dict[str, Any]], named: bool) -> list[Block]:
    """What is computed: by parts, of chips that were `named` input by input."""
    made: list[Block] = []
    for basis in COMPUTED:
        priced = [one["breakdown"] for one in paid if one["basis"] == basis]
        if named:
            made += [table for one in priced for table in price_tables(one)]
        elif priced:
            caption = f"{basis}: an owned chip-hour by its parts"
            made.append(replace(price_parts(priced, caption), name=basis, notes=rests_on(priced)))
    return made


def _computed(catalog: Catalog, chips: Collection[str], basis: str | None) -> Catalog:
    """With the prices of every basis that is computed."""
    for chip in chips:
        catalog.chip(chip)
    for computed in COMPUTED:
        catalog = with_basis(catalog, computed)
    if basis is not None:
        catalog.prices.select(basis)
    return catalog


def paid_by(
    catalog: Catalog, chips: Collection[str] = (), basis: str | None = None
) -> list[dict[str, Any]]:
    """What each chip costs on each basis, with the rule and the prices that it follows from."""
    return [
        {
            "chip": chip,
            "basis": one,
            "usd_per_chip_hour": price.usd_per_chip_hour,
            "rule": price.rule,
            "date": price.newest_date,
            "prices": len(price.rows),
            "lowest": min(row.usd_per_chip_hour for row in price.rows),
            "highest": max(row.usd_per_chip_hour for row in price.rows),
            "source": "; ".join(price.sources),
        }
        for one in catalog.prices.bases()
        if basis in (None, one)
        for chip, price in sorted(catalog.prices.select(one).items())
        if not chips or chip in chips
    ]


def _none(catalog: Catalog, chips: Collection[str], basis: str | None) -> InputError:
    asked = [*chips, *([basis] if basis else [])]
    then = f" as of {as_of}" if (as_of := catalog.source.as_of) else ""
    return InputError(
        f"no price of {', '.join(asked) or 'any chip'}{then}",
        field="--basis" if basis else "--chip" if chips else "--as-of",
        accepted="another basis or date, or --prices FILE with rows of yours",
    )
