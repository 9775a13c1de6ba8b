"""Figures that are far from those of any chip of their class: a unit has probably slipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from dse import units
from dse.data import rows_beside

if TYPE_CHECKING:
    from dse.schema.figure import Figure

# Of a figure by its name and the first letters of the kind of memory, the first row that fits: from
# `least` to `most` of the shipped chips (`dse catalog chips list`), with a factor of about ten on
# either side.
_USUAL = tuple(
    (row["figure"], row["memory"], (float(row["least"]), float(row["most"])))
    for row in rows_beside(__file__, "usual.csv")
)
_FORMATS = 64.0  # times the peak of bf16, or so much less
USD_PER_HOUR = (0.02, 200.0)  # of a chip
USD_PER_CHIP = (300.0, 5e6)  # bought: a cloud's own LPU to a wafer
TTFT, TPOT = (0.005, 600.0), (1e-4, 5.0)  # seconds
# Of the limits on a metric.
OF_METRIC = {
    "tpot_s": TPOT,
    "ttft_s": TTFT,
    "ttft_mean_s": TTFT,
    "ttft_p90_s": TTFT,
    "ttft_p99_s": TTFT,
    "chip_usd_per_hour": (USD_PER_HOUR[0], 1e8),  # of all chips
}
TIMES = 30.0  # on either side of what is known
FAR = "is far from any chip of its kind"
FAR_OFF = "far from what is usual"


def doubts(figures: Iterable[Figure], memory_kind: str = "") -> tuple[str, ...]:
    """Of each figure that is out of its range, and that nobody measured, "name: what was read, the
    range, and what was probably meant"."""
    found, known = [], tuple(figures)
    wide = next((one.value for one in known if one.name == "peak_bf16"), math.nan)
    for figure in known:
        least, most = usual_of(figure.name, memory_kind)
        if figure.name.startswith("peak_") and least <= wide <= most:
            least, most = wide / _FORMATS, wide * _FORMATS
        if least <= figure.value <= most or not figure.value > 0.0 or figure.kind == "measured":
            continue

        def show(value: float, unit: str = figure.unit) -> str:
            return units.format(value, unit)

        message = f"{figure.name}: {figure.text} {FAR} ({show(least)} to {show(most)})"
        found.append(f"{message}{probably(figure.value, least, most, show)}")
    return tuple(found)


def near(values: Sequence[float]) -> tuple[float, float]:
    """The range that lies TIMES about values that are known; every value where none is above 0."""
    known = [value for value in values if value > 0.0]
    return (min(known) / TIMES, max(known) * TIMES) if known else (0.0, math.inf)


def unusual(
    value: float, usual: tuple[float, float], show: Callable[[float], str], step: float = 1000.0
) -> str:
    """What is said of a value above 0 outside its usual range, with what was probably meant, some
    `step`s away; nothing of others."""
    if value <= 0.0 or usual[0] <= value <= usual[1]:
        return ""
    message = f": {FAR_OFF} ({show(usual[0])} to {show(usual[1])})"
    return f"{message}{probably(value, *usual, show, step)}"


def probably(
    value: float, least: float, most: float, show: Callable[[float], str], step: float = 1000.0
) -> str:
    """The value by a power of `step` nearer that lies in the range; nothing where none does."""
    down = value > most
    for power in range(1, 5):
        meant = value / step**power if down else value * step**power
        if least <= meant <= most:
            return f"; {show(meant)} was probably meant"
    return ""


@cache
def usual_of(name: str, memory_kind: str = "") -> tuple[float, float]:
    """The usual range of a figure by its name."""
    fits = (
        ends
        for figure, memory, ends in _USUAL
        if fnmatchcase(name, figure) and memory_kind.startswith(memory)
    )
    return next(fits, (0.0, math.inf))


BEHIND = usual_of("host capacity")  # bytes, and bytes/s, of a memory behind the device's
