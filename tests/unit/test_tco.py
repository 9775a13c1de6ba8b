"""Owned chips: closed forms, laws, published totals; own prices, dates, costs; average load."""

from __future__ import annotations

import statistics
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.catalog import load_catalog, with_own_chips
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
from dse.economics.tco import price_by_parts, recovery_factor, with_basis, yearly_capital
from dse.economics.tokens import at_load
from dse.errors import InputError, InputErrors
from dse.problem.objective import on_terms, pose
from dse.schema.costs import RULES, Costs, buyers_rows, costs_of, lacks_for_owning, load_costs
from dse.schema.derive import derive
from dse.schema.prices import PriceRow, PriceTable, PurchaseRow, first_day, last_day
from dse.schema.study import load_study, shipped_spaces
from dse.schema.traffic import Demand, check_idle_once
from tests.helpers_files import refusal, write

CATALOG = load_catalog()
COSTS = CATALOG.costs
OWNED = with_basis(CATALOG, "owned_tco").prices.select("owned_tco")
HEADER = "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
YEAR_S = 365 * 86400.0
FREE = {
    "cost_of_capital": 0.0,
    "resale": 0.0,
    "network_share": 0.0,
    "maintenance": 0.0,
    "staff": 0.0,
    "space": 0.0,
    "electricity": 0.0,
    "utilisation": 1.0,
}


def hourly(costs: Costs, chip: str = "h100_sxm") -> float:
    return price_by_parts(CATALOG, chip, "owned_tco", costs)["usd_per_chip_hour"]


def test_level_payments_repay_the_capital() -> None:
    """A loan of 100 at 10% over 2 years: 57.619 at the end of each year (100 x 1.1 = 110 - 57.619 =
    52.381, x 1.1 = 57.619), or 0.0953 / 0.1 of it through the year."""
    assert 100 * recovery_factor(0.10, 2) == pytest.approx(57.6190476 * 0.953101798, rel=1e-9)
    assert recovery_factor(0.0, 4) == 0.25
    assert recovery_factor(1e-9, 4) == pytest.approx(0.25, rel=1e-6)


@given(
    usd=st.floats(1.0, 1e6),
    rate=st.floats(0.0, 0.5),
    years=st.integers(1, 12),
    resale=st.floats(0.0, 1.0),
)
def test_payments_discounted_are_the_price_less_what_is_left(
    usd: float, rate: float, years: int, resale: float
) -> None:
    paid = sum(yearly_capital(usd, rate, years, resale))
    middles = (np.arange(2000) + 0.5) / 2000 * years
    worth = float(np.mean((1 + rate) ** -middles)) * paid * years
    assert worth + resale * usd / (1 + rate) ** years == pytest.approx(usd, rel=1e-5)


def test_nothing_but_capital_is_the_price_over_its_hours(tmp_path: Path) -> None:
    costs = load_costs(write(tmp_path, "chips: {h100_sxm: {server_price: 43800 USD}}"), COSTS)
    assert hourly(costs.changed(FREE)) == pytest.approx(43800 / (5 * 8760), rel=1e-12)


def test_electricity_and_space_by_hand(tmp_path: Path) -> None:
    """A 1,360 W meter behind a factor of 1.36 is 1 kW of server: 73 USD a kW and month are 0.1 an
    hour; 0.1 USD/kWh of 1.36 kW 0.136, of which half of the hours take 1 - 0.7 / 2."""
    costs = load_costs(write(tmp_path, "chips: {h100_sxm: {power: 1.36 kW}}"), COSTS)
    free = costs.changed(FREE | {"life": 1e9 * YEAR_S / 1e9})
    base = hourly(free)
    assert hourly(free.changed({"space": 73.0})) - base == pytest.approx(0.1, rel=1e-9)
    assert hourly(free.changed({"electricity": 0.1})) - base == pytest.approx(0.136, rel=1e-9)
    half = free.changed({"utilisation": 0.5})
    drawn = hourly(half.changed({"electricity": 0.1})) - hourly(half)
    assert drawn == pytest.approx(0.136 * (1 - 0.7 / 2) / 0.5, rel=1e-9)


@pytest.mark.parametrize("chip", OWNED)
def test_parts_add_up_to_the_price_that_estimates_use(chip: str) -> None:
    found = price_by_parts(CATALOG, chip, "owned_tco")
    assert sum(part["usd_per_chip_hour"] for part in found["parts"]) == pytest.approx(
        OWNED[chip].usd_per_chip_hour, rel=1e-12
    )
    assert all(part["usd_per_chip_hour"] >= 0 for part in found["parts"])


