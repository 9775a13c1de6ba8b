"""The best instance of each size where requests arrive at random (`dse.physics.queueing`): the
highest rate at which a percentile of first tokens comes in time.

Each instance takes its share of the requests at random, so that its arrivals are random too. Every
way to divide an instance is searched at once, on grids that close in: fewer requests make none
slower, and no division serves more than the best does at a steady load within the same limits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dse.physics.workload import POISSON, Workload
from dse.problem.evaluate import Metrics
from dse.problem.instances import Subject, batch_at, evaluated, points
from dse.problem.mix import Share, evaluate_mix
from dse.schema.plan import DemandClass
from dse.schema.traffic import PERCENTILES, Requests
from dse.space.candidates import CandidateBatch, Floats
from dse.space.deployments import Deployments

LEAST = 1e-4  # of the steady rate, the lowest that is tried
SAME = 2e-3  # of a rate: divisions that differ by less are told apart by their time per token
POINTS, ROUNDS = 24, 3  # rates of a grid, grids one within a step of the other
NONE = "no rate of random arrivals keeps both limits"


def poisson_points(subject: Subject, one: DemandClass, steady: Deployments) -> Deployments:
    """The point with the highest rate of arrival for each size that has one; `steady` are those at
    a steady load, one a size, the smallest first. Its output rate is that of so many requests of
    the class, its `ttft_s` the percentile of the slowest stream."""
    sizes = steady.chips
    every = subject.divided(sizes)
    table = every.take(evaluated(subject, every).runs)
    batch = batch_at(subject, table, 1.0)
    most = steady["output_tokens_per_s"] / one.traffic.mean.output_tokens
    most = most[np.searchsorted(sizes, table.chips)]
    rate, possible = _highest(subject, one, batch, most)
    tpot_s = at_rate(subject, one, batch, rate).values["tpot_s"]
    best = []
    for size in sizes:
        rows = np.flatnonzero((table.chips == size) & possible)
        if len(rows):
            rows = rows[rate[rows] >= (1.0 - SAME) * np.max(rate[rows])]
            best.append(rows[np.argmin(tpot_s[rows])])
    if not best:
        return steady.take(np.zeros(0, dtype=np.intp))
    rows = np.array(best, dtype=np.intp)
    return _points(subject, one, table.take(rows), batch[rows], rate[rows])


def _highest(
    subject: Subject, one: DemandClass, batch: CandidateBatch, most: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """(n,) requests per second of an instance, at most `most`, and whether there is such a rate."""

    rows = np.repeat(np.arange(len(batch)), POINTS)
    many, steps = batch[rows], np.linspace(0.0, 1.0, POINTS)
    low, width = np.full(len(batch), np.log(LEAST)), -np.log(LEAST)
    possible = np.ones(len(batch), dtype=bool)
    for _ in range(ROUNDS):
        share = np.minimum(low[:, None] + width * steps[None, :], 0.0)
        metrics = at_rate(subject, one, many, most[rows] * np.exp(share.ravel()))
        kept = metrics.feasible & (metrics.values["tpot_s"] <= one.tpot_s)
        kept &= metrics.values[PERCENTILES[one.percentile or 50]] <= one.ttft_s
        held = np.cumprod(kept.reshape(share.shape), axis=1).sum(axis=1)
        possible &= held > 0
        low = share[np.arange(len(batch)), np.maximum(held - 1, 0)]
        width /= POINTS - 1
    return most * np.exp(low), possible


def at_rate(subject: Subject, one: DemandClass, batch: CandidateBatch, rate: Floats) -> Metrics:
    """`rate` (n,) requests per second at each instance, over all streams of the class."""
    mix = tuple(
        Share(f"stream {k + 1}", stream.share, _arriving(subject, stream, rate))
        for k, stream in enumerate(one.traffic.streams)
    )
    return evaluate_mix(batch, mix, subject.machines)


def _arriving(subject: Subject, stream: Requests, rate: Floats) -> Workload:
    return replace(
        subject.workload,
        prompt_tokens=np.array([float(stream.prompt_tokens)]),
        output_tokens=np.array([float(stream.output_tokens)]),
        serving=POISSON,
        prefix_hit_rate=stream.prefix_hit_rate,
        requests_per_s=rate * stream.share,
    )


def _points(
    subject: Subject, one: DemandClass, table: Deployments, batch: CandidateBatch, rate: Floats
) -> Deployments:
    """Instances at their rates, (n,); what bounds each is that of requests of mean lengths."""
    values = at_rate(subject, one, batch, rate).values
    mean = replace(subject, workload=_arriving(subject, one.traffic.mean, rate))
    tokens_per_s = rate * one.traffic.mean.output_tokens
    found = points(subject, table, np.ceil(values["running_requests"]), evaluated(mean, table))
    return found.with_columns(
        ttft_s=values[PERCENTILES[one.percentile or 50]],
        tpot_s=values["tpot_s"],
        output_tokens_per_s=tokens_per_s,
        output_tokens_per_s_per_chip=tokens_per_s / table.chips,
    )
