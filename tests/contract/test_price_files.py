"""The tables of prices: complete, plausible, of known chips."""

from __future__ import annotations

import pytest

from dse.schema.prices import load_prices, load_purchases
from tests.helpers_hardware import CHIPS

QUICKSTART = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200_nvl72", "mi300x", "mi355x")


def test_every_price_row() -> None:
    table = load_prices()
    for row in table.rows:
        assert 0.05 < row.usd_per_chip_hour < 100, row
        assert row.date[:2] == "20", row
    keys = [(row.chip, row.basis) for row in table.rows]
    assert keys == sorted(keys)
    for basis in table.bases():
        for price in table.select(basis).values():
            assert min(r.usd_per_chip_hour for r in price.rows) <= price.usd_per_chip_hour
            assert price.newest_date in {row.date for row in price.rows}


def test_three_year_rental_covers_the_quickstart_and_shows_its_placeholders() -> None:
    prices = load_prices().select("rental_3yr")
    assert set(QUICKSTART) <= set(prices)
    assert prices["h100_sxm"].usd_per_chip_hour == 1.3
    assert prices["h100_sxm"].notes == ()
    for chip, predecessor in (("b300_sxm", "b200_sxm"), ("gb300_nvl72", "gb200_nvl72")):
        assert "1.2 times" in prices[chip].notes[0]
        expected = 1.2 * prices[predecessor].usd_per_chip_hour
        assert prices[chip].usd_per_chip_hour == pytest.approx(expected)


def test_every_purchase_row() -> None:
    rows = load_purchases()
    assert {row.chip for row in rows} <= set(CHIPS)
    for row in rows:
        assert 100 < row.usd_per_chip < 5e6, row
        assert row.date[:2] == "20", row
    assert [(row.chip, row.kind) for row in rows] == sorted((row.chip, row.kind) for row in rows)
