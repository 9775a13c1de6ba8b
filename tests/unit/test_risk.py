"""Robustness and the value of a measurement: closed forms of normal errors, and laws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dse.catalog import load_catalog
from dse.economics.prices import ASSUMED, evidence, price_spreads
from dse.pareto import Scale, non_dominated
from dse.physics.intervals import COMMON, kin_of
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.metrics import Limit
from dse.schema.prices import PriceRow, PriceTable
from dse.schema.study import load_study, resolve_space
from dse.search.parallel import HERE
from dse.study import decide
from dse.study.choices import (
    P90,
    Choice,
    Choices,
    Moved,
    draw,
    judge,
    measure_next,
    outcomes,
    robustness,
)
from dse.study.decide import front_probability
from dse.study.laws import compare_laws
from tests.helpers_spaces import space

N = 20_000


def moved(values, up: float = 0.0, down: float | None = None) -> Moved:
    value = np.atleast_1d(np.asarray(values, dtype=float))
    ones = np.ones_like(value)
    return Moved(value, up * ones, (up if down is None else down) * ones)


def choice(
    name: str, cost, sd: float = 0.0, *, held: tuple[tuple[Limit, Moved], ...] = (), rate=1.0
) -> Choice:
    """A chip whose cost has a log-normal error of standard deviation `sd`."""
    price = moved(cost, sd * P90)
    return Choice(name, price, held, np.full(len(price.value), rate), "fitted", {"number": 0})


def uncertain(
    *items: Choice,
    prices: tuple[float, ...] | None = None,
    shared: float = 0.5,
    demand: tuple[float, float] | None = None,
    kin: tuple[str, ...] = (),
) -> Choices:
    sd = np.zeros(len(items)) if prices is None else np.array(prices)
    kin = kin or tuple(item.chip for item in items)  # each errs for itself
    return Choices("usd_per_million_total_tokens", items, {}, 0, shared, sd, kin, demand)


def wrong_after(measurement) -> float:
    return measurement["chance_wrong_now"] - measurement["chance_saved"]


@pytest.mark.parametrize(
    ("gap", "a", "b", "shared"), [(0.1, 0.2, 0.1, 0.0), (0.3, 0.2, 0.2, 0.6), (0.0, 0.1, 0.3, 1.0)]
)
def test_of_two_normal_choices_the_chance_of_the_first_is_phi(gap, a, b, shared) -> None:
    """ln cost differs by N(gap, a^2 + b^2), whatever part of it a chip's configurations share."""
    case = uncertain(choice("a", 1.0, a), choice("b", math.exp(gap), b), shared=shared)
    found, _, error = robustness(case, draw(case, N, 3))
    expected = norm.cdf(gap / math.hypot(a, b))
    assert found["chance_first"][0] == pytest.approx(expected, abs=4.0 * 0.5 / math.sqrt(N))
    assert found["chance_first"].sum() == pytest.approx(1.0)
    assert error == pytest.approx(math.sqrt(expected * (1 - expected) / N), 0.1)


def test_errors_and_prices_add_their_variances() -> None:
    case = uncertain(choice("a", 1.0, 0.15), choice("b", 1.1), prices=(0.2, 0.1))
    found, *_ = robustness(case, draw(case, N, 0))
    sd = math.sqrt(0.15**2 + 0.2**2 + 0.1**2)
    assert found["chance_first"][0] == pytest.approx(norm.cdf(math.log(1.1) / sd), abs=0.015)


def test_expected_regret_of_two_log_normal_choices_is_that_of_a_call_option() -> None:
    """E max(X - 1, 0) with ln X normal (Black and Scholes, 1973): a costs X, b costs 1."""
    sd, mu = 0.3, math.log(1.05)
    case = uncertain(choice("a", 1.05, sd), choice("b", 1.0))
    found, *_ = robustness(case, draw(case, N, 1))
    call = math.exp(mu + sd**2 / 2) * norm.cdf((mu + sd**2) / sd) - norm.cdf(mu / sd)
    assert found["expected_regret"][0] == pytest.approx(call, rel=0.05)


