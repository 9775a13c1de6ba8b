"""What-if questions: closed forms, finite differences of full reruns, brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog, with_own_chips
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError, NothingFeasible
from dse.problem.objective import pose
from dse.questions.whatif import solve as solving
from dse.questions.whatif.answer import Questions, answer
from dse.questions.whatif.breakeven import COST, break_even, owning
from dse.questions.whatif.change import from_file, read_sweep, scenario_row, sweep_rows
from dse.questions.whatif.change import from_flags as scenarios_of
from dse.questions.whatif.equal import RATE, equal
from dse.questions.whatif.inputs import apply, change_to, inputs_of, read_change
from dse.questions.whatif.sensitivity import STEP, elasticity, sensitivities, shadow_prices
from dse.questions.whatif.solve import Stand, all_points, searched, solve
from dse.questions.whatif.subject import Subject, of_study
from dse.schema.costs import RULES
from dse.schema.derive import derive
from dse.schema.owning import power_at_meter
from dse.schema.study import load_study
from dse.search.run import search

SPACE = """\
name: pair
workload: {{prompt_tokens: {prompt}, output_tokens: {output}, serving: continuous}}
price_basis: rental_3yr
model: llama-3-8b
deployment:
  chip: [{chips}]
  replicas: 1
  tensor_parallel: [1, 2, 4]
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: [1, 4, 16, 64, 256]
objectives: {{usd_per_million_total_tokens: minimize, tpot_s: minimize}}
constraints: [ttft_s <= 2 s, tpot_s <= 20 ms]
"""
TIGHT = """\
name: tight
workload: {prompt_tokens: 2048, output_tokens: 512, serving: continuous}
price_basis: rental_3yr
model: llama-3-70b
deployment:
  {chip: h100_sxm, replicas: 1, tensor_parallel: 1, weight_dtype: fp8, kv_dtype: fp8,
   concurrency: [1, 2, 4, 8, 16, 32]}
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
constraints: [tpot_s <= 100 ms]
"""
POISSON = """\
name: arrivals
workloads:
  - {name: chat, prompt_tokens: 500, output_tokens: 200, serving: poisson, requests_per_second: 3}
  - {name: code, prompt_tokens: 2000, output_tokens: 100, serving: poisson, requests_per_second: 1}
