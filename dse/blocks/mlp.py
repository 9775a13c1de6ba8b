"""Dense feed-forward: gated (three matrices, SwiGLU) or plain (two), split over tensor parallel."""

from __future__ import annotations

import numpy as np

from dse.blocks.kind import Kind
from dse.blocks.operators import Block, Floats, Operators, Product, Ranks, Role


def feed_forward(
    step: Operators, role: Role, label: str, count: Floats, width: Floats, matrices: Floats
) -> None:
    """Up (and gate), activation, down: the operators of one feed-forward of `width` columns; `role`
    is that of the first."""
    hidden, rows = step.hidden_size, step.rows
    up, down = f"{label} up-projection", f"{label} down-projection"
    step.gemm(Product(role, up, count, "mlp", rows, (matrices - 1.0) * width, hidden))
    step.elementwise(Role.ACTIVATION, f"{label} activation", count, matrices * rows * width)
    step.gemm(Product(Role.PROJECTION, down, count, "mlp", rows, hidden, width))


class Mlp(Kind):
    words = "dense feed-forward layers"
    sizes = ("intermediate_size", "matrices")
    order = 5
    recomputed_as = "mlp"

    def _width(self, ranks: Ranks, block: Block) -> Floats:
        return np.ceil(block["intermediate_size"] / ranks.tensor_parallel)

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        return {"mlp": block["matrices"] * ranks.batch.hidden_size * self._width(ranks, block)}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        return hidden

    def activation_width(self, ranks: Ranks, block: Block) -> Floats:
        return block["intermediate_size"] / ranks.tensor_parallel

    def add(self, step: Operators, block: Block) -> None:
        width = self._width(step.deployed, block)
        elements = 3.0 * step.rows * step.hidden_size
        step.elementwise(Role.NORM, "feed-forward norm", block.count, elements)
        feed_forward(step, Role.UP, "feed-forward", block.count, width, block["matrices"])
        step.tensor_all_reduce("feed-forward all-reduce", block.count)


KIND = Mlp()
