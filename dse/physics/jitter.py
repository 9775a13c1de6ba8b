"""Jitter: a collective waits for the slowest of its participants.

Each participant is late by a random, never negative, independent delay of a given mean; the
collective takes longer by the expected maximum of n of them. With F the distribution of one delay
over its mean:

    exponential  H_n, the n-th harmonic number (exact); grows with ln n
    normal       a half-normal delay: F^-1(1 - q), q = e^-gamma (1 + 1.07 / (ln n + 4.38)) /
                 (n + c), the quantile near which the expected maximum of a tail of Gumbel's type
                 lies. c makes n = 1 exact, the two other numbers are fitted to the integral: within
                 0.6% of it from 1 to 10^6 participants (test_jitter.py). Grows with sqrt(ln n)
    pareto       a Lomax tail of shape 3, whose variance is finite: 2 (G(n + 1) G(2/3) / G(n + 2/3)
                 - 1), G the gamma function (exact; David and Nagaraja, Order Statistics, 2003,
                 section 2.1: a beta integral). Grows with n^(1/3)

A system states the mean and the distribution of each of its levels; no percentile of any
collective was found published, so both are inputs, 0 by default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dse.errors import InputError
from dse.physics.machines import Machines
from dse.schema.loader import did_you_mean
from dse.schema.system import DISTRIBUTIONS
from dse.space.candidates import Floats

PARETO_SHAPE = 3.0
_GUMBEL = float(np.exp(-np.euler_gamma))
_FITTED = (1.07, 4.38)


def _exponential(n: Floats) -> Floats:
    from scipy.special import digamma  # noqa: PLC0415

    return digamma(n + 1.0) + np.euler_gamma


def _normal(n: Floats) -> Floats:
    from statistics import NormalDist  # noqa: PLC0415 - SciPy's takes 150 ms to start

    # So that at n = 1 the quantile is the mean.
    c = _GUMBEL * (1.0 + _FITTED[0] / _FITTED[1]) / math.erfc(1.0 / math.sqrt(math.pi)) - 1.0
    beyond = _GUMBEL * (1.0 + _FITTED[0] / (np.log(n) + _FITTED[1])) / (n + c)
    few, place = np.unique(beyond / 2.0, return_inverse=True)  # group sizes: a handful
    below = NormalDist().inv_cdf
    return -np.array([below(tail) for tail in few.tolist()])[place] * np.sqrt(np.pi / 2.0)


def _pareto(n: Floats) -> Floats:
    from scipy.special import gammaln  # noqa: PLC0415

    rest = 1.0 - 1.0 / PARETO_SHAPE
    growth = np.exp(gammaln(n + 1.0) + gammaln(rest) - gammaln(n + rest))
    return (PARETO_SHAPE - 1.0) * (growth - 1.0)


_MAXIMUM: dict[str, Callable[[Floats], Floats]] = {
    "exponential": _exponential,
    "normal": _normal,
    "pareto": _pareto,
}


def expected_maximum(distribution: str, n: Floats) -> Floats:
    """(n,) expected maximum of so many delays over the mean of one; 1 for one participant. `n` may
    be any real number from 1."""
    return _MAXIMUM[distribution](n)


def wait_s(jitter_s: Floats, distribution: Floats, n: Floats) -> Floats:
    """(n,) seconds that a collective of `n` participants waits for its slowest; `distribution`
    holds places in DISTRIBUTIONS."""
    seconds = np.zeros(len(n))
    for code, name in enumerate(DISTRIBUTIONS):
        mean = np.where(distribution == code, jitter_s, 0.0)
        if mean.any():
            seconds = seconds + mean * expected_maximum(name, n)
    return seconds


def with_jitter(
    machines: Machines, seconds: float, distribution: str = DISTRIBUTIONS[0]
) -> Machines:
    """The machines with delays of mean `seconds` on every level of their fabric, in place of what
    their systems state. Raises InputError for a distribution that does not exist or a negative
    mean."""
    if distribution not in DISTRIBUTIONS:
        raise InputError(
            f"unknown distribution {distribution!r}{did_you_mean(distribution, DISTRIBUTIONS)}",
            field="jitter_distribution",
            accepted=", ".join(DISTRIBUTIONS),
        )
    if not 0.0 <= seconds < np.inf:
        raise InputError(f"read {seconds}", field="jitter", accepted="0 s or more, such as 10 us")
    chips = len(machines.ids)
    means = np.full(chips, float(seconds))
    codes = np.full(chips, float(DISTRIBUTIONS.index(distribution)))
    fabric = machines.fabric
    networks = tuple(replace(one, jitter_s=means, distribution=codes) for one in fabric.networks)
    return replace(
        machines,
        fabric=replace(fabric, jitter_s=means, distribution=codes, networks=networks),
    )
