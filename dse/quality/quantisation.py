"""What number formats add to the loss, under every law alike: weights quantised after training, and
training itself in a narrow format. Evidence and fit: tools/fits/quantisation.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.quality.law import Coefficient, Range
from dse.quality.shape import Floats
from dse.schema.dtypes import BITS, DTYPES

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


@dataclass(frozen=True, slots=True)
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
    "no baseline; assumed as NVFP4 in training, down to none"
)
# Training of whole models in a format.
TRAINED = {
    "bf16": NONE,
    "fp8": InTraining(0.00125, 0.0, 0.0025, _FP8, "2024-12", "claimed"),
    "nvfp4": InTraining(0.0018, 0.00021, 0.015, _NVFP4, "2025-09", "derived"),
    "mxfp4": InTraining(0.0062, 0.0046, 0.019, _MXFP4, "2025-09", "derived"),
}
# The end of training alone, with weights rounded as they will be served (quantisation-aware).
AWARE = InTraining(0.0018, 0.0, 0.015, _END, "2025-11", "assumed")

SOURCE = (
    f"Post-training quantisation at 6 bits and below: {KUMAR}, times {PTQ_FACTOR:g} as "
    f"{CHECKPOINTS} ask for (fitted)."
)
COEFFICIENTS = (
    Coefficient("quantisation", "0.0598, 0.5068, 0.3439, 0.5907", KUMAR, "2024-11", "fitted"),
    Coefficient("quantisation, factor", f"{PTQ_FACTOR:g}", CHECKPOINTS, "2026-11", "fitted"),
    *(
        Coefficient(f"share of the loss, {name}", f"{of.share:g}", of.source, of.date, of.kind)
        for name, of in (
            *((f"{name} in training", TRAINED[name]) for name in ("fp8", "nvfp4", "mxfp4")),
            ("4 bits at the end of training", AWARE),
        )
    ),
)
_ELEMENT_BITS = np.array([float(int(bits)) for bits in BITS.values()])
_WHOLE = [TRAINED.get(name, NONE) for name in DTYPES]
_AWARE = [AWARE if int(bits) < PTQ_FREE_BITS else NONE for bits in BITS.values()]


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
    one (assumed; `Quality.quantised_parameters`). A model trained in the format pays
    `training_penalty` instead.
    """
    penalty = PTQ_FACTOR * kumar_penalty(bits, training_tokens, parameters)
    return np.where(bits < PTQ_FREE_BITS, penalty, 0.0)


def training_penalty(
    whole: NDArray[np.intp], end: NDArray[np.intp], loss: Floats, part: str = "share"
) -> Floats:
    """(n,) nats added by training in the format of code `whole` and, where it is another of 6 bits
    or less, its end in `end`. `part`: `share`, or `low` and `high` of the 80% interval."""
    first = np.array([getattr(one, part) for one in _WHOLE])[whole]
    last = np.array([getattr(one, part) for one in _AWARE])[end]
    return (first + np.where(end != whole, last, 0.0)) * loss


@dataclass(frozen=True, slots=True)
class FormatLoss:
    """Nats that number formats add, (n,): in `training`, and by quantising after it (`deployed`);
    `whole` and `end` as for `training_penalty`, `loss` without them."""

    training: Floats
    deployed: Floats
    whole: NDArray[np.intp]
    end: NDArray[np.intp]
    loss: Floats

    @property
    def narrow(self) -> NDArray[np.bool_]:
        """(n,) whether training was in a format that may cost something."""
        return (np.array([one.high for one in _WHOLE])[self.whole] > 0.0) | (
            (np.array([one.high for one in _AWARE])[self.end] > 0.0) & (self.end != self.whole)
        )

    def interval(self, i: int) -> tuple[float, float]:
        """Of both together, of candidate `i`; 80%."""
        one = slice(i, i + 1)
        ends = []
        for part, factor in (("low", PTQ_FACTOR_LOW), ("high", PTQ_FACTOR_HIGH)):
            trained = training_penalty(self.whole[one], self.end[one], self.loss[one], part)
            ends.append(float((trained + self.deployed[one] * (factor / PTQ_FACTOR))[0]))
        return ends[0], ends[1]


def format_loss(
    whole: NDArray[np.intp],
    end: NDArray[np.intp],
    deployed: NDArray[np.intp],
    loss: Floats,
    training_tokens: Floats,
    parameters: Floats,
) -> FormatLoss:
    """What the formats of n models add to their `loss`: weights of code `deployed`, trained in
    `whole` and `end`. Every format of 6 bits or less is a quantisation but the one that training
    ended in: weights trained in one 4-bit format are rounded again for another."""
    bits = _ELEMENT_BITS[deployed]
    after = quantisation_penalty(bits, training_tokens, parameters)
    return FormatLoss(
        training_penalty(whole, end, loss),
        np.where(deployed == end, 0.0, after),
        whole,
        end,
        loss,
    )
