"""What study.json and front.json say of a search: the front, and the points chosen from it."""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse import __version__, units
from dse.catalog import Catalog
from dse.economics.prices import evidence_rows
from dse.economics.tco import price_by_parts
from dse.files import full_path
from dse.pareto import REFERENCE, Scale, choose, hypervolume
from dse.physics.workload import POISSON
from dse.problem.describe import (
    describe_deployment,
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
from dse.problem.objective import PhysicsProblem, on_terms, pose
from dse.problem.pools import RULES as POOL_RULES
from dse.problem.shapes import model_at
from dse.problem.words import FP8, draft_words, format_words, untried_row, wide
from dse.quality.laws import LAWS, UNIQUE_TOKENS
from dse.questions.estimate.point import assumptions, average_load
from dse.questions.estimate.where import breakdown
from dse.rules.registry import MEANINGS
from dse.schema.axes import DEGREES, POOLS
from dse.schema.catalog import LAWS as EFFICIENCY_FILES
from dse.schema.catalog import PRICES
from dse.schema.dtypes import CODE, DTYPES
from dse.schema.metrics import METRICS
from dse.schema.model import Model, config_of
from dse.schema.space_sections import COSTS
from dse.schema.study import load_study
from dse.search.evaluator import Batch
from dse.search.run import Result, measurable
from dse.space.batches import DRAFT_AXIS, drafts_of
from dse.space.candidates import CandidateBatch, Floats
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
    errors, more = Drawn.certain(front.F), {}
    if identity["evaluator"] == "model":  # the errors of a function of the user are not known
        intervals = [item["metrics"]["intervals"] for item in items]
        moved = Errors.of(problem, catalog, front.index, intervals)
        errors, more = moved.drawn(identity["seed"]), {"alone": moved.alone}
    start, family, decisions = decide(problem.objectives, front.F, errors, study.wish, **more)
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
        "chosen": {
            name: {
                "point": row + 1,
                **_breakdown(problem, metrics, front.index, row),
                "peak_flops_per_s": dict(
                    catalog.chips[items[row]["deployment"]["chip"]].peak_flops_per_s
                ),
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


# `not_searched` of study.json: what the space did not choose from and usually pays
# (`dse.problem.words`), tried on the design to start from.
#
# The deployments of its shape are evaluated again with that one thing changed: those of the space
# (where there are at most MOST), and the design itself at any load between the space's. What counts
# is the lowest cost (where none is asked for, the lowest time per token) within the limits at which
# no other objective gets worse than at the start; loss and time to first token may, and are told.
# Pools of their own are workers divided as the design is.

SPEED, FIRST = "tpot_s", "ttft_s"
LOADS = 4_000  # that are tried from the least to the most
LEAST = 5e-3  # of a metric: what is less is no gain
POOL_SIZES = (2, 3, 4, 6, 8)  # instances of two pools together
CHUNK, MOST = 10_000, 40_000  # deployments at a time, and in all
Change = Callable[[CandidateBatch], CandidateBatch]
WEIGHTS = ("attention", "mlp", "experts")


def describe_untried(
    problem: PhysicsProblem, catalog: Catalog, start: NDArray[np.int64]
) -> dict[str, Any]:
    """What would pay of the design at canonical index `start` (1, d): the `metric` of which each of
    `rows` saves a share."""
    wanted = [one.metric for one in problem.objectives]
    told = next((one for one in (*COSTS, SPEED) if one in wanted), None)
    if told is None or (problem.pools is not None and problem.pools.separate(start)[0]):
        return {"metric": told, "rows": []}
    case = _Case(problem, start, told)
    tried = (case.better(what, change) for what, change in _changes(problem, case.own))
    found = [one for one in (*tried, _pools(case, catalog)) if one is not None]
    return {"metric": told, "rows": found}


class _Case:
    """A design, deployments of its shape, and what must not get worse."""

    def __init__(self, problem: PhysicsProblem, start: NDArray[np.int64], told: str) -> None:
        self.problem = problem
        self.own = problem.batch(start)
        self.metrics = problem.metrics_of(self.own, problem.machines)
        self.F = problem.judge(self.metrics).F[0]
        self.column = [o.metric for o in problem.objectives].index(told)
        self.start = start

    def batches(self) -> Iterator[CandidateBatch]:
        """The design at all loads, and what the space has of its shape."""
        yield self.at_loads()
        index = _of_shape(self.problem, self.start)
        for first in range(0, len(index), CHUNK):
            yield self.problem.batch(index[first : first + CHUNK])

    def at_loads(self) -> CandidateBatch:
        """The design with requests in flight from the least to the most of the space: every whole
        number, or LOADS steps of one ratio where they are finer."""
        axis = {one.name: one for one in self.problem.space.axes}["concurrency"]
        values = () if axis.ratio_of is not None else axis.values
        sizes = [float(self.own.concurrency[0])]
        sizes += [float(value) for value in values if isinstance(value, int)]
        steps = np.round(np.geomspace(min(sizes), max(sizes), LOADS))
        loads = np.unique([*sizes, *steps])
        if any(share.workload.serving == POISSON for share in self.problem.mix):
            return self.own
        return replace(self.own[np.zeros(len(loads), dtype=np.intp)], concurrency=loads)

    def better(self, what: str, change: Change) -> dict[str, Any] | None:
        """The change in the cheapest candidate that is no worse; None where it is below the
        resolution."""
        found, machines = [], self.problem.machines
        for batch in self.batches():
            changed = change(batch)
            if not len(changed):
                continue
            metrics = self.problem.metrics_of(changed, machines)
            judged = self.problem.judge(metrics)
            if (one := self.told(what, judged.F, judged.G)) is not None:
                i, row = one
                row["result"] = f"{changed.chips[i]:g} × {machines.ids[changed.chip[i]]}"
                nats = float(metrics.values[LOSS][i] - self.metrics.values[LOSS][0])
                if what.startswith(FP8) and np.isfinite(nats):
                    row["predicted_loss_added"] = nats
                found.append(row)
        return max(found, key=lambda one: one["saves"], default=None)

    def told(self, what: str, F: Floats, G: Floats) -> tuple[int, dict[str, Any]] | None:
        """The same of F (n, m) and G (n, c), with the row of the best."""
        kept = (G <= 0.0).all(axis=1)
        for k, objective in enumerate(self.problem.objectives):
            if k != self.column and objective.metric not in (LOSS, FIRST):
                size = abs(self.F[k]) if objective.relative else 1.0
                kept &= F[:, k] <= self.F[k] + objective.step * size + 1e-9 * abs(self.F[k])
        if not kept.any():
            return None
        own, objective = self.F[self.column], self.problem.objectives[self.column]
        best = np.flatnonzero(kept)[np.argmin(F[kept, self.column])]
        saves = 1.0 - float(F[best, self.column] / own)
        least = objective.step if objective.relative else objective.step / abs(own)
        if saves <= max(least, LEAST):
            return None
        later = [
            f"first token {100.0 * (after / before - 1.0):.2g}% later"
            for one, after, before in zip(self.problem.objectives, F[best], self.F, strict=True)
            if one.metric == FIRST and after > (1.0 + LEAST) * before
        ]
        return int(best), untried_row(what, saves, "", worse="".join(later))


def _of_shape(problem: PhysicsProblem, start: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, d) every deployment of a shape that the space has; `start` alone of more than MOST."""
    space = problem.space
    fixed = np.array([axis.rule.section == "model" for axis in space.axes])
    sizes = np.where(fixed, 1, space.cardinalities)
    if math.prod(sizes.tolist()) > MOST:
        return start
    index = np.indices(tuple(sizes.tolist())).reshape(len(sizes), -1).T.astype(np.int64)
    index = np.where(fixed, start, index)
    index = np.unique(space.canonical(index), axis=0)
    return index if problem.pools is None else index[~problem.pools.separate(index)]


def _changes(problem: PhysicsProblem, own: CandidateBatch) -> Iterator[tuple[str, Change]]:
    """Narrower formats on chips that compute in them, and drafts."""
    formats = {DTYPES[own.weight_dtype[part][0]] for part in WEIGHTS}
    weights = wide(formats) and _all_wide(problem, "weight_dtype")
    cache = wide([DTYPES[own.kv_dtype[0]]]) and _all_wide(problem, "kv_dtype")
    if weights or cache:

        def narrow(batch: CandidateBatch) -> CandidateBatch:
            batch = batch[np.flatnonzero(problem.machines.native_dtype[batch.chip, CODE[FP8]])]
            code = np.full(len(batch), CODE[FP8])
            if weights:
                parts = {**batch.weight_dtype, **dict.fromkeys(WEIGHTS, code)}
                batch = replace(batch, weight_dtype=parts)
            return replace(batch, kv_dtype=code) if cache else batch

        yield format_words(weights, cache), narrow
    model = problem.model
    counts = tuple(sorted(model.drafts or ())) if model is not None else ()
    drafting = DRAFT_AXIS in problem.space.names
    drafting |= any(share.workload.speculation is not None for share in problem.mix)
    if model is not None and counts and not drafting:

        def drafted(batch: CandidateBatch) -> CandidateBatch:
            tokens = np.tile(np.array(counts, dtype=np.float64), len(batch))
            rows = np.repeat(np.arange(len(batch)), len(counts))
            return replace(batch[rows], **drafts_of([model], tokens, len(tokens)))

        yield draft_words(counts), drafted


def _all_wide(problem: PhysicsProblem, axis: str) -> bool:
    """Whether a space has no format of 8 bits or less on an axis."""
    found = {one.name: one for one in problem.space.axes}.get(axis)
    return found is None or wide(str(value) for value in found.values)


def _pools(case: _Case, catalog: Catalog) -> dict[str, Any] | None:
    """Of one published model and one closed loop."""
    problem, study = case.problem, case.problem.study
    load = problem.mix[0].workload
    if POOLS in problem.space.names or study.model is None or len(problem.mix) > 1:
        return None
    if load.serving != "continuous" or problem.machines.racks or study.systems:
        return None
    batch = case.at_loads()
    own = describe_deployment(batch, 0, problem.machines)
    worker = {axis: own[axis] for axis in ("chip", "weight_dtype", "kv_dtype")}
    worker |= {axis: int(getattr(batch, axis)[0]) for axis in DEGREES.values()}
    chips = int(batch.chips[0] / batch.replicas[0])
    loads = np.unique(np.maximum(batch.concurrency // batch.replicas, 1.0))
    row = study.workloads[0].row()
    pooled = load_study(
        {
            "name": study.name,
            "title": study.title or study.name,
            "workload": {**(one_load([row]) or {}), "backend": load.backend.id},
            "price_basis": study.price_basis,
            "model": study.model,
            "deployment": {
                "pool_chips": [chips * size for size in POOL_SIZES],
                "prefill": {**worker, "busy_percent": [60, 80, 100]},
                "decode": {**worker, "concurrency": [int(one) for one in loads]},
            },
            "objectives": {o.metric: o.direction for o in study.objectives},
        },
        on_terms(catalog, study),
    )
    other = pose(replace(study, deployment_axes=pooled.deployment_axes), catalog)
    found = other.evaluate(other.space.unrank(np.arange(other.space.size)))
    one = case.told("pools for prefill and decode", found.F, found.G)
    return None if one is None else one[1]
