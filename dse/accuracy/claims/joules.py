"""The energy of reading and of multiplying, and performance per watt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dse.accuracy.claims.engine import Given, Measured, share
from dse.accuracy.claims.points import Point, predict
from dse.answer.numbers import digits, times
from dse.catalog import Catalog, load_catalog
from dse.physics.machines import compile_machines
from dse.physics.workload import Workload
from dse.questions.estimate.energy import energy_by_batch
from dse.questions.estimate.point import estimate
from dse.schema.dtypes import ARITHMETIC, BITS, CODE
from dse.schema.model_catalog import resolve_model

NODE, MULTIPLY = "7 nm", "int8 multiply"
CHIP, MODEL, CONCURRENCY = "h100_sxm", "llama-3-8b", 64.0
GPUS = ("NVIDIA", "AMD")
SPLIT = 2022  # halves the GPUs of the catalog
# Years of announced chips are left out: nobody has measured a kernel of theirs.
SHIPPING = ("shipping", "shipping_legacy", "legacy", "cloud", "cloud_legacy", "limited")
COLUMNS = {
    "reached_flop_per_j": "FLOP/J reached, 16 bits",
    "narrow_peak_flop_per_j": "peak FLOP/J, narrowest format",
    "tokens_per_j": "tokens/J, 16 bits",
    "narrow_tokens_per_j": "tokens/J, narrowest format",
}


def energy_ratios(catalog: Catalog) -> list[dict[str, Any]]:
    """Joules to read a number over joules to multiply it, by node, memory and format: the number's
    share of the access (8 of 64 bits of an int8), and the whole access where it serves one
    multiply."""
    operations = catalog.energy.operations
    return [
        {
            "node": multiply.node,
            "multiply": multiply.name,
            "memory": access.name,
            "ratio": access.j_per_bit * multiply.bits / multiply.figure.value,
            "ratio_of_whole_access": access.figure.value / multiply.figure.value,
            "kind": access.figure.kind,
        }
        for multiply in operations
        for access in operations
        if multiply.name.endswith("multiply")
        and access.node == multiply.node
        and not access.name.endswith("multiply")
    ]


def find_reading(given: Given) -> Measured:
    catalog = load_catalog()
    rows = energy_ratios(catalog)
    ratios = {
        str(row["memory"]): float(row["ratio"])
        for row in rows
        if row["node"] == NODE and row["multiply"] == MULTIPLY
    }
    # A decode-heavy workload with 1, 2, 4, ... requests in flight.
    load = Workload.of(128.0, 512.0, "continuous", catalog.backends["generic"])
    one = estimate(catalog, resolve_model(MODEL), CHIP, load, {"concurrency": 1.0})
    batches = energy_by_batch(one)
    joules = [float(row["joules_per_output_token"]) for row in batches]
    figures = {
        f"ratio_{name.replace(', ', '_').replace(' ', '_').lower()}": ratio
        for name, ratio in ratios.items()
    }
    figures["joules_fall_with_batch"] = joules[0] / min(joules)
    most, factor = given["up_to"], given["factor"]
    facts = {
        "about": float(sum(most / factor <= ratio <= most * factor for ratio in ratios.values())),
        "most": max(ratios.values()),
        "said": ", ".join(f"{digits(ratio)} {name}" for name, ratio in ratios.items()),
        "requests": batches[-1]["concurrency"],
    }
    names = (
        "concurrency",
        "joules_per_output_token",
        "watts_per_chip",
        "energy_data_movement_share",
    )
    by_batch = [[row[name] for name in names] for row in batches]
    return Measured(figures, ([tuple(row.values()) for row in rows], by_batch), facts)


def performance_per_watt(catalog: Catalog, vendors: Sequence[str]) -> list[dict[str, Any]]:
    """Chips with a rated power, by year: dense FLOP per joule at the measured rate of large
    products in 16 bits, and at the peak of the narrowest format that the chip computes in; output
    tokens per joule of MODEL, in 16 bits, and served in that narrowest format, on as few chips as
    hold it. `kind`: of the kernel laws. A value that does not apply is None."""
    rows = []
    for chip in catalog.chips.values():
        known = chip.tdp_w is not None and chip.year is not None and chip.vendor in vendors
        if not known or chip.availability not in SHIPPING or catalog.refusal(chip.id):
            continue
        machines = compile_machines(catalog, [chip.id])
        narrow = min(
            (name for name in ARITHMETIC if name in chip.peak_flops_per_s and name in CODE),
            key=lambda name: (float(BITS[name]), -chip.peak_flops_per_s[name]),
        )
        reached = float(machines.laws["gemm"].floor_of_compute[0][CODE["bf16"]])
        watts = float(machines.power.rated_w[0])
        rows.append(
            {
                "chip": chip.id,
                "year": chip.year,
                "watts": watts,
                "reached_flop_per_j": reached * chip.peak_flops_per_s["bf16"] / watts,
                "narrow_dtype": narrow,
                "narrow_peak_flop_per_j": chip.peak_flops_per_s[narrow] / watts,
                "tokens_per_j": _tokens_per_j(catalog, chip.id, None),
                "narrow_tokens_per_j": _tokens_per_j(catalog, chip.id, narrow),
                "kind": catalog.efficiencies[chip.efficiency].operators["gemm"]["bf16"].kind,
            }
        )
    return sorted(rows, key=lambda row: (row["year"], row["chip"]))


def _tokens_per_j(catalog: Catalog, chip: str, dtype: str | None) -> float | None:
    """On the smallest number of chips, a power of two, that holds MODEL with CONCURRENCY."""
    for chips in (1.0, 2.0, 4.0, 8.0):
        if catalog.refusal(chip, chips) is not None:
            return None
        point = Point(MODEL, chip, chips, concurrency=CONCURRENCY, weight=dtype, kv="bf16")
        found = predict([point], backend="generic", catalog=catalog)
        if found.feasible[0] and found["running_requests"][0] >= CONCURRENCY:
            return float(found["tokens_per_joule"][0])
    return None


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
    rows = performance_per_watt(load_catalog(), GPUS)
    growths = {name: found for name in COLUMNS if (found := growth(rows, name)) is not None}
    figures: dict[str, float | None] = {}
    for name, (before, after) in growths.items():
        figures |= {f"{name}_until_{SPLIT}": before, f"{name}_after": after}
    figures["most_watts"] = max(float(row["watts"]) for row in rows)
    each = [(COLUMNS[name], *found) for name, found in growths.items()]
    flat = [after < before and after <= given["flat"] for _, before, after in each]
    facts = {
        "share_flat": share(flat),
        "said": "; ".join(f"{name} {times(a)}, then {times(b)}" for name, a, b in each),
        "gpus": len(rows),
    }
    return Measured(figures, (each, [tuple(row.values()) for row in rows]), facts)