def test_nothing_uncertain_leaves_no_chance_and_no_value_of_a_measurement() -> None:
    case = uncertain(choice("a", 1.0), choice("b", 1.2))
    draws = draw(case, 1_000, 0)
    found, *_ = robustness(case, draws)
    assert found["chance_first"].tolist() == [1.0, 0.0]
    assert found["expected_regret"] == pytest.approx([0.0, 0.2])
    assert found["worst_regret_at_ends"] == pytest.approx([0.0, 0.2])
    assert all(one["chance_saved"] == 0.0 for one in measure_next(case, draws, found))


def test_a_perfect_measurement_of_all_that_is_unknown_leaves_no_wrong_choice() -> None:
    """Only a is uncertain: after measuring it, a choice is wrong within one cell at most."""
    case = uncertain(choice("a", 1.0, 0.2), choice("b", 1.1))
    draws = draw(case, N, 0)
    best = measure_next(case, draws, robustness(case, draws)[0])[0]
    assert (best["what"], best["i"]) == ("serving", 0)
    now = norm.cdf(-math.log(1.1) / 0.2)
    assert best["chance_wrong_now"] == pytest.approx(now, abs=0.02)
    assert wrong_after(best) < 0.05 * 1.2
    left = best["expected_regret_now"] - best["expected_regret_saved"]
    assert left < 0.02 * best["expected_regret_now"] + 1e-3


def test_the_value_of_one_of_two_measurements_is_that_of_the_normal_integral() -> None:
    """After learning a's error m, a is wrong with Phi(-(gap - a m) / b) or right with 1 less it."""
    gap, a, b = 0.1, 0.25, 0.15
    case = uncertain(choice("a", 1.0, a), choice("b", math.exp(gap), b))
    draws = draw(case, N, 5)
    found = {one["i"]: one for one in measure_next(case, draws, robustness(case, draws)[0])}
    m = np.linspace(-6, 6, 4001)
    weight = norm.pdf(m) * (m[1] - m[0])
    for i, own, other in ((0, a, b), (1, b, a)):
        expected = (weight * norm.cdf(-np.abs(gap - own * m) / other)).sum()
        assert wrong_after(found[i]) == pytest.approx(expected, abs=0.015)
    assert found[0]["chance_saved"] > found[1]["chance_saved"]  # the less certain one tells more


@settings(max_examples=25, deadline=None)
@given(
    costs=st.lists(st.floats(0.5, 2.0), min_size=2, max_size=4),
    sd=st.floats(0.0, 0.5),
    price=st.floats(0.0, 0.5),
    seed=st.integers(0, 99),
)
def test_learning_never_hurts_and_chances_are_chances(costs, sd, price, seed) -> None:
    items = [choice(f"c{i}", cost, sd) for i, cost in enumerate(costs)]
    case = uncertain(*items, prices=(price,) * len(items))
    draws = draw(case, 1_000, seed)
    found, none, _ = robustness(case, draws)
    assert (found["expected_regret"] >= 0.0).all()
    assert found["chance_first"].sum() + none == pytest.approx(1.0)
    for one in measure_next(case, draws, found):
        assert one["chance_saved"] >= -1e-12
        assert one["expected_regret_saved"] >= -1e-12


def test_the_same_seed_draws_the_same_and_more_choices_do_not_move_it() -> None:
    two = uncertain(choice("a", 1.0, 0.2), choice("b", 1.1, 0.2))
    three = uncertain(*two.items, choice("c", 9.0, 0.2))
    a, again, more, other = (
        outcomes(case, draw(case, 1_500, seed))[0]
        for case, seed in ((two, 7), (two, 7), (three, 7), (two, 8))
    )
    for i in range(2):
        np.testing.assert_array_equal(a[:, i], again[:, i])
        np.testing.assert_array_equal(a[:, i], more[:, i])
        assert (a[:, i] != other[:, i]).any()


