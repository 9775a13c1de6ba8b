"""How many parameters a too shallow or too deep model is worth.

The term belongs to every law. It acts on the parameters and not on the loss, so that the part of
the loss that no model removes is left alone; on the 76 public runs it was fitted to, that form was
the best (rms 0.24% of the loss, as a factor on the loss 0.30%, without a depth term 1.0%).
"""

from __future__ import annotations

import numpy as np

from dse.quality.law import Coefficient
from dse.quality.shape import Floats

# Own fit to 76 public runs (bootstrap 80% intervals .135-.150 shallow, -.006-.073 deep).
BEST_WIDTH_PER_LAYER, BEST_WIDTH_PER_LAYER_EXPONENT = 3.81, 0.144
DEPTH_SHALLOW, DEPTH_DEEP = 0.141, 0.033

SOURCE = (
    "Depth: own fit to 76 public training runs, best width per layer from published models "
    "(fitted)."
)
COEFFICIENTS = (
    Coefficient(
        "depth: k shallow, k deep",
        "0.141 (0.135 to 0.150), 0.033 (-0.006 to 0.073)",
        "own fit to 76 public training runs; 80% bootstrap intervals",
        "2026-11",
        "fitted",
    ),
    Coefficient(
        "depth: R*", "3.81 N^0.144", "widths and depths of published models", "2026-11", "fitted"
    ),
)


def depth_factor(hidden_size: Floats, layers: Floats, active_non_embedding: Floats) -> Floats:
    """(n,) factor on the parameters for being too shallow or too deep, 1 at the best shape.

    exp(-k ln(R / R*)^2) with R = hidden_size / layers, R* = 3.81 N^0.144, and k = 0.141 where
    R > R* (shallow), 0.033 where R < R* (deep).
    """
    best = BEST_WIDTH_PER_LAYER * active_non_embedding**BEST_WIDTH_PER_LAYER_EXPONENT
    distance = np.log(hidden_size / (layers * best))
    return np.exp(-np.where(distance > 0, DEPTH_SHALLOW, DEPTH_DEEP) * distance * distance)
