"""How good a front is: hypervolume and additive epsilon on a common scale.

Each objective runs from 0 at the ideal to 1 at the nadir of the reference front: the true front
where it is known, else the non-dominated union of the fronts compared. Cost, latency and energy
are scaled in logarithm. All objectives are minimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import moocore
import numpy as np
from numpy.typing import NDArray

from dse.pareto.front import non_dominated

Floats = NDArray[np.float64]

REFERENCE = 1.1


@dataclass(frozen=True, slots=True)
class Scale:
    """Ideal and nadir of a reference front, (m,) in the objectives' own units.

    `log[j]` scales objective j, which is then never 0, by its logarithm. An objective in which
    ideal and nadir agree is scaled so that twice the ideal is 1 (a difference of 1 when the ideal
    is 0).
    """

    ideal: tuple[float, ...]
    nadir: tuple[float, ...]
    log: tuple[bool, ...]

    @classmethod
    def of(cls, F: Floats, log: Sequence[bool]) -> Scale:
        """The scale of a reference front F (n, m), dominated rows left out.

        ValueError when F is empty or its front is not finite.
        """
        front = F[non_dominated(F)]
        if not len(front) or not np.isfinite(front).all():
            raise ValueError("the reference front is empty or not finite")
        return cls(tuple(front.min(axis=0).tolist()), tuple(front.max(axis=0).tolist()), tuple(log))

    def __call__(self, F: Floats) -> Floats:
        """(n, m) rows of F scaled; a row worse than the nadir exceeds 1."""
        ideal, nadir = self._transform(np.array([self.ideal, self.nadir]))
        degenerate = np.where(self.log, np.log(2.0), np.where(ideal == 0, 1.0, np.abs(ideal)))
        span = np.where(nadir > ideal, nadir - ideal, degenerate)
        return (self._transform(F) - ideal) / span

    def _transform(self, F: Floats) -> Floats:
        """Logarithm where asked; a maximised metric comes negated, and keeps its order."""
        columns = np.asarray(self.log)
        F = np.array(F, dtype=float)
        F[:, columns] = np.sign(F[:, columns]) * np.log(np.abs(F[:, columns]))
        return F


def hypervolume(F: Floats, scale: Scale) -> float:
    """Volume that F (n, m) dominates up to 1.1 in every scaled objective; 0 for no rows.

    Definition: Zitzler and Thiele 1998 (PPSN V); exact, dominated rows and rows beyond the
    reference point change nothing.
    """
    return float(moocore.hypervolume(scale(F), ref=REFERENCE))


def additive_epsilon(A: Floats, B: Floats, scale: Scale) -> float:
    """Smallest shift of A (n, m), in scaled units, that makes it weakly dominate all of B (k, m).

    Zitzler et al. 2003 (IEEE Transactions on Evolutionary Computation 7, 117-132). 0 or less: A
    already does. Infinite for an empty A.
    """
    return float(moocore.epsilon_additive(scale(A), ref=scale(B)))


def share(F: Floats, true_F: Floats, log: Sequence[bool]) -> float:
    """Hypervolume of F over that of the true front, on the true front's scale; at most 1."""
    scale = Scale.of(true_F, log)
    return hypervolume(F, scale) / hypervolume(true_F, scale)
