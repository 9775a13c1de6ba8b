"""Jitter: a collective waits for the slowest of its participants.

Each participant is late by a random, never negative, independent delay of a given mean; the
collective takes longer by the expected maximum of n of them. Over the mean of one delay that is

    exponential  H_n, the n-th harmonic number (exact); grows with ln n: a chip in a collective
    half-normal  F^-1(1 - q), q = e^-gamma (1 + 1.07 / (ln n + 4.38)) / (n + c), the quantile near
                 which the expected maximum of a tail of Gumbel's type lies. c makes n = 1 exact,
                 the two other numbers are fitted to the integral: within 0.6% of it from 1 to 10^6
                 participants (test_jitter.py). Grows with sqrt(ln n): a rank in a training step

No percentile of any collective was found published, so the mean is an input, 0 by default.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dse.errors import InputError
from dse.physics.machines import Machines
from dse.space.candidates import Floats

_GUMBEL = float(np.exp(-np.euler_gamma))
_FITTED = (1.07, 4.38)


def expected_maximum(n: Floats) -> Floats:
    """(n,) expected maximum of so many exponential delays over the mean of one; 1 for one
    participant. `n` may be any real number from 1."""
    from scipy.special import digamma  # noqa: PLC0415

    return digamma(n + 1.0) + np.euler_gamma


def expected_half_normal_maximum(n: Floats) -> Floats:
    """(n,) the same of half-normal delays."""
    from statistics import NormalDist  # noqa: PLC0415 - SciPy's takes 150 ms to start

    # So that at n = 1 the quantile is the mean.
    c = _GUMBEL * (1.0 + _FITTED[0] / _FITTED[1]) / math.erfc(1.0 / math.sqrt(math.pi)) - 1.0
    beyond = _GUMBEL * (1.0 + _FITTED[0] / (np.log(n) + _FITTED[1])) / (n + c)
    few, place = np.unique(beyond / 2.0, return_inverse=True)  # group sizes: a handful
    below = NormalDist().inv_cdf
    return -np.array([below(tail) for tail in few.tolist()])[place] * np.sqrt(np.pi / 2.0)


def wait_s(jitter_s: Floats, n: Floats) -> Floats:
    """(n,) seconds that a collective of `n` participants waits for its slowest."""
    return jitter_s * expected_maximum(n) if jitter_s.any() else np.zeros(len(n))


def with_jitter(machines: Machines, seconds: float) -> Machines:
    """The machines with delays of mean `seconds` on every level of their fabric, in place of what
    their systems state. Raises InputError for a negative mean."""
    if not 0.0 <= seconds < np.inf:
        raise InputError(f"read {seconds}", field="jitter", accepted="0 s or more, such as 10 us")
    means = np.full(len(machines.ids), float(seconds))
    fabric = machines.fabric
    networks = tuple(replace(one, jitter_s=means) for one in fabric.networks)
    return replace(machines, fabric=replace(fabric, jitter_s=means, networks=networks))
