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
from dse.economics.tco import usd_per_chip_hour
from dse.files import full_path
from dse.pareto import REFERENCE, Scale, choose, hypervolume
from dse.problem.describe import (
    describe_metrics,
    describe_workloads,
    number,
    pools_of,
    study_rack,
)
from dse.problem.evaluate import Metrics
from dse.problem.mix import one_load
from dse.problem.objective import PhysicsProblem
from dse.problem.own_law import describe_own_law
from dse.problem.pools import RULES as POOL_RULES
from dse.problem.quality import fit_ranges
from dse.problem.shapes import model_at
from dse.quality.laws import LAWS, UNIQUE_TOKENS
from dse.questions.estimate.detail import breakdown
from dse.questions.estimate.elsewhere import elsewhere
from dse.questions.estimate.point import assumptions, average_load
from dse.rules.registry import MEANINGS
from dse.schema.catalog import LAWS as EFFICIENCY_FILES
from dse.schema.catalog import PRICES
from dse.schema.metrics import METRICS
from dse.schema.model import Model
from dse.schema.own_config import config_of
from dse.search.evaluator import Batch
from dse.search.run import Result, measurable
from dse.study.decide import decide
from dse.study.demand import training_document
from dse.study.drawn import Drawn, Errors
from dse.study.landmarks import QUALITY, compute_multiples, landmarks
from dse.study.prices import price_evidence, price_parts, price_rows
from dse.study.robust import front_probability
from dse.study.unseen import unseen
from dse.study.untried import describe_untried

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
    items = _items(problem, catalog, metrics, front.index, out)
    errors, more = Drawn.certain(front.F), {}
    if identity["evaluator"] == "model":  # the errors of a function of the user are not known
        intervals = [item["metrics"]["intervals"] for item in items]
        moved = Errors.of(problem, catalog, front.index, intervals)
        errors, more = moved.drawn(identity["seed"]), {"alone": moved.alone}
    start, family, decisions = decide(problem.objectives, front.F, errors, study.wish, **more)
    known = landmarks(problem) if identity["evaluator"] == "model" else []
    if known:
        families = decisions["families"]
        losses = [items[one["point"] - 1]["metrics"][QUALITY] for one in families]
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
            {
                "constraint": tally.constraint,
                "meaning": OF_RULES.get(tally.constraint, "a limit of the space file"),
                "violated": tally.violated,
                "only": tally.only,
            }
            for tally in result.tallies
        ],
        "evaluations": result.evaluations,
        "feasible": result.feasible,
        **(
            {"not_searched": describe_untried(problem, catalog, front.index[start : start + 1])}
            if identity["evaluator"] == "model"
            else {}
        ),
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
            **({"breakdowns": price_parts(catalog, problem)} if study.costs else {}),
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
        "chosen": {
            name: {
                "point": row + 1,
                **_breakdown(problem, metrics, front.index, row),
                "peak_flops_per_s": dict(
                    catalog.chips[items[row]["deployment"]["chip"]].peak_flops_per_s
                ),
                "elsewhere": []
                if "prefill" in items[row]["deployment"]
                else elsewhere(problem, catalog, items[row]),
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
    out: Path,
) -> list[dict[str, Any]]:
    batch, deployments = problem.batch(index), problem.deployments(index)
    asked = tuple(objective.metric for objective in problem.objectives)
    items, kinds = [], metrics.provenance.tolist()
    for i in range(len(index)):
        tokens = number(metrics.values["training_tokens"][i])
        if problem.model is None:
            model = model_at(batch, i, f"{problem.study.name}-{i + 1}", tokens)
        else:
            model = problem.model
        deployment = deployments[i]
        workloads = describe_workloads(metrics, i)
        items.append(
            {
                "point": i + 1,
                "names": [],
                "model": config_of(model),
                "deployment": deployment,
                "metrics": {
                    **describe_metrics(metrics, i, batch, problem.limits, asked),
                    "assumed": _assumed(problem, catalog, model, deployment, kinds[i]),
                },
                **({"workloads": workloads} if workloads else {}),
                **_at_average_load(problem, catalog, metrics, i, deployment["chip"]),
                "command": f"dse estimate {shlex.quote(str(out))} {i + 1}",
            }
        )
    return items


def _breakdown(
    problem: PhysicsProblem, metrics: Metrics, index: np.ndarray, row: int
) -> dict[str, Any]:
    """Where the time of a chosen point goes; of separate pools, in the steps of each."""
    if problem.pools is None or not problem.pools.separate(index)[row]:
        return breakdown(metrics, row)
    one = index[row : row + 1]
    return breakdown(problem.pools.in_steps(problem.metrics(one), one), 0)


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


# Front points that stand on an end of the space or of the quality law: there the search may have
# been stopped by the frame, not by the physics.


def at_bounds(problem: PhysicsProblem, metrics: Metrics, index: np.ndarray) -> list[dict[str, Any]]:
    """[{bound, points}], most points first: the lowest or highest value of an ordered model or
    deployment axis of three values or more, on its chip, and the ends of the law."""
    rows = []
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
            points = int(
                (counts & (index[:, j] == np.array([one[end] for one in may])[chips])).sum()
            )
            value = axis.values[may[0][end]]
            if axis.rule.kind == "tokens":
                value = units.format(float(value), "tokens")
            what = "for its shape" if axis.ratio_of else f"of the space ({value})"
            what = "for its chip" if axis.by_chip else what
            if points:
                rows.append({"bound": f"{which} {name} {what}", "points": points})
    for name, flags in metrics.quality.at_bound.items():
        if flags.any():
            rows.append(
                {"bound": f"{name} at the end of the quality law", "points": int(flags.sum())}
            )
    return sorted(rows, key=lambda row: -row["points"])


# Where the figures of a study come from: prices and chip figures with source, date and kind.

# Figures that the physics reads; the rest of a chip file is not named in a report.
READ = ("peak_", "memory_", "tdp", "scale", "bandwidth", "latency")


def source_rows(catalog: Catalog, problem: PhysicsProblem) -> list[dict[str, Any]]:
    """Every figure of the space's chips and systems that the physics reads."""
    rows = []
    for name in problem.machines.ids:
        chip = catalog.chips[name]
        system = catalog.systems[chip.system]
        for owner, figures in ((name, chip.figures), (system.id, system.figures)):
            for figure in figures:
                if any(part in figure.name for part in READ):
                    rows.append(
                        {
                            "figure": f"{owner} {figure.name}: {figure.text}",
                            "source": figure.source,
                            "date": str(figure.date),
                            "kind": figure.kind,
                        }
                    )
        efficiency = catalog.efficiencies[chip.efficiency]
        for operator, laws in efficiency.operators.items():
            law = next(iter(laws.values()))
            rows.append(
                {
                    "figure": f"{name} kernel efficiency of {operator}",
                    "source": law.source,
                    "date": "",
                    "kind": law.kind,
                }
            )
    return rows
