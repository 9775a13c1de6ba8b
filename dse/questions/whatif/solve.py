"""The front and the winner of a study under one set of inputs, and where a condition turns.

A space of up to 3 million points is enumerated: before and after are both the true front. A larger
one is searched, with the seed of the study, before and after; each search's front, and of the
questions that only move the winner also its neighbours one parameter away, is then looked at under
both, so that neither side is the better for luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.answer import Block
from dse.answer.numbers import dollars, number, significant
from dse.errors import NothingFeasible
from dse.pareto import Archive
from dse.physics.workload import POISSON
from dse.problem.describe import describe_metrics
from dse.problem.evaluate import Metrics
from dse.problem.objective import KNOWN, TOTAL, Demanded, at_demand
from dse.problem.protocol import Evaluation
from dse.problem.shapes import model_at
from dse.problem.words import short_deployment, short_shape
from dse.questions.whatif.inputs import Change, Subject, apply
from dse.record import record
from dse.rules.registry import STRUCTURAL
from dse.schema.backend import KINDS
from dse.schema.model import config_of
from dse.search.engine import ENUMERATE
from dse.search.parallel import threaded
from dse.space.candidates import CandidateBatch

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
CHUNK = 16_384
THREADS = 2
# The points that a small change can make the winner: within so much of it in the objective, and
# within so much of every limit. Under a demand, one deployment more may double what is paid.
NEAR, NEAR_AT_DEMAND, SLACK = 1.6, 3.2, 0.4
Progress = Callable[[str], None]
Json = Mapping[str, Any]
# Columns of a point: in words, and under a demand what is bought of it.
HELD = ("deployments", "all_chips", "usd_per_hour", f"{TOTAL}.busy")
Best = dict[int, tuple[float, int]]  # by the code of a chip, or a group: (worth, point)


def turning(holds: Callable[[float], bool], low: float, high: float, width: float) -> float:
    """Where a condition turns, by bisection: it does not hold at `low` and holds at `high`, which
    may lie either way. The end at which it holds, once the two are within `width`."""
    while abs(high - low) > width:
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@record
class Points:
    """The points that are looked at, by id, sorted; `enumerated`: all that any change can make
    feasible."""

    ids: Ids
    enumerated: bool
    engine: str
    evaluations: int

    @property
    def how(self) -> str:
        if self.evaluations == 1:
            return "The one point of the space was evaluated, before and after."
        if self.enumerated:
            return f"All {self.evaluations:,} points of the space were evaluated, before and after."
        return (
            f"The space is too large to enumerate: {self.engine} searched it from the same seed, "
            f"before and after, {self.evaluations:,} evaluations; questions look at what it found "
            "and one parameter around."
        )


@record
class Solved:
    """The front of one set of inputs, ordered by id: `ids` (k,), `F` (k, m). `winner` is the row
    that is best in the objective, None where nothing is feasible; `miss` then says what is in the
    way. `value` is the winner's objective, `apart` how many of the `feasible` points have pools of
    their own for prefill and decode."""

    problem: Demanded
    ids: Ids
    F: Floats
    winner: int | None
    feasible: int
    miss: str = ""
    value: float | None = None
    apart: int = 0

    @property
    def winner_id(self) -> int | None:
        return None if self.winner is None else int(self.ids[self.winner])

    @property
    def point(self) -> dict[str, Any] | None:
        """The winner as JSON."""
        return None if self.winner_id is None else described(self.problem, self.winner_id)


@dataclass(frozen=True)
class Stand:
    """A subject with the points that are looked at: its front as things stand, `now`, and with
    inputs changed."""

    subject: Subject
    points: Points

    @property
    def problem(self) -> Demanded:
        return self.subject.problem

    @property
    def objective(self) -> str:
        return self.subject.objective

    @cached_property
    def now(self) -> Solved:
        return self.solve(self.problem)

    def solve(self, problem: Demanded) -> Solved:
        return solve(problem, self.points, self.objective)

    @cached_property
    def winner(self) -> dict[str, Any]:
        """The winner as things stand, as JSON. Raises NothingFeasible."""
        if (point := self.now.point) is None:
            raise NothingFeasible(
                f"no point is feasible as things stand: the nearest one breaks {self.now.miss}"
            )
        return point

    def under(self, *changes: Change) -> Solved:
        """The front anew. Raises InputError for a figure that a chip does not have."""
        return self.solve(apply(self.subject, changes))

    @property
    def reach(self) -> float:
        """How far from the winner's objective `near` looks, as a factor."""
        return NEAR if self.problem.demand is None else NEAR_AT_DEMAND

    def near(self) -> Stand:
        """The same with the points that a small change can make the winner."""
        column = _column(self.problem, self.objective)
        best = float(self.now.F[self.now.winner, column])
        bound = best * self.reach if best > 0.0 else best / self.reach
        kept = []
        for ids, _, found in chunks(self.problem, self.points.ids):
            close = (found.F[:, column] <= bound) & (found.G <= SLACK).all(axis=1)
            kept.append(ids[close])
        return replace(self, points=replace(self.points, ids=np.concatenate(kept)))