@given(name=st.sampled_from(sorted(RULES)), by=st.floats(1.05, 3.0))
def test_price_moves_the_way_each_input_says(name: str, by: float) -> None:
    before = COSTS.value(name) or 0.1
    low = COSTS.changed({name: before if name != "utilisation" else 0.3})
    after = low.value(name) * by
    after = min(after, 1.0) if RULES[name].most == 1.0 else after
    high = low.changed({name: after})
    chip = "mi300x" if name == "server_factor" else "l40s"  # priced as a chip, rated power alone
    moved = hourly(high, chip) - hourly(low, chip)
    if name in ("load_share", "worth_after_3_years"):  # at full use, and of a fleet alone
        assert moved == pytest.approx(0.0, abs=1e-12)
    elif name in ("life", "resale", "utilisation"):
        assert moved < 0
    else:
        assert moved > 0


# SemiAnalysis' AI Cloud TCO model of 2026-04-03: a buyer's published price is above what large
# buyers pay, so that these are exceeded by half at most and undercut by a fifth at most.
@pytest.mark.parametrize("who", ["hyperscaler", "neocloud"])
def test_published_totals_are_met_to_a_factor(who: str) -> None:
    published = CATALOG.prices.select(f"owned_tco_{who}")
    both = {
        chip: OWNED[chip].usd_per_chip_hour / price.usd_per_chip_hour
        for chip, price in published.items()
        if chip in OWNED
    }
    assert set(both) >= {"h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72", "mi300x"}
    assert all(0.8 < ratio < 1.6 for ratio in both.values()), both
    if who == "neocloud":
        assert all(0.8 < ratio < 1.35 for ratio in both.values()), both


def test_the_page_says_how_far_off_as_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.endswith("% |")]
    assert len(rows) == 6
    for chip, here, *published in rows:
        owned = OWNED[chip].usd_per_chip_hour
        assert float(here) == pytest.approx(owned, abs=0.0051)
        for who, (usd, off) in {
            "hyperscaler": published[:2],
            "neocloud": published[2:],
        }.items():
            price = CATALOG.prices.select(f"owned_tco_{who}")[chip].usd_per_chip_hour
            assert float(usd) == pytest.approx(price, abs=0.0051)
            assert float(off.rstrip("%")) / 100 == pytest.approx(owned / price - 1, abs=0.0051)


# What three pages publish, USD an hour (least, most), with the inputs that they give:
# aiinframap.com (1,024 chips, five years, 70% of the rated power at a PUE of 1.2), a forum's
# estimate (greaterwrong, three years, a fifth of the capital to run it), v2-pseo-ai.pages.dev
# (8 x H100, middles of its ranges). See docs/costs.md.
YEARS = {"life": 5 * YEAR_S, "electricity": 0.08, "load_share": 0.0}
THREE = {"life": 3 * YEAR_S, "maintenance": 0.2 / 3}
HALL = {"life": 3 * YEAR_S, "network_share": 0.125, "space": 200.0, "electricity": 0.09}
PUBLISHED = [
    ("h100_sxm", YEARS, 30e3, 588.0, (32.83e6 / 1024 / 43800,) * 2),
    ("h200_sxm", YEARS, 35e3, 588.0, (37.95e6 / 1024 / 43800,) * 2),
    ("b200_sxm", YEARS, 40e3, 840.0, (43.97e6 / 1024 / 43800,) * 2),
    ("h100_sxm", THREE, 50e3, None, (2.3, 2.3)),
    ("gb200_nvl72", THREE, 70e3, None, (3.2, 3.2)),
    ("h100_sxm", HALL, 325e3 / 8, 1730.0, (450e3 / 8 / 26280, 650e3 / 8 / 26280)),
]


@pytest.mark.parametrize(("chip", "inputs", "server_usd", "watts", "usd"), PUBLISHED)
def test_published_totals_follow_from_their_own_inputs(
    chip: str,
    inputs: dict[str, float],
    server_usd: float,
    watts: float | None,
    usd: tuple[float, float],
) -> None:
    own = {"server_price": server_usd} | ({"power": watts} if watts else {})
    price = hourly(COSTS.changed(FREE | inputs, {chip: own}), chip)
    assert 0.98 * usd[0] < price < 1.02 * usd[1]
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text(encoding="utf-8")
    assert f" {chip} | " in page
    assert f" | {price:.2f} |" in page


