"""The quality of a law that has no dense equivalent of its own: its dense form is inverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from dse.quality.law import Dense, Flags, Quality, Terms
from dse.quality.laws.leverage import equivalent_of
from dse.quality.shape import Floats, Shape


def quality_by_inverse(
    law: str,
    shape: Shape,
    terms: Terms,
    size: Floats,
    active: Floats,
    dense: Dense,
    dense_parameters: Callable[[Floats, Floats], Floats],
    extrapolates: Mapping[str, Flags],
) -> Quality:
    """`size` and `active`, (n,): the parameters that the law counts of a dense model, and those
    that a token meets, both with the depth term. `dense_parameters` takes loss and tokens to the
    dense model of both, NaN where there is none. A sparse model that the law rates above a dense
    one of all its parameters is held there, loss and all."""
    tokens, total = shape.effective_tokens, shape.total_parameters
    found = np.where(shape.sparse, dense_parameters(terms.loss, tokens), size)
    over = shape.sparse & np.isfinite(tokens) & ~(found <= total)
    equivalent = np.where(over, total, found)
    worse = np.where(over, np.maximum(dense(total, tokens).loss - terms.loss, 0.0), 0.0)
    held = replace(terms, floor=terms.floor + worse)
    return Quality(
        law=law,
        terms=held,
        dense_equivalent_parameters=equivalent,
        efficiency_leverage=np.where(shape.sparse, equivalent / active, 1.0),
        quantised_parameters=equivalent_of(shape),
        at_bound={"equivalent_over_total": over},
        extrapolates=extrapolates,
        predicted_loss=held.loss,
    )
