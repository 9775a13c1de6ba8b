"""`dse.run`: a whole study, search and everything that the folder holds but the report."""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse import __version__
from dse.catalog import Catalog, load_catalog
from dse.errors import InputError, StorageError
from dse.files import full_path, json_text, write_files, write_text
from dse.problem.objective import PhysicsProblem
from dse.problem.protocol import Problem
from dse.quality.laws import ALL
from dse.questions.estimate.why_not import nothing_feasible
from dse.schema.study import GIVEN, Space, chip_files_of
from dse.search.checkpoint import Checkpoint
from dse.search.claims import LEASE_S
from dse.search.engine import ENUMERATE, Budget, Progress
from dse.search.evaluator import FRONT as FRONT_STAGE
from dse.search.evaluator import SAMPLE, SEARCH, STAGES, Batch
from dse.search.exhaustive import LARGEST
from dse.search.importance import METHOD, importances
from dse.search.proof import SUBGRID, history, prove
from dse.search.record import Record
from dse.search.run import Result, at_resolution, choose_engine, joined, search
from dse.search.storage import in_use, shown
from dse.space.thin import thinned
from dse.study.document import describe
from dse.study.external import ExternalProblem, external_problem, say_external
from dse.study.folder import FRONT, FRONT_TABLE, STUDY, refuse_other
from dse.study.join import JOURNAL, UNDIVIDED, is_shared, posed_study, share, with_stored
from dse.study.laws import compare_laws
from dse.study.result import Study
from dse.study.systems import describe_systems
from dse.study.table import front_table
from dse.study.views import describe_views, refuse_views

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
    lease_s: float = LEASE_S,
    progress: Callable[[int, int | None, int], None] = lambda done, total, front: None,
) -> Study:
    """Searches a space: a shipped name, the path of a space file, or what such a file says.

        study = dse.run("tiny", seed=1)
        study.best.metrics["predicted_loss"], study.front.to_pandas()

    Without `out` the study lies in a temporary folder, as long as the result is kept. The other
    arguments are the options of `dse run` and mean the same. The search is one process, of which an
    enumeration and the proof make copies, `jobs` in all, or is divided into work units
    (docs/workers.md) over more than two `jobs`, a Dask `cluster`, and whoever joins:
    dse.study.join. `evaluator` names a function of the user that
    takes the place of the model (`dse.study.external`), in one process. `prove` True compares the
    front with an enumeration of a space of up to 1e9 points, False says nothing of how near it is
    to the true one, None says what is cheap to know. `law` takes the place of the quality law of
    the space, `loss_runs` of its file of runs; `every_law` holds the front against that of each
    law (`dse.study.laws`).

    Raises InputError for a space or function that is wrong, StorageError for a folder that cannot
    be used or holds another study, NothingFeasible when no point is feasible (its trials are kept).
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
    choose_engine(engine, problem.space.size)  # refuses one that is none before anything is written
    own = None if evaluator is None else external_problem(problem, evaluator)
    if own is None:
        refuse_views(problem)
    else:
        _refuse_beside_evaluator(jobs, cluster, every_law or law is not None, bool(loss_runs))
    if not fresh:
        refuse_other(folder, problem.study.name, problem.space.fingerprint, posed.defined)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        location = storage or folder / JOURNAL
        record = posed.record(location, fresh)
    except OSError as error:
        raise StorageError(f"cannot use {folder} as a study folder: {error.strerror}") from error
    shared: dict[str, Any] = {}
    resumed = False
    few = min(jobs, UNDIVIDED)
    if own is None and is_shared(record, location, jobs, cluster):
        with in_use(location):
            result, shared = share(
                posed,
                record,
                str(space),
                location,
                trials,
                jobs,
                cluster,
                lease_s,
                progress,
                given_runs,
            )
    else:
        resumed = own is None and record.trials > 0
        if own is not None:
            own.keep(record)
        result = search(
            own or problem,
            engine,
            seed=seed,
            budget=Budget(trials=trials),
            record=record,
            progress=progress,
            jobs=jobs,
            expensive=own is not None,
            checkpoint=Checkpoint.begin(folder / SWEEP, identity, fresh),
            survey=True,
        )
    searched = result
    if resumed:
        result = with_stored(result, record)
    if result.miss is not None:
        raise nothing_feasible(problem, result)
    seconds = dict(result.seconds)
    with _timed(seconds, "proof"):
        # of the search alone, so that a study reported again says the same
        alone = searched if len(searched.front) else result
        proof, met = proof_of(own or problem, alone, identity, folder, prove, jobs, progress)
    if met is not searched.front:
        result = replace(result, front=joined(result.front, met))
        record.add(result.front, FRONT_STAGE)
    front = at_resolution(problem, result.front)
    items, document = describe(problem, given, result, front, identity, folder)
    if every_law:
        document["laws"] = compare_laws(
            problem,
            front.index,
            items,
            {name: row["point"] - 1 for name, row in document["chosen"].items()},
            engine=result.engine,
            seed=seed,
            jobs=few,
            progress=progress,
        )
    if own is not None:
        say_external(own, front, items, document)
    else:
        if problem.study.views:
            with _timed(seconds, "views"):
                document["views"] = describe_views(problem, jobs=few, progress=progress)
        if side := describe_systems(problem, given, jobs=few, progress=progress):
            document["systems"] = side
    document |= proof
    with _timed(seconds, "importance"):
        document |= describe_record(own or problem, result, record)
    command = ["dse", "run", str(space), "--out", str(folder), "--seed", str(seed)]
    command += ["--engine", engine]
    command += [] if trials is None else ["--trials", str(trials)]
    command += [] if storage is None else ["--storage", shown(storage)]  # without its password
    command += given.source.flags()
    command += [] if evaluator is None else ["--evaluator", evaluator]
    command += [] if prove is None else ["--prove" if prove else "--no-prove"]
    command += [] if law is None else ["--law", law]
    command += [] if given_runs is None else ["--loss-runs", given_runs]
    command += ["--law", ALL] * every_law
    document |= {
        **shared,
        "definition": posed.defined,
        "command": shlex.join(command),
        "seconds": {**seconds, "report": 0.0, "total": time.perf_counter() - started},
    }
    made = {
        FRONT_TABLE: front_table(items),
        FRONT: json_text({"study": problem.study.name, "items": items}),
        STUDY: json_text(document),
    }
    write_files(folder, {name: text.encode("utf-8") for name, text in made.items()})
    study = Study(folder, catalog)
    if out is None:
        weakref.finalize(study, shutil.rmtree, folder, ignore_errors=True)
    return study


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[what] = time.perf_counter() - started


def _refuse_beside_evaluator(jobs: int, cluster: str | None, law: bool, loss_runs: bool) -> None:
    """Raises InputError for what a function of the user cannot be combined with."""
    if jobs > UNDIVIDED or cluster is not None:
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


# What study.json says of the study of record: what its trials are, and what they tell about the
# space.


def describe_record(problem: Problem, result: Result, record: Record) -> dict[str, Any]:
    """`trials`, `duplicate_trials`, `trials_by_stage` and `importance`: how much each axis decides
    about each objective, over the sample of the space, or else over what the sampler asked for;
    null where these are too few designs."""
    with in_use(record.location):
        stored = record.load()
    counts = Counter(stored.stages)
    if result.survey is None:
        asked = np.array([stage == SEARCH for stage in stored.stages], dtype=bool)
        stage, designs = SEARCH, stored.batch.take(asked)
    else:
        stage, designs = SAMPLE, result.survey.kept
    found = importances(problem, designs)
    importance = {
        "method": METHOD,
        "stage": stage,
        "designs": int((designs.violation == 0).sum()),
        "axes": found,
    }
    return {
        "trials": record.trials,
        "duplicate_trials": record.duplicates,
        "trials_by_stage": {stage: counts[stage] for stage in STAGES if counts[stage]},
        "importance": importance if found else None,
    }


# How sure a study is of its front, for study.json.

# Where an enumeration has come to: that of the search, and that which follows another search.
SWEEP, PROOF = "sweep.npz", "proof.npz"


def proof_of(
    problem: PhysicsProblem | ExternalProblem,
    result: Result,
    identity: Mapping[str, Any],
    out: Path,
    asked: bool | None,
    jobs: int,
    progress: Progress,
) -> tuple[dict[str, Any], Batch]:
    """`true_hypervolume_share`, of what the search alone found, and `proof` of study.json, `proof`
    null where none was wanted (`asked` False); and the front with what was met on the way. A
    function of the user is not called for it."""
    whole = result.evaluations == problem.space.size
    share = 1.0 if whole else None
    if asked is False:
        return {"true_hypervolume_share": share, "proof": None}, result.front
    if isinstance(problem, ExternalProblem):
        found: dict[str, Any] = {"history": history(problem, result)}
        return {"true_hypervolume_share": share, "proof": found}, result.front
    size = problem.space.size
    part = thinned(problem.space, SUBGRID)
    found, front = prove(
        problem,
        result,
        seed=identity["seed"],
        subgrid=replace(problem, space=part) if part.size <= 2 * SUBGRID else None,
        enumerate_up_to=LARGEST if asked else ENUMERATE,
        jobs=jobs,
        progress=progress,
        checkpoint=Checkpoint(out / PROOF, identity),
    )
    if "enumerated" in found:
        share = found["enumerated"]["true_hypervolume_share"]
    elif asked:
        found["not_enumerated"] = f"{size:,} points are more than {LARGEST:,}"
    return {"true_hypervolume_share": share, "proof": found}, front
