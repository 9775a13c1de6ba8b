"""Predicted quality: named scaling laws, their ranges, and what they do not see."""

from dse.quality.law import (
    SIZES,
    Quality,
    Shape,
    compute_optimal_tokens,
    depth_factor,
    overtraining,
    tokens_at_compute,
    training_flops,
)
from dse.quality.laws import DEFAULT, LAWS, predicted_loss, quality
from dse.quality.laws.leverage import expert_leverage
from dse.quality.quantisation import quantisation_penalty

__all__ = [
    "DEFAULT",
    "LAWS",
    "SIZES",
    "Quality",
    "Shape",
    "compute_optimal_tokens",
    "depth_factor",
    "expert_leverage",
    "overtraining",
    "predicted_loss",
    "quality",
    "quantisation_penalty",
    "tokens_at_compute",
    "training_flops",
]
