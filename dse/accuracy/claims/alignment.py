"""Claim 14: dimensions that suit the chip."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.answer.numbers import digits, percent, times
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
MATTERS = 0.05


def judge(cliff: float, gradient: float, tile: float) -> str:
    """`cliff`: what an aligned size gains over a misaligned one; `gradient`: what a power of two
    gains over other aligned sizes; `tile`: what a whole tile of rows saves over one row more."""
    if max(cliff, gradient, tile) < MATTERS:
        return CONTRADICTED
    return CONFIRMED if gradient >= MATTERS else QUALIFIED


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


def find() -> Finding:
    table = measured()
    cliff, cliff_table = _cliff(table)
    gradient, gradient_table = _gradient(table)
    tile, tile_table = _tiles(table)
    figures = cliff | gradient | tile
    best_tile = max(figures["measured_row_more_h100_sxm"], figures["measured_row_more_b200_sxm"])
    return Finding(
        judge(figures["measured_cliff"], figures["measured_power_of_two_gain"], best_tile),
        "measured on H100: a width of 10,922 reaches "
        f"{percent(1.0 / (1.0 + figures['measured_cliff']))} of the next multiple of {ALIGNED}, "
        f"and multiples of {ALIGNED} differ by {percent(figures['measured_spread_aligned'])}; 3, 5 "
        f"and 7 times a power of two take {times(1.0 + figures['measured_power_of_two_gain'])} the "
        f"time of powers of two; one row more than a tile costs up to {percent(best_tile)}; the "
        "model has the steps in rows and no law of misaligned widths",
        figures,
        "Large products in bf16 on H100, H200 and B200: widths of a feed-forward layer (H100), 3, "
        "5 and 7 times powers of two from 768 to 12,288, rows from 64 to 2,048. The same holds for "
        "decode only as far as it is bound by compute.",
        (cliff_table, gradient_table, tile_table),
        "Rates of widths are measured; ratios are derived from measured kernel tables; predictions "
        "are the fitted law of the chip.",
        "Misaligned widths of other chips and formats, odd head counts, hidden sizes such as "
        "5,000: one published row has a width that is no multiple of 32, and four of its "
        "neighbours are known as 395 to 396 TFLOP/s (395.5 is taken). On MI300X strides of 512 "
        "bytes, so powers of two, are said to hurt (claimed, ROCm documentation); no figure was "
        "found.",
    )


def _cliff(table: pd.DataFrame) -> tuple[dict[str, float], Table]:
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
    head = ("width", "divides by", "measured TFLOP/s", "of the best", "predicted, of the best")
    title = f"Widths of a SwiGLU feed-forward of hidden size {HIDDEN:g} on h100_sxm, bf16"
    return figures, Table(title, head, cells)


def _gradient(table: pd.DataFrame) -> tuple[dict[str, float], Table]:
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
    head = ("chip", "dimension", "sizes", "least", "median", "most")
    title = (
        "Time of widths of 3, 5 and 7 times a power of two over that of powers of two (1: equal)"
    )
    gain = float(ratios["value"].median()) - 1.0
    return {"measured_power_of_two_gain": gain}, Table(title, head, rows)


def _tiles(table: pd.DataFrame) -> tuple[dict[str, float], Table]:
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
    head = ("chip", "rows", "one row more, measured", "one row more, predicted")
    return figures, Table("Steps in the number of rows (tokens), bf16", head, tuple(cells))


CLAIMS = (
    Claim(
        14,
        "Choosing dimensions aligned with powers of two for the target chip raises efficiency.",
        ("dse claims 14",),
        f"Confirmed where a power of two is at least {MATTERS:.0%} faster than other aligned "
        f"widths; qualified where only alignment to {ALIGNED} elements, or whole tiles of rows, "
        "gain as much; contradicted where nothing does. Measured figures decide.",
        find,
    ),
)
