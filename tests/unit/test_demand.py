"""A what-if under a demand: closed forms against a loop, laws, flags and spaces."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.catalog import load_catalog
from dse.economics.tco import price_by_parts
from dse.economics.tokens import at_load
from dse.errors import InputError
from dse.problem.objective import TOTAL as COST
from dse.questions.whatif.inputs import Subject, inputs_of, metrics_at, points, solve, stand_of
from dse.questions.whatif.whatif import subject_of
from dse.schema.traffic import Demand, demand_words, rate_words, read_rate
from tests.helpers_spaces import space as arrivals
from tests.helpers_whatif import SPACE, changed

POOLS = """\
name: pools
workload: {prompt_tokens: 4096, output_tokens: 512, serving: continuous, backend: current}
price_basis: BASIS
model: llama-3-70b
deployment:
  chip: [h200_sxm, b200_sxm]
  replicas: 1
  tensor_parallel: [4, 8]
  weight_dtype: fp8
  kv_dtype: fp8
  concurrency: [8, 64, 512]
  pool_chips: [8, 64]
  prefill: {chip: [h200_sxm, b200_sxm], tensor_parallel: [4, 8], weight_dtype: fp8, kv_dtype: fp8,
    busy_percent: 80}
  decode: {chip: [h200_sxm, b200_sxm], tensor_parallel: [1, 8], weight_dtype: fp8, kv_dtype: fp8,
    concurrency: [8, 64, 512]}
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
"""
DAY = 86_400.0


def space_of(demand: str = "", basis: str = "on_demand", output: int = 200) -> dict[str, Any]:
    pair = SPACE.format(prompt=1000, output=output, chips="h100_sxm, mi300x, l40s")
    return yaml.safe_load(f"{pair.replace('rental_3yr', basis)}{demand}\n")


def asked_of(demand: str = "", basis: str = "on_demand", output: int = 200) -> Subject:
    return subject_of(space_of(demand, basis, output), load_catalog(), {})


def under(average: str | None, peak: str | None, demand: str = "", **more: Any) -> Subject:
    asked = {"demand": average, "peak_over_average": peak, **more}
    return subject_of(space_of(demand), load_catalog(), asked)


@pytest.fixture(scope="module")
def rented():
    """(asked, ids) of rented chips, without a demand."""
    asked = asked_of()
    return asked, stand_of(asked).ids


@pytest.fixture(scope="module")
def owned():
    asked = asked_of(basis="owned_tco")
    return asked, stand_of(asked).ids


def serving(subject: Subject, average: float, peak: float = 1.0):
    return replace(subject.problem, demand=Demand(average, peak))


def least(problem, ids) -> float:
    """What the winner costs a million tokens."""
    found = solve(problem, ids, COST).value
    assert found is not None
    return found


def pooled(basis: str, *demand: str, whole_servers: bool = False):
    space = yaml.safe_load(POOLS.replace("BASIS", basis))
    average, peak = demand or (None, None)
    asked = {"demand": average, "peak_over_average": peak, "whole_servers": whole_servers}
    subject = subject_of(space, load_catalog(), asked)
    return subject, stand_of(subject).ids


@pytest.fixture(scope="module")
def rented_pools():
    """The same where prefill and decode on pools of their own, of either chip, stand beside."""
    return pooled("rental_3yr")


@pytest.fixture(scope="module")
def owned_pools():
    return pooled("owned_tco")


def brute_force(subject: Subject, ids: np.ndarray, average: float, peak: float) -> list[float]:
    """Dollars a million tokens of each point: a loop that buys one deployment after another until
    the peak is served, and pays each of its chips for its hour."""
    problem = subject.problem
    index = problem.space.unrank(ids)
    rate = problem.metrics(index).values["output_tokens_per_s"]
    load = problem.mix[0].workload
    tokens = 1.0 + float(load.prompt_tokens[0] / load.output_tokens[0])
    costs = problem.study.costs or subject.catalog.costs
    found = []
    for deployment, output_per_s in zip(problem.deployments(index), rate, strict=True):
        held = 1
        while held * output_per_s * tokens < average * peak * (1 - 1e-12):
            held += 1
        idle = 1.0 - average / (held * output_per_s * tokens)
        first = deployment.get("prefill")
        pools = [(deployment["chip"], deployment["chips"])]
        if first:
            pools = [(deployment["chip"], deployment["decode_chips"])]
            pools.append((first["chip"], first["chips"]))
        paid = 0.0
        for chip, chips in pools:
            usd = problem.machines.usd_per_chip_hour[problem.machines.ids.index(chip)]
            if problem.study.price_basis == "owned_tco":
                price = price_by_parts(subject.catalog, chip, "owned_tco", problem.study.costs)
                power = next(
                    p["usd_per_chip_hour"] for p in price["parts"] if p["name"] == "electricity"
                )
                usd -= power * costs.value("load_share") * idle
            paid += held * chips * usd
        found.append(paid / (average * 3600.0) * 1e6)
    return found


@pytest.mark.parametrize("basis", ["rented", "owned", "rented_pools", "owned_pools"])
@pytest.mark.parametrize(("average", "peak"), [(3.0, 1.0), (2e4, 2.5), (3e5, 1.3)])
def test_what_is_paid_is_what_a_loop_buys(request, basis: str, average: float, peak: float):
    asked, ids = request.getfixturevalue(basis)
    problem = serving(asked, average, peak)
    metrics = problem.metrics(problem.space.unrank(ids))
    expected = brute_force(asked, ids, average, peak)
    np.testing.assert_allclose(metrics.values[COST], expected, rtol=1e-9)
    # A search sees the same.
    found = problem.evaluate(problem.space.unrank(ids))
    feasible = (found.G <= 0.0).all(axis=1)
    np.testing.assert_array_equal(feasible, (problem.judge(metrics).G <= 0.0).all(axis=1))
    np.testing.assert_allclose(found.F[feasible, 0], np.array(expected)[feasible], rtol=1e-9)


def test_whole_servers_of_two_kinds_of_chip_are_refused():
    with pytest.raises(InputError, match="whole servers of prefill and decode pools"):
        pooled("rental_3yr", "1B/day", "2", whole_servers=True)


@settings(max_examples=40, deadline=None)
@given(average=st.floats(1.0, 1e7), peak=st.floats(1.0, 20.0), more=st.floats(1.0, 3.0))
def test_dollars_an_hour_never_fall_with_demand(rented, average: float, peak: float, more: float):
    asked, ids = rented
    spent = [least(serving(asked, a, peak), ids) * a for a in (average, average * more)]
    assert spent[0] <= spent[1] * (1 + 1e-9)


def test_a_demand_that_one_deployment_serves_costs_one_deployment(rented):
    asked, ids = rented
    problem = serving(asked, 2.0, 1.5)
    for row in points(problem, ids[:20]):
        load, chips = row["at_average_load"], row["deployment"]["chips"]
        assert (load["deployments"], load["chips"]) == (1, chips)
        assert load["usd_per_hour"] == pytest.approx(chips * row["chip_usd_per_hour"])
        assert load["usd_per_year"] == pytest.approx(8760 * load["usd_per_hour"])
    winner = points(problem, np.array([solve(problem, ids, COST).winner_id]))[0]
    assert winner["deployment"]["chips"] == 1
    assert winner["chip"] == "l40s"  # the cheapest chip, whatever it serves beyond the demand


def test_without_a_demand_nothing_is_held(rented):
    asked, ids = rented
    problem = asked.problem
    assert problem.demand is None
    assert points(problem, ids[:1])[0]["at_average_load"] is None
    plain = metrics_at(problem, ids).values[COST]
    ratio = replace(problem, demand=Demand(None, 1.0))
    np.testing.assert_allclose(metrics_at(ratio, ids).values[COST], plain, rtol=1e-15)


def test_a_peak_without_an_average_makes_tokens_dearer_by_itself(rented):
    asked, ids = rented
    busy = solve(asked.problem, ids, COST)
    peak = solve(replace(asked.problem, demand=Demand(None, 2.5)), ids, COST)
    assert peak.value == pytest.approx(2.5 * least(busy.problem, ids))
    point = points(peak.problem, peak.ids[:1])[0]["at_average_load"]
    assert (point["deployments"], point["usd_per_year"], point["meter_w"]) == (None, None, None)


@pytest.mark.parametrize("name", ["demand", "peak_over_average", "workload.output_tokens"])
def test_an_elasticity_under_a_demand_is_a_full_reruns_difference(name: str):
    def answer(demand: float = 1e5, peak: float = 2.5, output: int = 200, **more: Any):
        written = f"demand: {{average: {demand!r}/s, peak_over_average: {peak}}}"
        return dse.whatif(space_of(written, output=output), **more).document

    rows = {row["input"]: row for row in answer(sensitivities=True)["sensitivities"]}
    ends = {
        "demand": ({"demand": 0.99e5}, {"demand": 1.01e5}),
        "peak_over_average": ({"peak": 2.475}, {"peak": 2.525}),
        "workload.output_tokens": ({"output": 198}, {"output": 202}),
    }[name]
    low, high = (answer(**end)["winner"][COST] for end in ends)
    expected = (math.log(high) - math.log(low)) / (math.log(1.01) - math.log(0.99))
    assert rows[name]["elasticity_optimum"] == pytest.approx(expected, abs=1e-9)


def test_a_demand_begins_is_multiplied_and_swept(rented):
    asked, _ = rented
    assert changed(asked, "demand=1B/day").demand == Demand(1e9 / DAY, 1.0)
    with pytest.raises(InputError, match="no value that could be multiplied"):
        changed(asked, "demand=2x")
    under_one = under("1B/day", "2.5")
    assert changed(under_one, "demand=2x").demand == Demand(2e9 / DAY, 2.5)
    assert changed(under_one, "peak_over_average=1").demand == Demand(1e9 / DAY, 1.0)
    asks: dict[str, Any] = {
        "demand": "1B/day",
        "peak_over_average": "2.5",
        "sweeps": ("demand=0.1B/day..10B/day:4",),
    }
    rows = dse.whatif(space_of(), **asks).document["sweep"]
    held = [row["usd_per_hour"] for row in rows]
    assert held == sorted(held)
    assert rows[0]["step_at"] == "100M tokens/day"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("demand=0/day", "not above zero"),
        ("demand=-1B/day", "negative"),
        ("demand=0x", "would be 0 tokens/day"),
        ("demand=-100%", "would be 0 tokens/day"),
        ("demand=3000", "such as 1B/day"),
        ("peak_over_average=0.5", "would be 0.5"),
    ],
)
def test_a_demand_that_is_none_says_so(text: str, says: str):
    with pytest.raises(InputError, match=says):
        changed(under("1B/day", "2"), text)


def test_flags_take_the_place_of_the_spaces_demand():
    line = "demand: {average: 1B/day, peak_over_average: 2}"
    assert under(None, None, line).problem.demand == Demand(1e9 / DAY, 2.0)
    assert under(None, "3", line).problem.demand == Demand(1e9 / DAY, 3.0)
    assert under("10/s", None, line).problem.demand == Demand(10.0, 2.0)


def test_arrivals_are_those_of_each_deployment():
    load = {"prompt_tokens": 500, "output_tokens": 200, "serving": "poisson"}
    space = arrivals(
        {"tensor_parallel": [1, 2], "weight_dtype": "fp8", "concurrency": 1},
        workload={**load, "requests_per_second": 3},
    )
    assert inputs_of(subject_of(space, load_catalog(), {}))["demand"].now == 3.0
    document = dse.whatif(space, demand="21000/s", peak_over_average="1.1").document
    # 3 requests a second of 700 tokens: 2,100 tokens/s on each, 23,100 at the peak
    assert document["winner"]["at_average_load"]["deployments"] == 11
    assert {row["input"]: row["now"] for row in document["inputs"]}["demand"] == 21_000.0
    assert any("arrivals of the study" in note for note in document["notes"])


def test_an_interval_of_the_rate_is_one_of_the_deployments(rented):
    asked, ids = rented
    problem = serving(asked, 1e5, 2.0)
    row = points(problem, np.array([solve(problem, ids, COST).winner_id]))[0]
    load = row["at_average_load"]
    busy = points(asked.problem, np.array([row["id"]]))[0]
    rate = load["deployment_tokens_per_s"]
    total = busy[COST]
    for end, held, paid in zip(
        busy["intervals"][COST], load["deployments_interval"], row["intervals"][COST], strict=True
    ):
        assert held == math.ceil(2e5 / (rate * total / end))
        assert paid == pytest.approx(held * load["usd_per_hour"] / load["deployments"] / 360.0)
    low, high = load["deployments_interval"]
    assert low <= load["deployments"] <= high


def test_at_its_break_even_price_a_chip_serves_the_demand_for_as_much():
    asks: dict[str, Any] = {"demand": "30000/s", "peak_over_average": "2"}
    first, second = dse.whatif(space_of(), break_even=True, **asks).document["break_even"][:2]
    price = f"{second['break_even_usd_per_chip_hour']!r} USD/h"
    found = dse.whatif(space_of(), {f"chip.{second['chip']}.price": price}, **asks).document
    assert found["scenarios"][1][COST] == pytest.approx(first[COST], rel=1e-12)


def test_the_demand_says_its_chips_and_power():
    asks: dict[str, Any] = {
        "demand": "2B/day",
        "peak_over_average": "2",
        "equal": ("power", "chips"),
    }
    document = dse.whatif(space_of(), **asks).document
    winner, load = document["winner"], document["winner"]["at_average_load"]
    assert load["chips"] == load["deployments"] * winner["deployment"]["chips"]
    said = document["answer"][1]
    assert said.startswith("2B tokens/day, peak 2 times that, takes ")
    assert f"${load['usd_per_year']:,.0f} a year" in said
    assert document["equal_chips"][0]["level"] == load["chips"]
    assert document["equal_power"][0]["level"] == pytest.approx(load["meter_w"])
    assert any("dse fleet pay whole servers" in note for note in document["notes"])


def test_rates_in_words_are_read_again():
    for text in ("1B/day", "250M/day", "20000/s", "3.5T/day"):
        rate = read_rate(text)
        assert read_rate(rate_words(rate)) == pytest.approx(rate, rel=1e-3)
    assert demand_words(Demand(1e9 / DAY, 1.0)) == "1B tokens/day, steady"
    assert demand_words(Demand(None, 2.0)) == "a peak of 2 times the average"


@given(
    average=st.floats(1e-3, 1e7),
    peak=st.floats(1.0, 50.0),
    share=st.floats(0.0, 0.9),
    can=st.lists(st.floats(1e-2, 1e6), min_size=1, max_size=9),
)
def test_many_at_once_are_each_alone(average, peak, share, can):
    demand, rates = Demand(average, peak), np.array(can)
    rest = {"chips": 4.0, "usd_per_chip_hour": 3.0, "load_share": share}
    many = at_load(demand, tokens_per_s=rates, **rest, usd_per_million=(1.0, 2.0, 3.0))
    for i, rate in enumerate(can):
        one = at_load(demand, tokens_per_s=rate, **rest, usd_per_million=(1.0, 2.0, 3.0))
        assert many.as_json(i) == one.as_json()


@given(
    n=st.integers(1, 200),
    chips=st.integers(1, 144),
    server=st.sampled_from([1, 8, 72]),
    share=st.floats(0.0, 0.9),
    used=st.floats(0.05, 1.0),
)
def test_whole_servers_hold_the_deployments_and_no_server_more(
    n: int, chips: int, server: int, share: float, used: float
) -> None:
    demand = Demand(used * n * 100.0, 1.0 / used)
    found = at_load(
        demand,
        tokens_per_s=100.0,
        chips=chips,
        usd_per_chip_hour=2.0,
        load_share=share,
        usd_per_million=(1.0, 2.0, 3.0),
        server=server,
    )
    servers, room = 0, 0
    for _ in range(n):  # one after the other, over several servers only where one is too small
        if chips > server:
            room -= chips
            while room < 0:
                servers, room = servers + 1, room + server
        else:
            if room < chips:
                servers, room = servers + 1, server
            room -= chips
    assert found.chips == servers * server
    busy = used * n * chips / (servers * server)
    paid = servers * server * 2.0 * (1.0 - share + share * busy)
    assert found.usd_per_hour == pytest.approx(paid, rel=1e-9)
