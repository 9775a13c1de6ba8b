"""`dse worker`, and the study that several processes share, resume and grow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from sqlalchemy.exc import OperationalError

from dse.search.claims import Board
from dse.search.record import UNITS
from dse.search.storage import open_storage
from dse.study.folder import FRONT_TABLE, STUDY, read_json
from tests.cli.conftest import dse


def test_processes_find_the_front_of_one(space: Callable[..., Path], tmp_path: Path):
    one, three = tmp_path / "one", tmp_path / "three"
    assert dse("run", space(), "--out", one, "--jobs", 1).code == 0
    said = dse("run", space(), "--out", three, "--jobs", 3)
    assert said.code == 0, said.err
    assert (one / FRONT_TABLE).read_bytes() == (three / FRONT_TABLE).read_bytes()
    document = read_json(three, STUDY)
    assert document["work_units"]["units"] == 1
    assert document["duplicate_trials"] == 0
    assert document["true_hypervolume_share"] == 1.0


def test_a_worker_may_come_first_or_last(space: Callable[..., Path], tmp_path: Path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    before = dse("worker", space(), "--storage", storage)
    assert before.code == 0, before.err
    assert before.out.startswith("1 work units done in ")
    run = dse("run", space(), "--storage", storage, "--out", tmp_path / "out", "--json")
    assert run.json()["evaluations"] == 18
    for join in (("worker",), ("run", "--worker")):
        after = dse(*join, space(), "--storage", storage)
        assert after.out.startswith("0 work units done in ")


@pytest.mark.parametrize("step", ["claim", "turn", "counts"])
def test_a_database_that_is_lost_is_no_traceback(
    space: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run = ("run", space(), "--storage", storage, "--out", tmp_path / "out")
    with monkeypatch.context() as lost:
        gone = OperationalError("COMMIT", {}, ValueError("password=s3cret: the server is gone"))
        lost.setattr(Board, step, mock.Mock(side_effect=gone))
        said = dse(*run)
    assert (said.code, said.out) == (4, "")
    assert "work was interrupted: password=... the server is gone" in said.err
    assert not (tmp_path / "out" / STUDY).exists()
    assert dse(*run).code == 0


def test_a_worker_takes_engine_and_seed_from_the_study(space: Callable[..., Path], tmp_path: Path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run = ("run", space(), "--storage", storage, "--out", tmp_path / "out")
    assert dse(*run, "--seed", 7, "--engine", "random", "--trials", 5).code == 0
    assert dse("worker", space(), "--storage", storage).code == 0
    said = dse("worker", space(), "--storage", storage, "--seed", 8)
    assert said.code == 4
    assert "another seed: 7 there, 8 asked for" in said.err


def test_a_worker_runs_no_code_that_a_storage_names(space: Callable[..., Path], tmp_path: Path):
    storage, engine = f"sqlite:///{tmp_path / 'study.db'}", "optuna.samplers:NSGAIIISampler"
    run = ("run", space(), "--storage", storage, "--out", tmp_path / "out", "--engine", engine)
    assert dse(*run, "--trials", 5).code == 0
    worker = ("worker", space(), "--storage", storage)
    said = dse(*worker)
    assert said.code == 2
    assert f"--engine: the engine of the study is {engine}" in said.err
    assert dse(*worker, "--engine", engine).code == 0


def test_an_engine_that_is_none_leaves_nothing_behind(space: Callable[..., Path], tmp_path: Path):
    said = dse("run", space(), "--out", tmp_path / "out", "--engine", "os:system")
    assert said.code == 2
    assert "os:system is no sampler of Optuna" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("[1, 16, 64]", "[1, 16, 32]"), "axis concurrency [1, 16, 64] -> [1, 16, 32]"),
        (("ttft_s <= 2 s", "ttft_s <= 3 s"), "constraint ttft_s <= 3 s added"),
        (("output_tokens: 256", "output_tokens: 128"), "output_tokens"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_what_changed_in_a_space_is_named(
    space: Callable[..., Path],
    tmp_path: Path,
    change: tuple[str, str],
    named: str,
    finished: bool,
):
    out = tmp_path / "out"
    assert dse("run", space(), "--out", out).code == 0
    if not finished:
        (out / STUDY).unlink()
    said = dse("run", space(*change), "--out", out)
    assert said.code == 4
    assert named in said.err


def test_other_hardware_data_is_refused_with_both_digests(
    space: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert dse("run", space(), "--out", tmp_path / "out").code == 0
    had = read_json(tmp_path / "out", STUDY)["data_digest"]
    monkeypatch.setattr("dse.schema.catalog.catalog_digest", lambda folder: "f" * 64)
    said = dse("run", space(), "--out", tmp_path / "out")
    assert said.code == 4
    assert f"other hardware data: {had[:12]} there, {'f' * 12} asked for" in said.err


@pytest.mark.parametrize("jobs", [1, 3])
def test_more_trials_are_added_and_none_is_lost(tmp_path: Path, jobs: int):
    run = ("run", "tiny", "--engine", "random", "--out", tmp_path / "out", "--jobs", jobs)
    run = (*run, "--no-prove")  # an enumeration afterwards would add its designs
    few = dse(*run, "--trials", 60, "--json").json()
    ids = trials(tmp_path / "out" / "journal.log")
    more = dse(*run, "--trials", 140, "--json").json()
    grown = trials(tmp_path / "out" / "journal.log")
    assert ids == grown[: len(ids)]
    assert few["trials"] == 60
    assert more["trials"] == 140
    assert more["duplicate_trials"] == 0
    same_again = dse(*run, "--trials", 60, "--json").json()
    assert same_again["trials"] == 140
    assert same_again["hypervolume"] == more["hypervolume"]
    assert same_again["front_size"] == more["front_size"]


def trials(journal: Path) -> list[int]:
    storage = open_storage(journal)
    (study,) = (s for s in storage.get_all_studies() if not s.study_name.endswith(UNITS))
    return [trial.user_attrs["id"] for trial in storage.get_all_trials(study._study_id)]


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_run_of_processes_that_is_killed_goes_on(tmp_path: Path):
    """The parent is killed in the midst; its processes end by themselves, and nothing is lost."""
    command = [sys.executable, "-m", "dse", "run", "tiny", "--engine", "nsga2", "--jobs", "3"]
    command += ["--out", str(tmp_path / "out"), "--lease", "3"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "out" / "journal.log"
    while running.poll() is None and not (journal.exists() and journal.stat().st_size > 200_000):
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()
    ids = trials(journal)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(ids) <= set(trials(journal))
    assert document["trials"] == len(set(trials(journal)))
    assert document["duplicate_trials"] == 0


def test_a_cluster_without_its_library_or_its_engine(tmp_path: Path):
    said = dse("run", "tiny", "--engine", "nsga2", "--cluster", "tcp://x:1", "--out", tmp_path)
    assert said.code == 2
    assert "--engine exhaustive" in said.err


def test_a_storage_that_is_none(space: Callable[..., Path]):
    said = dse("worker", space(), "--storage", "redis://me:s3cret@host/1")
    assert said.code == 4
    assert "postgresql://..." in said.err
    assert "s3cret" not in said.err
