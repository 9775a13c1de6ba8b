"""Where the joules of one point go."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.errors import InputError
from dse.problem.evaluate import Metrics

# Level -> what it is, in the order of a table: from the multiplier outwards.
LEVELS = {
    "arithmetic": "multiplying and adding, at most",
    "on_chip": "operands and data inside the chip",
    "memory": "device memory",
    "links": "scale-up links",
    "network": "scale-out network, outside the chip",
    "idle": "drawn with nothing to do",
}
MOVEMENT = ("on_chip", "memory", "links", "network")


def energy_breakdown(metrics: Metrics, i: int) -> dict[str, Any] | None:
    """Joules per output token of candidate `i` by level and phase, the idle power by the time that
    chips are held for either; watts of a chip; the share that moves data, of all and of what is
    above idle; the share of its clock that a power cap leaves, null without a cap. None where the
    chip has no power figure. Of a mix, the workload that takes most chip-seconds."""
    metrics, i = metrics.heaviest(i)
    performance = metrics.performance
    energy = performance.energy
    if np.isnan(energy.joules[i]):
        return None
    ledger = performance.detail.decode_ledger
    output = metrics.values["joules_per_output_token"][i] / energy.joules[i]
    held = performance.prefill_chip_s[i] + performance.decode_chip_s[i]
    idle = {
        "prefill": energy.idle[i] * performance.prefill_chip_s[i] / held,
        "decode": energy.idle[i] * performance.decode_chip_s[i] / held,
    }
    rows = []
    for level, meaning in LEVELS.items():
        phases = {
            phase: float(idle[phase] if level == "idle" else getattr(of, level)[i]) * float(output)
            for phase, of in (("prefill", energy.prefill), ("decode", energy.decode))
        }
        joules = phases["prefill"] + phases["decode"]
        rows.append({"level": level, "meaning": meaning, **phases, "joules": joules})
    whole = sum(row["joules"] for row in rows)
    moved = sum(row["joules"] for row in rows if row["level"] in MOVEMENT)
    power, chip = ledger.deployed.machines.power, ledger.deployed.batch.chip[i]
    return {
        "joules_per_output_token": rows,
        "data_movement_share": moved / whole,
        "data_movement_share_above_idle": moved / (whole - rows[-1]["joules"]),
        "watts_per_chip": {
            "prefill": float(energy.prefill_w[i]),
            "decode": float(energy.decode_w[i]),
            "mean": float(energy.watts[i]),
            "idle": float(power.idle_w[chip]),
            "cap": float(power.cap_w[chip]),
        },
        "clock": {
            phase: None if of.clock is None else float(of.clock[i])
            for phase, of in (("prefill", performance.detail.prefill_ledger), ("decode", ledger))
        },
        "beyond_the_power": float(energy.beyond[i]),
    }


def check_power_cap(catalog: Catalog, chip: str, cap_w: float) -> None:
    """Raises InputError for a cap that the chip cannot have: none without a rated power, not above
    that, and not at or below what it draws with nothing to do."""
    spec = catalog.chip(chip)
    if spec.tdp_w is None:
        raise InputError(f"{chip} has no tdp to cap", field="--power-cap", accepted="no such flag")
    idle_w = catalog.energy.idle_w(spec)
    if not idle_w < cap_w <= spec.tdp_w:
        limit = "its idle power" if cap_w <= idle_w else "its rated power"
        watts = idle_w if cap_w <= idle_w else spec.tdp_w
        raise InputError(
            f"read {cap_w:g} W: {limit} is {watts:.0f} W ({chip})",
            field="--power-cap",
            accepted=f"above {idle_w:.0f} W and up to {spec.tdp_w:.0f} W",
        )
