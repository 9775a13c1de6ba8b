"""Prices and costs of the user's own, and the day as of which prices are meant, in force for every
catalog that is read.

Environment variables hold them, as `dse.schema.overrides` does with efficiency files, so that
worker processes see the same; `--prices FILE`, `--as-of DATE` and `--costs FILE` set them for one
command.
"""

from __future__ import annotations

import os
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.schema.loader import did_you_mean
from dse.schema.prices import (
    COMPUTED,
    DATE,
    PriceRow,
    PurchaseRow,
    first_day,
    last_year,
    load_prices,
)

PRICES, AS_OF, COSTS = "DSE_PRICES", "DSE_AS_OF", "DSE_COSTS"
# How the note of a row from a file of the user's own begins.
OWN = "own price"
DATES = "2025, 2025-Q2, 2025-06 or 2025-06-30"


@dataclass(frozen=True, slots=True)
class OwnPrices:
    """Absolute paths, and a date as it was written; none of them by default."""

    prices: tuple[str, ...] = ()
    as_of: str | None = None
    costs: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.prices, *([self.costs] if self.costs else []))

    def flags(self) -> list[str]:
        """As a command line gives them."""
        prices = [word for file in self.prices for word in ("--prices", file)]
        as_of = ["--as-of", self.as_of] if self.as_of else []
        return [*prices, *as_of, *(["--costs", self.costs] if self.costs else [])]

    def as_json(self) -> dict[str, Any]:
        """What `using_prices` takes."""
        return {"prices": list(self.prices), "as_of": self.as_of, "costs": self.costs}


def in_force() -> OwnPrices:
    written = os.environ.get(PRICES, "").split(os.pathsep)
    return OwnPrices(
        tuple(dict.fromkeys(_absolute(path) for path in written if path)),
        os.environ.get(AS_OF) or None,
        _absolute(costs) if (costs := os.environ.get(COSTS)) else None,
    )


@contextmanager
def using_prices(
    prices: Iterable[str | Path] = (),
    as_of: str | None = None,
    costs: str | Path | None = None,
    beneath: bool = False,
) -> Iterator[None]:
    """Puts files and a date in force until the context ends, before what is in force already;
    `beneath`: what is in force stays before them. Raises InputError for a date that is none."""
    if as_of is not None:
        last_day(as_of)
    files, now = [_absolute(path) for path in prices], in_force()
    new: dict[str, str] = {}
    if files:
        new[PRICES] = os.pathsep.join([*files, *now.prices] if beneath else [*now.prices, *files])
    if as_of is not None and not (beneath and now.as_of):
        new[AS_OF] = as_of
    if costs is not None and not (beneath and now.costs):
        new[COSTS] = _absolute(costs)
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def using_prices_of(study: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Puts the prices of a study (study.json) in force, each kind where none of it is already."""
    given = in_force().as_json()
    own = study.get("own_prices", {})
    return using_prices(**{kind: value for kind, value in own.items() if not given[kind]})


def _absolute(path: str | Path) -> str:
    return str(Path(path).resolve())


def last_day(date: str, field: str = "--as-of") -> str:
    """2025-Q2 -> 2025-06-30: the last day of that date, as text. Raises InputError."""
    found = DATE.fullmatch(date)
    year, quarter, written, day = found.groups() if found else ("0", None, None, None)
    month = 3 * int(quarter) if quarter else int(written or 12)
    days = monthrange(int(year), month)[1] if int(year) and 1 <= month <= 12 else 0
    if not 1 <= int(day or 1) <= days:
        raise InputError(f"read {date!r}: not a date", field=field, accepted=DATES)
    return f"{year}-{month:02d}-{day or days}"


def with_own_prices(
    rows: tuple[PriceRow, ...],
    purchases: tuple[PurchaseRow, ...],
    own: OwnPrices,
    chips: Iterable[str],
) -> tuple[tuple[PriceRow, ...], tuple[PurchaseRow, ...]]:
    """Shipped prices that were known as of the date, then the user's own: a chip's rows on a basis
    take the place of the shipped ones. Own rows count whatever their date.

    A date that is a year or a month counts from its first day. Raises InputError for a file that is
    wrong.
    """
    if own.as_of is not None:
        end = last_day(own.as_of)
        rows = tuple(row for row in rows if first_day(row.date) <= end)
        purchases = tuple(row for row in purchases if first_day(row.date) <= end)
    known = tuple(chips)
    for file in own.prices:
        mine = tuple(_checked(row, file, known) for row in load_prices(file).rows)
        taken = {(row.chip, row.basis) for row in mine}
        rows = (*(row for row in rows if (row.chip, row.basis) not in taken), *mine)
    return rows, purchases


def _checked(row: PriceRow, file: str, chips: tuple[str, ...]) -> PriceRow:
    if row.chip not in chips:
        raise InputError(
            f"unknown chip {row.chip!r}{did_you_mean(row.chip, chips)}",
            file=file, line=row.line, field="chip",
            accepted="an id that `dse hardware list` prints",
        )  # fmt: skip
    if row.basis in COMPUTED:
        raise InputError(
            f"read {row.basis!r}: that basis is computed",
            file=file, line=row.line, field="basis",
            accepted="on_demand or any name of your own; what owning costs goes into --costs",
        )  # fmt: skip
    try:
        last_day(last_year(row.date))
    except InputError as error:
        raise InputError(
            f"read {row.date!r}: not a date",
            file=file, line=row.line, field="date", accepted=DATES,
        ) from error  # fmt: skip
    note = f"{OWN} of {Path(file).name}" + (f": {row.note}" if row.note else "")
    return replace(row, note=note)
