"""What a price rests on, and what a buyer should know of it before he signs: how many providers ask
it, when, how far apart, and whether it is below what owning the chip costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from dse.answer.numbers import significant
from dse.answer.sentences import listed
from dse.catalog import Catalog
from dse.economics.tco import owned
from dse.record import record
from dse.schema.costs import BASIS as OWNED
from dse.schema.costs import Costs
from dse.schema.dates import today
from dse.schema.loader import csv_rows
from dse.schema.owning import capital_rows, lacks_for_owning, own_cost, owning
from dse.schema.plausible import USD_PER_HOUR, probably
from dse.schema.prices import OWN, PRICE_TIERS, dates_of, first_day, last_day

STALE_DAYS = 90
FAR_CAPITAL = 30.0  # times below or above what was published of the chip, and it is a mistake
# What owning costs a provider, and a hyperscaler, where it is published.
OWNERS = ("owned_tco_neocloud", "owned_tco_hyperscaler")
ONE, STALE, BELOW, FUTURE = "one source", "old", "below owning", "in the future"
UNLIKELY = "unlikely"
NAMED = 4  # chips of a sentence
Json = Mapping[str, Any]


@record
class Evidence:
    """Of the price of a chip on a basis: how many quotes and providers, their dates and ends (of
    what is owned, dollars a chip), the age of the newest in days, and the lower of what owning the
    chip costs by its parts and by a provider's figures. `warnings` are of ONE, STALE, BELOW,
    FUTURE and UNLIKELY."""

    chip: str
    basis: str
    tier: str
    usd_per_chip_hour: float
    quotes: int
    providers: int
    dates: str
    newest: str
    low_usd: float
    high_usd: float
    age_days: int
    owning_usd_per_chip_hour: float | None
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"warnings": list(self.warnings)}


@lru_cache(maxsize=8)
def _newest(folder: Path) -> str:
    header, *rows = csv_rows(folder / "prices.csv")
    column = header.index("date")
    return max(first_day(row[column]) for row in rows if row)


def catalog_day(catalog: Catalog) -> str:
    """The day as of which prices are meant: that of --as-of, else of the newest shipped price."""
    as_of = catalog.source.as_of
    return last_day(as_of) if as_of is not None else _newest(catalog.source.folder)


def evidence(catalog: Catalog, chip: str, basis: str, costs: Costs | None = None) -> Evidence:
    """Of a chip that has a price on the basis, at the catalog's costs or others."""
    costs = costs or catalog.costs
    own = owning(catalog, chip, costs) if not lacks_for_owning(catalog, chip, costs) else None
    known = [] if own is None else [owned(chip, own, costs).usd_per_chip_hour]
    if basis == OWNED:
        assert own is not None
        rows = [(row.provider or row.source, row.date) for row in capital_rows(catalog, chip)]
        usd = [row.usd_per_chip for row in capital_rows(catalog, chip)]
        given = any(own_cost(catalog, costs, chip, name) for name in ("price", "server_price"))
        if given or not rows:
            rows, usd = [("", own.price.date)], [own.price.value]
        known_usd = [row.usd_per_chip for row in capital_rows(catalog, chip)]
        far = any(
            not min(known_usd) / FAR_CAPITAL <= one <= max(known_usd) * FAR_CAPITAL
            for one in (usd if known_usd else ())
        )
        return _of(catalog, (chip, basis, known[0]), rows, usd, None, far)
    price = catalog.prices.select(basis)[chip]
    if OWNERS[0] in catalog.prices.bases() and chip in (by := catalog.prices.select(OWNERS[0])):
        known.append(by[chip].usd_per_chip_hour)
    rows = [
        ("" if row.note.startswith(OWN) else row.provider or row.source, row.date)
        for row in price.rows
    ]
    usd = [row.usd_per_chip_hour for row in price.rows]
    named = (chip, basis, price.usd_per_chip_hour)
    far = not USD_PER_HOUR[0] <= price.usd_per_chip_hour <= USD_PER_HOUR[1]
    return _of(catalog, named, rows, usd, min(known, default=None), far)


