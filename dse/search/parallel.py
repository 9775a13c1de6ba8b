"""Work over several processes that begin as copies of this one.

NumPy gives up the interpreter's lock around every operation on a large array and takes it again
behind it, so that threads wait for each other more than they compute. A copy (`fork`) has the
problem already; it computes, answers, and touches no storage, file or terminal. Where a process
cannot be copied safely, threads do the work: on systems other than Linux, or while it has threads
of its own, as in a notebook.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, islice
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from dse.errors import StorageError

A = TypeVar("A")
B = TypeVar("B")
ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG (prctl(2))
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_NO_GNU_ALLOCATOR = (OSError, AttributeError, TypeError)  # nor a library of the process itself
AHEAD = 2  # items of a worker that are given out before their turn


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
    items = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        waiting = deque(pool.submit(work, item) for item in islice(items, AHEAD * workers))
        while waiting:
            found = waiting.popleft().result()
            waiting += [pool.submit(work, item) for item in islice(items, 1)]
            yield found


def _copied(work: Callable[[Any], Any], items: Iterator[Any], workers: int) -> Iterator[Any]:
    """Item k goes to copy k modulo `workers`, so that answers come back in order."""
    fork = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    copies = []
    _give_memory_back()
    try:
        for _ in range(workers):
            here, there = fork.Pipe()
            pipes.append(here)
            copy = fork.Process(target=_serve, args=(work, there, here, os.getpid()), daemon=True)
            with warnings.catch_warnings():  # about native threads (NumPy's), idle here
                warnings.simplefilter("ignore", DeprecationWarning)
                copy.start()
            copies.append(copy)
            there.close()
        given = taken = 0
        ahead = AHEAD * workers
        while True:
            for item in islice(items, ahead):
                with _living():
                    pipes[given % workers].send(item)
                given += 1
            if taken == given:
                return
            with _living():
                done, found = pipes[taken % workers].recv()
            if not done:
                raise found
            taken, ahead = taken + 1, 1
            yield found
    finally:
        for copy in copies:
            copy.terminate()
        for copy in copies:
            copy.join()
        for pipe in pipes:
            pipe.close()


@contextmanager
def _living() -> Iterator[None]:
    """Says as a StorageError that the copy at the other end of a pipe is gone."""
    try:
        yield
    except (EOFError, OSError):
        raise StorageError(
            "a process of this run was killed, perhaps for lack of memory; --jobs 1 works in one "
            "process"
        ) from None


def _serve(work: Callable[[Any], Any], pipe: Connection, other: Connection, parent: int) -> None:
    """Answers until the process that was copied ends it, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.simplefilter("ignore")  # said where the work was asked for, or to nobody
    ctypes.CDLL(None).prctl(ENDS_WITH_PARENT, signal.SIGKILL)
    other.close()
    with suppress(EOFError, ConnectionError):  # the other end is gone
        while os.getppid() == parent:
            item = pipe.recv()
            try:
                pipe.send((True, work(item)))
            except Exception as error:  # noqa: BLE001 - raised where the work was asked for
                pipe.send((False, _sendable(error)))


def _sendable(error: Exception) -> Exception:
    """An error as it can be sent: itself, or what it says."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - of this very process
    except Exception:  # noqa: BLE001 - whatever pickling makes of it
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
