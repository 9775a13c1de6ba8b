"""Training: memory and time of one optimizer step of n models on n deployments."""

from dse.physics.training.evaluate import evaluate_training
from dse.physics.training.plan import TrainingBatch, TrainingMetrics

__all__ = ["TrainingBatch", "TrainingMetrics", "evaluate_training"]
