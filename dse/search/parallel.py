"""Where work runs: in this process, in copies of it, or on a Dask cluster.

NumPy gives up the interpreter's lock around every operation on a large array and takes it again
behind it, so that threads wait for each other more than they compute. A copy (`fork`) has the
problem already; it computes, answers, and touches no storage, file or terminal. Where a process
cannot be copied safely, threads do the work: on systems other than Linux, or while it has threads
of its own, as in a notebook. On a cluster a task may run on any machine; the scheduler gives a task
of a lost worker to another.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import Any, TypeVar

from dse import __version__
from dse.errors import InputError, StorageError

A = TypeVar("A")
B = TypeVar("B")
ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG (prctl(2))
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_NO_GNU_ALLOCATOR = (OSError, AttributeError, TypeError)  # nor a library of the process itself
AHEAD = 2  # items of a worker that are given out before their turn
CONNECT_S = 10


@dataclass(frozen=True, slots=True)
class Executor:
    """`jobs` processes of this machine, or the `client` of a Dask cluster."""

    jobs: int = 2
    client: Any = None

    @property
    def workers(self) -> int:
        """Items that are worked on at once."""
        return self.jobs if self.client is None else max(1, sum(self.client.nthreads().values()))

    def map(self, work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """`work` of every item, in order. Items are small: a number, a range. What `work` changes
        is lost where it runs elsewhere. Raises what it raises, and StorageError where a process
        was killed or the cluster is gone."""
        if self.client is None:
            return mapped(work, items, self.jobs)
        return _on_cluster(self.client, work, items, AHEAD * self.workers)


HERE, DEFAULT = Executor(jobs=1), Executor()


@contextmanager
def opened(jobs: int, cluster: str | None = None) -> Iterator[Executor]:
    """The executor of `--jobs` and `--cluster`. Raises InputError for a cluster that does not
    answer, has no workers, or workers of another version of dse."""
    if cluster is None:
        yield Executor(jobs)
        return
    accepted = "the address that `dask scheduler` prints, as tcp://host:8786"
    try:
        distributed = importlib.import_module("distributed")
        # What it logs is raised here, too.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        client = distributed.Client(cluster, timeout=CONNECT_S, set_as_default=False)
    except ImportError as error:
        raise InputError(
            "a Dask cluster needs the library distributed, which is not installed",
            field="--cluster",
            accepted="pip install distributed",
        ) from error
    except (OSError, ValueError, TimeoutError) as error:
        said = f"no Dask scheduler answers at {cluster!r}: {error or type(error).__name__}"
        raise InputError(said, field="--cluster", accepted=accepted) from error
    with client:
        _same_version(client)
        yield Executor(jobs, client)


def _same_version(client: Any) -> None:
    accepted = f"workers with dse {__version__} installed: `dask worker ADDRESS`"
    try:
        versions = client.run(_version)
    except Exception as error:  # whatever a worker without dse, or with another, raises there
        said = f"the workers of the cluster have no dse: {error}"
        raise InputError(said, field="--cluster", accepted=accepted) from error
    if not versions:
        raise InputError("the cluster has no workers", field="--cluster", accepted=accepted)
    for worker, version in sorted(versions.items()):
        if version != __version__:
            said = f"{worker} has dse {version}, a study is of one version"
            raise InputError(said, field="--cluster", accepted=accepted)


def _version() -> str:
    return __version__


def _on_cluster(client: Any, work: Callable[[A], B], items: Iterable[A], most: int) -> Iterator[B]:
    """At most `most` tasks in flight. The work itself is the result of a task, so that the
    scheduler can make it again where the worker that had it is lost."""
    # of the extra [cluster]
    distributed, cloudpickle = map(importlib.import_module, ("distributed", "cloudpickle"))
    lost = distributed.CancelledError, distributed.comm.CommClosedError
    items = iter(items)
    waiting: deque[Any] = deque()
    try:
        there = client.submit(pickle.loads, cloudpickle.dumps(work), pure=False)
        while True:
            free = islice(items, most - len(waiting))
            waiting += [client.submit(_done, there, item, pure=False) for item in free]
            if not waiting:
                return
            yield waiting.popleft().result()
    except (*lost, distributed.KilledWorker) as error:
        said = "the scheduler is lost" if isinstance(error, lost) else str(error)
        raise StorageError(
            f"--cluster: work was interrupted: {said}; what a study has stored is kept, run it "
            "again to go on"
        ) from error
    finally:
        for future in waiting:
            future.release()


def _done(work: Callable[[A], B], item: A) -> B:
    hold_memory()
    return work(item)


@cache
def hold_memory() -> None:
    """Has the GNU allocator keep what arrays free, for the next ones: it would give each back to
    the system and take it again, page by page, which costs a third of an evaluation. Elsewhere
    nothing."""
    with suppress(*_NO_GNU_ALLOCATOR):
        mallopt = ctypes.CDLL(None).mallopt
        for setting, bytes_ in ((M_MMAP_THRESHOLD, 1 << 26), (M_TRIM_THRESHOLD, 1 << 30)):
            mallopt(setting, bytes_)


def _give_memory_back() -> None:
    """Else a copy of this process writes first to pages that both have, each copied for it."""
    with suppress(*_NO_GNU_ALLOCATOR):
        ctypes.CDLL(None).malloc_trim(0)


def mapped(work: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """`work` of every item, in order, a few of them ahead, by no more workers than there are items;
    done here where that is one. Items are small: a number, a range. What `work` changes is lost
    where it runs in a copy. Raises what it raises, and StorageError where a copy was killed."""
    every = iter(items)
    first = list(islice(every, workers))
    every = chain(first, every)
    if len(first) < 2:
        return map(work, every)
    copied = sys.platform == "linux" and threading.active_count() == 1
    return (_copied if copied else threaded)(work, every, len(first))


def threaded(work: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """The same in threads alone: where what is found is too large to send."""
    with ThreadPoolExecutor(workers) as pool:
        yield from _in_order(pool, work, items, workers)


def _in_order(
    pool: futures.Executor, work: Callable[[A], B], items: Iterable[A], workers: int
) -> Iterator[B]:
    items = iter(items)
    waiting = deque(pool.submit(work, item) for item in islice(items, AHEAD * workers))
    while waiting:
        found = waiting.popleft().result()
        waiting += [pool.submit(work, item) for item in islice(items, 1)]
        yield found


def _copied(work: Callable[[Any], Any], items: Iterator[Any], workers: int) -> Iterator[Any]:
    _give_memory_back()
    others = multiprocessing.active_children()
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, fork, _begin, (work, os.getpid()))
    try:
        with warnings.catch_warnings():  # about native threads (NumPy's), idle here
            warnings.simplefilter("ignore", DeprecationWarning)
            pool.submit(os.getpid).result()  # makes all copies
        yield from _in_order(pool, _answer, items, workers)
    except BrokenProcessPool:
        raise StorageError(
            "a process of this run was killed, perhaps for lack of memory; --jobs 1 works in one "
            "process"
        ) from None
    finally:
        for copy in set(multiprocessing.active_children()) - set(others):
            copy.terminate()
        pool.shutdown(cancel_futures=True)


_inherited: list[Callable[[Any], Any]] = []  # the work of a copy, which no pickle has to carry


def _begin(work: Callable[[Any], Any], parent: int) -> None:
    """What a copy does first. It ends with the process that was copied."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.simplefilter("ignore")  # said where the work was asked for, or to nobody
    ctypes.CDLL(None).prctl(ENDS_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    _inherited[:] = [work]


def _answer(item: Any) -> Any:
    try:
        return _inherited[0](item)
    except Exception as error:  # noqa: BLE001 - raised where the work was asked for
        raise _sendable(error) from None


def _sendable(error: Exception) -> Exception:
    """An error as it can be sent: itself, or what it says."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - of this very process
    except Exception:  # noqa: BLE001 - whatever pickling makes of it
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
