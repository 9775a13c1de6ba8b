"""The quality of a law that has no dense equivalent of its own: its dense form is inverted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dse.quality.law import Flags, Quality, Terms
from dse.quality.laws.leverage import equivalent_of
from dse.quality.shape import Floats, Shape


def quality_by_inverse(
    law: str,
    shape: Shape,
    terms: Terms,
    size: Floats,
    active: Floats,
    dense_parameters: Callable[[Floats, Floats], Floats],
    extrapolates: Mapping[str, Flags],
) -> Quality:
    """`size` and `active`, (n,): the parameters that the law counts of a dense model, and those
    that a token meets, both with the depth term. `dense_parameters` takes loss and training tokens
    to the dense model of both, NaN where there is none. Nothing is held at the end of a range."""
    loss = terms.loss
    equivalent = np.where(shape.sparse, dense_parameters(loss, shape.training_tokens), size)
    return Quality(
        law=law,
        terms=terms,
        dense_equivalent_parameters=equivalent,
        efficiency_leverage=np.where(shape.sparse, equivalent / active, 1.0),
        quantised_parameters=equivalent_of(shape),
        at_bound={},
        extrapolates=extrapolates,
        predicted_loss=loss,
    )
