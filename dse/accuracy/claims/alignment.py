"""Dimensions that suit the chip."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.engine import Given, Measured, Rows
from dse.answer.numbers import digits, times
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


def measured() -> pd.DataFrame:
    return pd.read_csv(hardware_dir() / MEASUREMENTS / FILE)


def gemm_s(chip: str, rows: Floats, inner: Floats, out: Floats) -> Floats:
    """(n,) predicted seconds of (rows, inner) x (inner, out) in bf16 (docs/physics.md)."""
    machines = compile_machines(load_catalog(), [chip])
    law, code = machines.laws["gemm"], CODE["bf16"]
    compute = 2.0 * computed_rows(rows) * inner * out * law.s_per_flop[0, code]
    memory = 2.0 * (inner * out + rows * (inner + out)) * law.s_per_byte[0, code]
    p = law.p[0, code]
    return (compute**p + memory**p) ** (1.0 / p) + law.fixed_s[0, code]


def find(given: Given) -> Measured:
    table = measured()
    cliff, cliff_table = _cliff(table)
    gradient, gradient_table = _gradient(table)
    tile, tile_table = _tiles(table)
    figures = cliff | gradient | tile
    best_tile = max(figures["measured_row_more_h100_sxm"], figures["measured_row_more_b200_sxm"])
    return Measured(
        figures,
        (cliff_table, gradient_table, tile_table),
        {
            "best_tile": best_tile,
            "reached": 1.0 / (1.0 + figures["measured_cliff"]),
            "gain": 1.0 + figures["measured_power_of_two_gain"],
        },
    )


def _cliff(table: pd.DataFrame) -> tuple[dict[str, float], Rows]:
    rates = table[table["quantity"] == "gemm_flops_per_s"]
    sizes, values = rates["size"].to_numpy(float), rates["value"].to_numpy(float)
    aligned = sizes % ALIGNED == 0
    rows = np.full(len(sizes), ROWS)
    seconds = gemm_s("h100_sxm", rows, np.full(len(sizes), HIDDEN), sizes)
    predicted = 2.0 * ROWS * HIDDEN * sizes / seconds
    cells = tuple(
        (
            digits(size, 5),
            str(int(size) & -int(size)),
            f"{value / 1e12:.1f}",
            times(value / float(values.max())),
            times(rate / float(predicted.max())),
        )
        for size, value, rate in zip(sizes, values, predicted, strict=True)
    )
    best = float(values[aligned].max())
    figures = {
        "measured_cliff": best / float(values[~aligned].min()) - 1.0,
        "measured_spread_aligned": best / float(values[aligned].min()) - 1.0,
        "predicted_cliff": float(predicted[aligned].max() / predicted[~aligned].min()) - 1.0,
    }
    return (figures, cells)


def _gradient(table: pd.DataFrame) -> tuple[dict[str, float], Rows]:
    ratios = table[table["quantity"] == "seconds_over_powers_of_two"]
    rows = tuple(
        (
            str(chip),
            str(dimension).replace("_", " "),
            str(len(part)),
            *(digits(float(part["value"].quantile(share)), 4) for share in (0.0, 0.5, 1.0)),
        )
        for (chip, dimension), part in ratios.groupby(["chip", "dimension"])
    )
    gain = float(ratios["value"].median()) - 1.0
    return ({"measured_power_of_two_gain": gain}, rows)


def _tiles(table: pd.DataFrame) -> tuple[dict[str, float], Rows]:
    steps = table[table["quantity"] == "seconds_of_one_row_more"]
    inner, out = (grid.ravel() for grid in np.meshgrid(GRID, GRID))
    figures: dict[str, float] = {}
    cells = []
    for chip, part in steps.groupby("chip"):
        for size, value in zip(part["size"], part["value"], strict=True):
            now, more = (
                gemm_s(str(chip), np.full(len(inner), rows), inner, out)
                for rows in (float(size), float(size) + 1.0)
            )
            predicted = float(np.median(more / now))
            cells.append((str(chip), f"{size:,}", times(float(value)), times(predicted)))
            for name, ratio in (("measured", float(value)), ("predicted", predicted)):
                key = f"{name}_row_more_{chip}"
                figures[key] = max(figures.get(key, 0.0), ratio - 1.0)
    return (figures, tuple(cells))
