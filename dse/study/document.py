"""What study.json and front.json say of a search: the front, and the points chosen from it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dse import __version__, units
from dse.catalog import Catalog
from dse.economics.prices import evidence_rows
from dse.economics.tco import price_by_parts
from dse.files import full_path
from dse.pareto import REFERENCE, Scale, choose, hypervolume
from dse.problem.describe import (
    describe_metrics,
    describe_workloads,
    fit_ranges,
    number,
    pools_of,
    study_rack,
)
from dse.problem.evaluate import Metrics
from dse.problem.mix import one_load, whole
from dse.problem.models import describe_own_law
from dse.problem.objective import PhysicsProblem
from dse.problem.pools import RULES as POOL_RULES
from dse.problem.shapes import model_at
from dse.quality.laws import LAWS, UNIQUE_TOKENS
from dse.questions.estimate.point import assumptions, average_load
from dse.rules.registry import MEANINGS
from dse.schema.catalog import LAWS as EFFICIENCY_FILES
from dse.schema.catalog import PRICES
from dse.schema.metrics import METRICS
from dse.schema.model import Model, config_of
from dse.search.evaluator import Batch
from dse.search.run import Result, measurable
from dse.space.space import Space
from dse.study.decide import (
    LOSS,
    Drawn,
    Errors,
    compute_multiples,
    decide,
    front_probability,
    landmarks,
)
from dse.study.demand import training_document
from dse.study.laws import unseen

START = "start"
OF_RULES = {**MEANINGS, **POOL_RULES}
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


def _left_out(reasons: Mapping[str, str]) -> list[str]:
    """One sentence a reason, with the chips that it leaves out by name."""
    chips: dict[str, list[str]] = {}
    for chip, reason in reasons.items():
        chips.setdefault(reason.removeprefix(f"{chip} "), []).append(chip)
    return [
        f"{', '.join(names)}: {reason}" if len(names) > 1 else f"{names[0]} {reason}"
        for reason, names in chips.items()
    ]


def describe(
    problem: PhysicsProblem,
    catalog: Catalog,
    result: Result,
    front: Batch,
    identity: dict,
    out: Path,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(items of front.json, study.json) of a search, whose front at the resolution of the space is
    `front`; the hypervolume is that of the exact one."""
    study = problem.study
    metrics = problem.metrics(front.index, keep=True)
    log = tuple(objective.log for objective in problem.objectives)
    names = [NAMES.get(o.metric, o.metric) for o in problem.objectives]
    items = front_items(problem, catalog, metrics, front.index, out)
    errors = Drawn.certain(front.F)
    if identity["evaluator"] == "model":  # the errors of a function of the user are not known
        intervals = [item["metrics"]["intervals"] for item in items]
        errors = Errors.of(problem, catalog, front.index, intervals).drawn(identity["seed"])
    start, family, decisions = decide(problem.objectives, front.F, errors, study.wish)
    known = landmarks(problem) if identity["evaluator"] == "model" else []
    if known:
        families = decisions["families"]
        losses = [items[one["point"] - 1]["metrics"][LOSS] for one in families]
        multiples = compute_multiples(problem, front.index[start : start + 1], losses)
        for one, multiple in zip(families, multiples, strict=True):
            one["compute_multiple"] = multiple
    chosen = {START: start, **choose(front.F, names, log)}
    for i, item in enumerate(items):
        item["names"] = [name for name, row in chosen.items() if row == i]
        item["decision"] = int(family[i]) + 1
    likely = front_probability(problem, front.index, identity["seed"])
    for item, probability in zip(items, likely, strict=True):
        item["front_probability"] = float(probability)
        item["metrics"]["assumed"] += problem.trained.assumed if problem.trained else ()
    scale = Scale.of(result.front.F, log)
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
        **({"rack": study_rack(problem.machines)} if problem.machines.racks else {}),
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
            {**asdict(one), "meaning": OF_RULES.get(one.constraint, "a limit of the space file")}
            for one in result.tallies
        ],
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        "front_size": len(items),
        "exact_front_size": len(result.front),
        "resolution": {o.metric: o.resolution.text for o in study.objectives},
        "decisions": decisions,
        **({"landmarks": known} if known else {}),
        "hypervolume": hypervolume(measurable(problem, result.front).F, scale),
        "reference_point": [REFERENCE] * len(problem.objectives),
        "price": {
            "basis": study.price_basis,
            "rows": price_rows(catalog, problem),
            "evidence": price_evidence(catalog, problem),
            **({"breakdowns": [*owned_prices(catalog, problem).values()]} if study.costs else {}),
        },
        "chips": {chip: catalog.chip(chip).label for chip in problem.machines.ids},
        "left_out": _left_out(study.why_left_out),
        "chip_files": [full_path(file) for file in catalog.source.chips],
        **({EFFICIENCY_FILES: list(laws)} if (laws := catalog.source.efficiency) else {}),
        "quality_law": law.name,
        **({"unique_tokens": unique} if (unique := study.unique_tokens) != UNIQUE_TOKENS else {}),
        **({"loss_runs": describe_own_law(problem.own_law)} if problem.own_law else {}),
        "law": {
            "name": law.title,
            "sources": list(law.sources),
            "fit_range": list(law.fit_range),
            "not_seen": [*law.not_seen, *unseen(study.model_axes)],
            "fit": fit_ranges(law.name),
            **_law_use(metrics),
            "at_bounds": at_bounds(problem, metrics, front.index),
        },
        "chosen": {name: {"point": row + 1} for name, row in chosen.items()},
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


