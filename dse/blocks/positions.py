"""A table of learned positions (GPT-2, OPT): memory, and one row read a token."""

from __future__ import annotations

import numpy as np

from dse.blocks.kind import Kind
from dse.blocks.operators import Block, Floats, Operators, Ranks, Role


class Positions(Kind):
    words = "learned positions"
    sizes = ("rows",)
    order = 7
    recomputed_as = "ends"

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        return {"positions": block["rows"] * ranks.batch.hidden_size}

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def activation_width(self, ranks: Ranks, block: Block) -> Floats:
        return np.zeros_like(block.count)

    def add(self, step: Operators, block: Block) -> None:
        elements = 3.0 * step.rows * step.hidden_size
        step.elementwise(Role.NORM, "position embedding", block.count, elements)


KIND = Positions()
