"""A law rescaled by training runs of one's own: a Bayesian fit of four numbers, in closed form.

With the parts of a law's loss, floor F, parameter term P (which falls as size^-a) and token term T,
and L the leverage of experts over the active parameters (1 for a dense model), one's own loss is

    loss = F + d + P (1 + p) + T (1 + t) - a P ln(L) v + error        (d, p, t, v) = 0: the law

d is what another tokenizer and other data do to the floor, p and t what they do to the two terms,
and 1 + v the exponent of the leverage: where v is 0.1, experts are worth L^1.1. The loss is linear
in all four, so that normal priors (`PRIOR`) and normal errors give a normal posterior:

    covariance = (X'X / s^2 + diag(1 / sd^2))^-1,   mean = covariance X'y / s^2

with a row (1, P, T, -a P ln L) of X and y = loss - F - P - T for each run. At one s a further run
never widens it. s is the scatter of the runs about the fit, held towards NOISE where runs are few.

Every array has shape (n,); X is kept as its four columns, and sums over them go in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from dse.quality.law import Floats, Law, Quality, Shape
from dse.record import record

# Standard deviations about the law as published, all assumed. `floor`: nats; one text costs 0.3
# more nats a token with a large vocabulary than with one of 32,000 words, and code half of what
# prose does. `parameters`, `tokens`: published laws differ by as much in these terms.
# `leverage`: 0.25 ln 8 is the factor of 2 (80%) by which published comparisons differ.
PRIOR: Mapping[str, float] = {"floor": 0.5, "parameters": 0.3, "tokens": 0.4, "leverage": 0.25}
LEVERAGE = 3  # its place in PRIOR
NOISE = 0.01  # nats, s before any run (assumed: seeds, and shapes that a law does not see)
NOISE_RUNS = 2.0  # that this counts as
LEAST_NOISE = 0.002  # nats: two seeds of one run differ by as much (assumed)
LEAST_FACTOR = 0.1  # of a term of the law; less says that size or data are worth nothing
P90 = 1.2815515594  # standard normal
_ROUNDS = 50

Columns = tuple[Floats, ...]  # of X, in the order of PRIOR


@record
class Posterior:
    """`mean` (4,) and `covariance` (4, 4) in the order of PRIOR; `noise` is s in nats."""

    mean: Floats
    covariance: Floats
    noise: float
    runs: int

    @property
    def sd(self) -> Floats:
        return np.sqrt(np.diag(self.covariance))

    def shift(self, columns: Columns) -> Floats:
        """(n,) nats by which the mean moves a law's loss."""
        return _along(columns, self.mean)

    def variance(self, columns: Columns) -> Floats:
        """(n,) of the expected loss, nats squared: of a difference of two losses where `columns`
        are differences."""
        return _along(columns, [_along(columns, row) for row in self.covariance])

    def draw(self, rng: np.random.Generator) -> Floats:
        """(4,) how far one draw of the four numbers is from their mean."""
        return np.linalg.cholesky(self.covariance) @ rng.standard_normal(len(self.mean))


@record
class Doubt:
    """What is not known of n losses under a rescaled law."""

    columns: Columns
    leverage: Floats  # (n,) |ln| of the leverage of the law as published
    posterior: Posterior

    @property
    def sd(self) -> Floats:
        """(n,) nats, of the expected loss; the scatter of single runs is not in it."""
        return np.sqrt(self.posterior.variance(self.columns))

    def moved(self, draw: Floats) -> Floats:
        """(n,) nats that a draw of `Posterior.draw` adds to the losses."""
        return _along(self.columns, draw)


def columns_of(quality: Quality) -> Columns:
    """What one unit of each number of PRIOR adds to losses of a law as published, (n,) nats each.
    Where the law gives no leverage, it has none."""
    terms = quality.terms
    parameters = sum(nats for nats, _ in terms.parameters)
    falls = sum(nats * exponent for nats, exponent in terms.parameters)
    leverage = _log_leverage(quality)
    return np.ones_like(leverage), parameters + 0.0 * leverage, terms.tokens[0], -falls * leverage


