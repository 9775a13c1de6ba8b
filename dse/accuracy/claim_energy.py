"""What is said of energy, as numbers: plain rows for the page of claims.

`energy_ratios`: "reading a parameter costs up to 1000 times the energy of the multiply; batching
amortises it". `batch_amortises`: the second half, from the model. `performance_per_watt`:
"performance per watt of GPUs is flattening".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.catalog import Catalog, load_catalog
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.questions.estimate.energy import energy_by_batch
from dse.questions.estimate.point import estimate
from dse.schema.dtypes import ARITHMETIC, BITS, CODE
from dse.schema.energy import Operation
from dse.schema.model_catalog import resolve_model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch

# Years of announced chips are left out: nobody has measured a kernel of theirs.
SHIPPING = ("shipping", "shipping_legacy", "legacy", "cloud", "cloud_legacy", "limited")
MODEL, CONCURRENCY = "llama-3-8b", 64.0
PROMPT, OUTPUT = 2048.0, 512.0


def energy_ratios(catalog: Catalog | None = None) -> list[dict[str, Any]]:
    """Joules to read a number over joules to multiply it, by node, memory and format: the number's
    share of the access (8 of 64 bits of an int8), and the whole access where it serves one
    multiply."""
    catalog = catalog or load_catalog()
    operations = catalog.energy.operations
    rows = []
    for multiply in operations:
        if not multiply.name.endswith("multiply"):
            continue
        for access in operations:
            if access.node != multiply.node or access.name.endswith("multiply"):
                continue
            rows.append(_ratio(multiply, access))
    return rows


def _ratio(multiply: Operation, access: Operation) -> dict[str, Any]:
    read_j = access.j_per_bit * multiply.bits
    return {
        "node": multiply.node,
        "multiply": multiply.name,
        "multiply_j": multiply.figure.value,
        "memory": access.name,
        "read_j": read_j,
        "ratio": read_j / multiply.figure.value,
        "ratio_of_whole_access": access.figure.value / multiply.figure.value,
        "kind": access.figure.kind,
        "source": access.figure.source,
    }


def batch_amortises(chip: str = "h100_sxm", model: str = MODEL) -> list[dict[str, Any]]:
    """Joules per output token of a decode-heavy workload with 1, 2, 4, ... requests in flight."""
    catalog = load_catalog()
    load = Workload.of(128.0, OUTPUT, "continuous", catalog.backends["generic"])
    return energy_by_batch(
        estimate(catalog, resolve_model(model), chip, load, {"concurrency": 1.0})
    )


def performance_per_watt(
    catalog: Catalog | None = None, vendors: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Chips with a rated power, by year: dense FLOP per joule at the peak and at the measured rate
    of large products, in 16 bits and in the narrowest format that the chip computes in; output
    tokens per joule of MODEL, in 16 bits, and served in that narrowest format, on as few chips as
    hold it. `kind`: of the kernel laws. A value that does not apply is None."""
    catalog = catalog or load_catalog()
    rows = []
    for chip in catalog.chips.values():
        known = chip.tdp_w is not None and chip.year is not None
        if not known or chip.availability not in SHIPPING or catalog.refusal(chip.id):
            continue
        if vendors and chip.vendor not in vendors:
            continue
        machines = compile_machines(catalog, [chip.id])
        narrow = min(
            (name for name in ARITHMETIC if name in chip.peak_flops_per_s and name in CODE),
            key=lambda name: (float(BITS[name]), -chip.peak_flops_per_s[name]),
        )
        reached = machines.laws["gemm"].floor_of_compute[0]
        watts = float(machines.power.rated_w[0])
        rows.append(
            {
                "chip": chip.id,
                "vendor": chip.vendor,
                "year": chip.year,
                "watts": watts,
                "peak_flop_per_j": chip.peak_flops_per_s["bf16"] / watts,
                "reached_flop_per_j": float(reached[CODE["bf16"]])
                * chip.peak_flops_per_s["bf16"]
                / watts,
                "narrow_dtype": narrow,
                "narrow_peak_flop_per_j": chip.peak_flops_per_s[narrow] / watts,
                "bytes_per_j": chip.memories[0].bytes_per_s / watts,
                "tokens_per_j": _tokens_per_j(catalog, machines, chip.id, None),
                "narrow_tokens_per_j": _tokens_per_j(catalog, machines, chip.id, narrow),
                "kind": catalog.efficiencies[chip.efficiency].operators["gemm"]["bf16"].kind,
            }
        )
    return sorted(rows, key=lambda row: (row["year"], row["chip"]))


def _tokens_per_j(
    catalog: Catalog, machines: Machines, chip: str, dtype: str | None
) -> float | None:
    """On the smallest number of chips, a power of two, that holds MODEL with CONCURRENCY."""
    for chips in (1.0, 2.0, 4.0, 8.0):
        if catalog.refusal(chip, chips) is not None:
            return None
        load = Workload.of(PROMPT, OUTPUT, "continuous", catalog.backends["generic"])
        found = evaluate(_batch(chips, dtype), load, machines)
        if _served(found):
            return float(found.values["tokens_per_joule"][0])
    return None


def _batch(chips: float, dtype: str | None) -> CandidateBatch:
    axes = {axis: np.ones(1) for axis in DEPLOYMENT_AXES}
    axes |= {"tensor_parallel": np.array([chips]), "concurrency": np.array([CONCURRENCY])}
    return batch_of([resolve_model(MODEL)], np.zeros(1, dtype=np.intp), [dtype], ["bf16"], axes)


def _served(found: Metrics) -> bool:
    return bool(found.feasible[0] and found.values["running_requests"][0] >= CONCURRENCY)


def by_year(rows: Sequence[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """The best chip of each year in `column`, and its gain by the year over the best of any year
    before, (best / before)^(1 / years)."""
    best: list[dict[str, Any]] = []
    for year in sorted({row["year"] for row in rows}):
        of_year = [row for row in rows if row["year"] == year and row[column] is not None]
        if not of_year:
            continue
        top = max(of_year, key=lambda row: row[column])
        gain = None
        if best:
            before = max(best, key=lambda row: row["value"])
            gain = (top[column] / before["value"]) ** (1.0 / (year - before["year"]))
        best.append({"year": year, "chip": top["chip"], "value": top[column], "gain": gain})
    return best
