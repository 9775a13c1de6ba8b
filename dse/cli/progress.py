"""Progress of work that takes a while, on standard error."""

from __future__ import annotations

import time

import click

QUIET_S = 2.0


class Progress:
    """A line every two seconds, none before the first two."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self.last >= QUIET_S:
            self.last = time.monotonic()
            click.echo(text, err=True)


class CountProgress:
    """The same of work that is counted, in `unit`."""

    def __init__(self, unit: str = "") -> None:
        self.say = Progress()
        self.unit = f" {unit}" if unit else ""

    def __call__(self, what: str, done: int, total: int) -> None:
        self.say(f"{what}: {done:,} of {total:,}{self.unit}")
