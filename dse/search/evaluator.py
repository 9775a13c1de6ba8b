"""Evaluator: every point once, in chunks, with the archive and the tallies kept on the way. The
form that every engine has, and the engine that looks at every point.

A checkpoint keeps on disk what a study has done: a killed run goes on from there.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.files import replacing
from dse.pareto import Archive, Ids
from dse.problem.protocol import Problem
from dse.search.parallel import HERE, Executor, hold_memory
from dse.space.candidates import Rows, concatenated

EVERY = 4_000_000
_IDENTITY = "identity"


class Checkpoint:
    """Results of tasks in one file, replaced whole: of one that is done, and of an enumeration
    about every `every` points. An enumeration of fewer leaves none.

    `identity` is what a run must share to go on: anything else in the file, or a file that cannot
    be read, counts as no checkpoint. `fresh` forgets what is there.
    """

    def __init__(
        self, path: Path, identity: Mapping[str, Any], every: int = EVERY, fresh: bool = False
    ) -> None:
        self.path, self.every = path, every
        self._identity = json.dumps(dict(identity), sort_keys=True)
        if fresh:
            path.unlink(missing_ok=True)
        self._arrays = self._read()

    def _read(self) -> dict[str, NDArray]:
        try:
            with self.path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            return {}
        return arrays if str(arrays.pop(_IDENTITY, "")) == self._identity else {}

    def load(self, task: str) -> dict[str, NDArray] | None:
        """What was saved last of a task, or None."""
        mine = f"{task}/"
        found = {
            name.removeprefix(mine): array
            for name, array in self._arrays.items()
            if name.startswith(mine)
        }
        return found or None

    def save(self, task: str, state: Mapping[str, NDArray]) -> None:
        """Raises StorageError when the file cannot be written."""
        self._arrays |= {f"{task}/{name}": array for name, array in state.items()}
        with replacing(self.path) as file:
            arrays = {_IDENTITY: np.array(self._identity), **self._arrays}
            np.savez(file, allow_pickle=False, **arrays)


BITMAP_LIMIT = 50_000_000
CHUNK = 65_536  # points evaluated at once: the more, the more of them share (docs/search.md)
WORTH_A_COPY = 4  # chunks; a copy of the process takes as long as half a chunk
TOLERATED = 1.0  # sum of violations near which something feasible may be
SWEEP = "sweep"  # the enumeration in a checkpoint
# What brought a design into the study of record, its attribute `stage`: the sample that stands for
# the space and the part of it that breaks a constraint, what the search looked at, its result.
SAMPLE, REFUSED, SEARCH, FRONT = STAGES = ("sample", "refused", "search", "front")


@dataclass(frozen=True, slots=True)
class Batch(Rows):
    """Evaluated points: ids (n,), index (n, d), F (n, m), G (n, c); `broken` as of `Evaluation`."""

    ids: NDArray[np.int64]
    index: NDArray[np.int64]
    F: NDArray[np.float64]
    G: NDArray[np.float64]
    broken: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def columns(self) -> Sequence[int]:
        """Of G, those that may have other values than 0: the others need not be read."""
        return range(self.G.shape[1]) if self.broken is None else self.broken

    @property
    def violation(self) -> NDArray[np.float64]:
        """(n,) sum of the positive constraint values, by which Optuna too ranks infeasible
        trials; 0 where feasible."""
        total = np.zeros(len(self))
        for k in self.columns:
            total += np.maximum(self.G[:, k], 0.0)
        return total

    @staticmethod
    def of(parts: Sequence[Batch]) -> Batch:
        """At least one part, one behind the other."""
        return replace(concatenated(parts, list(map(len, parts))), broken=None)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many evaluated points a constraint removed, and how many it alone removed."""

    constraint: str
    violated: int
    only: int


class Counted(NamedTuple):
    """What the accounts need of a chunk of so many points: how many are feasible; of each
    constraint that any breaks, how many do, and how many break no other; the front F (k, m) with
    its ids; where none is feasible, the nearest miss as (violation, id)."""

    points: int
    feasible: int
    broken: dict[int, tuple[int, int]]
    F: NDArray[np.float64]
    ids: NDArray[np.int64]
    nearest: tuple[float, int]