def kinned(kin: tuple[str, ...], shared: float = 0.6, sd: float = 0.3) -> Choices:
    """Three chips, the second a tenth dearer than the first, the third far off."""
    items = [choice(name, cost, sd) for name, cost in (("a", 1.0), ("b", 1.1), ("c", 50.0))]
    return uncertain(*items, shared=shared, kin=kin)


def test_kin_err_together_and_others_do_not() -> None:
    case = kinned(("x", "x", "y"))
    draws = draw(case, 4 * N, 0)
    error = draws.error
    np.testing.assert_allclose(error.std(axis=0), 1.0, atol=0.02)
    expected = np.eye(3)
    expected[0, 1] = expected[1, 0] = 0.6 * COMMON
    np.testing.assert_allclose(np.corrcoef(error.T), expected, atol=0.02)


@pytest.mark.parametrize("shared", [0.3, 1.0])
def test_of_two_kin_the_cheaper_stays_so_more_often(shared: float) -> None:
    """ln cost differs with variance 2 sd^2 (1 - shared COMMON); of strangers, with 2 sd^2."""
    chance = {}
    for name, kin in (("kin", ("x", "x", "y")), ("strangers", ("x", "y", "z"))):
        case = kinned(kin, shared)
        chance[name] = robustness(case, draw(case, N, 3))[0]["chance_first"][0]
    for name, part in (("kin", shared * COMMON), ("strangers", 0.0)):
        sd = 0.3 * math.sqrt(2.0 * (1.0 - part))
        assert chance[name] == pytest.approx(norm.cdf(math.log(1.1) / sd), abs=0.012)
    assert chance["kin"] > chance["strangers"]


def test_measuring_one_of_two_kin_tells_of_the_other() -> None:
    """a's error m leaves b at N(rho m, 1 - rho^2): a is then wrong by the normal integral."""
    case = kinned(("x", "x", "y"), shared=0.8, sd=0.25)
    draws = draw(case, N, 5)
    found = {one["i"]: one for one in measure_next(case, draws, robustness(case, draws)[0])}
    rho, m = 0.8 * COMMON, np.linspace(-6, 6, 4001)
    weight = norm.pdf(m) * (m[1] - m[0])
    gap = math.log(1.1) - 0.25 * m * (1.0 - rho)
    expected = (weight * norm.cdf(-np.abs(gap) / (0.25 * math.sqrt(1.0 - rho**2)))).sum()
    assert wrong_after(found[0]) == pytest.approx(expected, abs=0.015)


def test_kin_are_chips_whose_laws_have_one_origin() -> None:
    catalog = load_catalog()
    kin = {name: kin_of(catalog, chip) for name, chip in catalog.chips.items()}
    assert kin["gb200_nvl72"] == kin["gb300_nvl72"] == kin["b200_sxm"] == "blackwell"
    assert kin["gh200_141"] == kin["h200_sxm"] == kin["h100_sxm"]
    assert kin["rtx4090"] == kin["l40s"]  # lent
    assert kin["mi300x"] == kin["mi355x"] != kin["b200_sxm"]
    assert kin["tpu_v6e"] != kin["mi300x"]


def test_a_limit_is_kept_by_the_next_deployment_or_missed() -> None:
    """Two loads: the cheap one misses the limit on slow machines, and the dear one takes over."""
    limit = (Limit("tpot_s", "<=", 1.0, ""), moved([1.0, 0.5], 0.3 * P90))
    case = uncertain(choice("a", [1.0, 2.0], held=(limit,)), choice("b", 9.0))
    draws = draw(case, N, 0)
    price, _, row = outcomes(case, draws)
    slow = draws.error[:, 0]
    beyond = slow > math.log(2.0) / 0.3
    np.testing.assert_array_equal(row[~beyond, 0], (slow > 0.0)[~beyond] * 1)
    np.testing.assert_array_equal(np.isinf(price[:, 0]), beyond)
    found, *_ = robustness(case, draws)
    assert found["chance_misses_limits"][0] == pytest.approx(
        norm.sf(math.log(2.0) / 0.3), abs=0.005
    )


