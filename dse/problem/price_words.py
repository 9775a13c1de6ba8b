"""What a chip costs at the average of a load, as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.answer.numbers import dollars, plain, share


def average_load_words(load: Mapping[str, Any]) -> str:
    """What a demand costs at its average."""
    each = ", ".join(
        f"{dollars(load[f'usd_per_million_{name}_tokens'])} {name}"
        for name in ("input", "output", "total")
    )
    held = "sized for the peak"
    if load["deployments"] is not None:
        one = load["deployments"] == 1
        some, hold = ("deployment", "holds") if one else ("deployments", "hold")
        held = (
            f"{load['deployments']:,} {some} ({load['chips']:,.0f} chips, "
            f"{dollars(load['usd_per_hour'])} an hour) {hold} the peak"
        )
    return (
        f"At average load, a peak of {plain(load['peak_over_average'])} times the average: {held}, "
        f"{share(load['busy_share'])} busy; per million tokens {each}. The prices in the table are "
        "those of a busy deployment."
    )
