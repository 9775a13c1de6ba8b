"""What is said of a predicted loss: its law, where that was fitted, how far a model's training
tokens are from compute-optimal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.answer.numbers import large as amount
from dse.answer.numbers import number, significant
from dse.physics.intervals import EQUIVALENT_FACTOR
from dse.quality import quantisation
from dse.quality.law import Quality, Range
from dse.quality.laws import DEFAULT, LAWS
from dse.quality.overtraining import overtraining
from dse.quality.own_runs import LEVERAGE, P90, Doubt
from dse.quality.quantisation import (
    AWARE,
    CACHE_HIGH,
    CACHE_LOW,
    CACHE_NATS,
    NONE,
    PTQ_FACTOR,
    PTQ_FACTOR_HIGH,
    PTQ_FACTOR_LOW,
    PTQ_FREE_BITS,
    TRAINED,
    cache_penalty,
    quantisation_penalty,
)
from dse.record import record
from dse.schema.dtypes import BITS, DTYPES
from dse.space.candidates import Floats

if TYPE_CHECKING:
    from dse.problem.evaluate import Metrics

LEAST_NATS = 5e-5  # of the loss, below which nothing is said of it
# Numbers of `describe_quality`.
OVERTRAINING = ("compute_optimal_tokens", "overtraining_ratio", "loss_given_up")


def describe_quality(metrics: Metrics, i: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of candidate `i`, whose metrics are `values`: the law, the nats that quantising adds (and,
    where one of the batch was trained in a narrow format or keeps a narrow cache, those that this
    adds), how far it is over-trained, and in what it lies outside the law's data. Numbers are null
    and lists empty where no loss is predicted."""
    asked = {
        "training_format_loss": (metrics.formats.training, metrics.formats.narrow.any()),
        "cache_format_loss": (metrics.formats.cached, metrics.formats.cached.any()),
    }
    more = {name: nats for name, (nats, present) in asked.items() if present}
    if values["predicted_loss"] is None:
        return {
            "quality_law": metrics.quality.law,
            "quantisation_loss": None,
            **dict.fromkeys(more),
            **dict.fromkeys(OVERTRAINING),
            "extrapolates": [],
            "at_bounds": [],
        }
    quality, formats = metrics.quality, metrics.formats
    added = float(formats.deployed[i])
    outside = [name for name, flags in quality.extrapolates.items() if flags[i]]
    if added > 0.0:
        sizes = (quality.quantised_parameters[i : i + 1], np.array([values["training_tokens"]]))
        outside += [
            name
            for (name, known), size in zip(quantisation.FIT.items(), sizes, strict=True)
            if known.excludes(size)[0]
        ]
    return {
        "quality_law": quality.law,
        "quantisation_loss": added,
        **{name: float(nats[i]) for name, nats in more.items()},
        **describe_overtraining(quality, i, values["training_tokens"]),
        "extrapolates": sorted(outside),
        "at_bounds": sorted(name for name, flags in quality.at_bound.items() if flags[i]),
    }


def describe_overtraining(quality: Quality, i: int, tokens: float) -> dict[str, float | int | None]:
    """Compute-optimal tokens at the training compute of candidate `i`, its own over these, and the
    nats that this gives up."""
    found = overtraining(quality.terms.row(i), np.array([tokens]))
    amounts = (found.compute_optimal_tokens, found.ratio, found.loss_given_up)
    return {name: number(amount[0]) for name, amount in zip(OVERTRAINING, amounts, strict=True)}


def fit_ranges(law: str, *, quantised: bool = False) -> dict[str, list[float]]:
    """{quantity: [low, high]} of what a law was fitted on, and of what the penalty was that weights
    `quantised` after training pay."""
    return _ends({**LAWS[law].fit, **(quantisation.FIT if quantised else {})})


def _ends(ranges: Mapping[str, Range]) -> dict[str, list[float]]:
    return {name: [known.low, known.high] for name, known in ranges.items()}


def quality_intervals(
    quality: Quality, i: int, values: Mapping[str, Any], formats: FormatLoss
) -> dict[str, list[float]]:
    """80% intervals of loss and dense equivalent: the latter is off by `EQUIVALENT_FACTOR`, and the
    former what the law's dense form makes of that or, with runs of one's own, what these leave, and
    independent of it what number formats may add. Empty where there is no dense equivalent."""
    equivalent, tokens = values["dense_equivalent_parameters"], values["training_tokens"]
    if equivalent is None or values["predicted_loss"] is None:
        return {}
    if quality.doubt is not None:
        return _own_intervals(quality.doubt, i, values, formats)
    dense = LAWS[quality.law].dense
    sparse = quality.efficiency_leverage[i] > 1.0
    factor = EQUIVALENT_FACTOR["sparse" if sparse else "dense"]
    ends = np.array([equivalent * factor, equivalent / factor])
    losses = dense(ends, np.array([tokens, tokens])).loss
    law, loss = dense(np.array([equivalent]), np.array([tokens])).loss, values["predicted_loss"]
    losses += loss - law
    return {
        "predicted_loss": _with_formats(loss, float(losses[0]), float(losses[1]), formats, i),
        "dense_equivalent_parameters": [float(ends[1]), float(ends[0])],
    }