def stand_of(
    subject: Subject,
    changes: Sequence[Sequence[Change]] = (),
    progress: Progress = lambda text: None,
) -> Stand:
    """The subject with all points that are looked at; a space too large to enumerate is searched
    under each of `changes`, too."""
    points = all_points(subject, progress)
    for some in () if points.enumerated else changes:
        points = searched(apply(subject, some), points, subject.seed)
    return Stand(subject, points)


def chunks(
    problem: Demanded, ids: Ids, threads: int = THREADS
) -> Iterator[tuple[Ids, Metrics, Evaluation]]:
    """(ids, metrics, F and G) of the points, in order, CHUNK at a time."""

    def one(part: Ids) -> tuple[Ids, Metrics, Evaluation]:
        metrics = problem.metrics(problem.space.unrank(part))
        return part, metrics, problem.judge(metrics)

    parts = [ids[k : k + CHUNK] for k in range(0, len(ids), CHUNK)]
    return threaded(one, parts, threads) if len(parts) > 1 else map(one, parts)


def all_points(subject: Subject, progress: Progress = lambda text: None) -> Points:
    """What is looked at: every point whose shape and degrees agree, or those that a search finds
    and their neighbours."""
    problem, engine = subject.problem, subject.engine
    size = problem.space.size
    if size <= ENUMERATE:
        rows = [problem.constraints.index(rule) for rule in STRUCTURAL]
        sound = []
        for ids, _, found in chunks(problem, np.arange(size, dtype=np.int64)):
            sound.append(ids[(found.G[:, rows] <= 0.0).all(axis=1)])
            progress(f"{int(ids[-1]) + 1:,} of {size:,} points")
        return Points(np.concatenate(sound), True, "exhaustive", size)
    none = Points(np.zeros(0, np.int64), False, "auto" if engine == "exhaustive" else engine, 0)
    return searched(problem, none, subject.seed)


def searched(problem: Demanded, points: Points, seed: int) -> Points:
    """The points with those that a search of this problem finds, and all one parameter away from
    its front."""
    from dse.search.run import search  # noqa: PLC0415 - Optuna takes 300 ms

    found, space = search(problem, points.engine, seed=seed), problem.space
    front = found.front.ids
    if len(front):
        front = np.union1d(front, space.rank(space.neighbours(space.unrank(front))))
    ids = np.union1d(points.ids, front)
    return Points(ids, False, found.engine, points.evaluations + found.evaluations)


def _column(problem: Demanded, objective: str) -> int:
    return [one.metric for one in problem.objectives].index(objective)


def solve(problem: Demanded, points: Points, objective: str) -> Solved:
    """The front among the points and its winner in `objective`."""
    archive = Archive(len(problem.objectives))
    feasible, apart, nearest = 0, 0, (np.inf, "")
    for part, _, found in chunks(problem, points.ids):
        keep = (found.G <= 0.0).all(axis=1)
        feasible += int(keep.sum())
        if problem.pools is not None:
            apart += int(problem.pools.separate(problem.space.unrank(part[keep])).sum())
        archive.add(found.F[keep], part[keep])
        if not feasible and len(part):
            total = np.maximum(found.G, 0.0).sum(axis=1)
            row = int(np.argmin(total))
            if total[row] < nearest[0]:
                nearest = (float(total[row]), _missed(problem, found.G[row]))
    column, F = _column(problem, objective), archive.F
    if not len(F):
        return Solved(problem, archive.ids, F, None, feasible, nearest[1])
    others = [F[:, k] for k in range(F.shape[1]) if k != column]
    winner = int(np.lexsort((archive.ids, *others[::-1], F[:, column]))[0])
    value = float(problem.objectives[column].sign * F[winner, column])
    return Solved(problem, archive.ids, F, winner, feasible, value=value, apart=apart)


def _missed(problem: Demanded, G: Floats) -> str:
    """What the nearest miss breaks."""
    words = []
    for name, amount in zip(problem.constraints, G, strict=True):
        if amount > 0.0:
            by = f" (by {significant(100.0 * amount, 2)}%)" if np.isfinite(amount) else ""
            words.append("a price that nobody knows" if name == KNOWN else f"{name}{by}")
    return ", ".join(words)


