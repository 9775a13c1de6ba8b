"""How well the kernel laws are known that the blocks of a model use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS
from dse.physics.machines import Machines
from dse.schema.calibration import KINDS as PROVENANCE
from dse.space.candidates import CandidateBatch


def worst_block_law(batch: CandidateBatch, machines: Machines) -> NDArray[np.intp]:
    """(n,) index into `dse.schema.calibration.KINDS` of the worst law that the blocks of a
    candidate use: one that no measurement of its chip holds, or one borrowed from other kernels."""
    worst = np.zeros(len(batch), dtype=np.intp)
    for block in batch.blocks:
        kind, used = KINDS[block.kind], block.count > 0.0
        for law in kind.laws:
            if law in machines.block_law_kind:
                found = machines.block_law_kind[law][batch.chip, batch.weight_dtype["experts"]]
                worst = np.maximum(worst, used * found)
        borrowed = kind.borrows(block)
        if borrowed is not None:
            worst = np.maximum(worst, borrowed * PROVENANCE.index("derived"))
    return worst
