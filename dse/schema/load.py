"""A demand: total tokens a second on average, and how far the peak stands above it."""

from __future__ import annotations

import re
from typing import Any

from dse import units
from dse.errors import InputError
from dse.record import record
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
    `schema.traffic.Traffic`."""

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
