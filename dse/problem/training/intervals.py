"""The metrics of training and life, and how far a prediction of them may be off: 80% intervals of
measured rows that no fit had seen (`dse.physics.training.intervals`).

A plan that is found here is known in full, so that days, chip-hours and dollars are as far off as
the speed of its steps; what interruptions cost has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.physics.training.intervals import RATE, training_spread
from dse.schema.calibration import KINDS

OF_TRAINING = (
    "training_days", "training_usd", "training_kwh", "training_chip_hours", "training_mfu",
)  # fmt: skip
OF_LIFE = (
    "lifetime_usd", "lifetime_serving_share", "lifetime_flops", "lifetime_chip_hours",
)  # fmt: skip
OF_TIMES = ("step_s", "days", "chip_hours", "usd")
OF_RATES = ("tokens_per_s_per_chip", "mfu")


def _rates(kind: int) -> tuple[float, float]:
    """Measured over predicted speed."""
    low, high = training_spread()[RATE][kind]
    return float(low), float(high)


def interval_words(kind: int) -> str:
    """Where the interval of `dse train` comes from."""
    held_out = "held-out measured rows of such chips" if KINDS[kind] == "fitted" else "assumed"
    return f"80% interval: {held_out}"


def train_intervals(document: Mapping[str, Any], kind: int) -> dict[str, list[float]]:
    """Of an answer of `dse train`; `kind` indexes KINDS."""
    low, high = _rates(kind)
    found = {}
    for names, ends in ((OF_TIMES, (1.0 / high, 1.0 / low)), (OF_RATES, (low, high))):
        for name in names:
            if document[name] is not None:
                found[name] = [document[name] * end for end in ends]
    return found


def study_intervals(
    values: Mapping[str, Any], known: Mapping[str, list[float]]
) -> dict[str, list[float]]:
    """Of a point's metrics of training and life; `known` holds those of its serving. Both halves of
    lifetime dollars are taken to be off together, and serving's by what its price may be. The
    spread is the widest there is: metrics do not say which kernel laws the training used."""
    low, high = _rates(len(KINDS) - 1)
    slower = (1.0 / high, 1.0 / low)
    found = {}
    for name in ("training_days", "training_usd", "training_chip_hours"):
        if values.get(name) is not None:
            found[name] = [values[name] * end for end in slower]
    if values.get("training_mfu") is not None:
        found["training_mfu"] = [values["training_mfu"] * end for end in (low, high)]
    price = values.get("usd_per_million_total_tokens")
    if values.get("lifetime_usd") is not None and "usd_per_million_total_tokens" in known:
        serving = values["lifetime_usd"] - values["training_usd"]
        spread = known["usd_per_million_total_tokens"]
        found["lifetime_usd"] = [
            trained + serving * end / price
            for trained, end in zip(found["training_usd"], spread, strict=True)
        ]
    return found
