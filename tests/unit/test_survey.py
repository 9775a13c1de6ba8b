"""The sample that stands for the space in the study of record, and what it says of the axes."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from benchmarks import synthetic
from benchmarks.synthetic import CHIPS, SMALL_AXES, Axis, GridSpace, SyntheticProblem
from dse.pareto import non_dominated
from dse.problem.objective import pose
from dse.problem.protocol import Evaluation
from dse.search.evaluator import Batch, Budget
from dse.search.record import Record
from dse.search.run import ENGINES, search
from dse.search.survey import BLOCK, LEAST, Survey, blocks, importances, take

WIDE: tuple[Axis, ...] = tuple((f"x{k}", tuple(range(3 + 2 * k)), True, False) for k in range(9))


def whole(problem, seed=0) -> Survey:
    found = take(problem, ENGINES["exhaustive"], seed, problem.space.size)
    assert found is not None
    return found


def opened(problem, folder):
    return Record(problem, folder / "journal.log", "study", {})


# drawing


def test_every_value_of_an_axis_is_drawn_equally_often():
    space = GridSpace(WIDE)
    for index in blocks(space, 0, 3 * BLOCK):
        assert len(index) == BLOCK
        for axis, count in enumerate(space.cardinalities[1:], start=1):
            often = np.bincount(index[:, axis], minlength=count)
            assert often.max() - often.min() <= 1


def test_no_point_is_drawn_twice_and_a_small_space_is_drawn_whole():
    space = GridSpace(SMALL_AXES)
    ids = np.concatenate([space.rank(index) for index in blocks(space, 0, 8 * BLOCK)])
    assert len(np.unique(ids)) == len(ids) > 6 * BLOCK
    few = GridSpace(tuple((a[0], a[1][:1], a[2], a[3]) for a in SMALL_AXES))
    (index,) = blocks(few, 0, 8 * BLOCK)
    assert sorted(few.rank(index).tolist()) == list(range(few.size))


def test_what_is_drawn_depends_on_the_axes_and_the_seed_alone(monkeypatch):
    problem = SyntheticProblem(prefill_s=0.02)
    first = whole(problem)
    monkeypatch.setattr(synthetic, "CHIPS", CHIPS * [1.0, 1.0, 1.0, 7.0] ** np.ones((4, 1)))
    assert not np.allclose(problem.evaluate(first.kept.index).F, first.kept.F)
    for other in (whole(problem), whole(SyntheticProblem(2, prefill_s=0.02))):
        np.testing.assert_array_equal(other.ids, first.ids)
        np.testing.assert_array_equal(other.kept.ids, first.kept.ids)
        np.testing.assert_array_equal(other.refused.ids, first.refused.ids)
    assert whole(problem, seed=1).ids.tolist() != first.ids.tolist()


@pytest.mark.parametrize("space", ["tiny", "quickstart", "deploy-deepseek-v3", "shape-for-nvl72"])
def test_of_a_shipped_space_every_value_of_every_axis_is_stored(space):
    problem = pose(dse.load_space(space), dse.load_catalog())
    engine = ENGINES["exhaustive" if problem.space.size < 3e6 else "pareto-local"]
    found = take(problem, engine, 0, engine.evaluations(problem.space.size))
    assert found is not None
    index = np.concatenate([found.kept.index, found.refused.index])
    assert len(index) == 2_000
    for axis, count in enumerate(problem.space.cardinalities):
        assert set(index[:, axis].tolist()) == set(range(int(count)))


# in a search


@pytest.mark.parametrize("engine", ["exhaustive", "pareto-local", "nsga2"])
def test_the_record_says_what_brought_each_design(tmp_path, engine):
    problem = SyntheticProblem(axes=SMALL_AXES, prefill_s=0.02)
    record = opened(problem, tmp_path)
    result = search(problem, engine, record=record, survey=True, budget=Budget(trials=100))
    stored, survey = record.load(), result.survey
    assert survey is not None
    many = len(survey.kept) + len(survey.refused)
    stages = ["sample"] * len(survey.kept) + ["refused"] * len(survey.refused)
    assert stored.stages[:many] == tuple(stages)
    np.testing.assert_array_equal(stored.batch.ids[: len(survey.kept)], survey.kept.ids)
    expected = {"front"} if engine == "exhaustive" else {"search", "front"}
    assert {"search"} & expected <= set(stored.stages[many:]) <= expected
    # No design of the record is better than the front that is reported.
    feasible = stored.batch.take(stored.batch.violation == 0)
    best = feasible.ids[non_dominated(feasible.F)]
    assert set(best.tolist()) <= set(result.front.ids.tolist()) <= set(feasible.ids.tolist())
    assert result.evaluations <= ENGINES[engine].evaluations(problem.space.size)


def test_an_enumeration_is_the_same_with_a_survey():
    problem = SyntheticProblem(axes=SMALL_AXES)
    one, two = (search(problem, "exhaustive", survey=survey) for survey in (False, True))
    np.testing.assert_array_equal(one.front.ids, two.front.ids)
    assert (one.evaluations, one.tallies) == (two.evaluations, two.tallies)


def test_the_trials_of_a_sampler_stand_for_themselves(tmp_path):
    problem, record = SyntheticProblem(axes=SMALL_AXES), None
    record = opened(problem, tmp_path)
    result = search(problem, "random", record=record, survey=True, budget=Budget(trials=60))
    assert result.survey is None
    assert set(record.load().stages) == {"search"}
    assert record.trials == result.evaluations == 60


def test_a_search_killed_in_its_survey_goes_on(tmp_path):
    problem = SyntheticProblem(axes=SMALL_AXES)
    expected = search(problem, "pareto-local", record=opened(problem, tmp_path / "a"), survey=True)
    survey = expected.survey
    assert survey is not None
    opened(problem, tmp_path / "b").add(survey.kept.take(np.arange(30)), "sample")
    record = opened(problem, tmp_path / "b")
    again = search(problem, "pareto-local", record=record, survey=True)
    np.testing.assert_array_equal(again.front.F, expected.front.F)
    one, two = (opened(problem, tmp_path / name).load() for name in "ab")
    np.testing.assert_array_equal(one.batch.ids, two.batch.ids)
    assert one.stages == two.stages


# importance


class Weighted(SyntheticProblem):
    """The objectives are weighted sums of positions on the axes, and everything is feasible."""

    def __init__(self, weights, axes=SMALL_AXES):
        super().__init__(objectives=len(weights), axes=axes)
        self._weights = [
            np.array([one.get(name, 0.0) for name in self.space.names]) for one in weights
        ]

    def evaluate(self, index):
        F = np.column_stack([index @ weights for weights in self._weights]).astype(float)
        return Evaluation(F, np.full((len(index), len(self.constraints)), -1.0))


def drawn(problem) -> Batch:
    return whole(problem).kept


def test_the_axis_that_decides_has_nearly_all_of_the_importance():
    problem = Weighted([{"concurrency": 1.0}, {"chip": 9.0, "hidden_size": 1.0}])
    first, second = importances(problem, drawn(problem)).values()
    assert first["concurrency"] > 0.9
    assert next(iter(second)) == "chip"
    assert second["chip"] > second["hidden_size"] > 5 * second["kv_dtype"]
    for shares in (first, second):
        assert sum(shares.values()) == pytest.approx(1.0)
        assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_an_axis_that_applies_to_some_designs_can_decide():
    problem = Weighted([{"sparse": -1.0, "num_experts": -5.0}, {"chip": 1.0}])
    found = importances(problem, drawn(problem))["predicted_loss"]
    assert found["sparse"] + found["num_experts"] > 0.9


def test_of_few_designs_nothing_is_said():
    problem = Weighted([{"concurrency": 1.0}, {"chip": 1.0}])
    batch = drawn(problem)
    assert importances(problem, batch.take(np.arange(LEAST - 1))) == {}
    assert importances(problem, batch.take(np.arange(LEAST))) != {}
    batch.G[:, 0] = 1.0
    assert importances(problem, batch) == {}
