"""What a price rests on: providers, dates, ends, and what a buyer is told before he signs."""

from __future__ import annotations

import statistics
from datetime import date, timedelta
from pathlib import Path

import pytest

import dse
from dse.economics.prices import (
    BELOW,
    FUTURE,
    ONE,
    STALE,
    STALE_DAYS,
    catalog_day,
    evidence,
    evidence_rows,
    evidence_words,
)
from dse.economics.tco import price_by_parts
from dse.errors import InputError

HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"


def own(path: Path, *rows: str) -> str:
    (path / "mine.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return str(path / "mine.csv")


def test_a_published_median_says_how_many_ask_it_when_and_how_far_apart() -> None:
    catalog = dse.load_catalog()
    found = evidence(catalog, "h100_sxm", "market_index")
    rows = catalog.prices.select("market_index")["h100_sxm"].rows
    usd = [row.usd_per_chip_hour for row in rows]
    assert found["usd_per_chip_hour"] == statistics.median(usd)
    assert (found["low_usd"], found["high_usd"]) == (min(usd), max(usd))
    assert found["providers"] == len({row.provider for row in rows}) > 2
    # A year of rising quotes says both ends: its newest date alone would read as today's price.
    assert found["dates"] == "2025-11-20 to 2026-10-24"
    assert found["dates"] in catalog.prices.select("market_index")["h100_sxm"].rule
    assert found["warnings"] == []


def test_the_default_basis_warns_of_what_a_buyer_could_not_sign() -> None:
    """SemiAnalysis, 2026-04-03: H100 at 1.30 to rent and 1.69 to own, in the same table."""
    found = evidence(dse.load_catalog(), "h100_sxm", "rental_3yr")
    assert found["warnings"] == [ONE, STALE, BELOW]
    assert found["owning_usd_per_chip_hour"] == 1.69
    (said,) = evidence_words([found])
    assert "$1.30 an hour of h100_sxm (rental_3yr): one source, " in said
    assert said.endswith(f", {found['age_days']} days old, below owning at $1.69.")


def test_owning_is_the_lower_of_the_parts_and_of_a_providers_figure() -> None:
    catalog = dse.load_catalog()
    parts = price_by_parts(catalog, "mi300x", "owned_tco")["usd_per_chip_hour"]
    published = catalog.prices.select("owned_tco_neocloud")["mi300x"].usd_per_chip_hour
    found = evidence(catalog, "mi300x", "rental_3yr")
    assert found["owning_usd_per_chip_hour"] == min(parts, published) < found["usd_per_chip_hour"]
    assert BELOW not in found["warnings"]


@pytest.mark.parametrize("days", [STALE_DAYS, STALE_DAYS + 1])
def test_a_quote_is_old_from_a_day_on(tmp_path: Path, days: int) -> None:
    day = date.fromisoformat(catalog_day(dse.load_catalog()))
    when = (day - timedelta(days=days)).isoformat()
    file = own(tmp_path, f"h100_sxm,rental_3yr,2.5,me,{when},a contract,")
    found = evidence(dse.load_catalog(prices=file), "h100_sxm", "rental_3yr")
    assert found["age_days"] == days
    # One's own quote is its only source by right.
    assert found["warnings"] == [STALE] * (days > STALE_DAYS)


def test_dates_of_the_future_are_told_or_refused(tmp_path: Path) -> None:
    file = own(tmp_path, "h100_sxm,rental_3yr,2.5,me,2999-01,a forecast,")
    found = evidence(dse.load_catalog(prices=file), "h100_sxm", "rental_3yr")
    assert found["warnings"] == [FUTURE]
    assert "h100_sxm (rental_3yr): dated in the future (2999-01)." in evidence_words([found])[0]
    with pytest.raises(InputError, match="prices of the future are not known"):
        dse.load_catalog(as_of="2999")
    then = dse.load_catalog(as_of="2026-06")
    assert catalog_day(then) == "2026-06-30"
    assert evidence(then, "h100_sxm", "rental_3yr")["age_days"] == 88


def test_those_with_most_to_check_have_a_sentence_each_and_the_others_are_counted() -> None:
    catalog = dse.load_catalog()
    chips = sorted(catalog.prices.select("rental_3yr"))
    rows = evidence_rows(catalog, [(chip, "rental_3yr") for chip in (*chips, "wse3")])
    assert [row["chip"] for row in rows] == chips  # wse3 has no such price
    first, _, others = evidence_words(rows)
    assert "below owning" in first
    assert others.startswith(f"Check the prices of {len(chips) - 2} more chips")
    assert evidence_words([row | {"warnings": []} for row in rows]) == []


def test_answers_say_it_on_their_first_screen(tmp_path: Path) -> None:
    point = dse.estimate(model="llama-3-8b", chip="h100_sxm")
    assert any("Before you sign" in text for text in point.sentences)
    assert point.document["price_evidence"][0]["warnings"] == [ONE, STALE, BELOW]
    file = own(tmp_path, "h100_sxm,on_demand,2.5,me,2026-11-01,a contract,")
    catalog = dse.load_catalog(prices=file)
    point = dse.estimate(
        model="llama-3-8b", chip="h100_sxm", price_basis="on_demand", catalog=catalog
    )
    assert not any("Before you sign" in text for text in point.sentences)
