"""How far the price of a chip may lie from the one that is used.

Three rows or more of a chip on the basis: the spread of these, log-normal about their median.
Fewer: the pooled spread of the chips of that basis that have three, or where no two chips have, an
interval that is assumed. A move of all prices together changes no order and is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dse.quality.own_runs import P90
from dse.schema.prices import PriceTable

ENOUGH = 3  # rows of a chip
CHIPS = 2  # chips with as many, to pool
ASSUMED = 0.15  # share either way, 80% interval


@dataclass(frozen=True, slots=True)
class PriceSpread:
    """`sd` of the logarithm; `kind`: published, pooled, assumed or given."""

    chip: str
    usd_per_chip_hour: float
    rows: int
    sd: float
    kind: str

    @property
    def ends(self) -> tuple[float, float]:
        """80% interval, dollars per chip-hour."""
        factor = math.exp(P90 * self.sd)
        return self.usd_per_chip_hour / factor, self.usd_per_chip_hour * factor


def price_spreads(
    prices: PriceTable, basis: str, chips: Sequence[str], given: float | None = None
) -> tuple[PriceSpread, ...]:
    """One for each chip. `given`: a share either way, as the 80% interval of every chip."""
    table = prices.select(basis)
    logs = {
        chip: np.log([row.usd_per_chip_hour for row in price.rows])
        for chip, price in table.items()
        if len(price.rows) >= ENOUGH
    }
    own = {chip: float(np.std(values, ddof=1)) for chip, values in logs.items()}
    pooled = None
    if len(own) >= CHIPS:
        freedom = {chip: len(values) - 1 for chip, values in logs.items()}
        squares = sum(freedom[chip] * own[chip] ** 2 for chip in own)
        pooled = math.sqrt(squares / sum(freedom.values()))

    def spread(chip: str) -> tuple[float, str]:
        if given is not None:
            return math.log1p(given) / P90, "given"
        if chip in own:
            return own[chip], "published"
        return (math.log1p(ASSUMED) / P90, "assumed") if pooled is None else (pooled, "pooled")

    return tuple(
        PriceSpread(chip, table[chip].usd_per_chip_hour, len(table[chip].rows), *spread(chip))
        for chip in chips
    )