def _with_formats(loss: float, low: float, high: float, formats: FormatLoss, i: int) -> list[float]:
    """The ends of an interval of the loss, with what number formats may add, independent of it."""
    least, most = formats.interval(i)
    if most > 0.0:
        added = float(formats.added[i])
        low = loss - math.hypot(loss - low, added - least)
        high = loss + math.hypot(high - loss, most - added)
    return [low, high]


def _own_intervals(
    doubt: Doubt, i: int, values: Mapping[str, Any], formats: FormatLoss
) -> dict[str, list[float]]:
    """80% intervals by the posterior of one's own runs. A dense equivalent is as far off as the
    exponent of the leverage makes it, and besides as that of a dense model is."""
    loss, equivalent = values["predicted_loss"], values["dense_equivalent_parameters"]
    ends = P90 * float(doubt.sd[i])
    by_leverage = P90 * float(doubt.posterior.sd[LEVERAGE] * doubt.leverage[i])
    factor = math.exp(math.hypot(math.log(EQUIVALENT_FACTOR["dense"]), by_leverage))
    return {
        "predicted_loss": _with_formats(loss, loss - ends, loss + ends, formats, i),
        "dense_equivalent_parameters": [equivalent / factor, equivalent * factor],
    }


def quality_words(answer: Mapping[str, Any]) -> list[str]:
    """Sentences on the predicted loss of an answer of `dse estimate --json`; none without one."""
    if answer.get("predicted_loss") is None:
        return []
    name = answer.get("quality_law", DEFAULT)
    outside = [
        f"{_words(quantity)} ({_range(quantity, *ends)})"
        for quantity, ends in fit_ranges(name).items()
        if quantity in answer["extrapolates"]
    ]
    where = (
        f"it extrapolates in {', '.join(outside)}" if outside else "inside what it was fitted on"
    )
    words = [f"Loss by the quality law {name} (docs/quality.md): {where}."]
    words += _training_format_words(answer) + _quantisation_words(answer) + _cache_words(answer)
    if answer["at_bounds"]:
        held = ", ".join(map(_words, answer["at_bounds"]))
        words.append(f"Held at the end of its range: {held}.")
    if answer.get("dense_equivalent_parameters") is None:
        words.append("Under this law no dense model of these tokens is as good.")
    if answer.get("overtraining_ratio") is not None:
        words.append(overtraining_words(answer))
    return words


def _quantisation_words(answer: Mapping[str, Any]) -> list[str]:
    """What of the loss is the weights' format, and what is without it."""
    added = answer["quantisation_loss"]
    if added is None or added < LEAST_NATS:
        return []
    outside = [
        f"{_words(quantity.removeprefix('quantised_'))} ({_range(quantity, *ends)})"
        for quantity, ends in _ends(quantisation.FIT).items()
        if quantity in answer["extrapolates"]
    ]
    where = f", extrapolated in {' and '.join(outside)}" if outside else ""
    factors = (quantisation.PTQ_FACTOR_LOW, quantisation.PTQ_FACTOR_HIGH)
    least, most = (added * factor / quantisation.PTQ_FACTOR for factor in factors)
    return [
        f"Of it {added:.4f} nats come from quantising the weights after training (Kumar et al. "
        f"2024, times {quantisation.PTQ_FACTOR:g} as published checkpoints ask for{where}; by "
        f"these {least:.4f} to {most:.4f}); the dense-equivalent parameters are those of the loss "
        "before that."
    ]


def _training_format_words(answer: Mapping[str, Any]) -> list[str]:
    """What of the loss is the format of the training."""
    added = answer.get("training_format_loss")
    if added is None or added < LEAST_NATS:
        return []
    return [
        f"Of it {added:.4f} nats come from training in a narrow format (published runs; "
        "docs/quality.md)."
    ]


def _cache_words(answer: Mapping[str, Any]) -> list[str]:
    """What of the loss is the format of the cache."""
    added = answer.get("cache_format_loss")
    if added is None or added < LEAST_NATS:
        return []
    return [
        f"Of it {added:.4f} nats come from a cache in 4 bits ({quantisation.CACHE_LOW:.4f} to "
        f"{quantisation.CACHE_HIGH:.4f} by published caches; docs/quality.md)."
    ]


