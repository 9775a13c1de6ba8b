"""The default law with less faith in experts: the leverage to the power of 0.8.

At frontier scale the leverage is extrapolated by five decades of compute; DeepSeek-V2 and several
pairs of a sparse and a dense model came out below it.
"""

from __future__ import annotations

from functools import partial

from dse.quality.law import Coefficient, Law
from dse.quality.laws import leverage

PHI = 0.8

LAW = Law(
    name="cautious",
    title="The default law with the efficiency leverage of experts to the power of 0.8; loss in "
    "nats per token",
    sources=(
        *leverage.LAW.sources,
        "The exponent 0.8 is assumed: what the leverage loses if a good part of its growth beyond "
        "the compute it was fitted on does not come.",
    ),
    fit_range=leverage.LAW.fit_range,
    not_seen=leverage.LAW.not_seen,
    coefficients=(
        Coefficient("exponent of the leverage", "0.8", "own choice", "2026-11", "assumed"),
        *leverage.LAW.coefficients,
    ),
    fit=leverage.FIT,
    bounds=leverage.BOUNDS,
    predict=partial(
        leverage.predict_with, name="cautious", dense=leverage.dense, fit=leverage.FIT, phi=PHI
    ),
    dense=leverage.dense,
)
