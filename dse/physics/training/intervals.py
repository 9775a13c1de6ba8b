"""80% intervals of training predictions: how far runs that no fit had seen have been off.

`hardware/efficiency/training/calibration.yaml` holds the 10th and the 90th percentile of measured
over predicted tokens a second, of rows whose group (model and chip) was left out of the fit, for
each kind of kernel efficiency. `python -m tools.fits.training` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.data import hardware_dir
from dse.physics.intervals import UNKNOWN
from dse.physics.machines import Machines
from dse.physics.provenance import worst_block_law
from dse.physics.training.plan import TrainingBatch
from dse.schema.calibration import KINDS, Calibration
from dse.schema.training_stack import CALIBRATION
from dse.space.candidates import Floats

RATE, RUN = "rate", "run"
USUAL = ("usual", "usual_least", "usual_most")
# Metrics that grow with the speed; all others shrink with it.
RATES = ("tokens_per_s_per_chip", "tokens_per_s", "model_flops_per_s_per_chip", "mfu")
WHOLE_RUNS = ("chip_hours", "days", "usd")
Spread = Mapping[str, NDArray[np.float64]]  # class -> (kinds, 2): low, high of a rate


@cache
def training_spread(path: Path | None = None) -> Spread:
    """Of the shipped file, or of `path`; a factor of two either way where there is none."""
    file = hardware_dir() / CALIBRATION if path is None else path
    found = Calibration.load(file).spread if file.exists() else {}
    return {
        name: np.array([found.get(name, {}).get(kind, UNKNOWN) for kind in KINDS])
        for name in (RATE, RUN)
    }


@cache
def usual_over_best() -> tuple[float, float, float]:
    """Chip-hours of published pre-training runs over those of the best plan that is found for them
    (`python -m tools.fits.public_runs`): mean, least and most; 1 where no figure is shipped."""
    file = hardware_dir() / CALIBRATION
    found = Calibration.load(file).factors if file.exists() else {}
    mean, least, most = (found.get(name, 1.0) for name in USUAL)
    return mean, least, most


def training_interval(
    metric: str, value: Floats, kind: NDArray[np.intp], spread: Spread
) -> tuple[Floats, Floats]:
    """(low, high), (n,) each, of a metric of a training run; `kind` (n,) indexes KINDS. Whole runs,
    whose configuration and interruptions are seldom published, have a spread of their own."""
    low, high = spread[RUN if metric in WHOLE_RUNS else RATE][kind].T
    if metric in RATES:
        return value * low, value * high
    return value / high, value / low


def law_kind(batch: TrainingBatch, machines: Machines) -> NDArray[np.intp]:
    """(n,) index of KINDS: the worst of the kernel laws that a run uses, those that its layers
    borrow from other kernels included."""
    worst = np.zeros(len(batch), dtype=np.intp)
    for codes in batch.candidates.weight_dtype.values():
        worst = np.maximum(worst, machines.law_kind[batch.candidates.chip, codes])
    return np.maximum(worst, worst_block_law(batch.candidates, machines))
