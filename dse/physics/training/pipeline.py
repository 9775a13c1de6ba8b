"""Pipeline stages: the layers of each, how many micro-batches they keep, and what a schedule waits.

p stages, v chunks of layers on each, m micro-batches; f, b and w are forward, the whole backward
and its weight gradients of one micro-batch on one stage. Idle time of a step:

    1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)   (p - 1) (f + b)
    interleaved (the same, section 2.2.2)                         (p - 1) (f + b) / v
    zero bubble ZB-H1 (Qi et al. 2024, arXiv 2401.10241, table 2) (p - 1) (f + b - 2 w)
    DualPipe (DeepSeek-V3, arXiv 2412.19437, table 2)             (p / 2 - 1) (f + 2 b - 3 w)

The last two count b with w inside, so that ZB-H1's T_F + T_B - T_W, whose T_B has none, is
f + b - 2 w.
"""

from __future__ import annotations

import numpy as np

from dse.physics.training.plan import SCHEDULES
from dse.record import record
from dse.space.candidates import Codes, Floats

INTERLEAVED, ZERO_BUBBLE, DUALPIPE = (SCHEDULES.index(name) for name in SCHEDULES[1:])


@record
class Stages:
    """Layers of the first, a middle and the last pipeline stage, (n,). Where layers divide by
    stages and chunks all have the same; else embedding and output head count as a layer each and
    chunks are filled up (Megatron-Core's account_for_embedding_in_pipeline_split and
    account_for_loss_in_pipeline_split)."""

    first: Floats
    middle: Floats
    last: Floats
    inner: Floats  # 1 where there is a stage between first and last

    @classmethod
    def of(cls, layers: Floats, stages: Floats, virtual: Floats) -> Stages:
        chunks = stages * virtual
        even = (layers % chunks == 0.0) | (stages == 1.0)
        padded = np.minimum(np.ceil((layers + 2.0) / chunks) * virtual, layers)
        fullest = np.where(even, layers / stages, padded)
        ends = np.where(even, fullest, np.maximum(fullest - 1.0, 1.0))
        return cls(ends, fullest, ends, np.where(stages > 2.0, 1.0, 0.0))


def in_flight(
    schedule: Codes, stages: Floats, virtual: Floats, micro_batches: Floats
) -> tuple[Floats, Floats, Floats]:
    """(n,) micro-batches whose activations the first, the second and the last stage keep at once,
    in units of all layers of a stage.

    1F1B: p - i of stage i (Narayanan et al. 2021); interleaved: p (1 + (p - 1) / (p v)) of the
    first (Korthikanti et al. 2022, section 4.2.3), 2 / v fewer of each next; ZB-H1 as 1F1B;
    DualPipe p + 1 of every stage (DeepSeek-V3, table 2)."""
    several = virtual > 1.0
    first = np.where(several, stages + (stages - 1.0) / virtual, stages)
    next_ = np.where(several, first - 2.0 / virtual, stages - 1.0)
    last = np.where(several, stages - (stages - 1.0) / virtual, 1.0)
    dual = (schedule == DUALPIPE) & (stages > 1.0)

    def kept(count: Floats) -> Floats:
        return np.minimum(np.where(dual, stages + 1.0, np.maximum(count, 1.0)), micro_batches)

    return kept(first), kept(next_), kept(last)


def bubble_share(
    schedule: Codes, stages: Floats, virtual: Floats, backward: Floats, weight_gradient: Floats
) -> Floats:
    """(n,) of the forward and backward of one micro-batch on the p - 1 other stages, what a stage
    stands idle in a step. `backward` and `weight_gradient` are shares of f + b."""
    plain = 1.0 / np.where(schedule == INTERLEAVED, virtual, 1.0)
    split = np.maximum(1.0 - 2.0 * weight_gradient, 0.0)
    others = np.maximum(stages - 1.0, 1.0)
    halves = np.maximum(stages / 2.0 - 1.0, 0.0) / others
    dual = halves * np.maximum(1.0 + backward - 3.0 * weight_gradient, 0.0)
    share = np.where(schedule == ZERO_BUBBLE, split, plain)
    return np.where(schedule == DUALPIPE, dual, share)
