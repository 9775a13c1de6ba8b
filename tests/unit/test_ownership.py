"""Chips that are bought: dollars per hour, terms, which price counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.economics.ownership import usd_per_chip_hour, with_purchase_prices
from dse.errors import InputErrors
from dse.specs.catalog import load_catalog
from dse.specs.prices import PurchaseRow
from dse.specs.purchase import PurchaseTerms, buyers_rows
from dse.specs.study import load_study, shipped_spaces
from dse.study.physics import pose
from dse.study.sources import price_rows

EDGE = shipped_spaces()["shape-for-edge"].read_text(encoding="utf-8")
TERMS = "{life: 4 years, utilisation: 25 %, usd_per_kwh: 0.17}"


def edge(tmp_path: Path, terms: str | None, basis: str = "purchase") -> Path:
    text = EDGE.replace("price_basis: purchase", f"price_basis: {basis}")
    line = f"purchase: {TERMS}\n"
    assert line in text
    path = tmp_path / "edge.yaml"
    path.write_text(text.replace(line, f"purchase: {terms}\n" if terms else ""), encoding="utf-8")
    return path


def row(kind: str, usd: float, chip: str = "x") -> PurchaseRow:
    return PurchaseRow(chip, kind, usd, "shop", "2026", "a page", "", 2)


def test_price_and_electricity() -> None:
    """One dollar for each of 8,760 hours; 500 W at 0.2 USD/kWh are 0.1 USD/h."""
    year = PurchaseTerms(8760 * 3600.0, 1.0, 0.2)
    assert usd_per_chip_hour(8760.0, 500.0, year) == pytest.approx(1.1, rel=1e-12)
    half = PurchaseTerms(8760 * 3600.0, 0.5, 0.0)
    assert usd_per_chip_hour(8760.0, 500.0, half) == pytest.approx(2.0, rel=1e-12)


def test_the_street_price_comes_before_the_list_and_guesses_never_count() -> None:
    rows = [row("msrp_launch", 1), row("msrp", 2), row("purchase_street", 3)]
    assert [r.usd_per_chip for r in buyers_rows(rows, "x")] == [3]
    assert [r.usd_per_chip for r in buyers_rows(rows[:2], "x")] == [2]
    assert buyers_rows([row("cogs_estimate", 4), row("model_capex_input", 5)], "x") == ()
    assert buyers_rows(rows, "y") == ()


def test_prices_are_replaced_and_rent_is_untouched() -> None:
    catalog = load_catalog()
    once = with_purchase_prices(catalog, PurchaseTerms())
    twice = with_purchase_prices(once, PurchaseTerms(usd_per_kwh=0.0))
    card = once.prices.select("purchase")["rtx_pro_6000"].usd_per_chip_hour
    assert card == pytest.approx(8565 / (35_040 * 0.6) + 0.6 * 0.12)
    assert len(twice.prices.rows) == len(once.prices.rows)
    assert card - twice.prices.select("purchase")["rtx_pro_6000"].usd_per_chip_hour == (
        pytest.approx(0.072)
    )
    assert twice.prices.select("rental_3yr") == catalog.prices.select("rental_3yr")


def test_a_study_prices_its_chips_and_says_how(tmp_path: Path) -> None:
    study = load_study(edge(tmp_path, TERMS))
    assert study.purchase == PurchaseTerms(4 * 8760 * 3600.0, 0.25, 0.17)
    problem = pose(study, load_catalog())
    catalog = with_purchase_prices(load_catalog(), study.purchase)
    rule = {r["chip"]: r["rule"] for r in price_rows(catalog, problem)}["rtx_pro_6000"]
    said = ("8,565 USD", "msrp", "4 years", "8,760 h", "25%", "600 W", "0.17 USD/kWh")
    assert [part for part in said if part not in rule] == []
    assert (problem.machines.usd_per_chip_hour > 0.0).all()
    assert "m4_max has no price that a buyer pays" in study.why_left_out["m4_max"]
    assert "no rated power" in study.why_left_out["m2_ultra"]


def test_terms_have_defaults_and_decide_the_fingerprint(tmp_path: Path) -> None:
    default = load_study(edge(tmp_path, None))
    assert default.purchase == PurchaseTerms()
    written = "{life: 35040 h, utilisation: 0.6, usd_per_kwh: 0.12}"
    assert load_study(edge(tmp_path, written)).fingerprint == default.fingerprint
    assert load_study(edge(tmp_path, TERMS)).fingerprint != default.fingerprint


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ("{life: 4}", "life"),
        ("{life: 0 h}", "life"),
        ("{utilisation: 0 %}", "utilisation"),
        ("{utilisation: 120 %}", "utilisation"),
        ("{utilisation: always}", "utilisation"),
        ("{usd_per_kwh: cheap}", "usd_per_kwh"),
        ("{usd_per_kwh: -1}", "usd_per_kwh"),
        ("{lives: 9}", "lives"),
    ],
)
def test_wrong_terms_are_refused_with_their_place(tmp_path: Path, terms: str, said: str) -> None:
    with pytest.raises(InputErrors) as caught:
        load_study(edge(tmp_path, terms))
    assert any(said in str(error.field) and error.line for error in caught.value.errors)


def test_terms_without_a_purchase_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputErrors, match="price_basis: purchase"):
        load_study(edge(tmp_path, TERMS, basis="market_index"))
