"""dse run: search a space and write the Pareto-front report.

Examples:

    dse run quickstart
    dse run my-space.yaml --out studies/mine --seed 1
    dse run studies/mine
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from dse.cli.options import refuse
from dse.cli.printing import Progress, print_json, say, width
from dse.cli.signature import verb
from dse.options import Opt

if TYPE_CHECKING:
    from dse.study.result import Study

LAW = Opt(
    "Quality law in place of the space's own, by name (docs/quality.md). all (beside it or alone): "
    "the front under each, and the choice that depends least on them.",
    metavar="NAME",
)
TRIALS = Opt("Trials asked of the Optuna sampler (docs/search).", least=1, most=10_000_000)
ENGINE = Opt(
    "auto, exhaustive, pareto-local, model-first, nsga2, tpe, gp, qmc, random, "
    "package.module:Sampler."
)
STORAGE = Opt("Optuna storage URL; a journal file in the folder if left out.")
JOBS = Opt(
    "Processes for ranges of an enumeration, restarts and the proof; the same bytes.",
    least=1,
    most=256,
)
EVALUATOR = Opt(
    "A function of yours in place of the model, called point by point. Runs its code.",
    metavar="PACKAGE.MODULE:FUNCTION",
)
PROVE = Opt(
    "Compare the front with every point of the space, up to 1e9, afterwards; or say nothing of how "
    "sure it is. Without either: what is cheap to know."
)
LOSS_RUNS = Opt(
    "Training runs of yours, to which the quality law is moved (docs/quality.md).", metavar="FILE"
)
CLUSTER = Opt(
    "Dask scheduler whose workers take the place of --jobs: tcp://host:8786.", metavar="ADDRESS"
)


def searched(
    space: Annotated[str, Opt(positional=True)],
    *,
    trials: Annotated[int | None, TRIALS] = None,
    engine: Annotated[str, ENGINE] = "auto",
    seed: Annotated[int, Opt("The same seed, the same front.", least=0, most=2**63 - 1)] = 0,
    storage: Annotated[str | None, STORAGE] = None,
    jobs: Annotated[int, JOBS] = 2,
    cluster: Annotated[str | None, CLUSTER] = None,
    fresh: Annotated[bool, Opt("Forget what the folder's study holds.")] = False,
    evaluator: Annotated[str | None, EVALUATOR] = None,
    prove: Annotated[bool | None, PROVE] = None,
    law: Annotated[tuple[str, ...], LAW] = (),
    loss_runs: Annotated[str | None, LOSS_RUNS] = None,
    catalog: Any = None,
    out: Path | None = None,
) -> Any:
    """Search SPACE (a shipped name or a file) and write the Pareto-front report. The folder of a
    finished study is reported again, and nothing is evaluated. A study that was interrupted goes on
    where it stopped, or grows by more --trials, by the command that began it. Several processes
    that name one database (--storage postgresql://...) share the trials of an Optuna sampler
    (docs/workers.md)."""
    from dse.errors import InputError
    from dse.quality.laws import ALL
    from dse.schema.study import shipped_spaces
    from dse.study.folder import STUDY
    from dse.study.run import run

    if space and (Path(space) / STUDY).is_file() and space not in shipped_spaces():
        return _again(Path(space), law)
    own = [name for name in dict.fromkeys(law) if name != ALL]
    if len(own) > 1:
        raise InputError(
            f"read {', '.join(own)}", field="--law", accepted="one law, and all beside it"
        )
    # Without its ending: what is no name, of "..yaml", is no way out of the folder either.
    name = Path(space).name
    name = (name.rpartition(".")[0] or name).strip(".")
    out = out or Path("studies") / (name or "study")
    began, progress = time.monotonic(), Progress()

    def told(done: int, total: int | None, front: int) -> None:
        rate = done / max(time.monotonic() - began, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if total and rate and done < total else ""
        of = f" of at most {total:,}" if total else ""
        progress(f"{done:,}{of} points evaluated, {rate:,.0f} a second{left}; front {front:,}")

    return run(
        space,
        catalog=catalog,
        seed=seed,
        trials=trials,
        engine=engine,
        out=out,
        storage=storage,
        jobs=jobs,
        fresh=fresh,
        evaluator=evaluator,
        prove=prove,
        law=own[0] if own else None,
        loss_runs=loss_runs,
        every_law=ALL in law,
        cluster=cluster,
        progress=told,
    )


def _again(folder: Path, laws: tuple[str, ...]) -> Study:
    """A finished study. Raises InputError with the command that searches it by other laws."""
    from dse.errors import InputError
    from dse.quality.laws import ALL
    from dse.study.result import Study

    others = {str(param.name) for param in command.params} - {"space", "law", "as_json", "detail"}
    refuse(others, f"{folder}, a finished study, which is only reported again")
    study = Study(folder)
    if not laws:
        return study
    command_ = study.document.get("command") or f"dse run {study.document['space']}"
    every = f"{command_} --out {folder} --law {ALL}"
    raise InputError(
        f"read {', '.join(laws)}: the front of another law is another study",
        field="--law",
        accepted=f"{every}, which adds no trial, or dse run SPACE --law {laws[0]} --out DIR",
    )


def delivered(study: Study, *, out: Path | None, as_json: bool, detail: bool) -> None:
    """Writes the report into the folder of the study and prints it, and where the time went."""
    from dse.files import write_json
    from dse.questions.study import write_report
    from dse.study.folder import STUDY

    started, document = time.perf_counter(), study.document
    answer, seconds = write_report(study.folder), document["seconds"]
    if not seconds["report"]:  # a study that was searched now
        spent = time.perf_counter() - started
        seconds |= {"report": spent, "total": seconds["total"] + spent}
        write_json(study.folder, STUDY, document)
    if as_json:
        print_json(document)
        return
    click.echo(answer.to_text(width(), detail or None))
    parts = ", ".join(
        f"{part} {seconds[part] / seconds['total']:.0%}"
        for part in ("evaluate", "sample", "store", "proof", "views", "report")
        if part in seconds
    )
    click.echo()
    say(f"It took {seconds['total']:.1f} s: {parts}.", "  ")
    say(f"Report: {study.folder / 'report.html'}")


command = verb(
    searched,
    name="run",
    space="space",
    examples=__doc__,
    out=click.Option(
        ["--out"],
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Study folder; studies/SPACE if left out.",
    ),
    delivered=delivered,
)
