"""Every price of an hour of a chip, what is paid by them, and what changed of that since a date."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dse.answer.numbers import significant
from dse.answer.text_table import Table
from dse.catalog import Catalog
from dse.economics.tco import usd_per_chip_hour, with_basis
from dse.errors import InputError
from dse.questions.compare.prices import change, moved, price_pairs
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
            {"chip": row.chip, "basis": row.basis, "usd_per_chip_hour": row.usd_per_chip_hour,
             "provider": row.provider, "date": row.date, "source": row.source,
             "note": row.note or None, "counted": row in used}
            for row in rows
        ],
        "paid": paid,
    }  # fmt: skip


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
        {"chip": chip, "basis": one, "usd_per_chip_hour": price.usd_per_chip_hour,
         "rule": price.rule, "date": price.newest_date, "prices": len(price.rows),
         "source": "; ".join(price.sources)}
        for one in catalog.prices.bases()
        if basis in (None, one)
        for chip, price in sorted(catalog.prices.select(one).items())
        if not chips or chip in chips
    ]  # fmt: skip


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


def tables_since(document: dict[str, Any]) -> list[Table]:
    """The changes, a table for each basis, with dates and sources of both sides by number."""
    rows = document["changes"]
    texts = [row[key] for row in rows for key in ("source_a", "source_b") if row[key]]
    sources = list(dict.fromkeys(one for text in texts for one in text.split("; ")))

    def numbers(*found: str | None) -> str:
        named = [one for text in found if text for one in text.split("; ")]
        return " ".join(f"[{sources.index(one) + 1}]" for one in dict.fromkeys(named))

    bases = list(dict.fromkeys(row["basis"] for row in rows))
    return [
        Table(
            f"{basis}, USD per chip-hour",
            ("chip", "then", "now", "change", "newest then", "newest now", "sources"),
            [
                (
                    row["chip"],
                    "-" if row["a"] is None else significant(row["a"]),
                    "-" if row["b"] is None else significant(row["b"]),
                    "new" if row["a"] is None else change(row["ratio"]) if row["ratio"] else "gone",
                    row["date_a"] or "-",
                    row["date_b"] or "-",
                    numbers(row["source_a"], row["source_b"]),
                )
                for row in rows
                if row["basis"] == basis
            ],
            (1, 2, 3),
            (MEDIAN, *(f"[{k}] {one}" for k, one in enumerate(sources, 1)))
            if basis == bases[-1]
            else (),
        )
        for basis in bases
    ]
