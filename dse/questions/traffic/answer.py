"""A fleet for a trace of requests, sized so that a percentile of first tokens comes in time.

The trace becomes a rate and classes of lengths (`dse.schema.traffic`), each a stream of its own
beside the others (`dse.problem.mix`); arrivals are taken to be random (`dse.physics.poisson`).

An instance of a deployment is repeated until every class keeps the targets at that rate; the cost
is paid by the hour whether the fleet is busy or not, and over the tokens of the whole trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dse import units
from dse.catalog import Catalog
from dse.errors import InputError, NothingFeasible
from dse.physics.workload import POISSON, Workload
from dse.problem.describe import describe_deployment
from dse.problem.evaluate import Metrics
from dse.problem.mix import Mix, Share, evaluate_mix
from dse.problem.objective import PhysicsProblem, pose
from dse.questions.whatif.paid import Paid
from dse.schema.backend import Backend, find_backend
from dse.schema.study import Study
from dse.schema.traffic import PERCENTILES, Class, Traffic, Windows
from dse.space.candidates import CandidateBatch, Floats
from dse.space.space import Space

CHUNK, LARGEST = 4_000, 200_000  # deployments at a time, in all
MOST_INSTANCES = 4_096
LEVELS, MOST_HEADROOM = 40, 10.0
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
    dollars per million tokens over the trace's mean rate, and at the rate that it is sized for;
    `most_per_s` requests per second still keep the targets."""

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
    instances_by_means: int = 0
    most_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sized:
    """Fleets, the cheapest first; chips without one, with the reason."""

    fleets: tuple[Fleet, ...]
    left_out: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """The fleets of a study for a traffic; `windows` of the trace where there is one, of which the
    `share` is no busier than the one that they are sized for."""

    study: Study
    traffic: Traffic
    targets: Targets
    sized: Sized
    paid: Paid
    windows: Windows | None
    share: float


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
    problem = replace(problem, mix=_mix(traffic, backend))
    chips = problem.machines.ids
    least, count = np.full(len(chips), np.inf), np.zeros(len(chips))
    where = np.zeros(len(chips), dtype=np.int64)
    size = problem.space.size
    for start in range(0, size, CHUNK):
        ids = np.arange(start, min(start + CHUNK, size), dtype=np.int64)
        batch = problem.batch(problem.space.unrank(ids))
        needed = _instances(problem, batch, targets, least, progress)
        usd = _usd_per_hour(problem, batch, needed)
        for code in np.unique(batch.chip):
            rows = np.flatnonzero(batch.chip == code)
            row = rows[np.argmin(usd[rows])]
            if usd[row] < least[code]:
                least[code], count[code], where[code] = usd[row], needed[row], ids[row]
    found = np.flatnonzero(np.isfinite(least))
    if not found.size:
        raise NothingFeasible(
            f"no deployment of {len(chips)} chips keeps the targets with up to "
            f"{MOST_INSTANCES:,} instances{_nearest(problem, targets)}"
        )
    batch = problem.batch(problem.space.unrank(where[found]))
    fleet = replace(batch, replicas=count[found])
    metrics = _metrics(problem, fleet)
    typical = Traffic((traffic.mean,), traffic.mean_per_s, traffic.mean_per_s)
    means = replace(problem, mix=_mix(typical, backend), limits=())
    by_means = _instances(
        means, batch, replace(targets, percentile=50), np.full(len(chips), np.inf)
    )
    most = traffic.busy_per_s * _headroom(problem, fleet, targets)
    fleets = [
        replace(
            _fleet(problem, fleet, metrics, row, traffic, targets),
            instances_by_means=round(by_means[row]) if np.isfinite(by_means[row]) else 0,
            most_per_s=float(most[row]),
        )
        for row in range(len(fleet))
    ]
    left_out = {
        chip: "no deployment of the space keeps the targets"
        for code, chip in enumerate(chips)
        if code not in found
    }
    return Sized(tuple(sorted(fleets, key=lambda one: (one.usd_per_hour, one.chip))), left_out)


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