def front_items(
    problem: PhysicsProblem,
    catalog: Catalog,
    metrics: Metrics,
    index: np.ndarray,
    out: Path,
) -> list[dict[str, Any]]:
    """Items of front.json for the points `index` (n, d), whose `metrics` these are; what follows
    from the front as a whole is added by `describe`."""
    batch, deployments = problem.batch(index), problem.deployments(index)
    asked = tuple(objective.metric for objective in problem.objectives)
    items, kinds = [], metrics.provenance.tolist()
    demand, owned = problem.study.demand, owned_prices(catalog, problem)
    for i in range(len(index)):
        tokens = number(metrics.values["training_tokens"][i])
        if problem.model is None:
            model = model_at(batch, i, f"{problem.study.name}-{i + 1}", tokens)
        else:
            model = problem.model
        deployment = deployments[i]
        workloads, average = describe_workloads(metrics, i), {}
        if demand is not None:
            load = average_load(demand, metrics, i, owned.get(deployment["chip"]))
            average = {"at_average_load": load}
        items.append(
            {
                "point": i + 1,
                "names": [],
                "model": config_of(model),
                "deployment": deployment,
                "metrics": {
                    **describe_metrics(metrics, i, problem.limits, asked),
                    "assumed": _assumed(problem, catalog, model, deployment, kinds[i]),
                },
                **({"workloads": workloads} if workloads else {}),
                **average,
                "command": f"dse estimate {shlex.quote(str(out))} {i + 1}",
            }
        )
    return items


def searched_axes(space: Space, index: np.ndarray) -> dict[str, list[Any]]:
    """The values at the points `index` (n, d) of every axis that `space` varies, (n,) each; None
    where an axis does not count."""
    values, active, found = space.values(index), space.active(index), {}
    for j, axis in enumerate(space.axes):
        if len(axis.values) > 1:
            cells: list[Any] = [axis.values[k] for k in index[:, j]]
            if axis.rule.kind in ("size", "tokens"):
                cells = [whole(value) for value in values[axis.name].tolist()]
            known = zip(cells, active[:, j], strict=True)
            found[axis.name] = [cell if counts else None for cell, counts in known]
    return found


