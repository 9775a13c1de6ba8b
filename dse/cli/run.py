"""dse run: search a space and write its report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from dse.cli.options import (
    Whole,
    efficiency_option,
    json_option,
    lease_option,
    price_options,
    space_catalog,
)
from dse.cli.printing import print_json, print_table, say, width


@click.command("run")
@click.argument("space")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Study folder; studies/SPACE if left out.",
)
@click.option(
    "--trials", type=Whole(1, 10_000_000), help="Trials asked of the Optuna sampler (docs/search)."
)
@click.option(
    "--engine", default="auto", help="auto, exhaustive, pareto-local, nsga2, tpe, gp, qmc, random."
)
@click.option("--seed", type=Whole(0, 2**63 - 1), default=0, help="The same seed, the same front.")
@click.option("--storage", help="Optuna storage URL; a journal file in the folder if left out.")
@click.option(
    "--jobs", type=Whole(1, 256), default=2, help="Processes; up to 2 are threads of one process."
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Dask scheduler that enumerates the space: tcp://host:8786.",
)
@lease_option
@click.option("--fresh", is_flag=True, help="Forget what the folder's study holds.")
@efficiency_option
@price_options
@click.option(
    "--evaluator",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="A function of yours in place of the model, called point by point. Runs its code.",
)
@click.option(
    "--prove/--no-prove",
    default=None,
    help="Compare the front with every point of the space, up to 1e9, afterwards; or say nothing "
    "of how sure it is. Without either: what is cheap to know.",
)
@click.option(
    "--law",
    "laws",
    multiple=True,
    metavar="NAME",
    help="Quality law in place of the space's own: leverage, hoffmann, cautious, joint, abnar. all "
    "(beside it or alone): the front under each, and the choice that depends least on them.",
)
@json_option
def command(
    space: str,
    out: Path | None,
    trials: int | None,
    engine: str,
    seed: int,
    storage: str | None,
    jobs: int,
    fresh: bool,
    evaluator: str | None,
    prove: bool | None,
    cluster: str | None,
    lease: int,
    laws: tuple[str, ...],
    as_json: bool,
) -> None:
    """Search SPACE (a shipped name or a file) and write the Pareto-front report.

    \b
    dse run quickstart
    dse run my-space.yaml --out studies/mine --seed 1

    A study that was interrupted goes on where it stopped; a finished one is reported again, or
    grows by more --trials. Other machines share one through --storage postgresql://... and
    `dse worker` (docs/workers.md).
    """
    from dse.errors import InputError
    from dse.files import write_json
    from dse.quality.laws import ALL
    from dse.render import write_report
    from dse.study.folder import STUDY
    from dse.study.result import run

    own = dict.fromkeys(name for name in laws if name != ALL)
    if len(own) > 1:
        raise InputError(
            f"read {', '.join(own)}", field="--law", accepted="one law, and all beside it"
        )
    folder = out or Path("studies") / (Path(space).stem.strip(".") or "study")
    with _Progress() as progress:
        document = run(
            space,
            out=folder,
            catalog=space_catalog(space),
            engine=engine,
            seed=seed,
            trials=trials,
            storage=storage,
            jobs=jobs,
            fresh=fresh,
            evaluator=evaluator,
            prove=prove,
            law=next(iter(own), None),
            every_law=ALL in laws,
            cluster=cluster,
            lease_s=float(lease),
            progress=progress.update,
        ).document
        started = time.perf_counter()
        progress.say("writing the report")
        write_report(folder)
    spent = time.perf_counter() - started
    seconds = document["seconds"]
    seconds |= {"report": spent, "total": seconds["total"] + spent}
    write_json(folder, STUDY, document)
    if as_json:
        print_json(document)
    else:
        _print(document, folder)


def _print(document: dict[str, Any], folder: Path) -> None:
    from dse.problem.loads import held as held_in
    from dse.problem.loads import loads_of
    from dse.problem.words import (
        DEPLOYMENT_KEY,
        DOMAIN_KEY,
        HELD_KEY,
        SHAPE_KEY,
        SHORT,
        mix_words,
        short_shape,
        show,
    )
    from dse.render.laws import law_sentences
    from dse.render.sure import sentences
    from dse.render.views import view_answers
    from dse.study.folder import FRONT, read_json

    items = read_json(folder, FRONT)["items"]
    objectives = [str(row["metric"]) for row in document["objectives"]]
    say(
        f"{document['title']}: {document['evaluations']:,} of {document['size']:,} points "
        f"evaluated ({document['engine']}), {document['front_size']:,} on the front; "
        f"prices: {document['price_basis']}"
    )
    if document["workload"] is None:
        say(f"Workloads: {mix_words(document['workloads'])}.", "  ")
    for sentence in document.get("rack", {}).get("sentences", ()):
        say(sentence, "  ")
    held = held_in(loads_of(document))
    one_shape = len({short_shape(item["model"]) for item in items}) == 1
    if one_shape:
        say(f"Model: {items[0]['model']['name']}")
    else:
        say(f"Shape: {SHAPE_KEY}.", "  ")
    key = f"{DEPLOYMENT_KEY}{DOMAIN_KEY * ('rack' in document)}{HELD_KEY * held}"
    say(f"Deployment: {key}; degrees of 1 are left out.", "  ")
    shown = _shown(items)
    titles = [SHORT.get(metric, metric) for metric in objectives]
    values = [[show(m, item["metrics"][m]) for m in objectives] for item in shown]
    if width() < WIDE:
        for item, row in zip(shown, values, strict=True):
            click.echo(f"\n{item['point']} {', '.join(item['names'])}".rstrip())
            say("  " + ", ".join(f"{t} {v}" for t, v in zip(titles, row, strict=True)), "  ")
            for line in _where(item, one_shape, held):
                say(f"  {line}", "    ")
        click.echo()
    else:
        print_table(
            ("point", "", *titles, "deployment" if one_shape else "shape and deployment"),
            [
                (
                    str(item["point"]),
                    ", ".join(item["names"]),
                    *row,
                    "\n".join(_where(item, one_shape, held)),
                )
                for item, row in zip(shown, values, strict=True)
            ],
            right=(0, *range(2, 2 + len(objectives))),
        )
    for sentence in (*view_answers(document), *law_sentences(document)):
        say(sentence, "  ")
    if sure := sentences(document):
        say(f"How sure: {' '.join(sure)}", "  ")
    if len(shown) < len(items):
        click.echo(f"{len(shown)} of {len(items):,} points shown; front.csv has all of them.")
    seconds = document["seconds"]
    parts = ", ".join(
        f"{part} {seconds[part] / seconds['total']:.0%}"
        for part in ("evaluate", "sample", "store", "proof", "views", "report")
        if part in seconds
    )
    say(f"{seconds['total']:.1f} s: {parts}", "  ")
    say(f"Report: {folder / 'report.html'}")


def _where(item: dict[str, Any], one_shape: bool, held: bool) -> list[str]:
    """The lines that say what a point is."""
    from dse.problem.words import short_deployment, short_shape

    shape = [] if one_shape else [short_shape(item["model"])]
    return [*shape, short_deployment(item["deployment"], held)]


WIDE = 90
ROWS = 12


def _shown(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chosen points and others evenly spread along the front, in its order."""
    chosen = [item for item in items if item["names"]]
    others = [item for item in items if not item["names"]]
    room = max(ROWS - len(chosen), 0)
    step = max(len(others) / room, 1.0) if room else 1.0
    spread = [others[int(k * step)] for k in range(min(room, len(others)))]
    return sorted(chosen + spread, key=lambda item: item["point"])


class _Progress:
    """A bar on a terminal, a plain line every two seconds elsewhere; on standard error."""

    def __enter__(self) -> _Progress:
        import sys

        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.started = self.last = time.monotonic()
        self.bar: Progress | None = None
        if sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,.0f} points"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task("searching", total=None)
        return self

    def update(self, done: int, total: int | None, front: int) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total, description=f"front {front:,}")
            return
        now = time.monotonic()
        if now - self.last < 2.0:
            return
        self.last = now
        of = f" of at most {total:,}" if total else ""
        rate = done / (now - self.started)
        left = f", {(total - done) / rate:.0f} s left" if total and rate and done < total else ""
        click.echo(
            f"{done:,}{of} points evaluated, {rate:,.0f} a second{left}; front {front:,}", err=True
        )

    def say(self, text: str) -> None:
        """What is being done after the search, where that is worth a line."""
        if self.bar is not None:
            self.bar.update(self.task, description=text)
        elif time.monotonic() - self.started >= 2.0:
            click.echo(text, err=True)

    def __exit__(self, *ended: object) -> None:
        if self.bar is not None:
            self.bar.stop()
