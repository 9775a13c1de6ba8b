"""One module a kind of block, named as the kind is; `KIND` in it is a `Kind`, which says all that
the physics knows of it. `KINDS` holds those that `dse.schema.blocks` names."""

from __future__ import annotations

from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from dse.physics.blocks.kind import Kind
from dse.physics.machines import Machines
from dse.schema.blocks import BLOCK_SIZES
from dse.schema.calibration import KINDS as PROVENANCE
from dse.space.candidates import CandidateBatch

KINDS: dict[str, Kind] = {
    name: import_module(f"dse.physics.blocks.{name}").KIND for name in BLOCK_SIZES
}


def worst_kind(batch: CandidateBatch, machines: Machines) -> NDArray[np.intp]:
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
