"""Predicted loss from a shape and its training tokens.

A sparse model is turned into the dense model of equal quality, and the dense law gives the loss:

    N_eq = N EL S_depth + 32000 d         N: active parameters without embeddings
    L    = 1.8172 + 482.01 / N_eq^0.3478 + 2085.43 / D^0.3658

Every array has shape (n,): parameters, tokens and FLOP are counts, loss is in nats per token. NaN
tokens give a NaN loss. Sources and ranges: `dse.quality.fit_range`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dse.quality.fit_range import BOUNDS, FIT, Flags, Floats

# Efficiency leverage: Tian et al. 2025 (arXiv 2507.17702), equation 13, coefficients of Table 2.
# Their saturation 1/A' = 1/(A + c) + 1/A_max with c = 1/(1/A_start - 1/A_max), A_start 1.63e-2 and
# A_max 5.28e16, is A + A_start to the last bit of a double.
EL_CONSTANT = 1.23
EL_COMPUTE = -7.61e-2
EL_GRANULARITY = -1.17e-1
EL_GRANULARITY_SQUARED = 1.67e-2
EL_RATIO_OFFSET = 1.63e-2

# Dense law: Besiroglu et al. 2024 (arXiv 2404.10102), a re-fit of Hoffmann et al. 2022.
LOSS_FLOOR = 1.8172
LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT = 482.01, 0.3478
LOSS_TOKENS, LOSS_TOKENS_EXPONENT = 2085.43, 0.3658
# The dense law counts embeddings of a 32,000-word vocabulary; every model gets that one, so that a
# large vocabulary earns nothing (assumed).
VOCABULARY = 32_000

# Depth: own fit to 76 public runs (bootstrap 80% intervals .135-.150 shallow, -.006-.073 deep).
BEST_WIDTH_PER_LAYER, BEST_WIDTH_PER_LAYER_EXPONENT = 3.81, 0.144
DEPTH_SHALLOW, DEPTH_DEEP = 0.141, 0.033

# Post-training quantisation: Kumar et al. 2024 (arXiv 2411.04330), without their offsets.
PTQ_SCALE, PTQ_TOKENS, PTQ_PARAMETERS, PTQ_BITS = 0.0598, 0.5068, 0.3439, 0.5907
PTQ_FREE_BITS = 7


@dataclass(frozen=True, slots=True)
class Quality:
    """Predictions of n candidates, and how far each stands from the data behind them.

    `at_bound[name]` is True where the law holds that quantity at the end of its range
    (`fit_range.BOUNDS`), `extrapolates[name]` where it lies outside what the law was fitted on
    (`fit_range.FIT`). All arrays have shape (n,).
    """

    dense_equivalent_parameters: Floats
    predicted_loss: Floats
    efficiency_leverage: Floats
    at_bound: Mapping[str, Flags]
    extrapolates: Mapping[str, Flags]


def training_flops(active_parameters: Floats, training_tokens: Floats) -> Floats:
    """(n,) FLOP of training, C = 6 N D (Kaplan et al. 2020, arXiv 2001.08361)."""
    return 6.0 * active_parameters * training_tokens


def tokens_at_compute(training_flops: Floats, active_parameters: Floats) -> Floats:
    """(n,) training tokens that a compute budget pays for, D = C / (6 N)."""
    return training_flops / (6.0 * active_parameters)


def efficiency_leverage(
    activation_ratio: Floats, granularity: Floats, training_flops: Floats
) -> Floats:
    """(n,) compute a dense model needs for the same loss, over the sparse model's; 1 or more.

    EL = (A + 0.0163)^(1.23 - 0.0761 log10 C - 0.117 log2 G + 0.0167 (log2 G)^2), with A, G and C
    held inside `fit_range.BOUNDS`. `activation_ratio`: (k + s) / (E + s) for k of E routed experts
    and a shared width of s experts; `granularity`: 2 hidden_size / expert width; `training_flops`:
    6 N D without embeddings. Tian et al. 2025, equation 13.
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
    leverage = np.exp(exponent * np.log(ratio + EL_RATIO_OFFSET))
    return np.maximum(leverage, BOUNDS["efficiency_leverage"].low)


