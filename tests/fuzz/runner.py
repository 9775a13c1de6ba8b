"""Many inputs over several processes; one that hangs or crashes costs its process alone."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests import fuzz

MOST_BYTES = 6 << 30  # of a process
EVERY_S = 20.0  # a line of progress


def work(inbox: Connection) -> None:
    """Answers every input that arrives with what is wrong with it. One that takes too long ends the
    process with a traceback."""
    os.environ["COLUMNS"] = "100"
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    faulthandler.register(signal.SIGPROF, chain=True)  # seconds of work, whatever else runs here
    sys.stdin = open(os.devnull)  # noqa: SIM115
    while True:
        kind, seed = inbox.recv()
        folder = Path(tempfile.mkdtemp(prefix="dse-fuzz-"))
        signal.setitimer(signal.ITIMER_PROF, fuzz.LIMIT_S)
        faulthandler.dump_traceback_later(10 * fuzz.LIMIT_S, exit=True)
        begun = time.process_time()
        found = fuzz.complaint(kind, seed, folder)
        took = time.process_time() - begun
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(folder, ignore_errors=True)
        inbox.send((found, took))


def run(names: Sequence[str], inputs: int, seed: int, jobs: int) -> int:
    """The exit code after so many inputs; every complaint is printed as it is found."""
    todo = iter([fuzz.nth(k, seed, names) for k in range(inputs)])
    spawn = multiprocessing.get_context("spawn")
    busy: dict[Connection, tuple[str, int]] = {}
    workers: dict[Connection, BaseProcess] = {}

    def start() -> None:
        here, there = spawn.Pipe()
        worker = spawn.Process(target=work, args=(there,), daemon=True)
        worker.start()
        there.close()
        workers[here] = worker
        give(here)

    def give(to: Connection) -> None:
        if (one := next(todo, None)) is not None:
            busy[to] = one
            to.send(one)

    done, bad, begun, said = 0, 0, time.monotonic(), time.monotonic()
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(jobs):
        start()
    while busy:
        for one in wait(list(busy), timeout=1.0):
            assert isinstance(one, Connection)
            kind, seed = busy.pop(one)
            try:
                found, took = one.recv()
                seconds[kind].append(took)
            except (EOFError, OSError):
                workers[one].join()
                found = f"ended with {workers[one].exitcode}, or took {fuzz.LIMIT_S} s"
                start()
            else:
                give(one)
            done += 1
            if found:
                bad += 1
                print(f"{kind} {seed}: {found[:300]}", flush=True)
        if time.monotonic() - said > EVERY_S:
            said, rate = time.monotonic(), done / (time.monotonic() - begun)
            left = (inputs - done) / rate / 60.0
            print(f"# {done:,} of {inputs:,}, {bad} taken badly, {rate:.1f} a second, "
                  f"{left:.0f} min left", file=sys.stderr, flush=True)  # fmt: skip
    took = time.monotonic() - begun
    for one in workers.values():
        one.terminate()
    means = sorted(((sum(one) / len(one), kind) for kind, one in seconds.items()), reverse=True)
    said = ", ".join(f"{kind} {1000 * mean:.0f}" for mean, kind in means)
    print(f"# milliseconds of work an input: {said}", file=sys.stderr)
    print(f"{done:,} inputs, {bad:,} taken badly, {done / took:.1f} a second")
    return 1 if bad else 0
