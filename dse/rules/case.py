"""What rules look at: n candidates with as much as is known of their machines and their run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from math import inf
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from dse.physics.parameters import Parameters, parameters
from dse.physics.racks import rack_violations
from dse.record import record
from dse.rules.kinds import MEGATRON, SERVERS, SGLANG, TRTLLM, UNKNOWN, VLLM, Flags, family_of
from dse.space.candidates import Block, CandidateBatch, Floats

if TYPE_CHECKING:
    from dse.physics.machines import Machines
    from dse.physics.serving import Performance
    from dse.physics.training.at_scale import Conditions, Run
    from dse.physics.training.plan import TrainingBatch, TrainingMetrics

Searched = Literal["nothing", "deployments", "shapes"]
_OF_BACKEND = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM}


def stack_of(backend: str) -> str | None:
    """The stack that a backend is, of whatever age (`vllm-2023` is vLLM); None for `generic` and
    for those that no rule is of."""
    return _OF_BACKEND.get(backend.partition("-")[0])


@lru_cache(maxsize=64)
def servers_on(family: str) -> tuple[str, ...]:
    """The stacks that serve models on chips of a family; none where nobody knows which do."""
    found = family_of(family)
    return () if found is UNKNOWN else tuple(stack for stack in found.stacks if stack in SERVERS)


@record
class Width:
    """A width that is split over ranks: `value` (n,) on one of them, of `total` over `ranks`.
    `inner`: it is the input of a product, not the output of one alone."""

    title: str
    part: str
    value: Floats
    total: Floats
    ranks: Floats
    used: Flags
    inner: bool = True


@record
class Training:
    """Runs, (n,), that `step` predicts as one data centre sees them; `run` and `conditions` are
    what surrounds the steps, where the `plans` of all chips are judged."""

    step: TrainingMetrics
    plans: TrainingBatch | None = None
    run: Run | None = None
    conditions: Conditions | None = None
    chips: int | None = None


class Models(Protocol):
    """Of n models, their parameters and the tokens, (n,), that they are trained on."""

    @property
    def parameters(self) -> Parameters: ...

    @property
    def tokens(self) -> Floats: ...

    def of(self, batch: CandidateBatch) -> Models: ...


@record
class Case:
    """n candidates on chips of `families`, by the code of the chip; `named` is the stack that was
    asked for, None where any may be meant. `models` is what is known of how they are trained.
    `searched` is what a search chooses of them. Some questions
    know shapes and degrees alone: then `machines`, `performance` and `training` are None, and rules
    that need them find nothing."""

    batch: CandidateBatch
    families: tuple[str, ...] = ()
    named: str | None = None
    machines: Machines | None = None
    performance: Performance | None = None
    serving: str = "continuous"
    training: Training | None = None
    models: Models | None = None
    unique_tokens: float = inf
    searched: Searched = "nothing"
    backend: str = ""  # id of what serves, where known

    @classmethod
    def of_training(cls, training: Training) -> Case:
        deployed = training.step.deployed
        machines = deployed.machines
        return cls(deployed.batch, machines.families, MEGATRON, machines, training=training)

    def under(self, stack: str) -> Case:
        """The same where `stack` is named."""
        return replace(self, named=stack)

    def of(self, batch: CandidateBatch) -> Case:
        """The case of other candidates, of which nobody knows how they run."""
        models = None if self.models is None else self.models.of(batch)
        return replace(self, batch=batch, performance=None, models=models)

    @cached_property
    def group(self) -> Floats:
        """(n,) chips over which experts are divided."""
        if self.training is not None:
            return self.training.step.deployed.group
        return self.batch.tensor_parallel * self.batch.data_parallel

    @cached_property
    def blocks(self) -> tuple[tuple[Block, Flags], ...]:
        """Blocks that some candidate has, and (n,) which have them."""
        pairs = ((block, block.count > 0.0) for block in self.batch.blocks)
        return tuple((block, used) for block, used in pairs if used.any())

    def having(self, *sizes: str) -> Iterator[tuple[Block, Flags]]:
        """Those of them that have all of `sizes`."""
        return (pair for pair in self.blocks if all(size in pair[0].sizes for size in sizes))

    @cached_property
    def kept(self) -> Floats:
        """(n,) zeros: the amount of every rule that no candidate breaks."""
        none = np.zeros(len(self.batch))
        none.flags.writeable = False
        return none

    @cached_property
    def parameters(self) -> Parameters:
        return parameters(self.batch) if self.models is None else self.models.parameters

    @cached_property
    def sparse(self) -> Flags:
        """(n,) whether a model has routed experts."""
        return self.parameters.experts > 0.0

    @cached_property
    def requests(self) -> Floats:
        """(n,) requests whose whole cache the busiest chip has to hold."""
        if self.performance is None or self.serving != "static":
            return np.ones(len(self.batch))
        return np.ceil(self.performance.running_per_instance / self.batch.data_parallel)

    @cached_property
    def rack(self) -> dict[str, Floats]:
        """Used / limit - 1 of the rack that a hypothetical scale-up domain stands in, by bound;
        empty without one."""
        machines, domain = self.machines, self.batch.domain
        if machines is None or not machines.racks or domain is None:
            return {}
        return rack_violations(machines.racks, domain, self.batch.chip)

    @cached_property
    def dtypes(self) -> dict[str, frozenset[int]]:
        """Codes of the formats of weights, by part, that some candidate has."""
        found = {part: np.bincount(code) for part, code in self.batch.weight_dtype.items()}
        return {part: frozenset(map(int, np.flatnonzero(n))) for part, n in found.items()}

    @cached_property
    def widths(self) -> tuple[Width, ...]:
        return tuple(split_widths(self.batch))


def expert_shards(batch: CandidateBatch) -> Floats:
    """(n,) ranks that share one expert."""
    group = batch.tensor_parallel * batch.data_parallel
    return np.maximum(group / batch.expert_parallel, 1.0)


def split_widths(batch: CandidateBatch) -> Iterator[Width]:
    """The widths of attention, feed-forwards and experts on one rank."""
    tp = batch.tensor_parallel
    for block in batch.blocks:
        used = block.count > 0.0
        if not used.any():
            continue
        if block.kind in ("gqa", "mla"):
            yield from _attention(block, tp, used)
        elif block.kind == "mlp":
            width = block["intermediate_size"]
            yield Width("feed-forward", "mlp", width / tp, width, tp, used)
        elif block.kind == "moe":
            shards, width = expert_shards(batch), block["expert_intermediate_size"]
            shared = block["shared_intermediate_size"]
            yield Width("experts", "experts", width / shards, width, shards, used)
            yield Width("shared experts", "mlp", shared / tp, shared, tp, used & (shared > 0.0))


def _attention(block: Block, tp: Floats, used: Flags) -> Iterator[Width]:
    heads, part = block["heads"], "attention"
    values = heads * block["v_head_dim"]
    if block.kind == "mla":
        query = heads * (block["qk_nope_head_dim"] + block["qk_rope_head_dim"])
        yield Width("queries", part, query / tp, query, tp, used, inner=False)
    else:
        kv = block["kv_heads"] * block["head_dim"]
        held = np.ceil(block["kv_heads"] / tp) * block["head_dim"]
        yield Width("keys of one rank", part, held, kv, tp, used, inner=False)
    yield Width("heads", part, values / tp, values, tp, used)
