"""Break-even prices, and chips at an equal budget, latency or demand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from dse.errors import InputError
from dse.problem.demanded import TOTAL as COST
from dse.questions.whatif.inputs import inputs_of, sweep_of
from dse.questions.whatif.moves import sweep
from dse.questions.whatif.solve import Stand, all_points, solve
from dse.questions.whatif.ties import RATE, break_even, equal, owning
from dse.schema.owning import power_at_meter
from tests.helpers_whatif import POISSON, asked_of, changed, pair

__all__ = ["pair"]


def test_at_its_break_even_price_a_chip_costs_what_the_other_does(pair):
    asked, points, _ = pair
    first, second = break_even(Stand(asked, points)).facts["break_even"]
    for row, other in ((first, second), (second, first)):
        text = f"chip.{row['chip']}.price={row['break_even_usd_per_chip_hour']!r} USD/h"
        found = break_even(Stand(replace(asked, problem=changed(asked, text)), points))
        costs = {one["chip"]: one[COST] for one in found.facts["break_even"]}
        assert costs[row["chip"]] == pytest.approx(other[COST], rel=1e-12)


def test_a_sweep_of_the_price_switches_at_break_even(pair):
    asked, points, _ = pair
    row = break_even(Stand(asked, points)).facts["break_even"][0]
    text = f"chip.{row['chip']}.price=0.5x..4x:8"
    found = sweep(Stand(asked, points), sweep_of(text, inputs_of(asked))).facts
    (switch,) = found["switches"]
    assert switch["value"] == pytest.approx(row["break_even_usd_per_chip_hour"], rel=1e-9)
    assert (switch["from"]["chip"], switch["to"]["chip"]) == (row["chip"], row["against"])
    costs = [one["objective"] for one in found["rows"]]
    assert costs == sorted(costs)


def test_a_committed_rent_is_no_rent_by_use(pair):
    asked, points, _ = pair
    row = break_even(Stand(asked, points)).facts["owning"][0]
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
    found = break_even(Stand(asked, points)).facts
    rows, chip = found["concurrency"], found["concurrency_turns"]["a"]
    assert [row["concurrency"] for row in rows if row["chip"] == chip] == [1, 4, 16, 64, 256]
    least = min(row[COST] for row in rows if row["chip"] == chip and row[COST])
    assert least == pytest.approx(before.value)


@pytest.mark.parametrize("kind", ["cost", "power", "chips"])
def test_an_equal_budget_against_brute_force(pair, kind: str):
    asked, points, _ = pair
    problem, catalog = asked.problem, asked.catalog
    budget = {"cost": 37.0, "power": 21e3, "chips": 13.0}[kind]
    found = equal(Stand(asked, points), kind, budget).facts
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
    found = equal(Stand(asked, points), "racks", 1.0, 40e3).facts
    for row in found["rows"]:
        watts = power_at_meter(asked.catalog, row["chip"])[1]  # of the server
        assert row["chips"] % 8 == 0
        assert row["chips"] * watts <= 40e3 < (row["chips"] + 8) * watts


def test_at_equal_latency_the_tighter_level_costs_no_less(pair):
    asked, points, _ = pair
    costs = [
        {
            row["chip"]: row["value"]
            for row in equal(Stand(asked, points), "latency", x).facts["rows"]
        }
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
    points = all_points(subject)
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
