"""Copies of a process that share its work: each test in an interpreter of its own, which has no
threads beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dse.search.parallel import mapped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux")
BEGIN = "import os, signal, sys, threading, time\nfrom dse.search.parallel import mapped\n"


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_answers_come_in_the_order_of_the_items_from_several_processes():
    said = run(
        "def work(k):\n    time.sleep(0.02 * (k % 3)); return k * k, os.getpid()\n"
        "found = list(mapped(work, range(20), 3))\n"
        "assert [one for one, _ in found] == [k * k for k in range(20)]\n"
        "assert len({own for _, own in found} - {os.getpid()}) == 3\n"
    )
    assert said.returncode == 0, said.stderr


def test_what_the_work_raises_is_raised_where_it_was_asked_for():
    said = run(
        "from dse.errors import InputError\n"
        "def work(k):\n    if k == 5: raise InputError('no five', field='k')\n    return k\n"
        "found = []\n"
        "try:\n    found += mapped(work, range(20), 2)\n"
        "except InputError as error:\n    print(error)\n"
    )
    assert said.stdout == "k: no five\n", said.stderr


def test_what_cannot_be_sent_is_said():
    said = run(
        "def work(k):\n    return (lambda: k) if k == 3 else k\n"
        "try:\n    list(mapped(work, range(20), 2))\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    assert "pickle" in said.stdout, said.stdout + said.stderr
    assert not said.stderr


def test_a_killed_copy_is_said_and_leaves_none_behind():
    said = run(
        "from dse.errors import StorageError\n"
        "def work(k):\n"
        "    if k == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return os.getpid()\n"
        "try:\n    list(mapped(work, range(20), 2))\n"
        "except StorageError as error:\n    print(error)\n"
        "import multiprocessing\nprint(multiprocessing.active_children())\n"
    )
    assert said.stdout.startswith("a process of this run was killed"), said.stderr
    assert said.stdout.endswith("[]\n")


def test_copies_end_with_the_process_that_was_copied(tmp_path: Path):
    told = tmp_path / "told"
    code = (
        "def work(k):\n"
        f"    open({str(told)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "    time.sleep(0.2)\n"
        "list(mapped(work, range(1000), 2))\n"
    )
    running = subprocess.Popen([sys.executable, "-c", BEGIN + code])
    until = time.monotonic() + 30
    while not (told.exists() and len(told.read_text().split()) > 3):
        assert time.monotonic() < until
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    copies = {int(one) for one in told.read_text().split()}
    until = time.monotonic() + 10
    while any(_lives(copy) for copy in copies):
        assert time.monotonic() < until, "a copy outlives the process that was killed"
        time.sleep(0.05)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{process}")


def test_threads_do_the_work_where_there_are_others():
    said = run(
        "over = threading.Event()\nthreading.Thread(target=over.wait, daemon=True).start()\n"
        "found = list(mapped(lambda k: (k, os.getpid()), range(20), 2))\n"
        "assert found == [(k, os.getpid()) for k in range(20)]\n"
    )
    assert said.returncode == 0, said.stderr


def test_there_are_no_more_copies_than_items():
    said = run(
        "import multiprocessing\n"
        "answers = mapped(lambda k: k, range(3), 64)\n"
        "assert next(answers) == 0\n"
        "assert len(multiprocessing.active_children()) == 3\n"
        "assert list(answers) == [1, 2]\n"
    )
    assert said.returncode == 0, said.stderr


def test_one_item_or_one_worker_is_done_here():
    here: list[int] = []
    assert list(mapped(lambda k: here.append(k) or k, [7], 4)) == [7]
    assert list(mapped(lambda k: here.append(k) or k, range(3), 1)) == [0, 1, 2]
    assert here == [7, 0, 1, 2]


def test_a_search_and_its_proof_are_the_same_by_one_process_and_by_three():
    said = run(
        "from benchmarks.synthetic import SMALL_AXES, SyntheticProblem\n"
        "import dse.search.run as searched\n"
        "from dse.search.parallel import Executor\n"
        "from dse.search.run import search\n"
        "problem = SyntheticProblem(axes=SMALL_AXES)\n"
        "result = search(problem, 'random')\n"
        "searched.RESTARTS = 1\n"
        "def proved(jobs):\n"
        "    found, front = searched.prove(problem, result, seed=0, enumerate_up_to=0,\n"
        "                                  executor=Executor(jobs))\n"
        "    whole = search(problem, 'exhaustive', chunk=4_000, executor=Executor(jobs))\n"
        "    bits = whole.front.F.tobytes(), whole.front.ids.tolist()\n"
        "    return found, front.ids.tolist(), bits, whole.tallies, whole.feasible\n"
        "one, three = proved(1), proved(3)\n"
        "assert one == three, (one, three)\n"
    )
    assert said.returncode == 0, said.stderr
