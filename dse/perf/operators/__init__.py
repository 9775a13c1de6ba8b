"""One module a block kind. Each gives, for a block of `count` layers:

weight_elements(deployed, block) -> {part: (n,) elements on one chip, one layer}
kv_bytes_per_request(deployed, block, tokens) -> (n,) bytes on one chip, one layer
add(step, block): adds the block's operators of one step to the step's ledger
"""

from __future__ import annotations

from typing import Protocol

from dse.candidates import Block, Floats
from dse.perf.deployed import Deployed
from dse.perf.operators import gqa, mla, mlp, moe


class Kind(Protocol):
    def weight_elements(self, deployed: Deployed, block: Block) -> dict[str, Floats]: ...

    def kv_bytes_per_request(self, deployed: Deployed, block: Block, tokens: Floats) -> Floats: ...

    def add(self, step, block: Block) -> None: ...


KINDS: dict[str, Kind] = {"gqa": gqa, "mla": mla, "mlp": mlp, "moe": moe}
