"""A session of measuring: probe, choose what the time allows, pass over it again and again.

The samples of a point are spread over the whole section, a pass at a time, so that a machine that
is busy for a while, or slows down as it gets warm, moves all points alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dse.measure import work as grids
from dse.measure.work import Bench, Point, Work, affordable

WARM_UP = 2  # runs before the first sample
SAMPLE_S = 2e-3  # a sample is as many runs as take this long
PROBE_S = 0.15
FEWEST = 8  # points of a section, however slow the device
SLOW = 1e10  # operations a second of a device that refused the probe
BANDWIDTH = "memory bandwidth"


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds of wall time for each section on one device, and passes over it."""

    name: str
    passes: int
    streams_s: float
    gemm_s: float
    other_gemm_s: float
    misaligned_s: float
    attention_s: float
    odd_heads_s: float
    collectives_s: float


QUICK = Effort("quick", 7, 2.5, 18.0, 2.5, 9.0, 7.0, 4.0, 6.0)
FULL = Effort("full", 15, 8.0, 120.0, 30.0, 45.0, 60.0, 20.0, 60.0)
STREAM_BYTES = 256 * 2**20  # at least eight times the cache, at most an eighth of the memory
Progress = Callable[[str, float], None]


@dataclass(slots=True)
class Session:
    """`rates`: what probes reached, operations a second by format and bytes a second; `skipped`:
    works that the device refused, each with its reason."""

    bench: Bench
    effort: Effort
    seed: int
    progress: Progress = lambda words, share: None
    clock: Callable[[], float] = time.perf_counter
    points: list[Point] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    skipped: list[tuple[Work, str]] = field(default_factory=list)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def measure(self, dtypes: Sequence[str]) -> list[Point]:
        """Every section for every format; the first format gets attention and misaligned sizes."""
        sections = self._sections(dtypes)
        total = sum(budget for _, _, budget in sections)
        done = 0.0
        for words, groups, budget in sections:
            self.progress(words, done / total)
            if words != BANDWIDTH:
                self._probe(groups[0][0].dtype)
            self._section(groups, budget, words)
            done += budget
            if words == BANDWIDTH:
                self.rates["bytes"] = max(p.work.bytes / min(p.samples) for p in self.points)
        self.bench.release()
        self.progress("done", 1.0)
        return self.points

    def _sections(self, dtypes: Sequence[str]) -> list[tuple[str, list[list[Work]], float]]:
        """(words, groups of works, seconds) of each."""
        effort, first, device = self.effort, dtypes[0], self.bench.device
        array = min(max(STREAM_BYTES, 8 * device.cache_bytes), device.memory_bytes / 8, 2 * 2**30)
        sections = [(BANDWIDTH, _alone(grids.streams(array)), effort.streams_s)]
        for dtype in dtypes:
            seconds = effort.gemm_s if dtype == first else effort.other_gemm_s
            sections.append((f"GEMMs in {dtype}", _alone(grids.gemms(dtype)), seconds))
        odd = grids.misaligned_gemms(first)
        sections.append((f"misaligned GEMMs in {first}", odd, effort.misaligned_s))
        if first in ("bf16", "fp16"):
            for operator, of in (("prefill", "prompts"), ("decode", "the cache")):
                works = _alone(grids.attention(f"{operator}_attention", first))
                sections.append((f"attention over {of} in {first}", works, effort.attention_s))
            odd = grids.odd_heads(first)
            sections.append((f"odd head counts in {first}", odd, effort.odd_heads_s))
        return sections

    def _probe(self, dtype: str) -> None:
        """Operations a second of one middling GEMM, once a format."""
        if dtype in self.rates:
            return
        size = 256
        while True:
            work = Work("gemm", dtype, (size, size, size))
            try:
                run = self.bench.prepare(work)
                run(1)
                seconds = run(1)
            except RuntimeError as error:
                self._skip(work, error)
                self.rates.setdefault(dtype, SLOW)
                return
            self.rates[dtype] = work.flops / seconds
            larger = Work("gemm", dtype, (2 * size,) * 3)
            if seconds > PROBE_S / 8 or not self.bench.holds(larger) or size >= 8192:
                return
            size *= 2

    def _skip(self, work: Work, error: Exception) -> None:
        self.skipped.append((work, str(error).strip().split("\n")[0]))

    def _expected_s(self, work: Work) -> float:
        """A sample of the work: assumed are half the probed rates, and attention at a quarter."""
        flops = self.rates.get(work.dtype, np.inf) * (0.5 if work.operator == "gemm" else 0.12)
        seconds = work.flops / flops + work.bytes / (0.5 * self.rates.get("bytes", 1e10)) + 2e-5
        return max(seconds, SAMPLE_S)

    def _section(self, groups: list[list[Work]], budget: float, words: str) -> None:
        """Up to `passes` samples of what the budget allows, at least three of each point."""
        rng = np.random.default_rng((self.seed, len(self.points)))
        held = [group for group in groups if all(map(self.bench.holds, group))]
        runs = self.effort.passes + WARM_UP
        works = affordable(held, self._expected_s, budget, runs, rng)
        if words == BANDWIDTH:
            works = [group[0] for group in groups]
        if not works:  # a device too slow for any of them: the smallest
            works = list(min(held, key=lambda group: sum(map(self._expected_s, group)), default=[]))
        started = self.clock()
        points, runners = [], []
        for work in works:
            late = self.clock() - started > 0.5 * budget
            if late and len(points) >= FEWEST and work.role == "grid":
                break  # slower than expected: the rest is left out
            try:
                run = self.bench.prepare(work)
                run(WARM_UP)
                count = max(1, int(np.ceil(SAMPLE_S / max(run(1), 1e-7))))
                first = run(count)
            except RuntimeError as error:  # no kernel for this shape, or no memory
                self._skip(work, error)
                continue
            points.append(Point(work, [first]))
            runners.append((run, count))
        for number in range(1, self.effort.passes):
            if number >= 3 and self.clock() - started > budget:
                break
            for k in rng.permutation(len(points)):
                run, count = runners[k]
                points[k].samples.append(run(count))
        timed = {id(point.work) for point in points}
        whole = [group for group in groups if all(id(work) in timed for work in group)]
        kept = {id(work) for group in whole for work in group}
        self.points += [point for point in points if id(point.work) in kept]


def _alone(works: Sequence[Work]) -> list[list[Work]]:
    return [[work] for work in works]
