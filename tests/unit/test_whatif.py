"""What-if questions by `dse.whatif`: closed forms, differences of full reruns, brute force."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import dse
from dse.catalog import Catalog, load_catalog, with_own_chips
from dse.economics.tco import price_by_parts
from dse.errors import InputError, NothingFeasible
from dse.schema.costs import RULES, power_at_meter
from dse.schema.derive import derive
from tests.helpers_spaces import space
from tests.helpers_whatif import COST, PAIR, POISSON, SPACE

Json = Mapping[str, Any]
TIGHT = space(
    {"weight_dtype": "fp8", "kv_dtype": "fp8", "concurrency": [1, 2, 4, 8, 16, 32]},
    workload={"prompt_tokens": 2048, "output_tokens": 512, "serving": "continuous"},
    model="llama-3-70b",
    constraints=["tpot_s <= 100 ms"],
)
CATALOG = load_catalog()


def pair(**changed: Any) -> dict[str, Any]:
    """The space of two chips, or of others."""
    return yaml.safe_load(SPACE.format(**{**PAIR, **changed}))


def asked(of: Json, changes: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return dse.whatif(of, changes, **{"catalog": CATALOG, **more}).document


def after(changes: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """The scenario of the space of two chips."""
    return asked(pair(), changes, **more)["scenarios"][1]


def least(of: Json, catalog: Catalog = CATALOG, **more: Any) -> float:
    """What the winner costs."""
    return asked(of, catalog=catalog, **more)["winner"][COST]


def by_chip(rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    return {row["chip"]: row[key] for row in rows}


def difference(low: float, high: float) -> float:
    return math.log(high / low) / math.log(1.01 / 0.99)


@pytest.fixture(scope="module")
def one_chip() -> dict[str, Any]:
    """The sensitivities of the space with one chip, by the last word of the input."""
    rows = asked(pair(chips="h100_sxm"), sensitivities=True)["sensitivities"]
    return {row["input"].rpartition(".")[2]: row for row in rows}


@pytest.fixture(scope="module")
def even() -> dict[str, Any]:
    return asked(pair(), break_even=True)


def rerun(figure: str, factor: float) -> float:
    """The lowest cost of one chip, its figure changed by a chip of one's own or its price by the
    price table, as a user would run it again from the start."""
    if figure in ("prompt", "output"):
        return least(pair(chips="h100_sxm", **{figure: round(PAIR[figure] * factor)}))
    catalog, chip = CATALOG, "h100_sxm"
    if figure == "price":
        rows = (
            replace(row, usd_per_chip_hour=row.usd_per_chip_hour * factor)
            for row in catalog.prices.rows
        )
        catalog = replace(catalog, prices=replace(catalog.prices, rows=tuple(rows)))
    else:
        own = derive(catalog, chip, [f"{figure}={factor}x"])
        catalog, chip = with_own_chips(catalog, [own]), own.chip.id
    return least(pair(chips=chip), catalog)


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("price", "price"),
        ("memory_bandwidth", "memory_bandwidth"),
        ("peak", "flops"),
        ("memory_capacity", "capacity"),
        ("link_bandwidth", "link"),
        ("link_latency", "link_latency"),
        ("scale_out_bandwidth", "scale_out"),
        ("tdp", "tdp"),
        ("prompt_tokens", "prompt"),
        ("output_tokens", "output"),
    ],
)
def test_an_elasticity_is_a_full_reruns_finite_difference(one_chip, name: str, figure: str):
    expected = difference(rerun(figure, 0.99), rerun(figure, 1.01))
    assert one_chip[name]["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)


def test_a_price_moves_the_cost_of_its_chip_one_to_one(one_chip):
    price = one_chip["price"]
    assert price["elasticity"] == pytest.approx(1.0, abs=1e-12)
    assert price["elasticity_tpot"] == 0.0
    assert price["at_10_percent_less"] == pytest.approx(-0.1)


def test_all_prices_doubled_double_the_cost_and_leave_the_front():
    found = asked(pair(), {"chip.all.price": "2x"})
    before, row = found["scenarios"]
    assert row["change"] == pytest.approx(1.0)
    assert (row["id"], row["front_size"]) == (before["id"], before["front_size"])
    assert "entered" not in found


def test_what_enters_and_leaves_the_front_is_listed_with_its_times():
    found = asked(pair(), {"chip.mi300x.price": "0.2x"})
    rows = {row["front"]: row for row in found["entered"]}
    assert rows["entered"]["chip"] == "mi300x"
    assert rows["left"]["chip"] == "h100_sxm"
    assert all(row["ttft_s"] and row["tpot_s"] for row in found["entered"])
    assert "On the front" in " ".join(found["answer"])


@pytest.mark.parametrize("figure", ["memory_bandwidth", "peak", "link_bandwidth"])
def test_a_better_figure_costs_no_more(figure: str):
    rows = asked(pair(), sweeps=(f"chip.all.{figure}=0.5x..2x:4",))["sweep"]
    costs = [row[COST] for row in rows]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("workload.prompt_tokens", "3x"),
        ("chip.all.memory_bandwidth", "0.3x"),
        ("limit.tpot_s", "9ms"),
    ],
)
def test_the_optimum_is_the_envelope_of_deployments(name: str, to: str):
    """Deployed anew, no change costs more than with the old winner kept."""
    before, row, *old = asked(pair(), {name: to})["scenarios"]
    assert bool(old) == (row["id"] != before["id"])
    if old and "breaks" not in old[0]["name"]:
        assert row[COST] <= old[0][COST] * (1 + 1e-12)


def test_a_looser_limit_never_costs_more():
    found = asked(pair(), sweeps=("limit.tpot_s=5ms..40ms:8",))
    costs = [row[COST] for row in found["sweep"]]
    assert costs == sorted(costs, reverse=True)
    assert costs[3] == found["winner"][COST]  # 20 ms


def test_memory_is_worth_nothing_where_it_does_not_bind_and_its_gain_where_it_does():
    loose = asked(pair(), sensitivities=True)["shadow_prices"][0]
    assert (loose["gain"], loose["worth_usd_per_chip_hour"], loose["limit_binds"]) == (
        0.0,
        0.0,
        False,
    )
    found = asked(TIGHT, sensitivities=True)
    tight = found["shadow_prices"][0]
    assert tight["limit_binds"]
    # At that much more per hour the larger chip costs as much as the one there is.
    price = found["winner"]["chip_usd_per_hour"]
    changes = {
        "chip.h100_sxm.memory_capacity": f"{tight['value'] / 1e9!r} GB",
        "chip.h100_sxm.price": f"{price + tight['worth_usd_per_chip_hour']!r} USD/h",
    }
    again = asked(TIGHT, changes)["scenarios"][1]
    assert again["change"] == pytest.approx(0.0, abs=1e-9)


def test_points_near_the_winner_give_the_same_sensitivities(monkeypatch: pytest.MonkeyPatch):
    whole = asked(pair(), sensitivities=True)
    monkeypatch.setattr("dse.questions.whatif.moves.MOST_EVALUATIONS", 0)
    near = dse.whatif(pair(), sensitivities=True, catalog=CATALOG)
    assert "of the winner and" in near.to_text()
    assert near.document["sensitivities"] == whole["sensitivities"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chip.h100_sxm.prize=2x", "unknown input 'chip.h100_sxm.prize'.*chip.h100_sxm.price"),
        ("chip.h100_sxm.price=-150%", "would be negative"),
        ("chip.h100_sxm.price=-2 USD/h", "negative"),
        ("chip.h100_sxm.price=3 GB", "a size, not a price per hour"),
        ("chip.h100_sxm.price=-100%", "chip.h100_sxm.price would be 0 USD/h .*more than 0"),
        ("chip.h100_sxm.price=0 USD/h", "chip.h100_sxm.price would be 0 USD/h"),
        ("chip.all.price=-100%", "a factor of 0"),
        ("workload.network_overlap=2x", "is 0, which no factor changes"),
        ("chip.h100_sxm.memory_bandwidth=0x", "would be 0 B/s"),
        ("chip.h100_sxm.tdp=1e9x", "1e-6 to 1e6"),
        ("workload.prefix_hit_rate=1.5", "would be 1.5"),
        ("workload.prompt_tokens=0", "would be 0"),
        ("limit.ttft_p99_s=2x", "no value that could be multiplied"),
    ],
)
def test_wrong_changes_say_what_is_accepted(text: str, says: str):
    name, _, to = text.partition("=")
    with pytest.raises(InputError, match=says) as caught:
        asked(pair(), {name: to})
    assert "accepted" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chip.all.price=1x..2x:1", "a sweep of one point"),
        ("chip.all.price=2x..2x:5", "a sweep of one point"),
        ("chip.all.price=1x..2x:900", "2 to 101 steps"),
        ("chip.all.price=1x..3USD/h:5", "one end is a factor"),
        ("chip.all.price=1x:5", "read 'chip.all.price=1x:5'"),
        ("chip.all.price=-1x..2x:5", "negative"),
    ],
)
def test_wrong_sweeps(text: str, says: str):
    with pytest.raises(InputError, match=says):
        asked(pair(), sweeps=(text,))


def test_scenarios_of_a_file_name_their_line(tmp_path: Path):
    file = tmp_path / "s.yaml"
    file.write_text("scenarios:\n  dear: {chip.all.price: 2x}\n  slow:\n    limit.tpot_s: 40 ms\n")
    rows = asked(pair(), scenario=str(file))["scenarios"]
    assert [row["name"] for row in rows][:3] == ["as things stand", "dear", "slow"]
    file.write_text("scenarios:\n  dear:\n    chip.all.prise: 2x\n")
    with pytest.raises(InputError, match=r"s.yaml:3: .*unknown input 'chip.all.prise'"):
        asked(pair(), scenario=str(file))
    file.write_text("scenarios: {}\n")
    with pytest.raises(InputError, match="no scenario"):
        asked(pair(), scenario=str(file))


def test_a_space_too_large_to_enumerate_is_searched_before_and_after(monkeypatch):
    whole = asked(pair(), {"chip.all.price": "2x"})
    monkeypatch.setattr("dse.questions.whatif.inputs.ENUMERATE", 10)
    found = asked(pair(), {"chip.all.price": "2x"})
    assert not found["enumerated"]
    assert "too large to enumerate" in found["how"]
    assert found["winner"][COST] == whole["winner"][COST]
    assert found["scenarios"][1]["change"] == pytest.approx(1.0)


def test_nothing_feasible_says_what_is_in_the_way():
    row = after({"limit.tpot_s": "100us"})
    assert row["id"] is None
    assert "tpot_s <= 100 us" in row["reason"]
    with pytest.raises(NothingFeasible, match="tpot_s"):
        asked(pair(), limits=("tpot_s <= 100 us",))


def test_at_its_break_even_price_a_chip_costs_what_the_other_does(even):
    first, second = even["break_even"]
    for row, other in ((first, second), (second, first)):
        price = f"{row['break_even_usd_per_chip_hour']!r} USD/h"
        winner = after({f"chip.{row['chip']}.price": price})
        assert winner[COST] == pytest.approx(other[COST], rel=1e-12)


def test_a_sweep_of_the_price_switches_at_break_even(even):
    row = even["break_even"][0]
    rows = asked(pair(), sweeps=(f"chip.{row['chip']}.price=0.5x..4x:8",))["sweep"]
    ((k, to),) = [(k, one) for k, one in enumerate(rows) if one["takes_over_at"] is not None]
    assert to["takes_over_at"] == pytest.approx(row["break_even_usd_per_chip_hour"], rel=1e-9)
    assert (rows[k - 1]["chip"], to["chip"]) == (row["chip"], row["against"])
    costs = [one[COST] for one in rows]
    assert costs == sorted(costs)


def test_requests_in_flight_say_who_is_cheapest_at_each(even):
    chip = even["break_even"][0]["chip"]
    mine = [row for row in even["requests"] if row["chip"] == chip]
    assert [row["concurrency"] for row in mine] == [1, 4, 16, 64, 256]
    least_of_all = min(row[COST] for row in mine if row[COST])
    assert least_of_all == pytest.approx(even["winner"][COST])


def owned_at(chip: str, use: float) -> float:
    """Dollars by the hour that it serves, as `dse catalog prices list` says of owned_tco."""
    costs = CATALOG.costs.changed({"utilisation": use})
    return price_by_parts(CATALOG, chip, "owned_tco", costs)["usd_per_chip_hour"]


@pytest.mark.parametrize("basis", ["rental_3yr", "owned_tco", "on_demand"])
def test_an_owned_chip_costs_its_rent_at_break_even_utilisation(basis: str):
    """The closed form is where the two curves cross; a committed rent is no rent by use."""
    found = asked({**pair(), "price_basis": basis}, break_even=True)
    rents = CATALOG.prices.select("on_demand")
    for row, parts in zip(found["owning"], found["parts"], strict=True):
        chip, rent = row["chip"], row["rent_usd_per_hour"]
        assert row["owned_at_full_use"] == pytest.approx(owned_at(chip, 1.0), rel=1e-12)
        usd = [part for name, part in parts.items() if name not in ("chip", "total")]
        assert math.fsum(usd) == pytest.approx(row["owned_at_full_use"], rel=1e-12)
        if rent is None or owned_at(chip, 1.0) > rent:
            assert row.get("owning_wins_from") is None
        else:
            assert owned_at(chip, row["owning_wins_from"]) == pytest.approx(rent, rel=1e-9)
        assert row["basis"] == "on_demand"
        assert rent == (rents[chip].usd_per_chip_hour if chip in rents else None)
        committed = CATALOG.prices.select(basis)[chip].usd_per_chip_hour if "3yr" in basis else None
        assert row.get("committed_usd_per_hour") == committed
    (said,) = (text for text in found["assumed"] if text.startswith("Costs: "))
    for name in ("life 5 years (", "electricity 0.0869 USD/kWh ("):
        assert name in said
    assert ("utilisation" in said) is (basis == "owned_tco")
    assert any(text.startswith("[1] ") for text in found["assumed"])  # each with its source


@pytest.mark.parametrize("kind", ["cost", "power", "chips"])
def test_an_equal_budget_against_brute_force(kind: str):
    """Of each chip and each deployment that keeps the limits, as many as the budget pays for."""
    budget = {"cost": "37 USD/h", "power": "21 kW", "chips": "13"}[kind]
    rows = asked(pair(), equal=(kind,), at=budget)[f"equal_{kind}"]
    most: dict[str, float] = {}
    for chip in ("h100_sxm", "mi300x"):
        price = CATALOG.prices.select("rental_3yr")[chip].usd_per_chip_hour
        each = {"cost": price, "power": power_at_meter(CATALOG, chip)[2], "chips": 1.0}[kind]
        for tp in (1, 2, 4):
            for dtype in ("bf16", "fp8"):
                for flight in (1, 4, 16, 64, 256):
                    point = dse.estimate(
                        *("llama-3-8b", chip),
                        tp=tp,
                        weight_dtype=dtype,
                        kv_dtype="bf16",
                        concurrency=flight,
                        prompt_tokens=PAIR["prompt"],
                        output_tokens=PAIR["output"],
                        serving="continuous",
                    )
                    said = point.document
                    if said["feasible"] and said["ttft_s"] <= 2.0 and said["tpot_s"] <= 0.02:
                        count = math.floor(rows[0]["level"] / (each * tp))
                        served = count * said["output_tokens_per_s"]
                        most[chip] = max(most.get(chip, 0.0), served)
    assert by_chip(rows, "output_tokens_per_s") == pytest.approx(most)
    assert rows[0]["output_tokens_per_s"] == max(most.values())
    assert rows[0]["over_best"] == 0.0
    if kind == "power":
        watts = {chip: power_at_meter(CATALOG, chip)[2] for chip in most}
        assert by_chip(rows, "watts_per_chip_counted") == watts


def test_at_equal_latency_the_tighter_level_costs_no_less():
    loose, tight = (
        by_chip(asked(pair(), equal=("latency",), at=at)["equal_latency"], COST)
        for at in ("20ms", "8ms")
    )
    assert all(tight[chip] >= loose[chip] for chip in tight)
    with pytest.raises(InputError, match="no chip keeps the limits"):
        asked(pair(), equal=("latency",), at="1us")
    with pytest.raises(InputError, match="too little for any deployment"):
        asked(pair(), equal=("power",), at="10W")


def test_more_arrivals_cost_less_a_token_and_keep_their_shares():
    arrivals = yaml.safe_load(POISSON)
    found = asked(arrivals, {"demand": "8"})
    assert {row["input"]: row["now"] for row in found["inputs"]}["demand"] == 4.0
    row = found["scenarios"][1]
    assert row["change"] < 0.0
    same = {"workload.chat.requests_per_second": "6", "workload.code.requests_per_second": "2"}
    again = asked(arrivals, same)["scenarios"][1]
    for key in (COST, "tpot_s", "output_tokens_per_s"):
        assert again[key] == pytest.approx(row[key])


def test_one_chip_by_name_takes_the_place_of_all():
    both = {"chip.all.price": "2x", "chip.mi300x.price": "1 USD/h"}
    rows = [after(both), after(dict(reversed(both.items())))]
    assert rows[0][COST] == rows[1][COST]
    assert rows[0]["chip_usd_per_hour"] == 1.0


COSTS = {
    "life": "4 years",
    "cost_of_capital": "9 %",
    "resale": "12 %",
    "server_factor": "1.4",
    "network_share": "19 %",
    "maintenance": "5 %",
    "staff": "150 USD/year",
    "server_power_factor": "1.82",
    "facility_factor": "1.36",
    "electricity": "0.09 USD/kWh",
    "load_share": "70 %",
    "space": "184 USD/kW-month",
    "utilisation": "60 %",
}


def owned_space(chips: Json | None = None, **changed: float) -> dict[str, Any]:
    """A space of one L40S, priced as a card with its rated power; each of `changed` multiplies a
    cost as its owner would write it anew."""
    costs: dict[str, Any] = {"chips": chips or {}}
    for name, text in COSTS.items():
        number, _, unit = text.partition(" ")
        costs[name] = f"{float(number) * changed.get(name, 1.0)!r} {unit}".strip()
    owned = pair(chips="l40s") | {"price_basis": "owned_tco", "costs": costs}
    owned["deployment"] |= {"tensor_parallel": [1]}
    return owned | {"constraints": ["ttft_s <= 2 s", "tpot_s <= 60 ms"]}


@pytest.fixture(scope="module")
def owned() -> dict[str, Any]:
    rows = asked(owned_space(), sensitivities=True)["sensitivities"]
    return {row["input"]: row for row in rows}


@pytest.mark.parametrize(
    "name", [*(name for name in RULES if name in COSTS), "l40s.price", "l40s.power"]
)
def test_the_elasticity_to_a_cost_is_a_full_reruns(owned, name: str):
    mine = owned[f"costs.{name}"]
    chip, _, own = name.rpartition(".")
    unit = {"price": "USD", "power": "W"}.get(own, "")
    low, high = (
        least(owned_space({chip: {own: f"{mine['now'] * x!r} {unit}"}}))
        if chip
        else least(owned_space(None, **{name: x}))
        for x in (0.99, 1.01)
    )
    assert mine["elasticity_optimum"] == pytest.approx(difference(low, high), abs=1e-9)
    assert mine["elasticity_tpot"] == 0.0


def test_a_cost_at_its_bound_is_differed_on_one_side():
    """No more than every hour can carry the cost: only less of it is looked at."""
    found = asked({**pair(), "price_basis": "owned_tco"}, sensitivities=True)
    rows, chip = {row["input"]: row for row in found["sensitivities"]}, found["winner"]["chip"]
    mine = rows["costs.utilisation"]
    expected = math.log(owned_at(chip, 0.99) / owned_at(chip, 1.0)) / math.log(0.99)
    assert mine["elasticity"] == pytest.approx(expected, abs=1e-9)
    assert mine["at_10_percent_more"] is None
    assert "costs.resale" not in rows  # 0


@pytest.mark.parametrize(
    ("changes", "chip"),
    [
        ({"costs.l40s.price": "10000 USD"}, {"price": "10000 USD"}),
        ({"costs.l40s.price": "2x"}, {"price": "16000 USD"}),
        ({"costs.l40s.server_price": "20 kUSD"}, {"server_price": "20000 USD"}),
        ({"costs.electricity": "0.18USD/kWh", "costs.l40s.power": "1 kW"}, {"power": "1 kW"}),
    ],
)
def test_a_changed_cost_is_that_of_a_space_that_says_so(changes, chip):
    row = asked(owned_space(), changes)["scenarios"][1]
    electricity = 2.0 if "costs.electricity" in changes else 1.0
    again = least(owned_space({"l40s": chip}, electricity=electricity))
    assert row[COST] == pytest.approx(again, rel=1e-12)


def test_costs_are_swept():
    found = asked(owned_space(), sweeps=("costs.utilisation=30%..90%:3",))
    costs = [row[COST] for row in found["sweep"]]
    assert costs[1] == pytest.approx(found["winner"][COST], rel=1e-12)
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("costs.elektricity=2x", "did you mean costs.electricity"),
        ("costs.electricity=0.1 EUR/kWh", "0.087 USD/kWh"),
        ("costs.electricity=-0.1 USD/kWh", "negative"),
        ("costs.utilisation=2x", "costs.utilisation would be 1.2 .*at most 100 %"),
        ("costs.utilisation=0 %", "more than 0 %"),
        ("costs.server_factor=0.5x", "1 or more"),
        ("costs.l40s.price=-100%", "would be 0 USD .*more than 0 USD"),
        ("costs.l40s.server_price=2x", "no value that could be multiplied"),
    ],
)
def test_wrong_costs_say_what_is_accepted(text: str, says: str):
    name, _, to = text.partition("=")
    with pytest.raises(InputError, match=says) as caught:
        asked(owned_space(), {name: to})
    assert "accepted" in str(caught.value)
    both = {"costs.l40s.price": "1 kUSD", "costs.l40s.server_price": "2 kUSD"}
    with pytest.raises(InputError, match="both say what it costs to buy"):
        asked(owned_space(), both)
