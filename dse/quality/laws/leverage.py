"""The default law: experts as a lever on the parameters, then the Epoch re-fit of Chinchilla.

A sparse model is turned into the dense model of equal quality, and the dense law gives the loss:

    N_eq = N EL S_depth + 32000 d         N: active parameters without embeddings
    L    = 1.8172 + 482.01 / N_eq^0.3478 + 2085.43 / D^0.3658
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf

import numpy as np

from dse.quality import depth, quantisation
from dse.quality.depth import depth_factor
from dse.quality.law import Coefficient, Law, Quality, Range, Terms
from dse.quality.shape import VOCABULARY, Floats, Shape

TIAN = "Tian et al. 2025, arXiv 2507.17702"
BESIROGLU = "Besiroglu et al. 2024, arXiv 2404.10102"

# Efficiency leverage: equation 13, coefficients of Table 2. The saturation of the paper,
# 1/A' = 1/(A + c) + 1/A_max with c = 1/(1/A_start - 1/A_max), A_start 1.63e-2 and A_max 5.28e16, is
# A + A_start to the last bit of a double.
EL_CONSTANT = 1.23
EL_COMPUTE = -7.61e-2
EL_GRANULARITY = -1.17e-1
EL_GRANULARITY_SQUARED = 1.67e-2
EL_RATIO_OFFSET = 1.63e-2

# Dense law: a re-fit of Hoffmann et al. 2022, of 240 of their training runs.
LOSS_FLOOR = 1.8172
LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT = 482.01, 0.3478
LOSS_TOKENS, LOSS_TOKENS_EXPONENT = 2085.43, 0.3658

# The law itself holds these at their ends; they apply to sparse models only.
BOUNDS: Mapping[str, Range] = {
    "activation_ratio": Range(0.008, 1.0, f"fit range of {TIAN}"),
    "granularity": Range(1.0, 16.0, f"fit range of {TIAN}, one octave added below (assumed)"),
    "training_flops": Range(0.0, 1e26, "assumed: end of the extrapolation in training compute"),
    "efficiency_leverage": Range(1.0, inf, "assumed: experts never make a model worse"),
}

# Where the leverage has seen data, sparse models only.
EXPERTS: Mapping[str, Range] = {
    "activation_ratio": Range(0.008, 1.0, TIAN),
    "granularity": Range(2.0, 16.0, TIAN),
    "training_flops": Range(1e18, 3e20, TIAN),
    "total_parameters": Range(0.0, 28e9, TIAN),
}
FIT: Mapping[str, Range] = {
    **EXPERTS,
    "dense_equivalent_parameters": Range(57e6, 16.2e9, BESIROGLU),
    "training_tokens": Range(0.82e9, 318e9, BESIROGLU),
}

EXPERTS_SOURCE = (
    f"Experts: {TIAN}, equation 13 and Table 2 (fitted); the log bases, log10 for compute and "
    "log2 for granularity, are derived: the only ones that give the paper's own numbers."
)
EXPERTS_FIT = (
    "Experts: 1e18 to 3e20 training FLOP, activation ratio 0.8% to 100%, granularity 2 to 16, "
    "up to 28B total parameters, one shared expert, trained on more than 3 times the optimal "
    "tokens."
)
UNCERTAIN = (
    "At frontier scale the efficiency leverage is uncertain by a factor of about 2: "
    "DeepSeek-V2 is predicted level with a dense 175B and scored below Llama-3-70B."
)
HELD = (
    "Held at the ends of its range: activation ratio at 0.8%, granularity at 1 and 16, "
    "training compute at 1e26 FLOP, efficiency leverage at 1 or more."
)
NOT_SEEN = (
    "Data quality, tokenizer, distillation, post-training and reinforcement learning.",
    "The attention type, head counts, sliding windows and linear attention.",
    "The ratio of feed-forward to attention parameters, and where dense layers sit among "
    "sparse ones.",
)
COEFFICIENTS = (
    Coefficient(
        "leverage: constant, compute, granularity, its square, ratio offset",
        "1.23, -7.61e-2, -1.17e-1, 1.67e-2, 1.63e-2",
        f"{TIAN}, equation 13 and Table 2",
        "2025-07",
        "fitted",
    ),
    Coefficient(
        "log10 for compute, log2 for granularity",
        "",
        "the only bases that give the paper's 7x at A 3.1%, G 12, 1e22 FLOP and its best "
        "granularity of about 12",
        "2026-11",
        "derived",
    ),
    Coefficient(
        "embeddings of a 32,000-word vocabulary for all",
        "32000 d",
        "so that a large vocabulary earns nothing",
        "2026-11",
        "assumed",
    ),
)


def efficiency_leverage(
    activation_ratio: Floats, granularity: Floats, training_flops: Floats
) -> Floats:
    """(n,) compute a dense model needs for the same loss, over the sparse model's; 1 or more.

    EL = (A + 0.0163)^(1.23 - 0.0761 log10 C - 0.117 log2 G + 0.0167 (log2 G)^2), with A, G and C
    held inside `BOUNDS`. `activation_ratio`: (k + s) / (E + s) for k of E routed experts and a
    shared width of s experts; `granularity`: 2 hidden_size / expert width; `training_flops`: 6 N D
    without embeddings. Tian et al. 2025, equation 13.
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


