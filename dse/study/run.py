"""A whole study: search, then everything that the folder holds but the report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dse import __version__
from dse.catalog import Catalog
from dse.errors import InputError, StorageError
from dse.files import write_json, write_text
from dse.quality.laws import ALL
from dse.questions.estimate.why_not import nothing_feasible
from dse.questions.study.document import describe
from dse.schema.catalog import Source
from dse.search.checkpoint import Checkpoint
from dse.search.claims import LEASE_S
from dse.search.engine import Budget
from dse.search.run import search
from dse.search.storage import shown
from dse.study.external import external_problem, say_external
from dse.study.folder import FRONT, FRONT_TABLE, STUDY, refuse_other
from dse.study.join import JOURNAL, MOST_THREADS, is_shared, posed_study, share, with_stored
from dse.study.laws import compare_laws
from dse.study.proof import SWEEP, proof_of
from dse.study.table import front_table
from dse.study.views import describe_views, refuse_views

Progress = Callable[[int, int | None, int], None]


def run_study(
    space: str,
    out: Path,
    *,
    catalog: Catalog,
    engine: str = "auto",
    seed: int = 0,
    trials: int | None = None,
    storage: str | None = None,
    jobs: int = 2,
    fresh: bool = False,
    evaluator: str | None = None,
    prove: bool | None = None,
    law: str | None = None,
    every_law: bool = False,
    cluster: str | None = None,
    lease_s: float = LEASE_S,
    progress: Progress = lambda done, total, front: None,
) -> dict[str, Any]:
    """Searches `space` (a shipped name or a path) into the folder `out`; returns study.json.

    The search is one process of `jobs` threads, or is divided into work units (docs/workers.md)
    over `jobs` processes, a Dask `cluster`, and whoever joins: dse.study.join. `evaluator` names a
    function of the user that takes the place of the model (`dse.study.external`), in one process.
    `prove` True compares the front with an enumeration of a space of up to 1e9 points, False says
    nothing of how near it is to the true one, None says what is cheap to know. `law` takes the
    place of the quality law of the space; `every_law` holds the front against that of each law
    (`dse.study.laws`).

    Raises InputError for a space or function that is wrong, StorageError for a folder that cannot
    be used or holds another study, NothingFeasible when no point is feasible (its trials are kept).
    """
    started = time.perf_counter()
    posed = posed_study(space, catalog, engine, seed, __version__, evaluator or "model", law)
    problem, catalog, identity = posed.problem, posed.catalog, posed.identity
    own = None if evaluator is None else external_problem(problem, evaluator)
    if own is not None and (jobs > MOST_THREADS or cluster is not None):
        raise InputError(
            "--evaluator is called point by point in one process",
            field="--jobs" if cluster is None else "--cluster",
            accepted="one process: no --cluster, and --jobs 1 or 2",
        )
    if own is not None and (every_law or law is not None):
        raise InputError(
            "--evaluator predicts by itself",
            field="--law",
            accepted="a study without --evaluator",
        )
    if own is None:
        refuse_views(problem)
    if not fresh:
        refuse_other(out, problem.study.name, problem.space.fingerprint, posed.defined)
    try:
        out.mkdir(parents=True, exist_ok=True)
        location = storage or out / JOURNAL
        record = posed.record(location, fresh)
    except OSError as error:
        raise StorageError(f"cannot use {out} as a study folder: {error.strerror}") from error
    if own is not None:
        own.keep(record)
    shared: dict[str, Any] = {}
    if own is None and is_shared(record, location, jobs, cluster):
        result, shared = share(
            posed, record, space, location, trials, jobs, cluster, lease_s, progress
        )
    else:
        resumed = own is None and record.trials > 0
        result = search(
            own or problem,
            engine,
            seed=seed,
            budget=Budget(trials=trials),
            record=record,
            progress=progress,
            threads=jobs,
            expensive=own is not None,
            checkpoint=Checkpoint.begin(out / SWEEP, identity, fresh),
        )
        if resumed:
            result = with_stored(result, record)
    if result.miss is not None:
        raise nothing_feasible(problem, result)
    items, document = describe(problem, catalog, result, identity, out)
    if every_law:
        document["laws"] = compare_laws(
            problem,
            result.front.index,
            items,
            {name: row["point"] - 1 for name, row in document["chosen"].items()},
            engine=result.engine,
            seed=seed,
            threads=min(jobs, MOST_THREADS),
            progress=progress,
        )
    if own is not None:
        say_external(own, result.front, items, document)
    viewed = time.perf_counter()
    if own is None and problem.study.views:
        threads = min(jobs, MOST_THREADS)
        document["views"] = describe_views(problem, threads=threads, progress=progress)
    searched = time.perf_counter()
    document |= proof_of(own or problem, result, identity, out, prove, jobs, progress)
    proof_s = time.perf_counter() - searched
    document |= shared
    document["definition"] = posed.defined
    command = _command(space, catalog.source, out, engine, seed, trials, storage, evaluator, prove)
    command += [] if law is None else ["--law", law]
    command += ["--law", ALL] * every_law
    document["command"] = shlex.join(command)
    document["trials"] = record.trials
    document["duplicate_trials"] = record.duplicates
    document["seconds"] = {
        **result.seconds,
        "proof": proof_s,
        **({"views": searched - viewed} if "views" in document else {}),
        "report": 0.0,
        "total": time.perf_counter() - started,
    }
    write_text(out, FRONT_TABLE, front_table(items))
    write_json(out, FRONT, {"study": problem.study.name, "items": items})
    write_json(out, STUDY, document)
    return document


def _command(
    space: str,
    source: Source,
    out: Path,
    engine: str,
    seed: int,
    trials: int | None,
    storage: str | None,
    evaluator: str | None,
    prove: bool | None,
) -> list[str]:
    """What makes this study again; without the password of a database."""
    command = ["dse", "run", space, "--out", str(out), "--seed", str(seed), "--engine", engine]
    if trials is not None:
        command += ["--trials", str(trials)]
    if storage is not None:
        command += ["--storage", shown(storage)]
    command += source.flags()
    if evaluator is not None:
        command += ["--evaluator", evaluator]
    return command if prove is None else [*command, "--prove" if prove else "--no-prove"]
