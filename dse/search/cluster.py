"""An enumeration on a Dask cluster: its units are tasks, this process claims and records them."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from dse import __version__
from dse.errors import InputError, StorageError
from dse.problem.protocol import Problem
from dse.search.claims import Board, Claim
from dse.search.units import Outcome, Plan, Unit, execute

# Tasks in flight for each thread of the cluster: the next one waits beside the one that runs.
AHEAD = 2
CONNECT_S = 10
Done = Callable[[Mapping[Unit, Outcome]], None]


def work_on_cluster(
    address: str,
    problem: Problem,
    board: Board,
    plan: Plan,
    seen: Done = lambda done: None,
) -> None:
    """Run the units that are not done on the cluster at `address`. A worker that the cluster loses
    is the cluster's to replace; units done before this process is killed stay done.

    The problem travels with the tasks, so that a worker needs dse, but no space file and no
    hardware data. Raises InputError without the library, without an answer at the address, and for
    workers of another version of dse.
    """
    with _client(address) as client:
        _same_version(client)
        held: dict[str, tuple[Claim, ExitStack]] = {}
        ready = _distributed().as_completed(loop=client.loop)
        problem_there = client.scatter(problem, broadcast=True, hash=False)
        plan_there = client.scatter(plan, broadcast=True, hash=False)

        def fill() -> bool:
            """Submit units as far as the cluster has room; False when there is none to submit."""
            room = AHEAD * sum(client.nthreads().values()) - len(held)
            for _ in range(max(room, 1 - len(held))):
                claim = board.claim(plan.units)
                if claim is None:
                    return bool(held)
                kept = ExitStack()
                kept.enter_context(board.kept(claim))
                future = client.submit(_run, problem_there, plan_there, claim.unit, pure=False)
                held[future.key] = claim, kept
                ready.add(future)
            return True

        try:
            _collect(board, plan, held, ready, fill, seen)
        finally:
            for claim, kept in held.values():
                kept.close()
                board.give_up(claim)


def _collect(
    board: Board,
    plan: Plan,
    held: dict[str, tuple[Claim, ExitStack]],
    ready: Any,
    fill: Callable[[], bool],
    seen: Done,
) -> None:
    while True:
        while fill() and held:
            future = next(ready)
            outcome = future.result()
            claim, kept = held.pop(future.key)
            kept.close()
            board.complete(claim, outcome)
            seen(board.done())
        done = board.done()
        seen(done)
        if all(unit in done for unit in plan.units):
            return
        time.sleep(1.0)  # another process does the rest, or its lease runs out


def _run(problem: Problem, plan: Plan, unit: Unit) -> Outcome:
    return execute(problem, plan, unit)


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        client = _distributed().Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address!r}: {error or type(error).__name__}",
            field="--cluster",
            accepted="the address that `dask scheduler` prints, as tcp://host:8786",
        ) from error
    with client:
        yield client


def _distributed() -> Any:
    """The library, an extra of this package."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise InputError(
            "a Dask cluster needs the library distributed, which is not installed",
            field="--cluster",
            accepted="pip install distributed",
        ) from error


def _same_version(client: Any) -> None:
    try:
        versions = client.run(_version)
    except Exception as error:  # whatever a worker without dse, or with another, raises there
        raise InputError(
            f"the workers of the cluster have no dse: {error}",
            field="--cluster",
            accepted=f"workers with dse {__version__} installed",
        ) from error
    if not versions:
        raise InputError(
            "the cluster has no workers",
            field="--cluster",
            accepted="a cluster with `dask worker ADDRESS` running",
        )
    other = {worker: found for worker, found in versions.items() if found != __version__}
    if other:
        worker, found = min(other.items())
        raise StorageError(
            f"--cluster: {worker} has dse {found}, this is {__version__}; a study is of one version"
        )


def _version() -> str:
    return __version__
