"""The joint law of active parameters, expansion and tokens of Ludziejewski et al. 2025.

    L = a E'^de N^(al + ga ln E') + b E'^om D^(be + ze ln E') + c
    1 / E' = 1 / (E - 1 + (1/E_start - 1/E_max)^-1) + 1 / E_max

with N the active parameters, both tables of the vocabulary among them, and E the expansion, experts
over those that a token uses. It was fitted on experts as wide as a dense layer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dse.quality.law import WHOLE, Floats, Quality, Range, Shape, Terms, depth_factor
from dse.quality.laws.leverage import quality_by_inverse
from dse.quality.published import law_of

LUDZIEJEWSKI = "Ludziejewski et al. 2025, arXiv 2502.05172"
A, ALPHA, DELTA, GAMMA = 35.91, -0.1889, -0.2285, 0.0098
B, BETA, OMEGA, ZETA = 35.98, -0.1775, 0.5529, -0.0259
C = 1.3637
E_START, E_MAX = 2.0732, 290.4521

FIT: Mapping[str, Range] = {
    "active_parameters": Range(79e6, 2.7e9, LUDZIEJEWSKI),
    "total_parameters": Range(0.0, 5e9, LUDZIEJEWSKI),
    "expansion": Range(1.0, 32.0, LUDZIEJEWSKI),
    # As wide as a dense layer of four times the hidden size is 0.5.
    "granularity": Range(0.25, 1.0, f"{LUDZIEJEWSKI}; a factor of two either way (assumed)"),
    "training_tokens": Range(0.5e9, 80e9, LUDZIEJEWSKI),
}


def terms(active_parameters: Floats, expansion: Floats, training_tokens: Floats) -> Terms:
    """The law, all arrays (n,); an expansion of 1 is a dense model."""
    start = 1.0 / (1.0 / E_START - 1.0 / E_MAX)
    saturated = 1.0 / (1.0 / (expansion - 1.0 + start) + 1.0 / E_MAX)
    log = np.log(saturated)
    falls, rises = -(ALPHA + GAMMA * log), -(BETA + ZETA * log)
    size = A * saturated**DELTA * active_parameters**-falls
    data = B * saturated**OMEGA * training_tokens**-rises
    return Terms(C, ((size, falls),), (data, rises))


def dense(parameters: Floats, training_tokens: Floats) -> Terms:
    """The law at an expansion of 1, N with both tables of the vocabulary."""
    return terms(parameters, np.ones_like(parameters), training_tokens)


def dense_parameters(loss: Floats, training_tokens: Floats) -> Floats:
    """(n,) the inverse of `dense` in the parameters; NaN where no dense model of these tokens is so
    good."""
    one = np.ones_like(loss)
    unit = dense(one, training_tokens)
    size, falls = unit.parameters[0]
    left = loss - unit.floor - unit.tokens[0]
    return (np.where(left > 0.0, left, np.nan) / size) ** (-1.0 / falls)


def predict(shape: Shape) -> Quality:
    """The law with the depth term on the parameters between the two tables."""
    factor = depth_factor(shape.hidden_size, shape.layers, shape.active_non_embedding)
    counted = shape.active_non_embedding + shape.embedding_parameters
    active = shape.active_non_embedding * factor + shape.embedding_parameters
    expansion = 1.0 / shape.activation_ratio
    found = terms(active, expansion, shape.effective_tokens)
    extrapolates = {
        "active_parameters": FIT["active_parameters"].excludes(counted),
        "expansion": shape.sparse & FIT["expansion"].excludes(expansion),
        "granularity": shape.sparse & FIT["granularity"].excludes(shape.granularity),
        "training_tokens": FIT["training_tokens"].excludes(shape.training_tokens),
    }
    extrapolates["total_parameters"] = FIT["total_parameters"].excludes(shape.total_parameters)
    return quality_by_inverse(
        "joint", shape, found, active, active, dense, dense_parameters, extrapolates
    )


LAW = law_of("joint", fit=FIT, bounds=WHOLE, predict=predict, dense=dense)
