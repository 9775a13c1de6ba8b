"""What has to fit a chip and its host."""

from __future__ import annotations

import numpy as np

from dse.rules.case import Case
from dse.rules.kinds import Found, Part, rule
from dse.schema.tiers import TIERS

HOST = TIERS.index("host")


@rule("memory_capacity")
def MEMORY(case: Case) -> Found:
    if case.training is not None:
        step = case.training.step
        over = step.memory_bytes_per_chip / step.memory_capacity_bytes_per_chip - 1.0
        yield Part(np.maximum(over, 0.0))
    elif case.performance is not None:
        memory = case.performance.memory
        used = memory.base + case.requests * memory.kv_per_request
        yield Part(used / memory.capacity - 1.0)


@rule("host_memory_capacity")
def HOST_MEMORY(case: Case) -> Found:
    assert case.training is not None
    assert case.machines is not None
    host = case.training.step.host_memory_bytes_per_chip
    capacity = case.machines.tiers.capacity_bytes[case.batch.chip, HOST]
    over = np.maximum(host / np.maximum(capacity, 1.0) - 1.0, 0.0)
    yield Part(np.where(host > 0.0, over, 0.0))
