"""The default law: experts as a lever on the parameters in experts, then the Epoch re-fit of
Chinchilla.

A sparse model is turned into the dense model of equal quality, and the dense law gives the loss:

    N_eq = (N_rest + N_experts EL) S_depth + 32000 d     N: active parameters without embeddings
    EL   = ((A + c) / (1 + c))^-x,  0 <= x <= 1
    x    = x0 + 0.0761 log10(C / 1e21) - (g(G) - g(8)),  g(G) = -0.117 log2 G + 0.0167 (log2 G)^2
    L    = 1.8172 + 482.01 / N_eq^0.3478 + 2085.43 / D^0.3658

How the leverage grows with compute and granularity is that of Tian et al. 2025. They put it on all
parameters of a model, of which 30 to 40% were attention; here it acts on experts alone, so that a
model with slivers of experts gains nothing from their number. x of 1 or less keeps the experts
below what they would be worth if every token met all of them, so that no model is worth more than
its own size. One expert that every token meets is a dense layer, to the last digit. The level x0
and the offset c are fitted to published comparisons (`tools/fits/leverage.py`).

Of a law that has no dense equivalent of its own the dense form is inverted (`quality_by_inverse`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from dse.quality.law import (
    VOCABULARY,
    Dense,
    Flags,
    Floats,
    Quality,
    Range,
    Shape,
    Terms,
    chinchilla,
    depth_factor,
)
from dse.quality.published import law_of

TIAN = "Tian et al. 2025, arXiv 2507.17702"
BESIROGLU = "Besiroglu et al. 2024, arXiv 2404.10102"

# Own fit; the other coefficients are those of Tian et al., equation 13 and Table 2.
LEVEL, OFFSET = 0.623, 0.040
COMPUTE = 0.0761
GRANULARITY, GRANULARITY_SQUARED = -0.117, 0.0167
BASE_FLOPS = 1e21
AT_BASE = GRANULARITY * 3.0 + GRANULARITY_SQUARED * 9.0  # g(8)

# Dense law: a re-fit of Hoffmann et al. 2022, of 240 of their training runs.
LOSS_FLOOR = 1.8172
LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT = 482.01, 0.3478
LOSS_TOKENS, LOSS_TOKENS_EXPONENT = 2085.43, 0.3658

# The law itself holds these at their ends; they apply to sparse models only.
BOUNDS: Mapping[str, Range] = {
    "granularity": Range(0.25, 16.0, f"fit range of {TIAN}, three octaves added below (assumed)"),
    "training_flops": Range(0.0, 1e26, "assumed: end of the extrapolation in training compute"),
    "leverage_exponent": Range(
        0.0,
        1.0,
        "experts are worth no less than those that a token meets, and no more than all of them",
    ),
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


def leverage_exponent(
    granularity: Floats, training_flops: Floats, level: Floats | float = LEVEL
) -> Floats:
    """(n,) x of the leverage before it is held between 0 and 1; granularity and compute are held
    inside `BOUNDS`."""
    bounds = BOUNDS["granularity"]
    octaves = np.log2(np.clip(granularity, bounds.low, bounds.high))
    by_granularity = (GRANULARITY + GRANULARITY_SQUARED * octaves) * octaves
    decades = np.log10(np.minimum(training_flops, BOUNDS["training_flops"].high) / BASE_FLOPS)
    return level + COMPUTE * decades - (by_granularity - AT_BASE)


def expert_leverage(
    activation_ratio: Floats,
    granularity: Floats,
    training_flops: Floats,
    level: Floats | float = LEVEL,
    offset: Floats | float = OFFSET,
) -> Floats:
    """(n,) parameters of dense layers that are worth as much as the experts that a token meets,
    over these experts; between 1 and all experts over those met.

    `activation_ratio`: (k + s) / (E + s) for k of E routed experts and a shared width of s experts;
    `granularity`: 2 hidden_size / expert width; `training_flops`: 6 N D without embeddings.
    """
    held = BOUNDS["leverage_exponent"]
    exponent = np.clip(leverage_exponent(granularity, training_flops, level), held.low, held.high)
    return np.exp(-exponent * np.log((activation_ratio + offset) / (1.0 + offset)))


def equivalent_with(shape: Shape, leverage: Floats) -> Floats:
    """(n,) parameters of the dense model of equal quality, a vocabulary of 32,000 words included.

    `leverage` is that over all active parameters without embeddings, 1 for a dense model.
    """
    factor = depth_factor(shape.hidden_size, shape.layers, shape.active_non_embedding)
    tables = np.minimum(VOCABULARY * shape.hidden_size, shape.embedding_parameters)
    return shape.active_non_embedding * leverage * factor + tables


def leverage_of(shape: Shape, phi: float = 1.0) -> Floats:
    """(n,) leverage over all active parameters without embeddings, 1 for a dense model; that of
    experts to the power of `phi`."""
    found = expert_leverage(shape.activation_ratio, shape.granularity, shape.training_flops) ** phi
    return 1.0 + (found - 1.0) * shape.expert_parameters / shape.active_non_embedding


# N with the embeddings of a 32k vocabulary.
dense = chinchilla(
    LOSS_FLOOR, LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT, LOSS_TOKENS, LOSS_TOKENS_EXPONENT
)


def predict_with(
    shape: Shape, *, name: str, dense: Dense, fit: Mapping[str, Range], phi: float = 1.0
) -> Quality:
    """The leverage, to the power of `phi`, in front of any law of dense models."""
    granularity, flops = shape.granularity, shape.training_flops
    held = {
        "granularity": granularity,
        "training_flops": flops,
        "leverage_exponent": leverage_exponent(granularity, flops),
    }
    at_bound = {key: shape.sparse & BOUNDS[key].excludes(value) for key, value in held.items()}
    return quality_of(shape, leverage_of(shape, phi), name, dense, fit, at_bound)


def quality_of(
    shape: Shape,
    leverage: Floats,
    name: str,
    dense: Dense,
    fit: Mapping[str, Range],
    at_bound: Mapping[str, Flags],
) -> Quality:
    """The quality of shapes whose leverage is known, that over all active parameters: a law of
    dense models gives the loss, `fit` says where it and the leverage have seen data."""
    equivalent = equivalent_with(shape, leverage)
    of_experts = {
        "activation_ratio": shape.activation_ratio,
        "granularity": shape.granularity,
        "training_flops": shape.training_flops,
        "total_parameters": shape.total_parameters,
    }
    extrapolates = {key: shape.sparse & fit[key].excludes(of) for key, of in of_experts.items()}
    extrapolates["dense_equivalent_parameters"] = fit["dense_equivalent_parameters"].excludes(
        equivalent
    )
    extrapolates["training_tokens"] = fit["training_tokens"].excludes(shape.training_tokens)
    terms = dense(equivalent, shape.effective_tokens)
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


LAW = law_of(
    "leverage",
    fit=FIT,
    bounds=BOUNDS,
    predict=partial(predict_with, name="leverage", dense=dense, fit=FIT),
    dense=dense,
)


def quality_by_inverse(
    law: str,
    shape: Shape,
    terms: Terms,
    size: Floats,
    active: Floats,
    dense: Dense,
    dense_parameters: Callable[[Floats, Floats], Floats],
    extrapolates: Mapping[str, Flags],
) -> Quality:
    """`size` and `active`, (n,): the parameters that the law counts of a dense model, and those
    that a token meets, both with the depth term. `dense_parameters` takes loss and tokens to the
    dense model of both, NaN where there is none. A sparse model that the law rates above a dense
    one of all its parameters is held there, loss and all."""
    tokens, total = shape.effective_tokens, shape.total_parameters
    found = np.where(shape.sparse, dense_parameters(terms.loss, tokens), size)
    over = shape.sparse & np.isfinite(tokens) & ~(found <= total)
    equivalent = np.where(over, total, found)
    worse = np.where(over, np.maximum(dense(total, tokens).loss - terms.loss, 0.0), 0.0)
    held = replace(terms, floor=terms.floor + worse)
    return Quality(
        law=law,
        terms=held,
        dense_equivalent_parameters=equivalent,
        efficiency_leverage=np.where(shape.sparse, equivalent / active, 1.0),
        quantised_parameters=equivalent_with(shape, leverage_of(shape)),
        at_bound={"equivalent_over_total": over},
        extrapolates=extrapolates,
        predicted_loss=held.loss,
    )
