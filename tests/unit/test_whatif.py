"""What-if questions: closed forms, finite differences of full reruns, brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import dse
from dse.catalog import load_catalog, with_own_chips
from dse.errors import InputError, NothingFeasible
from dse.problem.demanded import TOTAL as COST
from dse.problem.objective import pose
from dse.questions.whatif import solve as solving
from dse.questions.whatif.inputs import change_to, changes_of, inputs_of, scenarios_of, sweep_of
from dse.questions.whatif.moves import STEP, elasticities, elasticity, scenario, shadow_prices
from dse.questions.whatif.solve import Stand, all_points, searched, solve, turning
from dse.schema.derive import derive
from dse.schema.study import load_study
from dse.search.run import search
from tests.helpers_whatif import PAIR, SPACE, asked_of, changed, pair

__all__ = ["pair"]

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


@pytest.fixture(scope="module")
def one_chip(tmp_path_factory: pytest.TempPathFactory):
    """The sensitivities of the space with one chip."""
    text = SPACE.format(**{**PAIR, "chips": "h100_sxm"})
    asked = asked_of(tmp_path_factory.mktemp("one"), text)
    return elasticities(Stand(asked, all_points(asked)))


def after(asked, points, changes: dict[str, str]):
    """The row of a scenario."""
    made = changes_of(changes, inputs_of(asked))
    return scenario(Stand(asked, points), "after", made).facts


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
    row = after(asked, points, {"chip.all.price": "2x"})
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
    for name, to in {
        "workload.prompt_tokens": "3x",
        "chip.all.memory_bandwidth": "0.3x",
        "limit.tpot_s": "9ms",
    }.items():
        row = after(asked, points, {name: to})
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
    assert (loose["gain"], loose["worth_usd_per_chip_hour"], loose["binds"]) == (0.0, 0.0, False)

    asked = asked_of(tmp_path, TIGHT)
    points = all_points(asked)
    before = solve(asked.problem, points, COST)
    tight = shadow_prices(Stand(asked, points))[0]
    assert tight["binds"]
    # At that much more per hour the larger chip costs as much as the one there is.
    price = float(asked.problem.machines.usd_per_chip_hour[0])
    problem = changed(
        asked,
        f"chip.h100_sxm.memory_capacity={tight['after'] / 1e9!r} GB",
        f"chip.h100_sxm.price={price + tight['worth_usd_per_chip_hour']!r} USD/h",
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chip.h100_sxm.prize=2x", "unknown input 'chip.h100_sxm.prize'.*chip.h100_sxm.price"),
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
        sweep_of(text, inputs_of(pair[0]))


def test_scenarios_of_a_file_name_their_line(pair, tmp_path: Path):
    file, known = tmp_path / "s.yaml", inputs_of(pair[0])
    file.write_text("scenarios:\n  dear: {chip.all.price: 2x}\n  slow:\n    limit.tpot_s: 40 ms\n")
    assert list(scenarios_of(str(file), known)) == ["dear", "slow"]
    file.write_text("scenarios:\n  dear:\n    chip.all.prise: 2x\n")
    with pytest.raises(InputError, match=r"s.yaml:3: .*unknown input 'chip.all.prise'"):
        scenarios_of(str(file), known)
    file.write_text("scenarios: {}\n")
    with pytest.raises(InputError, match="no scenario"):
        scenarios_of(str(file), known)


def test_a_space_too_large_to_enumerate_is_searched_from_the_same_seed(pair, monkeypatch):
    asked, points, before = pair
    monkeypatch.setattr(solving, "ENUMERATE", 10)
    found = all_points(replace(asked, engine="pareto-local", seed=3))
    assert not found.enumerated
    assert "too large to enumerate: pareto-local" in found.how
    assert np.isin(found.ids, points.ids).all()
    problem = changed(asked, "chip.all.price=2x")
    more = searched(problem, found, 3)
    assert more.evaluations > found.evaluations
    assert solve(problem, more, COST).value == pytest.approx(2 * before.value)


def test_nothing_feasible_says_what_is_in_the_way(pair):
    asked, points, _ = pair
    row = after(asked, points, {"limit.tpot_s": "100us"})
    assert row["winner"] is None
    assert "tpot_s <= 100 us" in row["infeasible_because"]
    with pytest.raises(NothingFeasible, match="tpot_s"):
        _ = Stand(replace(asked, problem=changed(asked, "limit.tpot_s=100us")), points).winner


def test_the_document_answers_every_question():
    space = yaml.safe_load(SPACE.format(**PAIR))
    document = dse.whatif(
        space, sensitivities=True, break_even=True, equal=("latency", "chips")
    ).document
    assert document["enumerated"]
    assert [row["kind"] for row in document["equal"]] == ["latency", "chips"]
    assert document["shadow_prices"][1]["input"] == "limit.ttft_s"
    changed_price = dse.whatif(space, {"chip.mi300x.price": "0.3x"}).document
    assert changed_price["scenarios"][0]["winner"]["chip"] == "mi300x"


def test_bisection_ends_where_a_condition_turns_from_either_side():
    assert turning(lambda x: x * x >= 2.0, 0.0, 2.0, 1e-12) == pytest.approx(math.sqrt(2.0))
    assert turning(lambda x: x * x <= 2.0, 2.0, 0.0, 1e-12) == pytest.approx(math.sqrt(2.0))
    assert turning(lambda x: True, 1.0, 2.0, 0.5) == 1.5


def test_elasticity_of_a_power_law_is_its_exponent():
    for power in (-2.0, 0.0, 0.5, 3.0):
        low, high = ((1.0 + h) ** power for h in (-STEP, STEP))
        assert elasticity(low, high) == pytest.approx(power, abs=1e-12)
    assert elasticity(None, 1.0) is None
    assert elasticity(0.99**-2, 1.0, 0.99, 1.0) == pytest.approx(-2.0, abs=1e-12)  # at a bound


def test_a_change_to_a_value_keeps_it(pair):
    one = inputs_of(pair[0])["chip.h100_sxm.memory_bandwidth"]
    assert change_to(one, "5 TB/s").after == 5e12
    assert change_to(one, "+10%").after == pytest.approx(1.1 * one.now)
