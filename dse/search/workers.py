"""Processes that share the units of one study."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.process import BaseProcess

from dse.errors import StorageError
from dse.search.claims import Board, worker_name
from dse.search.storage import failures, in_words
from dse.search.units import Outcome, Plan, Unit

POLL_S = 0.2
MOST_POLL_S = 1.0
ENDING_S = 5.0

Done = Callable[[Mapping[Unit, Outcome]], None]


def work(
    board: Board,
    plan: Callable[[], Plan],
    execute: Callable[[Plan, Unit], Outcome],
    *,
    seen: Done = lambda done: None,
    idle: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Do units until none is left, waiting for those that others do, in case they are killed;
    return how many this process completed.

    `plan` is asked again before each unit, because a study can grow; `seen` is given all completed
    units, `idle` is called while there is nothing to do, `stop` ends the work between units.
    Raises StorageError when the storage is lost.
    """
    mine, wait = 0, POLL_S
    try:
        while not stop():
            done, planned = board.done(), plan()
            seen(done)
            if all(unit in done for unit in planned.units):
                break
            claim = board.claim(planned.units)
            if claim is None:
                idle()
                time.sleep(wait)
                wait = min(2 * wait, MOST_POLL_S, board.lease_s / 4)
                continue
            wait = POLL_S
            try:
                with board.kept(claim):
                    outcome = execute(planned, claim.unit)
            except BaseException:
                board.give_up(claim)
                raise
            mine += board.complete(claim, outcome)
    except failures() as error:
        raise StorageError(in_words(board.location, "work was interrupted", error)) from error
    return mine


class Processes:
    """Worker processes on this machine, ended with the block that starts them.

    `target(*arguments)` runs in each; it must be importable, because a process is spawned, not
    forked: a fork would share database connections and threads.
    """

    def __init__(
        self, count: int, target: Callable[..., object], arguments: tuple, board: Board
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._board = board
        self._running: list[BaseProcess] = [
            context.Process(target=target, args=arguments, daemon=True) for _ in range(count)
        ]

    def __enter__(self) -> Processes:
        for process in self._running:
            process.start()
        return self

    def bury(self) -> None:
        """Free the units of processes that ended since the last look."""
        for process in [p for p in self._running if p.exitcode is not None]:
            self._running.remove(process)
            self._board.forget(worker_name(process.pid or 0))

    def __exit__(self, *ended: object) -> None:
        # Without an error all units are done, and the processes are about to see that.
        patience = ENDING_S if ended[0] is None else 0.0
        until = time.monotonic() + patience
        for process in self._running:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                process.terminate()
                process.join()
        with suppress(*failures()):
            self.bury()


def orphaned() -> Callable[[], bool]:
    """A test whether the process that started this one is gone."""
    parent = os.getppid()
    return lambda: os.getppid() != parent
