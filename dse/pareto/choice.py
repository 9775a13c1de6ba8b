"""The few points of a front that a reader meets first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dse.pareto.hypervolume import Scale

KNEE = "knee"


def choose(F: NDArray[np.float64], names: Sequence[str], log: Sequence[bool]) -> dict[str, int]:
    """Row of F (n, m) that is best in each objective, under `names[j]`, and the knee.

    With x the objectives scaled to 0 at the ideal and 1 at the nadir of F's front (`Scale`), the
    individual minima of two objectives lie at (0, 1) and (1, 0). The knee is the row farthest
    below the hyperplane through the corners where one objective is at its ideal and all others at
    their nadir, at distance (m - 1 - sum x) / sqrt(m): for two objectives the chord between the
    minima (Das 1999, Structural Optimization 18, 107-115).

    Ties in an objective go to the smallest sum of x, then to the first row.
    """
    x = Scale.of(F, log)(F)
    total = np.add.reduce(x, axis=1)
    chosen = {name: int(np.lexsort((total, F[:, j]))[0]) for j, name in enumerate(names)}
    chosen[KNEE] = int(np.argmin(total))
    return chosen