def test_a_choice_that_misses_costs_its_own_price_and_the_best() -> None:
    first, regret = judge(np.array([[np.inf, 2.0], [1.0, 2.0]]), np.array([[1.0, 2.0], [1.0, 2.0]]))
    assert first.tolist() == [1, 0]
    np.testing.assert_allclose(regret, [[0.5, 0.0], [0.0, 1.0]])
    first, regret = judge(np.full((1, 2), np.inf), np.ones((1, 2)))
    assert first.tolist() == [-1]
    assert (regret == 0.0).all()


def test_demand_is_served_by_whole_instances() -> None:
    """2.5 instances' worth of demand pays for three: 3 / 2.5 of the price at full load."""
    case = uncertain(choice("a", 1.0, rate=4.0), choice("b", 1.1, rate=1.0), demand=(10.0, 10.0))
    found, *_ = robustness(case, draw(case, 1_000, 0))
    assert found["usd_per_million_total_tokens"] == pytest.approx([1.2, 1.1])
    assert found["chance_first"].tolist() == [0.0, 1.0]


def row(chip: str, usd: float) -> PriceRow:
    return PriceRow(
        chip=chip,
        basis="on_demand",
        usd_per_chip_hour=usd,
        provider="p",
        date="2026-11",
        source="s",
    )


def ends(row: dict) -> tuple[float, float]:
    return row["usd_per_chip_hour.low"], row["usd_per_chip_hour.high"]


def test_price_intervals_are_of_the_price_and_the_quotes_that_the_evidence_names() -> None:
    catalog = load_catalog()
    for basis in ("rental_3yr", "on_demand", "market_index"):
        chips = sorted(catalog.prices.select(basis))
        for one in price_spreads(catalog.prices, basis, chips):
            known = evidence(catalog, one["chip"], basis)
            assert one["usd_per_chip_hour"] == known["usd_per_chip_hour"]
            assert one["published_rows"] == known["quotes"]
            assert (one["kind"] == "published") == (known["quotes"] >= 3)


def test_price_intervals_come_from_the_rows_of_the_chip_or_of_the_others() -> None:
    """b's rows lie a factor e apart on either side of the middle: a deviation of 1."""
    a = [row("a", 2.0 * math.exp(k * 0.1)) for k in (-1, 0, 1)]
    b = [row("b", math.exp(k)) for k in (-1.0, 0.0, 1.0)]
    table = PriceTable("prices.csv", (*a, *b, row("c", 4.0)))
    own, wide, none = price_spreads(table, "on_demand", ["a", "b", "c"])
    assert (own["sd"], own["kind"]) == (pytest.approx(0.1), "published")
    assert (wide["sd"], wide["kind"]) == (pytest.approx(1.0), "published")
    assert (none["sd"], none["kind"]) == (pytest.approx(math.sqrt((0.01 + 1.0) / 2)), "pooled")
    alone = price_spreads(PriceTable("p", (row("c", 4.0),)), "on_demand", ["c"])[0]
    assert alone["kind"] == "assumed"
    assert ends(alone) == pytest.approx((4.0 / (1 + ASSUMED), 4.0 * (1 + ASSUMED)))
    given_ = price_spreads(table, "on_demand", ["a"], 0.5)[0]
    assert ends(given_) == pytest.approx((2.0 / 1.5, 3.0))


# The probability that a point is on the front.


@pytest.fixture(scope="module")
def problem() -> PhysicsProblem:
    return pose(load_study(resolve_space("tiny")), load_catalog())