def depth_factor(hidden_size: Floats, layers: Floats, active_non_embedding: Floats) -> Floats:
    """(n,) factor on the parameters for being too shallow or too deep, 1 at the best shape.

    exp(-k ln(R / R*)^2) with R = hidden_size / layers, R* = 3.81 N^0.144, and k = 0.141 where
    R > R* (shallow), 0.033 where R < R* (deep).
    """
    best = BEST_WIDTH_PER_LAYER * active_non_embedding**BEST_WIDTH_PER_LAYER_EXPONENT
    distance = np.log(hidden_size / (layers * best))
    return np.exp(-np.where(distance > 0, DEPTH_SHALLOW, DEPTH_DEEP) * distance * distance)


def dense_equivalent_parameters(
    hidden_size: Floats, layers: Floats, active_non_embedding: Floats, leverage: Floats
) -> Floats:
    """(n,) parameters of the dense model of equal quality, a 32k vocabulary included.

    `leverage` is `efficiency_leverage(...)`, 1 for a dense model.
    """
    factor = leverage * depth_factor(hidden_size, layers, active_non_embedding)
    return active_non_embedding * factor + VOCABULARY * hidden_size


def predicted_loss(dense_equivalent: Floats, training_tokens: Floats) -> Floats:
    """(n,) nats per token: E + A / N^a + B / D^b (Besiroglu et al. 2024)."""
    return (
        LOSS_FLOOR
        + LOSS_PARAMETERS * dense_equivalent**-LOSS_PARAMETERS_EXPONENT
        + LOSS_TOKENS * training_tokens**-LOSS_TOKENS_EXPONENT
    )


def quantisation_penalty(bits: Floats, training_tokens: Floats, parameters: Floats) -> Floats:
    """(n,) nats added by quantising weights after training; 0 at 7 bits and above.

    0.0598 D^0.5068 / N^0.3439 exp(-bits / 0.5907) (Kumar et al. 2024). `bits` are those of the
    element, 4 for every 4-bit format: block scales are not precision. `parameters` is the model's
    size, dense-equivalent for a sparse one (assumed). A model trained in the low precision pays
    nothing and is not a case for this function. Fitted on integer formats, models of 30M to 220M
    (checked at 1.7B) and up to 26B tokens; everything larger is an extrapolation.
    """
    overtraining = training_tokens**PTQ_TOKENS * parameters**-PTQ_PARAMETERS
    penalty = PTQ_SCALE * overtraining * np.exp(-bits / PTQ_BITS)
    return np.where(bits < PTQ_FREE_BITS, penalty, 0.0)


def quality(
    hidden_size: Floats,
    layers: Floats,
    active_non_embedding: Floats,
    *,
    experts: Floats,
    experts_per_token: Floats,
    shared_width_ratio: Floats,
    expert_intermediate_size: Floats,
    training_tokens: Floats,
    total_parameters: Floats | None = None,
) -> Quality:
    """Dense-equivalent parameters and loss of n shapes; a dense one has `experts` 0.

    `shared_width_ratio` is the shared experts' total width over one routed expert's. The expert
    fields of a dense candidate are not read. `total_parameters` only serves the flag of the same
    name, which is absent without it.
    """
    sparse = experts > 0
    shared = np.where(sparse, shared_width_ratio, 0.0)
    ratio = np.where(sparse, experts_per_token + shared, 1.0) / np.where(
        sparse, experts + shared, 1.0
    )
    granularity = 2.0 * hidden_size / np.where(sparse, expert_intermediate_size, hidden_size)
    flops = training_flops(active_non_embedding, training_tokens)
    leverage = np.where(sparse, efficiency_leverage(ratio, granularity, flops), 1.0)
    equivalent = dense_equivalent_parameters(hidden_size, layers, active_non_embedding, leverage)
    of_experts = {
        "activation_ratio": ratio,
        "granularity": granularity,
        "training_flops": flops,
    }
    at_bound = {name: sparse & BOUNDS[name].excludes(value) for name, value in of_experts.items()}
    at_bound["efficiency_leverage"] = sparse & (leverage == BOUNDS["efficiency_leverage"].low)
    if total_parameters is not None:
        of_experts["total_parameters"] = total_parameters
    extrapolates = {name: sparse & FIT[name].excludes(value) for name, value in of_experts.items()}
    extrapolates["dense_equivalent_parameters"] = FIT["dense_equivalent_parameters"].excludes(
        equivalent
    )
    extrapolates["training_tokens"] = FIT["training_tokens"].excludes(training_tokens)
    return Quality(
        dense_equivalent_parameters=equivalent,
        predicted_loss=predicted_loss(equivalent, training_tokens),
        efficiency_leverage=leverage,
        at_bound=at_bound,
        extrapolates=extrapolates,
    )
