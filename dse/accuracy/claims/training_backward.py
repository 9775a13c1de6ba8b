"""The backward pass against the forward pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.accuracy.claims.engine import Given, Measured, share
from dse.accuracy.claims.training_runs import RUNS, run
from dse.physics.training.deployed import TrainingDeployed
from dse.physics.training.passes import Pass
from dse.physics.training.plan import TASKS
from dse.questions.train.answer import Training

LONG = 131_072


def ratio(found: Training, length: float | None = None, task: str = "pretrain") -> float:
    """Device seconds of all layers, backward over forward, of a micro-batch of the run's plan; of
    one sequence of `length` tokens in its place, or of another task."""
    batch = found.plans.batch[0:1]
    if length is not None:
        one = np.ones(1)
        batch = replace(batch, sequence_length=length * one, micro_batch=one)
    batch = replace(batch, task=np.array([TASKS.index(task)], dtype=np.intp))
    trainer = found.trainer
    step = Pass(TrainingDeployed(batch, trainer.machines, trainer.stack))
    return float((step.layers.backward / step.layers.forward)[0])


def find(given: Given) -> Measured:
    rows = []
    for model, chip, chips in RUNS:
        found = run(model, chip, chips)
        ratios = (ratio(found), ratio(found, LONG), ratio(found, task="lora"))
        rows.append((f"{model}, {chips:,} x {chip}", *ratios))
    plain, long, lora = ([row[k] for row in rows] for k in (1, 2, 3))
    figures = {
        "least": min(plain),
        "most": max(plain),
        "median": float(np.median(plain)),
        "long_median": float(np.median(long)),
        "lora_median": float(np.median(lora)),
    }
    about = share(given["about_least"] <= one <= given["about_most"] for one in plain)
    return Measured(figures, (rows,), {"about": about})