def overtraining_words(answer: Mapping[str, Any]) -> str:
    """`Trained on 15T tokens, 11 times the compute-optimal 1.3T of its training compute: 0.01
    nats given up for a smaller model.`"""
    ratio, tokens = answer["overtraining_ratio"], answer["training_tokens"]
    best = answer["compute_optimal_tokens"]
    side = "a smaller" if ratio >= 1.0 else "a larger"
    return (
        f"Trained on {amount(tokens)} tokens, {significant(ratio, 2)} times the compute-optimal "
        f"{amount(best)} of its training compute: {answer['loss_given_up']:.4f} nats given up for "
        f"{side} model."
    )


def _words(quantity: str) -> str:
    return quantity.replace("_", " ")


def _range(quantity: str, low: float, high: float) -> str:
    """`fitted on 820M to 318B`."""
    if "flops" in quantity:
        return f"fitted on {low:.0e} to {high:.0e} FLOP".replace("e+", "e")
    if low <= 0.0 and high >= 1e6:
        return f"fitted up to {amount(high)}"
    if high < 1e6:
        return f"fitted on {low:g} to {high:g}"
    return f"fitted on {amount(low)} to {amount(high)}"


# What the number formats of training and of serving add to the loss of n models.

_ELEMENT_BITS = np.array([float(int(bits)) for bits in BITS.values()])
_PARTS = ("share", "low", "high")
_WHOLE = {p: np.array([getattr(TRAINED.get(d, NONE), p) for d in DTYPES]) for p in _PARTS}
_NARROW = _ELEMENT_BITS < PTQ_FREE_BITS
# Of the penalty of weights quantised after training, which is its value.
_AFTER = {"share": 1.0, "low": PTQ_FACTOR_LOW / PTQ_FACTOR, "high": PTQ_FACTOR_HIGH / PTQ_FACTOR}
# The same of a cache in 4 bits.
_CACHED = {"low": CACHE_LOW / CACHE_NATS, "high": CACHE_HIGH / CACHE_NATS}


@record
class FormatLoss:
    """Nats that number formats add, (n,): in `training`, by quantising the weights after it
    (`deployed`), and by the format of the cache (`cached`).

    `whole` and `end` are the codes of the formats of the whole training and of its end, `loss` is
    what the law says without them, and `rounded` what quantising to the format of the end after
    training would add, 0 where the two formats are one."""

    training: Floats
    deployed: Floats
    cached: Floats
    whole: NDArray[np.intp]
    end: NDArray[np.intp]
    loss: Floats
    rounded: Floats

    @property
    def narrow(self) -> NDArray[np.bool_]:
        """(n,) whether training was in a format that may cost something."""
        return (_WHOLE["high"][self.whole] > 0.0) | (_NARROW[self.end] & (self.end != self.whole))

    @property
    def added(self) -> Floats:
        """(n,) all of it."""
        return self.training + self.deployed + self.cached

    def interval(self, i: int) -> tuple[float, float]:
        """Of all together, of candidate `i`; 80%."""
        loss, rounded, deployed = self.loss[i], self.rounded[i], self.deployed[i]
        ends = []
        for part in ("low", "high"):
            aware = min(getattr(AWARE, part) * loss, rounded * _AFTER[part])
            weights = _WHOLE[part][self.whole[i]] * loss + aware + deployed * _AFTER[part]
            ends.append(weights + self.cached[i] * _CACHED[part])
        return float(ends[0]), float(ends[1])


def format_loss(
    whole: NDArray[np.intp],
    end: NDArray[np.intp],
    deployed: NDArray[np.intp],
    cache: NDArray[np.intp],
    loss: Floats,
    training_tokens: Floats,
    parameters: Floats,
) -> FormatLoss:
    """What the formats of n models add to their `loss`: weights of code `deployed`, trained in
    `whole` and at the end in `end`, and a cache of code `cache`.

    Every format of 6 bits or less is a quantisation but the one that training ended in: weights
    trained in one 4-bit format are rounded again for another. A training whose end alone knew of
    the format costs no more than quantising after it, which it starts from."""
    after = quantisation_penalty(_ELEMENT_BITS[deployed], training_tokens, parameters)
    training = _WHOLE["share"][whole] * loss
    rounded = np.zeros(len(loss))
    at_the_end = end != whole
    if at_the_end.any():
        rounded = quantisation_penalty(_ELEMENT_BITS[end], training_tokens, parameters) * at_the_end
        training = training + np.minimum(AWARE.share * loss, rounded)
    deployed_nats = np.where(deployed == end, 0.0, after)
    cached = cache_penalty(_ELEMENT_BITS[cache])
    return FormatLoss(training, deployed_nats, cached, whole, end, loss, rounded)
