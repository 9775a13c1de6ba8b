"""Efficiency leverage of experts, then Chinchilla as its authors fitted it.

    L = 1.6934 + 406.4 / N_eq^0.3392 + 410.7 / D^0.2849

The exponents are those of the paper's source, before they were rounded to 0.34 and 0.28 in print.
Tokens are worth more than under the re-fit: twice as much at 15T.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dse.quality.law import Range, chinchilla
from dse.quality.laws import leverage
from dse.quality.published import law_of

HOFFMANN = "Hoffmann et al. 2022, arXiv 2203.15556"
LOSS_FLOOR = 1.6934
LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT = 406.4, 0.3392
LOSS_TOKENS, LOSS_TOKENS_EXPONENT = 410.7, 0.2849

FIT: Mapping[str, Range] = {
    **leverage.EXPERTS,
    "dense_equivalent_parameters": Range(70e6, 16e9, HOFFMANN),
    "training_tokens": Range(5e9, 500e9, HOFFMANN),
}


# N with embeddings.
dense = chinchilla(
    LOSS_FLOOR, LOSS_PARAMETERS, LOSS_PARAMETERS_EXPONENT, LOSS_TOKENS, LOSS_TOKENS_EXPONENT
)

LAW = law_of(
    "hoffmann",
    fit=FIT,
    bounds=leverage.BOUNDS,
    predict=partial(leverage.predict_with, name="hoffmann", dense=dense, fit=FIT),
    dense=dense,
)
