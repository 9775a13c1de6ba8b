"""Database servers of one's own: on a free loopback port, not as root, gone afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
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
    """A program of a server; Debian keeps them off the PATH."""
    found = [*Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), *Path("/usr/sbin").glob(name)]
    return shutil.which(name) or (str(max(found)) if found else None)


def unprivileged(preferred: str) -> str | None:
    """Whom to run as: the servers refuse root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return preferred if preferred in names else "nobody"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def folder(prefix: str, user: str | None) -> Iterator[Path]:
    """Not below pytest's, which nobody but its owner may enter."""
    root = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        if user is not None:
            shutil.chown(root, user)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def answering(
    command: list[object],
    port: int,
    user: str | None,
    root: Path,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[int]:
    """A server that runs and takes connections; yields its port."""
    running = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, cwd=root
    )
    try:
        until = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < until and running.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port
    finally:
        running.send_signal(stop)
        running.wait(30)


@contextlib.contextmanager
def postgres_data(initdb: str) -> Iterator[Callable[[str], contextlib.AbstractContextManager[int]]]:
    """What a server keeps: yields what runs the program POSTGRES on it, more than once."""
    user = unprivileged("postgres")
    with folder("dse-postgres-", user) as root:
        data, secret, port = root / "data", root / "secret", free_port()
        secret.write_text(PASSWORD, encoding="utf-8")
        if user is not None:
            shutil.chown(secret, user)
        subprocess.run(
            [initdb, "-D", data, "-U", "dse", "--auth=scram-sha-256", f"--pwfile={secret}"],
            check=True, capture_output=True, user=user, cwd=root,
        )  # fmt: skip

        def run(postgres: str) -> contextlib.AbstractContextManager[int]:
            command = [postgres, "-D", data, "-k", root, "-h", "127.0.0.1", "-p", str(port)]
            # SIGTERM would wait until every client has gone.
            return answering(command, port, user, root, signal.SIGINT)

        yield run


@contextlib.contextmanager
def postgres_server(initdb: str, postgres: str) -> Iterator[int]:
    with postgres_data(initdb) as run, run(postgres) as port:
        yield port


@contextlib.contextmanager
def mysql_server(install: str, server: str) -> Iterator[int]:
    """MariaDB, which speaks MySQL's protocol."""
    user = unprivileged("mysql")
    with folder("dse-mysql-", user) as root:
        port, start = free_port(), root / "start.sql"
        start.write_text(
            f"CREATE USER dse@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO dse@'127.0.0.1';\n",
            encoding="utf-8",
        )
        start.chmod(0o644)
        own = [f"--datadir={root}/data", "--no-defaults"]
        subprocess.run(
            [install, own[1], own[0], "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, user=user, cwd=root,
        )  # fmt: skip
        command = [
            server, own[1], own[0], f"--socket={root}/socket", "--bind-address=127.0.0.1",
            f"--port={port}", "--skip-name-resolve", f"--init-file={start}",
            f"--pid-file={root}/pid",
        ]  # fmt: skip
        with answering(command, port, user, root):
            yield port


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL server here: sh tests/extra/install.sh installs Debian's")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("no driver for PostgreSQL here: pip install '.[postgres]'")
    with postgres_server(initdb, postgres) as port:
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


@pytest.fixture
def mysql_url() -> Iterator[str]:
    """An empty database of a MySQL server, with the password in the URL."""
    install, server = program("mariadb-install-db"), program("mariadbd")
    if install is None or server is None:
        pytest.skip("no MySQL server here: sh tests/extra/install.sh installs Debian's MariaDB")
    if importlib.util.find_spec("pymysql") is None:
        pytest.skip("no driver for MySQL here: pip install '.[mysql]'")
    import pymysql

    with mysql_server(install, server) as port:
        login = {"host": "127.0.0.1", "port": port, "user": "dse", "password": PASSWORD}
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                with pymysql.connect(**login) as connection:
                    connection.cursor().execute("CREATE DATABASE studies")
                break
            except pymysql.MySQLError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield f"mysql://dse:{PASSWORD}@127.0.0.1:{port}/studies"
