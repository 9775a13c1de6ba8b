"""What a quality law is: its formula, its sources, where it was fitted, what it does not see.

Every array has shape (n,): parameters, tokens and FLOP are counts, loss is in nats per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.quality.shape import Floats, Shape
from dse.record import record

if TYPE_CHECKING:
    from dse.quality.own_runs import Doubt

Flags = NDArray[np.bool_]


@record
class Range:
    """A closed interval; `source` says who stated it."""

    low: float
    high: float
    source: str

    def excludes(self, value: Floats) -> Flags:
        """(n,) True outside the interval; NaN counts as inside."""
        return (value < self.low) | (value > self.high)


@record
class Terms:
    """A loss in three parts, each (n,) nats: `floor`, what no size and no data removes;
    `parameters`, terms that fall as (size)^-exponent when a whole model grows in proportion;
    `tokens`, a term that falls as (training tokens)^-exponent. Parts are (nats, exponent)."""

    floor: Floats | float
    parameters: tuple[tuple[Floats, Floats | float], ...]
    tokens: tuple[Floats, Floats | float]

    @property
    def loss(self) -> Floats:
        """(n,) the sum, in the order of the fields."""
        total: Floats | float = self.floor
        for nats, _ in self.parameters:
            total = total + nats
        return total + self.tokens[0]

    def row(self, i: int) -> Terms:
        """The same of one candidate, (1,) each."""

        def at(value: Floats | float) -> Floats | float:
            return value[i : i + 1] if isinstance(value, np.ndarray) else value

        nats, exponent = self.tokens
        return Terms(
            at(self.floor),
            tuple((size[i : i + 1], at(falls)) for size, falls in self.parameters),
            (nats[i : i + 1], at(exponent)),
        )


# What a law without a guard of its own is held at.
WHOLE: Mapping[str, Range] = {
    "equivalent_over_total": Range(0.0, 1.0, "a model is worth no more than all of it")
}
Dense = Callable[[Floats, Floats], Terms]  # parameters and training tokens, (n,) each


def chinchilla(E: float, A: float, a: float, B: float, b: float) -> Dense:
    """E + A / N^a + B / D^b: the form of Hoffmann et al. 2022, approach 3."""

    def dense(parameters: Floats, training_tokens: Floats) -> Terms:
        return Terms(E, ((A * parameters**-a, a),), (B * training_tokens**-b, b))

    return dense


@record
class Quality:
    """Predictions of n candidates under the law named `law`, and how far each stands from the data
    behind it.

    `dense_equivalent_parameters`: the dense model of equal loss and equal tokens under the law,
    never more than all parameters of the model. `efficiency_leverage`: that over the active
    parameters, without the term of depth; 1 for a dense model. `quantised_parameters`: the size
    that `quantisation_penalty` asks for.
    `at_bound[name]` is True where the law holds that quantity at the end of its range
    (`Law.bounds`), `extrapolates[name]` where it lies outside what it was fitted on (`Law.fit`).
    `doubt` is that of a law rescaled by runs of one's own (`dse.quality.own_runs`).
    """

    law: str
    terms: Terms
    dense_equivalent_parameters: Floats
    efficiency_leverage: Floats
    quantised_parameters: Floats
    at_bound: Mapping[str, Flags]
    extrapolates: Mapping[str, Flags]
    predicted_loss: Floats
    doubt: Doubt | None = None


@record
class Coefficient:
    """A row of the table of coefficients; `kind` as of hardware figures (fitted, assumed, ...)."""

    name: str
    value: str
    source: str
    date: str
    kind: str


@record
class Law:
    """One law: `name` is what `--law` and `quality_law:` take, `title` and the tuples of sentences
    are what reports print.

    `predict` takes shapes to their quality. `dense` is the law's own dense form: parameters (as the
    law counts them) and training tokens, (n,) each, to the parts of the loss. `fit` says where the
    law has seen data, `bounds` what it holds at an end of its range.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    fit_range: tuple[str, ...]
    not_seen: tuple[str, ...]
    coefficients: tuple[Coefficient, ...]
    fit: Mapping[str, Range]
    bounds: Mapping[str, Range]
    predict: Callable[[Shape], Quality]
    dense: Dense
