"""Watts of a chip while it trains, by the power model of serving (`dse.physics.power`).

Joules of a step are counted from what the mean chip does in it (`TrainingMetrics.work`), cut to
the rated power over the time of the step; the network draws its own outside the chip. The idle
power is drawn all the time, waits and restarts included; work that is lost is drawn for again.
"""

from __future__ import annotations

import numpy as np

from dse.physics.machines import Machines
from dse.physics.power import Draw
from dse.problem.training.search import Evaluated
from dse.record import record
from dse.space.candidates import Floats


@record
class Watts:
    """(n,) mean over the run: of a chip, and of the network for each chip. NaN without a power
    figure."""

    chip: Floats
    network: Floats

    @property
    def whole(self) -> Floats:
        return self.chip + self.network


def mean_watts(plans: Evaluated, machines: Machines) -> Watts:
    """Of plans (n,)."""
    draw = Draw(machines.power, plans.batch.candidates.chip)
    metrics, run = plans.metrics, plans.run
    most = (draw.cap_w - draw.idle_w) * metrics.step_s
    own = np.minimum(metrics.work.joules(draw), most)
    # Of the wall clock, the share in which steps run, lost ones too.
    running = (run.goodput.goodput + run.goodput.lost) / run.step_s
    network = draw.network_j * metrics.work.network_bytes
    return Watts(draw.idle_w + own * running, network * running)
