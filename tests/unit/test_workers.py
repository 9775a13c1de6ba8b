"""Work units, who does which, and the storages that several processes share."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from benchmarks.synthetic import SMALL_AXES, SyntheticProblem
from dse.errors import StorageError
from dse.search import lock as lock_module
from dse.search import units as units_module
from dse.search.claims import Board
from dse.search.evaluator import Evaluator
from dse.search.lock import JournalLock, is_gone, machine, process
from dse.search.record import UNITS, Record, frozen
from dse.search.run import search
from dse.search.storage import in_words, open_storage, shown
from dse.search.units import Outcome, Union, Unit, divide, execute
from dse.search.workers import work


@pytest.fixture
def problem() -> SyntheticProblem:
    return SyntheticProblem(axes=SMALL_AXES)


@pytest.fixture
def short_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units_module, "UNIT_POINTS", 2_000)


def outcome(n: int = 3) -> Outcome:
    return Outcome(np.arange(n), 10, 5, (1, 2), (0, 1), (0.5, 7), 0.25)


# units


@given(st.integers(1, 10**9))
def test_ranges_cover_the_space_once(size: int):
    units = divide("exhaustive", size, 0).units
    assert [unit.first for unit in units] == [0, *(unit.last for unit in units[:-1])]
    assert units[-1].last == size
    assert all(unit.first < unit.last for unit in units)
    assert len(units) <= units_module.MOST_UNITS
    assert [unit.number for unit in units] == list(range(len(units)))


@given(st.integers(1, 5_000), st.integers(0, 5_000))
def test_more_trials_keep_the_whole_units(trials: int, more: int):
    before = divide("nsga2", 10**6, 0, trials).units
    after = divide("nsga2", 10**6, 0, trials + more).units
    assert sum(unit.trials or 0 for unit in before) == trials
    assert sum(unit.trials or 0 for unit in after) == trials + more
    assert after[: len(before) - 1] == before[:-1]


def test_restarts_differ_and_the_first_is_the_search_of_one_process(problem: SyntheticProblem):
    plan = divide("pareto-local", problem.space.size, 3)
    outcomes = [execute(problem, plan, unit) for unit in plan.units[:2]]
    assert outcomes[0].evaluations == search(problem, "pareto-local", seed=3).evaluations
    alone = search(problem, "pareto-local", seed=3).front.ids
    np.testing.assert_array_equal(outcomes[0].ids, np.sort(alone))
    again = execute(problem, plan, plan.units[1])
    np.testing.assert_array_equal(again.ids, outcomes[1].ids)


@pytest.mark.usefixtures("short_units")
def test_the_union_of_ranges_is_the_enumeration(problem: SyntheticProblem):
    plan = divide("exhaustive", problem.space.size, 0)
    assert len(plan.units) > 3
    union = Union(problem)
    for unit in reversed(plan.units):
        found = {unit: execute(problem, plan, unit)}
        union.add(found)
        union.add(found)  # a unit counts once
    result, expected = union.result(plan, {}), search(problem, "exhaustive")
    for name in ("ids", "index", "F", "G"):
        np.testing.assert_array_equal(getattr(result.front, name), getattr(expected.front, name))
    assert (result.evaluations, result.feasible) == (expected.evaluations, expected.feasible)
    assert result.tallies == expected.tallies
    assert union.whole(plan)


def test_restarts_that_add_up_to_the_space_have_not_seen_all_of_it(problem: SyntheticProblem):
    size = problem.space.size
    plan = divide("pareto-local", size, 0)
    union = Union(problem)
    quarter = replace(outcome(), evaluations=size // 4 + 1, violated=(0, 0, 0), only=(0, 0, 0))
    union.add(dict.fromkeys(plan.units, quarter))
    assert union.evaluations >= size
    assert not union.whole(plan)
    assert union.result(plan, {}).evaluations < size
    union.add({Unit(9, 0, size): replace(quarter, evaluations=size)})
    assert union.whole(plan)
    assert union.result(plan, {}).evaluations == size


def test_an_outcome_survives_json():
    for given_ in (outcome(0), outcome(5_001), replace(outcome(0), nearest=(np.inf, -1))):
        read = Outcome.of(json.loads(json.dumps(given_.attrs(), allow_nan=False)))
        np.testing.assert_array_equal(read.ids, given_.ids)
        none = np.zeros(0)
        assert repr(replace(read, ids=none)) == repr(replace(given_, ids=none))
        assert max(len(json.dumps(value)) for value in given_.attrs().values()) < 65_000


# claims


@pytest.fixture(params=["journal", "sqlite"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "journal":
        return str(tmp_path / "journal.log")
    return f"sqlite:///{tmp_path / 'study.db'}"


def boards(location: str, n: int, lease_s: float = 60.0) -> list[Board]:
    made = [Board(location, "study", lease_s) for _ in range(n)]
    for number, board in enumerate(made):
        board.worker = f"worker {number}"
    return made


def test_a_unit_is_claimed_once_and_completed_once(location: str):
    units = (Unit(0, 0, 5), Unit(1, 5, 9))
    one, two = boards(location, 2)
    first, second = one.claim(units), two.claim(units)
    assert first is not None
    assert second is not None
    assert (first.unit.number, second.unit.number) == (0, 1)
    assert one.claim(units) is None
    assert one.complete(first, outcome())
    assert not one.complete(first, outcome())
    assert list(two.done()) == [units[0]]
    two.give_up(second)
    taken = one.claim(units)
    assert taken is not None
    assert taken.unit == units[1]
    assert not two.complete(second, outcome())
    assert one.complete(taken, outcome())
    assert two.claim(units) is None
    assert two.counts() == {"workers": 1, "attempts_lost": 1}


def test_a_silent_worker_loses_its_unit_and_a_live_one_does_not(
    location: str, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr("dse.search.claims.time.monotonic", lambda: now[0])
    units = (Unit(0, 0, 5),)
    dead, other = boards(location, 2)
    claim = dead.claim(units)
    assert claim is not None
    assert other.claim(units) is None
    now[0] = 59.0
    dead._storage.set_trial_user_attr(claim.trial, "beat", 1)
    assert other.claim(units) is None
    now[0] = 118.0
    assert other.claim(units) is None
    now[0] = 121.0
    taken = other.claim(units)
    assert taken is not None
    assert not dead.complete(claim, outcome())
    assert other.complete(taken, outcome())
    assert len(other.done()) == 1


@pytest.mark.usefixtures("short_units")
def test_threads_that_share_a_study_do_each_unit_once(problem: SyntheticProblem, location: str):
    plan = divide("exhaustive", problem.space.size, 0)
    counts: list[int] = []

    def run(board: Board) -> None:
        counts.append(work(board, lambda: plan, lambda p, unit: execute(problem, p, unit)))

    threads = [threading.Thread(target=run, args=(board,)) for board in boards(location, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == len(plan.units)
    (last,) = boards(location, 1)
    union = Union(problem)
    union.add(last.done())
    assert union.evaluations == problem.space.size


def test_work_that_fails_frees_its_unit(location: str):
    plan = divide("exhaustive", 10, 0)
    board = boards(location, 1)[0]

    def fail(plan: object, unit: Unit) -> Outcome:
        raise MemoryError

    with pytest.raises(MemoryError):
        work(board, lambda: plan, fail)
    assert board.claim(plan.units) is not None


# storages


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


def test_the_units_of_a_study_go_with_it(problem: SyntheticProblem, location: str):
    Record(problem, location, "study", {})
    board = boards(location, 1)[0]
    claim = board.claim((Unit(0, 0, 1),))
    assert claim is not None
    board.complete(claim, outcome())
    Record(problem, location, "study", {}, fresh=True)
    names = {study.study_name for study in open_storage(location).get_all_studies()}
    assert "study" + UNITS not in names
    assert not boards(location, 1)[0].done()


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


@pytest.mark.parametrize("location", ["sqlite:////tmp/x.db", "mysql://h:1/db", "studies/a/j.log"])
def test_a_location_without_a_password_is_shown_as_it_is(location: str):
    error = ValueError(f"no {location}")
    assert in_words(location, "failed", error) == f"{location}: failed: no {location}"


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


@pytest.mark.skipif(os.name == "nt", reason="Windows does not say whether a process lives")
def test_a_lock_that_a_killed_process_left_is_taken_at_once(tmp_path: Path):
    """That of a living process, or of another machine, is not."""
    journal = tmp_path / "journal.log"
    journal.write_bytes(b"")
    code = (
        "import sys, os; from dse.search.lock import JournalLock; "
        "JournalLock(sys.argv[1]).acquire(); print(1, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(journal)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"1\n"
    locks = [JournalLock(str(journal)) for _ in range(4)]
    held: list[float] = []
    inside = threading.Lock()

    def hold(lock: JournalLock) -> None:
        lock.acquire()
        assert inside.acquire(blocking=False), "two hold it"
        held.append(time.monotonic())
        time.sleep(0.01)
        inside.release()
        lock.release()

    threads = [threading.Thread(target=hold, args=[lock]) for lock in locks]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert held == []  # its owner lives
    holder.kill()
    holder.communicate()
    since = time.monotonic()
    for thread in threads:
        thread.join()
    assert len(held) == len(locks)
    assert min(held) - since < 1.0
    path = tmp_path / "journal.log.lock"
    assert not path.exists()
    path.write_text("another machine\n1 1\n", encoding="utf-8")
    assert not is_gone("another machine", "1 1")
    assert is_gone(machine(), process(os.getpid()).partition(" ")[0] + " 1")


def is_taken(journal: Path, within_s: float) -> bool:
    """Whether a lock that is there is taken so soon. Removes it."""
    thread = threading.Thread(target=JournalLock(str(journal)).acquire, daemon=True)
    thread.start()
    thread.join(within_s)
    taken = not thread.is_alive()
    Path(f"{journal}.lock").unlink(missing_ok=True)
    thread.join()  # who still waits has it now
    Path(f"{journal}.lock").unlink(missing_ok=True)
    return taken


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal, locked by a process of another machine."""
    monkeypatch.setattr(lock_module, "GRACE_S", 0.2)
    journal = tmp_path / "journal.log"
    journal.write_bytes(b"")
    Path(f"{journal}.lock").write_text("another machine\n1 1\n", encoding="utf-8")
    return journal


