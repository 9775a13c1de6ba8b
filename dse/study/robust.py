"""How likely each front point is to be on the front, given how sure its predictions are.

Errors are drawn from the 80% intervals (`dse.physics.intervals`, normal in the logarithm on either
side). A slow machine is slow in all: one deviate moves the times and costs of a point. Part of its
variance is shared by all points on the same chip, as the errors of measured rows are shared by
their group (`Calibration.shared`), and half of that part by the chips of one kin
(`dse.physics.intervals`, as `dse.study.regret` draws it); the rest by all shapes on the same
deployment of it (degrees, formats, requests in flight; assumed). An error that two points share
does not change their order. Predicted loss moves where the law was moved to runs of the user, by a
draw of what these leave open (`dse.quality.own_runs`), one for all points; else it is left as it
is. Rivals are the front and what lies
closest behind it one parameter away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dse.pareto import non_dominated
from dse.physics.intervals import CLASS, THROUGHPUT_METRICS, alike, eldest, interval
from dse.problem.evaluate import Metrics
from dse.problem.objective import PhysicsProblem
from dse.quality.own_runs import P90
from dse.schema.metrics import METRICS
from dse.space.batches import OFFLOAD_AXES, OPTIONAL_AXES
from dse.space.candidates import Floats

DRAWS = 100
RIVALS = 2_000  # beside the front
CHUNK = 16_384  # evaluated at once
STARTS = 1_000  # front points whose neighbours are rivals, evenly along it
LOSS = "predicted_loss"


def front_probability(problem: PhysicsProblem, index: NDArray[np.int64], seed: int) -> Floats:
    """(n,) share of DRAWS in which the front points `index` (n, d) are not dominated."""
    every = max(len(index) // STARTS, 1)
    behind = _closest(problem, problem.space.neighbours(index[::every]))
    rng = np.random.default_rng((seed, len(index)))
    on_front = np.zeros(len(index))
    for F in draws(problem, np.concatenate([index, behind]), rng):
        on_front += non_dominated(F)[: len(index)]
    return on_front / DRAWS


def draws(
    problem: PhysicsProblem, index: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Floats]:
    """F (n, m) of the points `index` (n, d), DRAWS times, with errors drawn as said above."""
    metrics = problem.metrics(index)
    slower = [
        slowed(o.metric, o.sign * metrics.values[o.metric], metrics) for o in problem.objectives
    ]
    losses = [(j, o.sign) for j, o in enumerate(problem.objectives) if o.metric == LOSS]
    nats = _nats(metrics, rng)
    for z in islice(deviates(problem, index, rng), DRAWS):
        F = np.stack([column(z) for column in slower], axis=1)
        moved = next(nats)
        for j, sign in losses:
            F[:, j] += sign * moved
        yield F


def _nats(metrics: Metrics, rng: np.random.Generator) -> Iterator[Floats]:
    """(n,) or (1,) nats that a draw adds to losses, from a stream of its own."""
    doubt = metrics.quality.doubt
    while doubt is None:
        yield np.zeros(1)
    own = rng.spawn(1)[0]
    while True:
        yield doubt.moved(doubt.posterior.draw(own))


def deviates(
    problem: PhysicsProblem, index: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Floats]:
    """(n,) how slow the machine of each point of `index` (n, d) is, without end; 1 is the end of an
    80% interval on the slow side."""
    chip, deployment = shared_errors(problem, index)
    shared = problem.machines.shared_error
    for of_chip in _of_chips(problem.machines.kin, rng):
        own = rng.standard_normal(deployment.max() + 1)[deployment]
        yield (np.sqrt(shared) * of_chip[chip] + np.sqrt(1.0 - shared) * own) / P90


def _of_chips(kin: Sequence[str], rng: np.random.Generator) -> Iterator[Floats]:
    """(C,) standard normals of chips, alike within a kin. What kin share has a stream of its own,
    which moves nothing where no two chips are kin."""
    of_kin = rng.spawn(1)[0]
    first = eldest(kin)
    several = np.bincount(first, minlength=len(kin))[first] > 1
    while True:
        own, common = rng.standard_normal(len(kin)), of_kin.standard_normal(len(kin))[first]
        yield np.where(several, alike(common, own), own)


def shared_errors(
    problem: PhysicsProblem, index: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(chip, deployment), (n,) each: numbers that rows with the same errors share."""
    batch = problem.batch(index)
    columns = [
        batch.chip,
        batch.tensor_parallel,
        batch.pipeline_parallel,
        batch.data_parallel,
        batch.expert_parallel,
        batch.replicas,
        batch.concurrency,
        batch.kv_dtype,
        *(batch.weight_dtype[part] for part in sorted(batch.weight_dtype)),
        *(
            getattr(batch, name)
            for name in (*OFFLOAD_AXES, *OPTIONAL_AXES)
            if getattr(batch, name) is not None
        ),
    ]
    _, deployment = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return batch.chip, deployment.ravel()


def _closest(problem: PhysicsProblem, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Up to RIVALS feasible rows of `index`, layer by layer of non-dominated points."""
    chunks = [index[i : i + CHUNK] for i in range(0, max(1, len(index)), CHUNK)]
    kept, values = zip(*(_feasible(problem, chunk) for chunk in chunks), strict=True)
    index, F = np.concatenate(kept), np.concatenate(values)
    layers, count = [index[:0]], 0
    while len(F) and count < RIVALS:
        keep = non_dominated(F)
        layers.append(index[keep][: RIVALS - count])
        count += len(layers[-1])
        index, F = index[~keep], F[~keep]
    return np.concatenate(layers)


def _feasible(
    problem: PhysicsProblem, index: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats]:
    found = problem.evaluate(index)
    feasible = (found.G <= 0.0).all(axis=1)
    return index[feasible], found.F[feasible]


# Metrics of which more is better.
GROW = frozenset(metric for metric in CLASS if METRICS[metric].direction == "maximize")


def slowed(metric: str, value: Floats, metrics: Metrics) -> Callable[[Floats], Floats]:
    """`value` (n,) of a metric of candidates, of either sign, as a function of deviates z (n,);
    z = 1 is the end of the 80% interval on the slow side."""
    if metric not in CLASS:
        return lambda _: value
    up, down = ends(metric, metrics)
    return lambda z: value * np.exp(z * np.where(z > 0.0, up, down))


def ends(metric: str, metrics: Metrics) -> tuple[Floats, Floats]:
    """(up, down), (n,) each, of a metric in CLASS: its logarithm moves by up z on a machine slower
    than predicted (z > 0), by down z on a faster one; z = 1 and -1 are the ends of the interval."""
    ones = np.ones(len(metrics.provenance))
    low, high = interval(metric, ones, metrics.provenance, metrics.spread)
    slow, fast = (low, high) if metric in GROW else (high, low)
    up, down = np.log(slow), -np.log(fast)
    if metric not in THROUGHPUT_METRICS:
        return up, down
    held = metrics.values["utilisation"] < 1.0  # arrivals below capacity set them
    return np.where(held, 0.0, up), np.where(held, 0.0, down)
