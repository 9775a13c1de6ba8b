"""evaluate_training(batch, machines, stack): one optimizer step of n training runs."""

from __future__ import annotations

from dse.perf.machines import Machines
from dse.perf.training.plan import TrainingBatch, TrainingMetrics
from dse.specs.training_stack import TrainingStack


def evaluate_training(
    batch: TrainingBatch, machines: Machines, stack: TrainingStack
) -> TrainingMetrics:
    """All (n,). `evaluate_training(batch)[i]` equals `evaluate_training(batch[i:i+1])` bit for
    bit."""
    raise NotImplementedError