def best_of_each(
    stand: Stand,
    worth: Callable[[Metrics, CandidateBatch], Floats],
    group: Callable[[CandidateBatch, Ids], Ids] = lambda batch, index: batch.chip,
) -> Best:
    """The feasible point of least `worth` (n,) of each chip, or of each `group` (n,) of a batch and
    its index (n, d); of equal ones the first. None where no point has a finite one. Pools of two
    kinds of chip are of no one chip."""
    found: Best = {}
    for ids, metrics, judged in chunks(stand.problem, stand.points.ids):
        index = stand.problem.space.unrank(ids)
        batch = stand.problem.batch(index)
        kinds = stand.problem.kinds(batch, index)
        feasible = (judged.G <= 0.0).all(axis=1) & (kinds.first == kinds.second)
        value, numbers = np.where(feasible, worth(metrics, batch), np.inf), group(batch, index)
        for one in map(int, np.unique(numbers)):
            rows = np.flatnonzero(numbers == one)
            row = int(rows[np.argmin(value[rows])])
            if value[row] < found.get(one, (np.inf, 0))[0]:
                found[one] = (float(value[row]), int(ids[row]))
    return found


def metrics_at(problem: Demanded, ids: Ids) -> Metrics:
    return problem.metrics(problem.space.unrank(np.asarray(ids, dtype=np.int64)))


def describe(problem: Demanded, ids: Ids, asked: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Points as JSON: id, deployment, shape where it is searched, the metrics that a buyer looks
    at, and under a demand what it takes to serve that."""
    if not len(ids):
        return []
    index = problem.space.unrank(np.asarray(ids, dtype=np.int64))
    batch, metrics = problem.batch(index), problem.metrics(index)
    busy, kinds = metrics, None
    if problem.demand is not None:
        busy, kinds = problem.busy.metrics(index), problem.kinds(batch, index)
    names = [*(one.metric for one in (*problem.objectives, *problem.limits)), TOTAL, "tpot_s"]
    names += ["output_tokens_per_s_per_chip", "chip_usd_per_hour", *asked]
    held = all(share.workload.serving != POISSON for share in problem.mix)
    found = []
    for i, (point, deployment) in enumerate(zip(ids, problem.deployments(index), strict=True)):
        shape = None
        if problem.model is None:
            shape = short_shape(config_of(model_at(batch, i, "", None)))
        load, intervals = None, describe_metrics(busy, i, batch)["intervals"]
        if kinds is not None:
            load, intervals = at_demand(problem, kinds, busy, i, intervals)
        found.append(
            {
                "id": int(point),
                "chip": deployment["chip"],
                "words": short_deployment(deployment, held),
                "shape": shape,
                "deployment": deployment,
                "metrics": {name: number(metrics.values[name][i]) for name in dict.fromkeys(names)},
                "intervals": intervals,
                "at_average_load": load,
                "provenance": KINDS[metrics.provenance[i]],
            }
        )
    return found


def described(problem: Demanded, point: int, *asked: str) -> dict[str, Any]:
    """One point as JSON."""
    return describe(problem, np.array([point]), asked)[0]


def words(point: Mapping[str, Any] | None) -> str:
    """`8 h200_sxm TP4 fp8/bf16 c64`, with the shape where that is searched."""
    if point is None:
        return "nothing feasible"
    return " of ".join(filter(None, [point["words"], point["shape"]]))


@record
class Part:
    """A question that is answered: what it adds to the document, sentences that change a decision,
    and what shows it."""

    facts: Json
    sentences: Sequence[str]
    blocks: Sequence[Block]


def load_of(point: Json | None) -> Json:
    """What a demand buys of a point; empty without a demand."""
    load = None if point is None else point["at_average_load"]
    return {} if load is None or load["deployments"] is None else load


def cells(point: Json | None) -> dict[str, Any]:
    """A point as cells of a row: in words, by its metrics, and what a demand buys of it."""
    load = load_of(point)
    held = [load.get(key) for key in ("deployments", "chips", "usd_per_hour")]
    held.append(load.get("busy_usd_per_million_total_tokens"))
    metrics = {} if point is None else point["metrics"]
    return {"deployed": words(point), **metrics, **dict(zip(HELD, held, strict=True))}


def counted(count: float, what: str) -> str:
    """`1 chip`, `1,024 chips`."""
    return f"{count:,.0f} {what}{'' if count == 1 else 's'}"


def bought(point: Json | None) -> str:
    """` with 4 deployments, 8 chips, $8.40 an hour`; nothing without a demand."""
    if not (load := load_of(point)):
        return ""
    many = f"{counted(load['deployments'], 'deployment')}, {counted(load['chips'], 'chip')}"
    return f" with {many}, {dollars(load['usd_per_hour'])} an hour"
