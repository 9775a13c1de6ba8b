"""Network behind arithmetic: a step as two micro-batches that take turns.

While one micro-batch exchanges tokens with its experts, the other computes. Each has half of the
tokens, reads the weights of its own and pays for its own kernels and messages. In a layer attention
(with shared experts) A, dispatch D, experts E and combine C follow each other, so that the turns of
two are A beside C of the other, A beside D, E beside D and E beside C, and a layer of both takes

    max(A, C) + max(A, D) + max(E, D) + max(E, C)

where one alone takes A + D + E + C (DeepSeek-V3 report, section 3.4). Kernels that send and receive
may take a share t of the multiprocessors: what computes beside N seconds of them is later by t N,
so that of a turn with device time A, min(A, (1 - t) N) is hidden.

Serving software does so (two-batch or dual-batch overlap) where attention ranks send tokens to
whole experts outside their scale-up domain, and from a number of tokens on
(`dse.schema.backend.Overlap`). A share X given by the user takes its place: of network time N and
other device time D, X min(N, D) is hidden without what the halves cost. A step of one request has
nothing to take turns with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.blocks.operators import Role
from dse.physics.deployed import Deployed
from dse.schema.backend import Overlap
from dse.space.candidates import Floats

MICRO_BATCHES = 2.0


class Hidden(NamedTuple):
    """`share` of what could be that is hidden, (n,): of the shorter of network and device time, or,
    with the micro-batches of a step, (n,), of `taking_turns`; 0.0 and None where no candidate hides
    any, or is split. `taken`, (n,), is the share of a chip's arithmetic that messages take."""

    share: Floats | float
    batches: Floats | None
    taken: Floats | float = 0.0


NONE = Hidden(0.0, None)
TURNS = (Role.EXPERTS, Role.DISPATCH, Role.COMBINE)


def taking_turns(
    device: Floats, experts: Floats, dispatch: Floats, combine: Floats, taken: Floats | float
) -> Floats:
    """(n,) seconds hidden, of those of both micro-batches: `device` with that of the experts."""
    hidden = np.zeros(len(device))
    for own in (device - experts, experts):
        for sent in (dispatch, combine):
            hidden = hidden + np.minimum(own, (1.0 - taken) * sent)
    return hidden / MICRO_BATCHES


def overlap_of(
    deployed: Deployed,
    given: float | None,
    usual: Overlap | None,
    *,
    requests: Floats,
    tokens: Floats,
    prefill: NDArray[np.bool_] | bool,
) -> Hidden:
    """What is `given`, or `usual` for the backend, of a step with so many `requests` and `tokens`,
    (n,), on an attention rank; `prefill` where some are of prompts, which are divided anywhere."""
    two = np.where(prefill, tokens, requests) >= MICRO_BATCHES
    if given is not None:
        return Hidden(np.where(two, given, 0.0), None) if given else NONE
    if usual is None:
        return NONE
    least = np.where(prefill, usual.prefill_tokens, usual.decode_tokens)
    split = two & (tokens >= least) & sent_outside(deployed)
    if not split.any():
        return NONE
    taken = np.where(prefill, usual.prefill_taken, usual.decode_taken)
    return Hidden(split.astype(np.float64), np.where(split, MICRO_BATCHES, 1.0), taken)


def sent_outside(deployed: Deployed) -> NDArray[np.bool_]:
    """(n,) whether attention ranks send tokens to whole experts outside their scale-up domain."""
    routed = (deployed.data_parallel > 1.0) & (deployed.expert_parallel >= deployed.group)
    return routed & (deployed.group > deployed.domain) & deployed.batch.sparse
