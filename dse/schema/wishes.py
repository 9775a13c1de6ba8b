"""What counts as a gain, and what is wanted most: the resolution of each objective, and the wish
that a design to start from is chosen by.

resolution: 0                                           # the exact front
resolution: {predicted_loss: 0.002, tpot_s: 1%}         # the others as they are by default

wish: cheapest at predicted_loss <= 1.95
wish: best loss at usd_per_million_total_tokens <= 0.5 $/Mtoken
wish: {predicted_loss: 2, tpot_s: 0}                    # weights, 1 where nothing is said
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dse.errors import InputError
from dse.record import record
from dse.schema.loader import did_you_mean
from dse.schema.metrics import METRICS, Limit, parse_constraint, parse_limit
from dse.schema.reader import ByName, Number, Place, Raw

_PERCENT = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%\s*")
MOST_SHARE = 1.0
MOST_WEIGHT = 1e6  # of one objective: the others then count for nothing


@record
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


@record
class Wish:
    """What a design to start from is chosen by: the least of `best` (an objective) within `limits`
    on objectives, or, where `best` is empty, the least sum of the objectives, each scaled to the
    range of the front, by `weights` (which sum to 1, in the order of the objectives). `text` is
    what a person reads."""

    text: str
    weights: tuple[float, ...]
    best: str = ""
    limits: tuple[Limit, ...] = ()


ALIKE = Wish("all objectives alike", ())
_WISH = re.compile(r"(cheapest|fastest|best|lowest|highest)(?:\s+(\w+))?(?:\s+at\s+(.+))?")
_SHORT = {"loss": "predicted_loss", "quality": "predicted_loss"}
_EXAMPLE = (
    "`cheapest at predicted_loss <= 1.95`, `best loss at tpot_s <= 20 ms`, or a weight by objective"
)


def read_wish(written: Any, objectives: Sequence[str], at: Place) -> Wish:
    """The wish of a space; equal weights where nothing is written. What is wrong is noted."""
    equal = _weighted({}, objectives)
    if written is None:
        return equal
    if isinstance(written, Mapping):
        weight = Number(least=0.0, most=MOST_WEIGHT)
        kind = ByName(weight, tuple(objectives), "objective of this space")
        found = kind.read(written, at) or {}
        weights = {name: float(one) for name, one in found.items() if one is not None}
        if not any({**dict.fromkeys(objectives, 1.0), **weights}.values()):
            at.wrong("no objective has a weight", "a weight above zero")
            return equal
        return _weighted(weights, objectives)
    found = at.call(lambda: _limited(written, objectives))
    for message in filter(None, (limit.unusual for limit in found.limits)) if found else ():
        at.doubt(message)
    return found or equal


def _weighted(weights: Mapping[str, float], objectives: Sequence[str]) -> Wish:
    given = [weights.get(name, 1.0) for name in objectives]
    total = sum(given) or 1.0
    message = ", ".join(f"{name} {one:g}" for name, one in zip(objectives, given, strict=True))
    text = ALIKE.text if len(set(given)) < 2 else f"weights {message}"
    return Wish(text, tuple(one / total for one in given))


def _limited(written: Any, objectives: Sequence[str]) -> Wish:
    """Raises InputError for what is no wish over the objectives."""
    text = " ".join(str(written).split())
    match = _WISH.fullmatch(text)
    if match is None or (match[1] in ("best", "lowest", "highest")) != bool(match[2]):
        raise InputError(f"read {text!r}", accepted=_EXAMPLE)
    if match[2]:
        best = _SHORT.get(match[2], match[2])
        _check_objective(best, objectives)
    else:
        dollars = match[1] == "cheapest"
        kinds = [(name, METRICS[name].dimension) for name in objectives]
        fits = [name for name, kind in kinds if (name[:4] == "usd_" if dollars else kind == "s")]
        if not fits:
            raise InputError(
                f"read {text!r}, and no objective is in {'dollars' if dollars else 'seconds'}",
                accepted=", ".join(objectives),
            )
        best = fits[0]
    limits = [parse_constraint(one) for one in re.split(r"\s+and\s+|,\s*", match[3] or "") if one]
    for limit in limits:
        _check_objective(limit.metric, objectives)
    return Wish(text, tuple(float(name == best) for name in objectives), best, tuple(limits))


def _check_objective(name: str, objectives: Sequence[str]) -> None:
    if name not in objectives:
        hint = did_you_mean(name, objectives)
        raise InputError(
            f"{name} is no objective of this space{hint}", accepted=", ".join(objectives)
        )
