"""Progress of work that is counted in shapes."""

from __future__ import annotations

import time

import click

QUIET_S = 2.0


class ShapeProgress:
    """A line to standard error every two seconds, none before the first two."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.last >= QUIET_S:
            self.last = time.monotonic()
            click.echo(f"{what}: {done:,} of {total:,} shapes served", err=True)


class CountProgress:
    """The same of work that is counted in anything."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.last >= QUIET_S:
            self.last = time.monotonic()
            click.echo(f"{what}: {done:,} of {total:,}", err=True)
