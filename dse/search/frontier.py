"""Which points a Pareto local search looks around next: the core of the bulk engine and of the
Optuna sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import moocore
import numpy as np
from numpy.typing import NDArray

from dse.pareto import REFERENCE, Archive, Scale

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

TOLERATED = 1.0
RANKED_OBJECTIVES = (2, 3)


def promising(
    front: Archive,
    relaxed: Archive,
    fresh: Callable[[Ids], NDArray[np.bool_]],
    log: Sequence[bool],
    rng: np.random.Generator,
) -> Ids:
    """Ids worth expanding, the best first.

    `fresh(ids)` says which were not expanded yet. First those of the feasible `front`, by what they
    alone contribute to its hypervolume (at random with more than three objectives, where
    contributions are slow to compute, and with one). When there are none, the infeasible points of
    `relaxed` (the archive whose last objective is the sum of violations), least violation first;
    while something is feasible, those that exceed their limits by at most 100% in sum.
    """
    unexpanded = fresh(front.ids)
    if unexpanded.any():
        return _by_contribution(front, unexpanded, log, rng)
    violation, ids = relaxed.F[:, -1], relaxed.ids
    most = TOLERATED if len(front) else np.inf
    near = fresh(ids) & (violation > 0) & (violation <= most)
    return ids[near][np.lexsort((ids[near], violation[near]))]


def _by_contribution(
    front: Archive, fresh: NDArray[np.bool_], log: Sequence[bool], rng: np.random.Generator
) -> Ids:
    F, ids = front.F, front.ids
    if F.shape[1] not in RANKED_OBJECTIVES:
        return rng.permutation(ids[fresh])
    gain = moocore.hv_contributions(Scale.of(F, log)(F), ref=np.full(F.shape[1], REFERENCE))
    return ids[fresh][np.argsort(-gain[fresh], kind="stable")]
