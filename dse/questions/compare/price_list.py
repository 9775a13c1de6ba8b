"""Every price of an hour of a chip, what is paid by them, and what changed of that since a date."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from dse.answer.answer import Answer, Block, Column, Table, table_of
from dse.answer.sentences import Sources
from dse.catalog import Catalog
from dse.economics.priced import input_table, part_table, price_parts, rests_on
from dse.economics.tco import usd_per_chip_hour, with_basis
from dse.errors import InputError
from dse.questions.compare.prices import change, moved, price_pairs, sources_of
from dse.schema.own_prices import last_day
from dse.schema.prices import COMPUTED, PriceRow, first_day

MEDIAN = (
    "A chip with several prices costs their median, of a provider the newest. It also moves where "
    "another provider becomes known: dse catalog prices list --chip CHIP --basis BASIS lists them."
)


def price_list(catalog: Catalog, chips: Collection[str], basis: str | None) -> dict:
    """The document of `dse catalog prices list --json`: `prices` are rows of the files, oldest
    first, `paid` what a chip costs by them on each basis, with its `breakdown` where that is
    computed. Of all chips where none is named.

    Raises InputError for a chip or basis that does not exist, and where no price is left.
    """
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
    paid = _paid(catalog, chips, basis)
    for one in paid:
        if one["basis"] in COMPUTED:
            found = usd_per_chip_hour(catalog, one["chip"], one["basis"])
            one["breakdown"] = found.as_json()
    return {
        "as_of": catalog.source.as_of,
        "files": list(catalog.source.prices),
        "prices": [
            {
                "chip": row.chip,
                "basis": row.basis,
                "usd_per_chip_hour": row.usd_per_chip_hour,
                "provider": row.provider,
                "date": row.date,
                "source": row.source,
                "note": row.note or None,
                "counted": row in used,
            }
            for row in rows
        ],
        "paid": paid,
    }


def price_changes_since(
    catalog: Catalog, since: str, chips: Collection[str], basis: str | None
) -> dict[str, Any]:
    """The document of `dse catalog prices list --since DATE --json`: what is paid by the prices
    that were known then against those of now (of --as-of), where that differs.

    Raises InputError for a date that is none or not before that of now, and as `price_list`.
    """
    now, then = catalog.source.as_of, last_day(since, "--since")
    if now is not None and then >= last_day(now):
        raise InputError(
            f"read {since!r}: not before --as-of {now}", field="--since", accepted="an earlier date"
        )
    after = _paid(_computed(catalog, chips, basis), chips, basis)
    before = _paid(_computed(catalog.as_of(then), chips, None), chips, basis)
    if not before and not after:
        raise _none(catalog, chips, basis)
    pairs = [
        {"basis": name, **row}
        for name in dict.fromkeys(row["basis"] for row in (*after, *before))
        for row in price_pairs(
            *([row for row in rows if row["basis"] == name] for rows in (before, after))
        )
    ]
    return {
        "since": since,
        "as_of": now,
        "files": list(catalog.source.prices),
        "paid_then": len(before),
        "changes": sorted(moved(pairs), key=lambda row: (row["basis"], row["chip"])),
    }


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


def lead_since(document: dict[str, Any]) -> str:
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


def prices_answer(document: dict[str, Any], named: bool, command: str = "") -> Answer:
    """`document` is that of `price_list`; of chips that were asked for by name (`named`) every
    input of a computed price is shown."""
    as_of = f", as of {document['as_of']}" if document["as_of"] else ""
    count = len(document["prices"])
    return Answer(
        question="prices",
        title="Prices of an hour of a chip",
        asked=f"Prices of an hour of a chip{as_of}",
        headline=f"{count:,} price{'s' * (count != 1)}{as_of}. Notes: --json.",
        blocks=_price_tables(document, named),
        command=command,
        document=document,
        data=(table_of("data", document["prices"]),),
    )


def _price_tables(document: dict[str, Any], named: bool) -> list[Block]:
    sources = Sources()
    rows = [
        row | {"sources": sources(row["source"]) + ("" if row["counted"] else " not counted")}
        for row in document["prices"]
        if row["basis"] not in COMPUTED
    ]
    paid = [row for row in document["paid"] if "breakdown" not in row]
    made: list[Block] = []
    if rows:
        columns = (
            Column("chip", "chip"),
            Column("basis", "basis"),
            Column("usd_per_chip_hour", "$/chip-hour", "dollars"),
            Column("date", "date"),
            Column("provider", "provider"),
            Column("sources", "source"),
        )
        made.append(Table("prices", "Published prices", columns, rows, sources.notes))
        columns = (
            Column("chip", "chip"),
            Column("basis", "basis"),
            Column("usd_per_chip_hour", "paid, $/chip-hour", "dollars"),
            Column("date", "newest"),
            Column("rule", "by"),
        )
        made.append(Table("paid", "What a chip costs by them", columns, paid))
    for basis in COMPUTED:
        priced = [one["breakdown"] for one in document["paid"] if one["basis"] == basis]
        if priced and named:
            for one in priced:
                made += [part_table(one), input_table(one)]
        elif priced:
            caption = f"{basis}: an owned chip-hour by its parts"
            made.append(replace(price_parts(priced, caption), name=basis, notes=rests_on(priced)))
    return made


def since_answer(document: dict[str, Any], command: str = "") -> Answer:
    """`document` is that of `price_changes_since`."""
    return Answer(
        question="prices",
        title=f"Prices since {document['since']}",
        headline=lead_since(document),
        blocks=tables_since(document),
        command=command,
        document=document,
        data=(table_of("data", document["changes"]),),
    )


def tables_since(document: dict[str, Any]) -> list[Table]:
    """The changes, a table for each basis, with dates and sources of both sides by number."""
    sources, columns = (
        Sources(),
        (
            Column("chip", "chip"),
            Column("a", "then", "dollars"),
            Column("b", "now", "dollars"),
            Column("change", "change", right=True),
            Column("date_a", "newest then"),
            Column("date_b", "newest now"),
            Column("sources", "sources"),
        ),
    )
    by_basis: dict[str, list[Any]] = {}
    for row in document["changes"]:
        moved_by = change(row["ratio"]) if row["ratio"] else "gone"
        cells = {
            "change": "new" if row["a"] is None else moved_by,
            "sources": sources(*sources_of(row)),
        }
        by_basis.setdefault(row["basis"], []).append(row | cells)
    made = [
        Table(basis, f"{basis}, per chip-hour", columns, rows) for basis, rows in by_basis.items()
    ]
    if made:
        made[-1] = replace(made[-1], notes=(MEDIAN, *sources.notes))
    return made
