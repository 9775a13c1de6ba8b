"""One module a block kind. Each gives, for a block of `count` layers:

weight_elements(deployed, block) -> {part: (n,) elements on one chip, one layer}
kv_bytes_per_request(deployed, block, tokens) -> (n,) bytes on one chip, one layer
add(step, block): adds the block's operators of one step to the step's ledger
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dse.physics.blocks import compressed, delta_net, gqa, mamba, mla, mlp, moe, positions
from dse.physics.deployed import Deployed
from dse.space.candidates import Block, Floats


class Kind(Protocol):
    def weight_elements(self, deployed: Deployed, block: Block) -> dict[str, Floats]: ...

    def kv_bytes_per_request(self, deployed: Deployed, block: Block, tokens: Floats) -> Floats: ...

    def add(self, step, block: Block) -> None: ...


KINDS: dict[str, Kind] = {
    "gqa": gqa,
    "mla": mla,
    "compressed": compressed,
    "delta_net": delta_net,
    "mamba": mamba,
    "mlp": mlp,
    "moe": moe,
    "positions": positions,
}


def borrows_laws(block: Block) -> NDArray[np.bool_] | None:
    """(n,) where the block runs on laws that were measured for other kernels; None: nowhere."""
    if block.kind in ("compressed", "delta_net", "mamba"):
        return block.count > 0.0
    if "index_topk" in block.sizes:
        return (block.count > 0.0) & (block["index_topk"] > 0.0)
    return None
