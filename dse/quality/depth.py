"""How many parameters a too shallow or too deep model is worth.

The term belongs to every law. It acts on the parameters and not on the loss, so that the part of
the loss that no model removes is left alone. The runs behind it, and the fit: tools/fits/depth.py.
"""

from __future__ import annotations

import numpy as np

from dse.quality.law import Coefficient, Floats

BEST_WIDTH_PER_LAYER, BEST_WIDTH_PER_LAYER_EXPONENT = 3.97, 0.142
DEPTH_SHALLOW, DEPTH_DEEP = 0.118, 0.059

RUNS = "the 76 runs of Bian et al. 2025, arXiv 2501.18107: tools/fits/depth_evidence.csv"
SOURCE = (
    f"Depth: own fit to {RUNS}; best width per layer from the dense models of the catalog (fitted)."
)
COEFFICIENTS = (
    Coefficient(
        "depth: k shallow, k deep",
        "0.118 (0.113 to 0.126), 0.059 (0.036 to 0.139)",
        f"own fit to {RUNS}; 80% bootstrap intervals",
        "2026-11",
        "fitted",
    ),
    Coefficient(
        "depth: R*",
        "3.97 N^0.142",
        "widths and depths of the dense models of search_spaces/models.csv",
        "2026-11",
        "fitted",
    ),
)


def depth_factor(
    hidden_size: Floats,
    layers: Floats,
    active_non_embedding: Floats,
    shallow: Floats | float = DEPTH_SHALLOW,
    deep: Floats | float = DEPTH_DEEP,
) -> Floats:
    """(n,) factor on the parameters for being too shallow or too deep, 1 at the best shape.

    exp(-k ln(R / R*)^2) with R = hidden_size / layers, R* = 3.97 N^0.142, and k = 0.118 where
    R > R* (shallow), 0.059 where R < R* (deep).
    """
    best = BEST_WIDTH_PER_LAYER * active_non_embedding**BEST_WIDTH_PER_LAYER_EXPONENT
    distance = np.log(hidden_size / (layers * best))
    return np.exp(-np.where(distance > 0, shallow, deep) * distance * distance)
