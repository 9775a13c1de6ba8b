"""What quantising the weights after training adds to the loss, under every law alike."""

from __future__ import annotations

import numpy as np

from dse.quality.law import Coefficient, Range
from dse.quality.shape import Floats

KUMAR = "Kumar et al. 2024, arXiv 2411.04330"
# Without the offsets of the paper.
PTQ_SCALE, PTQ_TOKENS, PTQ_PARAMETERS, PTQ_BITS = 0.0598, 0.5068, 0.3439, 0.5907
PTQ_FREE_BITS = 7
# Where the penalty was fitted, by the quantity that a model's own is held against.
FIT = {
    "quantised_parameters": Range(30e6, 220e6, KUMAR),
    "quantised_training_tokens": Range(0.0, 26e9, KUMAR),
}

SOURCE = f"Post-training quantisation at 6 bits and below: {KUMAR} (fitted)."
COEFFICIENTS = (
    Coefficient("quantisation", "0.0598, 0.5068, 0.3439, 0.5907", KUMAR, "2024-11", "fitted"),
)


def quantisation_penalty(bits: Floats, training_tokens: Floats, parameters: Floats) -> Floats:
    """(n,) nats added by quantising weights after training; 0 at 7 bits and above.

    0.0598 D^0.5068 / N^0.3439 exp(-bits / 0.5907) (Kumar et al. 2024). `bits` are those of the
    element, 4 for every 4-bit format: block scales are not precision. `parameters` is the model's
    size, dense-equivalent for a sparse one (assumed; `Quality.quantised_parameters`). A model
    trained in the low precision pays nothing and is not a case for this function. Fitted on integer
    formats within `FIT` (checked at 1.7B); everything larger is an extrapolation.
    """
    overtraining = training_tokens**PTQ_TOKENS * parameters**-PTQ_PARAMETERS
    penalty = PTQ_SCALE * overtraining * np.exp(-bits / PTQ_BITS)
    return np.where(bits < PTQ_FREE_BITS, penalty, 0.0)
