"""A fleet for a trace of requests, sized so that a percentile of first tokens comes in time.

The trace becomes a rate and classes of lengths (`dse.specs.traffic`), each a stream of its own
beside the others (`dse.mix`); arrivals are taken to be random (`dse.perf.poisson`).

An instance of a deployment is repeated until every class keeps the targets at that rate; the cost
is paid by the hour whether the fleet is busy or not, and over the tokens of the whole trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse.candidates import CandidateBatch, Floats
from dse.errors import InputError, NothingFeasible
from dse.evaluate import Metrics
from dse.mix import Mix, Share, evaluate_mix
from dse.perf.workload import POISSON, Workload
from dse.space.space import Space
from dse.specs.backend import Backend, find_backend
from dse.specs.catalog import Catalog
from dse.specs.study import Study
from dse.specs.traffic import PERCENTILES, Class, Traffic
from dse.study.describe import describe_deployment
from dse.study.physics import PhysicsProblem, pose

CHUNK, LARGEST = 4_000, 200_000  # deployments at a time, in all
MOST_INSTANCES = 4_096
LATENCIES = ("ttft_s", "ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "tpot_s")
Progress = Callable[[str, int, int], None]


def traffic_of_study(study: Study, per_s: float) -> Traffic:
    """The lengths of the space's own workloads at a given rate."""
    classes = tuple(
        Class(
            load.weight,
            float(load.prompt_tokens),
            float(load.output_tokens),
            float(load.details.get("prefix_hit_rate", 0.0)),
        )
        for load in study.workloads
    )
    return Traffic(classes, per_s, per_s)


@dataclass(frozen=True, slots=True)
class Targets:
    """The percentile (of PERCENTILES) of the time to first token, and the time per token, s."""

    percentile: int
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """The cheapest fleet on one chip. `first_s` is the percentile asked for of the worst class;
    dollars per million tokens over the trace's mean rate, and at the rate that it is sized for."""

    chip: str
    deployment: dict[str, object]
    instances: int
    chips: int
    usd_per_hour: float
    first_s: float
    tpot_s: float
    load: float
    tokens_per_usd: float
    usd_per_million_mean: float
    usd_per_million_busy: float
    instances_by_means: int


@dataclass(frozen=True, slots=True)
class Sized:
    """Fleets, the cheapest first; chips without one, with the reason."""

    fleets: tuple[Fleet, ...]
    left_out: dict[str, str]


def size_fleets(
    study: Study,
    catalog: Catalog,
    traffic: Traffic,
    targets: Targets,
    progress: Progress = lambda what, done, total: None,
) -> Sized:
    """The cheapest fleet on every chip of the space.

    Raises InputError for a space whose model is searched or that is too large, NothingFeasible
    where no chip can keep the targets.
    """
    problem = _problem(study, catalog)
    backend = find_backend(catalog.backends, study.workloads[0].backend)
    typical = Traffic((traffic.mean,), traffic.mean_per_s, traffic.mean_per_s)
    mix, means = _mix(traffic, backend), _mix(typical, backend)
    best: dict[str, Fleet] = {}
    size = problem.space.size
    for start in range(0, size, CHUNK):
        ids = np.arange(start, min(start + CHUNK, size), dtype=np.int64)
        batch = problem.batch(problem.space.unrank(ids))
        for fleet in _cheapest(replace(problem, mix=mix), batch, traffic, targets, means, progress):
            known = best.get(fleet.chip)
            if known is None or fleet.usd_per_hour < known.usd_per_hour:
                best[fleet.chip] = fleet
    if not best:
        raise NothingFeasible(
            f"no deployment of {len(problem.machines.ids)} chips keeps the targets with up to "
            f"{MOST_INSTANCES:,} instances"
        )
    left_out = {
        chip: "no deployment of the space keeps the targets"
        for chip in problem.machines.ids
        if chip not in best
    }
    fleets = sorted(best.values(), key=lambda one: (one.usd_per_hour, one.chip))
    return Sized(tuple(fleets), left_out)


def _problem(study: Study, catalog: Catalog) -> PhysicsProblem:
    """The study's deployments of one instance; of its limits, all but those on latencies."""
    if study.model is None:
        raise InputError(
            "the space searches shapes", file=str(study.path), field="model",
            accepted="one model: a fleet serves one",
        )  # fmt: skip
    axes = tuple(
        replace(axis, values=axis.values[:1]) if axis.name in ("concurrency", "replicas") else axis
        for axis in study.deployment_axes
    )
    known = pose(study, catalog)
    space = Space(study.name, (*study.model_axes, *axes), study.fingerprint)
    if space.size > LARGEST:
        raise InputError(
            f"{space.size:,} deployments", file=str(study.path), field="axes",
            accepted=f"at most {LARGEST:,}",
        )  # fmt: skip
    limits = tuple(one for one in known.limits if one.metric not in LATENCIES and not one.workload)
    return replace(known, space=space, limits=limits)


