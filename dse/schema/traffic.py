"""A trace of requests as classes of lengths and rates of arrival.

The rate is that of a busy window. Classes are cells of the plane of prompt and output lengths with
equally many requests; each is served at its mean lengths, so that tokens are kept in sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.record import record
from dse.schema.trace import Trace

Floats = NDArray[np.float64]

MOST_WINDOWS = 10_000_000
# Percentiles of the time to first token, and the metric of each.
PERCENTILES = {50: "ttft_s", 90: "ttft_p90_s", 99: "ttft_p99_s"}
# Groups of prompt lengths with which the slowest class has about the percentile of all requests in
# a simulation of widely spread lengths (tests/unit/test_traffic.py): the tail is that of the
# longest prompts, and the rarer the percentile, the fewer of them make it.
GROUPS = {50: 1, 90: 4, 99: 8}
OUTPUTS = 2  # groups of output lengths in each


@record
class Requests:
    """Requests alike: their share of all, mean lengths in tokens, share of the prompt cached."""

    share: float
    prompt_tokens: float
    output_tokens: float
    prefix_hit_rate: float = 0.0


def mean_of(classes: Sequence[Requests]) -> Requests:
    """All requests of them at their mean lengths."""
    prompt = math.fsum(one.share * one.prompt_tokens for one in classes)
    output = math.fsum(one.share * one.output_tokens for one in classes)
    cached = math.fsum(one.share * one.prompt_tokens * one.prefix_hit_rate for one in classes)
    return Requests(1.0, prompt, output, cached / prompt)


@record
class Windows:
    """Whole windows of a trace in order: `requests` (w,) that came in each of `seconds`."""

    seconds: float
    requests: NDArray[np.int64]

    @property
    def per_s(self) -> Floats:
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of a fleet's class: what comes, and how that varies over time.

    `streams` are their lengths, as shares that sum to 1. `requests_per_s` come in the mean of the
    first quarter, which grows by `growth` a quarter; a fleet is sized for `peak` times the mean.
    `source` and `windows` are of the trace that says it. A study knows less: `WorkloadSpec` is the
    lengths of its requests, `schema.load.Demand` their tokens a second and its peak."""

    streams: tuple[Requests, ...]
    requests_per_s: float
    peak: float = 1.0
    growth: float = 0.0
    source: str = ""
    windows: Windows | None = field(default=None, compare=False)

    @property
    def mean(self) -> Requests:
        """All requests at their mean lengths."""
        return mean_of(self.streams)

    @property
    def tokens(self) -> float:
        """Prompt and output tokens of a request, in the mean."""
        return self.mean.prompt_tokens + self.mean.output_tokens

    def mean_per_s(self, quarter: int) -> float:
        """Requests per second in the mean of a quarter, the first being 0."""
        return self.requests_per_s * (1.0 + self.growth) ** quarter

    def peak_per_s(self, quarter: int) -> float:
        return self.mean_per_s(quarter) * self.peak


def windows_of(trace: Trace, window_s: float) -> Windows:
    """Raises InputError where the trace has not two whole windows, or too many to count."""
    windows = math.floor(trace.span_s / window_s * (1.0 + 1e-12))
    if windows < 2:
        raise InputError(
            f"the trace of {trace.span_s:g} s has {windows} whole windows of {window_s:g} s",
            field="--window",
            accepted=f"at most {trace.span_s / 2.0:g} s",
        )
    if windows > MOST_WINDOWS:
        raise InputError(
            f"{windows:,} windows of {window_s:g} s in the trace of {trace.span_s:g} s",
            field="--window",
            accepted=f"at least {trace.span_s / MOST_WINDOWS:.3g} s",
        )
    place = np.floor((trace.time_s - trace.time_s[0]) / window_s).astype(np.int64)
    return Windows(window_s, np.bincount(place[place < windows], minlength=windows))


def traffic_of(trace: Trace, window_s: float, share: float, groups: int) -> Traffic:
    """The trace as streams and rates: `share` of its windows, 0 to 1, are no busier than the one
    that it is sized for; `groups` of prompt lengths, with OUTPUTS of output lengths in each.

    Raises InputError where the trace has not two whole windows, or too many to count.
    """
    windows = windows_of(trace, window_s)
    busy = float(np.quantile(windows.per_s, share, method="higher"))
    mean = (len(trace) - 1) / trace.span_s
    return Traffic(_classes(trace, groups), mean, peak=busy / mean, windows=windows)


def _classes(trace: Trace, groups: int) -> tuple[Requests, ...]:
    """Cells of equal counts by prompt, and within these by output; alike ones become one."""
    cell = np.zeros(len(trace), dtype=np.int64)
    halves = OUTPUTS if groups > 1 else 1
    for k, rows in enumerate(_equal(trace.prompt, np.arange(len(trace)), groups)):
        for j, mine in enumerate(_equal(trace.output, rows, halves)):
            cell[mine] = k * halves + j
    count = np.bincount(cell)
    means = [np.bincount(cell, of) for of in (trace.prompt, trace.output, trace.cached)]
    used = np.flatnonzero(count)
    rows = np.stack([one[used] / count[used] for one in means], axis=1)
    unlike, which = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(which.ravel(), count[used]) / len(trace)
    return tuple(
        # An engine prefills the last token whatever is cached.
        Requests(float(part), float(p), float(o), float(min(c / p, 1.0 - 1.0 / max(p, 2.0))))
        for part, (p, o, c) in zip(share, unlike, strict=True)
    )


def _equal(lengths: Floats, rows: NDArray[np.int64], parts: int) -> list[NDArray[np.int64]]:
    """`rows` in at most `parts` groups of rising length; equal lengths stay together."""
    order = np.argsort(lengths[rows], kind="stable")
    ranked = lengths[rows][order]
    # The rank of the first of its length decides the group of a row.
    first = np.searchsorted(ranked, ranked, side="left")
    group = np.minimum(first * parts // max(len(rows), 1), parts - 1)
    return [rows[order[group == k]] for k in range(parts) if (group == k).any()]
