"""The best instance of each size where requests arrive at random (`dse.perf.poisson`): the highest
rate at which a percentile of first tokens comes in time.

Each instance takes its share of the requests at random, so that its arrivals are random too. Every
way to divide an instance is searched at once, by bisection: fewer requests make none slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from dse.candidates import CandidateBatch, Floats
from dse.evaluate import Metrics
from dse.mix import Share, evaluate_mix
from dse.perf.workload import POISSON, Workload
from dse.specs.plan import DemandClass
from dse.specs.traffic import PERCENTILES, Class
from dse.study.scale.sizes import Point, point
from dse.study.scale.subject import Degrees, Subject, batch_at, divided, evaluated

LITTLE_PER_S = 1e-6  # a rate at which nobody waits
LEAST = 1e-4  # of the most that is served, the lowest rate that is tried
STEPS = 16  # halvings of its logarithm
NONE = "no rate of random arrivals keeps both limits"


def poisson_points(subject: Subject, one: DemandClass, sizes: Sequence[int]) -> list[Point]:
    """The point with the highest rate of arrival for each of `sizes` that has one. Its output rate
    is that of so many requests of the class, its `ttft_s` the percentile of the slowest stream."""
    each = [divided(subject, chips) for chips in sizes]
    degrees = Degrees(
        *(np.concatenate([getattr(one, part.name) for one in each]) for part in fields(Degrees))
    )
    alone = evaluated(subject, degrees, np.ones(len(degrees)))
    degrees = degrees[np.flatnonzero((alone.rule < 0) & (alone.memory <= 0.0))]
    batch = batch_at(subject, degrees, np.ones(len(degrees)))
    rate, possible = _highest(subject, one, batch)
    found = []
    for chips in sizes:
        rows = np.flatnonzero((degrees.chips == chips) & possible)
        if len(rows):
            best = rows[[np.argmax(rate[rows])]]
            found.append(_point(subject, one, degrees[best], batch[best], rate[best]))
    return found


def _highest(
    subject: Subject, one: DemandClass, batch: CandidateBatch
) -> tuple[Floats, NDArray[np.bool_]]:
    """(n,) requests per second of an instance, and whether there is such a rate."""

    def keeps(rate: Floats) -> NDArray[np.bool_]:
        metrics = _served(subject, one, batch, rate)
        first = metrics.values[PERCENTILES[one.percentile or 50]] <= one.ttft_s
        return metrics.feasible & first & (metrics.values["tpot_s"] <= one.tpot_s)

    little = np.full(len(batch), LITTLE_PER_S)
    most = little / _served(subject, one, batch, little).values["utilisation"]
    low, high = np.full(len(batch), np.log(LEAST)), np.zeros(len(batch))
    possible = keeps(most * LEAST)
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        kept = keeps(most * np.exp(middle))
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return most * np.exp(low), possible


def _served(subject: Subject, one: DemandClass, batch: CandidateBatch, rate: Floats) -> Metrics:
    """`rate` (n,) requests per second at each instance, over all streams of the class."""
    mix = tuple(
        Share(f"stream {k + 1}", stream.share, _arriving(subject, stream, rate))
        for k, stream in enumerate(one.streams)
    )
    return evaluate_mix(batch, mix, subject.machines)


def _arriving(subject: Subject, stream: Class, rate: Floats) -> Workload:
    workload = Workload.of(
        stream.prompt, stream.output, POISSON, subject.workload.backend,
        prefix_hit_rate=stream.cached,
    )  # fmt: skip
    return replace(workload, requests_per_s=rate * stream.share)


def _point(
    subject: Subject, one: DemandClass, degrees: Degrees, batch: CandidateBatch, rate: Floats
) -> Point:
    """One instance at its rate, (1,); what bounds it is that of requests of mean lengths."""
    values = _served(subject, one, batch, rate).values
    mean = replace(subject, workload=_arriving(subject, one.mean, rate))
    found = point(
        subject, degrees, np.ceil(values["running_requests"]),
        evaluated(mean, degrees, np.ones(1)), 0,
    )  # fmt: skip
    tokens_per_s = float(rate[0]) * one.output_tokens
    return replace(
        found,
        ttft_s=float(values[PERCENTILES[one.percentile or 50]][0]),
        tpot_s=float(values["tpot_s"][0]),
        output_tokens_per_s=tokens_per_s,
        output_tokens_per_s_per_chip=tokens_per_s / found.chips,
    )