def dense_equivalent_parameters(
    hidden_size: Floats, layers: Floats, active_non_embedding: Floats, leverage: Floats
) -> Floats:
    """(n,) parameters of the dense model of equal quality, a 32k vocabulary included.

    `leverage` is `efficiency_leverage(...)`, 1 for a dense model.
    """
    factor = leverage * depth_factor(hidden_size, layers, active_non_embedding)
    return active_non_embedding * factor + VOCABULARY * hidden_size


def equivalent_of(shape: Shape) -> Floats:
    """(n,) `dense_equivalent_parameters` of shapes."""
    leverage = efficiency_leverage(shape.activation_ratio, shape.granularity, shape.training_flops)
    leverage = np.where(shape.sparse, leverage, 1.0)
    return dense_equivalent_parameters(
        shape.hidden_size, shape.layers, shape.active_non_embedding, leverage
    )


def dense(parameters: Floats, training_tokens: Floats) -> Terms:
    """E + A / N^a + B / D^b, N with the embeddings of a 32k vocabulary (Besiroglu et al. 2024)."""
    return Terms(
        LOSS_FLOOR,
        (
            (
                LOSS_PARAMETERS * parameters**-LOSS_PARAMETERS_EXPONENT,
                LOSS_PARAMETERS_EXPONENT,
            ),
        ),
        (LOSS_TOKENS * training_tokens**-LOSS_TOKENS_EXPONENT, LOSS_TOKENS_EXPONENT),
    )


def predict_with(
    shape: Shape,
    *,
    name: str,
    dense: Callable[[Floats, Floats], Terms],
    fit: Mapping[str, Range],
    phi: float = 1.0,
) -> Quality:
    """The leverage, to the power of `phi`, in front of any law of dense models."""
    sparse, ratio = shape.sparse, shape.activation_ratio
    granularity, flops, tokens = shape.granularity, shape.training_flops, shape.training_tokens
    leverage = efficiency_leverage(ratio, granularity, flops)
    if phi != 1.0:
        leverage = leverage**phi
    leverage = np.where(sparse, leverage, 1.0)
    equivalent = dense_equivalent_parameters(
        shape.hidden_size, shape.layers, shape.active_non_embedding, leverage
    )
    of_experts = {
        "activation_ratio": ratio,
        "granularity": granularity,
        "training_flops": flops,
    }
    at_bound = {key: sparse & BOUNDS[key].excludes(value) for key, value in of_experts.items()}
    at_bound["efficiency_leverage"] = sparse & (leverage == BOUNDS["efficiency_leverage"].low)
    if shape.total_parameters is not None:
        of_experts["total_parameters"] = shape.total_parameters
    extrapolates = {key: sparse & fit[key].excludes(value) for key, value in of_experts.items()}
    extrapolates["dense_equivalent_parameters"] = fit["dense_equivalent_parameters"].excludes(
        equivalent
    )
    extrapolates["training_tokens"] = fit["training_tokens"].excludes(tokens)
    terms = dense(equivalent, tokens)
    return Quality(
        law=name,
        terms=terms,
        dense_equivalent_parameters=equivalent,
        efficiency_leverage=leverage,
        quantised_parameters=equivalent,
        at_bound=at_bound,
        extrapolates=extrapolates,
        predicted_loss=terms.loss,
    )


LAW = Law(
    name="leverage",
    title="Dense-equivalent parameters (efficiency leverage of experts), then the Epoch re-fit of "
    "the Chinchilla law; loss in nats per token",
    sources=(
        EXPERTS_SOURCE,
        f"Dense loss: {BESIROGLU} (fitted).",
        depth.SOURCE,
        quantisation.SOURCE,
    ),
    fit_range=(
        EXPERTS_FIT,
        "Dense loss: 57M to 16.2B parameters, 0.82B to 318B training tokens.",
        UNCERTAIN,
        HELD,
    ),
    not_seen=NOT_SEEN,
    coefficients=(
        Coefficient(
            "dense loss: E, A, a, B, b",
            "1.8172, 482.01, 0.3478, 2085.43, 0.3658",
            BESIROGLU,
            "2024-04",
            "fitted",
        ),
        *COEFFICIENTS,
    ),
    fit=FIT,
    bounds=BOUNDS,
    predict=partial(predict_with, name="leverage", dense=dense, fit=FIT),
    dense=dense,
)
