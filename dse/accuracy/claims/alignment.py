"""Dimensions that suit the chip."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.physics.machines import compile_machines
from dse.physics.step import computed_rows
from dse.schema.dtypes import CODE
from dse.space.candidates import Floats

FILE = "gemm_alignment.csv"
HIDDEN, ROWS = 4096.0, 16_384.0
GRID = (4096.0, 8192.0, 16_384.0)  # widths over which the law's tile steps are averaged
ALIGNED = 32


def gemm_s(chip: str, rows: Floats, inner: Floats, out: Floats) -> Floats:
    """(n,) predicted seconds of (rows, inner) x (inner, out) in bf16 (docs/physics.md)."""
    machines = compile_machines(load_catalog(), [chip])
    law, code = machines.laws["gemm"], CODE["bf16"]
    compute = 2.0 * computed_rows(rows) * inner * out * law.s_per_flop[0, code]
    memory = 2.0 * (inner * out + rows * (inner + out)) * law.s_per_byte[0, code]
    p = law.p[0, code]
    return (compute**p + memory**p) ** (1.0 / p) + law.fixed_s[0, code]


def find(given: Given) -> Measured:
    table = pd.read_csv(hardware_dir() / MEASUREMENTS / FILE)
    of = dict(iter(table.groupby("quantity")))
    cliff, cliff_table = _cliff(of["gemm_flops_per_s"])
    ratios = of["seconds_over_powers_of_two"]
    gain = {"measured_power_of_two_gain": float(ratios["value"].median()) - 1.0}
    gradient = [
        (
            str(chip),
            str(dimension).replace("_", " "),
            len(part),
            *part["value"].quantile((0, 0.5, 1)),
        )
        for (chip, dimension), part in ratios.groupby(["chip", "dimension"])
    ]
    tile, tile_table = _tiles(of["seconds_of_one_row_more"])
    figures = cliff | gain | tile
    facts = {
        "best_tile": max(tile[f"measured_row_more_{chip}"] for chip in ("h100_sxm", "b200_sxm")),
        "reached": 1.0 / (1.0 + figures["measured_cliff"]),
        "gain": 1.0 + figures["measured_power_of_two_gain"],
    }
    return Measured(figures, (cliff_table, gradient, tile_table), facts)


def _cliff(rates: pd.DataFrame) -> tuple[dict[str, float], Rows]:
    sizes, values = rates["size"].to_numpy(float), rates["value"].to_numpy(float)
    aligned = sizes % ALIGNED == 0
    rows, inner = np.full(len(sizes), ROWS), np.full(len(sizes), HIDDEN)
    predicted = 2.0 * ROWS * HIDDEN * sizes / gemm_s("h100_sxm", rows, inner, sizes)
    divisors = sizes.astype(int) & -sizes.astype(int)
    shares = (values / values.max(), predicted / predicted.max())
    cells = list(zip(sizes, divisors, values / 1e12, *shares, strict=True))
    best = float(values[aligned].max())
    figures = {
        "measured_cliff": best / float(values[~aligned].min()) - 1.0,
        "measured_spread_aligned": best / float(values[aligned].min()) - 1.0,
        "predicted_cliff": float(predicted[aligned].max() / predicted[~aligned].min()) - 1.0,
    }
    return figures, cells


def _tiles(steps: pd.DataFrame) -> tuple[dict[str, float], Rows]:
    """What one row more costs: measured, and predicted over the widths of GRID."""
    inner, out = (grid.ravel() for grid in np.meshgrid(GRID, GRID))
    figures: dict[str, float] = {}
    cells = []
    for chip, part in steps.groupby("chip"):
        for size, value in zip(part["size"], part["value"], strict=True):
            now, more = (
                gemm_s(str(chip), np.full(len(inner), float(size) + extra), inner, out)
                for extra in (0.0, 1.0)
            )
            ratios = {"measured": float(value), "predicted": float(np.median(more / now))}
            cells.append((chip, size, *ratios.values()))
            for name, ratio in ratios.items():
                key = f"{name}_row_more_{chip}"
                figures[key] = max(figures.get(key, 0.0), ratio - 1.0)
    return figures, cells
