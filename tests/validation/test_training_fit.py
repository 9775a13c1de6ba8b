"""The fit of the training stacks: what it wrote, how far it holds, and its parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from dse.accuracy import validate as measurements
from dse.accuracy.fits import (
    CONSTANTS,
    TrainingProblem,
    cross_validate_training,
    group_weights,
    moved_stacks,
    one_row_a_run,
)
from dse.accuracy.scores import measures
from dse.accuracy.training_rows import runs_of, with_training
from dse.accuracy.validate import TRAINING, covered, ready
from dse.catalog import MEASUREMENTS
from dse.data import hardware_dir
from dse.physics.training.evaluate import training_interval, training_spread
from dse.schema.training import training_stack, training_stacks
from dse.space.candidates import Floats
from tools.fits import training

PATH = hardware_dir() / MEASUREMENTS / TRAINING
MAIN = "tokens_per_s_per_chip"


@pytest.fixture(scope="module")
def problem() -> TrainingProblem:
    return training.posed(PATH)


@pytest.fixture(scope="module")
def moves(problem: TrainingProblem) -> Floats:
    return problem.fit()


@pytest.fixture(scope="module")
def held(problem: TrainingProblem, moves: Floats) -> Mapping[str, Floats]:
    return problem.held_out(start=moves)


def error(problem: TrainingProblem, numbers: Floats) -> float:
    rows = covered(ready(with_training(problem.table, problem.readout, numbers)))
    rows = rows[(rows["metric"] == MAIN) & (rows["serving"] == "pretrain")]
    return measures(rows)["group_median_error"]


def test_the_shipped_constants_are_those_of_the_fit(
    problem: TrainingProblem, moves: Floats
) -> None:
    for name, constants in training.constants_of(problem, moves).items():
        stack = training_stack(name)
        for constant, value in constants.items():
            assert getattr(stack, constant) == pytest.approx(value, rel=0.02), (name, constant)
            assert stack.kinds[constant] == "fitted"


def test_held_out_errors_stay_where_they_were(
    problem: TrainingProblem, held: Mapping[str, Floats]
) -> None:
    """The target is 12% without the row's group; without its chip or model nothing is promised."""
    assert error(problem, held["group"]) < 0.12
    assert error(problem, held["chip"]) < 0.14
    assert error(problem, held["model"]) < 0.18


def test_shipped_intervals_hold_as_many_rows_as_they_say(problem: TrainingProblem) -> None:
    answer = measurements.predict(problem.table)
    rows = covered(answer)[lambda table: table["metric"] == MAIN]
    inside = (rows["predicted_low"] <= rows["value"]) & (rows["value"] <= rows["predicted_high"])
    assert 0.75 < inside.mean() < 0.95
    assert len(covered(answer)) >= 0.95 * len(answer)


def test_what_stacks_share_moves_each_of_them_alike() -> None:
    stacks, nothing = training_stacks(), np.zeros(len(CONSTANTS))
    still = moved_stacks(stacks, nothing)
    for k, one in enumerate(CONSTANTS):
        if not one.shared:
            continue
        moves = nothing.copy()
        moves[k] = 0.3
        moved = moved_stacks(stacks, moves)
        for name, stack in still.items():
            ratio = getattr(moved[name], one.constant) / getattr(stack, one.constant)
            factor = np.exp(0.3) if name in one.stacks else 1.0
            assert ratio == pytest.approx(factor), (one.constant, name)


def test_a_run_with_two_metrics_counts_once(problem: TrainingProblem) -> None:
    chosen = one_row_a_run(problem.table, problem.readout)
    runs = runs_of(problem.readout)[chosen]
    metrics = problem.table["metric"][chosen]
    assert len(runs) == len(set(zip(runs, problem.table["value"][chosen], strict=True)))
    assert (metrics == MAIN).sum() == (problem.table["metric"] == MAIN).sum()
    assert not metrics.isin(["chip_hours"]).any()


def test_groups_weigh_alike_from_five_rows_on() -> None:
    table = pd.DataFrame({"group": ["a"] * 50 + ["b"] * 5 + ["c"]})
    weight = group_weights(table, np.ones(56, dtype=bool))
    total = pd.Series(weight).groupby(table["group"]).sum()
    assert total["a"] == pytest.approx(total["b"]) == pytest.approx(5.0 * total["c"])


def test_intervals_of_rates_and_times_mirror_each_other() -> None:
    spread, kind = training_spread(), np.zeros(1, dtype=np.intp)
    low, high = training_interval(MAIN, np.array([2.0]), kind, spread)
    quickest, longest = training_interval("step_s", np.array([0.5]), kind, spread)
    assert (1.0 / high[0], 1.0 / low[0]) == pytest.approx((quickest[0], longest[0]))
    whole = training_interval("chip_hours", np.array([0.5]), kind, spread)
    assert whole[1][0] / whole[0][0] > longest[0] / quickest[0]


def test_rows_of_ones_own_enter_no_fit(
    problem: TrainingProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row ten times too fast is predicted as its shipped twin would be, and lies outside."""
    monkeypatch.setattr(TrainingProblem, "fit", lambda posed: np.zeros(len(CONSTANTS)))
    own = problem.table.iloc[:1].assign(value="60000")
    folds = cross_validate_training(own, problem.table.iloc[::12])
    for answer in folds.values():
        assert len(answer) == 1
        assert answer["predicted"][0] == pytest.approx(6288, rel=0.5)
        assert answer["predicted_high"][0] < 60000
