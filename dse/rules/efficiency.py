"""How much of a chip a matrix product can use, from its sizes: closed forms, arrays (n,).

Tiles: an output of M x N is computed in whole tiles of Tm x Tn,

    tile efficiency = M N / (ceil(M / Tm) Tm ceil(N / Tn) Tn).

Waves: C tiles on S compute units take ceil(C / S) rounds,

    wave efficiency = C / (ceil(C / S) S)

(NVIDIA, Matrix Multiplication Background). K enters neither; fewer tiles than half the units are
split over it (assumed). Libraries have more tiles than the three here, and schedules that share out
the last wave, so that the best of these is an upper bound of the loss. At few rows products are
bound by memory: nothing is lost to tiles at SMALL rows or fewer (assumed).

What misaligned sizes cost is in every prediction, and in `dse.physics.alignment`.
"""

from __future__ import annotations

import numpy as np

from dse.space.candidates import Floats

SMALL = 256.0


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
