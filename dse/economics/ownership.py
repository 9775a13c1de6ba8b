"""What a bought chip costs by the hour: its price spread over the hours that it serves, and its
electricity."""

from __future__ import annotations

import statistics
from dataclasses import replace

from dse.specs.catalog import Catalog
from dse.specs.prices import PriceRow
from dse.specs.purchase import BASIS, HOUR, YEAR_HOURS, PurchaseTerms, buyers_rows
from dse.specs.purchase import lacks_for_purchase as lacks


def usd_per_chip_hour(usd: float, watts: float, terms: PurchaseTerms) -> float:
    """Dollars per hour of service: usd / (life hours x utilisation) + kilowatts x usd per kWh.

    Electricity is paid at rated power while the chip serves, and not while it is idle. Host,
    housing, network, interest and resale are left out.
    """
    hours = terms.life_s / HOUR * terms.utilisation
    return usd / hours + watts / 1000.0 * terms.usd_per_kwh


def with_purchase_prices(catalog: Catalog, terms: PurchaseTerms) -> Catalog:
    """The catalog with a price on the basis `purchase` for every chip that has a buyer's price and
    a rated power. Prices that an earlier call gave are replaced."""
    bought = [_row(catalog, chip, terms) for chip in catalog.chips if lacks(catalog, chip) is None]
    rented = tuple(row for row in catalog.prices.rows if row.basis != BASIS)
    return replace(catalog, prices=replace(catalog.prices, rows=(*rented, *bought)))


def _row(catalog: Catalog, chip: str, terms: PurchaseTerms) -> PriceRow:
    rows, watts = buyers_rows(catalog.purchases, chip), catalog.chips[chip].tdp_w or 0.0
    usd = statistics.median(row.usd_per_chip for row in rows)
    kinds = ", ".join(dict.fromkeys(f"{row.kind}, {row.provider}" for row in rows))
    newest, line = max(row.date for row in rows), rows[0].line
    median = f"median of {len(rows)}; " if len(rows) > 1 else ""
    rule = (
        f"{usd:,.0f} USD ({median}{kinds}) / ({terms.life_s / HOUR / YEAR_HOURS:g} years of 8,760 "
        f"h x {terms.utilisation:.0%}) + {watts:g} W x {terms.usd_per_kwh:g} USD/kWh"
    )
    sources = "; ".join(dict.fromkeys(row.source for row in rows))
    note = "chip alone: no host, housing, network, interest or resale"
    return PriceRow(
        chip, BASIS, usd_per_chip_hour(usd, watts, terms), rule, newest, sources, note, line
    )
