"""Candidates that share a part of what they are, so that the part is worked out once and gathered:
an evaluation of many points of a space meets each model, and each deployment, many times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.space.axes import Ints
from dse.space.candidates import CandidateBatch, Floats

WORTH = 0.75  # more distinct ones of n cost more to gather than they save


@record
class Alike:
    """n candidates of k kinds: `few` has one of each kind, `kinds` (n,) says which."""

    few: CandidateBatch
    kinds: NDArray[np.intp]

    def gathered(self, found: Floats) -> Floats:
        """(k,) of each kind -> (n,) of each candidate."""
        return found.take(self.kinds)


@record
class Shared:
    """What n candidates have in common: their models in their formats, and their deployments but
    for the load that these serve."""

    models: Alike
    deployments: Alike


def shared_by(batch: CandidateBatch, models: Ints, deployments: Ints) -> Shared | None:
    """Of candidates with these codes, (n,) each, those of equal deployments having equal models;
    None where that is not worth the gathering."""
    rows, kinds = _distinct(deployments)
    if len(rows) > WORTH * len(batch):
        return None
    few = batch[rows]
    first, of_few = _distinct(models[rows])
    return Shared(Alike(few[first], of_few[kinds]), Alike(few, kinds))


def _distinct(codes: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(k,) the place of one of each code, ascending by code, and (n,) which code each is."""
    order = np.argsort(codes)
    ascending = codes[order]
    new = np.ones(len(codes), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    kinds = np.empty(len(codes), dtype=np.intp)
    kinds[order] = np.cumsum(new) - 1
    return order[new], kinds
