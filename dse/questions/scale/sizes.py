"""Latency and cost of one instance against its size, the ceiling, and replicas in its place.

The ceiling is the smallest size past which the lowest single-user time per output token falls by
less than 5% per doubling of the chips, to any larger size (at least twice as large) that was
looked at. Larger sizes may leave chips idle: the time at a size is the lowest of all sizes up to
it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dse.errors import NothingFeasible
from dse.physics.intervals import interval
from dse.physics.machines import Machines
from dse.physics.serving import BOTTLENECKS
from dse.problem.describe import number
from dse.problem.instances import BOUNDS, Evaluated, Subject, evaluated
from dse.rules.registry import MEANINGS, names
from dse.schema.calibration import KINDS
from dse.space.candidates import Floats
from dse.space.deployments import Deployments, finer_ladder, load_ladder, sizes_up_to

GAIN_PER_DOUBLING = 0.05  # below it, more chips are not worth their price to one user
EVEN = 0.01  # throughputs that differ by less count as equal: the smaller instance is named
# The axes of a table of divisions.
DIVIDED = (
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "expert_parallel",
    "redundant_experts",
)
FINE = 8  # steps between two powers of two of the requests in flight, and between two of these

TOGETHER = 16  # chips of a size: smaller tables cost more to begin than to evaluate
NOT_ASKED = "one request alone was asked for"

T = TypeVar("T")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Point:
    """One way to run an instance. Seconds; USD per million tokens, input and output, None without
    a price. `network_share` and `bound` are of the decode step, `bottleneck` of the phase that
    takes most chip-seconds. `tpot_interval` is the 80% interval, `kind` that of the kernel laws.
    `widest` names the widest group that leaves the scale-up domain: None, `stages`, `experts`
    (with attention data parallelism) or `tensor`."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: int
    redundant_experts: int
    concurrency: int
    tpot_s: float
    tpot_interval: tuple[float, float]
    ttft_s: float
    output_tokens_per_s: float
    output_tokens_per_s_per_chip: float
    usd_per_million_total_tokens: float | None
    network_share: float
    bound: str
    bottleneck: str
    memory_bytes_per_chip: float
    widest: str | None
    kind: str

    @property
    def chips(self) -> int:
        """Of the instance."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def division(self) -> str:
        """`tp8 pp2`; degrees of 1 are left out."""
        return division_of(divisions([self]), 0)


def division_of(table: Deployments, row: int) -> str:
    """`Point.division` of a row of a table with the columns DIVIDED."""
    parts = [
        f"{name[0]}p{degree}"
        for name in ("tensor", "pipeline", "data", "expert")
        if (degree := int(table[f"{name}_parallel"][row])) > 1
    ]
    copies = int(table["redundant_experts"][row])
    return " ".join(parts) + (f"+{copies}" if copies else "") if parts else "one chip"


def divisions(points: Sequence[Point]) -> Deployments:
    """The table of how these instances are divided."""
    return Deployments({axis: np.array([getattr(p, axis) for p in points]) for axis in DIVIDED})


@dataclass(frozen=True, slots=True)
class Size:
    """Instances of one size. `single`: the lowest time per output token of one request alone;
    `within`: the most tokens per second and chip, so the lowest cost, within the limits; either
    None where there is none, for `reason` and `within_reason`. `choices` are the legal ways to
    divide it that fit the memory."""

    chips: int
    crosses_domain: bool
    choices: int
    single: Point | None
    within: Point | None
    reason: str | None
    within_reason: str | None


def instance_sizes(
    subject: Subject,
    *,
    chips_up_to: int = 512,
    tpot_limit_s: float = 0.05,
    ttft_limit_s: float = 2.0,
    machines: Machines | None = None,
    single_only: bool = False,
    progress: Progress = lambda _: None,
) -> list[Size]:
    """One row for each size of an instance up to `chips_up_to` chips, over every legal division
    and requests in flight from one a rank to what memory admits; with `single_only`, one request
    alone. On other `machines` of the same chip where they are given.

    Raises NothingFeasible, with the reason of each size, where the model fits no size."""
    rows: list[Size] = []
    sizes = sizes_up_to(subject.domain, chips_up_to)
    small = [chips for chips in sizes if chips <= TOGETHER]
    limits = (tpot_limit_s, ttft_limit_s)
    large = [[chips] for chips in sizes if chips > TOGETHER]
    for some in [small, *large] if small else large:
        progress(f"{subject.chip}: instances of {some[-1]} chips")
        rows += _sizes(subject, some, limits, machines, single_only)
    if not any(row.single for row in rows):
        kinds = Counter(str(row.reason).partition(":")[0] for row in rows)
        told = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
        raise NothingFeasible(
            f"{subject.model.name} runs on no instance of 1 to {chips_up_to} x {subject.chip} "
            f"({len(rows)} sizes): {told}; on {rows[-1].chips}, {rows[-1].reason}. "
            "A lower --weight-dtype or more --chips-up-to may help"
        )
    return rows


def _sizes(
    subject: Subject,
    sizes: Sequence[int],
    limits: tuple[float, float],
    machines: Machines | None,
    single_only: bool,
) -> list[Size]:
    """Sizes that are evaluated at once; `limits` are of the time per token and the first token."""
    refused = {chips: subject.catalog.refusal(subject.chip, chips) for chips in sizes}
    linked = [chips for chips in sizes if refused[chips] is None]
    every = subject.divided(linked or sizes[:1])
    alone = evaluated(subject, every, machines=machines)
    found: Mapping[int, Point] = {}
    if not single_only and np.any(alone.runs):
        runs = every.take(np.flatnonzero(alone.runs))
        found = _within(subject, runs, alone.admitted[alone.runs], limits, machines)
    rows = []
    for chips in sizes:
        crosses = chips > subject.domain
        if refused[chips] is not None:
            reason = f"no link: {refused[chips]}"
            rows.append(Size(chips, crosses, 0, None, None, reason, reason))
            continue
        mine = every.chips == chips
        fit = np.flatnonzero(mine & alone.runs)
        if not len(fit):
            reason = _why(every, alone, np.flatnonzero(mine))
            rows.append(Size(chips, crosses, 0, None, None, reason, reason))
            continue
        best = int(fit[np.argmin(alone.tpot_s[fit])])
        single = point(subject, every, np.ones(len(every)), alone, best)
        within, late = found.get(chips), None
        if single_only:
            late = NOT_ASKED
        elif within is None:
            late = _late(single, float(np.min(alone.ttft_s[fit])), *limits)
        rows.append(Size(chips, crosses, len(fit), single, within, None, late))
    return rows


def _late(single: Point, first_s: float, tpot_limit_s: float, ttft_limit_s: float) -> str:
    """Why no division meets the limits; `first_s` is the lowest time to first token."""
    if single.tpot_s > tpot_limit_s:
        return f"one request alone takes {1e3 * single.tpot_s:.3g} ms a token at best"
    if first_s > ttft_limit_s:
        return f"one request alone waits {first_s:.3g} s for its first token at best"
    return "no division keeps both limits with a request on every rank"


def _within(
    subject: Subject,
    table: Deployments,
    admitted: Floats,
    limits: tuple[float, float],
    machines: Machines | None,
) -> dict[int, Point]:
    """By size, the point with the most tokens per second and chip within the limits: requests on
    each attention rank by powers of two up to what is admitted, then twice in FINE finer steps
    above the best of each division."""
    tpot_limit_s, ttft_limit_s = limits
    most = np.maximum(np.floor(admitted / table["data_parallel"]), 1.0)
    rows = np.arange(len(table))

    def tried(ranks: Floats) -> tuple[Deployments, Floats, Evaluated, Floats]:
        """`ranks` (rows, steps): requests on a rank of the divisions `rows`."""
        chosen = table.take(np.repeat(rows, ranks.shape[1]))
        load = ranks.ravel() * chosen["data_parallel"]
        points = evaluated(subject, chosen, load, machines=machines)
        kept = (points.tpot_s <= tpot_limit_s) & (points.ttft_s <= ttft_limit_s)
        rate = np.where(kept, points.output_tokens_per_s / chosen.chips, -1.0)
        return chosen, load, points, rate.reshape(ranks.shape)

    grid = load_ladder(most)
    rate = tried(grid)[-1]
    rows = np.flatnonzero(np.max(rate, axis=1) > 0.0)
    if not len(rows):
        return {}
    start = grid[rows, np.argmax(rate[rows], axis=1)]
    for width in (FINE, FINE * FINE):
        grid = finer_ladder(start, most[rows], FINE, width)
        chosen, load, points, rate = tried(grid)
        start = grid[np.arange(len(rows)), np.argmax(rate, axis=1)]
    chips, flat = chosen.chips, rate.ravel()
    best = {int(n): int(np.argmax(np.where(chips == n, flat, -2.0))) for n in np.unique(chips)}
    return {size: point(subject, chosen, load, points, row) for size, row in best.items()}


def point(
    subject: Subject, table: Deployments, concurrency: Floats, of: Evaluated, i: int
) -> Point:
    """Row `i` of an evaluation."""
    axes = {axis: int(table[axis][i]) for axis in DIVIDED}
    domain, group, chips = subject.domain, int(table.group[i]), int(table.chips[i])
    wide = ((axes["tensor_parallel"], "tensor"), (group, "experts"), (chips, "stages"))
    kinds = of.provenance[[i]]
    low, high = interval("tpot_s", of.tpot_s[[i]], kinds, subject.machines.spread)
    return Point(
        **axes,
        concurrency=int(concurrency[i]),
        tpot_s=float(of.tpot_s[i]),
        tpot_interval=(float(low[0]), float(high[0])),
        ttft_s=float(of.ttft_s[i]),
        output_tokens_per_s=float(of.output_tokens_per_s[i]),
        output_tokens_per_s_per_chip=float(of.output_tokens_per_s[i]) / chips,
        usd_per_million_total_tokens=number(of.usd[i]),
        network_share=float(of.network_share[i]),
        bound=BOUNDS[of.bound[i]],
        bottleneck=BOTTLENECKS[of.bottleneck[i]],
        memory_bytes_per_chip=float(of.memory_bytes[i]),
        widest=next((name for size, name in wide if size > domain), None),
        kind=KINDS[of.provenance[i]],
    )


def _why(table: Deployments, of: Evaluated, rows: NDArray[np.intp]) -> str:
    """Why none of these divisions runs."""
    legal = rows[of.rule[rows] < 0]
    if not len(legal):
        counted = Counter(int(rule) for rule in of.rule[rows])
        name = names()[counted.most_common(1)[0][0]] if counted else "stages_within_layers"
        return f"no legal division: {MEANINGS[name]}"
    best = legal[np.argmin(of.memory[legal])]
    return (
        f"memory: at best a chip needs {1.0 + of.memory[best]:.3g} x what it has "
        f"(tensor {table['tensor_parallel'][best]}, pipeline {table['pipeline_parallel'][best]})"
    )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Where more chips stop helping one user. `chips` and `tpot_s` at the ceiling, None where the
    sizes end before one shows; the lowest time of all and the fewest chips that reach it; the
    smallest size that runs. `bound` and `network_share` are those at the minimum; `group_chips`
    meet in the collectives of a layer (tensor x data parallel) at the lowest time up to the
    ceiling."""

    chips: int | None
    tpot_s: float | None
    minimum_chips: int
    minimum_tpot_s: float
    smallest_chips: int
    smallest_tpot_s: float
    bound: str
    network_share: float
    group_chips: int
    speedup: float  # the smallest size's time over the lowest
    gain_per_doubling: float = GAIN_PER_DOUBLING


