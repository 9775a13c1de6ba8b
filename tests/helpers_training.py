"""Training runs for tests, on the shipped catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dse.physics.training.evaluate import evaluate_training
from dse.physics.training.passes import Pass, TrainingDeployed
from dse.physics.training.plan import TrainingBatch, TrainingMetrics
from dse.schema.training import TrainingStack, training_stack
from dse.space.candidates import Floats
from tests.helpers import deploy, machines

# Nothing hides, nothing waits: what is left is the physics.
PLAIN = replace(
    training_stack("generic"),
    straggler=0.0,
    host_s_per_step=0.0,
    host_s_per_micro_batch=0.0,
    host_s_per_layer=0.0,
    routing_skew=0.0,
)
AXES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "repeat")


def plan(
    model: str, chip: str = "h100_sxm", *, sequence: Any = 4096, batch: Any = 2**22, **settings: Any
) -> TrainingBatch:
    """Runs of one model: axes of the deployment and settings of the run, one number or (n,) each;
    `batch` in tokens."""
    axes = {name: settings.pop(name) for name in AXES if name in settings}
    lengths = [len(value) for value in settings.values() if isinstance(value, list)]
    axes["repeat"] = max([axes.get("repeat", 1), *lengths])
    return TrainingBatch.of(deploy(model, chip, **axes), sequence, batch, **settings)


def train(runs: TrainingBatch, stack: TrainingStack = PLAIN, on: Any = None) -> TrainingMetrics:
    return evaluate_training(runs, on or machines(), stack)


def micro_batch(runs: TrainingBatch, stack: TrainingStack = PLAIN) -> Pass:
    return Pass(TrainingDeployed(runs, machines(), stack))


def states(metrics: TrainingMetrics) -> Floats:
    """(n,) bytes of weights, gradients, moments and master copy."""
    memory = metrics.memory
    return memory["weights"] + memory["gradients"] + memory["optimizer"] + memory["master"]
