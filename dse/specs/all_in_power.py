"""Power of a chip with all that it needs: `hardware/all_in_power.csv`, kilowatts per chip at the
wall of the building, so server, network and cooling included."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from dse.data import hardware_dir
from dse.specs.chip import Chip

FILE = "all_in_power.csv"


@dataclass(frozen=True, slots=True)
class AllInPower:
    """Watts of one chip with its share of server, network and cooling."""

    watts: float
    kind: str
    words: str


def published_power() -> dict[str, AllInPower]:
    """The shipped figures by chip id."""
    with (hardware_dir() / FILE).open(encoding="utf-8", newline="") as stream:
        return {
            row["chip"]: AllInPower(
                1e3 * float(row["kilowatts_per_chip"]),
                row["kind"],
                f"{row['kind']}: {row['note']} ({row['source']}, {row['date']})",
            )
            for row in csv.DictReader(stream)
        }


def power_of(chip: Chip, chips: Mapping[str, Chip]) -> AllInPower | None:
    """The published figure, else the rated power times the median ratio of the chips that have
    both, which is assumed; None for a chip without a rated power."""
    known = published_power()
    if chip.id in known:
        return known[chip.id]
    if chip.tdp_w is None:
        return None
    ratios = [
        power.watts / watts
        for name, power in known.items()
        if name in chips and (watts := chips[name].tdp_w) is not None
    ]
    ratio = statistics.median(ratios)
    words = (
        f"assumed: rated power x {ratio:.3g}, the median of {len(ratios)} chips whose all-in power "
        "is published"
    )
    return AllInPower(chip.tdp_w * ratio, "assumed", words)
