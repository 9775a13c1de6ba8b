"""Synchronous ranks wait for the slowest of them. Every array is (n,).

Each of n ranks takes its step and a delay, of mean `straggler` x step, independent of the others'
and new in every step; all wait for the expected maximum of the delays of half-normal delays
(`dse.physics.jitter`). The mean delay of one rank is part of it.
"""

from __future__ import annotations

from dse.physics.jitter import expected_half_normal_maximum
from dse.space.candidates import Floats


def straggler_s(step_s: Floats, ranks: Floats, straggler: Floats | float) -> Floats:
    """(n,) seconds that a step of `step_s` waits for the slowest of `ranks`, whose mean delay is
    the share `straggler` of the step; 0 where it is 0."""
    return step_s * straggler * expected_half_normal_maximum(ranks)
