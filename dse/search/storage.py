"""Where a study is kept: a journal file, or a database that any number of machines can reach.

The journal has many trials in one write.

A database takes many trials in one transaction. Optuna's own `add_trial` is a transaction of some
60 statements, 0.1 to 0.3 s on a server. The tables are those of schema 12, of Optuna 3 to 5;
another schema is left to Optuna. A transaction holds the row of the study, as Optuna does when it
numbers a trial, so that what others stored is known before a trial is: no point is stored twice,
and of a killed writer nothing stays. SQLAlchemy, a seventh of a second to start, is imported where
a database is meant.

One process writes a study folder at a time.
"""

from __future__ import annotations

import errno
import gc
import json
import mmap
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from unittest.mock import patch
from urllib.parse import quote

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState

from dse.errors import StorageError
from dse.files import full_path

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

GRACE_S = 10  # a lock that did not change for so long was left by a process that was killed
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
            log = json.loads(line)
            if log["op_code"] in OPERATIONS:
                return log
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        raise StorageError(
            f"{self._file_path}:{number}: no entry of a journal; the {number - 1:,} before it are "
            f"whole: `head -n {number - 1}` of the file keeps them, --fresh starts anew"
        )

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


def _to_last_line(file: int) -> None:
    """Truncate to the end of the last whole line. The caller holds the lock."""
    if size := os.fstat(file).st_size:
        with mmap.mmap(file, size, access=mmap.ACCESS_READ) as text:
            end = text.rfind(b"\n") + 1
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


DIALECTS = ("postgresql", "mysql", "sqlite")
# What SQLAlchemy imports for each, and what installs it.
DRIVERS = {
    "postgresql": ("postgresql+psycopg", "pip install 'psycopg[binary]'"),
    "mysql": ("mysql+pymysql", "pip install pymysql"),
}
SQLITE_WAIT_S = 60
TRIES = 10
# What damaged content fails with: a number without a value, a list in the place of a text.
DAMAGED = (LookupError, TypeError, ValueError)
_HIDDEN = {"password", "sslpassword", "passwd"}
# A password where none belongs, in options or in a host; and a URL that lost its slashes.
_NAMED = re.compile(r"(pass\w*|pwd|secret)(\s*=\s*|%3D)[^\s&'\"]+", re.IGNORECASE)
_NEARLY = re.compile(r"(?:[\w+]{2,}:[^:@]*(?::[^@]*)?|[\w+]+(?://[^:@/]*)?:[^@/]*)@")


