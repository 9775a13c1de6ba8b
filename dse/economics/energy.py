"""Energy per token from power and throughput."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def joules_per_output_token(
    chips: Floats, watts_per_chip: Floats, output_tokens_per_s: Floats
) -> Floats:
    """(n,) joules: chips x watts per chip / output tokens per second over all chips.

    `watts_per_chip` is the power drawn for one chip (its share of host and cooling too where the
    figure includes them), NaN where the chip has no power figure; the result is then NaN, which
    the edge prints as null. Prefill energy is inside, since the throughput is that of the whole
    service.
    """
    return chips * watts_per_chip / output_tokens_per_s
