"""Prices: `hardware/prices.csv`, dollars per chip-hour by basis, and `hardware/purchases.csv`,
dollars per chip bought. A chip file may give rows of both itself. Bases never mix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dse.data import hardware_dir, is_shipped, rows_beside
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import ACCEPTED_CHIPS, did_you_mean, nearest, unknown
from dse.schema.plausible import USD_PER_CHIP, USD_PER_HOUR
from dse.schema.reader import (
    Date,
    Listed,
    Number,
    Place,
    Schema,
    Table,
    Text,
    csv_table,
    field,
)
from dse.units import DATES, days, last_year, today

# Bases that are computed (`dse.economics.tco`): no row of a file is on them.
COMPUTED = ("owned_tco",)


class PriceTier(NamedTuple):
    """A row of price_bases.csv: how a chip is had on a basis; `quarters` that a rent on it is
    signed for, where it is known; in words `after` the chip's name in a sentence, and `alone`."""

    how: str
    quarters: int | None
    after: str
    alone: str


PRICE_TIERS = {
    row["basis"]: PriceTier(
        row["how"], int(row["quarters"]) if row["quarters"] else None, row["after"], row["alone"]
    )
    for row in rows_beside(__file__, "price_bases.csv")
}
# A row whose note starts so is kept for the record and priced with nothing.
SUPERSEDED = "superseded"


_BASIS = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
_NO_NAMES = ("null", "none", "nan")


@cache
def _known_bases() -> tuple[str, ...]:
    return tuple({*PRICE_TIERS, *load_prices().bases()})


def _misspelt(basis: str) -> str:
    """The known basis that a name of one's own is probably a slip of, or nothing. A longer name, or
    one with another number (rental_5yr), is meant."""

    def digits(text: str) -> str:
        return re.sub("[^0-9]", "", text)

    near = "" if basis in _known_bases() else "".join(nearest(basis, _known_bases()))
    meant = near in basis or basis in near or digits(near) != digits(basis)
    return "" if meant else near


@record
class Basis:
    """The name of a basis, a known one or one's own; a computed one is none of a price that is
    written, unless someone else says so."""

    computed: bool = False

    def read(self, written: Any, at: Place) -> str | None:
        basis = Text(1).read(written, at)
        if basis is None:
            return None
        if basis in COMPUTED and self.computed:
            return basis
        if basis in COMPUTED:
            accepted = "on_demand or any name of your own; what owning costs goes into --costs"
            return at.wrong(f"read {basis!r}: that basis is computed", accepted)
        if not _BASIS.fullmatch(basis) or basis.lower() in _NO_NAMES:
            return at.wrong(f"read {basis!r:.60}: no name of a basis", "a name such as on_demand")
        if not is_shipped(at.mistakes.document.file) and (near := _misspelt(basis)):
            at.doubt(f"read {basis!r}: no known basis; did you mean {near}?")
        return basis


def _usd(usual: tuple[float, float]) -> Number:
    return Number(above=0, below=1e12, says="dollars above zero, such as 2.5", usual=usual)


class _Row(Schema, kw_only=True):
    """What is said of any price; `line` is where the file says it."""

    chip: str = field(Text(1))
    provider: str = field(Text(), default="")
    date: str = field(Date(priced=True))
    source: str = field(Text(1))
    note: str = field(Text(), default="")
    line: int = 0


class PriceRow(_Row, kw_only=True):
    """One published price of a chip for an hour."""

    basis: str = field(Basis())
    usd_per_chip_hour: float = field(_usd(USD_PER_HOUR))


class PurchaseRow(_Row, kw_only=True):
    """One published price of a chip, bought or built; `kind` says which: a list price, a street
    price, the share of a system, an estimate of what it costs to make."""

    kind: str = field(Text(1))
    usd_per_chip: float = field(_usd(USD_PER_CHIP))


class Rows(Listed):
    """The rows of one chip, as its file may give them, each with its line."""

    def read(self, written: Any, at: Place) -> tuple[Any, ...] | None:
        found, document = super().read(written, at), at.mistakes.document
        chip = str(document.data.get("id"))
        return found and tuple(
            replace(row, chip=chip, line=document.line((*at.path, k)) or 0)
            for k, row in enumerate(found)
            if row is not None
        )


PRICES = Rows(Table(*PriceRow.table.fields[1:], make=partial(PriceRow, chip="")))
PURCHASES = Rows(Table(*PurchaseRow.table.fields[1:], make=partial(PurchaseRow, chip="")))


@record
class Price:
    """What a chip costs on one basis, and how that follows from `rows`."""

    usd_per_chip_hour: float
    rows: tuple[PriceRow, ...]
    newest_date: str
    sources: tuple[str, ...]
    rule: str

    @property
    def dates(self) -> str:
        """Of its rows: `2026-04-03`, or `2025-10 to 2026-10-24`."""
        return dates_of([row.date for row in self.rows])

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.note for row in self.rows if row.note))


