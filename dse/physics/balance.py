"""Whole numbers of prefill and of decode workers whose rates fit together.

Decode workers that take D prompts a second each, of which a prefill worker brings at most M, need
a prefill workers for b of them with a M >= b D, or a / b >= D / M. Chips and dollars a request grow
with a / b alone, so the least waste is the smallest fraction a / b that is not below D / M and
whose a x (chips of a prefill worker) + b x (chips of a decode worker) are allowed.

The fraction is found on the Stern-Brocot tree, without trying numbers: between neighbours
p / q < D / M <= a / b (a q - p b = 1) every fraction has the form (x a + y p) / (x b + y q) with
whole x and y, and the one with the fewest chips is the mediant (x = y = 1). Where the mediant is
not below D / M it is the better upper neighbour, else it is the better lower one; runs of moves to
one side are one step, so that the steps are those of Euclid's algorithm, O(log of the chips). The
search ends where the mediant takes too many chips: all fractions between take more; or with the
first fraction that wastes no more than TOLERANCE of the chips of pools that fit exactly, which has
the fewest workers of either pool of all that do: the tree lists the simplest first.

Of a system that is paid whole, chips that are left over would be paid too: `fill` leaves none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.space.candidates import Floats

MOST_STEPS = 64  # of Euclid's algorithm: more than numbers below 2^40 take
MOST_WORKERS = 1e6
TOLERANCE = 0.005


def balance(
    ratio: Floats, prefill_chips: Floats, decode_chips: Floats, chips: Floats
) -> tuple[Floats, Floats]:
    """(a, b), (n,) whole numbers: the fewest whose a / b is not below `ratio` (D / M above, more
    than 0) and that waste no more than TOLERANCE, with a x `prefill_chips` + b x `decode_chips` at
    most `chips`; where all that few waste more, the smallest a / b, in lowest terms. Where none is
    that small, the pair of fewest chips, which takes more than `chips`."""
    ratio = np.minimum(ratio, MOST_WORKERS)
    near = ratio + TOLERANCE * (ratio + decode_chips / prefill_chips)
    a, b = np.maximum(np.ceil(ratio), 1.0), np.ones(len(ratio))
    p, q = a - 1.0, np.ones(len(ratio))
    for _ in range(MOST_STEPS):
        above, below = a - ratio * b, ratio * q - p
        left = chips - (a * prefill_chips + b * decode_chips)
        more = p * prefill_chips + q * decode_chips
        # Down by as many lower neighbours as the ratio and the chips allow; the quotient is
        # rounded: one more or one less may be right.
        enough = np.maximum(np.ceil((a - near * b) / (near * q - p)), 0.0)
        steps = np.maximum(np.floor(np.minimum(above / below, left / more)), 0.0)
        steps = np.minimum(steps, enough)
        next_fits = (steps + 1.0) * more <= left
        further = next_fits & (steps < enough)
        steps = steps + (further & _reaches(a, p, b, q, steps + 1.0, ratio))
        steps = steps - ((steps > 0.0) & ~_reaches(a, p, b, q, steps, ratio))
        a, b = a + steps * p, b + steps * q
        above = a - ratio * b
        # Up by as many upper neighbours as stay below the ratio; none is needed where it is met.
        rise = np.maximum(np.ceil(below / np.where(above > 0.0, above, np.inf)) - 1.0, 0.0)
        rise = rise + ~_reaches(p, a, q, b, rise + 1.0, ratio)
        rise = rise - ((rise > 0.0) & _reaches(p, a, q, b, rise, ratio))
        risen_p, risen_q = p + rise * a, q + rise * b
        fits = (a + risen_p) * prefill_chips + (b + risen_q) * decode_chips <= chips
        moved = fits & (a > near * b) & ((rise > 0.0) | (steps > 0.0))
        if not moved.any():
            break
        p, q = np.where(moved, risen_p, p), np.where(moved, risen_q, q)
    return a, b


def fill(
    ratio: Floats, prefill_chips: Floats, decode_chips: Floats, chips: Floats
) -> tuple[Floats, Floats]:
    """(a, b), (n,) whole numbers that take all `chips`, with a / b not below `ratio` and b the
    largest: chips that decode leaves over prefill. Where none do, the pair of fewest workers."""
    ratio = np.minimum(ratio, MOST_WORKERS)
    a, b = np.maximum(np.ceil(ratio), 1.0), np.ones(len(ratio))
    tried = np.floor(chips / (ratio * prefill_chips + decode_chips))
    rows = np.flatnonzero(tried >= 1.0)
    while len(rows):
        left = (chips - tried * decode_chips)[rows] / prefill_chips[rows]
        fits = (left == np.floor(left)) & (left >= np.maximum(ratio[rows] * tried[rows], 1.0))
        a[rows[fits]], b[rows[fits]] = left[fits], tried[rows[fits]]
        tried[rows] -= 1.0
        rows = rows[~fits & (tried[rows] >= 1.0)]
    return a, b


def _reaches(
    a: Floats, more_a: Floats, b: Floats, more_b: Floats, times: Floats, ratio: Floats
) -> NDArray[np.bool_]:
    """(n,) whether (a + times more_a) / (b + times more_b) is not below `ratio`."""
    return a + times * more_a >= ratio * (b + times * more_b)
