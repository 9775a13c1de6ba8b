"""`dse catalog prices`: every price with its source and date, what is paid by it, what changed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dse.answer.answer import Answer, Block, Column, Table
from dse.catalog import Catalog
from dse.economics.priced import parts_table
from dse.problem.price_words import price_tables
from dse.questions.catalog.tables import Sources, of_text
from dse.questions.compare.price_list import (
    lead_since,
    price_changes_since,
    price_list,
    tables_since,
)
from dse.schema.prices import COMPUTED

_HOUR = Column("usd_per_chip_hour", "a chip-hour", "chip_usd_per_hour")


def list_prices(
    catalog: Catalog,
    chips: Collection[str] = (),
    basis: str | None = None,
    since: str | None = None,
) -> Answer:
    """Every price of an hour, oldest first, and what each chip costs by them; or (`since`) only
    what changed since a date. Raises InputError for a chip, a basis or a date that is none, and
    where no price is left."""
    if since is not None:
        changes = price_changes_since(catalog, since, chips, basis)
        return Answer(
            question="prices",
            title=f"Prices since {since}",
            headline=lead_since(changes),
            blocks=[of_text(f"changes {k}", one) for k, one in enumerate(tables_since(changes), 1)],
            document=changes,
        )
    found = price_list(catalog, chips, basis)
    said = f", as of {found['as_of']}" if found["as_of"] else ""
    blocks: list[Block] = []
    published = [row for row in found["prices"] if row["basis"] not in COMPUTED]
    if published:
        blocks += _published(published, found["paid"])
    for computed in COMPUTED:
        priced = [one["breakdown"] for one in found["paid"] if one["basis"] == computed]
        if priced and chips:
            blocks += [table for one in priced for table in price_tables(one)]
        elif priced:
            table = of_text(computed, parts_table(priced))
            blocks.append(Table(computed, f"{computed}: {table.caption}", *_rest(table)))
    return Answer(
        question="prices",
        title="Prices",
        headline=f"{len(found['prices']):,} prices{said}. Notes: --json.",
        blocks=blocks,
        document=found,
    )


def _rest(table: Table) -> tuple[Any, ...]:
    return table.columns, table.rows, table.notes


def _published(rows: list[dict[str, Any]], paid: list[dict[str, Any]]) -> list[Table]:
    sources = Sources(row["source"] for row in rows)
    return [
        Table(
            "published",
            "Published prices",
            (
                Column("chip", "chip"),
                Column("basis", "basis"),
                _HOUR,
                Column("date", "date"),
                Column("provider", "provider"),
                Column("source", "source"),
            ),
            [
                {
                    **row,
                    "provider": _short(row["provider"], 22),
                    "source": sources.mark(row["source"])
                    + ("" if row["counted"] else " not counted"),
                }
                for row in rows
            ],
        ),
        Table(
            "paid",
            "What each chip costs by them",
            (
                Column("chip", "chip"),
                Column("basis", "basis"),
                _HOUR,
                Column("date", "newest"),
                Column("rule", "by"),
            ),
            [{**one, "rule": _short(one["rule"], 34)} for one in paid if "breakdown" not in one],
            notes=sources.notes(),
        ),
    ]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