def ceiling(rows: Sequence[Size]) -> Ceiling:
    """The ceiling of single-user latency over the sizes of `instance_sizes`."""
    runs = [(row.chips, row.single) for row in rows if row.single is not None]
    chips = [size for size, _ in runs]
    lowest = list(np.minimum.accumulate([found.tpot_s for _, found in runs]))

    def ends(k: int) -> bool:
        """Whether nothing at least twice as large pays, and something was looked at."""
        doubled = [
            (math.log2(chips[m] / chips[k]), lowest[m] / lowest[k])
            for m in range(k, len(chips))
            if chips[m] >= 2 * chips[k]
        ]
        least = 1.0 - GAIN_PER_DOUBLING
        return bool(doubled) and all(ratio > least**doublings for doublings, ratio in doubled)

    at = next((k for k in range(len(chips)) if ends(k)), None)
    times = [found.tpot_s for _, found in runs]
    best = int(np.argmin(times))
    used = runs[best if at is None else int(np.argmin(times[: at + 1]))][1]
    return Ceiling(
        chips=None if at is None else chips[at],
        tpot_s=None if at is None else float(lowest[at]),
        minimum_chips=chips[best],
        minimum_tpot_s=runs[best][1].tpot_s,
        smallest_chips=chips[0],
        smallest_tpot_s=runs[0][1].tpot_s,
        bound=runs[best][1].bound,
        network_share=runs[best][1].network_share,
        group_chips=used.tensor_parallel * used.data_parallel,
        speedup=runs[0][1].tpot_s / runs[best][1].tpot_s,
    )