def test_the_page_says_by_line_what_an_owned_hour_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "costs.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.count(" | ") == 9]
    assert len(rows[1:]) == 5
    for chip, *cells in rows[1:]:
        found = price_by_parts(CATALOG, chip, "owned_tco")
        part = {one["name"]: one["usd_per_chip_hour"] for one in found["parts"]}
        lines = (
            part["server with chip"] + part["network"],
            part["cost of capital"],
            part["maintenance"] + part["staff"],
            part["space"],
            part["electricity"],
            found["usd_per_chip_hour"],
        )
        for cell, usd in zip(cells, lines, strict=False):
            assert float(cell) == pytest.approx(usd, abs=0.0051)
        neocloud, agrees = float(cells[6]), float(cells[8].replace(",", ""))
        there = hourly(COSTS.changed({}, {chip: {"server_price": agrees}}), chip)
        assert there == pytest.approx(neocloud, abs=0.0051)


def test_every_cost_has_its_source_date_and_kind() -> None:
    for cost in COSTS.inputs.values():
        assert cost.source
        assert cost.date
        assert cost.kind in ("claimed", "estimated", "measured", "assumed")
        assert cost.note or cost.kind != "assumed"


@pytest.mark.parametrize(
    ("line", "usd_a_year"),
    [
        ("support: 4500 USD/chip-year", 4500.0),
        ("support: 800 USD/server-month", 800.0 * 12 / 8),
        ("power strips: 4000 USD/rack", 4000.0 / 32 / 5),
        ("insurance: 0.5 %", 0.005 * 33750 * 1.19),
        ("storage: {value: 0.02 USD/GB-month, amount: 1 TB, source: ours}", 0.02 * 12 * 1000),
        ("software licence: shipped", 4500.0),
        ("software licence: 0 USD/chip-year", 0.0),
    ],
)
def test_a_line_of_ones_own_costs_what_it_says(
    tmp_path: Path, line: str, usd_a_year: float
) -> None:
    mine = load_catalog(costs=write(tmp_path, f"lines:\n  {line}\n")).costs
    assert hourly(mine) - hourly(COSTS) == pytest.approx(usd_a_year / 8760.0, abs=1e-9)
    name = line.partition(":")[0]
    parts = price_by_parts(CATALOG, "h100_sxm", "owned_tco", mine)["parts"]
    part = next(one for one in parts if one["name"] == name)
    assert part["usd_per_chip_hour"] == pytest.approx(usd_a_year / 8760.0)
    assert list(costs_of(mine.as_json()).counted) == [name]
    assert not COSTS.counted


def test_a_chip_without_a_price_says_what_to_write(tmp_path: Path) -> None:
    lack = lacks_for_owning(CATALOG, "trn2_16")
    assert lack is not None
    assert "chips: {trn2_16: {price: 30000 USD}}" in lack
    text = "chips: {trn2_16: {price: 15000 USD, power: 900 W}}"
    costs = load_costs(write(tmp_path, text), COSTS)
    assert hourly(costs, "trn2_16") > 0
    with pytest.raises(InputError, match="trn2_16 has no price"):
        price_by_parts(CATALOG, "trn2_16", "owned_tco")


def row(kind: str, usd: float, chip: str = "x") -> PurchaseRow:
    return PurchaseRow(
        chip=chip, kind=kind, usd_per_chip=usd, provider="shop", date="2026", source="a page"
    )


def test_the_street_price_comes_before_the_list_and_guesses_never_count() -> None:
    rows = [row("msrp_launch", 1), row("msrp", 2), row("purchase_street", 3)]
    assert [r.usd_per_chip for r in buyers_rows(rows, "x")] == [3]
    assert [r.usd_per_chip for r in buyers_rows(rows[:2], "x")] == [2]
    assert buyers_rows([row("cogs_estimate", 4), row("model_capex_input", 5)], "x") == ()
    assert buyers_rows(rows, "y") == ()


EDGE = shipped_spaces()["shape-for-edge"].read_text(encoding="utf-8")


