"""A whole study: search, then everything that the folder holds but the report."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dse import __version__
from dse.catalog import Catalog
from dse.economics.tco import usd_per_chip_hour
from dse.errors import InputError, StorageError
from dse.files import write_json, write_text
from dse.pareto import REFERENCE, Scale, choose, hypervolume
from dse.problem.describe import (
    describe_deployment,
    describe_metrics,
    describe_workloads,
    number,
)
from dse.problem.evaluate import Metrics
from dse.problem.loads import one_load
from dse.problem.objective import PhysicsProblem
from dse.problem.quality import fit_ranges
from dse.problem.racks import study_rack
from dse.problem.shapes import model_at
from dse.quality.laws import ALL, LAWS
from dse.questions.estimate.breakdown import breakdown
from dse.questions.estimate.elsewhere import elsewhere
from dse.questions.estimate.point import assumptions, average_load
from dse.questions.estimate.why_not import nothing_feasible
from dse.rules.registry import MEANINGS
from dse.schema.catalog import LAWS as EFFICIENCY_FILES
from dse.schema.catalog import PRICES, Source, full_path
from dse.schema.metrics import METRICS
from dse.schema.own_config import config_of
from dse.search.checkpoint import Checkpoint
from dse.search.claims import LEASE_S
from dse.search.engine import Budget
from dse.search.run import Result, search
from dse.search.storage import shown
from dse.study.bounds import at_bounds
from dse.study.demand import training_document
from dse.study.external import external_problem, say_external
from dse.study.folder import FRONT, FRONT_TABLE, STUDY, refuse_other
from dse.study.join import JOURNAL, MOST_THREADS, is_shared, posed_study, share, with_stored
from dse.study.laws import compare_laws
from dse.study.proof import SWEEP, proof_of
from dse.study.robust import front_probability
from dse.study.sources import price_parts, price_rows, source_rows
from dse.study.table import front_table
from dse.study.unseen import unseen
from dse.study.views import describe_views, refuse_views

LIBRARIES = ("numpy", "optuna", "moocore", "scipy", "pandas")
NAMES = {
    "usd_per_million_total_tokens": "cheapest",
    "usd_per_million_output_tokens": "cheapest",
    "usd_per_million_output_tokens_all_in": "cheapest",
    "tpot_s": "fastest",
    "e2e_s": "fastest",
    "ttft_s": "soonest",
    "predicted_loss": "best",
    "full_attention_share": "most full attention",
}
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
    items, document = _documents(problem, catalog, result, identity, out)
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


def _left_out(reasons: Mapping[str, str]) -> list[str]:
    """One sentence a reason, with the chips that it leaves out by name."""
    chips: dict[str, list[str]] = {}
    for chip, reason in reasons.items():
        chips.setdefault(reason.removeprefix(f"{chip} "), []).append(chip)
    return [
        f"{', '.join(names)}: {reason}" if len(names) > 1 else f"{names[0]} {reason}"
        for reason, names in chips.items()
    ]


def _documents(
    problem: PhysicsProblem, catalog: Catalog, result: Result, identity: dict, out: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(items of front.json, study.json) of a search."""
    front, study = result.front, problem.study
    metrics = problem.metrics(front.index, keep=True)
    log = tuple(objective.log for objective in problem.objectives)
    names = [NAMES.get(o.metric, o.metric) for o in problem.objectives]
    chosen = choose(front.F, names, log)
    items = _items(problem, catalog, metrics, front.index, chosen, out)
    likely = front_probability(problem, front.index, identity["seed"])
    for item, probability in zip(items, likely, strict=True):
        item["front_probability"] = float(probability)
        item["metrics"]["assumed"] += problem.trained.assumed if problem.trained else ()
    scale = Scale.of(front.F, log)
    loads = [load.row() for load in study.workloads]
    law = LAWS[study.quality_law]
    document = {
        "space": study.name,
        "title": study.title or study.name,
        "description": study.description,
        "size": problem.space.size,
        "seed": identity["seed"],
        "engine": result.engine,
        "why_engine": result.why,
        "price_basis": study.price_basis,
        **({"costs": study.costs.as_json()} if study.costs else {}),
        **({"demand": asdict(study.demand)} if study.demand else {}),
        **({PRICES: catalog.source.own_prices()} if catalog.source.has_prices else {}),
        **({"rack": study_rack(problem.machines)} if problem.machines.rack else {}),
        "workload": one_load(loads),
        **({"workloads": loads} if len(loads) > 1 else {}),
        "training_compute": study.training_compute,
        "training_tokens": study.training_tokens,
        **training_document(problem, front.index),
        "objectives": [
            {
                "metric": o.metric,
                "direction": o.direction,
                "log": o.log,
                "unit": METRICS[o.metric].dimension,
            }
            for o in problem.objectives
        ],
        "constraints": [
            {"text": c.text, "metric": c.metric, "sign": c.sign, "limit": c.limit}
            | ({"workload": c.workload} if c.workload else {})
            for c in problem.limits
        ],
        "constraint_tallies": [
            {
                "constraint": tally.constraint,
                "meaning": MEANINGS.get(tally.constraint, "a limit of the space file"),
                "violated": tally.violated,
                "only": tally.only,
            }
            for tally in result.tallies
        ],
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        "front_size": len(items),
        "hypervolume": hypervolume(front.F, scale),
        "reference_point": [REFERENCE] * len(problem.objectives),
        "price": {
            "basis": study.price_basis,
            "rows": price_rows(catalog, problem),
            **({"breakdowns": price_parts(catalog, problem)} if study.costs else {}),
        },
        "left_out": _left_out(study.why_left_out),
        "chip_files": [full_path(file) for file in catalog.source.chips],
        **({EFFICIENCY_FILES: list(laws)} if (laws := catalog.source.efficiency) else {}),
        "quality_law": law.name,
        "law": {
            "name": law.title,
            "sources": list(law.sources),
            "fit_range": list(law.fit_range),
            "not_seen": [*law.not_seen, *unseen(study.model_axes)],
            "fit": fit_ranges(law.name),
            **_law_use(metrics),
            "at_bounds": at_bounds(problem, metrics, front.index),
        },
        "chosen": {
            name: {
                "point": row + 1,
                **breakdown(metrics, row),
                "peak_flops_per_s": dict(
                    catalog.chips[items[row]["deployment"]["chip"]].peak_flops_per_s
                ),
                "elsewhere": elsewhere(problem, catalog, items[row]),
            }
            for name, row in chosen.items()
        },
        "sources": source_rows(catalog, problem),
        "versions": {
            "dse": __version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            **{name: version(name) for name in LIBRARIES},
        },
        "data_digest": identity["data_digest"],
        "fingerprint": identity["fingerprint"],
    }
    return items, document


