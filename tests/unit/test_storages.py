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

from benchmarks.synthetic import SMALL_AXES, SyntheticProblem
from dse.errors import StorageError
from dse.search.evaluator import SEARCH, Budget, Evaluator
from dse.search.record import Record, frozen
from dse.search.run import search
from dse.search.storage import in_words, open_storage, shown


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
        search(problem, "random", budget=Budget(trials=300), record=record, others=lambda: nobody)
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
