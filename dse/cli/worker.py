"""dse worker: join a study from another process or machine."""

from __future__ import annotations

import time
from typing import Any

import click

from dse.cli.options import (
    Whole,
    efficiency_option,
    law_option,
    lease_option,
    loss_runs_option,
    price_options,
    space_catalog,
)
from dse.cli.printing import say


@click.command("worker")
@click.argument("space")
@click.option(
    "--storage", required=True, help="Storage of the study: postgresql://user@host/database."
)
@click.option("--engine", help="As in `dse run`; the study's own if left out.")
@click.option("--seed", type=Whole(0, 2**63 - 1), help="The same.")
@click.option("--trials", type=Whole(1, 10_000_000), help="Make the study this large at least.")
@law_option("As in `dse run`; the space's own if left out.")
@loss_runs_option
@lease_option
@efficiency_option
@price_options
def command(space: str, storage: str, lease: int, **asked: Any) -> None:
    """Join the study of SPACE (a shipped name or a file), and do work units until none is left.

    \b
    dse run quickstart --engine exhaustive --storage postgresql://dse@server/studies
    dse worker quickstart --storage postgresql://dse@server/studies

    Start any number, in any order, one for each core; stop or kill any of them at any time: what it
    had begun is done by another after the lease. The report is written by `dse run`. The space
    file, the version of dse and the hardware data must be those of the study. A password belongs
    into ~/.pgpass, or into the URL, where others of this machine can see it.
    """
    from dse.search.storage import shown
    from dse.study.join import join

    started = last = time.monotonic()

    def progress(done: int, total: int | None, front: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 10.0:
            last = now
            click.echo(f"{done:,} points of this unit evaluated; front {front:,}", err=True)

    catalog = space_catalog(space)
    done = join(space, catalog, storage, lease_s=float(lease), progress=progress, **asked)
    seconds = time.monotonic() - started
    say(f"{done} work units done in {seconds:.1f} s; nothing is left to do in {shown(storage)}.")
