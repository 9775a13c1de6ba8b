"""What the number formats of training and of serving add to the loss of n models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.quality.quantisation import (
    AWARE,
    NONE,
    PTQ_FACTOR,
    PTQ_FACTOR_HIGH,
    PTQ_FACTOR_LOW,
    PTQ_FREE_BITS,
    TRAINED,
    quantisation_penalty,
)
from dse.record import record
from dse.schema.dtypes import BITS, DTYPES
from dse.space.candidates import Floats

_ELEMENT_BITS = np.array([float(int(bits)) for bits in BITS.values()])
_WHOLE = [TRAINED.get(name, NONE) for name in DTYPES]
_AWARE = [AWARE if int(bits) < PTQ_FREE_BITS else NONE for bits in BITS.values()]


def training_penalty(
    whole: NDArray[np.intp], end: NDArray[np.intp], loss: Floats, part: str = "share"
) -> Floats:
    """(n,) nats added by training in the format of code `whole` and, where it is another of 6 bits
    or less, its end in `end`. `part`: `share`, or `low` and `high` of the 80% interval."""
    first = np.array([getattr(one, part) for one in _WHOLE])[whole]
    last = np.array([getattr(one, part) for one in _AWARE])[end]
    return (first + np.where(end != whole, last, 0.0)) * loss


@record
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
