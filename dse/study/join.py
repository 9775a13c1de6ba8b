"""Several processes at one study: the one that reports, and those that join it."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dse import __version__
from dse.catalog import Catalog
from dse.errors import Doubt, InputError
from dse.problem.objective import PhysicsProblem, on_terms, pose
from dse.quality.laws import DEFAULT
from dse.schema.catalog import Source
from dse.schema.study import load_study
from dse.search.claims import LEASE_S, Board
from dse.search.claims import exists as has_units
from dse.search.cluster import work_on_cluster
from dse.search.evaluator import FRONT
from dse.search.record import Record
from dse.search.run import Result, choose_engine, joined
from dse.search.samplers import is_path
from dse.search.storage import in_use, is_url
from dse.search.units import WHOLE, Outcome, Plan, Union, Unit, divide, execute, surveyed
from dse.search.workers import Processes, orphaned, work
from dse.study.definition import definition, differences

JOURNAL = "journal.log"
UNDIVIDED = 2  # jobs; with more, a study is divided into work units
_TRIALS = "trials_asked"
Progress = Callable[[int, int | None, int], None]


@dataclass(frozen=True, slots=True)
class Posed:
    """A space with the physics, and what a study of it must share to be continued."""

    problem: PhysicsProblem
    catalog: Catalog
    identity: dict[str, Any]
    defined: dict[str, Any]

    def record(self, location: str | Path, fresh: bool = False) -> Record:
        """The study of record. Raises StorageError where it is another study, saying what
        differs."""
        record = Record(
            self.problem,
            location,
            self.problem.study.name,
            self.identity,
            fresh,
            lambda attrs: differences(attrs.get("definition"), self.defined),
        )
        if "definition" not in record.attrs:
            record.set_attrs({"definition": self.defined})
        return record


def posed_study(
    space: str,
    catalog: Catalog,
    engine: str,
    seed: int,
    model_version: str = __version__,
    evaluator: str = "model",
    law: str | None = None,
    loss_runs: Path | str | None = None,
) -> Posed:
    """`law` takes the place of the space's quality law, `loss_runs` of its file of runs. Raises
    InputError for a space that is wrong."""
    study = load_study(space, catalog, law, loss_runs)
    catalog = on_terms(catalog.with_files(study.chip_files), study)
    problem = pose(study, catalog)
    identity = {
        "space": problem.study.name,
        "fingerprint": problem.space.fingerprint,
        "engine": engine,
        "seed": seed,
        "model_version": model_version,
        "data_digest": catalog.digest,
        "evaluator": evaluator,
        **({"quality_law": study.quality_law} if study.quality_law != DEFAULT else {}),
    }
    return Posed(problem, catalog, identity, definition(study))


def is_shared(record: Record, location: str | Path, jobs: int, cluster: str | None) -> bool:
    """Whether the search is divided into work units: over many processes, on a
    cluster, or in a place where others may join or have joined."""
    return (
        jobs > UNDIVIDED
        or cluster is not None
        or is_url(location)
        or has_units(record.storage, record.name)
    )


def share(
    posed: Posed,
    record: Record,
    space: str,
    location: str | Path,
    trials: int | None,
    jobs: int,
    cluster: str | None,
    lease_s: float,
    progress: Progress,
    loss_runs: str | None = None,
) -> tuple[Result, dict[str, Any]]:
    """Do the units that nobody has done, with `jobs` processes or a Dask cluster and whoever joins,
    and store the trials of the front. Returns the result and what study.json says of it.

    Raises InputError for a cluster that cannot do what is asked.
    """
    started = time.perf_counter()
    problem = posed.problem
    record.set_attrs({_TRIALS: _asked(posed, record, trials)})
    plan = partial(_plan, posed, record)
    if cluster is not None and plan().engine.name != WHOLE:
        raise InputError(
            f"the engine is {plan().engine.name}",
            field="--cluster",
            accepted=f"--engine {WHOLE}; other engines share a study through --storage",
        )
    union, board = Union(problem), Board(location, record.name, lease_s)
    expected = plan().expected(problem.space.size)

    def seen(done: Mapping[Unit, Outcome]) -> None:
        union.add(done)
        progress(union.evaluations, expected, len(union))

    def within(done: int, total: int | None, front: int) -> None:
        progress(union.evaluations + done, expected, max(front, len(union)))

    def publish() -> None:
        with board.turn():
            record.add(union.front(), FRONT)

    survey, found = surveyed(problem, plan())
    union.add(found)
    if survey is not None:
        with board.turn():
            survey.publish(record.add)
    if cluster is not None:
        work_on_cluster(cluster, problem, board, plan(), seen)
        publish()
    else:
        own = jobs if jobs <= UNDIVIDED else 1
        arguments = (space, posed.catalog.source, str(location), posed.identity, lease_s, loss_runs)

        def run(divided: Plan, unit: Unit) -> Outcome:
            return execute(problem, divided, unit, jobs=own, record=record, progress=within)

        with Processes(jobs - own, _process, arguments, board) as others:
            work(board, plan, run, seen=seen, idle=others.bury)
            publish()
    result = replace(union.result(plan(), {}), survey=survey)
    result.seconds.update(
        evaluate=time.perf_counter() - started - record.seconds, sample=0.0, store=record.seconds
    )
    return result, {
        "work_units": {
            "units": len(plan().units),
            "evaluations_with_repeats": union.evaluations,
            **board.counts(),
        },
    }


def with_stored(result: Result, record: Record) -> Result:
    """A study that has grown, or was asked for fewer trials than it holds, loses no point: trials
    that this search did not meet again stay on the front where nothing beats them."""
    front = joined(result.front, record.load().batch)
    return replace(result, front=front, miss=None) if len(front) else result


def join(
    space: str,
    catalog: Catalog,
    location: str | Path,
    *,
    engine: str | None = None,
    seed: int | None = None,
    trials: int | None = None,
    lease_s: float = LEASE_S,
    progress: Progress = lambda done, total, front: None,
    stop: Callable[[], bool] = lambda: False,
    identity: Mapping[str, Any] | None = None,
    law: str | None = None,
    loss_runs: str | None = None,
) -> int:
    """Join the study of `space` in a storage, or begin it, and do units until none is left; return
    how many this process completed.

    What is None is taken from the study, or else as `dse run` takes it. Raises StorageError where
    the study there is another one.
    """
    law = law if identity is None else identity.get("quality_law")
    posed = posed_study(space, catalog, engine or "auto", seed or 0, law=law, loss_runs=loss_runs)
    if identity is not None:
        posed.identity.update(engine=identity["engine"], seed=identity["seed"])
    elif engine is None or seed is None:
        _adopt(posed, location, engine, seed)
    with in_use(location):
        record = posed.record(location)
        if trials is not None or _TRIALS not in record.attrs:
            record.set_attrs({_TRIALS: _asked(posed, record, trials)})
        board = Board(location, record.name, lease_s)
        return work(
            board,
            partial(_plan, posed, record),
            lambda plan, unit: execute(posed.problem, plan, unit, record=record, progress=progress),
            stop=stop,
        )


def _asked(posed: Posed, record: Record, trials: int | None) -> int | None:
    """The trials of the study after `trials` are asked for: never fewer than before. None leaves
    them to the engine."""
    if _TRIALS not in record.attrs or trials is None:
        return record.attrs.get(_TRIALS, trials)
    engine = choose_engine(posed.identity["engine"], posed.problem.space.size)[0]
    return max(trials, record.attrs[_TRIALS] or getattr(engine, "trials", 0))


def _adopt(posed: Posed, location: str | Path, engine: str | None, seed: int | None) -> None:
    """Engine and seed of the study that is there. Raises InputError for an engine by its path."""
    attrs = Record.attrs_of(location, posed.problem.study.name)
    if engine is None:
        posed.identity["engine"] = adopted = attrs.get("engine", "auto")
        if is_path(adopted):
            raise InputError(
                f"the engine of the study is {adopted}, and code that a storage names is not run",
                field="--engine",
                accepted=f"--engine {adopted}, where you know it",
            )
    if seed is None:
        posed.identity["seed"] = attrs.get("seed", 0)


def _plan(posed: Posed, record: Record) -> Plan:
    identity, size = posed.identity, posed.problem.space.size
    return divide(identity["engine"], size, identity["seed"], record.attrs.get(_TRIALS))


def _process(
    space: str,
    source: Source,
    location: str,
    identity: dict[str, Any],
    lease_s: float,
    loss_runs: str | None,
) -> None:
    """A worker process that `dse run` starts; it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends this
    warnings.simplefilter("ignore", Doubt)  # which has said it, too
    join(
        space,
        source.read(),
        location,
        identity=identity,
        lease_s=lease_s,
        stop=orphaned(),
        loss_runs=loss_runs,
    )
