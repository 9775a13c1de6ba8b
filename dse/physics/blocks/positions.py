"""A table of learned positions (GPT-2, OPT): memory, and one row read a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.deployed import Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    return {"positions": block["rows"] * deployed.batch.hidden_size}


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    return np.zeros(deployed.n)


def add(step: Step, block: Block) -> None:
    step.elementwise("position embedding", block.count, 3.0 * step.rows * step.hidden_size)
