"""The default law with less faith in experts: the leverage to the power of 0.8.

At frontier scale the leverage is extrapolated by five decades of compute; DeepSeek-V2 and several
pairs of a sparse and a dense model came out below it.
"""

from __future__ import annotations

from functools import partial

from dse.quality.laws import leverage
from dse.quality.published import law_of

PHI = 0.8

LAW = law_of(
    "cautious",
    fit=leverage.FIT,
    bounds=leverage.BOUNDS,
    predict=partial(
        leverage.predict_with, name="cautious", dense=leverage.dense, fit=leverage.FIT, phi=PHI
    ),
    dense=leverage.dense,
)
