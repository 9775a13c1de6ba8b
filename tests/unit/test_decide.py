"""The design to start from and the decisions: closed forms on small fronts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.pareto import Scale
from dse.problem.describe import describe_metrics
from dse.problem.objective import pose
from dse.problem.protocol import Objective
from dse.schema.metrics import parse_constraint
from dse.schema.space_sections import Wish
from dse.schema.study import load_study
from dse.search.run import at_resolution, search
from dse.study import decide as decided
from dse.study.decide import Case, Drawn, Errors, decide, regrets

LOSS = Objective("predicted_loss", "minimize", False, 0.001)
COST = Objective("usd_per_million_total_tokens", "minimize", True, 0.005, True)
ALIKE = Wish("alike", (0.5, 0.5))
# Loss and cost of five designs along a front.
F = np.array([[1.0, 16.0], [1.2, 8.0], [1.3, 4.0], [1.6, 2.0], [2.0, 1.0]])


def case(draws: Drawn, wish: Wish = ALIKE) -> Case:
    scale = Scale.of(F, (False, True))
    return Case((LOSS, COST), F, scale, draws, np.stack([scale(one) for one in draws.F]), wish)


def test_without_errors_the_start_is_the_best_for_the_wish():
    start, family, found = decide((LOSS, COST), F, Drawn.certain(F), ALIKE)
    assert start == 2  # 0.3 + 0.5 of the ranges; its neighbours 0.95 and 0.85
    assert found["start"] == {"point": 3, "probability": None, "regret": 0.0, "kept": 1.0}
    assert family[start] == 0
    only_cost, *_ = decide((LOSS, COST), F, Drawn.certain(F), Wish("cost", (0.0, 1.0)))
    assert only_cost == 4


def test_regret_is_what_is_given_away_to_the_best_of_each_draw():
    dear = F * np.array([1.0, 1.0]) * np.where(np.arange(5) == 2, 8.0, 1.0)[:, None] ** [0, 1]
    both = Drawn(np.stack([F, dear]), np.ones((2, 5), dtype=bool))
    found = regrets(case(both))
    x = Scale.of(F, (False, True))(F).mean(axis=1)
    assert found[0] == pytest.approx(x - x[2])
    moved = x + np.where(np.arange(5) == 2, np.log(8.0) / np.log(16.0) / 2, 0.0)
    assert found[1] == pytest.approx(moved - moved.min())


def test_a_design_that_breaks_a_limit_in_most_draws_is_not_the_start():
    """The knee stands at a limit: half of the draws are beyond it."""
    kept = np.ones((10, 5), dtype=bool)
    kept[::2, 2] = False
    at_limit = Drawn(np.repeat(F[None], 10, axis=0), kept)
    start, _, found = decide((LOSS, COST), F, at_limit, ALIKE)
    assert start != 2
    assert found["start"]["kept"] == 1.0


def test_the_cheapest_within_a_limit():
    wish = Wish("", (0.0, 1.0), COST.metric, (parse_constraint("predicted_loss <= 1.3"),))
    start, _, found = decide((LOSS, COST), F, Drawn.certain(F), wish)
    assert (start, found["regret_in"], found["start"]["regret"]) == (2, "share", 0.0)
    given = regrets(case(Drawn.certain(F), wish))[0]
    assert given[:3] == pytest.approx([16 / 4 - 1, 8 / 4 - 1, 0.0])
    assert given[3:] == pytest.approx([2 / 4, 1 / 4])  # its own price, and then the best
    # With a loss that is off by 0.15 either way every other draw, a margin pays.
    off = np.stack([F + np.array([by, 0.0]) for by in (0.15, -0.15)])
    start, _, found = decide((LOSS, COST), F, Drawn(off, np.ones((2, 5), dtype=bool)), wish)
    assert start in (1, 2)
    nobody = replace(wish, limits=(parse_constraint("predicted_loss <= 0.5"),))
    assert decide((LOSS, COST), F, Drawn.certain(F), nobody)[0] == 4


def test_the_best_loss_within_a_price():
    limit = parse_constraint("usd_per_million_total_tokens <= 5 $/Mtoken")
    wish = Wish("", (1.0, 0.0), LOSS.metric, (limit,))
    start, _, found = decide((LOSS, COST), F, Drawn.certain(F), wish)
    assert (start, found["regret_in"]) == (2, "amount")
    assert [turn["objective"] for turn in found["turns"]] == [COST.metric] * len(found["turns"])


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_decisions_of_a_smooth_front(objectives: int):
    """On a part of a sphere no wish loses more by choosing among the decisions than the noise."""
    rng = np.random.default_rng(objectives)
    points = np.abs(rng.standard_normal((400, objectives)))
    F = 2.0 - points / np.linalg.norm(points, axis=1, keepdims=True)
    F = F if objectives > 1 else F[:1]
    each = tuple(Objective(f"m{j}", "minimize", False, 0.001) for j in range(objectives))
    off = F * np.exp(0.02 * rng.standard_normal((50, 1, objectives)))
    wish = Wish("", (1.0 / objectives,) * objectives)
    start, family, found = decide(each, F, Drawn(off, np.ones((50, len(F)), dtype=bool)), wish)
    count = len(found["families"])
    assert count == 1 if objectives == 1 else 3 <= count <= decided.MOST
    assert sorted(set(family.tolist())) == list(range(count))
    assert found["families"][0]["point"] == start + 1
    assert sum(one["designs"] for one in found["families"]) == len(F)
    assert sum(one["probability"] for one in found["families"]) == pytest.approx(1.0)
    for turn in found["turns"]:
        assert family[turn["point"] - 1] + 1 == turn["decision"]


def test_designs_within_their_errors_are_one_decision():
    """Errors as wide as the front leave one decision of all five designs."""
    rng = np.random.default_rng(0)
    off = F * np.exp(3.0 * rng.standard_normal((100, 5, 2)))
    _, family, found = decide((LOSS, COST), F, Drawn(off, np.ones((100, 5), dtype=bool)), ALIKE)
    assert [one["designs"] for one in found["families"]] == [5]
    assert not family.any()
    assert found["start"]["probability"] == 1.0


@pytest.fixture(scope="module")
def tiny():
    catalog = load_catalog()
    study = load_study("tiny", catalog)
    problem = pose(study, catalog)
    result = search(problem, "exhaustive")
    return problem, catalog, at_resolution(problem, result.front)


def intervals(problem, index) -> list[dict[str, list[float]]]:
    metrics, names = problem.metrics(index), tuple(one.metric for one in problem.objectives)
    every = (describe_metrics(metrics, i, problem.limits, names) for i in range(len(index)))
    return [one["intervals"] for one in every]


def test_errors_of_a_study(tiny):
    """Every draw moves loss, price and time; on one chip and deployment alike."""
    problem, catalog, front = tiny
    known = intervals(problem, front.index)
    found = Errors.of(problem, catalog, front.index, known).drawn(0)
    again = Errors.of(problem, catalog, front.index, known).drawn(0)
    assert np.array_equal(found.F, again.F)
    names = [one.metric for one in problem.objectives]
    spread = np.log(found.F / front.F).std(axis=0)
    assert (spread[:, names.index("tpot_s")] > 0.02).all()
    assert (spread[:, names.index("usd_per_million_total_tokens")] > 0.05).all()
    loss = found.F[:, :, names.index("predicted_loss")]
    low, high = np.quantile(loss, [0.1, 0.9], axis=0)
    ends = known[0]["predicted_loss"]
    assert (low[0], high[0]) == pytest.approx(ends, abs=0.35 * (ends[1] - ends[0]))


def test_a_limit_is_kept_in_most_draws_far_from_it_and_in_half_at_it(tiny):
    problem, catalog, front = tiny
    tpot = problem.metrics(front.index).values["tpot_s"]
    middle = float(np.sort(tpot)[len(tpot) // 2])
    limited = replace(problem, limits=(parse_constraint(f"tpot_s <= {middle * 1e3!r} ms"),))
    known = intervals(limited, front.index)
    kept = Errors.of(limited, catalog, front.index, known).drawn(0).kept.mean(axis=0)
    assert (kept[tpot < 0.3 * middle] > 0.99).all()
    assert (kept[tpot > 3.0 * middle] < 0.01).all()
    assert 0.3 < kept[np.argmin(np.abs(tpot - middle))] < 0.7