def _of(
    catalog: Catalog,
    named: tuple[str, str, float],
    rows: Sequence[tuple[str, str]],
    usd: Sequence[float],
    least: float | None,
    unlikely: bool,
) -> Evidence:
    """`rows` are (provider, date), the provider empty for a quote of the user's own."""
    chip, basis, paid = named
    day, providers = catalog_day(catalog), {provider for provider, _ in rows}
    dates = [when for _, when in rows if first_day(when)]
    newest = max(dates, key=first_day, default="")
    age = _days(newest, day) if newest else 0
    now = day if catalog.source.as_of is not None else max(day, today())
    wrong = {
        ONE: len(providers) == 1 and providers != {""},
        STALE: age > STALE_DAYS,
        BELOW: least is not None and basis not in OWNERS and paid < least,
        FUTURE: first_day(newest) > now,
        UNLIKELY: unlikely,
    }
    return Evidence(
        chip=chip,
        basis=basis,
        tier=PRICE_TIERS[basis].how if basis in PRICE_TIERS else basis,
        usd_per_chip_hour=paid,
        quotes=len(rows),
        providers=len(providers),
        dates=dates_of(dates) if dates else "",
        newest=newest,
        low_usd=min(usd),
        high_usd=max(usd),
        age_days=age,
        owning_usd_per_chip_hour=least,
        warnings=tuple(what for what, is_so in wrong.items() if is_so),
    )


def _days(since: str, until: str) -> int:
    return (date.fromisoformat(until) - date.fromisoformat(first_day(since))).days


def evidence_rows(
    catalog: Catalog, priced: Iterable[tuple[str, str]], costs: Costs | None = None
) -> list[dict[str, Any]]:
    """Documents of `evidence` of each (chip, basis) that has a price."""
    found = [
        evidence(catalog, chip, basis, costs)
        for chip, basis in dict.fromkeys(priced)
        if (
            lacks_for_owning(catalog, chip, costs) is None
            if basis == OWNED
            else chip in catalog.prices.select(basis)
        )
    ]
    return [one.as_json() for one in found]


def evidence_words(rows: Sequence[Json]) -> list[str]:
    """What is to be checked before the prices of `evidence_rows` are signed: a sentence, or
    nothing."""
    if len(rows) == 1:
        return _of_one(rows[0])
    bases = {row["basis"] for row in rows}

    def name(row: Json) -> str:
        return row["chip"] if len(bases) == 1 else f"{row['chip']} on {row['basis']}"

    def below(row: Json) -> str:
        return f"{name(row)} ({_usd(row)} against {_usd(row, 'owning_')})"

    def far(row: Json) -> str:
        return f"{name(row)}{_meant(row)}"

    says = {
        ONE: ("one source alone for", name),
        STALE: (f"older than {STALE_DAYS} days for", name),
        BELOW: ("below what owning costs for", below),
        FUTURE: ("dated in the future for", name),
        UNLIKELY: ("far from any known price for", far),
    }
    parts = []
    for what, (words, each) in says.items():
        found = [row for row in rows if what in row["warnings"]]
        names = [each(row) for row in found]
        if len(names) > NAMED:
            names = [*names[:NAMED], f"{len(names) - NAMED} more"]
        if len(found) == len(rows) > 2 and what != BELOW:
            names = [f"all {len(rows)}"]
        dated = what in (STALE, FUTURE) and found
        when = f" ({dates_of(row['newest'] for row in found)})" if dated else ""
        if found:
            parts.append(f"{words} {listed(names)}{when}")
    basis = f" ({next(iter(bases))})" if len(bases) == 1 else ""
    return [f"Before you sign, check the prices{basis}: {'; '.join(parts)}."] if parts else []


def _usd(row: Json, of: str = "") -> str:
    return f"${significant(row[f'{of}usd_per_chip_hour'])}"


def _meant(row: Json) -> str:
    """What an unlikely price was probably meant to be."""
    if row["basis"] == OWNED:
        return f" (${significant(row['low_usd'])} a chip)"
    near = probably(row["usd_per_chip_hour"], *USD_PER_HOUR, lambda usd: f"{usd:.15g}")
    said = near.removeprefix("; ")
    return f" (${said})" if said else ""


def _of_one(row: Json) -> list[str]:
    says = {
        ONE: "is that of one source alone",
        STALE: f"is {row['age_days']} days old ({row['newest']})",
        BELOW: "is below what owning the chip costs",
        FUTURE: f"is dated in the future ({row['newest']})",
        UNLIKELY: f"is far from any known price{_meant(row)}",
    }
    parts = [says[what] for what in row["warnings"]]
    if BELOW in row["warnings"]:
        parts[row["warnings"].index(BELOW)] += f" ({_usd(row, 'owning_')})"
    price = f"{_usd(row)} an hour of {row['chip']} ({row['basis']})"
    return [f"Before you sign, check the price: {price} {listed(parts)}."] if parts else []