def _items(
    problem: PhysicsProblem,
    catalog: Catalog,
    metrics: Metrics,
    index: np.ndarray,
    chosen: dict[str, int],
    out: Path,
) -> list[dict[str, Any]]:
    batch = problem.batch(index)
    asked = tuple(objective.metric for objective in problem.objectives)
    items = []
    for i in range(len(index)):
        tokens = number(metrics.values["training_tokens"][i])
        if problem.model is None:
            model = model_at(batch, i, f"{problem.study.name}-{i + 1}", tokens)
        else:
            model = problem.model
        deployment = describe_deployment(batch, i, problem.machines)
        workloads = describe_workloads(metrics, i)
        items.append(
            {
                "point": i + 1,
                "names": [name for name, row in chosen.items() if row == i],
                "model": config_of(model),
                "deployment": deployment,
                "metrics": {
                    **describe_metrics(metrics, i, batch, problem.limits, asked),
                    "assumed": assumptions(
                        catalog,
                        model,
                        deployment,
                        problem.mix,
                        int(metrics.provenance[i]),
                        problem.study.price_basis,
                        problem.study.rack,
                    ),
                },
                **({"workloads": workloads} if workloads else {}),
                **_at_average_load(problem, catalog, metrics, i, deployment["chip"]),
                "command": f"dse estimate {shlex.quote(str(out))} {i + 1}",
            }
        )
    return items


def _at_average_load(
    problem: PhysicsProblem, catalog: Catalog, metrics: Metrics, row: int, chip: str
) -> dict[str, Any]:
    study = problem.study
    if study.demand is None:
        return {}
    price = None
    if study.costs is not None:
        price = usd_per_chip_hour(catalog, chip, study.price_basis, study.costs)
    return {"at_average_load": average_load(study.demand, metrics, row, price).as_json()}


def _law_use(metrics: Metrics) -> dict[str, Any]:
    """How much of the front lies outside what the quality law was fitted on."""
    quality = metrics.quality
    outside = np.zeros(len(metrics.provenance), dtype=bool)
    for flags in quality.extrapolates.values():
        outside = outside | flags
    return {
        "extrapolated_share": float(outside.mean()),
        "extrapolated": [
            {"quantity": name, "share": float(flags.mean())}
            for name, flags in quality.extrapolates.items()
        ],
    }
