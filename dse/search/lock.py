"""The lock of a journal file, which says who holds it: what a killed process left is taken at once.

It is the file beside the journal that Optuna's own locks make (`journal.log.lock`), so that each
waits for the other; the process that makes it writes its name into it.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from optuna.storages.journal import JournalFileOpenLock

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# A lock of a process of which nothing can be known (on another machine, of a program that does not
# say so, where the system does not say when a process began, or where files cannot be locked) is
# taken for one that was left when neither it nor the journal changed for so long.
GRACE_S = 10.0
_POLL_S = (0.001, 0.1)


@cache
def machine() -> str:
    """This machine since it started, as the processes of one container or of none see it."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def process(pid: int) -> str:
    """A process of this machine: its number, and where known when it began, as numbers are used
    again."""
    began = ""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
        began = status.rpartition(")")[2].split()[19]
    return f"{pid} {began}".strip()


def is_gone(where: str, who: str) -> bool:
    """Whether the process `who` of the machine `where` has certainly ended."""
    if where != machine() or os.name == "nt" or not who:
        return False
    pid = int(who.partition(" ")[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return process(pid) != who


class JournalLock(JournalFileOpenLock):
    """The lock of the journal at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__(path, None)
        self._journal, self._path = path, f"{path}.lock"

    def acquire(self) -> bool:
        """Waits until it is free, or left. Raises OSError where it cannot be made."""
        seen, since, wait = None, time.monotonic(), _POLL_S[0]
        while not self._made():
            state = self._state()
            if state != seen:
                seen, since = state, time.monotonic()
            old = time.monotonic() - since > GRACE_S
            if state is None or not self._taken(old):
                time.sleep(wait)
                wait = min(2.0 * wait, _POLL_S[1])
        return True

    def release(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _made(self) -> bool:
        try:
            file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        except PermissionError:
            if os.name != "nt":  # Windows refuses while another process removes the file
                raise
            return False
        try:
            os.write(file, f"{machine()}\n{process(os.getpid())}\n".encode())
        finally:
            os.close(file)
        return True

    def _state(self) -> tuple[int, ...] | None:
        """What changes while its owner works; None where it is free."""
        with suppress(OSError):
            lock, journal = os.lstat(self._path), os.stat(self._journal)
            return lock.st_ino, lock.st_mtime_ns, journal.st_mtime_ns, journal.st_size
        return None

    def _taken(self, old: bool) -> bool:
        """Whether a lock that was left has been removed. Of several processes that see it is one
        at a time: another may have made it anew meanwhile."""
        if fcntl is None or os.path.islink(self._path):
            return self._removed(old)
        try:
            try:  # network folders lock exclusively only what may be written
                file = os.open(self._path, os.O_RDWR)
            except PermissionError:  # of another user
                file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError:
            return self._removed(old)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            where, _, who = os.read(file, 4096).decode("utf-8", "replace").partition("\n")
            there = os.path.samestat(os.fstat(file), os.stat(self._path))
            # Without a beginning a process that has its number now cannot be told from it.
            unknown = where != machine() or " " not in who.strip()
            left = is_gone(where, who.strip()) or (old and unknown)
            if there and left:
                os.unlink(self._path)
            return there and left
        except FileNotFoundError:
            return False
        except (OSError, ValueError):  # no file locks in this folder, or no name that can be read
            return self._removed(old)
        finally:
            os.close(file)

    def _removed(self, old: bool) -> bool:
        if old:
            self.release()
        return old