@dataclass(frozen=True, slots=True)
class Replicas:
    """`demand` chips as `replicas` instances of `chips` chips each, within the limits. Chips left
    over (`idle_chips`) are paid for; `of_best` is the output over that of as many chips in
    instances of the best size."""

    chips: int
    replicas: int
    idle_chips: int
    output_tokens_per_s: float
    usd_per_million_total_tokens: float | None
    tpot_s: float
    ttft_s: float
    concurrency: int
    of_best: float


def replica_size(rows: Sequence[Size], demand: int = 0) -> int | None:
    """The size past which replication wins: the smallest whose tokens per second and chip within
    the limits come within 1% of the most of any size. With a `demand` chips that as many whole
    instances leave idle count, too. None where no size meets the limits."""

    def used(chips: int) -> float:
        return demand // chips * chips / demand if chips <= demand else 1.0

    rates = [
        (row.chips, used(row.chips) * row.within.output_tokens_per_s_per_chip)
        for row in rows
        if row.within
    ]
    most = max((rate for _, rate in rates), default=0.0)
    return next((chips for chips, rate in rates if rate >= (1.0 - EVEN) * most), None)


def replication(subject: Subject, rows: Sequence[Size], demand: int) -> list[Replicas]:
    """`demand` chips in all: as many instances of each size as they make, evaluated as such; sizes
    beyond the demand and those that do not meet the limits are left out."""
    kept = [(row.chips, row.within) for row in rows if row.within and row.chips <= demand]
    if not kept:
        return []
    table = divisions([p for _, p in kept])
    replicas = np.array([float(demand // size) for size, _ in kept])
    load = np.array([float(p.concurrency) for _, p in kept]) * replicas
    of = evaluated(subject, table, load, replicas=replicas)
    paid = demand / (replicas * table.chips)
    most = max(p.output_tokens_per_s_per_chip for _, p in kept)
    return rows_of(
        Replicas,
        chips=[size for size, _ in kept],
        replicas=replicas.astype(int),
        idle_chips=[demand % size for size, _ in kept],
        output_tokens_per_s=of.output_tokens_per_s,
        usd_per_million_total_tokens=[number(usd) for usd in of.usd * paid],
        tpot_s=of.tpot_s,
        ttft_s=of.ttft_s,
        concurrency=load.astype(int),
        of_best=of.output_tokens_per_s / (demand * most),
    )


def rows_of(make: Callable[..., T], **columns: Sequence[object] | NDArray[Any]) -> list[T]:
    """An object for each row of columns, (n,) each; NumPy's numbers become Python's."""
    lists = [np.asarray(column).tolist() for column in columns.values()]
    return [make(**dict(zip(columns, row, strict=True))) for row in zip(*lists, strict=True)]