@pytest.mark.skipif(os.name == "nt", reason="Windows has no flock")
def test_a_lock_is_taken_where_files_open_for_reading_cannot_be_locked(
    left: Path, monkeypatch: pytest.MonkeyPatch
):
    """NFS refuses an exclusive lock of a file that is not open for writing (flock(2))."""
    import fcntl

    plain = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        plain(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    Path(f"{left}.lock").write_text(f"{machine()}\n{gone.pid} 1\n", encoding="utf-8")
    monkeypatch.setattr(lock_module, "GRACE_S", 60.0)
    assert is_taken(left, 5.0)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no flock")
def test_a_lock_is_taken_after_a_while_where_no_file_can_be_locked(
    left: Path, monkeypatch: pytest.MonkeyPatch
):
    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    since = time.monotonic()
    assert is_taken(left, 5.0)
    assert time.monotonic() - since > 0.2


@pytest.mark.skipif(os.name == "nt", reason="Windows does not say whether a process lives")
@pytest.mark.parametrize("began", [True, False])
def test_a_number_without_a_beginning_may_be_another_process(
    left: Path, monkeypatch: pytest.MonkeyPatch, began: bool
):
    """As where there is no /proc: this process has the number of one that was killed, and after a
    while the lock is taken. Where its beginning is known the lock is its own as long as it
    lives."""
    who = f"{os.getpid()} 123" if began else f"{os.getpid()}"
    monkeypatch.setattr(lock_module, "process", lambda _: who)
    Path(f"{left}.lock").write_text(f"{machine()}\n{who}\n", encoding="utf-8")
    since = time.monotonic()
    assert is_taken(left, 1.0 if began else 5.0) is not began
    assert time.monotonic() - since > 0.2
