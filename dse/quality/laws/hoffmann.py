"""Efficiency leverage of experts, then Chinchilla as its authors fitted it.

    L = 1.6934 + 406.4 / N_eq^0.3392 + 410.7 / D^0.2849

The exponents are those of the paper's source, before they were rounded to 0.34 and 0.28 in print.
Tokens are worth more than under the re-fit: twice as much at 15T.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dse.quality import depth, quantisation
from dse.quality.law import Coefficient, Law, Range, Terms
from dse.quality.laws import leverage
from dse.quality.shape import Floats

HOFFMANN = "Hoffmann et al. 2022, arXiv 2203.15556"
LOSS_FLOOR = 1.6934
LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT = 406.4, 0.3392
LOSS_TOKENS, LOSS_TOKENS_EXPONENT = 410.7, 0.2849

FIT: Mapping[str, Range] = {
    **leverage.EXPERTS,
    "dense_equivalent_parameters": Range(70e6, 16e9, HOFFMANN),
    "training_tokens": Range(5e9, 500e9, HOFFMANN),
}


def dense(parameters: Floats, training_tokens: Floats) -> Terms:
    """E + A / N^a + B / D^b (Hoffmann et al. 2022, approach 3), N with embeddings."""
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


LAW = Law(
    name="hoffmann",
    title="Dense-equivalent parameters (efficiency leverage of experts), then the Chinchilla law "
    "with its authors' unrounded exponents; loss in nats per token",
    sources=(
        leverage.EXPERTS_SOURCE,
        f"Dense loss: {HOFFMANN}, approach 3, exponents as in the paper's TeX source (fitted; read "
        "in secondary sources).",
        depth.SOURCE,
        quantisation.SOURCE,
    ),
    fit_range=(
        leverage.EXPERTS_FIT,
        "Dense loss: 70M to 16B parameters, 5B to 500B training tokens.",
        "Besiroglu et al. 2024 could not reproduce this fit from the same training runs.",
        leverage.UNCERTAIN,
        leverage.HELD,
    ),
    not_seen=leverage.NOT_SEEN,
    coefficients=(
        Coefficient(
            "dense loss: E, A, a, B, b",
            "1.6934, 406.4, 0.3392, 410.7, 0.2849",
            HOFFMANN,
            "2022-03",
            "fitted",
        ),
        *leverage.COEFFICIENTS,
    ),
    fit=FIT,
    bounds=leverage.BOUNDS,
    predict=partial(leverage.predict_with, name="hoffmann", dense=dense, fit=FIT),
    dense=dense,
)
