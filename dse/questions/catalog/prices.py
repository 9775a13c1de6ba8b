"""`dse catalog prices`: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Block, Column, Table, table_of
from dse.answer.numbers import significant
from dse.answer.sentences import Sources
from dse.catalog import Catalog
from dse.economics.prices import (
    STALE_DAYS,
    catalog_day,
    evidence_rows,
    price_parts,
    price_tables,
    rests_on,
)
from dse.economics.tco import usd_per_chip_hour, with_basis
from dse.errors import InputError
from dse.questions.compare.prices import change, moved, price_pairs, price_table
from dse.schema.prices import COMPUTED, PRICE_TIERS, PriceRow, first_day, last_day

MEDIAN = (
    "A chip with several prices costs their median, of a provider the newest. It also moves where "
    "another provider becomes known: dse catalog prices list --chip CHIP --basis BASIS lists them."
)


def list_prices(
    catalog: Catalog,
    chips: Collection[str] = (),
    basis: str | None = None,
    since: str | None = None,
) -> Answer:
    """Every price of an hour, oldest first, and what each chip costs by them, of chips asked for by
    name with every input of a computed price; or (`since`) only what changed since a date.

    In the document `prices` are rows of the files, and `paid` what a chip costs by them on each
    basis, with its `breakdown` where that is computed. Raises InputError for a chip, a basis or a
    date that is none, and where no price is left."""
    catalog, chips = catalog.with_chips(chips, "--chip")
    if since is not None:
        return _since(catalog, since, chips, basis)
    catalog = _computed(catalog, chips, basis)
    rows = [
        row
        for row in catalog.prices.rows
        if (not chips or row.chip in chips) and basis in (None, row.basis)
    ]
    if not rows:
        raise _none(catalog, chips, basis)
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
    paid = _paid(catalog, chips, basis)
    for one in paid:
        if one["basis"] in COMPUTED:
            one["breakdown"] = usd_per_chip_hour(catalog, one["chip"], one["basis"]).as_json()
    day = catalog.source.as_of
    as_of = f", as of {day}" if day else ""
    return Answer(
        question="prices",
        title="Prices of an hour of a chip",
        asked=f"Prices of an hour of a chip{as_of}",
        headline=f"{len(rows):,} price{'s' * (len(rows) != 1)}{as_of}. Notes: --json.",
        blocks=[*_published(prices, paid), *_owned(paid, named=bool(chips))],
        document={
            "as_of": day,
            "files": list(catalog.source.prices),
            "prices": prices,
            "paid": paid,
        },
        data=(table_of("data", prices),),
    )


def show_prices(catalog: Catalog, chip: str) -> Answer:
    """What a chip costs on every basis, the shortest commitment first, and what each price rests
    on. Raises InputError for an unknown chip and for one without a price."""
    catalog, chip = catalog.with_chip(chip)
    catalog = _computed(catalog, [chip], None)
    known = [basis for basis in PRICE_TIERS if basis in catalog.prices.bases()]
    rows = evidence_rows(catalog, [(chip, basis) for basis in known])
    if not rows:
        raise _none(catalog, [chip], None)
    day = catalog_day(catalog)
    return Answer(
        question="prices",
        title=f"Prices of {chip} by commitment",
        headline=f"{chip} as of {day}, by how long one commits; each with its dates.",
        blocks=[
            Table.of(
                "tiers",
                "Dollars an hour of a chip",
                rows,
                (
                    Column("basis", "basis"),
                    Column("tier", "how it is had"),
                    Column("usd_per_chip_hour", "paid", "dollars"),
                    Column("range", "quotes", right=True, of=_range),
                    Column("providers", "providers", "count"),
                    Column("dates", "of"),
                    Column("check", "check", of=lambda row: ", ".join(row["warnings"])),
                ),
                (
                    "Paid: the median of the quotes, of a provider the newest. On owned_tco quotes "
                    f"are of the chip bought. Old: none within {STALE_DAYS} days. Below owning: "
                    "the lower of owned_tco and owned_tco_neocloud.",
                ),
            )
        ],
        document={"chip": chip, "as_of": day, "prices": rows},
        data=(table_of("data", rows),),
    )


def _range(row: dict[str, Any]) -> str:
    ends = dict.fromkeys(significant(row[key]) for key in ("low_usd", "high_usd"))
    return f"{row['quotes']}: {' to '.join(ends)}"


def _published(prices: list[dict[str, Any]], paid: list[dict[str, Any]]) -> list[Table]:
    sources = Sources()
    shown = [row for row in prices if row["basis"] not in COMPUTED]
    first = (
        Column("chip", "chip"),
        Column("basis", "basis"),
        Column("usd_per_chip_hour", "$/chip-hour", "dollars"),
        Column("date", "date"),
        Column("provider", "provider"),
        Column(
            "sources",
            "source",
            of=lambda row: sources(row["source"]) + ("" if row["counted"] else " not counted"),
        ),
    )
    then = (
        Column("chip", "chip"),
        Column("basis", "basis"),
        Column("usd_per_chip_hour", "paid, $/chip-hour", "dollars"),
        Column("date", "newest"),
        Column("rule", "by"),
    )
    by_them = [row for row in paid if "breakdown" not in row]
    return [
        Table.of("prices", "Published prices", shown, first, sources),
        Table.of("paid", "What a chip costs by them", by_them, then),
    ] * bool(shown)


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


def _since(catalog: Catalog, since: str, chips: Collection[str], basis: str | None) -> Answer:
    """What is paid by the prices that were known then against those of now (of --as-of), where that
    differs: a table for each basis. Raises InputError for a date that is none or not before that of
    now, too."""
    now, then = catalog.source.as_of, last_day(since, "--since")
    if now is not None and then >= last_day(now):
        raise InputError(
            f"read {since!r}: not before --as-of {now}", field="--since", accepted="an earlier date"
        )
    after = _paid(_computed(catalog, chips, basis), chips, basis)
    before = _paid(_computed(catalog.as_of(then), chips, None), chips, basis)
    if not before and not after:
        raise _none(catalog, chips, basis)
    by_basis = {
        name: moved(
            price_pairs(
                *([row for row in rows if row["basis"] == name] for rows in (before, after))
            )
        )
        for name in sorted({row["basis"] for row in (*after, *before)})
    }
    changes = [
        {"basis": name, **row}
        for name, rows in by_basis.items()
        for row in sorted(rows, key=lambda row: row["chip"])
    ]
    document = {
        "since": since,
        "as_of": now,
        "files": list(catalog.source.prices),
        "paid_then": len(before),
        "changes": changes,
    }
    sources = Sources()
    tables = [
        price_table(
            name,
            f"{name}, per chip-hour",
            [row for row in changes if row["basis"] == name],
            ("then", "now"),
            sources,
        )
        for name, rows in by_basis.items()
        if rows
    ]
    if tables:
        tables[-1] = replace(tables[-1], notes=(MEDIAN, *sources))
    return Answer(
        question="prices",
        title=f"Prices since {since}",
        headline=_changes_words(document),
        blocks=tables,
        document=document,
        data=(table_of("data", changes),),
    )


def _computed(catalog: Catalog, chips: Collection[str], basis: str | None) -> Catalog:
    """With the prices of every basis that is computed."""
    for chip in chips:
        catalog.chip(chip)
    for computed in COMPUTED:
        catalog = with_basis(catalog, computed)
    if basis is not None:
        catalog.prices.select(basis)
    return catalog


def _paid(catalog: Catalog, chips: Collection[str], basis: str | None) -> list[dict[str, Any]]:
    return [
        {
            "chip": chip,
            "basis": one,
            "usd_per_chip_hour": price.usd_per_chip_hour,
            "rule": price.rule,
            "date": price.newest_date,
            "prices": len(price.rows),
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


def _changes_words(document: dict[str, Any]) -> str:
    """What changed, in a sentence."""
    rows = document["changes"]
    both = [row for row in rows if row["ratio"]]
    dearer, cheaper = ([row for row in both if (row["ratio"] > 1) == up] for up in (True, False))
    first, gone = ([r for r in rows if r[key] is None] for key in ("a", "b"))
    until = f" until {document['as_of']}" if document["as_of"] else ""
    parts = [f"{len(both):,} of {document['paid_then']:,} prices changed"]
    if both:
        ends = [
            f"{len(some):,} {word} (at most {name} on {row['basis']}, {change(row['ratio'])})"
            for word, some in (("dearer", dearer), ("cheaper", cheaper))
            if some
            for row in (max(some, key=lambda one: abs(one["ratio"] - 1.0)),)
            for name in (row["chip"],)
        ]
        parts.append(" and ".join(ends))
    if first:
        parts.append(f"{len(first):,} are new")
    if gone:
        parts.append(f"{len(gone):,} are no longer known")
    return f"Since {document['since']}{until}: {', '.join(parts)}."