def _assumed(
    problem: PhysicsProblem, catalog: Catalog, model: Model, deployment: dict[str, Any], kind: int
) -> list[str]:
    """What a point rests on; of separate pools, what either does."""
    study = problem.study
    found = [
        assumptions(catalog, model, one, problem.mix, kind, study.price_basis, study.rack)
        for one in pools_of(deployment) or (deployment,)
    ]
    return list(dict.fromkeys(text for texts in found for text in texts))


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


# Front points that stand on an end of the space or of the quality law: there the search may have
# been stopped by the frame, not by the physics.


def at_bounds(problem: PhysicsProblem, metrics: Metrics, index: np.ndarray) -> list[dict[str, Any]]:
    """[{bound, points}], most points first: the lowest or highest value of an ordered model or
    deployment axis of three values or more, on its chip, and the ends of the law."""
    found: list[tuple[str, int]] = []
    space = problem.space
    active = space.active(index)
    for j, (name, axis) in enumerate(zip(space.names, space.axes, strict=True)):
        at = space.names.index(axis.chip_axis) if axis.by_chip else j
        chips = index[:, at] * bool(axis.by_chip)
        may = [axis.positions(chip) for chip in range(len(axis.by_chip) or 1)]
        counts = active[:, j] & (np.array([len(one) for one in may]) >= 3)[chips]
        if not space.ordered[j]:
            continue
        for which, end in (("lowest", 0), ("highest", -1)):
            ends = np.array([one[end] for one in may])[chips]
            value = axis.values[may[0][end]]
            if axis.rule.kind == "tokens":
                value = units.format(float(value), "tokens")
            what = "for its shape" if axis.ratio_of else f"of the space ({value})"
            what = "for its chip" if axis.by_chip else what
            found.append((f"{which} {name} {what}", int((counts & (index[:, j] == ends)).sum())))
    for name, flags in metrics.quality.at_bound.items():
        found.append((f"{name} at the end of the quality law", int(flags.sum())))
    rows = [{"bound": bound, "points": points} for bound, points in found if points]
    return sorted(rows, key=lambda row: -row["points"])


# Where the figures of a study come from: prices and chip figures with source, date and kind.

# Figures that the physics reads; the rest of a chip file is not named in a report.
READ = ("peak_", "memory_", "tdp", "scale", "bandwidth", "latency")


def source_rows(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """Every figure of the space's chips and systems that the physics reads."""
    found: list[tuple[str, str, str, str]] = []
    for name in problem.machines.ids:
        chip = catalog.chips[name]
        system = catalog.systems[chip.system]
        for owner, figures in ((name, chip.figures), (system.id, system.figures)):
            found += [
                (f"{owner} {one.name}: {one.text}", one.source, str(one.date), one.kind)
                for one in figures
                if any(part in one.name for part in READ)
            ]
        for operator, laws in catalog.efficiencies[chip.efficiency].operators.items():
            law = next(iter(laws.values()))
            found.append((f"{name} kernel efficiency of {operator}", law.source, "", law.kind))
    keys = ("figure", "source", "date", "kind")
    return [dict(zip(keys, row, strict=True)) for row in found]


# What a study says of the prices of its chips.


def price_rows(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """The price of each chip of the space on its one basis."""
    prices = catalog.prices.select(problem.study.price_basis)
    return [
        {
            "chip": chip,
            "usd_per_chip_hour": price.usd_per_chip_hour,
            "date": price.dates,
            "source": "; ".join(price.sources),
            "rule": price.rule,
            "note": "; ".join(price.notes),
        }
        for chip in problem.machines.ids
        for price in (prices[chip],)
    ]


def price_evidence(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """What each of these prices rests on."""
    study = problem.study
    priced = [(chip, study.price_basis) for chip in problem.machines.ids]
    return evidence_rows(catalog, priced, study.costs)


def owned_prices(catalog: Catalog, problem: PhysicsProblem) -> dict[str, dict[str, Any]]:
    """The parts of each chip's price; empty where chips are rented."""
    study = problem.study
    if study.costs is None:
        return {}
    chips = problem.machines.ids
    return {chip: price_by_parts(catalog, chip, study.price_basis, study.costs) for chip in chips}
