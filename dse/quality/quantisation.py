"""What number formats add to the loss, under every law alike: weights quantised after training,
training itself in a narrow format, and a narrow cache. Evidence and fit:
tools/fits/quantisation.py."""

from __future__ import annotations

import numpy as np

from dse.quality.law import Coefficient, Floats, Range
from dse.record import record

KUMAR = "Kumar et al. 2024, arXiv 2411.04330"
# Without the offsets of the paper.
PTQ_SCALE, PTQ_TOKENS, PTQ_PARAMETERS, PTQ_BITS = 0.0598, 0.5068, 0.3439, 0.5907
PTQ_FREE_BITS = 7
# Of that law, what published 4-bit checkpoints of 8B to 671B parameters show, and the least and the
# most of them (80%).
PTQ_FACTOR, PTQ_FACTOR_LOW, PTQ_FACTOR_HIGH = 0.0837, 0.0462, 0.432
CHECKPOINTS = "published checkpoints, tools/fits/quantisation_evidence.csv"
# Where the penalty was fitted, by the quantity that a model's own is held against.
FIT = {
    "quantised_parameters": Range(7e9, 4.5e11, CHECKPOINTS),
    "quantised_training_tokens": Range(14e12, 40e12, CHECKPOINTS),
}

# Nats that keys and values in 4 bits add, and the least and the most of the evidence (80%). No size
# of model shows in it. 8 bits add nothing: fp8 changed the perplexity of three corpora by -0.06% to
# 0.12% (vLLM issue 54426), int8 blocks by 0.03% (llama.cpp pull 7412).
CACHE_NATS, CACHE_LOW, CACHE_HIGH = 0.0097, 0.0032, 0.0526
CACHES = "published 4-bit caches of 7B to 70B models, tools/fits/cache_evidence.csv"


@record
class InTraining:
    """A format to train in: the share of the loss that it adds, and its 80% interval."""

    share: float
    low: float
    high: float
    source: str
    date: str
    kind: str


NONE = InTraining(0.0, 0.0, 0.0, "what the laws were fitted on", "", "fitted")
NVIDIA = "NVIDIA 2025, arXiv 2509.25149"
_FP8 = (
    "DeepSeek-V3, arXiv 2412.19437: relative error of the loss below 0.25%; the middle of that is "
    "assumed"
)
_NVFP4 = (
    f"{NVIDIA}, 12B on 10T tokens: loss within 1%, 1.5% late; MMLU-Pro 62.58 against 62.62 in fp8; "
    "the geometric mean of the two readings"
)
_MXFP4 = f"{NVIDIA}, 8B: 36% more tokens than NVFP4 for the same loss at 1T"
_END = (
    "Kimi K2 Thinking model card: int4, lossless, no baseline; gpt-oss, arXiv 2508.10925: mxfp4, "
    "no baseline; assumed as MXFP4 in training, down to none"
)
# Training of whole models in a format.
TRAINED = {
    "bf16": NONE,
    "fp8": InTraining(0.00125, 0.0, 0.0025, _FP8, "2024-12", "claimed"),
    "nvfp4": InTraining(0.0018, 0.00021, 0.015, _NVFP4, "2025-09", "derived"),
    "mxfp4": InTraining(0.0062, 0.0046, 0.019, _MXFP4, "2025-09", "derived"),
}
# The end of training alone, with weights rounded as they will be served (quantisation-aware). What
# is assumed does not beat what was measured: it costs as much as the dearest format above, and no
# more than quantising after training.
AWARE = InTraining(0.0062, 0.0, 0.019, _END, "2025-11", "assumed")

SOURCE = (
    f"Post-training quantisation at 6 bits and below: {KUMAR}, times {PTQ_FACTOR:g} as "
    f"{CHECKPOINTS} ask for (fitted); a cache in 4 bits: {CACHES} (fitted)."
)
COEFFICIENTS = (
    Coefficient("quantisation", "0.0598, 0.5068, 0.3439, 0.5907", KUMAR, "2024-11", "fitted"),
    Coefficient("quantisation, factor", f"{PTQ_FACTOR:g}", CHECKPOINTS, "2026-11", "fitted"),
    Coefficient("cache in 4 bits, nats", f"{CACHE_NATS:g}", CACHES, "2026-11", "fitted"),
    *(
        Coefficient(f"share of the loss, {name}", f"{of.share:g}", of.source, of.date, of.kind)
        for name, of in (
            *((f"{name} in training", TRAINED[name]) for name in ("fp8", "nvfp4", "mxfp4")),
            ("4 bits at the end of training", AWARE),
        )
    ),
)


def kumar_penalty(bits: Floats, training_tokens: Floats, parameters: Floats) -> Floats:
    """(n,) nats, 0.0598 D^0.5068 / N^0.3439 exp(-bits / 0.5907): Kumar et al. 2024, fitted on 30M
    to 220M parameters and up to 26B tokens, integer formats."""
    overtraining = training_tokens**PTQ_TOKENS * parameters**-PTQ_PARAMETERS
    return PTQ_SCALE * overtraining * np.exp(-bits / PTQ_BITS)


def quantisation_penalty(bits: Floats, training_tokens: Floats, parameters: Floats) -> Floats:
    """(n,) nats added by quantising weights after training; 0 at 7 bits and above.

    `PTQ_FACTOR` of `kumar_penalty`: at its own scale that law asks of large models ten times what
    their published checkpoints lose. `bits` are those of the element, 4 for every 4-bit format:
    block scales are not precision. `parameters` is the model's size, dense-equivalent for a sparse
    one (assumed; `Quality.quantised_parameters`). A model trained in the format pays its share of
    `TRAINED` instead.
    """
    penalty = PTQ_FACTOR * kumar_penalty(bits, training_tokens, parameters)
    return np.where(bits < PTQ_FREE_BITS, penalty, 0.0)


def cache_penalty(bits: Floats) -> Floats:
    """(n,) nats added by keys and values of `bits` an element; 0 at 7 bits and above, which is all
    that the evidence tells apart."""
    return np.where(bits < PTQ_FREE_BITS, CACHE_NATS, 0.0)
