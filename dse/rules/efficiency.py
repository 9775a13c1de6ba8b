"""How much of a chip a matrix product can use, from its sizes: closed forms, arrays (n,).

Tiles: an output of M x N is computed in whole tiles of Tm x Tn,

    tile efficiency = M N / (ceil(M / Tm) Tm ceil(N / Tn) Tn).

Waves: C tiles on S compute units take ceil(C / S) rounds,

    wave efficiency = C / (ceil(C / S) S)

(NVIDIA, Matrix Multiplication Background). K enters neither; fewer tiles than half the units are
split over it (assumed). Libraries have more tiles than the three here, and schedules that share out
the last wave, so that the best of these is an upper bound of the loss. At few rows products are
bound by memory: nothing is lost to tiles at SMALL rows or fewer (assumed).

A matrix unit of U x U takes weights of whole U in both dimensions, and rows in eights (TPU).

Alignment is a cliff: on H100 widths that are multiples of 64 bytes reach the same within 1%, one of
4 bytes (10,922 in bf16) reaches 68%. Between 4 and 64 bytes nothing is measured; the cliff is taken
to lie at 16 bytes, what one vector load takes.
"""

from __future__ import annotations

import numpy as np

from dse.schema.dtypes import BITS, DTYPES
from dse.space.candidates import Floats

SMALL = 256.0
# hardware/measurements/gemm_alignment.csv: H100, bf16, rates at widths of 10,922 and 10,944.
MISALIGNED = 272.7 / 398.4
CLIFF_BYTES = 16.0
MEASURED_BYTES = 64.0  # aligned so far, widths were measured to be alike
FULL_BYTES = 128.0  # what NVIDIA recommends from A100 on
ELEMENT_BITS = np.array([int(BITS[dtype]) for dtype in DTYPES], dtype=np.int64)


def aligned_bytes(size: Floats, bits: np.ndarray) -> Floats:
    """(n,) largest power of two, up to 128, that divides `size` elements of `bits` in bytes; below
    1 where they do not fill a byte."""
    return np.gcd(np.rint(size * bits).astype(np.int64), 8 * int(FULL_BYTES)) / 8.0


def alignment_efficiency(bytes_: Floats) -> Floats:
    """(n,) share of its speed that a product whose rows are aligned to `bytes_` reaches."""
    return np.where(bytes_ < CLIFF_BYTES, MISALIGNED, 1.0)


def tile_efficiency(rows: Floats, out: Floats, tile: tuple[float, float]) -> Floats:
    """(n,) useful share of the tiles of an M x N output."""
    tall, wide = tile
    computed = np.ceil(rows / tall) * tall * np.ceil(out / wide) * wide
    return rows * out / np.maximum(computed, 1.0)


def wave_efficiency(
    rows: Floats, out: Floats, tile: tuple[float, float], units: float, groups: Floats | float = 1.0
) -> Floats:
    """(n,) share of `units` that the tiles of `groups` outputs keep busy. Fewer tiles than half the
    units are split over K into as many parts as fit."""
    tiles = np.ceil(rows / tile[0]) * np.ceil(out / tile[1]) * groups
    tiles = tiles * np.maximum(np.floor(units / np.maximum(tiles, 1.0)), 1.0)
    return tiles / np.maximum(np.ceil(tiles / units) * units, 1.0)


def best_tile(
    rows: Floats,
    out: Floats,
    tiles: tuple[tuple[float, float], ...],
    units: float | None,
    groups: Floats,
) -> tuple[Floats, Floats]:
    """(tile efficiency, wave efficiency) of the tile that wastes least, (n,) each; 1 at few rows.
    Of grouped products the rows are left out, whose padding the law of the experts has; waves are 1
    where the number of units is not known."""
    tile = wave = np.zeros(len(rows))
    for one in tiles:
        whole = tile_efficiency(rows, out, one)
        columns = tile_efficiency(np.full(len(rows), one[0]), out, one)
        used = np.where(groups > 1.0, columns, whole)
        busy = np.ones(len(rows))
        if units is not None:
            busy = wave_efficiency(rows, out, one, units, groups)
        better = used * busy > tile * wave
        tile, wave = np.where(better, used, tile), np.where(better, busy, wave)
    few = (rows * groups <= SMALL) | (rows * out <= 0.0)
    return np.where(few, 1.0, tile), np.where(few, 1.0, wave)


def unit_efficiency(
    rows: Floats, out: Floats, inner: Floats, unit: float, row_unit: float
) -> Floats:
    """(n,) useful share of a matrix unit of `unit` x `unit`."""

    def share(size: Floats, step: float) -> Floats:
        return size / np.maximum(np.ceil(size / step) * step, 1.0)

    return share(rows, row_unit) * share(out, unit) * share(inner, unit)
