"""Jitter: the largest instance that still helps one user, and what even latency is worth beside
peak bandwidth.

Each collective waits for its slowest member (`dse.physics.jitter`). No percentiles of collective
times were found in public, so that jitter is an input, and this its sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.physics.jitter import with_jitter
from dse.physics.machines import Machines
from dse.problem.instances import Subject, evaluated
from dse.questions.scale.sizes import Point, Progress, ceiling, divisions, instance_sizes, rows_of

JITTERS_S = (0.0, 1e-6, 3e-6, 10e-6, 30e-6, 100e-6, 300e-6)
DISTRIBUTION = "exponential"


@dataclass(frozen=True, slots=True)
class JitterLimit:
    """One jitter. `ceiling_chips` as in `Ceiling` (None where the sizes end before it), with the
    lowest time of one user anywhere, the fewest chips that reach it, and the smallest size that
    runs. `group_chips` meet in the collectives of a layer at the lowest time up to the ceiling; 1:
    no collective is worth its wait, pipeline stages alone are left."""

    jitter_s: float
    group_chips: int
    ceiling_chips: int | None
    minimum_chips: int
    minimum_tpot_s: float
    smallest_chips: int
    smallest_tpot_s: float
    network_share: float


def jitter_limit(
    subject: Subject,
    jitters_s: Sequence[float] = JITTERS_S,
    *,
    distribution: str = DISTRIBUTION,
    chips_up_to: int = 512,
    progress: Progress = lambda _: None,
) -> list[JitterLimit]:
    """One row for each jitter, in seconds: the mean extra latency of one member of a collective
    (see `dse.physics.jitter` for what it is of another distribution), in order."""
    rows = []
    for jitter in sorted(set(jitters_s)):
        progress(f"{subject.chip}: jitter of {1e6 * jitter:g} us")
        machines = with_jitter(subject.machines, jitter, distribution)
        sizes = instance_sizes(
            subject, chips_up_to=chips_up_to, machines=machines, single_only=True
        )
        found = ceiling(sizes)
        rows.append(
            JitterLimit(
                jitter_s=jitter,
                group_chips=found.group_chips,
                ceiling_chips=found.chips,
                minimum_chips=found.minimum_chips,
                minimum_tpot_s=found.minimum_tpot_s,
                smallest_chips=found.smallest_chips,
                smallest_tpot_s=found.smallest_tpot_s,
                network_share=found.network_share,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class Evenness:
    """One instance at one jitter, with `concurrency` requests in flight: time per output token as
    it is, with every link twice as fast, and with half the jitter. The elasticities are the percent
    by which the time falls for a percent more bandwidth or less jitter: log2 of the ratios."""

    chips: int
    concurrency: int
    jitter_s: float
    tpot_s: float
    twice_bandwidth_s: float
    half_jitter_s: float
    bandwidth_elasticity: float
    jitter_elasticity: float


def evenness(
    subject: Subject,
    points: Sequence[Point],
    jitters_s: Sequence[float] = JITTERS_S,
    *,
    distribution: str = DISTRIBUTION,
) -> list[Evenness]:
    """Twice the bandwidth against half the jitter at the same points and loads; a row for each
    point and jitter above 0."""
    table = divisions(points)
    load = np.array([float(p.concurrency) for p in points])

    def tpot(machines: Machines, jitter: float):
        jittered = with_jitter(machines, jitter, distribution)
        return evaluated(subject, table, load, machines=jittered).tpot_s

    rows = []
    for jitter in sorted({jitter for jitter in jitters_s if jitter > 0.0}):
        base = tpot(subject.machines, jitter)
        wide = tpot(faster_links(subject.machines, 2.0), jitter)
        even = tpot(subject.machines, jitter / 2.0)
        rows += rows_of(
            Evenness,
            chips=[p.chips for p in points],
            concurrency=[p.concurrency for p in points],
            jitter_s=[jitter] * len(points),
            tpot_s=base,
            twice_bandwidth_s=wide,
            half_jitter_s=even,
            bandwidth_elasticity=[math.log2(ratio) for ratio in base / wide],
            jitter_elasticity=[math.log2(ratio) for ratio in base / even],
        )
    return rows


# The same chips on another fabric, for comparisons at one point.

PER_BYTE = ("s_per_byte", "reduce_s_per_byte", "gather_s_per_byte", "dispatch_s_per_byte")


def one_domain(machines: Machines) -> Machines:
    """In a scale-up domain that holds any group, whose collectives are those of the largest group
    of the real one (only their share of bytes grows)."""
    fabric = machines.fabric
    endless = np.full_like(fabric.domain, np.inf)
    return replace(machines, fabric=replace(fabric, domain=endless, networks=()))


def faster_links(machines: Machines, factor: float) -> Machines:
    """With `factor` times the bandwidth of every link, inside the domain and between domains."""
    fabric = machines.fabric
    networks = tuple(
        replace(network, **{name: getattr(network, name) / factor for name in PER_BYTE})
        for network in fabric.networks
    )
    return replace(
        machines,
        fabric=replace(
            fabric,
            link_bytes_per_s=fabric.link_bytes_per_s * factor,
            pair_bytes_per_s=fabric.pair_bytes_per_s * factor,
            all_reduce=fabric.all_reduce.scaled(1.0, factor),
            all_gather=fabric.all_gather.scaled(1.0, factor),
            all_to_all=fabric.all_to_all.scaled(1.0, factor),
            networks=networks,
        ),
    )
