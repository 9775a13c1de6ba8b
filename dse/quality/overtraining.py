"""The choice of training tokens: the compute-optimal ones, and what is given up beside them.

A model that is trained on more tokens than compute-optimal is smaller, and cheaper to serve, than
the best model of its training compute. Each law says for itself where that optimum lies.
"""

from __future__ import annotations

import numpy as np

from dse.quality.law import Floats, Law, Terms
from dse.record import record

_STEPS = 30


@record
class Overtraining:
    """(n,) each. `compute_optimal_tokens`: with which the same kind of shape, all of its parameters
    grown or shrunk alike, has the least loss at the same training compute (6 N D). `ratio`: tokens
    over these, above 1 over-trained. `loss_given_up`: nats above that least loss."""

    compute_optimal_tokens: Floats
    ratio: Floats
    loss_given_up: Floats


def overtraining(terms: Terms, training_tokens: Floats) -> Overtraining:
    """How far n models stand from the compute-optimal shape of their own training compute.

    `terms` are the parts of their loss. NaN tokens give NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        growth = _best_growth(terms)
        least = terms.floor + _tokens_at(terms, growth)
        for nats, exponent in terms.parameters:
            least = least + nats * growth**-exponent
        # Rounding may put a model that is at its optimum below it.
        given_up = np.maximum(terms.loss - least, 0.0)
    return Overtraining(training_tokens / growth, growth, given_up)


def compute_optimal_tokens(law: Law, training_flops: Floats) -> Floats:
    """(n,) training tokens with which a dense model of the law has the least loss for so much
    compute, C = 6 N D."""
    root = np.sqrt(training_flops / 6.0)
    return root / _best_growth(law.dense(root, root))


def _tokens_at(terms: Terms, growth: Floats) -> Floats:
    nats, exponent = terms.tokens
    return nats * growth**exponent


def _best_growth(terms: Terms) -> Floats:
    """(n,) x at which sum_j P_j x^-a_j + T x^b is least: a model x times as large on 1 / x of the
    tokens. One term in the parameters has the closed form x = (a P / (b T))^(1 / (a + b)); several
    are solved by Newton's method on the logarithm of the two sides of the first-order condition,
    which is concave and rises, in a fixed number of steps."""
    nats, exponent = terms.tokens
    rising = np.log(exponent * nats)
    if len(terms.parameters) == 1:
        size, falls = terms.parameters[0]
        return np.exp((np.log(falls * size) - rising) / (falls + exponent))
    u = np.zeros_like(nats)
    for _ in range(_STEPS):
        total = slope = np.zeros_like(nats)
        for size, falls in terms.parameters:
            part = falls * size * np.exp(-falls * u)
            total, slope = total + part, slope + falls * part
        u = u - (rising + exponent * u - np.log(total)) / (exponent + slope / total)
    return np.exp(u)
