"""Gauss-Newton steps of a fit whose loss saturates, over moves t of constants from their priors:

    sum over rows of weight * (1 - exp(-h / saturation)) + ridge / 2 * sum of (t / sd)^2

where h is the error |predicted / measured - 1|, rounded below `rounded`: a row that is wrong by a
factor of two pulls hardly more than one that is wrong by `saturation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dse.space.candidates import Floats

STEP = 0.03  # of a move, for the difference quotients
LARGEST_MOVE = 0.4
SHARES = (1.0, 0.5, 0.25, 0.1)  # of a step, the first that makes the loss smaller
Logs = Callable[[Floats], Floats]  # moves -> logarithms of predicted / measured, (rows,)


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss; `sd` (constants,)."""

    sd: Floats
    ridge: float
    rounded: float
    saturation: float

    def _rounded(self, error: Floats) -> Floats:
        root = np.sqrt(error * error + self.rounded**2)
        return np.asarray(root - self.rounded, dtype=np.float64)

    def loss(self, log_ratio: Floats, weight: Floats, moves: Floats) -> float:
        rows = weight * (1.0 - np.exp(-self._rounded(np.expm1(log_ratio)) / self.saturation))
        return float(rows.sum()) + self.ridge / 2.0 * float(np.sum((moves / self.sd) ** 2))

    def move(self, log_ratio: Floats, slopes: Floats, weight: Floats, moves: Floats) -> Floats:
        """One Gauss-Newton step, iteratively reweighted."""
        ratio = np.exp(log_ratio)
        error = ratio - 1.0
        pull = np.exp(-self._rounded(error) / self.saturation) / self.saturation
        pull = weight * pull / np.sqrt(error * error + self.rounded**2)
        curvature = (slopes * (pull * ratio * ratio)[:, None]).T @ slopes
        curvature += self.ridge * np.diag(1.0 / self.sd**2)
        gradient = slopes.T @ (pull * error * ratio) + self.ridge * moves / self.sd**2
        step = np.asarray(-np.linalg.solve(curvature, gradient), dtype=np.float64)
        return np.minimum(np.maximum(step, -LARGEST_MOVE), LARGEST_MOVE)

    def fit(self, logs: Logs, weight: Floats, rounds: int = 12) -> Floats:
        """The best moves."""
        moves = np.zeros(len(self.sd))
        for _ in range(rounds):
            log_ratio, slopes = linearise(logs, moves)
            before = self.loss(log_ratio, weight, moves)
            step = self.move(log_ratio, slopes, weight, moves)
            for share in SHARES:
                tried = moves + share * step
                after = self.loss(logs(tried), weight, tried)
                if after < before:
                    break
            else:
                return moves
            moves = tried
            if before - after < 2e-4 * before:
                return moves
        return moves

    def refit(
        self, start: Floats, log_ratio: Floats, slopes: Floats, weight: Floats, rounds: int = 30
    ) -> Floats:
        """The fit with other row weights, with log ratios taken as linear around `start`."""
        moves, here = start.copy(), log_ratio
        for _ in range(rounds):
            step = self.move(here, slopes, weight, moves)
            before = self.loss(here, weight, moves)
            for share in SHARES:
                tried = moves + share * step
                ratio = log_ratio + slopes @ (tried - start)
                if self.loss(ratio, weight, tried) < before:
                    break
            else:
                return moves
            moves, here = tried, ratio
            if float(np.max(np.abs(share * step))) < 1e-3:
                return moves
        return moves


def linearise(logs: Logs, moves: Floats) -> tuple[Floats, Floats]:
    """(log ratios (rows,), their derivatives (rows, constants)) at `moves`."""
    here = logs(moves)
    slopes = np.empty((len(here), len(moves)))
    for k in range(len(moves)):
        moved = moves.copy()
        moved[k] += STEP
        slopes[:, k] = (logs(moved) - here) / STEP
    return here, slopes
