"""Where a study is kept: a journal file, or a database that any number of machines can reach.

SQLAlchemy, a seventh of a second to start, is imported where a database is meant."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage

from dse.errors import StorageError
from dse.files import full_path
from dse.search.journal import JournalFile

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

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
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
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
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        return [location]
    hidden = [url.password, *(v for k, v in url.query.items() if k.lower() in _HIDDEN)]
    plain = [str(secret) for secret in hidden if secret]
    # As it stands in the URL, which need not be how it is quoted here.
    written = location.rsplit("@", 1)[0].split("://", 1)[1].partition(":")[2]
    forms = [*plain, *(quote(secret, safe="") for secret in plain), written if url.password else ""]
    return sorted(filter(None, forms), key=len, reverse=True)


def _parsed(location: str) -> URL:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise StorageError(
            f"{shown(location)}: cannot be used as storage: not the URL of a database (accepted: "
            "postgresql://user@host/database, mysql://..., sqlite:///file, or a path)"
        ) from None
    if url.get_backend_name() not in DIALECTS:
        raise StorageError(
            f"{shown(location)}: cannot be used as storage: no such database (accepted: "
            + ", ".join(f"{name}://..." for name in DIALECTS)
            + " or a path)"
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