def open_storage(location: str | Path, fresh: bool = False) -> BaseStorage:
    """A database for a URL, else a journal file at a path, created when missing; `fresh` removes
    the file first.

    A lock that a killed run left on a journal is taken at once, that of another machine after 10 s.
    Raises StorageError for a URL that names no database and for a file that is not a journal, and
    what the driver raises.
    """
    location = str(location)
    if is_url(location):
        return _database(_parsed(location))
    if _NEARLY.match(location):
        _parsed(location)
    path = Path(full_path(location))
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise StorageError(f"{path}: cannot be used as storage: it is no file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        path.unlink(missing_ok=True)
    journal = JournalFile(path)
    if path.stat().st_size:
        journal.mend()
    return JournalStorage(journal)


def failures() -> tuple[type[Exception], ...]:
    """What a storage fails with, of which damaged content is one cause."""
    return (OSError, ImportError, *DAMAGED, *lost())


def damaged(text: object) -> str:
    """What to say of damaged content, and to do about it."""
    return f"what is stored there is damaged ({text}); --fresh begins anew"


def lost() -> tuple[type[Exception], ...]:
    """What a database fails with that was there."""
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError, StorageInternalError


def is_url(location: str | Path) -> bool:
    return "://" in str(location)


def shown(location: str | Path) -> str:
    """A location without its password: in messages, files and commands. The driver takes one from
    its own places where a URL has none (~/.pgpass)."""
    location = str(location)
    if not is_url(location) and not _NEARLY.match(location):
        return location
    if (url := _url(location)) is None:
        return location.split(":", 1)[0] + "://..."
    query = {key: value for key, value in url.query.items() if key.lower() not in _HIDDEN}
    return _without_named(url.set(query=query)._replace(password=None).render_as_string())


def _without_named(text: str) -> str:
    return _NAMED.sub(r"\1\2...", text)


def in_words(location: str | Path, what: str, error: BaseException) -> str:
    """`LOCATION: what: why` without the password, whatever the driver put into its message."""
    location = str(location)
    if isinstance(error, ImportError) and is_url(location):
        dialect = _parsed(location).get_backend_name()
        how = DRIVERS.get(dialect, ("", "install its driver"))[1]
        return f"{shown(location)}: {what}: no driver for {dialect} is installed; {how}"
    # The driver's own message says more than the one that Optuna wraps it in.
    causes = (error, error.__cause__, error.__context__)
    inner = (getattr(cause, "orig", None) for cause in causes)
    orig = next((cause for cause in inner if cause is not None), error)
    text = " ".join(str(orig).split()) or type(error).__name__
    if isinstance(orig, LookupError | TypeError):
        text = damaged(text)
    for secret in _secrets(location):
        text = text.replace(secret, "...")
    return f"{shown(location)}: {what}: {_without_named(text)}"


@contextmanager
def in_use(location: str | Path) -> Iterator[None]:
    """Says as a StorageError that a database was lost inside the block."""
    try:
        yield
    except lost() as error:
        raise StorageError(in_words(location, "work was interrupted", error)) from error


def _secrets(location: str) -> list[str]:
    if not is_url(location):
        return []
    if (url := _url(location)) is None:
        return [location]
    hidden = [url.password, *(v for k, v in url.query.items() if k.lower() in _HIDDEN)]
    plain = [str(secret) for secret in hidden if secret]
    # As it stands in the URL, which need not be how it is quoted here.
    written = location.rsplit("@", 1)[0].split("://", 1)[1].partition(":")[2]
    forms = [*plain, *(quote(secret, safe="") for secret in plain), written if url.password else ""]
    return sorted(filter(None, forms), key=len, reverse=True)


def _url(location: str) -> URL | None:
    """None where it is no URL of SQLAlchemy."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(location)
    except (ArgumentError, ValueError):
        return None


def _parsed(location: str) -> URL:
    url = _url(location)
    if url is None or url.get_backend_name() not in DIALECTS:
        wrong = "not the URL of a database" if url is None else "no such database"
        raise StorageError(
            f"{shown(location)}: cannot be used as storage: {wrong} (accepted: "
            "postgresql://user@host/database, mysql://..., sqlite:///file, or a path)"
        )
    return url


def _database(url: URL) -> BaseStorage:
    from optuna.storages import RDBStorage, get_storage
    from sqlalchemy.pool import NullPool

    if url.drivername in DRIVERS:
        url = url.set(drivername=DRIVERS[url.drivername][0])
    if url.get_backend_name() == "sqlite":
        # A file is opened in no time, and nobody closes what a pool holds.
        options = {"connect_args": {"timeout": SQLITE_WAIT_S}, "poolclass": NullPool}
    else:
        options = {"pool_pre_ping": True}
    address = url.render_as_string(hide_password=False)
    for left in reversed(range(TRIES)):
        try:
            return get_storage(RDBStorage(address, engine_kwargs=options))
        except lost() as error:
            # Two processes that are first both create Optuna's tables, and one is told so.
            said = f"{error} {error.__cause__}"
            if left == 0 or not ("exist" in said or "Duplicate entry" in said):
                raise
            time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - no secret
    raise AssertionError("not reached")


SCHEMA = 12
Stored = list[tuple[int, str]]  # (id, stage) of trials


class Tables:
    """The trials of one study in a database."""

    def __init__(self, engine: Engine, study: int) -> None:
        self._engine, self._study = engine, study
        self._last = -1

    def new(self) -> Stored:
        """What anyone stored since the last look."""
        with self._engine.connect() as connection:
            return self._new(connection)

    def add(self, make: Callable[[Stored], Sequence[Row]]) -> None:
        """Store the trials that `make` gives when told of those stored meanwhile."""
        from optuna.storages._rdb import models
        from sqlalchemy import update

        with self._engine.begin() as connection:
            study = models.StudyModel.__table__
            ours = study.c.study_id == self._study
            connection.execute(update(study).where(ours).values(study_name=study.c.study_name))
            trials = make(self._new(connection))
            if trials:
                self._last = _insert(connection, self._study, trials)

    def _new(self, connection: Connection) -> Stored:
        from optuna.storages._rdb import models
        from sqlalchemy import select

        trial, attr = models.TrialModel.__table__, models.TrialUserAttributeModel.__table__
        rows = connection.execute(
            select(attr.c.trial_id, attr.c.key, attr.c.value_json)
            .join(trial, trial.c.trial_id == attr.c.trial_id)
            .where(
                trial.c.study_id == self._study,
                attr.c.key.in_(("id", "stage")),
                attr.c.trial_id > self._last,
            )
        ).all()
        self._last = max((row.trial_id for row in rows), default=self._last)
        stages = {row.trial_id: row.value_json for row in rows if row.key == "stage"}
        return [
            (json.loads(row.value_json), json.loads(stages.get(row.trial_id, '""')))
            for row in rows
            if row.key == "id"
        ]


def tables_of(storage: BaseStorage, study: int) -> Tables | None:
    """None where the storage is no database of the tables known here. Optuna puts a cache around
    it."""
    from optuna.storages import RDBStorage
    from optuna.storages._rdb import models

    database = getattr(storage, "_backend", storage)
    if isinstance(database, RDBStorage) and models.SCHEMA_VERSION == SCHEMA:
        return Tables(database.engine, study)
    return None


def _insert(connection: Connection, study: int, trials: Sequence[Row]) -> int:
    """Write finished trials; return the largest trial id."""
    from optuna.storages._rdb import models
    from sqlalchemy import func, insert, select

    table = models.TrialModel.__table__
    ours = select(func.max(table.c.number)).where(table.c.study_id == study)
    last = connection.scalar(ours)
    first = 0 if last is None else last + 1
    now = datetime.now(UTC).replace(tzinfo=None)
    connection.execute(
        insert(table),
        [
            {
                "number": first + row,
                "study_id": study,
                "state": TrialState.COMPLETE,
                "datetime_start": now,
                "datetime_complete": now,
            }
            for row in range(len(trials))
        ],
    )
    written = select(table.c.trial_id).where(table.c.study_id == study, table.c.number >= first)
    ids = connection.scalars(written.order_by(table.c.number)).all()
    pairs = list(zip(ids, trials, strict=True))
    stored = models.TrialValueModel.value_to_stored_repr
    rows = (
        (
            models.TrialValueModel,
            [
                {"trial_id": i, "objective": k, "value": value, "value_type": kind}
                for i, trial in pairs
                for k, (value, kind) in enumerate(map(stored, trial.values))
            ],
        ),
        (
            models.TrialParamModel,
            [
                {
                    "trial_id": i,
                    "param_name": name,
                    "param_value": trial.params[name],
                    "distribution_json": kind,
                }
                for i, trial in pairs
                for name, kind in trial.kinds.items()
            ],
        ),
        (models.TrialUserAttributeModel, _attrs((i, t.user_attrs) for i, t in pairs)),
        (models.TrialSystemAttributeModel, _attrs((i, t.system_attrs) for i, t in pairs)),
    )
    for model, values in rows:
        if values:
            connection.execute(insert(model.__table__), values)
    return ids[-1]


def _attrs(pairs: Iterable[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"trial_id": i, "key": key, "value_json": json.dumps(value)}
        for i, attrs in pairs
        for key, value in attrs.items()
    ]


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

RUN_LOCK = "run.lock"
LEFT = "journal.log.lock"  # what a killed process leaves beside its journal


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Makes the folder. Raises StorageError where it cannot be used, or another process is in such
    a block. The system frees the lock of a process that has ended, whatever ended it; where it
    locks no files, nothing is held."""
    path = folder / RUN_LOCK
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