def _log_leverage(quality: Quality) -> Floats:
    known = np.isfinite(quality.efficiency_leverage) & (quality.efficiency_leverage > 0.0)
    return np.log(np.where(known, quality.efficiency_leverage, 1.0))


def posterior_of(columns: Columns, residual: Floats, noise: float | None = None) -> Posterior:
    """The posterior of n runs: `residual` is their loss less that of the law, nats. `noise` takes
    the place of the scatter that they show; no runs give the prior."""
    found = _posterior(columns, residual, NOISE if noise is None else noise)
    for _ in range(_ROUNDS if noise is None else 0):
        left = residual - found.shift(columns)
        # Each run tells of the numbers as much as its loss is in their span.
        used = float(np.sum(found.variance(columns))) / found.noise**2
        freedom = NOISE_RUNS + len(residual) - used
        squares = NOISE_RUNS * NOISE**2 + float(np.sum(left**2))
        scatter = max(math.sqrt(squares / freedom), LEAST_NOISE)
        settled = abs(scatter - found.noise) < 1e-9
        found = _posterior(columns, residual, scatter)
        if settled:
            break
    return found


def _posterior(columns: Columns, residual: Floats, noise: float) -> Posterior:
    X = np.stack(columns, axis=1)
    precision = np.diag([1.0 / sd**2 for sd in PRIOR.values()])
    covariance = np.asarray(np.linalg.inv(X.T @ X / noise**2 + precision), dtype=np.float64)
    covariance = (covariance + covariance.T) / 2.0
    return Posterior(covariance @ (X.T @ residual) / noise**2, covariance, noise, len(residual))


def rescaled(law: Law, posterior: Posterior) -> Law:
    """The law moved to the mean of a posterior; its predictions have their `doubt`. A model is
    still worth no more than all of it, and experts no less than those that a token meets."""
    return replace(law, predict=partial(_predict, law, posterior))


def _predict(law: Law, posterior: Posterior, shape: Shape) -> Quality:
    found = law.predict(shape)
    columns = columns_of(found)
    _, parameters, _, slope = columns
    floor, by_parameters, by_tokens, by_leverage = (float(one) for one in posterior.mean)
    factor = 1.0 + by_parameters
    exponent = sum(nats * falls for nats, falls in found.terms.parameters) / parameters
    # The loss of experts that are worth more or less, as a factor of the parameter term.
    worth = 1.0 + slope * by_leverage / (parameters * factor)
    equivalent = found.dense_equivalent_parameters
    known = shape.sparse & np.isfinite(equivalent)
    leverage = np.where(known, found.efficiency_leverage, 1.0)
    whole = np.where(known, np.maximum(shape.total_parameters / equivalent, 1.0), 1.0)
    least, most = whole**-exponent, np.maximum(leverage, 1.0) ** exponent
    held = np.where(known, np.clip(worth, least, most), worth)
    more = np.where(known, held ** (-1.0 / exponent), 1.0)
    terms = replace(
        found.terms,
        floor=found.terms.floor + floor,
        parameters=tuple((nats * (factor * held), falls) for nats, falls in found.terms.parameters),
        tokens=(found.terms.tokens[0] * (1.0 + by_tokens), found.terms.tokens[1]),
    )
    over = found.at_bound.get("equivalent_over_total", np.zeros(len(held), dtype=bool))
    return replace(
        found,
        terms=terms,
        dense_equivalent_parameters=equivalent * more,
        efficiency_leverage=found.efficiency_leverage * more,
        at_bound={**found.at_bound, "equivalent_over_total": over | (known & (worth < least))},
        predicted_loss=terms.loss,
        doubt=Doubt(columns, np.abs(_log_leverage(found)), posterior),
    )


def _along(columns: Columns, weights: Floats | list[Floats]) -> Floats:
    """(n,) sum of columns times weights, in their order."""
    total = columns[0] * weights[0]
    for column, weight in zip(columns[1:], list(weights)[1:], strict=True):
        total = total + column * weight
    return total
