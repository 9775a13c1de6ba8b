"""Workers that share a study through a database server, killed at any time; a Dask cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.extra.conftest import PASSWORD, free_port

pytestmark = pytest.mark.extra
WORKERS = 4
KILLS = 6
BLIND_KILLS = 2
LEASE = "5"
DONE_WITHIN_S = 500.0

_COMPLETE = """
SELECT s.study_name, a.value_json FROM trials t
JOIN studies s USING (study_id) JOIN trial_user_attributes a USING (trial_id)
WHERE t.state = 'COMPLETE' AND a.key IN ('id', 'unit')
"""
_UNITS_DONE = """
SELECT COUNT(*) FROM trials t JOIN studies s USING (study_id)
WHERE t.state = 'COMPLETE' AND s.study_name LIKE '%.units'
"""
_HOLDERS = """
SELECT a.value_json FROM trials t JOIN trial_user_attributes a USING (trial_id)
WHERE t.state = 'RUNNING' AND a.key = 'worker'
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


def completed(url: str) -> set[tuple[str, str]]:
    """(study, point) of every trial and (study, unit) of every unit that is complete."""
    return set(rows(url, _COMPLETE))


def held_by(url: str, running: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """The workers that are at a unit."""
    holders = {json.loads(worker) for (worker,) in rows(url, _HOLDERS)}
    host = socket.gethostname()
    return [process for process in running if f"{host}:{process.pid}" in holders]


def work_and_kill(url: str, *arguments: str) -> set[tuple[str, str]]:
    """Four workers, of which one at a time is killed at its unit and replaced, after the first
    kills only when something was completed meanwhile; returns what was complete at the last."""
    chance, seen = random.Random(6), set[tuple[str, str]]()  # noqa: S311
    command = ("worker", "quickstart", "--storage", url, "--lease", LEASE, *arguments)
    running = [start(*command) for _ in range(WORKERS)]
    try:
        kills, until = 0, time.monotonic() + DONE_WITHIN_S
        while kills < KILLS and time.monotonic() < until:
            time.sleep(chance.uniform(0.1, 0.8))
            holders = held_by(url, running)
            if not holders:
                if any(process.poll() == 0 for process in running):
                    break
                continue
            there = completed(url)
            if kills >= BLIND_KILLS and there == seen:
                continue
            assert seen <= there
            seen = there
            victim = chance.choice(holders)
            victim.send_signal(signal.SIGSTOP)
            if not held_by(url, [victim]):  # it was done with its unit meanwhile
                victim.send_signal(signal.SIGCONT)
                continue
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            running.remove(victim)
            running.append(start(*command))
            kills += 1
        assert kills >= KILLS // 2, "the work was over before anything could be killed"
        for process in running:
            said, _ = process.communicate(timeout=DONE_WITHIN_S)
            assert process.returncode == 0, said
            assert PASSWORD not in said
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return seen


def test_enumeration_by_workers_that_are_killed(database: Callable[[str], str], tmp_path: Path):
    url = database("enumerated")
    seen = work_and_kill(url, "--engine", "exhaustive")
    run = ("run", "quickstart", "--engine", "exhaustive", "--out")
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    assert (said := dse(*run, shared, "--storage", url)).returncode == 0, said.stderr
    assert (said := dse(*run, alone, "--jobs", 1)).returncode == 0, said.stderr
    assert seen <= completed(url)
    assert (shared / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    document, expected = study(shared), study(alone)
    for key in ("evaluations", "feasible", "constraint_tallies", "trials", "hypervolume"):
        assert document[key] == expected[key], key
    assert document["true_hypervolume_share"] == 1.0
    assert document["duplicate_trials"] == 0
    assert document["work_units"]["attempts_lost"] >= KILLS // 2
    assert all(PASSWORD.encode() not in path.read_bytes() for path in shared.iterdir())


def test_restarts_by_workers_that_are_killed(database: Callable[[str], str], tmp_path: Path):
    url = database("restarts")
    seen = work_and_kill(url, "--engine", "nsga2", "--trials", "2000")
    run = ("run", "quickstart", "--engine", "nsga2", "--out")
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    assert (said := dse(*run, shared, "--storage", url)).returncode == 0, said.stderr
    assert (said := dse(*run, alone, "--jobs", 1)).returncode == 0, said.stderr
    stored = completed(url)
    assert len({point for name, point in seen if name == "quickstart"}) > 100
    assert seen <= stored
    document = study(shared)
    assert document["duplicate_trials"] <= 0.01 * document["trials"]
    assert document["trials"] == len([1 for name, _ in stored if name == "quickstart"])
    assert 0.999 <= document["true_hypervolume_share"] <= 1.0
    compared = json.loads(dse("compare", alone, shared, "--json").stdout)
    assert compared["ratio"] >= 0.999


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
    run = ("run", "tiny", "--seed", "1", "--out", tmp_path / "out", "--storage", given)
    said = [dse(*run), dse("worker", "tiny", "--storage", given), dse(*run, "--seed", "2")]
    assert [one.returncode for one in said] == [0, 0, 4], said[0].stderr
    texts = [(one.stdout + one.stderr).encode() for one in said]
    texts += [path.read_bytes() for path in (tmp_path / "out").iterdir()]
    for part in (b"p@ss", b"p%40ss", b"w/rd", b"w%2Frd", b"w%2frd"):
        assert not [text for text in texts if part in text]


def test_workers_share_a_study_in_mysql(mysql_url: str, tmp_path: Path):
    command = ("worker", "quickstart", "--storage", mysql_url, "--engine", "exhaustive")
    running = [start(*command, "--lease", LEASE) for _ in range(2)]
    try:
        time.sleep(8)
        running[0].send_signal(signal.SIGKILL)
        said, _ = running[1].communicate(timeout=DONE_WITHIN_S)
        assert running[1].returncode == 0, said
        assert PASSWORD not in said
    finally:
        for process in running:
            process.kill()
            process.communicate()
    run = ("run", "quickstart", "--engine", "exhaustive", "--out")
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    assert (said := dse(*run, shared, "--storage", mysql_url)).returncode == 0, said.stderr
    assert (said := dse(*run, alone, "--jobs", 1)).returncode == 0, said.stderr
    assert (shared / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    assert study(shared)["trials"] == study(alone)["trials"]
    assert study(shared)["duplicate_trials"] == 0
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
def dask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, list[subprocess.Popen]]]:
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
        yield address, workers


Dask = tuple[str, list[subprocess.Popen]]


def test_an_enumeration_on_a_cluster_that_loses_a_worker(dask: Dask, tmp_path: Path):
    address, workers = dask
    run = ("run", "quickstart", "--engine", "exhaustive", "--out")
    there, alone = tmp_path / "there", tmp_path / "alone"
    running = start(*run, there, "--cluster", address, "--storage", f"sqlite:///{tmp_path}/s.db")
    try:
        until = time.monotonic() + DONE_WITHIN_S
        while time.monotonic() < until and not units_done(tmp_path / "s.db"):
            time.sleep(0.2)
        assert running.poll() is None, "the work was over before a worker could be killed"
        workers[0].kill()
        said, _ = running.communicate(timeout=DONE_WITHIN_S)
        assert running.returncode == 0, said
    finally:
        running.kill()
        running.communicate()
    assert (said := dse(*run, alone)).returncode == 0, said.stderr
    assert (there / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    for key in ("constraint_tallies", "evaluations", "trials"):
        assert study(there)[key] == study(alone)[key], key


def units_done(database: Path) -> int:
    """Work units that are complete in a study of SQLite."""
    if not database.exists():
        return 0
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            return connection.execute(_UNITS_DONE).fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def test_an_enumeration_on_a_cluster(dask: Dask, tmp_path: Path):
    address, _ = dask
    run = ("run", "quickstart", "--engine", "exhaustive", "--out")
    there, alone = tmp_path / "there", tmp_path / "alone"
    assert (said := dse(*run, there, "--cluster", address)).returncode == 0, said.stderr
    assert (said := dse(*run, alone)).returncode == 0, said.stderr
    assert (there / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()
    assert study(there)["constraint_tallies"] == study(alone)["constraint_tallies"]


def test_a_cluster_enumerates_and_nothing_else(dask: Dask, tmp_path: Path):
    run = ("run", "quickstart", "--engine", "nsga2", "--out", tmp_path / "x")
    said = dse(*run, "--cluster", dask[0])
    assert said.returncode == 2
    assert "--engine exhaustive" in said.stderr
