"""The law of total parameters and sparsity of Abnar et al. 2025.

    L = a / N^al + b / D^be + c / (1 - S)^la + d / ((1 - S)^de N^ga) + e,  S = (E - K) / E

with N all parameters, and K of E routed experts a token. A second opinion that counts what is
stored and not what is used: of one stored size it prefers a sparsity between dense and extreme.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dse.quality.law import WHOLE, Floats, Quality, Range, Shape, Terms, depth_factor
from dse.quality.laws.leverage import quality_by_inverse
from dse.quality.published import law_of

ABNAR = "Abnar et al. 2025, arXiv 2501.12370"
A, ALPHA = 16612.50, 0.5962
B, BETA = 5455.67, 0.3954
C, LAMBDA = 0.4598, -0.1666
D, DELTA, GAMMA = 17.26, 0.1603, 0.1595
FLOOR = 0.94
_STEPS = 8

FIT: Mapping[str, Range] = {
    "training_flops": Range(3e19, 1e21, ABNAR),
    "sparsity": Range(0.0, 0.98, ABNAR),
}


def terms(total_parameters: Floats, sparsity: Floats, training_tokens: Floats) -> Terms:
    """The law, all arrays (n,); a sparsity of 0 is a dense model."""
    used = 1.0 - sparsity
    return Terms(
        FLOOR + C * used**-LAMBDA,
        (
            (A * total_parameters**-ALPHA, ALPHA),
            (D * used**-DELTA * total_parameters**-GAMMA, GAMMA),
        ),
        (B * training_tokens**-BETA, BETA),
    )


def dense(parameters: Floats, training_tokens: Floats) -> Terms:
    """The law at a sparsity of 0."""
    return terms(parameters, np.zeros_like(parameters), training_tokens)


def dense_parameters(loss: Floats, training_tokens: Floats) -> Floats:
    """(n,) the inverse of `dense` in the parameters; NaN where no dense model of these tokens is so
    good.

    Newton's method in the logarithms of both sides, from the root of the slower term alone, which
    lies below; the sum is convex there and falls, so that each step stays below the root.
    """
    left = loss - (FLOOR + C) - B * training_tokens**-BETA
    left = np.where(left > 0.0, left, np.nan)
    u = np.log(D / left) / GAMMA
    for _ in range(_STEPS):
        fast, slow = A * np.exp(-ALPHA * u), D * np.exp(-GAMMA * u)
        total = fast + slow
        u = u + np.log(total / left) * total / (ALPHA * fast + GAMMA * slow)
    return np.exp(u)


def predict(shape: Shape) -> Quality:
    """The law with the depth term on the parameters between the two tables: experts lie in the
    layers as attention does."""
    factor = depth_factor(shape.hidden_size, shape.layers, shape.active_non_embedding)
    layers = shape.total_parameters - shape.embedding_parameters
    total = layers * factor + shape.embedding_parameters
    sparsity = np.where(
        shape.sparse,
        1.0 - shape.experts_per_token / np.where(shape.sparse, shape.experts, 1.0),
        0.0,
    )
    found = terms(total, sparsity, shape.effective_tokens)
    active = shape.active_non_embedding * factor + shape.embedding_parameters
    extrapolates = {
        "training_flops": FIT["training_flops"].excludes(shape.training_flops),
        "sparsity": shape.sparse & FIT["sparsity"].excludes(sparsity),
    }
    return quality_by_inverse(
        "abnar", shape, found, total, active, dense, dense_parameters, extrapolates
    )


LAW = law_of("abnar", fit=FIT, bounds=WHOLE, predict=predict, dense=dense)
