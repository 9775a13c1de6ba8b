"""A study that is killed, resumed or grown, or that several processes share."""

from __future__ import annotations

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

from dse.schema.study import resolve_space
from dse.search.record import Record
from dse.search.storage import open_storage
from dse.study.folder import CHECKPOINT, FRONT_TABLE, STUDY, read_json
from tests.cli.conftest import ask, dse

ONE_LEFT = """
import sys
from dse.search.storage import sole_writer
from pathlib import Path

with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_processes_find_the_front_of_one(tmp_path: Path):
    space, one, three = tmp_path / "viewed.yaml", tmp_path / "one", tmp_path / "three"
    tiny = resolve_space("tiny").read_text(encoding="utf-8")
    space.write_text(f"{tiny}views: [{{by: chip, map: [hidden_size, num_experts]}}]\n", "utf-8")
    run = ("run", space, "--engine", "pareto-local", "--seed", 1)
    assert dse(*run, "--out", one, "--jobs", 1).code == 0
    said = dse(*run, "--out", three, "--jobs", 3)
    assert said.code == 0, said.err
    assert (one / FRONT_TABLE).read_bytes() == (three / FRONT_TABLE).read_bytes()
    first, second = read_json(one, STUDY), read_json(three, STUDY)
    for key in ("evaluations", "trials", "proof", "constraint_tallies", "views"):
        assert first[key] == second[key], key


@pytest.mark.parametrize("step", ["others", "load"])
def test_a_database_that_is_lost_is_no_traceback(
    space: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    run = ("run", space(), "--storage", storage, "--engine", "random", "--out", tmp_path / "out")
    with monkeypatch.context() as lost:
        gone = OperationalError("COMMIT", {}, ValueError("password=s3cret: the server is gone"))
        lost.setattr(Record, step, mock.Mock(side_effect=gone))
        said = dse(*run)
    assert (said.code, said.out) == (4, "")
    assert "work was interrupted: password=... the server is gone" in said.err
    assert not (tmp_path / "out" / STUDY).exists()
    assert dse(*run).code == 0


def test_a_sampler_goes_on_where_another_process_was(tmp_path: Path):
    """Two folders, one database: the second asks for what is left, and knows what the first had."""
    storage = ("--storage", f"sqlite:///{tmp_path / 'study.db'}", "--no-prove", "--json")
    run = ("run", "tiny", "--engine", "tpe", *storage)
    few = dse(*run, "--trials", 20, "--out", tmp_path / "one").json()
    more = dse(*run, "--trials", 40, "--out", tmp_path / "two").json()
    assert (few["trials"], more["trials"], more["evaluations"]) == (20, 40, 40)
    assert more["duplicate_trials"] == 0
    again = dse(*run, "--trials", 40, "--out", tmp_path / "one").json()
    assert (again["trials"], again["evaluations"]) == (40, 40)
    fronts = [(tmp_path / name / FRONT_TABLE).read_text() for name in ("one", "two")]
    assert fronts[0] == fronts[1]
    said = dse(*run, "--seed", 8, "--out", tmp_path / "three")
    assert said.code == 4
    assert "another seed: 0 there, 8 asked for" in said.err


def test_an_engine_that_is_none_leaves_nothing_behind(space: Callable[..., Path], tmp_path: Path):
    said = dse("run", space(), "--out", tmp_path / "out", "--engine", "os:system")
    assert said.code == 2
    assert "os:system is no sampler of Optuna" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("[1, 16, 64]", "[1, 16, 32]"), "axis concurrency 1, 16, 64 -> 1, 16, 32"),
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
    few = ask(*run, "--trials", 60)
    ids = trials(tmp_path / "out" / "journal.log")
    more = ask(*run, "--trials", 140)
    grown = trials(tmp_path / "out" / "journal.log")
    assert ids == grown[: len(ids)]
    assert few["trials"] == 60
    assert more["trials"] == 140
    assert more["duplicate_trials"] == 0
    same_again = ask(*run, "--trials", 60)
    assert same_again["trials"] == 140
    assert same_again["hypervolume"] == more["hypervolume"]
    assert same_again["front_size"] == more["front_size"]


def trials(journal: Path) -> list[int]:
    storage = open_storage(journal)
    (study,) = storage.get_all_studies()
    return [trial.user_attrs["id"] for trial in storage.get_all_trials(study._study_id)]


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_run_of_processes_that_is_killed_goes_on(tmp_path: Path):
    """The parent is killed in the midst; its processes end by themselves, and nothing is lost."""
    run = ["run", "tiny", "--engine", "nsga2", "--trials", "200", "--no-prove", "--jobs"]
    command, journal = [sys.executable, "-m", "dse", *run, "3", "--out"], tmp_path / "journal.log"
    running = subprocess.Popen(
        [*command, str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while running.poll() is None and not (journal.exists() and journal.stat().st_size > 60_000):
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()
    ids = trials(journal)
    assert ids
    document = ask(*run, 3, "--out", tmp_path)
    assert set(ids) <= set(trials(journal))
    assert document["trials"] == len(set(trials(journal)))
    assert document["duplicate_trials"] == 0
    dse(*run, 1, "--out", tmp_path / "whole")
    whole = (tmp_path / "whole" / FRONT_TABLE).read_bytes()
    assert (tmp_path / FRONT_TABLE).read_bytes() == whole


@pytest.mark.skipif(os.name == "nt", reason="Windows locks no files so")
def test_one_process_writes_a_folder(space: Callable[..., Path], tmp_path: Path):
    """Another is refused while it lives, and not after it was killed."""
    out = tmp_path / "out"
    holder = subprocess.Popen(
        [sys.executable, "-c", ONE_LEFT, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    said = dse("run", space(), "--out", out)
    assert said.code == 4
    assert f"{out} is being written by process {holder.pid} of " in said.err
    assert "another folder (--out)" in said.err
    holder.kill()
    holder.communicate()
    (out / "journal.log.lock").write_text("left by a process that was killed while it stored")
    since = time.monotonic()
    assert dse("run", space(), "--out", out).code == 0
    assert time.monotonic() - since < 9.0
    assert not (out / "run.lock").exists()


def test_what_a_search_found_is_kept_for_the_next_run(tmp_path: Path):
    run = ("run", "tiny", "--engine", "pareto-local", "--seed", 1, "--out", tmp_path, "--json")
    first = dse(*run).json()
    front = (tmp_path / FRONT_TABLE).read_bytes()
    kept = (tmp_path / CHECKPOINT).read_bytes()
    again = dse(*run).json()
    assert again["seconds"]["evaluate"] == 0.0
    assert (tmp_path / FRONT_TABLE).read_bytes() == front
    for key in ("evaluations", "trials", "proof", "constraint_tallies", "hypervolume"):
        assert again[key] == first[key], key
    (tmp_path / "journal.log").unlink()
    assert dse(*run).json()["trials"] == first["trials"]
    assert (tmp_path / CHECKPOINT).read_bytes() == kept


def test_a_cluster_that_is_none_is_said(tmp_path: Path):
    said = dse("run", "tiny", "--cluster", "tcp://127.0.0.1:1", "--out", tmp_path / "out")
    assert said.code == 2
    assert "--cluster" in said.err


def test_a_storage_that_is_none(space: Callable[..., Path], tmp_path: Path):
    out = tmp_path / "out"
    said = dse("run", space(), "--out", out, "--storage", "redis://me:s3cret@host/1")
    assert said.code == 4
    assert "accepted: postgresql://" in said.err
    assert "s3cret" not in said.err