price_basis: rental_3yr
model: llama-3-8b
deployment: {chip: [h100_sxm], replicas: 1, tensor_parallel: [1, 2], weight_dtype: fp8,
  kv_dtype: bf16, concurrency: 1}
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
"""
PAIR = {"prompt": 1000, "output": 200, "chips": "h100_sxm, mi300x"}


def asked_of(folder: Path, text: str) -> Subject:
    file = folder / "space.yaml"
    file.write_text(text, encoding="utf-8")
    return of_study(str(file), load_catalog())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory):
    """(asked, points, before) of two chips."""
    asked = asked_of(tmp_path_factory.mktemp("pair"), SPACE.format(**PAIR))
    points = all_points(asked.problem, "auto", 0)
    return asked, points, solve(asked.problem, points, COST)


@pytest.fixture(scope="module")
def one_chip(tmp_path_factory: pytest.TempPathFactory):
    """The sensitivities of the space with one chip."""
    text = SPACE.format(**{**PAIR, "chips": "h100_sxm"})
    asked = asked_of(tmp_path_factory.mktemp("one"), text)
    return sensitivities(Stand(asked, all_points(asked.problem, "auto", 0)))


def chip_of(solved) -> str:
    index = solved.problem.space.unrank(np.array([solved.winner_id]))
    return solved.problem.machines.ids[solved.problem.batch(index).chip[0]]


def changed(subject, *texts: str):
    known = inputs_of(subject)
    return apply(subject, [read_change(text, known) for text in texts])


def rerun(folder: Path, chip: str, **changes: str | float) -> float:
    """The lowest cost of the space with one chip, its figure changed by a file of its own or its
    price by the price table, as a user would run it again from the start."""
    catalog, name = load_catalog(), chip
    if setting := changes.pop("setting", None):
        own = derive(catalog, chip, [str(setting)])
        catalog, name = with_own_chips(catalog, [own]), own.chip.id
    if factor := changes.pop("price", None):
        rows = tuple(
            replace(row, usd_per_chip_hour=row.usd_per_chip_hour * float(factor))
            for row in catalog.prices.rows
        )
        catalog = replace(catalog, prices=replace(catalog.prices, rows=rows))
    file = folder / "again.yaml"
    file.write_text(SPACE.format(**{**PAIR, **changes, "chips": name}), encoding="utf-8")
    found = search(pose(load_study(file, catalog), catalog), "exhaustive")
    return float(found.front.F[:, 0].min())


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("price", {"price": 0.99}, {"price": 1.01}),
        (
            "memory_bandwidth",
            {"setting": "memory_bandwidth=0.99x"},
            {"setting": "memory_bandwidth=1.01x"},
        ),
        ("peak", {"setting": "flops=0.99x"}, {"setting": "flops=1.01x"}),
        ("memory_capacity", {"setting": "capacity=0.99x"}, {"setting": "capacity=1.01x"}),
        ("link_bandwidth", {"setting": "link=0.99x"}, {"setting": "link=1.01x"}),
        ("link_latency", {"setting": "link_latency=0.99x"}, {"setting": "link_latency=1.01x"}),
        ("scale_out_bandwidth", {"setting": "scale_out=0.99x"}, {"setting": "scale_out=1.01x"}),
        ("tdp", {"setting": "tdp=0.99x"}, {"setting": "tdp=1.01x"}),
        ("prompt_tokens", {"prompt": 990}, {"prompt": 1010}),
        ("output_tokens", {"output": 198}, {"output": 202}),
    ],
)
def test_an_elasticity_is_a_full_reruns_finite_difference(
    tmp_path: Path, one_chip, name, less, more
):
    mine = next(row for row in one_chip if row["input"].endswith(f".{name}"))
    low, high = (rerun(tmp_path, "h100_sxm", **end) for end in (less, more))
    expected = (math.log(high) - math.log(low)) / (math.log(1.01) - math.log(0.99))
    assert mine["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)


def test_a_price_moves_the_cost_of_its_chip_one_to_one(one_chip):
    price = next(row for row in one_chip if row["input"].endswith(".price"))
    assert price["elasticity"] == pytest.approx(1.0, abs=1e-12)
    assert price["elasticity_tpot"] == 0.0
    assert price["at_10_percent_less"] == pytest.approx(-0.1)


def test_all_prices_doubled_double_the_cost_and_leave_the_front(pair):
    asked, points, _ = pair
    scenario = scenarios_of(["chip.all.price=2x"], inputs_of(asked))[0]
    row = scenario_row(Stand(asked, points), scenario)
    assert row["change"] == pytest.approx(1.0)
    assert row["same_winner"]
    assert row["front"]["entered"]["count"] == row["front"]["left"]["count"] == 0
    assert row["front"]["chips"] == row["front"]["chips_before"]


def test_a_change_of_nothing_changes_nothing(pair):
    asked, points, before = pair
    names = ["price", "memory_bandwidth", "memory_capacity", "peak", "link_bandwidth", "tdp"]
    problem = changed(asked, *(f"chip.all.{name}=1x" for name in names))
    after = solve(problem, points, COST)
    assert np.array_equal(after.ids, before.ids)
    np.testing.assert_allclose(after.F, before.F, rtol=1e-12)


@pytest.mark.parametrize("figure", ["memory_bandwidth", "peak", "link_bandwidth"])
def test_a_better_figure_costs_no_more(pair, figure: str):
    asked, points, _ = pair
    costs = [
        solve(changed(asked, f"chip.all.{figure}={x}x"), points, COST).value
        for x in (0.5, 1.0, 2.0)
    ]
    assert costs[0] >= costs[1] >= costs[2]


def test_the_optimum_is_the_envelope_of_deployments(pair):
    """Deployed anew, no change costs more than with the old winner kept."""
    asked, points, _ = pair
    for text in ("workload.prompt_tokens=3x", "chip.all.memory_bandwidth=0.3x", "limit.tpot_s=9ms"):
        known = inputs_of(asked)
        scenario = scenarios_of([text], known)[0]
        row = scenario_row(Stand(asked, points), scenario)
        old = row["old_winner"]
        if old["feasible"]:
            assert row["winner"]["metrics"][COST] <= old["metrics"][COST] * (1 + 1e-12)
        else:
            assert not row["same_winner"]


def test_a_looser_limit_never_costs_more_and_a_tighter_one_never_less(pair):
    asked, points, before = pair
    costs = [
        solve(changed(asked, f"limit.tpot_s={ms}ms"), points, COST).value for ms in (6, 10, 20, 40)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[2] == before.value


def test_memory_is_worth_nothing_where_it_does_not_bind_and_its_gain_where_it_does(
    pair, tmp_path: Path
):
    asked, points, before = pair
    loose = shadow_prices(Stand(asked, points))[0]
    assert (loose["gain"], loose["usd_per_chip_hour"], loose["binds"]) == (0.0, 0.0, False)

    asked = asked_of(tmp_path, TIGHT)
    points = all_points(asked.problem, "auto", 0)
    before = solve(asked.problem, points, COST)
    tight = shadow_prices(Stand(asked, points))[0]
    assert tight["binds"]
    # At that much more per hour the larger chip costs as much as the one there is.
    price = float(asked.problem.machines.usd_per_chip_hour[0])
    problem = changed(
        asked,
        f"chip.h100_sxm.memory_capacity={tight['after'] / 1e9!r} GB",
        f"chip.h100_sxm.price={price + tight['usd_per_chip_hour']!r} USD/h",
    )
    again = solve(problem, points, COST).value
    assert again == pytest.approx(before.value, rel=1e-9)


def test_near_points_hold_what_a_small_change_makes_the_winner(pair):
    asked, points, _ = pair
    close = Stand(asked, points).near().points
    assert len(close.ids) < len(points.ids)
    for text in (
        "chip.all.peak=1.1x",
        "chip.all.memory_bandwidth=0.9x",
        "chip.h100_sxm.price=1.1x",
    ):
        problem = changed(asked, text)
        found, whole = (solve(problem, some, COST) for some in (close, points))
        assert found.winner_id == whole.winner_id


def test_at_its_break_even_price_a_chip_costs_what_the_other_does(pair):
    asked, points, _ = pair
    first, second = break_even(Stand(asked, points))["chips"]
    for row, other in ((first, second), (second, first)):
        text = f"chip.{row['chip']}.price={row['break_even_usd_per_chip_hour']!r} USD/h"
        found = break_even(Stand(replace(asked, problem=changed(asked, text)), points))
        costs = {one["chip"]: one["cost"] for one in found["chips"]}
        assert costs[row["chip"]] == pytest.approx(other["cost"], rel=1e-12)


def test_a_sweep_of_the_price_switches_at_break_even(pair):
    asked, points, _ = pair
    row = break_even(Stand(asked, points))["chips"][0]
    text = f"chip.{row['chip']}.price=0.5x..4x:8"
    sweep = read_sweep(text, inputs_of(asked))
    found = sweep_rows(Stand(asked, points), sweep)
    (switch,) = found["switches"]
    assert switch["value"] == pytest.approx(row["break_even_usd_per_chip_hour"], rel=1e-9)
    assert (switch["from"]["chip"], switch["to"]["chip"]) == (row["chip"], row["against"])
    costs = [one["objective"] for one in found["rows"]]
    assert costs == sorted(costs)


def owned_at(chip: str, use: float) -> float:
    """Dollars by the hour that it serves, as `dse catalog prices list` says of owned_tco."""
    catalog = load_catalog()
    costs = catalog.costs.changed({"utilisation": use})
    return usd_per_chip_hour(catalog, chip, "owned_tco", costs).usd_per_chip_hour


@given(rent=st.floats(0.05, 20.0), chip=st.sampled_from(["h100_sxm", "mi300x", "l40s"]))
@settings(max_examples=30, deadline=None)
def test_an_owned_chip_costs_its_rent_at_break_even_utilisation(rent: float, chip: str):
    """The closed form is where the two curves cross, found by bisection."""
    catalog = load_catalog()
    found = owning(catalog, chip, rent, catalog.costs)
    assert found is not None
    assert found["owned_at_full_use"] == pytest.approx(owned_at(chip, 1.0), rel=1e-12)
    for point in found["curve"]:
        owned = owned_at(chip, point["utilisation"])
        assert point["owned"] == pytest.approx(owned, rel=1e-12)
    low, high = 1e-3, 1.0
    if owned_at(chip, high) > rent:
        assert found["utilisation"] is None
        return
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if owned_at(chip, middle) > rent else (low, middle)
    assert found["utilisation"] == pytest.approx(high, rel=1e-9)


def test_the_parts_of_an_owned_hour_are_said_with_their_sources(pair):
    document = answer(pair[0], Questions(break_even=True))
    row = document["break_even"]["owning"][0]
    parts = row["price"]["parts"]
    assert math.fsum(part["usd_per_chip_hour"] for part in parts) == pytest.approx(
        row["owned_at_full_use"], rel=1e-12
    )
    said = [text for text in document["assumed"] if text.startswith("owning: ")]
    for name in ("life 5 years", "electricity 0.0869 USD/kWh", f"{row['chip']} "):
        assert any(text.startswith(f"owning: {name}") for text in said), name
    assert all("; " in text for text in said)  # each with its source


def test_owned_chips_are_held_against_rent_by_use(tmp_path: Path):
    text = SPACE.format(**PAIR).replace("rental_3yr", "owned_tco")
    asked = asked_of(tmp_path, text)
    points = all_points(asked.problem, "auto", 0)
    rows = {row["chip"]: row for row in break_even(Stand(asked, points))["owning"]}
    on_demand = asked.catalog.prices.select("on_demand")["h100_sxm"]
    assert rows["h100_sxm"]["rent_basis"] == "on_demand"
    assert rows["h100_sxm"]["rent_usd_per_hour"] == on_demand.usd_per_chip_hour
    assert rows["h100_sxm"]["committed_usd_per_hour"] is None
    assert 0.0 < rows["h100_sxm"]["utilisation"] < 1.0
    price = float(asked.problem.machines.usd_per_chip_hour[0])
    assert rows["h100_sxm"]["owned_at_full_use"] == pytest.approx(price, rel=1e-12)


def test_a_committed_rent_is_no_rent_by_use(pair):
    asked, points, _ = pair
    row = break_even(Stand(asked, points))["owning"][0]
    prices = asked.catalog.prices
    assert row["committed_basis"] == "rental_3yr"
    assert row["rent_basis"] == "on_demand"
    assert row["rent_usd_per_hour"] == prices.select("on_demand")[row["chip"]].usd_per_chip_hour
    assert (
        row["committed_usd_per_hour"] == prices.select("rental_3yr")[row["chip"]].usd_per_chip_hour
    )
    catalog = asked.catalog
    nobody = owning(catalog, row["chip"], None, catalog.costs)
    assert nobody is not None
    assert nobody["utilisation"] is None


def test_requests_in_flight_say_who_is_cheapest_at_each(pair):
    asked, points, before = pair
    found = break_even(Stand(asked, points))["concurrency"]
    assert [row["concurrency"] for row in found["rows"]] == [1, 4, 16, 64, 256]
    least = min(row["cost_a"] for row in found["rows"] if row["cost_a"])
    assert least == pytest.approx(before.value)


@pytest.mark.parametrize("kind", ["cost", "power", "chips"])
def test_an_equal_budget_against_brute_force(pair, kind: str):
    asked, points, _ = pair
    problem, catalog = asked.problem, asked.catalog
    budget = {"cost": 37.0, "power": 21e3, "chips": 13.0}[kind]
    found = equal(Stand(asked, points), kind, budget)
    metrics = problem.metrics(problem.space.unrank(points.ids))
    batch = problem.batch(problem.space.unrank(points.ids))
    feasible = (problem.judge(metrics).G <= 0.0).all(axis=1)
    most: dict[str, float] = {}
    for i in range(len(points.ids)):
        chip = problem.machines.ids[batch.chip[i]]
        each = {
            "cost": problem.machines.usd_per_chip_hour[batch.chip[i]],
            "power": power_at_meter(catalog, chip)[2],
            "chips": 1.0,
        }[kind]
        count = math.floor(budget / (each * batch.chips[i]))
        if feasible[i]:
            most[chip] = max(most.get(chip, 0.0), count * float(metrics.values[RATE][i]))
    assert {row["chip"]: row["value"] for row in found["rows"]} == pytest.approx(most)
    assert found["rows"][0]["value"] == max(most.values())
    assert found["rows"][0]["over_best"] == 0.0


def test_equal_racks_hold_whole_servers_or_one_domain(pair):
    asked, points, _ = pair
    found = equal(Stand(asked, points), "racks", 1.0, 40e3)
    for row in found["rows"]:
        watts = power_at_meter(asked.catalog, row["chip"])[1]  # of the server
        assert row["chips"] % 8 == 0
        assert row["chips"] * watts <= 40e3 < (row["chips"] + 8) * watts


def test_at_equal_latency_the_tighter_level_costs_no_less(pair):
    asked, points, _ = pair
    costs = [
        {row["chip"]: row["value"] for row in equal(Stand(asked, points), "latency", x)["rows"]}
        for x in (0.02, 0.008)
    ]
    assert all(costs[1][chip] >= costs[0][chip] for chip in costs[1])
    with pytest.raises(InputError, match="no chip keeps the limits"):
        equal(Stand(asked, points), "latency", 1e-6)
    with pytest.raises(InputError, match="too little for any deployment"):
        equal(Stand(asked, points), "power", 10.0)


def test_the_demand_of_arrivals_keeps_their_shares(tmp_path: Path):
    asked = asked_of(tmp_path, POISSON)
    subject = asked
    assert inputs_of(subject)["demand"].now == 4.0
    problem = changed(subject, "demand=8")
    rates = [float(share.workload.requests_per_s[0]) for share in problem.mix]
    assert rates == [6.0, 2.0]
    assert [share.weight for share in problem.mix] == [0.75, 0.25]
    one = changed(subject, "workload.code.requests_per_second=3x")
    assert [share.weight for share in one.mix] == [0.5, 0.5]
    points = all_points(subject.problem, "auto", 0)
    more = solve(problem, points, COST)
    assert more.value < solve(subject.problem, points, COST).value


def test_one_chip_by_name_takes_the_place_of_all(pair):
    subject = pair[0]
    for texts in (
        ("chip.all.price=2x", "chip.mi300x.price=1 USD/h"),
        ("chip.mi300x.price=1 USD/h", "chip.all.price=2x"),
    ):
        usd = changed(subject, *texts).machines.usd_per_chip_hour
        assert usd[subject.problem.machines.code("mi300x")] == 1.0
        now = subject.problem.machines.usd_per_chip_hour
        code = subject.problem.machines.code("h100_sxm")
        assert usd[code] == 2.0 * now[code]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chip.h100_sxm.prize=2x", "unknown input 'chip.h100_sxm.prize'.*chip.h100_sxm.price"),
        ("chip.h100_sxm.price", "not INPUT=CHANGE"),
        ("chip.h100_sxm.price=-150%", "would be negative"),
        ("chip.h100_sxm.price=-2 USD/h", "negative"),
        ("chip.h100_sxm.price=3 GB", "a size, not a price per hour"),
        ("chip.h100_sxm.price=-100%", "chip.h100_sxm.price would be 0 USD/h .*more than 0"),
        ("chip.h100_sxm.price=0x", "chip.h100_sxm.price would be 0 USD/h"),
        ("chip.h100_sxm.price=0 USD/h", "chip.h100_sxm.price would be 0 USD/h"),
        ("chip.all.price=-100%", "a factor of 0"),
        ("chip.all.price=0 USD/h", "chip.all.price would be 0 USD/h"),
        ("costs.electricity=+50%", "count on the price basis owned_tco only"),
        ("workload.network_overlap=2x", "is 0, which no factor changes"),
        ("chip.h100_sxm.memory_bandwidth=0x", "would be 0 B/s"),
        ("chip.h100_sxm.tdp=1e9x", "1e-6 to 1e6"),
        ("workload.prefix_hit_rate=1.5", "would be 1.5"),
        ("workload.prompt_tokens=0", "would be 0"),
        ("limit.tpot_s=0x", "would be 0"),
        ("chip.all.peak=0x", "a factor of 0"),
        ("limit.ttft_p99_s=2x", "no value that could be multiplied"),
    ],
)
def test_wrong_changes_say_what_is_accepted(pair, text: str, says: str):
    with pytest.raises(InputError, match=says) as caught:
        changed(pair[0], text)
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
def test_wrong_sweeps(pair, text: str, says: str):
    with pytest.raises(InputError, match=says):
        read_sweep(text, inputs_of(pair[0]))


def test_scenarios_of_a_file_name_their_line(pair, tmp_path: Path):
    file, known = tmp_path / "s.yaml", inputs_of(pair[0])
    file.write_text("scenarios:\n  dear: {chip.all.price: 2x}\n  slow:\n    limit.tpot_s: 40 ms\n")
    assert [one.name for one in from_file(str(file), known)] == ["dear", "slow"]
    file.write_text("scenarios:\n  dear:\n    chip.all.prise: 2x\n")
    with pytest.raises(InputError, match=r"s.yaml:3: .*unknown input 'chip.all.prise'"):
        from_file(str(file), known)
    file.write_text("scenarios: {}\n")
    with pytest.raises(InputError, match="no scenario"):
        from_file(str(file), known)


def test_a_space_too_large_to_enumerate_is_searched_from_the_same_seed(pair, monkeypatch):
    asked, points, before = pair
    monkeypatch.setattr(solving, "ENUMERATE", 10)
    found = all_points(asked.problem, "pareto-local", 3)
    assert not found.enumerated
    assert "too large to enumerate: pareto-local" in found.how
    assert np.isin(found.ids, points.ids).all()
    problem = changed(asked, "chip.all.price=2x")
    more = searched(problem, found, 3)
    assert more.evaluations > found.evaluations
    assert solve(problem, more, COST).value == pytest.approx(2 * before.value)


def test_nothing_feasible_says_what_is_in_the_way(pair):
    asked, points, _ = pair
    scenario = scenarios_of(["limit.tpot_s=1us"], inputs_of(asked))[0]
    row = scenario_row(Stand(asked, points), scenario)
    assert row["winner"] is None
    assert "tpot_s <= 1 us" in row["infeasible_because"]
    with pytest.raises(NothingFeasible, match="tpot_s"):
        _ = Stand(replace(asked, problem=changed(asked, "limit.tpot_s=1us")), points).winner


def test_the_document_answers_every_question(pair):
    asked = pair[0]
    known = inputs_of(asked)
    questions = Questions(
        scenarios=scenarios_of(["chip.mi300x.price=0.3x"], known),
        sensitivities=True,
        break_even=True,
        equal=("latency", "chips"),
    )
    document = answer(asked, questions)
    assert document["scenarios"][0]["winner"]["chip"] == "mi300x"
    assert document["enumerated"]
    assert [row["kind"] for row in document["equal"]] == ["latency", "chips"]
    assert document["shadow_prices"][1]["input"] == "limit.ttft_s"


def test_elasticity_of_a_power_law_is_its_exponent():
    for power in (-2.0, 0.0, 0.5, 3.0):
        low, high = ((1.0 + h) ** power for h in (-STEP, STEP))
        assert elasticity(low, high) == pytest.approx(power, abs=1e-12)
    assert elasticity(None, 1.0) is None
    assert elasticity(0.99**-2, 1.0, 0.99, 1.0) == pytest.approx(-2.0, abs=1e-12)  # at a bound


OWNED = """\
price_basis: owned_tco
costs: {{{costs}}}
"""
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


def owned_space(folder: Path, chips: str = "{}", **changed: float) -> Path:
    """A space of one L40S, priced as a card with its rated power; each of `changed` multiplies a
    cost as its owner would write it anew."""
    lines = []
    for name, text in COSTS.items():
        number, _, unit = text.partition(" ")
        lines.append(f"{name}: {float(number) * changed.get(name, 1.0)!r} {unit}".strip())
    costs = ", ".join([*lines, f"chips: {chips}"])
    text = SPACE.format(**{**PAIR, "chips": "l40s"}).replace("[1, 2, 4]", "[1]")
    text = text.replace("price_basis: rental_3yr\n", OWNED.format(costs=costs))
    file = folder / "owned.yaml"
    file.write_text(text.replace("tpot_s <= 20 ms", "tpot_s <= 60 ms"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory):
    asked = of_study(str(owned_space(tmp_path_factory.mktemp("owned"))), load_catalog())
    points = all_points(asked.problem, "auto", 0)
    before = solve(asked.problem, points, COST)
    return asked, points, before, sensitivities(Stand(asked, points))


def lowest(path: Path) -> float:
    catalog = load_catalog()
    return float(search(pose(load_study(path, catalog), catalog), "exhaustive").front.F[:, 0].min())


@pytest.mark.parametrize("name", RULES)
def test_the_elasticity_to_a_cost_is_a_full_reruns(tmp_path: Path, owned, name: str):
    mine = next(row for row in owned[3] if row["input"] == f"costs.{name}")
    low, high = (lowest(owned_space(tmp_path, **{name: x})) for x in (0.99, 1.01))
    expected = (math.log(high) - math.log(low)) / (math.log(1.01) - math.log(0.99))
    assert mine["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)
    assert mine["elasticity_tpot"] == 0.0


@pytest.mark.parametrize(("name", "unit"), [("price", "USD"), ("power", "W")])
def test_the_elasticity_to_a_chips_own_cost_is_a_full_reruns(tmp_path, owned, name, unit):
    mine = next(row for row in owned[3] if row["input"] == f"costs.l40s.{name}")
    low, high = (
        lowest(owned_space(tmp_path, f"{{l40s: {{{name}: {mine['now'] * x!r} {unit}}}}}"))
        for x in (0.99, 1.01)
    )
    expected = (math.log(high) - math.log(low)) / (math.log(1.01) - math.log(0.99))
    assert mine["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)


def test_a_cost_at_its_bound_is_differed_on_one_side(tmp_path: Path):
    """No more than every hour can carry the cost: only less of it is looked at."""
    asked = asked_of(tmp_path, SPACE.format(**PAIR).replace("rental_3yr", "owned_tco"))
    points = all_points(asked.problem, "auto", 0)
    before = solve(asked.problem, points, COST)
    chip = chip_of(before)
    rows = sensitivities(Stand(asked, points))
    mine = next(row for row in rows if row["input"] == "costs.utilisation")
    expected = math.log(owned_at(chip, 0.99) / owned_at(chip, 1.0)) / math.log(0.99)
    assert mine["elasticity"] == pytest.approx(expected, abs=1e-9)
    assert mine["at_10_percent_more"] is None
    assert "costs.resale" not in [row["input"] for row in rows]  # 0


def test_a_price_of_a_chip_takes_the_place_of_that_of_its_server(owned):
    subject = owned[0]
    for texts, usd in (
        (["costs.l40s.price=10000 USD"], 14000),
        (["costs.l40s.price=2x"], 22400),
        (["costs.l40s.server_price=20 kUSD"], 20000),
    ):
        costs = changed(subject, *texts).study.costs
        price = usd_per_chip_hour(subject.catalog, "l40s", "owned_tco", costs)
        assert price.parts[0].rule.startswith(f"{usd:,} USD")
    with pytest.raises(InputError, match="both say what it costs to buy"):
        changed(subject, "costs.l40s.price=1 USD", "costs.l40s.server_price=2 USD")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("costs.elektricity=2x", "did you mean costs.electricity"),
        ("costs.electricity=0.1 EUR/kWh", "0.087 USD/kWh"),
        ("costs.electricity=-0.1 USD/kWh", "negative"),
        ("costs.utilisation=2x", "costs.utilisation would be 1.2 .*at most 100 %"),
        ("costs.utilisation=0 %", "more than 0 %"),
        ("costs.server_factor=0.5x", "1 or more"),
        ("costs.l40s.price=0 USD", "more than 0 USD"),
        ("costs.l40s.price=-100%", "would be 0 USD .*more than 0 USD"),
        ("costs.l40s.server_price=2x", "no value that could be multiplied"),
    ],
)
def test_wrong_costs_say_what_is_accepted(owned, text: str, says: str):
    with pytest.raises(InputError, match=says) as caught:
        changed(owned[0], text)
    assert "accepted" in str(caught.value)


def test_costs_are_swept_and_stand_in_scenarios(owned, tmp_path: Path):
    asked, points, before, _ = owned
    known = inputs_of(asked)
    sweep = read_sweep("costs.utilisation=30%..90%:3", known)
    found = [row["objective"] for row in sweep_rows(Stand(asked, points), sweep)["rows"]]
    assert found[1] == pytest.approx(before.value, rel=1e-12)
    assert found == sorted(found, reverse=True)
    file = tmp_path / "s.yaml"
    file.write_text("scenarios: {dear: {costs.electricity: 0.18USD/kWh, costs.l40s.power: 1 kW}}")
    (scenario,) = from_file(str(file), known)
    row = scenario_row(Stand(asked, points), scenario)
    again = lowest(owned_space(tmp_path, "{l40s: {power: 1 kW}}", electricity=2.0))
    assert row["winner"]["metrics"][COST] == pytest.approx(again, rel=1e-12)


def test_a_change_to_a_value_keeps_it(pair):
    one = inputs_of(pair[0])["chip.h100_sxm.memory_bandwidth"]
    assert change_to(one, "5 TB/s").after == 5e12
    assert change_to(one, "+10%").after == pytest.approx(1.1 * one.now)
