"""The leverage of Tian et al. as published: on all parameters that a token meets.

    N_eq = N EL S_depth + 32000 d
    EL   = (A + 0.0163)^(1.23 - 0.0761 log10 C - 0.117 log2 G + 0.0167 (log2 G)^2)

It sees the ratio of experts and their granularity, not how much of a model is experts: a model with
slivers of experts gains as much from them as one that consists of experts. It is held where its
dense equivalent would exceed the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np

from dse.quality.law import WHOLE, Floats, Quality, Range, Shape
from dse.quality.laws import leverage
from dse.quality.laws.leverage import TIAN
from dse.quality.published import law_of

# Equation 13, coefficients of Table 2. The saturation of the paper, 1/A' = 1/(A + c) + 1/A_max with
# c = 1/(1/A_start - 1/A_max), A_start 1.63e-2 and A_max 5.28e16, is A + A_start to the last bit of
# a double.
EL_CONSTANT = 1.23
EL_COMPUTE = -7.61e-2
EL_GRANULARITY = -1.17e-1
EL_GRANULARITY_SQUARED = 1.67e-2
EL_RATIO_OFFSET = 1.63e-2

BOUNDS: Mapping[str, Range] = {
    "activation_ratio": Range(0.008, 1.0, f"fit range of {TIAN}"),
    "granularity": Range(1.0, 16.0, f"fit range of {TIAN}, one octave added below (assumed)"),
    "training_flops": Range(0.0, 1e26, "assumed: end of the extrapolation in training compute"),
    "efficiency_leverage": Range(1.0, inf, "assumed: experts never make a model worse"),
    **WHOLE,
}


def efficiency_leverage(
    activation_ratio: Floats, granularity: Floats, training_flops: Floats
) -> Floats:
    """(n,) compute a dense model needs for the same loss, over the sparse model's; 1 or more.

    A, G and C are held inside `BOUNDS`; they are those of `dse.quality.law.Shape`.
    """
    ratio = np.maximum(activation_ratio, BOUNDS["activation_ratio"].low)
    bounds = BOUNDS["granularity"]
    octaves = np.log2(np.clip(granularity, bounds.low, bounds.high))
    decades = np.log10(np.minimum(training_flops, BOUNDS["training_flops"].high))
    exponent = (
        EL_CONSTANT
        + EL_COMPUTE * decades
        + (EL_GRANULARITY + EL_GRANULARITY_SQUARED * octaves) * octaves
    )
    found = np.exp(exponent * np.log(ratio + EL_RATIO_OFFSET))
    return np.maximum(found, BOUNDS["efficiency_leverage"].low)


def predict(shape: Shape) -> Quality:
    held = {
        "activation_ratio": shape.activation_ratio,
        "granularity": shape.granularity,
        "training_flops": shape.training_flops,
    }
    at_bound = {key: shape.sparse & BOUNDS[key].excludes(value) for key, value in held.items()}
    found = efficiency_leverage(**held)
    at_bound["efficiency_leverage"] = shape.sparse & (found == BOUNDS["efficiency_leverage"].low)
    most = (shape.total_parameters - shape.embedding_parameters) / shape.active_non_embedding
    at_bound["equivalent_over_total"] = shape.sparse & (found > most)
    of_all = np.where(shape.sparse, np.minimum(found, np.maximum(most, 1.0)), 1.0)
    return leverage.quality_of(shape, of_all, "tian", leverage.dense, leverage.FIT, at_bound)


LAW = law_of("tian", fit=leverage.FIT, bounds=BOUNDS, predict=predict, dense=leverage.dense)