class SeenIds:
    """The set of ids met so far: a bitmap for spaces up to 5e7 points, else sorted runs, each more
    than twice as long as the next, so that n ids cost n log n whatever the batches."""

    def __init__(self, size: int) -> None:
        self._bits = np.zeros(size, dtype=bool) if size <= BITMAP_LIMIT else None
        self._runs: list[NDArray[np.int64]] = []

    def contains(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) ids -> (n,) bool."""
        if self._bits is not None:
            return self._bits[ids]
        found = np.zeros(len(ids), dtype=bool)
        for run in self._runs:
            found |= run[np.minimum(np.searchsorted(run, ids), len(run) - 1)] == ids
        return found

    def add(self, ids: NDArray[np.int64]) -> None:
        if self._bits is not None:
            self._bits[ids] = True
            return
        if len(ids):
            self._runs.append(np.sort(ids))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]), kind="stable")


class Evaluator:
    """Evaluates each distinct point of a problem at most once, up to `limit` points.

    Keeps the feasible non-dominated `archive`; `relaxed`, in which violation counts as one more
    objective (once something is feasible, of points near enough to be looked around); a tally for
    each constraint; and, until something is feasible, the `nearest` miss as (violation, id).
    `sink(batch, stage)` receives what `publish` is given, the points that become trials of the
    study of record, and says how many were new there; `others()` are the ids that other processes
    stored since the last look, None where the study is this process's own. The results do not
    depend on the `executor`.
    """

    def __init__(
        self,
        problem: Problem,
        chunk: int = CHUNK,
        executor: Executor = HERE,
        sink: Callable[[Batch, str], int] | None = None,
        others: Callable[[], Ids] | None = None,
    ) -> None:
        hold_memory()
        self.problem, self.space = problem, problem.space
        self.chunk, self.executor, self.others = chunk, executor, others
        self.archive = Archive(len(problem.objectives))
        self.relaxed = Archive(len(problem.objectives) + 1)
        self.limit = self.space.size
        self.evaluations = 0
        self.feasible = 0
        self.seconds = 0.0
        self.seen = SeenIds(self.space.size)
        self.nearest = (np.inf, -1)
        self.checkpoint: Checkpoint | None = None
        self.one_by_one = False  # ask a sampler for one point at a time
        self._sink = sink
        self._violated = np.zeros(len(problem.constraints), dtype=np.int64)
        self._only = np.zeros(len(problem.constraints), dtype=np.int64)

    @property
    def left(self) -> int:
        """Evaluations that the limit still allows."""
        return self.limit - self.evaluations

    @property
    def tallies(self) -> tuple[Tally, ...]:
        counts = zip(self.problem.constraints, self._violated, self._only, strict=True)
        return tuple(Tally(name, int(violated), int(only)) for name, violated, only in counts)

    def look(self, index: NDArray[np.int64]) -> int:
        """Evaluate the points of canonical index (n, d) that were not evaluated before, of them the
        first that the limit allows; return how many."""
        ids = np.sort(self._new(index))
        self._look(ids)
        return len(ids)

    def visit(self, index: NDArray[np.int64]) -> None:
        """The same without the account of `relaxed`."""
        ids = np.sort(self._new(index))
        for _ in self.sweep_ids(lambda first, last: ids[first:last], 0, len(ids)):
            pass

    def evaluate(self, index: NDArray[np.int64]) -> Batch:
        """`look`, and return those points, first occurrence first."""
        ids = self._new(index)
        order = np.argsort(ids)
        F = np.empty((len(self.problem.objectives), len(ids))).T
        G = np.zeros((len(self.problem.constraints), len(ids))).T
        broken: set[int] = set()
        done = 0
        for part in self._look(ids[order], keep=True):
            rows = order[done : done + len(part)]
            F[rows] = part.F
            for k in part.columns:
                G[rows, k] = part.G[:, k]
            broken.update(part.columns)
            done += len(part)
        return Batch(ids, self.space.unrank(ids), F, G, tuple(sorted(broken)))

    def _new(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids that were not seen, distinct, first occurrence first; now they are seen."""
        ids = self.space.rank(index)
        distinct, first = np.unique(ids, return_index=True)
        ids = ids[np.sort(first[~self.seen.contains(distinct)])[: self.left]]
        self.seen.add(ids)
        return ids

    def _look(self, ids: NDArray[np.int64], keep: bool = False) -> list[Batch]:
        """Evaluate ascending ids, a chunk at a time: neighbours in this order have most in common,
        which is worked out once. Returns the chunks where they are to `keep`."""
        kept: list[Batch] = []
        near = []
        for first in range(0, len(ids), self.chunk):
            started = time.perf_counter()
            part = self.again(ids[first : first + self.chunk])
            self.seconds += time.perf_counter() - started
            self._account(counted(part))
            near.append((part.F, part.violation, part.ids))
            kept += [part] if keep else []
        tolerated = TOLERATED if self.feasible else np.inf
        front = self.archive.ids
        for F, violation, which in near:
            # a feasible point that is not on the front is dominated here too
            rows = np.where(violation > 0, violation <= tolerated, np.isin(which, front))
            self.relaxed.add(np.column_stack([F, violation])[rows], which[rows])
        return kept

    def sweep(self, after: Callable[[], None]) -> None:
        """Evaluate the whole space in rank order, with all accounts but `relaxed`, and call
        `after` behind each chunk. Only for an evaluator that has evaluated nothing yet. With a
        `checkpoint` it starts where that one stands."""
        checkpoint, done = self.checkpoint, None
        if checkpoint is not None and (done := checkpoint.load(SWEEP)) is not None:
            self.restore(done)
        saved = self.evaluations
        for _ in self.sweep_ids(np.arange, saved, self.space.size):
            if checkpoint is not None and self.evaluations - saved >= checkpoint.every:
                checkpoint.save(SWEEP, self.state())
                saved = self.evaluations
            after()

    def state(self) -> dict[str, NDArray]:
        """All accounts but `relaxed` and which points were seen, for `restore`."""
        return {
            "counts": np.array([self.evaluations, self.feasible, self.nearest[1]]),
            "nearest": np.array(self.nearest[0]),
            "violated": self._violated,
            "only": self._only,
            "F": self.archive.F,
            "ids": self.archive.ids,
        }

    def restore(self, state: Mapping[str, NDArray]) -> None:
        """Take over the accounts of another evaluator."""
        self.evaluations, self.feasible, nearest = map(int, state["counts"])
        self.nearest = (float(state["nearest"]), nearest)
        self._violated, self._only = state["violated"], state["only"]
        self.archive.add(state["F"], state["ids"])

    def again(self, ids: NDArray[np.int64]) -> Batch:
        """Points evaluated before, evaluated once more without being counted."""
        return evaluated(self.problem, ids, self.chunk)

    def reserve(self, n: int) -> None:
        """Leave n evaluations of the limit to `add`, unless it is the whole space."""
        self.limit -= n if self.limit < self.space.size else 0

    def add(self, ids: NDArray[np.int64]) -> None:
        """Take points into all accounts, beyond the limit; an enumeration has them already."""
        if self.evaluations < self.space.size:
            self.limit = min(self.space.size, self.limit + len(ids))
            self.evaluate(self.space.unrank(ids))

    def publish(self, batch: Batch, stage: str) -> int:
        """Hand points to the study of record; return how many were new there."""
        return self._sink(batch, stage) if self._sink is not None and len(batch) else 0

    def publish_ids(self, ids: NDArray[np.int64], stage: str) -> None:
        """The same of points that were evaluated before."""
        if self._sink is not None and len(ids):
            self._sink(self.again(ids), stage)

    def sweep_ids(
        self, ids: Callable[[int, int], NDArray[np.int64]], first: int, last: int
    ) -> Iterator[None]:
        """Evaluate the distinct points `ids` of each chunk of places from `first` to `last` - 1,
        several chunks at a time, with all accounts but `relaxed`."""
        problem, chunk = self.problem, self.chunk
        chunks = -(-(last - first) // chunk)
        executor = HERE if self.one_by_one or chunks < WORTH_A_COPY else self.executor
        workers, size = min(executor.workers, chunks), chunk
        if workers > 1:  # as many chunks for each, of nearly one size
            chunks = -(-chunks // workers) * workers
            size = -(-(last - first) // chunks)

        def part(start: int) -> Counted:
            return counted(evaluated(problem, ids(start, min(start + size, last)), chunk))

        started = time.perf_counter()
        for found in executor.map(part, range(first, last, size)):
            self._account(found)
            self.seconds += time.perf_counter() - started
            yield
            started = time.perf_counter()

    def _account(self, found: Counted) -> None:
        self.evaluations += found.points
        for k, (violated, alone) in found.broken.items():
            self._violated[k] += violated
            self._only[k] += alone
        self.feasible += found.feasible
        self.archive.add(found.F, found.ids)
        if not self.feasible:
            self.nearest = min(self.nearest, found.nearest)


def evaluated(problem: Problem, ids: NDArray[np.int64], chunk: int) -> Batch:
    """The points of ids (n,), `chunk` of them at a time."""
    if len(ids) > chunk:
        parts = range(0, len(ids), chunk)
        return Batch.of([evaluated(problem, ids[i : i + chunk], chunk) for i in parts])
    index = problem.space.unrank(ids)
    evaluation = problem.evaluate(index)
    return Batch(ids, index, evaluation.F, evaluation.G, evaluation.broken)


def counted(batch: Batch) -> Counted:
    violated = {k: batch.G[:, k] > 0 for k in batch.columns}
    count = np.zeros(len(batch), dtype=np.intp)
    for flags in violated.values():
        count += flags
    alone, feasible = count == 1, count == 0
    best = Archive(batch.F.shape[1])
    best.add(batch.F[feasible], batch.ids[feasible])
    nearest = (np.inf, -1)
    if len(batch) and not feasible.any():
        place = int(np.lexsort((batch.ids, amount := batch.violation))[0])
        nearest = float(amount[place]), int(batch.ids[place])
    return Counted(
        len(batch),
        int(feasible.sum()),
        {k: (int(flags.sum()), int((flags & alone).sum())) for k, flags in violated.items()},
        best.F,
        best.ids,
        nearest,
    )


# Engines: the ways to search, and the one that looks at every point.

LEAST_EVALUATIONS = 1_000
MOST_EVALUATIONS = 2_000_000
ENUMERATE = 3_000_000  # points of a space that is not searched but looked at whole

LARGEST = 1_000_000_000  # points that are enumerated where that is asked for

# progress(points evaluated, points expected or None, points on the front)
Progress = Callable[[int, int | None, int], None]


# Trials asked of an Optuna sampler: a count, never seconds. None leaves the choice to the engine.
Trials = int | None


class Engine:
    """A way to search. `bulk`: whether it evaluates many more points than it hands to the study of
    record, so that a sample has to stand there for the space."""

    name: str
    bulk: bool

    def evaluations(self, size: int) -> int:
        """Default number of evaluations in a space of `size` points: a tenth of it, at least 1,000
        points and at most two million."""
        return min(size, max(LEAST_EVALUATIONS, min(size // 10, MOST_EVALUATIONS)))

    def run(
        self, evaluator: Evaluator, trials: Trials, rng: np.random.Generator, progress: Progress
    ) -> None:
        """Leaves what it finds in the evaluator's archive."""
        raise NotImplementedError


class Exhaustive(Engine):
    """Streams all ranks in order; memory does not grow with the space. With a checkpoint, a
    killed run goes on where it was.

    Raises InputError for a space above 1e9 points.
    """

    name, bulk = "exhaustive", True

    def evaluations(self, size: int) -> int:
        return size

    def run(
        self, evaluator: Evaluator, trials: Trials, rng: np.random.Generator, progress: Progress
    ) -> None:
        size = evaluator.space.size
        if size > LARGEST:
            raise InputError(
                f"the space has {size:,} points, too many to enumerate",
                field="--engine exhaustive",
                accepted=f"a space of at most {LARGEST:,} points, or another engine",
            )
        evaluator.sweep(lambda: progress(evaluator.evaluations, size, len(evaluator.archive)))


ENGINES = (Exhaustive(),)