def test_a_card_of_ones_own_carries_its_machine_and_its_idle_hours() -> None:
    """A PC of 8,565 USD x 1.43 without interest or repair over 4 years of which it serves a
    quarter, and 600 W x 1.4 at 0.17 USD/kWh, of which 1 - 0.7 x 0.75 is drawn."""
    study = load_study(shipped_spaces()["shape-for-edge"])
    assert study.costs is not None
    costs = study.costs.changed({"cost_of_capital": 0.0, "maintenance": 0.0})
    hourly = price_by_parts(CATALOG, "rtx_pro_6000", "owned_tco", costs)["usd_per_chip_hour"]
    by_hand = (8565 * 1.43 / 35_040 + 0.6 * 1.4 * 0.17 * (1 - 0.7 * 0.75)) / 0.25
    assert hourly == pytest.approx(by_hand, rel=1e-12)
    machines = pose(study, CATALOG).machines
    assert (machines.usd_per_chip_hour > 0.0).all()
    spark = price_by_parts(CATALOG, "dgx_spark", "owned_tco", study.costs)
    assert spark["parts"][0]["rule"].startswith("4,699 USD")  # a whole machine needs no PC
    assert "m4_max has no price that a buyer pays" in study.why_left_out["m4_max"]
    assert "no rated power" in study.why_left_out["m2_ultra"]


def test_a_space_of_the_old_basis_is_told_of_costs(tmp_path: Path) -> None:
    text = EDGE.replace("price_basis: owned_tco", "price_basis: purchase")
    with pytest.raises(InputErrors, match="owned_tco prices a chip that is bought, with `costs:`"):
        load_study(write(tmp_path, text, "edge.yaml"))


def test_idle_hours_are_counted_once(tmp_path: Path) -> None:
    demand = "demand: {average: 1M/day, peak_over_average: 2}\ntraining_tokens"
    path = write(tmp_path, EDGE.replace("training_tokens", demand), "edge.yaml")
    with pytest.raises(InputErrors, match=r"edge.yaml:\d+: demand: .*25% and a demand both count"):
        load_study(path)
    check_idle_once(1.0)
    with pytest.raises(InputError, match="one of the two: drop `utilisation`"):
        check_idle_once(0.999)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("h100_sxm,on_demand,0,me,2026,mail,", r":2: usd_per_chip_hour: read .*above zero"),
        ("h100_sxm,on_demand,nan,me,2026,mail,", r":2: usd_per_chip_hour: read .*above zero"),
        ("h100_sxm,on_demand,free,me,2026,mail,", r":2: usd_per_chip_hour: read .*above zero"),
        ("h100,on_demand,1,me,2026,mail,", "unknown chip 'h100'"),
        ("h100_sxm,owned_tco,1,me,2026,mail,", "that basis is computed"),
    ],
)
def test_own_rows_that_no_catalog_takes(tmp_path: Path, row: str, says: str) -> None:
    path = write(tmp_path, f"{HEADER}{row}\n", "mine.csv")
    with pytest.raises(InputError, match=says):
        load_catalog(prices=path)


def test_dates() -> None:
    assert [first_day(d) for d in ("2026", "2026-Q3", "2026-11", "2026-11-09", "2025-2026")] == [
        "2026-01-01",
        "2026-07-01",
        "2026-11-01",
        "2026-11-09",
        "2026-01-01",
    ]
    assert [last_day(d) for d in ("2026", "2026-Q2", "2024-02", "2026-02-03")] == [
        "2026-12-31",
        "2026-06-30",
        "2024-02-29",
        "2026-02-03",
    ]
    for wrong in ("june", "2026-13", "2026-6", "2026-02-30", "2026-02-40", "2026-Q5", "0000"):
        with pytest.raises(InputError, match="not a date"):
            last_day(wrong)


def test_a_space_with_costs_and_a_demand(tmp_path: Path) -> None:
    tiny = shipped_spaces()["tiny"].read_text(encoding="utf-8")
    lines = "price_basis: owned_tco\ncosts: {electricity: 0.3 USD/kWh}\n"
    demand = "demand: {average: 1B/day, peak_over_average: 2}\n"
    text = tiny.replace("price_basis: rental_3yr\n", lines + demand)
    study = load_study(write(tmp_path, text, "a.yaml"))
    price = on_terms(CATALOG, study).prices.select("owned_tco")["h100_sxm"].usd_per_chip_hour
    assert price - OWNED["h100_sxm"].usd_per_chip_hour == pytest.approx(1.73 * (0.3 - 0.0869))
    assert study.demand == Demand(1e9 / 86400, 2.0)
    cheap = load_study(write(tmp_path, text.replace("0.3 USD", "0.1 USD"), "b.yaml"))
    assert cheap.fingerprint != study.fingerprint
    rented = text.replace("owned_tco", "rental_3yr").replace("average: 1B/day", "averge: 1B/day")
    said = str(refusal(load_study, write(tmp_path, rented, "c.yaml")))
    assert "price_basis: owned_tco" in said
    assert "did you mean average?" in said


