"""What a search sees: a space of index vectors, objectives to minimise, constraints to keep.

Notation of the whole search package: n candidates, d axes, m objectives, c constraints.
`index` is (n, d) int64, position of the value on each axis; `ids` is (n,) int64, the rank of the
canonical point; F is (n, m), every column minimised; G is (n, c), used / limit - 1, feasible where
G <= 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

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


class SpaceProtocol(Protocol):
    """A product grid with conditional axes, counted by its distinct canonical points."""

    @property
    def name(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]:
        """(d,) axis names."""
        ...

    @property
    def cardinalities(self) -> NDArray[np.int64]:
        """(d,) number of values of each axis."""
        ...

    @property
    def ordered(self) -> tuple[bool, ...]:
        """(d,) whether the axis is a scale (a size, a degree) and not a set of kinds."""
        ...

    @property
    def choices(self) -> tuple[tuple[bool | int | float | str, ...], ...]:
        """(d,) the values of each axis as written in the space file, in index order."""
        ...

    @property
    def size(self) -> int:
        """Distinct canonical points."""
        ...

    @property
    def fingerprint(self) -> str: ...

    def canonical(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, d) -> (n, d): inactive axes set to 0."""
        ...

    def active(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n, d) -> (n, d): whether the axis counts at the point."""
        ...

    def rank(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, d) -> (n,): the canonical point's number in [0, size)."""
        ...

    def unrank(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) -> (n, d): the inverse of `rank`."""
        ...

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """n canonical points (n, d), distinct as far as possible."""
        ...

    def neighbours(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, d) -> (k, d): distinct canonical points one axis away, without the inputs."""
        ...

    def values(self, index: NDArray[np.int64]) -> Mapping[str, NDArray]:
        """(n, d) -> one (n,) array for each name: numbers, or codes for kinds."""
        ...


class Problem(Protocol):
    """A space with a vectorised evaluation."""

    @property
    def space(self) -> SpaceProtocol: ...
    @property
    def objectives(self) -> tuple[Objective, ...]: ...
    @property
    def constraints(self) -> tuple[str, ...]: ...
    def evaluate(self, index: NDArray[np.int64]) -> Evaluation:
        """Canonical index (n, d) -> F (n, m) and G (n, c); row i does not depend on the others."""
        ...
