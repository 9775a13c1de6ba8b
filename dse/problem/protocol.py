"""What a search sees: a space of index vectors, objectives to minimise, constraints to keep.

Notation of the whole search package: n candidates, d axes, m objectives, c constraints.
`index` is (n, d) int64, position of the value on each axis; `ids` is (n,) int64, the rank of the
canonical point; F is (n, m), every column minimised; G is (n, c), used / limit - 1, feasible where
G <= 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dse.space.space import Space

Direction = Literal["minimize", "maximize"]


@dataclass(frozen=True, slots=True)
class Objective:
    """One metric and its direction; `log` scales it by logarithm in the hypervolume. Differences up
    to `step`, in its unit or as a share of it where `relative`, count for nothing on a front."""

    metric: str
    direction: Direction
    log: bool
    step: float = 0.0
    relative: bool = False

    @property
    def sign(self) -> float:
        """Metric = sign x column of F."""
        return 1.0 if self.direction == "minimize" else -1.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """F (n, m) float64, all minimised; G (n, c) float64, G <= 0 feasible. Never NaN; F of an
    infeasible point may be +inf. `broken` are the columns of G that may have other values than 0,
    in order; None: any."""

    F: NDArray[np.float64]
    G: NDArray[np.float64]
    broken: tuple[int, ...] | None = None


class Problem(Protocol):
    """A space with a vectorised evaluation."""

    @property
    def space(self) -> Space: ...
    @property
    def objectives(self) -> tuple[Objective, ...]: ...
    @property
    def constraints(self) -> tuple[str, ...]: ...
    def evaluate(self, index: NDArray[np.int64]) -> Evaluation:
        """Canonical index (n, d) -> F (n, m) and G (n, c); row i does not depend on the others."""
        ...
