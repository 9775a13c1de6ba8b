"""A PostgreSQL server of one's own: on a free loopback port, not as root, gone afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PASSWORD = "not-to-be-shown"  # noqa: S105 - of a server that lives for one test run
STARTS_WITHIN_S = 60.0


def program(name: str) -> str | None:
    """A PostgreSQL program; Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


def unprivileged() -> str | None:
    """Whom to run as: the server refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), "nobody")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def server(initdb: str, postgres: str) -> Iterator[int]:
    """A running server; yields its port."""
    user = unprivileged()
    # Not below pytest's folder, which nobody but its owner may enter.
    root = Path(tempfile.mkdtemp(prefix="dse-postgres-"))
    try:
        data, secret, port = root / "data", root / "secret", free_port()
        secret.write_text(PASSWORD, encoding="utf-8")
        if user is not None:
            for path in (root, secret):
                shutil.chown(path, user)
        subprocess.run(
            [initdb, "-D", data, "-U", "dse", "--auth=scram-sha-256", f"--pwfile={secret}"],
            check=True, capture_output=True, user=user, cwd=root,
        )  # fmt: skip
        running = subprocess.Popen(
            [postgres, "-D", data, "-k", root, "-h", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, cwd=root,
        )  # fmt: skip
        try:
            until = time.monotonic() + STARTS_WITHIN_S
            while time.monotonic() < until and running.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            yield port
        finally:
            running.terminate()
            running.wait(30)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL server here: sh tests/extra/install.sh installs Debian's")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("no driver for PostgreSQL here: pip install 'dse[postgres]'")
    with server(initdb, postgres) as port:
        yield port


@pytest.fixture
def database(postgres_port: int) -> Callable[[str], str]:
    """Makes an empty database and gives its URL, with the password."""
    import psycopg

    def make(name: str) -> str:
        login = f"host=127.0.0.1 port={postgres_port} user=dse password={PASSWORD}"
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                with psycopg.connect(f"{login} dbname=postgres", autocommit=True) as connection:
                    connection.execute(f'CREATE DATABASE "{name}"')
                return f"postgresql://dse:{PASSWORD}@127.0.0.1:{postgres_port}/{name}"
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    return make
