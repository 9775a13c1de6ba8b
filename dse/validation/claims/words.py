"""Numbers as the claims print them."""

from __future__ import annotations

import math


def percent(share: float | None) -> str:
    """A share; 100% and 0% are said only of all and of none."""
    if share is None or math.isnan(share):
        return "–"
    if 0.995 <= share < 1.0:
        return f"{math.floor(share * 1000) / 10:.1f}%"
    if 0.0 < share < 0.005:
        return f"{math.ceil(share * 1000) / 10:.1f}%"
    return f"{share:.0%}"


def times(ratio: float | None) -> str:
    """A ratio in three digits."""
    return "–" if ratio is None or math.isnan(ratio) else f"{digits(ratio)}x"


def milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None or math.isnan(seconds) else f"{digits(seconds * 1e3)} ms"


def digits(value: float | None, count: int = 3) -> str:
    """Three significant digits, thousands apart, never with an exponent."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0.0 or math.isinf(value):
        return f"{value:g}"
    rounded = float(f"{value:.{count - 1}e}")
    places = max(count - 1 - math.floor(math.log10(abs(rounded))), 0)
    return f"{rounded:,.{places}f}"