def _instances(
    problem: PhysicsProblem,
    batch: CandidateBatch,
    targets: Targets,
    least: Floats,
    progress: Progress = lambda what, done, total: None,
) -> Floats:
    """(n,) fewest instances that keep the targets. Infinite beyond MOST_INSTANCES, where the fleet
    of so many breaks a limit of the problem, and where it would cost more than the cheapest of its
    chip, known before as `least` (chips,) USD an hour or found here.

    Fewer requests at each make no instance slower, so that the number is bracketed in growing steps
    from what the load of one instance says, and bisected.
    """
    least = least.copy()
    sound = np.zeros(len(batch), dtype=bool)  # the limits hold at the last number that was kept

    def keeps(rows: NDArray[np.intp], count: Floats) -> NDArray[np.bool_]:
        metrics = _metrics(problem, replace(batch[rows], replicas=count))
        kept = _in_time(metrics, targets)
        limits = [limit.amount(metrics) <= 0.0 for limit in problem.limits]
        sound[rows[kept]] = np.logical_and.reduce([kept, *limits])[kept]
        return kept

    def worthwhile(at: NDArray[np.intp]) -> NDArray[np.intp]:
        """Of `at` those that may still be the cheapest of their chip."""
        usd = _usd_per_hour(problem, batch[rows], high)
        done = (low + 1.0 == high) & kept & sound[rows]
        np.minimum.at(least, batch.chip[rows[done]], usd[done])
        floor = _usd_per_hour(problem, batch[rows], low + 1.0)
        return at[floor[at] <= least[batch.chip[rows[at]]]]

    needed = np.full(len(batch), np.inf)
    every = np.arange(len(batch))
    rows = every[keeps(every, np.full(len(batch), float(MOST_INSTANCES)))]
    if not len(rows):
        return needed
    load = _metrics(problem, replace(batch[rows], replicas=np.ones(len(rows)))).values
    known = np.where(np.isfinite(load["utilisation"]), load["utilisation"], 0.0)
    low = np.clip(np.floor(0.9 * known) - 1.0, 0.0, MOST_INSTANCES - 1.0)  # does not keep them
    high, step = low + 1.0, 1.0
    kept = np.zeros(len(rows), dtype=bool)  # `high` keeps them
    going = worthwhile(np.arange(len(rows)))
    while len(going):
        progress("deployments sized", len(rows) - len(going), len(rows))
        kept[going] = keeps(rows[going], high[going])
        going = going[~kept[going]]
        low[going] = high[going]
        high[going] = np.minimum(high[going] + step, MOST_INSTANCES)
        step *= 2.0
        going = worthwhile(going)
    while (wide := worthwhile(np.flatnonzero(kept & (high - low > 1.0)))).size:
        middle = np.floor((low[wide] + high[wide]) / 2.0)
        enough = keeps(rows[wide], middle)
        high[wide[enough]], low[wide[~enough]] = middle[enough], middle[~enough]
    done = kept & (high - low == 1.0) & sound[rows]
    needed[rows[done]] = high[done]
    return needed


def _headroom(problem: PhysicsProblem, fleet: CandidateBatch, targets: Targets) -> Floats:
    """(n,) how many times its traffic a fleet serves within the targets: the last of LEVELS even
    steps from 1 to the inverse of its load, beyond which none serves more."""
    load = _metrics(problem, fleet).values["utilisation"]
    most = 1.0 / np.clip(load, 1.0 / MOST_HEADROOM, 1.0)
    steps = 1.0 + (most - 1.0)[:, None] * np.arange(LEVELS) / LEVELS
    factor = steps.ravel()
    mix = tuple(
        replace(
            one,
            workload=replace(one.workload, requests_per_s=one.workload.requests_per_s * factor),
        )
        for one in problem.mix
    )
    rows = np.repeat(np.arange(len(fleet)), LEVELS)
    kept = _in_time(_metrics(replace(problem, mix=mix), fleet[rows]), targets)
    last = np.logical_and.accumulate(kept.reshape(steps.shape), axis=1).sum(axis=1) - 1
    return steps[np.arange(len(fleet)), np.maximum(last, 0)]


def _in_time(metrics: Metrics, targets: Targets) -> NDArray[np.bool_]:
    """(n,) whether a fleet can be served so and every class keeps the targets."""
    first = _worst(metrics, PERCENTILES[targets.percentile])
    return (
        metrics.feasible & (first <= targets.ttft_s) & (_worst(metrics, "tpot_s") <= targets.tpot_s)
    )


def _nearest(problem: PhysicsProblem, targets: Targets) -> str:
    """What the most instances come to, of the deployment that misses the targets by least."""
    name, size = PERCENTILES[targets.percentile], problem.space.size
    over, said = np.inf, "; each of so many is still overloaded, or its memory too small"
    for start in range(0, size, CHUNK):
        ids = np.arange(start, min(start + CHUNK, size), dtype=np.int64)
        batch = problem.batch(problem.space.unrank(ids))
        many = replace(batch, replicas=np.full(len(batch), float(MOST_INSTANCES)))
        metrics = _metrics(problem, many)
        first, each = _worst(metrics, name), _worst(metrics, "tpot_s")
        miss = np.maximum(first / targets.ttft_s, each / targets.tpot_s)
        miss = np.where(metrics.feasible, miss, np.inf)
        row = int(np.argmin(miss))
        if miss[row] < over:
            over, chip = miss[row], problem.machines.ids[batch.chip[row]]
            at = (float(first[row]), targets.ttft_s, float(each[row]), targets.tpot_s)
            got, asked, token, wanted = (units.format(one, "s", 3) for one in at)
            said = (
                f"; nearest is {chip}, with {got} to the first token at percentile "
                f"{targets.percentile} (asked: {asked}) and {token} per token after it (asked: "
                f"{wanted})"
            )
    return said


def _usd_per_hour(problem: PhysicsProblem, batch: CandidateBatch, instances: Floats) -> Floats:
    """(n,) of so many instances each; infinite where there is no price."""
    chips = replace(batch, replicas=np.ones(len(batch))).chips * instances
    usd = problem.machines.usd_per_chip_hour[batch.chip] * chips
    return np.where(np.isnan(usd), np.inf, usd)


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
    )
