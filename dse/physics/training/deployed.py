"""A training batch on its machines: the groups of chips that talk to each other.

With tensor-parallel ranks next to each other, then context, data and pipeline (`plan`), the ranks
of a group are a stride apart: as many as fit a scale-up domain lie inside it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dse.physics.collectives import Group
from dse.physics.deployed import Deployed
from dse.physics.machines import Machines
from dse.physics.training.plan import TrainingBatch
from dse.schema.training_stack import TrainingStack
from dse.space.candidates import Floats


class TrainingDeployed(Deployed):
    """Gathers of n training runs. `group` counts the chips of a pipeline stage; the experts of a
    layer are spread over `expert_parallel` of them, each whole on one chip."""

    def __init__(self, runs: TrainingBatch, machines: Machines, stack: TrainingStack) -> None:
        super().__init__(runs.candidates, machines)
        self.runs, self.stack = runs, stack
        self.group = self.tensor_parallel * runs.context_parallel * self.data_parallel
        self.experts_tensor_parallel = np.ones(self.n)
        clocks = np.array([stack.clocks.get(chip, 1.0) for chip in machines.ids])
        self.clock = clocks[self.batch.chip]

    def _strided(self, size: Floats, stride: Floats) -> Group:
        return Group(self.machines.fabric, self.batch.chip, size, self.domain, stride)

    @cached_property
    def zero_stage(self) -> Floats:
        """(n,) as it works: with pipeline stages, gradients are whole on every rank until the last
        micro-batch, which makes stage 2 stage 1 (PyTorch's pipeline schedules put off FSDP's
        reduction until then)."""
        stage = self.runs.zero_stage
        return np.where((stage == 2.0) & (self.pipeline_parallel > 1.0), 1.0, stage)

    @cached_property
    def tensor_group(self) -> Group:
        return self._strided(self.tensor_parallel, np.ones(self.n))

    @cached_property
    def context_group(self) -> Group:
        return self._strided(self.runs.context_parallel, self.tensor_parallel)

    @cached_property
    def expert_group(self) -> Group:
        return self._strided(self.expert_parallel, np.ones(self.n))

    @cached_property
    def data_ranks(self) -> Floats:
        """(n,) ranks that hold the same dense weights: context and data parallel."""
        return self.runs.context_parallel * self.data_parallel

    @cached_property
    def data_group(self) -> Group:
        return self._strided(self.data_ranks, self.tensor_parallel)

    @cached_property
    def expert_data_ranks(self) -> Floats:
        """(n,) ranks that hold the same experts."""
        return np.maximum(self.group / self.expert_parallel, 1.0)

    @cached_property
    def expert_data_group(self) -> Group:
        return self._strided(self.expert_data_ranks, self.expert_parallel)
