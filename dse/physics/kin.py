"""Chips whose predictions err together, for their kernel laws do.

Two chips of one family were measured under the same software, and laws that one lends the other are
the same numbers: what is wrong with them is wrong for both. Laws that were measured on no chip are
those of a class, whose constants are medians of other vendors' chips; of these the chips of one
vendor are kin (assumed).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dse.schema.catalog import Catalog
from dse.schema.chip import Chip
from dse.space.candidates import Floats

# Correlation of the shared error of two chips of a kin, the part that one model's rows on a chip
# have in common. Measured on held-out serving rows (`python -m tools.fits.kin`): 0.49 over 25
# pairs of chips of one family that served one model, 0.13 over 44 pairs of unlike families, which
# is taken for 0.
COMMON = 0.5
MEASURED = (
    "0.49 over 25 measured pairs of one family; of two families 0.13 over 44, taken for none; of "
    "laws that were measured on no chip, by vendor and assumed"
)


def kin_of(catalog: Catalog, chip: Chip) -> str:
    """The family of the chip that its laws were measured on; where there is none, its vendor."""
    measured = catalog.chips.get(chip.efficiency.partition(":")[0])
    return measured.family if measured is not None else f"{chip.vendor}, unmeasured"


def eldest(names: Sequence[str]) -> NDArray[np.intp]:
    """(C,) where each name stands first."""
    return np.array([names.index(name) for name in names], dtype=np.intp)


def alike(kin: Floats, own: Floats) -> Floats:
    """Standard normals of chips that agree by COMMON where `kin` is the same; `own` is the chip's:

    A = sqrt(COMMON) K + sqrt(1 - COMMON) O
    """
    return math.sqrt(COMMON) * kin + math.sqrt(1.0 - COMMON) * own


def normals(
    seeds: Sequence[np.random.SeedSequence],
    count: int,
    configurations: Sequence[int],
    chip: NDArray[np.intp],
    kin: NDArray[np.intp],
) -> tuple[Floats, Floats, list[Floats]]:
    """Standard normals of C choices, each of its own seed: errors of chips and of prices, (count,
    C), and of configurations, (count, k) each. `chip` and `kin` (C,) are the first choices on the
    same chip, and of the same kin."""
    of_chip, of_price, of_kin, own = [], [], [], []
    for seed, k in zip(seeds, configurations, strict=True):
        rng = np.random.default_rng(seed)
        of_chip.append(rng.standard_normal(count))
        of_price.append(rng.standard_normal(count))
        own.append(rng.standard_normal((count, k)))
        of_kin.append(rng.standard_normal(count))
    by_chip, price = (np.stack(of, axis=1)[:, chip] for of in (of_chip, of_price))
    return alike(np.stack(of_kin, axis=1)[:, kin], by_chip), price, own
