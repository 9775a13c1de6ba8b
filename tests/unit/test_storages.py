"""The storages of a study: a journal file and databases, which several processes may share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import dse
from benchmarks import synthetic
from benchmarks.synthetic import CHIPS, SMALL_AXES, Axis, GridSpace, SyntheticProblem
from dse.errors import StorageError
from dse.pareto import non_dominated
from dse.problem.objective import pose
from dse.search.evaluator import SEARCH, Evaluator
from dse.search.record import Record, frozen
from dse.search.run import ENGINES, search
from dse.search.storage import in_words, open_storage, shown
from dse.search.survey import BLOCK, Survey, blocks, take


@pytest.fixture
def problem() -> SyntheticProblem:
    return SyntheticProblem(axes=SMALL_AXES)


@pytest.fixture(params=["journal", "sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "journal":
        return str(tmp_path / "journal.log")
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_records_of_two_processes_hold_each_point_once(problem: SyntheticProblem, location: str):
    batch = Evaluator(problem).evaluate(problem.space.unrank(np.arange(40)))
    one, two = (Record(problem, location, "study", {"seed": 1}) for _ in range(2))
    assert one.add(batch.take(np.arange(30)), "a") == 30
    assert two.add(batch.take(np.arange(20, 40)), "b") == 10
    assert one.add(batch, "c") == 0
    third = Record(problem, location, "study", {"seed": 1})
    assert (third.trials, third.duplicates) == (40, 0)
    read = third.load()
    assert read.stages == ("a",) * 30 + ("b",) * 10
    for name in ("ids", "index", "F", "G"):
        np.testing.assert_array_equal(getattr(read.batch, name), getattr(batch, name))


def test_of_two_samplers_that_draw_the_same_the_second_draws_anew(
    problem: SyntheticProblem, location: str
):
    """As two processes that begin at the same moment do."""
    records = [Record(problem, location, "study", {}) for _ in range(2)]
    nobody = np.array([], dtype=np.int64)
    for record in records:
        search(problem, "random", trials=300, record=record, others=lambda: nobody)
    stages = Record(problem, location, "study", {}).load().stages
    assert stages.count(SEARCH) > 450


def test_trials_written_in_bulk_are_those_that_optuna_writes(
    problem: SyntheticProblem, tmp_path: Path
):
    """Read by Optuna itself, which knows nothing of either short cut."""
    batch = Evaluator(problem).evaluate(problem.space.unrank(np.arange(25)))
    bulk = f"sqlite:///{tmp_path / 'bulk.db'}"
    journal = tmp_path / "journal.log"
    for location in (bulk, journal):
        Record(problem, location, "study", {}).add(batch, "sample")
    record = Record(problem, f"sqlite:///{tmp_path / 'plain.db'}", "study", {})
    plain = optuna.load_study(study_name="study", storage=record.location)
    plain.add_trials([frozen(row) for row in record._rows(batch, "sample")])
    expected = plain.get_trials()
    backend = JournalFileBackend(str(journal))
    for storage in (bulk, JournalStorage(backend)):
        found = optuna.load_study(study_name="study", storage=storage).get_trials()
        assert [trial.number for trial in found] == list(range(25))
        for trial, other in zip(found, expected, strict=True):
            assert trial.state == TrialState.COMPLETE
            assert trial.values == other.values
            assert trial.params == other.params
            assert trial.distributions == other.distributions
            assert trial.constraints == other.constraints
            assert trial.user_attrs == other.user_attrs


def test_a_line_cut_short_by_a_kill_is_dropped_before_the_next(
    problem: SyntheticProblem, tmp_path: Path
):
    path = tmp_path / "journal.log"
    batch = Evaluator(problem).evaluate(problem.space.unrank(np.arange(4)))
    running = Record(problem, path, "study", {})
    running.add(batch.take(np.arange(2)), "a")
    with path.open("ab") as file:
        file.write(b'{"op_code":4,"study_id":0,"val')
    running.add(batch, "b")
    assert Record(problem, path, "study", {}).load().stages == ("a", "a", "b", "b")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:s3cr%2Ft@host/db", "postgresql://me@host/db"),
        ("mysql+pymysql://me:s3cr%2Ft@host:3306/db", "mysql+pymysql://me@host:3306/db"),
        ("postgresql://host/db?user=me&password=s3cr%2Ft", "postgresql://host/db?user=me"),
    ],
)
def test_a_password_is_never_shown(url: str, says: str):
    assert shown(url) == says
    error = ValueError(f"could not connect to {url}: wrong s3cr/t (s3cr%2Ft)")
    text = in_words(url, "cannot be used as storage", error)
    assert "s3cr" not in text
    assert text.startswith(f"{says}: cannot be used as storage: could not connect")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host=h password=s3cret",
        "postgresql://me@h:1/db?options=-c%20password%3Ds3cret",
        "postgresql://me@h:1/db?Password=s3cret&passfile=s3cret",
    ],
)
def test_a_password_where_none_belongs_is_not_shown(url: str):
    assert "s3cret" not in shown(url)
    assert "s3cret" not in in_words(url, "failed", ValueError(f"no host in {url}"))


@pytest.mark.parametrize(
    "url",
    ["mysqll://me:s3cret@host/db", "://s3cret", "a://", "me:s3cret@host/db",
     "postgresql:/me:s3cret@host/db", "postgresql:me:s3cret@host"],
)  # fmt: skip
def test_what_is_no_database_is_refused_without_its_password(url: str):
    with pytest.raises(StorageError, match=r"cannot be used as storage.*postgresql://") as caught:
        open_storage(url)
    assert "s3cret" not in str(caught.value)


def test_a_missing_driver_is_named(problem: SyntheticProblem, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pymysql", None)  # as if it was not installed
    with pytest.raises(StorageError, match=r"no driver for mysql is installed; pip install"):
        Record(problem, "mysql://me:s3cret@127.0.0.1:1/db", "study", {})


# The sample that stands for the space in the study of record.


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
    result = search(problem, engine, record=record, survey=True, trials=100)
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
    result = search(problem, "random", record=record, survey=True, trials=60)
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
