"""A demand: total tokens a second on average, and how far the peak stands above it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dse import units
from dse.errors import InputError

_SECONDS = {"s": 1.0, "second": 1.0, "hour": 3600.0, "h": 3600.0, "day": 86400.0, "d": 86400.0}
_RATE = re.compile(r"\s*(.+?)\s*(?:/|\ba\b|\bper\b)\s*([a-z]+)\s*")
_ACCEPTED = "tokens in a time, input and output together, such as 1B/day or 20000/s"


@dataclass(frozen=True, slots=True)
class Demand:
    """`average_tokens_per_s`: input and output tokens, None where only the ratio is known."""

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
    return Demand(None if average is None else _tokens_per_s(average), ratio)


def check_idle_once(utilisation: float) -> None:
    """Raises InputError where owned chips whose price carries idle hours, `utilisation` below 1,
    are priced for a demand, which counts the idle hours itself."""
    if utilisation < 1.0:
        raise InputError(
            f"the costs' utilisation of {100 * utilisation:.4g}% and a demand both count idle "
            "hours",
            accepted="one of the two: drop `utilisation` from the costs (it is then 100%), or drop "
            "the demand (--average-load and --peak-over-average, or `demand:` of a space)",
        )


def _tokens_per_s(written: Any) -> float:
    found = _RATE.fullmatch(str(written))
    if found is not None and found[2] in _SECONDS:
        try:
            value = units.parse(found[1], "tokens") / _SECONDS[found[2]]
        except InputError:
            value = 0.0
        if value > 0.0:
            return value
    raise InputError(f"read {written!r}", field="average", accepted=_ACCEPTED)
