"""A table of learned positions (GPT-2, OPT): memory, and one row read a token."""

from __future__ import annotations

import numpy as np

from dse.physics.blocks.kind import PlainStateless, Ranks
from dse.physics.operators import Operators, Role
from dse.space.candidates import Block, Floats


class Positions(PlainStateless):
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
