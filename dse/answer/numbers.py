"""Numbers as people read them: the claims, the answers of `dse scale` and the accuracy pages."""

from __future__ import annotations

import math
from decimal import Decimal

NONE = "–"


def percent(share: float | None) -> str:
    """A share; 100% and 0% are said only of all and of none."""
    if share is None or math.isnan(share):
        return NONE
    if 0.995 <= share < 1.0:
        return f"{math.floor(share * 1000) / 10:.1f}%"
    if 0.0 < share < 0.005:
        return f"{math.ceil(share * 1000) / 10:.1f}%"
    return f"{share:.0%}"


def tenths(error: float | None, sign: bool = False) -> str:
    """An error or a width in tenths of a percent, from 100% on in whole ones."""
    if error is None:
        return NONE
    places = 0 if abs(error) >= 1.0 else 1
    return f"{100 * error:{'+' if sign else ''},.{places}f}%"


def times(ratio: float | None) -> str:
    """A ratio in three digits."""
    return NONE if ratio is None or math.isnan(ratio) else f"{digits(ratio)}x"


def milliseconds(seconds: float) -> str:
    """The number alone, for a table or a sentence that names the unit."""
    return significant(1e3 * seconds)


def in_ms(seconds: float | None) -> str:
    """The number with its unit."""
    return NONE if seconds is None or math.isnan(seconds) else f"{digits(seconds * 1e3)} ms"


def digits(value: float | None, count: int = 3) -> str:
    """As `significant`, of a number that may be missing or 0."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:g}" if value == 0.0 or math.isinf(value) else significant(value, count)


def significant(value: float, digits: int = 3) -> str:
    """Plain notation: 0.0812, 12.0, 1,230."""
    return f"{Decimal(f'{value:.{digits - 1}e}'):,f}"


def number(value: float) -> float | int | None:
    """A JSON number; null for what does not apply or is not known."""
    value = float(value)
    return value if math.isfinite(value) else None
