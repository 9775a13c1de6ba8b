"""`dse.run`: a whole study, search and everything that the folder holds but the report."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from dse import __version__
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError
from dse.files import full_path, json_text, write_files, write_text
from dse.pareto import Ids
from dse.problem.objective import PhysicsProblem
from dse.quality.laws import ALL
from dse.questions.estimate.again import nothing_feasible
from dse.schema.study import GIVEN, Space, chip_files_of
from dse.search.evaluator import (
    ENUMERATE,
    LARGEST,
    STAGES,
    Batch,
    Checkpoint,
    Progress,
)
from dse.search.evaluator import FRONT as FRONT_STAGE
from dse.search.parallel import Executor, opened
from dse.search.run import Result, at_resolution, choose_engine, joined, prove, search, silent
from dse.search.samplers import SamplerEngine
from dse.search.storage import in_use, is_url, shown, sole_writer
from dse.study.definition import posed_study
from dse.study.document import describe, searched_axes
from dse.study.external import ExternalProblem, say_external
from dse.study.folder import (
    CHECKPOINT,
    FRONT,
    FRONT_TABLE,
    JOURNAL,
    STUDY,
    front_table,
    refuse_other,
)
from dse.study.laws import compare_laws
from dse.study.result import Study
from dse.study.views import describe_systems, describe_view, refuse_views

SPACE = "space.yaml"  # what a study folder calls the space that a program gave


def run(
    space: Space,
    *,
    catalog: Catalog | None = None,
    seed: int = 0,
    trials: int | None = None,
    engine: str = "auto",
    out: Path | str | None = None,
    storage: str | None = None,
    jobs: int = 2,
    fresh: bool = False,
    evaluator: str | None = None,
    prove: bool | None = None,
    law: str | None = None,
    loss_runs: Path | str | None = None,
    every_law: bool = False,
    cluster: str | None = None,
    progress: Progress = silent,
) -> Study:
    """Searches a space: a shipped name, the path of a space file, or what such a file says.

        study = dse.run("tiny", seed=1)
        study.best.metrics["predicted_loss"], study.front.to_pandas()

    Without `out` the study lies in a temporary folder, as long as the result is kept. The other
    arguments are the options of `dse run` and mean the same. Ranges of an enumeration, restarts and
    the proof run in copies of this process, `jobs` in all, or on a Dask `cluster`
    (docs/workers.md), to the same bytes; samplers share their trials with every process that has
    the same database in `storage`. `evaluator` names a function of the user that takes the place of
    the model (`dse.study.external`), in one process. `prove` True compares the front with an
    enumeration of a space of up to 1e9 points, False says nothing of how near it is to the true
    one, None says what is cheap to know. `law` takes the place of the quality law of the space,
    `loss_runs` of its file of runs; `every_law` holds the front against that of each law
    (`dse.study.laws`).

    Raises InputError for a space or function that is wrong, StorageError for a folder that cannot
    be used, that another process writes, or that holds another study, NothingFeasible when no point
    is feasible (its trials are kept).
    """
    started = time.perf_counter()
    catalog = catalog or load_catalog(chips=chip_files_of(space))
    folder = Path(tempfile.mkdtemp(prefix="dse-") if out is None else out)
    if isinstance(space, Mapping):
        write_text(folder, SPACE, json.dumps(_from_here(space), indent=1))
        space = folder / SPACE
    given_runs = None if loss_runs is None else str(loss_runs)
    posed = posed_study(
        str(space), catalog, engine, seed, __version__, evaluator or "model", law, given_runs
    )
    problem, given, identity = posed.problem, posed.catalog, posed.identity
    # refuses one that is none before anything is written
    chosen, _ = choose_engine(engine, problem.space.size, expensive=evaluator is not None)
    own = None if evaluator is None else ExternalProblem(problem, evaluator)
    if own is None:
        refuse_views(problem)
    else:
        _refuse_beside_evaluator(jobs, cluster, every_law or law is not None, bool(loss_runs))
    if not fresh:
        refuse_other(folder, problem.study.name, problem.space.fingerprint, posed.defined)
    location = storage or folder / JOURNAL
    with sole_writer(folder), in_use(location), opened(jobs, cluster) as executor:
        record = posed.record(location, fresh)
        stored, how = record.trials, {"executor": executor, "progress": progress}
        shares = is_url(location) and isinstance(chosen, SamplerEngine)
        checkpoint = Checkpoint(
            folder / CHECKPOINT, {**identity, "trials": trials}, fresh=fresh or not stored
        )
        if own is not None:
            own.keep(record)

        def others() -> Ids:
            ids = record.others()
            if own is not None and len(ids):
                own.keep(record)
            return ids

        result = search(
            own or problem,
            engine,
            seed=seed,
            unit=stored if shares else 0,
            trials=trials,
            record=record,
            expensive=own is not None,
            checkpoint=None if shares or own is not None else checkpoint,
            survey=True,
            others=others if shares else None,
            **how,
        )
        searched = result
        if own is None and (stored or shares):
            # Trials that this search did not meet again stay on the front where nothing beats them.
            front = joined(result.front, record.load().batch)
            result = replace(result, front=front, miss=None) if len(front) else result
        if result.miss is not None:
            raise nothing_feasible(problem, result)
        seconds = dict(result.seconds)
        with _timed(seconds, "proof"):
            # of the search alone, so that a study reported again says the same
            alone = searched if len(searched.front) else result
            proof, met = proof_of(own or problem, alone, seed, prove, checkpoint, **how)
        if met is not searched.front:
            result = replace(result, front=joined(result.front, met))
            record.add(result.front, FRONT_STAGE)
        front = at_resolution(problem, result.front)
        items, document = describe(problem, given, result, front, identity, folder)
        if every_law:
            picked = {name: row["point"] - 1 for name, row in document["chosen"].items()}
            document["laws"] = compare_laws(
                problem, front.index, items, picked, engine=result.engine, seed=seed, **how
            )
        if own is not None:
            say_external(own, front, items, document)
        else:
            if problem.study.views:
                with _timed(seconds, "views"):
                    views = [describe_view(problem, one, **how) for one in problem.study.views]
                    document["views"] = views
            if side := describe_systems(problem, given, **how):
                document["systems"] = side
        with in_use(record.location):
            counts = Counter(record.load().stages)
        document |= proof | {
            "trials": record.trials,
            "duplicate_trials": record.duplicates,
            "trials_by_stage": {stage: counts[stage] for stage in STAGES if counts[stage]},
        }
        options = {"--seed": seed, "--engine": engine, "--trials": trials}
        options["--storage"] = None if storage is None else shown(storage)  # without its password
        then = {"--evaluator": evaluator, "--law": law, "--loss-runs": given_runs}
        command = ["dse", "run", str(space), "--out", str(folder), *_words(options)]
        command += [*given.source.flags(), *_words(then)]
        command += [] if prove is None else ["--prove" if prove else "--no-prove"]
        command += ["--law", ALL] * every_law
        document |= {
            "definition": posed.defined,
            "command": shlex.join(command),
            "seconds": {**seconds, "report": 0.0, "total": time.perf_counter() - started},
        }
        made = {
            FRONT_TABLE: front_table(items, searched_axes(problem.space, front.index)),
            FRONT: json_text({"study": problem.study.name, "items": items}),
            STUDY: json_text(document),
        }
        write_files(folder, {name: text.encode("utf-8") for name, text in made.items()})
    study = Study(folder, catalog)
    if out is None:
        weakref.finalize(study, shutil.rmtree, folder, ignore_errors=True)
    return study


def _words(options: Mapping[str, Any]) -> list[str]:
    """Options as a command line gives them, those that are None left out."""
    given = {flag: str(value) for flag, value in options.items() if value is not None}
    return list(chain.from_iterable(given.items()))


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - started


def _refuse_beside_evaluator(jobs: int, cluster: str | None, law: bool, loss_runs: bool) -> None:
    """Raises InputError for what a function of the user cannot be combined with."""
    if jobs > 2 or cluster is not None:
        raise InputError(
            "--evaluator is called point by point in one process",
            field="--jobs" if cluster is None else "--cluster",
            accepted="one process: no --cluster, and --jobs 1 or 2",
        )
    if law or loss_runs:
        raise InputError(
            "--evaluator predicts by itself",
            field="--law" if law else "--loss-runs",
            accepted="a study without --evaluator",
        )


def _from_here(space: Mapping[str, Any]) -> Any:
    """The space with the paths in it as seen from any folder. Raises InputError for what no file
    of a space could say."""

    def settled(value: Any, name: str = "") -> Any:
        if isinstance(value, Mapping):
            return {key: settled(inner, str(key)) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [settled(inner, name) for inner in value]
        named = name in ("model", "chip", "rack", "values", "loss_runs") and isinstance(value, str)
        return full_path(value) if named and Path(value).exists() else value

    found = settled(space)
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            str(error), file=GIVEN, accepted="text, numbers, lists, mappings"
        ) from None
    return found


# How sure a study is of its front, for study.json.


def proof_of(
    problem: PhysicsProblem | ExternalProblem,
    result: Result,
    seed: int,
    asked: bool | None,
    checkpoint: Checkpoint,
    *,
    executor: Executor,
    progress: Progress,
) -> tuple[dict[str, Any], Batch]:
    """`true_hypervolume_share`, of what the search alone found, and `proof` of study.json, `proof`
    null where none was wanted (`asked` False); and the front with what was met on the way. A
    function of the user is not called for it."""
    whole = result.evaluations == problem.space.size
    share = 1.0 if whole else None
    if asked is False or isinstance(problem, ExternalProblem):
        none = None if asked is False else {}
        return {"true_hypervolume_share": share, "proof": none}, result.front
    size = problem.space.size
    found, front = prove(
        problem,
        result,
        seed=seed,
        enumerate_up_to=LARGEST if asked else ENUMERATE,
        executor=executor,
        progress=progress,
        checkpoint=checkpoint,
    )
    if "enumerated" in found:
        share = found["enumerated"]["true_hypervolume_share"]
    elif asked:
        found["not_enumerated"] = f"{size:,} points are more than {LARGEST:,}"
    return {"true_hypervolume_share": share, "proof": found}, front
