"""Watts of a chip while it trains, by the power model of serving (`dse.perf.power`).

Seconds of arithmetic at the dense peak are those of the hardware FLOP utilisation, recomputation
included; bytes are those of large matrix products (three matrices of side `PRODUCT_SIDE`) and of
what the memory bounds: element-wise kernels and the optimizer at the full bandwidth. What a chip
sends over links and networks is left out. Nothing beyond the rated power; the idle power all the
time, restarts and waits included.
"""

from __future__ import annotations

import numpy as np

from dse.candidates import Floats
from dse.dtypes import CODE
from dse.perf.machines import Machines
from dse.perf.power import PRODUCT_SIDE, Draw
from dse.perf.training.search import Evaluated

MEMORY_BOUND = ("elementwise", "optimizer")


def step_watts(plans: Evaluated, machines: Machines) -> Floats | None:
    """(n,) mean watts of a chip over the run; None where the chip has no power figure."""
    chip = plans.batch.candidates.chip
    draw = Draw(machines.power, chip)
    if np.isnan(draw.idle_w).any() or np.isnan(draw.cap_w).any():
        return None
    metrics = plans.metrics
    gemm, bf16 = machines.laws["gemm"], CODE["bf16"]
    peak = 1.0 / (gemm.s_per_flop * gemm.floor_of_compute)[chip, bf16]
    peak_s = metrics.hfu * metrics.step_s
    memory_s = np.zeros(len(peak_s))
    for cause in MEMORY_BOUND:
        memory_s = memory_s + metrics.losses[cause]
    bytes_ = peak_s * peak * 3.0 / PRODUCT_SIDE + memory_s / machines.floor_s_per_byte[chip]
    joules = (draw.arithmetic_w + draw.operand_w) * peak_s
    joules = joules + (draw.memory_j + draw.on_chip_j) * bytes_
    busy = np.minimum(joules / metrics.step_s, draw.cap_w - draw.idle_w)
    running = metrics.step_s / plans.run.step_s * (1.0 - plans.run.goodput.restarting)
    return draw.idle_w + busy * running
