"""`dse catalog prices`: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any

from dse.answer.answer import Answer, Block, table_of
from dse.answer.frames import of_rows
from dse.answer.numbers import show_as, significant
from dse.answer.sentences import Sources
from dse.catalog import Catalog, load_catalog
from dse.economics.prices import (
    STALE_DAYS,
    catalog_day,
    evidence_rows,
    moved,
    price_pairs,
    price_parts,
    price_tables,
    rests_on,
)
from dse.economics.tco import price_by_parts, with_basis
from dse.errors import InputError
from dse.options import Opt
from dse.schema.prices import COMPUTED, PRICE_TIERS, PriceRow, first_day, last_day

MEDIAN = (
    "A chip with several prices costs their median, of a provider the newest. It also moves where "
    "another provider becomes known: dse catalog prices list --chip CHIP --basis BASIS lists them."
)


def list_prices(
    *,
    chips: Annotated[tuple[str, ...], Opt("Of one chip; may be repeated.", metavar="CHIP")] = (),
    basis: Annotated[str | None, Opt("On one basis only.", metavar="BASIS")] = None,
    since: Annotated[
        str | None,
        Opt("Only what changed since then: by prices known then, and now.", metavar="DATE"),
    ] = None,
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
    if since is not None:
        return _since(catalog, since, named, basis)
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
    paid = _paid(catalog, named, basis)
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


def _since(catalog: Catalog, since: str, chips: Collection[str], basis: str | None) -> Answer:
    """What is paid by the prices that were known then against those of now (of --as-of), where that
    differs. Raises InputError for a date that is none or not before that of now, too."""
    now, then = catalog.source.as_of, last_day(since, "--since")
    if now is not None and then >= last_day(now):
        raise InputError(
            f"read {since!r}: not before --as-of {now}", field="--since", accepted="an earlier date"
        )
    after = _paid(_computed(catalog, chips, basis), chips, basis)
    before = _paid(_computed(catalog.as_of(then), chips, None), chips, basis)
    if not before and not after:
        raise _none(catalog, chips, basis)
    changes = []
    for name in sorted({row["basis"] for row in (*after, *before)}):
        sides = ([row for row in rows if row["basis"] == name] for rows in (before, after))
        pairs = sorted(moved(price_pairs(*sides)), key=lambda row: row["chip"])
        changes += [{"basis": name, **row} for row in pairs]
    sources = Sources()
    shown = [
        {
            **row,
            "change": row["ratio"] and row["ratio"] - 1.0,
            "date": row["date_b"] or row["date_a"],
            "source": sources(*f"{row['source_a'] or ''}; {row['source_b'] or ''}".split("; ")),
        }
        for row in changes
    ]
    keys = "basis chip usd_per_chip_hour.before=a usd_per_chip_hour.after=b change date source"
    caption = f"Prices of a chip-hour since {since}"
    table = of_rows("changes", caption, shown, keys, MEDIAN, *sources)
    both = [row for row in changes if row["ratio"]]
    words = (
        f"Since {since}{f' until {now}' if now else ''}: {len(both):,} of {len(before):,} prices"
    )
    words += " changed"
    if both:
        most = max(both, key=lambda row: abs(row["ratio"] - 1.0))
        by = show_as("change", most["ratio"] - 1.0)
        words += f", most of all {most['chip']} on {most['basis']} ({by})"
    new, gone = (sum(row[side] is None for row in changes) for side in "ab")
    return Answer(
        question="prices",
        title=f"Prices since {since}",
        headline=f"{words}; {new:,} are new, {gone:,} no longer known.",
        blocks=[table] if changes else [],
        document={
            "since": since,
            "as_of": now,
            "files": list(catalog.source.prices),
            "paid_then": len(before),
            "changes": changes,
        },
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
