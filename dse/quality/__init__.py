"""Predicted quality: scaling laws, their ranges, and what they do not see."""

from dse.quality.fit_range import BOUNDS, FIT, LAW, LawDescription, Range
from dse.quality.laws import (
    Quality,
    dense_equivalent_parameters,
    depth_factor,
    efficiency_leverage,
    predicted_loss,
    quality,
    quantisation_penalty,
    tokens_at_compute,
    training_flops,
)

__all__ = [
    "BOUNDS",
    "FIT",
    "LAW",
    "LawDescription",
    "Quality",
    "Range",
    "dense_equivalent_parameters",
    "depth_factor",
    "efficiency_leverage",
    "predicted_loss",
    "quality",
    "quantisation_penalty",
    "tokens_at_compute",
    "training_flops",
]
