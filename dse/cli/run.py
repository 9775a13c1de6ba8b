"""dse run: search a space and write the Pareto-front report."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dse.cli.options import (
    Whole,
    efficiency_option,
    json_option,
    loss_runs_option,
    price_options,
    refuse,
    space_catalog,
)
from dse.cli.printing import print_json, say, width

if TYPE_CHECKING:
    from dse.answer.answer import Answer


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
    "--engine",
    default="auto",
    help="auto, exhaustive, pareto-local, model-first, nsga2, tpe, gp, qmc, random, "
    "package.module:Sampler.",
)
@click.option("--seed", type=Whole(0, 2**63 - 1), default=0, help="The same seed, the same front.")
@click.option("--storage", help="Optuna storage URL; a journal file in the folder if left out.")
@click.option(
    "--jobs",
    type=Whole(1, 256),
    default=2,
    help="Processes for ranges of an enumeration, restarts and the proof; the same bytes.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Dask scheduler whose workers take the place of --jobs: tcp://host:8786.",
)
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
    help="Quality law in place of the space's own, by name (docs/quality.md). all (beside it or "
    "alone): the front under each, and the choice that depends least on them.",
)
@loss_runs_option
@json_option
def command(
    space: str,
    out: Path | None,
    laws: tuple[str, ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """Search SPACE (a shipped name or a file) and write the Pareto-front report.

    \b
    dse run quickstart
    dse run my-space.yaml --out studies/mine --seed 1
    dse run studies/mine

    The folder of a finished study is reported again, and nothing is evaluated; --law all holds its
    front against every quality law. A study that was interrupted goes on where it stopped, or
    grows by more --trials, by the command that began it. Several processes that name one database
    (--storage postgresql://...) share the trials of an Optuna sampler (docs/workers.md).
    """
    from dse.errors import InputError
    from dse.files import write_json
    from dse.quality.laws import ALL
    from dse.questions.study import write_report
    from dse.study.folder import STUDY
    from dse.study.run import run

    if _is_folder(space):
        _again(Path(space), laws, as_json)
        return
    own = dict.fromkeys(name for name in laws if name != ALL)
    if len(own) > 1:
        raise InputError(
            f"read {', '.join(own)}", field="--law", accepted="one law, and all beside it"
        )
    # Without its ending: what is no name, of "..yaml", is no way out of the folder either.
    own_name = Path(space).name
    own_name = (own_name.rpartition(".")[0] or own_name).strip(".")
    folder = out or Path("studies") / (own_name or "study")
    with _Progress() as progress:
        document = run(
            space,
            out=folder,
            catalog=space_catalog(space),
            law=next(iter(own), None),
            every_law=ALL in laws,
            progress=progress.update,
            **asked,
        ).document
        started = time.perf_counter()
        progress.say("writing the report")
        answer = write_report(folder)
    spent = time.perf_counter() - started
    seconds = document["seconds"]
    seconds |= {"report": spent, "total": seconds["total"] + spent}
    write_json(folder, STUDY, document)
    _print(answer, document, folder, as_json)


def _print(answer: Answer, document: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    click.echo(answer.to_text(width()))
    seconds = document["seconds"]
    parts = ", ".join(
        f"{part} {seconds[part] / seconds['total']:.0%}"
        for part in ("evaluate", "sample", "store", "proof", "views", "report")
        if part in seconds
    )
    click.echo()
    say(f"It took {seconds['total']:.1f} s: {parts}.", "  ")
    say(f"Report: {folder / 'report.html'}")


def _is_folder(space: str) -> bool:
    """Whether the folder of a finished study is meant; the name of a shipped space is not."""
    from dse.schema.study import shipped_spaces
    from dse.study.folder import STUDY

    return bool(space) and (Path(space) / STUDY).is_file() and space not in shipped_spaces()


def _again(folder: Path, laws: tuple[str, ...], as_json: bool) -> None:
    """Writes and prints the report of a finished study. For --law all the study's own command runs
    again, which adds no trial."""
    from dse.errors import InputError
    from dse.quality.laws import ALL
    from dse.questions.study import write_report
    from dse.study.folder import read_study

    document = read_study(folder)[0]
    others = {str(param.name) for param in command.params} - {"space", "laws", "as_json"}
    refuse(others, f"{folder}, a finished study, which is only reported again")
    if not laws:
        _print(write_report(folder), document, folder, as_json)
        return
    if laws != (ALL,):
        raise InputError(
            f"read {', '.join(laws)}: the front of another law is another study",
            field="--law",
            accepted=f"{ALL}, or dse run SPACE --law {laws[0]} --out DIR",
        )
    words = shlex.split(document.get("command", ""))
    if words[:2] != ["dse", "run"]:
        raise InputError(
            f"{folder} does not say how it was made",
            accepted=f"dse run {document['space']} --out {folder} --law all",
        )
    with command.make_context("run", words[2:]) as asked:
        own = [name for name in asked.params["laws"] if name != ALL]
        asked.params |= {"out": folder, "laws": (*own, ALL), "as_json": as_json}
        command.invoke(asked)


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
                auto_refresh=False,  # by a thread, beside which no process can be copied
            )
            self.bar.start()
            self.task = self.bar.add_task("searching", total=None)
        return self

    def update(self, done: int, total: int | None, front: int) -> None:
        now = time.monotonic()
        if now - self.last < (2.0 if self.bar is None else 0.1):
            return
        self.last = now
        if self.bar is not None:
            words = f"front {front:,}"
            self.bar.update(self.task, completed=done, total=total, description=words, refresh=True)
            return
        of = f" of at most {total:,}" if total else ""
        rate = done / (now - self.started)
        left = f", {(total - done) / rate:.0f} s left" if total and rate and done < total else ""
        click.echo(
            f"{done:,}{of} points evaluated, {rate:,.0f} a second{left}; front {front:,}", err=True
        )

    def say(self, text: str) -> None:
        """What is being done after the search, where that is worth a line."""
        if self.bar is not None:
            self.bar.update(self.task, description=text, refresh=True)
        elif time.monotonic() - self.started >= 2.0:
            click.echo(text, err=True)

    def __exit__(self, *ended: object) -> None:
        if self.bar is not None:
            self.bar.stop()
