"""The journal file of a study: many trials in one write, and read once without repeated work."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import patch

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages import BaseStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState

from dse.errors import StorageError
from dse.files import full_path

LOCK = ".lock"  # behind the name of a journal
GRACE_S = 10  # a lock that did not change for so long was left by a process that was killed
_DISTRIBUTIONS, _PARAMS = b'"distributions":{', b'},"params":'
_MOST_PARTS = 4_096
OPERATIONS = {int(operation) for operation in JournalOperation}
_READ = (
    "optuna.storages.journal._storage.json_to_distribution",
    "optuna.distributions.json_to_distribution",
)
_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Row:
    """A finished trial as a storage keeps it: its values; of each axis that applies the number of
    its value and the JSON of its distribution (`kinds` is one object for all rows of the same
    axes); its attributes, constraints among those of the system."""

    values: list[float]
    params: dict[str, int]
    kinds: dict[str, str]
    user_attrs: dict[str, Any]
    system_attrs: dict[str, Any]


class JournalFile(JournalFileBackend):
    """Optuna's journal, which syncs the disk at every operation, with one sync for many where that
    is enough, and with the line cut off that a killed writer left unfinished: the next writer would
    continue that line, and no reader could go beyond it."""

    def __init__(self, path: Path) -> None:
        location = full_path(path)
        self._guard = JournalFileOpenLock(location, GRACE_S)
        super().__init__(location, lock_obj=self._guard)
        self._held: BinaryIO | None = None
        self._read = (0, 0)  # logs handed out so far, and the offset behind the last of them
        self._parts: dict[bytes, dict[str, str]] = {}

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The logs from that number on, up to the last whole line."""
        number, offset = self._read if self._read[0] == log_number_from else (0, 0)
        with open(self._file_path, "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                number, offset = number + 1, offset + len(line)
                if number > log_number_from:
                    self._read = number, offset
                    yield self._entry(number, line)

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        """Raises StorageError for a line that Optuna cannot have written."""
        try:
            log = self._decode(line)
            if log["op_code"] in OPERATIONS:
                return log
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        raise StorageError(
            f"{self._file_path}:{number}: no entry of a journal; the {number - 1:,} before it are "
            f"whole: `head -n {number - 1}` of the file keeps them, --fresh starts anew"
        )

    def _decode(self, line: bytes) -> dict[str, Any]:
        """A line as JSON. The distributions are most of a trial and the same in almost all: each
        distinct text is parsed once. Quotes inside JSON strings are escaped, so that the marks
        stand nowhere but between the fields of a trial."""
        start, end = line.find(_DISTRIBUTIONS), line.find(_PARAMS)
        if not 0 <= start < end:
            return json.loads(line)
        text = line[start + len(_DISTRIBUTIONS) - 1 : end + 1]
        if text not in self._parts:
            if len(self._parts) >= _MOST_PARTS:
                self._parts.clear()
            self._parts[text] = json.loads(text)
        log = json.loads(line[:start] + line[end + len(_PARAMS) - len(b'"params":') :])
        return log | {"distributions": self._parts[text]}

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._append("".join(_json(log) + "\n" for log in logs))

    def append_trials(self, rows: Sequence[Row], **common: Any) -> None:
        """The lines that Optuna would write of finished trials, in one write; `common` are the
        fields that they share. The JSON of distributions is made once for each object."""
        now = datetime.now(tz=UTC).isoformat(timespec="microseconds")
        state = {"datetime_start": now, "datetime_complete": now, "state": TrialState.COMPLETE}
        head = _json({"op_code": JournalOperation.CREATE_TRIAL, **common, **state})[:-1]
        kinds = {id(row.kinds): _json(row.kinds) for row in rows}

        def line(row: Row) -> str:
            several = len(row.values) > 1
            value = {"value": None if several else row.values[0]}
            rest = {
                "params": row.params,
                "user_attrs": row.user_attrs,
                "system_attrs": row.system_attrs,
                "intermediate_values": {},
                **value,
                "values": row.values if several else None,
            }
            return f'{head},"distributions":{kinds[id(row.kinds)]},{_json(rest)[1:]}\n'

        self._append("".join(map(line, rows)))

    def _append(self, lines: str) -> None:
        with self.gathering() if self._held is None else nullcontext(self._held) as file:
            file.write(lines.encode())
            file.flush()

    @contextmanager
    def gathering(self) -> Iterator[BinaryIO]:
        """Holds the lock for the block and syncs the disk once, at its end; gives the file, at its
        last whole line."""
        self._guard.acquire()
        try:
            with open(self._file_path, "r+b") as file:
                _to_last_line(file.fileno())
                file.seek(0, os.SEEK_END)
                self._held = file
                yield file
                os.fsync(file.fileno())
        finally:
            self._held = None
            with suppress(RuntimeError):  # held for so long that another took it for left
                self._guard.release()

    def mend(self) -> None:
        """Cut off an unfinished last line. Raises StorageError for a file that is no journal."""
        with open(self._file_path, "rb") as file:
            if not file.readline().startswith(b'{"op_code":'):
                raise StorageError(f"{self._file_path}: not an Optuna journal; name another file")
        with self.gathering():
            pass


def _to_last_line(file: int, block: int = 1 << 16) -> None:
    """Truncate to the end of the last whole line. The caller holds the lock."""
    end = size = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - block)
        os.lseek(file, start, os.SEEK_SET)
        place = os.read(file, end - start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)


def journal_of(storage: BaseStorage) -> JournalFile | None:
    """The journal file of a storage, if it is one."""
    backend = getattr(storage, "_backend", None)
    return backend if isinstance(backend, JournalFile) else None


@contextmanager
def gathered_writes(storage: BaseStorage) -> Iterator[None]:
    """Trials added to a journal inside the block reach the disk together; a database is left as it
    is. Others wait for the lock meanwhile, so a block should take seconds at most."""
    journal = journal_of(storage)
    with nullcontext() if journal is None else journal.gathering():
        yield


@contextmanager
def many_trials() -> Iterator[None]:
    """Inside the block Optuna parses each distinct distribution once instead of once for every
    parameter of every trial, and nothing looks for garbage among the objects that stay: together
    most of the time of a large study. Distributions are never changed after they are made."""
    parse = lru_cache(maxsize=4096)(_parse)
    collects = gc.isenabled()
    gc.disable()
    try:
        with ExitStack() as patches:
            for place in _READ:
                patches.enter_context(patch(place, parse))
            yield
    finally:
        if collects:
            gc.enable()


def _parse(text: str, convert: Any = json_to_distribution) -> BaseDistribution:
    return convert(text)
