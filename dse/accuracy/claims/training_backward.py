"""The backward pass against the forward pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.accuracy.claims.engine import Given, Measured
from dse.accuracy.claims.training_runs import RUNS, run
from dse.answer.numbers import digits
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
    runs = {f"{model}, {chips:,} x {chip}": run(model, chip, chips) for model, chip, chips in RUNS}
    plain = [ratio(found) for found in runs.values()]
    long = [ratio(found, LONG) for found in runs.values()]
    lora = [ratio(found, task="lora") for found in runs.values()]
    figures = {
        "least": min(plain),
        "most": max(plain),
        "median": float(np.median(plain)),
        "long_median": float(np.median(long)),
        "lora_median": float(np.median(lora)),
    }
    return Measured(
        figures,
        (
            tuple(
                (
                    (name, *map(digits, row))
                    for name, *row in zip(runs, plain, long, lora, strict=True)
                )
            ),
        ),
        {
            "about": float(
                np.mean([given["about_least"] <= one <= given["about_most"] for one in plain])
            )
        },
    )
