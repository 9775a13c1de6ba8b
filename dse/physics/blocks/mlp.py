"""Dense feed-forward: gated (three matrices, SwiGLU) or plain (two), split over tensor parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.deployed import Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step


def _width(deployed: Deployed, block: Block) -> Floats:
    return np.ceil(block["intermediate_size"] / deployed.tensor_parallel)


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    width = _width(deployed, block)
    return {"mlp": block["matrices"] * deployed.batch.hidden_size * width}


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    return np.zeros(deployed.n)


def feed_forward(step: Step, name: str, count: Floats, width: Floats, matrices: Floats) -> None:
    """Up (and gate), activation, down: the operators of one feed-forward of `width` columns."""
    hidden, rows = step.hidden_size, step.rows
    step.gemm(f"{name} up-projection", count, "mlp", rows, (matrices - 1.0) * width, hidden)
    step.elementwise(f"{name} activation", count, matrices * rows * width)
    step.gemm(f"{name} down-projection", count, "mlp", rows, hidden, width)


def add(step: Step, block: Block) -> None:
    width = _width(step.deployed, block)
    step.elementwise("feed-forward norm", block.count, 3.0 * step.rows * step.hidden_size)
    feed_forward(step, "feed-forward", block.count, width, block["matrices"])
    step.tensor_all_reduce("feed-forward all-reduce", block.count)
