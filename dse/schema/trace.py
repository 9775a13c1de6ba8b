"""A trace of requests: one row each, with when it came and how long it was.

Columns `time` (seconds from any origin, not falling; or dates of ISO 8601; or milliseconds and
finer since 1970, which are too large for seconds), or `time_s` or `time_ms`, `prompt` and `output`
(tokens), and, where it is known, `cached` (tokens of the prompt whose keys and values were cached).
Other columns are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.errors import InputError
from dse.record import record
from dse.schema.loader import csv_rows, did_you_mean

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