@record
class PriceTable:
    """Every row of one price file, or those that were known as of a date."""

    file: str
    rows: tuple[PriceRow, ...]
    as_of: str | None = None

    def bases(self) -> tuple[str, ...]:
        return tuple(sorted({row.basis for row in self.rows}))

    @cached_property
    def _selected(self) -> dict[str, Mapping[str, Price]]:
        return {}

    def select(self, basis: str) -> Mapping[str, Price]:
        """Price by chip id on one basis: the one row that counts, else the median of them.

        Raises InputError for an unknown basis.
        """
        if basis not in self._selected:
            self._selected[basis] = self._select(basis)
        return self._selected[basis]

    def _select(self, basis: str) -> Mapping[str, Price]:
        if basis not in self.bases():
            known = sorted({*self.bases(), *COMPUTED})
            near = did_you_mean(basis, known)
            if basis == "purchase":
                near = ": owned_tco prices a chip that is bought, with `costs:` or --costs FILE"
            if self.as_of is not None and not near:
                raise InputError(
                    f"no price on basis {basis!r} as of {self.as_of}",
                    accepted=f"a later date, or one of {', '.join(known)}",
                )
            raise InputError(f"unknown price basis {basis!r}{near}", accepted=", ".join(known))
        chips: dict[str, list[PriceRow]] = {}
        for row in self.rows:
            if row.basis == basis:
                chips.setdefault(row.chip, []).append(row)
        kept = {chip: counted(rows) for chip, rows in chips.items()}
        return {chip: _price(rows) for chip, rows in kept.items() if rows}


def counted(rows: Iterable[PriceRow]) -> list[PriceRow]:
    """Of the rows of one chip and basis those that a price rests on: of a provider the newest, and
    none that is superseded. A provider that raises its price is not averaged with what it asked
    before. Rows that name no provider each count."""
    valid = [row for row in rows if not row.note.startswith(SUPERSEDED)]
    newest: dict[str, str] = {}
    for row in valid:
        day = first_day(row.date)
        newest[row.provider] = max(newest.get(row.provider, day), day)
    return [row for row in valid if not row.provider or first_day(row.date) == newest[row.provider]]


def first_day(date: str) -> str:
    """2025-Q2 -> 2025-04-01: the first day that a price's date may mean, of a range of years the
    last year's; empty for a date that cannot be read."""
    found = days(last_year(date))
    return found[0] if found else ""


def dates_of(dates: Iterable[str]) -> str:
    """The oldest and the newest of some dates."""
    ends = sorted(dates, key=first_day)
    return " to ".join(dict.fromkeys((ends[0], ends[-1])))


def _price(rows: list[PriceRow]) -> Price:
    one = len(rows) == 1
    usd = sorted(row.usd_per_chip_hour for row in rows)
    newest = max(row.date for row in rows)
    return Price(
        usd_per_chip_hour=(usd[(n := len(rows)) // 2] + usd[(n - 1) // 2]) / 2.0,
        rows=tuple(rows),
        newest_date=newest,
        sources=tuple(dict.fromkeys(row.source for row in rows)),
        rule=", ".join(filter(None, (rows[0].provider, newest)))
        if one
        else f"median of {len(rows)} prices, {dates_of(row.date for row in rows)}",
    )


def load_prices(path: Path | str | None = None) -> PriceTable:
    """Reads a price file (the shipped one by default). Raises InputError with file and line."""
    file = Path(path) if path is not None else hardware_dir() / "prices.csv"
    return PriceTable(str(file), _rows(file, PriceRow))


def load_purchases(path: Path | str | None = None) -> tuple[PurchaseRow, ...]:
    """Reads a file of purchase prices (the shipped one by default). Raises InputError with file
    and line."""
    file = Path(path) if path is not None else hardware_dir() / "purchases.csv"
    return _rows(file, PurchaseRow)


RowT = TypeVar("RowT", PriceRow, PurchaseRow)


def _rows(path: Path, kind: type[RowT]) -> tuple[RowT, ...]:
    """Every row of a CSV file whose columns are the fields of its rows."""
    table = Table(*kind.table.fields)
    rows = csv_table(table, path, lambda header: table.names)
    return tuple(kind(**row, line=line) for line, row in rows)


# Prices of the user's own before the shipped ones, and the day as of which prices are meant.

OWN = "own price"  # how the note of a row from a file of the user's own begins


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
        place = {"file": file, "line": row.line, "field": "chip"}
        raise unknown("unknown chip", row.chip, chips, ACCEPTED_CHIPS, **place)
    note = f"{OWN} of {Path(file).name}" + (f": {row.note}" if row.note else "")
    return replace(row, note=note)
