"""The metrics of training and life, and how far a prediction of them may be off: 80% intervals,
assumed until measured rows that no fit had seen say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Measured over predicted of a time, and so of days, dollars and energy.
TIMES = (0.75, 1.35)
RATES = (1.0 / TIMES[1], 1.0 / TIMES[0])
KIND = "assumed: no measured rows of training were held out"
OF_TRAINING = (
    "training_days", "training_usd", "training_kwh", "training_chip_hours", "training_mfu",
)  # fmt: skip
OF_LIFE = (
    "lifetime_usd", "lifetime_serving_share", "lifetime_flops", "lifetime_chip_hours",
)  # fmt: skip
OF_TIMES = ("step_s", "days", "chip_hours", "usd")
OF_RATES = ("tokens_per_s_per_chip", "mfu")


def train_intervals(document: Mapping[str, Any]) -> dict[str, list[float]]:
    """Of an answer of `dse train`."""
    found = {}
    for names, ends in ((OF_TIMES, TIMES), (OF_RATES, RATES)):
        for name in names:
            if document[name] is not None:
                found[name] = [document[name] * end for end in ends]
    return found


def study_intervals(
    values: Mapping[str, Any], known: Mapping[str, list[float]]
) -> dict[str, list[float]]:
    """Of a point's metrics of training and life; `known` holds those of its serving. Both halves of
    lifetime dollars are taken to be off together, and serving's by what its price may be."""
    found = {}
    for name in ("training_days", "training_usd", "training_chip_hours"):
        if values.get(name) is not None:
            found[name] = [values[name] * end for end in TIMES]
    if values.get("training_mfu") is not None:
        found["training_mfu"] = [values["training_mfu"] * end for end in RATES]
    price = values.get("usd_per_million_total_tokens")
    if values.get("lifetime_usd") is not None and "usd_per_million_total_tokens" in known:
        serving = values["lifetime_usd"] - values["training_usd"]
        spread = known["usd_per_million_total_tokens"]
        found["lifetime_usd"] = [
            trained + serving * end / price
            for trained, end in zip(found["training_usd"], spread, strict=True)
        ]
    return found
