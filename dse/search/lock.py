"""One process writes a study folder at a time."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dse.errors import StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = "run.lock"
LEFT = "journal.log.lock"  # what a killed process leaves beside its journal


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Makes the folder. Raises StorageError where it cannot be used, or another process is in such
    a block. The system frees the lock of a process that has ended, whatever ended it; where it
    locks no files, nothing is held."""
    path = folder / LOCK
    with ExitStack() as files:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            while True:
                file = files.enter_context(path.open("a+", encoding="utf-8"))
                if not _locked(file.fileno()):
                    file.seek(0)
                    raise StorageError(
                        f"{folder} is being written by {file.read() or 'another process'}; wait "
                        "for it, or use another folder (--out)"
                    )
                if _stands(path, file.fileno()):
                    break
            file.truncate(0)
            file.write(f"process {os.getpid()} of {socket.gethostname()}")
            file.flush()
            (folder / LEFT).unlink(missing_ok=True)
        except OSError as error:
            said = f"cannot use {folder} as a study folder: {error.strerror}"
            raise StorageError(said) from error
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def _stands(path: Path, file: int) -> bool:
    """Whether whoever had the lock has not removed the file meanwhile."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _locked(file: int) -> bool:
    """Locks an open file; False where another process has it locked. Copies of this process do not
    share its lock (lockf(3)), and so cannot keep it when this one is killed."""
    if fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # else a disk without locks
            return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True