def test_average_load_by_hand() -> None:
    """Peak 250 tokens/s over 100 a deployment: 3 held, a third of 300 used, three times the price;
    with 40% of it saved while idle, 3 x (0.6 + 0.4 / 3)."""
    demand = Demand(100.0, 2.5)
    rest = {"tokens_per_s": 100.0, "chips": 8.0, "usd_per_chip_hour": 2.0}
    each = (1.0, 2.0, 3.0)
    rent = at_load(demand, **rest, load_share=0.0, usd_per_million=each)
    assert (rent.deployments, rent.chips, rent.usd_per_hour) == (3, 24.0, 48.0)
    assert rent.usd_per_million_total_tokens == pytest.approx(9.0)
    owned = at_load(demand, **rest, load_share=0.4, usd_per_million=each)
    assert owned.usd_per_million_total_tokens == pytest.approx(9.0 * (0.6 + 0.4 / 3))
    ratio = at_load(Demand(None, 2.5), **rest, load_share=0.0, usd_per_million=each)
    assert (ratio.deployments, ratio.usd_per_million_total_tokens) == (None, 7.5)
    # exactly full deployments are not rounded up
    assert at_load(Demand(100.0, 3.0), **rest, load_share=0.0, usd_per_million=each).chips == 24.0


def test_a_derived_chip_costs_what_its_parent_costs(tmp_path: Path) -> None:
    costs = load_costs(write(tmp_path, "chips: {h100_sxm: {server_price: 20000 USD}}"), COSTS)
    own = derive(CATALOG, "h100_sxm", ["hbm_bandwidth=2x"])
    both = with_own_chips(CATALOG, [own])
    for terms in (COSTS, costs):
        price = price_by_parts(both, own.chip.id, "owned_tco", terms)["usd_per_chip_hour"]
        assert price == hourly(terms)


def test_of_a_provider_the_newest_price_counts():
    """Two providers, of which one raised its price: the median is that of what both ask now, and
    what the raised one asked before counts as of then. Rows without a provider all count."""

    def row(provider: str, usd: float, date: str) -> PriceRow:
        return PriceRow(
            chip="a",
            basis="on_demand",
            usd_per_chip_hour=usd,
            provider=provider,
            date=date,
            source="here",
        )

    rows = (row("X", 3.0, "2026"), row("Y", 6.0, "2026-05"), row("X", 4.0, "2026-Q3"))
    assert PriceTable("", rows).select("on_demand")["a"].usd_per_chip_hour == 5.0
    assert PriceTable("", rows[:2]).select("on_demand")["a"].usd_per_chip_hour == 4.5
    sizes = (*rows, row("X", 4.4, "2026-07"))  # the first day of the quarter: two sizes at once
    assert len(PriceTable("", sizes).select("on_demand")["a"].rows) == 3
    bare = (row("", 1.0, "2025"), row("", 2.0, "2026"))
    assert PriceTable("", bare).select("on_demand")["a"].usd_per_chip_hour == 1.5


def test_a_region_sets_electricity_and_carbon_and_a_line_of_ones_own_replaces_it(tmp_path: Path):
    base = load_catalog().costs
    for name, of in base.regions.items():
        assert 0.05 < of["electricity"].value < 0.3, name
        assert 10.0 < of["carbon"].value < 900.0, name
        assert of["electricity"].source.count("https://") == 3
    there = load_costs(write(tmp_path, "region: ohio\n"), base)
    assert there.inputs["electricity"] == base.regions["ohio"]["electricity"]
    # 63,226 thousand tonnes over 133,223 GWh.
    assert there.carbon is not None
    assert there.carbon.value == pytest.approx(63_226e9 / 133_223e6, rel=2e-3)
    cheaper = load_costs(write(tmp_path, "region: ohio\nelectricity: 0.05 USD/kWh\n"), base)
    assert cheaper.value("electricity") == 0.05
    assert cheaper.carbon == there.carbon
    mine = "region: mill\nregions: {mill: {electricity: 0.02 USD/kWh}}\n"
    hydro = load_costs(write(tmp_path, mine), base)
    assert (hydro.value("electricity"), hydro.carbon) == (0.02, None)
    with pytest.raises(InputError, match=r"unknown region 'ohoi'; did you mean ohio\?"):
        load_costs(write(tmp_path, "region: ohoi\n"), base)


# What a price rests on: providers, dates, ends, and what a buyer is told before he signs.


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
    assert others.startswith(f"Check the price of {len(chips) - 2} more chips as well")
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
