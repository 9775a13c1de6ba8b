"""Claim 17: the backward pass against the forward pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dse.accuracy.claims.frame import CONFIRMED, CONTRADICTED, QUALIFIED, Claim, Finding, Table
from dse.accuracy.claims.training_runs import RUNS, run
from dse.answer.numbers import digits
from dse.physics.training.deployed import TrainingDeployed
from dse.physics.training.passes import Pass
from dse.physics.training.plan import TASKS
from dse.questions.train.answer import Training

LONG = 131_072
ABOUT = (1.8, 2.2)


def judge(ratios: list[float]) -> str:
    """Backward over forward, in seconds, of every run."""
    about = [ABOUT[0] <= ratio <= ABOUT[1] for ratio in ratios]
    if all(about):
        return CONFIRMED
    return QUALIFIED if sum(about) * 2 >= len(about) else CONTRADICTED


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


def find() -> Finding:
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
    return Finding(
        judge(plain),
        f"{digits(figures['median'])} times the forward pass in the median of {len(RUNS)} runs, "
        f"{digits(figures['least'])} to {digits(figures['most'])}; "
        f"{digits(figures['long_median'])} for sequences of {LONG:,} tokens, "
        f"{digits(figures['lora_median'])} for LoRA, which has no weight gradients",
        figures,
        "A micro-batch of the best plan of each run, all layers, bf16, sequences of 8,192, device "
        "time without traffic and recomputation.",
        (
            Table(
                "Backward over forward, seconds of the device",
                ("run", "8,192 tokens", f"{LONG:,} tokens", "LoRA"),
                tuple(
                    (name, *map(digits, row))
                    for name, *row in zip(runs, plain, long, lora, strict=True)
                ),
            ),
        ),
        "A matrix product has two of its size backward: counted. Attention backward has 2.5 times "
        "the operations (FlashAttention-2, arXiv 2307.08691, section 3.1) at a rate that is "
        "assumed where the stack was not fitted.",
        "What recomputation adds is no part of it: up to one more forward pass.",
    )


CLAIMS = (
    Claim(
        17,
        "The backward pass costs about twice the forward pass.",
        ("dse claims 17",),
        f"Confirmed where backward over forward seconds lie between {ABOUT[0]:g} and {ABOUT[1]:g} "
        "for the best plan of every run; qualified where they do for half of them; else "
        "contradicted.",
        find,
    ),
)
