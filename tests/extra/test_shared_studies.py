"""Processes that share a study through a database server, and a Dask cluster; killed at any
time."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from tests.extra.conftest import PASSWORD, free_port

pytestmark = pytest.mark.extra
TRIALS = 300
DONE_WITHIN_S = 500.0
SAMPLER = ("run", "quickstart", "--engine", "tpe", "--trials", TRIALS, "--no-prove")
Dask = tuple[str, list[subprocess.Popen], Any]

_COMPLETE = """
SELECT a.value_json FROM trials t JOIN trial_user_attributes a USING (trial_id)
WHERE t.state = 'COMPLETE' AND a.key = 'id'
"""


def dse(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dse", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dse", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def study(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "study.json").read_text(encoding="utf-8"))


def rows(url: str, query: str) -> list[tuple]:
    import psycopg

    with psycopg.connect(url) as connection:
        try:
            return connection.execute(query).fetchall()
        except psycopg.errors.UndefinedTable:
            return []


def completed(url: str) -> list[str]:
    """The point of every trial."""
    return [value for (value,) in rows(url, _COMPLETE)]


def wait_until(condition: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    until = time.monotonic() + DONE_WITHIN_S
    while not condition():
        assert running.poll() is None, "the work was over before anything could be killed"
        assert time.monotonic() < until
        time.sleep(0.05)


def finished(*running: subprocess.Popen[str]) -> None:
    for process in running:
        said, _ = process.communicate(timeout=DONE_WITHIN_S)
        assert process.returncode == 0, said
        assert PASSWORD not in said


def test_two_processes_share_a_sampler(database: Callable[[str], str], tmp_path: Path):
    """One of them is killed at two moments and begins again; nothing that was stored is lost, no
    point is stored twice, and both report the same study."""
    url, chance = database("sampler"), random.Random(6)  # noqa: S311
    mine, other = tmp_path / "mine", tmp_path / "other"
    share = (*SAMPLER, "--storage", url, "--out")
    first, second = start(*share, mine), start(*share, other)
    try:
        for least in (40, 120):
            wait_until(lambda least=least: len(completed(url)) > least, second)
            time.sleep(chance.uniform(0.0, 0.5))
            second.send_signal(signal.SIGKILL)
            second.communicate()
            there = set(completed(url))
            second = start(*share, other)
        finished(first, second)
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    stored = completed(url)
    assert there <= set(stored)
    assert len(stored) == len(set(stored)) >= TRIALS
    assert (said := dse(*share, mine)).returncode == 0, said.stderr  # what the other asked for last
    assert (said := dse(*share, other)).returncode == 0, said.stderr
    assert (mine / "front.csv").read_bytes() == (other / "front.csv").read_bytes()
    assert set(completed(url)) == set(stored)
    for document in (study(mine), study(other)):
        assert (document["trials"], document["duplicate_trials"]) == (len(stored), 0)
    assert all(PASSWORD.encode() not in path.read_bytes() for path in mine.iterdir())


def test_an_enumeration_in_a_database_is_that_of_a_folder(
    database: Callable[[str], str], tmp_path: Path
):
    """Two processes that do the same store each point once."""
    url = database("enumerated")
    run = ("run", "quickstart", "--engine", "exhaustive", "--out")
    shared, other, alone = (tmp_path / name for name in ("shared", "other", "alone"))
    finished(*(start(*run, out, "--storage", url) for out in (shared, other)), start(*run, alone))
    document, expected = study(shared), study(alone)
    for out in (shared, other):
        assert (out / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    for key in ("evaluations", "feasible", "constraint_tallies", "trials", "hypervolume"):
        assert document[key] == expected[key], key
    assert document["duplicate_trials"] == 0


def test_a_wrong_password_is_refused_and_not_shown(database: Callable[[str], str], tmp_path: Path):
    url = database("closed").replace(PASSWORD, "wrong-and-secret")
    said = dse("run", "tiny", "--storage", url, "--out", tmp_path / "out")
    assert said.returncode == 4
    assert "password authentication failed" in said.stderr
    assert "wrong-and-secret" not in said.stdout + said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("form", ["as user", "lower case", "in query"])
def test_no_form_of_a_password_is_written_or_shown(
    database: Callable[[str], str], tmp_path: Path, form: str
):
    import psycopg
    import psycopg.sql

    user = form.replace(" ", "_")  # of a server that the forms share
    secret, url = "p@ss:w/rd%1'x y&z", database(user)
    with psycopg.connect(url, autocommit=True) as connection:
        create = psycopg.sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}")
        connection.execute(create.format(psycopg.sql.Identifier(user), psycopg.sql.Literal(secret)))
    quoted = quote(secret, safe="")
    server = url.rpartition("@")[2]
    given = {
        "as user": f"postgresql://{user}:{quoted}@{server}",
        "lower case": f"postgresql://{user}:{quoted.replace('%2F', '%2f')}@{server}",
        "in query": f"postgresql://{server}?user={user}&password={quoted}",
    }[form]
    run = ("run", "tiny", "--out", tmp_path / "out", "--storage", given)
    said = [dse(*run, "--seed", seed) for seed in "12"]
    assert [one.returncode for one in said] == [0, 4], said[0].stderr
    texts = [(one.stdout + one.stderr).encode() for one in said]
    texts += [path.read_bytes() for path in (tmp_path / "out").iterdir()]
    for part in (b"p@ss", b"p%40ss", b"w/rd", b"w%2Frd", b"w%2frd"):
        assert not [text for text in texts if part in text]


def test_two_processes_share_a_sampler_in_mysql(mysql_url: str, tmp_path: Path):
    share = (*SAMPLER, "--storage", mysql_url, "--out")
    one, two = tmp_path / "one", tmp_path / "two"
    finished(*(start(*share, out) for out in (one, two)))
    for out in (one, two):
        assert (said := dse(*share, out)).returncode == 0, said.stderr
    assert (one / "front.csv").read_bytes() == (two / "front.csv").read_bytes()
    assert study(one)["trials"] == study(two)["trials"] >= TRIALS
    assert study(one)["duplicate_trials"] == 0
    wrong = mysql_url.replace(PASSWORD, "wrong-and-secret")
    refused = dse("run", "tiny", "--storage", wrong, "--out", tmp_path / "out")
    assert refused.returncode == 4
    assert "wrong-and-secret" not in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr


@contextmanager
def cluster(workers: int) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A Dask scheduler and its workers, each a process on loopback; yields its address and the
    workers."""
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
    port = address.rsplit(":", 1)[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": os.environ}
    processes = [
        subprocess.Popen(
            [*scheduler, "--host", "127.0.0.1", "--port", port, "--no-dashboard"], **quiet
        ),
        *(
            subprocess.Popen([*worker, "--nthreads", "1", "--no-dashboard"], **quiet)
            for _ in range(workers)
        ),
    ]
    try:
        yield address, processes[1:]
    finally:
        for process in processes:  # asked to end, they take 20 s
            process.kill()
            process.wait()


@pytest.fixture
def dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dask]:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("no Dask here: pip install '.[cluster]'")
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    from distributed import Client

    with (
        cluster(2) as (address, workers),
        Client(address, timeout=60, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield address, workers, client


def busy(client: Any) -> bool:
    """Whether a worker of the cluster has a task."""
    return any(client.processing().values())


def test_an_enumeration_on_a_cluster_that_loses_a_worker(dask: Dask, tmp_path: Path):
    address, workers, client = dask
    run = ("run", "quickstart", "--engine", "exhaustive", "--seed", 1, "--out")
    there, alone = tmp_path / "there", tmp_path / "alone"
    running = start(*run, there, "--cluster", address)
    try:
        wait_until(lambda: busy(client), running)
        workers[0].kill()
        finished(running)
    finally:
        running.kill()
        running.communicate()
    assert (said := dse(*run, alone)).returncode == 0, said.stderr
    assert (there / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    for key in ("constraint_tallies", "evaluations", "trials"):
        assert study(there)[key] == study(alone)[key], key


def test_a_search_on_a_cluster_whose_client_is_killed(dask: Dask, tmp_path: Path):
    """20 million points: the search, three restarts and an enumeration of a part. A worker is lost
    too; what was done before the kill is not done again."""
    address, workers, client = dask
    run = ("run", "consumer-fleet", "--engine", "pareto-local", "--seed", 1, "--out")
    there, alone = tmp_path / "there", tmp_path / "alone"
    finished(start(*run, alone))
    running = start(*run, there, "--cluster", address)
    try:
        wait_until(lambda: "proof 1000000" in tasks(there / "checkpoint.npz"), running)
        running.kill()
        running.communicate()
        kept = tasks(there / "checkpoint.npz")
        assert "pareto-local 0" in kept
        running = start(*run, there, "--cluster", address)
        wait_until(lambda: busy(client), running)
        workers[0].kill()
        finished(running)
    finally:
        running.kill()
        running.communicate()
    assert kept < tasks(there / "checkpoint.npz")
    assert (there / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    for key in ("constraint_tallies", "evaluations", "trials", "proof"):
        assert study(there)[key] == study(alone)[key], key
    assert study(there)["seconds"]["evaluate"] == 0.0


def tasks(checkpoint: Path) -> set[str]:
    """What is done by a checkpoint."""
    with suppress(FileNotFoundError), np.load(checkpoint) as file:
        return {name.partition("/")[0] for name in file.files if "/" in name}
    return set()


@pytest.mark.parametrize("engine", ["nsga2", "tpe", "exhaustive"])
def test_every_engine_takes_a_cluster(dask: Dask, tmp_path: Path, engine: str):
    run = ("run", "tiny", "--engine", engine, "--seed", 1, "--trials", 40, "--out")
    there, alone = tmp_path / "there", tmp_path / "alone"
    assert (said := dse(*run, there, "--cluster", dask[0])).returncode == 0, said.stderr
    assert (said := dse(*run, alone)).returncode == 0, said.stderr
    assert (there / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    assert study(there)["proof"] == study(alone)["proof"]


def test_a_cluster_that_is_gone_is_said(dask: Dask, tmp_path: Path):
    address, _, client = dask
    running = start("run", "quickstart", "--engine", "exhaustive", "--out", tmp_path / "out",
                    "--cluster", address)  # fmt: skip
    try:
        wait_until(lambda: busy(client), running)
        client.shutdown()
        said, _ = running.communicate(timeout=DONE_WITHIN_S)
        assert running.returncode == 4, said
        assert "--cluster: work was interrupted" in said
        assert "Traceback" not in said
    finally:
        running.kill()
        running.communicate()