@pytest.fixture(scope="module")
def front(problem: PhysicsProblem) -> np.ndarray:
    index = problem.space.unrank(np.arange(problem.space.size, dtype=np.int64))
    found = problem.evaluate(index)
    feasible = (found.G <= 0.0).all(axis=1)
    index, F = index[feasible], found.F[feasible]
    return index[non_dominated(F)]


def sure(problem: PhysicsProblem, shared: float, spread: float) -> PhysicsProblem:
    ends = {name: np.tile([1 / spread, spread], (3, 1)) for name in problem.machines.spread}
    return replace(problem, machines=replace(problem.machines, spread=ends, shared_error=shared))


def test_without_errors_the_front_is_the_front(problem, front) -> None:
    assert (front_probability(sure(problem, 0.5, 1.0), front, 0) == 1.0).all()


def test_an_error_that_points_share_keeps_their_order(problem, front) -> None:
    shared, own = (front_probability(sure(problem, s, 1.5), front, 0).mean() for s in (1.0, 0.0))
    assert shared > own


def test_wider_intervals_make_the_front_less_sure(problem, front) -> None:
    means = [front_probability(sure(problem, 0.5, s), front, 0).mean() for s in (1.01, 1.2, 2.0)]
    assert means[0] > means[1] > means[2]


def test_the_same_seed_gives_the_same_numbers(problem, front) -> None:
    a, b = (front_probability(problem, front, 7) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert ((a >= 0.0) & (a <= 1.0)).all()


def test_the_regret_without_errors_is_that_of_the_scaled_front(problem, front) -> None:
    """The mean of the objectives of a design, scaled over the front, less the least."""
    items: list[dict] = [{"names": []} for _ in front]
    how = {"engine": "exhaustive", "seed": 0, "executor": HERE, "progress": lambda *_: None}
    compare_laws(sure(problem, 0.5, 1.0), front, items, {}, **how)
    F = problem.evaluate(front).F
    scaled = Scale.of(F, tuple(one.log for one in problem.objectives))(F).mean(axis=1)
    found = [item["laws"]["regret"]["leverage"] for item in items]
    assert found == pytest.approx((scaled - scaled.min()).tolist(), abs=1e-12)


@pytest.fixture(scope="module")
def two() -> PhysicsProblem:
    """One deployment on either of two chips, all else held."""
    chips = {"chip": ["h100_sxm", "h200_sxm"], "concurrency": 16}
    cost = {"usd_per_million_total_tokens": "minimize"}
    return pose(load_study(space(chips, objectives=cost)), load_catalog())


def related(problem: PhysicsProblem, *kin: str) -> PhysicsProblem:
    return replace(problem, machines=replace(problem.machines, kin=kin))


@pytest.mark.parametrize(("shared", "kin"), [(0.6, "xx"), (1.0, "xx"), (0.6, "xy"), (1.0, "xy")])
def test_of_two_kin_the_better_stays_so_more_often(two, shared, kin, monkeypatch) -> None:
    """ln cost differs with variance 2 sd^2 (1 - shared COMMON); of strangers, with 2 sd^2."""
    monkeypatch.setattr(decide, "FRONT_DRAWS", 8_000)
    index = two.space.unrank(np.arange(2, dtype=np.int64))
    first, second = np.log(two.evaluate(index).F[:, 0])
    sd = abs(second - first)
    problem = related(sure(two, shared, math.exp(sd * decide.P90)), *kin)
    found = front_probability(problem, index, 3)
    part = shared * COMMON if kin == "xx" else 0.0
    expected = norm.cdf((second - first) / (sd * math.sqrt(2.0 * (1.0 - part))))
    assert found == pytest.approx([expected, 1.0 - expected], abs=0.02)  # 4 standard errors


def test_the_chips_of_a_study_know_their_kin(problem, two, front) -> None:
    assert len(set(two.machines.kin)) == 1
    strangers = related(problem, "x", "y")
    a, b, c = (front_probability(one, front, 7) for one in (problem, problem, strangers))
    assert a.tobytes() == b.tobytes() != c.tobytes()
