"""Prices of the user's own before the shipped ones, and the day as of which prices are meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dse.errors import InputError
from dse.schema.dates import DATES, days, today
from dse.schema.loader import did_you_mean
from dse.schema.prices import PriceRow, PurchaseRow, first_day, load_prices

# How the note of a row from a file of the user's own begins.
OWN = "own price"


def last_day(date: str, field: str = "--as-of") -> str:
    """2025-Q2 -> 2025-06-30: the last day of that date, as text. Raises InputError."""
    found = days(date)
    if found is None:
        raise InputError(f"read {date!r}: not a date", field=field, accepted=DATES)
    return found[1]


def with_own_prices(
    rows: tuple[PriceRow, ...],
    purchases: tuple[PurchaseRow, ...],
    files: Sequence[str],
    as_of: str | None,
    chips: Iterable[str],
) -> tuple[tuple[PriceRow, ...], tuple[PurchaseRow, ...]]:
    """Shipped prices that were known as of the date, then the user's own: a chip's rows on a basis
    take the place of the shipped ones. Own rows count whatever their date.

    A date that is a year or a month counts from its first day. Raises InputError for a file that is
    wrong and for an `as_of` in the future.
    """
    if as_of is not None:
        end = last_day(as_of)
        now = max(today(), *(first_day(row.date) for row in rows))
        if first_day(as_of) > now:
            raise InputError(
                f"read {as_of!r}: prices of the future are not known",
                field="--as-of",
                accepted=f"{now} or earlier",
            )
        rows = tuple(row for row in rows if first_day(row.date) <= end)
        purchases = tuple(row for row in purchases if first_day(row.date) <= end)
    known = tuple(chips)
    for file in files:
        mine = tuple(_checked(row, file, known) for row in load_prices(file).rows)
        taken = {(row.chip, row.basis) for row in mine}
        rows = (*(row for row in rows if (row.chip, row.basis) not in taken), *mine)
    return rows, purchases


def _checked(row: PriceRow, file: str, chips: tuple[str, ...]) -> PriceRow:
    if row.chip not in chips:
        raise InputError(
            f"unknown chip {row.chip!r}{did_you_mean(row.chip, chips)}",
            file=file,
            line=row.line,
            field="chip",
            accepted="an id that `dse catalog chips list` prints",
        )
    note = f"{OWN} of {Path(file).name}" + (f": {row.note}" if row.note else "")
    return replace(row, note=note)
