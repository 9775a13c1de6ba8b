"""`not_searched` of study.json: what the space did not choose from and usually pays
(`dse.problem.words`), tried on the design to start from.

The deployments of its shape are evaluated again with that one thing changed: those of the space
(where there are at most MOST), and the design itself at any load between the space's. What counts
is the lowest cost (where none is asked for, the lowest time per token) within the limits at which
no other objective gets worse than at the start; loss and time to first token may, and are told.
Pools of their own are workers divided as the design is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.physics.workload import POISSON
from dse.problem.describe import describe_deployment
from dse.problem.mix import one_load
from dse.problem.objective import PhysicsProblem, on_terms, pose
from dse.problem.words import FP8, Untried, draft_counts, draft_words, format_words, wide
from dse.schema.axes import POOLS
from dse.schema.dtypes import CODE, DTYPES
from dse.schema.study import load_study
from dse.schema.views import COSTS
from dse.space.batches import DRAFT_AXIS, drafts_of
from dse.space.candidates import CandidateBatch, Floats

LOSS = "predicted_loss"
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
    return {"metric": told, "rows": [one.as_json() for one in found]}


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

    def better(self, what: str, change: Change) -> Untried | None:
        """The change in the cheapest candidate that is no worse; None where it is below the
        resolution."""
        found, nats = [], 0.0
        for batch in self.batches():
            changed = change(batch)
            if not len(changed):
                continue
            metrics = self.problem.metrics_of(changed, self.problem.machines)
            if not found:
                nats = float(metrics.values[LOSS][0] - self.metrics.values[LOSS][0])
            judged = self.problem.judge(metrics)
            one = self.told(what, judged.F, judged.G)
            if one is not None:
                found.append(replace(one[1], result=self._chips(changed, one[0])))
        best = max(found, key=lambda one: one.saves or 0.0, default=None)
        if best is None or not (what.startswith(FP8) and np.isfinite(nats)):
            return best
        return replace(best, nats=nats)

    def _chips(self, batch: CandidateBatch, i: int) -> str:
        """`4 x b200_sxm`."""
        return f"{batch.chips[i]:g} × {self.problem.machines.ids[batch.chip[i]]}"

    def told(self, what: str, F: Floats, G: Floats) -> tuple[int, Untried] | None:
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
        return int(best), Untried(what, saves, "", worse=self._later(F[best]))

    def _later(self, F: Floats) -> str:
        """By how much the first token comes later, where it is an objective."""
        for k, objective in enumerate(self.problem.objectives):
            if objective.metric == FIRST and F[k] > (1.0 + LEAST) * self.F[k]:
                return f"first token {100.0 * (F[k] / self.F[k] - 1.0):.2g}% later"
        return ""


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
    counts = draft_counts(model) if model is not None else ()
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


def _pools(case: _Case, catalog: Catalog) -> Untried | None:
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
    degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    worker |= {axis: int(getattr(batch, axis)[0]) for axis in degrees}
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
