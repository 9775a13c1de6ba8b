"""Weights of one layer on one chip, and of the tables, in elements: what is stored, reduced over
data-parallel ranks and updated."""

from __future__ import annotations

import numpy as np

from dse.blocks import KINDS
from dse.physics.training.deployed import TrainingDeployed
from dse.record import record
from dse.space.candidates import Floats


@record
class Elements:
    """Weights on one chip, (n,): `dense` and `experts` of the mean layer, `table` of the embedding
    or the output head, `tied` where they are one, `positions` on the first stage."""

    dense: Floats
    experts: Floats
    table: Floats
    tied: Floats
    positions: Floats


def elements_of(deployed: TrainingDeployed) -> Elements:
    """Layers are as the mean of all, so that a stage of many has its share of each kind."""
    batch = deployed.batch
    dense, experts, positions = (np.zeros(deployed.n) for _ in range(3))
    for block in batch.blocks:
        kind = KINDS[block.kind]
        for part, each in kind.weight_elements(deployed, block).items():
            if part == "experts":
                experts = experts + block.count * each
            elif part == "positions":
                positions = positions + block.count * each
            else:
                dense = dense + block.count * each
        dense = dense + block.count * kind.norm_elements(batch.hidden_size, block)
    layers = np.maximum(batch.layers, 1.0)
    table = deployed.vocabulary * batch.hidden_size
    return Elements(dense / layers, experts / layers, table, batch.tied_embeddings, positions)
