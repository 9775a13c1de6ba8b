"""The energy of reading and of multiplying, and performance per watt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.accuracy.claim_energy import batch_amortises, energy_ratios, performance_per_watt
from dse.accuracy.claims.engine import Given, Measured
from dse.answer.numbers import digits, percent, times

NODE, MULTIPLY = "7 nm", "int8 multiply"
CHIP = "h100_sxm"
GPUS = ("NVIDIA", "AMD")
SPLIT = 2022  # halves the GPUs of the catalog
COLUMNS = {
    "reached_flop_per_j": "FLOP/J reached, 16 bits",
    "narrow_peak_flop_per_j": "peak FLOP/J, narrowest format",
    "tokens_per_j": "tokens/J, 16 bits",
    "narrow_tokens_per_j": "tokens/J, narrowest format",
}


def find_reading(given: Given) -> Measured:
    rows = energy_ratios()
    chosen = [row for row in rows if row["node"] == NODE and row["multiply"] == MULTIPLY]
    ratios = {str(row["memory"]): float(row["ratio"]) for row in chosen}
    batches = batch_amortises(CHIP)
    joules = [float(row["joules_per_output_token"]) for row in batches]
    amortised = joules[0] / min(joules)
    figures: dict[str, float | None] = {
        f"ratio_{name.replace(', ', '_').replace(' ', '_').lower()}": ratio
        for name, ratio in ratios.items()
    }
    figures["joules_fall_with_batch"] = amortised
    said = ", ".join(f"{digits(ratio)} {name}" for name, ratio in ratios.items())
    return Measured(
        figures,
        (
            tuple(
                (
                    str(row["node"]),
                    str(row["multiply"]),
                    str(row["memory"]),
                    digits(row["ratio"]),
                    digits(row["ratio_of_whole_access"]),
                    str(row["kind"]),
                )
                for row in rows
            ),
            tuple(
                (
                    f"{row['concurrency']:,}",
                    digits(row["joules_per_output_token"]),
                    digits(row["watts_per_chip"]),
                    percent(row["energy_data_movement_share"]),
                )
                for row in batches
            ),
        ),
        {
            "about": float(
                sum(
                    given["up_to"] / given["factor"] <= r <= given["up_to"] * given["factor"]
                    for r in ratios.values()
                )
            ),
            "most": max(ratios.values()),
            "said": said,
            "requests": batches[-1]["concurrency"],
        },
    )


def growth(rows: Sequence[Mapping[str, Any]], column: str) -> tuple[float, float] | None:
    """Growth a year of the best chip so far in `column`, until SPLIT and after; None where a side
    has no chip."""
    known = [(int(row["year"]), float(row[column])) for row in rows if row[column] is not None]
    first, last = min(year for year, _ in known), max(year for year, _ in known)
    if not first < SPLIT < last:
        return None
    start, middle, end = (
        max(value for year, value in known if year <= limit) for limit in (first, SPLIT, last)
    )
    return (middle / start) ** (1.0 / (SPLIT - first)), (end / middle) ** (1.0 / (last - SPLIT))


def find_growth(given: Given) -> Measured:
    rows = performance_per_watt(vendors=GPUS)
    growths = {name: found for name in COLUMNS if (found := growth(rows, name)) is not None}
    figures: dict[str, float | None] = {}
    for name, (before, after) in growths.items():
        figures |= {f"{name}_until_{SPLIT}": before, f"{name}_after": after}
    watts = [float(row["watts"]) for row in rows]
    figures["most_watts"] = max(watts)
    said = "; ".join(
        f"{COLUMNS[name]} {times(before)}, then {times(after)}"
        for name, (before, after) in growths.items()
    )
    return Measured(
        figures,
        (
            tuple(
                (
                    (COLUMNS[name], times(before), times(after))
                    for name, (before, after) in growths.items()
                )
            ),
            tuple(
                (
                    str(row["chip"]),
                    str(row["year"]),
                    digits(row["watts"]),
                    digits(row["reached_flop_per_j"] / 1e9),
                    str(row["narrow_dtype"]),
                    digits(row["narrow_peak_flop_per_j"] / 1e9),
                    digits(row["tokens_per_j"]),
                    digits(row["narrow_tokens_per_j"]),
                    str(row["kind"]),
                )
                for row in rows
            ),
        ),
        {
            "share_flat": float(
                np.mean(
                    [
                        after < before and after <= given["flat"]
                        for before, after in growths.values()
                    ]
                )
            ),
            "said": said,
            "gpus": len(rows),
        },
    )