def _mix(traffic: Traffic, backend: Backend) -> Mix:
    return tuple(
        Share(
            f"class {k + 1}",
            one.share,
            Workload.of(
                one.prompt, one.output, POISSON, backend,
                requests_per_second=traffic.busy_per_s * one.share, prefix_hit_rate=one.cached,
            ),
        )
        for k, one in enumerate(traffic.classes)
    )  # fmt: skip


def _cheapest(
    problem: PhysicsProblem,
    batch: CandidateBatch,
    traffic: Traffic,
    targets: Targets,
    means: Mix,
    progress: Progress,
) -> list[Fleet]:
    """The cheapest fleet of each chip in `batch`."""
    needed = _instances(problem, batch, targets, progress)
    usable = np.isfinite(needed)
    if not usable.any():
        return []
    batch, needed = batch[np.flatnonzero(usable)], needed[usable]
    fleet = replace(batch, replicas=needed)
    metrics = _metrics(problem, fleet)
    amounts = [limit.amount(metrics) for limit in problem.limits]
    kept = np.ones(len(fleet), dtype=bool)
    for amount in amounts:
        kept &= amount <= 0.0
    per_hour = problem.machines.usd_per_chip_hour[fleet.chip] * fleet.chips
    per_hour = np.where(kept & np.isfinite(per_hour), per_hour, np.inf)
    found = []
    for code in np.unique(fleet.chip):
        rows = np.flatnonzero(fleet.chip == code)
        row = int(rows[np.argmin(per_hour[rows])])
        if np.isfinite(per_hour[row]):
            one = batch[row : row + 1]
            mean = _instances(replace(problem, mix=means), one, replace(targets, percentile=50))
            found.append(_fleet(problem, fleet, metrics, row, traffic, targets, float(mean[0])))
    return found


def _instances(
    problem: PhysicsProblem,
    batch: CandidateBatch,
    targets: Targets,
    progress: Progress = lambda what, done, total: None,
) -> Floats:
    """(n,) fewest instances that keep the targets, inf beyond MOST_INSTANCES. Fewer requests at
    each make no instance slower, so that the number is bracketed in growing steps from what the
    load of one instance says, and bisected."""

    def keeps(rows: NDArray[np.intp], count: Floats) -> NDArray[np.bool_]:
        metrics = _metrics(problem, replace(batch[rows], replicas=count))
        first = _worst(metrics, PERCENTILES[targets.percentile])
        last = _worst(metrics, "tpot_s")
        return metrics.feasible & (first <= targets.ttft_s) & (last <= targets.tpot_s)

    every = np.arange(len(batch))
    needed = np.full(len(batch), np.inf)
    rows = every[keeps(every, np.full(len(batch), float(MOST_INSTANCES)))]
    if not len(rows):
        return needed
    load = _metrics(problem, replace(batch[rows], replicas=np.ones(len(rows)))).values
    known = np.where(np.isfinite(load["utilisation"]), load["utilisation"], 0.0)
    low = np.clip(np.floor(0.9 * known) - 1.0, 0.0, MOST_INSTANCES - 1.0)  # does not keep them
    high, step = low + 1.0, 1.0
    going = np.arange(len(rows))
    while len(going):
        progress("deployments sized", len(rows) - len(going), len(rows))
        going = going[~keeps(rows[going], high[going])]
        low[going] = high[going]
        high[going] = np.minimum(high[going] + step, MOST_INSTANCES)
        step *= 2.0
    while (wide := np.flatnonzero(high - low > 1.0)).size:
        middle = np.floor((low[wide] + high[wide]) / 2.0)
        enough = keeps(rows[wide], middle)
        high[wide[enough]], low[wide[~enough]] = middle[enough], middle[~enough]
    needed[rows] = high
    return needed


def _metrics(problem: PhysicsProblem, batch: CandidateBatch) -> Metrics:
    return evaluate_mix(batch, problem.mix, problem.machines)


def _worst(metrics: Metrics, name: str) -> Floats:
    """(n,) of the class with the most; unknown is infinite."""
    value = metrics.values[name]
    return np.where(np.isnan(value), np.inf, value)


def _fleet(
    problem: PhysicsProblem,
    batch: CandidateBatch,
    metrics: Metrics,
    row: int,
    traffic: Traffic,
    targets: Targets,
    by_means: float,
) -> Fleet:
    values, chips = metrics.values, float(batch.chips[row])
    chip = int(batch.chip[row])
    usd = float(problem.machines.usd_per_chip_hour[chip]) * chips
    tokens = math.fsum(traffic.tokens_per_request)
    mean, busy = (3600.0 * rate * tokens for rate in (traffic.mean_per_s, traffic.busy_per_s))
    return Fleet(
        chip=problem.machines.ids[chip],
        deployment=describe_deployment(batch, row, problem.machines),
        instances=round(float(batch.replicas[row])),
        chips=round(chips),
        usd_per_hour=usd,
        first_s=float(values[PERCENTILES[targets.percentile]][row]),
        tpot_s=float(values["tpot_s"][row]),
        load=float(values["utilisation"][row]),
        tokens_per_usd=mean / usd,
        usd_per_million_mean=1e6 * usd / mean,
        usd_per_million_busy=1e6 * usd / busy,
        instances_by_means=round(by_means) if math.isfinite(by_means) else 0,
    )
