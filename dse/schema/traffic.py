"""What a deployment is asked to serve: a demand in tokens a second, a trace of requests, and a
trace as classes of lengths and rates of arrival."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse import units
from dse.errors import InputError
from dse.record import record
from dse.schema.loader import csv_rows, did_you_mean
from dse.schema.reader import OPTIONAL, Field, Raw, Refused, Table

_SECONDS = {"s": 1.0, "second": 1.0, "hour": 3600.0, "h": 3600.0, "day": 86400.0, "d": 86400.0}
_SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_RATE = re.compile(r"\s*(.+?)\s*(?:/|\ba\b|\bper\b)\s*([a-z]+)\s*")
_ACCEPTED = "tokens in a second, hour or day, input and output together, such as 1B/day or 20000/s"


@record
class Demand:
    """How much a study's deployments are to serve, and how that varies: `average_tokens_per_s` are
    input and output tokens (None where only the ratio is known), whatever the lengths of its
    requests (`schema.workloads.WorkloadSpec`). The class of a fleet counts requests, and says both:
    `schema.plan.DemandClass`."""

    average_tokens_per_s: float | None
    peak_over_average: float


def read_demand(average: Any, peak_over_average: Any) -> Demand:
    """Raises InputError, its field `average` or `peak_over_average`."""
    try:
        ratio = float(peak_over_average)
    except (TypeError, ValueError):
        ratio = 0.0
    if isinstance(peak_over_average, bool) or not 1.0 <= ratio <= 1e6:
        raise InputError(
            f"read {peak_over_average!r}", field="peak_over_average", accepted="1 or more, as 2.5"
        )
    return Demand(None if average is None else read_rate(average), ratio)


def _demand(**written: Any) -> Demand:
    if not written:
        raise Refused("read {}", _EXAMPLE)
    return read_demand(written.get("average"), written.get("peak_over_average", 1.0))


_EXAMPLE = "average: 1B/day, peak_over_average: 2.5"
DEMAND = Table(
    Field("average", Raw(), OPTIONAL, meaning=_ACCEPTED),
    Field("peak_over_average", Raw(), OPTIONAL, meaning="1 or more", example="2.5"),
    make=_demand,
    says=_EXAMPLE,
)


def check_idle_once(utilisation: float) -> None:
    """Raises InputError where owned chips whose price carries idle hours, `utilisation` below 1,
    are priced for a demand, which counts the idle hours itself."""
    if utilisation < 1.0:
        raise InputError(
            f"the costs' utilisation of {100 * utilisation:.4g}% and a demand both count idle "
            "hours",
            accepted="one of the two: drop `utilisation` from the costs (it is then 100%), or drop "
            "the demand (--average-load, --demand, --peak-over-average, or `demand:` of a space)",
        )


def read_rate(written: Any) -> float:
    """Tokens a second of `1B/day`. Raises InputError, its field `average`."""
    found, value = _RATE.fullmatch(str(written)), None
    if found is not None and found[2] in _SECONDS:
        try:
            value = units.parse(found[1], "tokens") / _SECONDS[found[2]]
        except InputError:
            value = None
    if value is None or value <= 0.0:
        none = "" if value is None else ": not above zero"
        raise InputError(f"read {written!r}{none}", field="average", accepted=_ACCEPTED)
    return value


def rate_words(tokens_per_s: float) -> str:
    """`1B tokens/day`: a rate as `read_rate` takes it."""
    per_day = tokens_per_s * _SECONDS["day"]
    size = next((one for one in _SIZES if per_day >= one[0]), (1.0, ""))
    return f"{per_day / size[0]:.4g}{size[1]} tokens/day"


def demand_words(demand: Demand) -> str:
    """`1B tokens/day, peak 2.5 times that`."""
    ratio, average = demand.peak_over_average, demand.average_tokens_per_s
    if average is None:
        return f"a peak of {ratio:g} times the average"
    even = "steady" if ratio == 1.0 else f"peak {ratio:g} times that"
    return f"{rate_words(average)}, {even}"


# A trace of requests: one row each, with when it came and how long it was.
#
# Columns `time` (seconds from any origin, not falling; or dates of ISO 8601; or milliseconds and
# finer since 1970, which are too large for seconds), or `time_s` or `time_ms`, `prompt` and
# `output` (tokens), and, where it is known, `cached` (tokens of the prompt whose keys and values
# were cached). Other columns are ignored.

Floats = NDArray[np.float64]
NEEDED, CACHED = ("time", "prompt", "output"), "cached"
UNITS = {"time_s": 1.0, "time_ms": 1e-3}  # columns in place of `time`
# Whole numbers may be either where more rows than this are so many apart in the mean.
DOUBTFUL_ROWS, DOUBTFUL_S = 20, 5.0
EARLIEST_S = 1e8  # since 1970, of a date that is counted in a finer unit
MOST_ROWS, MOST_TOKENS = 5_000_000, 10**8


@record
class Trace:
    """m requests in order of arrival; arrays (m,): seconds and tokens."""

    file: str
    time_s: Floats
    prompt: Floats
    output: Floats
    cached: Floats

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def span_s(self) -> float:
        """From the first to the last arrival."""
        return float(self.time_s[-1] - self.time_s[0])


def read_trace(path: Path) -> Trace:
    """Raises InputError with line and column for what is not a trace of two requests or more."""
    return _read(csv_rows(path), str(path))


def _read(reader: Iterator[list[str]], file: str) -> Trace:
    header = [name.strip().lower() for name in next(reader, [])]
    unit = next((name for name in UNITS if name in header and "time" not in header), None)
    if unit is not None:
        header[header.index(unit)] = "time"
    for name in NEEDED:
        if name not in header:
            raise InputError(
                f"no column {name!r}{did_you_mean(name, header)}",
                file=file,
                line=1,
                accepted=f"{', '.join(NEEDED)} and, where known, {CACHED}",
            )
    columns = [name for name in (*NEEDED, CACHED) if name in header]
    at = [header.index(name) for name in columns]
    rows: list[list[float]] = []
    lines: list[int] = []
    for line, cells in enumerate(reader, start=2):
        if not cells:
            continue
        if len(rows) >= MOST_ROWS:
            raise InputError(f"more than {MOST_ROWS:,} rows", file=file, accepted="a shorter trace")
        if len(cells) <= max(at):
            message, accepted = f"read {len(cells)} cells", f"{len(header)} cells"
            raise InputError(message, file=file, line=line, accepted=accepted)
        wanted = zip(at, columns, strict=True)
        rows.append([_number(cells[k], name, file, line) for k, name in wanted])
        lines.append(line)
    if len(rows) < 2:
        message = "no row" if not rows else "one row: a rate needs two"
        raise InputError(message, file=file, accepted="two requests or more")
    table = np.array(rows).T
    cached = table[3] if CACHED in columns else np.zeros(len(rows))
    raw = table[0]
    time = raw * UNITS[unit] if unit else _seconds(raw)
    trace = Trace(file, time, table[1], table[2], cached)
    _check(trace, lines)
    if time is raw:
        _in_doubt(trace)
    return trace


def _seconds(time: Floats) -> Floats:
    """What is too large for seconds since 1970 as the milliseconds, microseconds or nanoseconds
    that it is."""
    for unit in (1e-9, 1e-6, 1e-3):
        if len(time) and time.min() > EARLIEST_S / unit:
            return (time - time.min()) * unit
    return time


def _in_doubt(trace: Trace) -> None:
    """Raises InputError for times that may be seconds or milliseconds."""
    time, gap_s = trace.time_s, trace.span_s / (len(trace) - 1)
    if len(trace) > DOUBTFUL_ROWS and gap_s > DOUBTFUL_S and (time == np.floor(time)).all():
        raise InputError(
            f"whole numbers, one request in {gap_s:,.0f} s if they are seconds",
            file=trace.file,
            line=1,
            field="time",
            accepted="`time_s` or `time_ms` as the name of that column",
        )


def _number(text: str, name: str, file: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = _moment(text) if name == "time" else math.nan
    if not math.isfinite(value):
        raise InputError(
            f"read {text[:40]!r}",
            file=file,
            line=line,
            field=name,
            accepted="seconds, such as 12.5, or 2026-11-23T10:00:00"
            if name == "time"
            else "tokens, such as 1024",
        )
    return value


def _moment(text: str) -> float:
    """Seconds since 1970 of a date and time of ISO 8601, UTC where it names no zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return math.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _check(trace: Trace, lines: Sequence[int]) -> None:
    """Raises InputError at the first row that no request can have."""
    time = trace.time_s
    wrong: list[tuple[int, str, str, str]] = []

    def look(name: str, bad: np.ndarray, values: Floats, accepted: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            wrong.append((row, name, f"read {values[row]:g}", accepted))

    look("time", time < 0.0, time, "0 or more seconds")
    fell = np.concatenate(([False], np.diff(time) < 0.0))
    look("time", fell, time, "rows in order of arrival: no time before the one above")
    for name, least in (("prompt", 1), ("output", 1), (CACHED, 0)):
        values = getattr(trace, name)
        outside = (values < least) | (values > MOST_TOKENS) | (values != np.floor(values))
        look(name, outside, values, f"a whole number from {least} to {MOST_TOKENS:,}")
    look(CACHED, trace.cached > trace.prompt, trace.cached, "at most the prompt")
    if wrong:
        row, name, message, accepted = min(wrong, key=lambda one: one[0])
        raise InputError(message, file=trace.file, line=lines[row], field=name, accepted=accepted)
    if trace.span_s == 0.0:
        raise InputError(
            "all requests came at the same time",
            file=trace.file,
            field="time",
            accepted="a trace over some time: a rate needs it",
        )


# A trace of requests as classes of lengths and rates of arrival.
#
# The rate is that of a busy window. Classes are cells of the plane of prompt and output lengths
# with equally many requests; each is served at its mean lengths, so that tokens are kept in sum.


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


def traffic_of(trace: Trace, window_s: float, share: float, groups: int) -> dict[str, Any]:
    """What a trace says of a `dse.schema.plan.DemandClass`, by its fields: `share` of its windows,
    0 to 1, are no busier than the one that it is sized for; `groups` of prompt lengths, with
    OUTPUTS of output lengths in each.

    Raises InputError where the trace has not two whole windows, or too many to count.
    """
    windows = windows_of(trace, window_s)
    busy = float(np.quantile(windows.per_s, share, method="higher"))
    mean = (len(trace) - 1) / trace.span_s
    return {
        "streams": _classes(trace, groups),
        "requests_per_s": mean,
        "peak_over_average": busy / mean,
        "windows": windows,
    }


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
