"""What counts as a gain: the resolution of each objective.

resolution: 0                                           # the exact front
resolution: {predicted_loss: 0.002, tpot_s: 1%}         # the others as they are by default
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.errors import InputError
from dse.schema.metrics import METRICS, parse_limit
from dse.schema.reader import ByName, Place, Raw

_PERCENT = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%\s*")
MOST_SHARE = 1.0


@dataclass(frozen=True, slots=True)
class Resolution:
    """The difference of an objective that counts for nothing: in its SI unit, or a share of it
    where `relative`. `text` is what a person reads."""

    step: float
    relative: bool
    text: str


EXACT = Resolution(0.0, False, "0")
# Assumed: below what a law of loss, a price or a measured time can tell apart.
NATS = Resolution(0.001, False, "0.001 nats")
POINTS = Resolution(0.005, False, "0.005")
SHARE = Resolution(0.005, True, "0.5%")


def usual(name: str) -> Resolution:
    """The resolution of a metric where a space says nothing."""
    metric = METRICS[name]
    if metric.log:
        return SHARE
    return {"nats": NATS, "fraction": POINTS}.get(metric.dimension, SHARE)


def read_resolution(written: Any, objectives: Sequence[str], at: Place) -> dict[str, Resolution]:
    """The resolution of each of the objectives; what is wrong is noted."""
    found = {name: usual(name) for name in objectives}
    if written is None:
        return found
    if not isinstance(written, Mapping):
        if isinstance(written, bool) or str(written).strip() not in ("0", "0.0", "0%"):
            at.refuse(written, "0 for the exact front, or a value for each objective that has one")
        return dict.fromkeys(objectives, EXACT)
    by_name = ByName(Raw(), tuple(objectives), "objective of this space").read(written, at) or {}
    for name, value in by_name.items():
        read = at.at(name).call(lambda name=name, value=value: _one(name, value))
        found[name] = read or found[name]
    return found


def _one(name: str, written: Any) -> Resolution:
    """Raises InputError for what is no resolution of the metric."""
    dimension, text = METRICS[name].dimension, str(written).strip()
    share = _PERCENT.fullmatch(text)
    relative = share is not None and dimension != "fraction"
    if isinstance(written, bool) or written is None:
        raise InputError(f"read {written!r}", accepted=f"such as {usual(name).text}")
    if relative and share is not None:
        step = float(share[1]) / 100.0
        if step >= MOST_SHARE:
            raise InputError(f"read {text!r}", accepted="less than 100%")
    else:
        step = 0.0 if text in ("0", "0.0") else parse_limit(text, dimension)
    if not step:
        return EXACT
    bare = dimension == "nats" and text.replace(".", "").isdigit()
    return Resolution(step, relative, f"{text} nats" if bare else text)
