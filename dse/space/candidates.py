"""CandidateBatch: the one form in which the physics sees a model and its deployment.

A struct of arrays along one candidate axis. Every array is float64 (or integer codes) of shape
(n,); one candidate is a batch of shape (1,). A model is a tuple of blocks; a block is a kind, a
layer count and sizes, so that hybrids, sliding windows and dense first layers are data:

    gqa  heads, kv_heads, head_dim, v_head_dim, window (0: full attention), qkv_bias (0 or 1)
    mla  heads, q_lora_rank (0: none), kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
    mlp  intermediate_size, matrices (3: gated, 2: plain)
    moe  experts, experts_per_token, expert_intermediate_size, shared_intermediate_size, matrices

Other kinds (linear attention, state space, compressed caches) and sizes that only some models have
are in `dse.blocks`; a block carries an optional size where a model of the batch has it.
A block of count 0 costs nothing, so one batch can hold dense and sparse models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dse.blocks import MIXERS
from dse.blocks.operators import Block, Floats
from dse.record import record
from dse.schema.dtypes import BITS

Codes = NDArray[np.intp]
Places = slice | NDArray[np.intp] | NDArray[np.bool_]
BYTES = np.array([bits / 8 for bits in BITS.values()])  # of a stored element, by code of its dtype


class Rows:
    """A record of n rows: arrays (n,), mappings of them and other such records, which may be taken
    at some rows; whatever else it has is of all rows."""

    def take(self, rows: Places) -> Self:
        """The same at `rows`."""
        taken: dict[int, NDArray[Any]] = {}  # an array may stand in several places
        of: Any = self
        parts = {f.name: _take(getattr(self, f.name), rows, taken) for f in fields(of)}
        return replace(of, **parts)


@record
class CandidateBatch(Rows):
    """n models on n deployments. Every array has shape (n,).

    Parallel degrees follow chips = tensor * pipeline * data * replicas; `data_parallel` is
    attention data-parallel inside one instance, `expert_parallel` divides tensor * data.
    `weight_dtype[part]` and `kv_dtype` are codes of `dse.schema.dtypes`; `concurrency` counts the
    requests in flight over all chips. `training_tokens` is NaN where it follows from a training
    compute; `trained_in` is the code of the format that the weights are in when training ends,
    every other of 6 bits or less being a quantisation after it; `trained_whole` that of the whole
    training, another where only its end knew of the format. `redundant_experts` are copies of busy
    experts in each sparse layer over all ranks, None for none; `routing_skew` is the coefficient of
    variation of how often experts are chosen, None for the default of `dse.blocks.moe`.
    `weights_offloaded` and `kv_offloaded` are shares, 0 to 1, of the weights and of the cache that
    lie in memory tier `offload_tier`, a code of `dse.schema.constants.TIERS`; None: all on the
    device.
    `domain` is a hypothetical scale-up domain in chips, None for that of each chip's system.
    `prediction_layers` are the multi-token-prediction modules of each model, None where nothing is
    said of them: a workload that drafts with one then takes one. `backend` is the code of each
    candidate's serving software among those of the machines, None where the workload says it.
    `draft_tokens` are drafted a step, `draft_gain` the tokens that a step then gives by what is
    published of the model (NaN where nothing is); None where the workload says what is drafted.
    `max_running_requests` of an attention rank, None or NaN for what the workload or its backend
    says.
    """

    hidden_size: Floats
    vocab_size: Floats
    tied_embeddings: Floats
    blocks: tuple[Block, ...]
    weight_dtype: Mapping[str, Codes]
    kv_dtype: Codes
    chip: Codes
    tensor_parallel: Floats
    pipeline_parallel: Floats
    data_parallel: Floats
    expert_parallel: Floats
    replicas: Floats
    concurrency: Floats
    training_tokens: Floats
    trained_whole: Codes
    trained_in: Codes
    redundant_experts: Floats | None = None
    routing_skew: Floats | None = None
    weights_offloaded: Floats | None = None
    kv_offloaded: Floats | None = None
    offload_tier: Codes | None = None
    domain: Floats | None = None
    prediction_layers: Floats | None = None
    backend: Codes | None = None
    draft_tokens: Floats | None = None
    draft_gain: Floats | None = None
    max_running_requests: Floats | None = None

    def __len__(self) -> int:
        return len(self.hidden_size)

    def __getitem__(self, rows: Places) -> CandidateBatch:
        """The candidates at `rows`, as a batch."""
        return self.take(rows)

    def total(self, of: Callable[[Block], Floats]) -> Floats:
        """(n,) the sum of what each block has, in their order, so that a row does not depend on the
        batch that it is in."""
        total = np.zeros(len(self))
        for block in self.blocks:
            total = total + of(block)
        return total

    @property
    def layers(self) -> Floats:
        """(n,) layers that mix tokens, which is what pipeline stages divide."""
        return self.total(lambda block: block.count * (block.kind in MIXERS))

    @property
    def sparse(self) -> NDArray[np.bool_]:
        """(n,) whether the model has layers of experts."""
        found = np.zeros(len(self), dtype=bool)
        for block in self.blocks:
            if "experts" in block.sizes:
                found = found | (block.count > 0.0)
        return found

    @property
    def chips_per_instance(self) -> Floats:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def chips(self) -> Floats:
        return self.chips_per_instance * self.replicas


def _take(value: Any, rows: Places, taken: dict[int, NDArray[Any]]) -> Any:
    """A field of `Rows` at `rows`. Not a function within: one that calls itself keeps what it
    sees until the garbage is collected."""
    if isinstance(value, np.ndarray):
        if id(value) not in taken:
            taken[id(value)] = value[rows]
        return taken[id(value)]
    if isinstance(value, Block):
        count = _take(value.count, rows, taken)
        return Block(value.kind, count, _take(value.sizes, rows, taken))
    if isinstance(value, tuple):
        return tuple(_take(item, rows, taken) for item in value)
    if isinstance(value, Mapping):
        return {name: _take(item, rows, taken) for name, item in value.items()}
    return value.take(rows) if isinstance(value, Rows) else value


R = TypeVar("R", bound=Rows)


def concatenated(parts: Sequence[R], sizes: Sequence[int]) -> R:
    """The rows of all parts, so many each, one behind the other. A key that a mapping lacks in a
    part is 0 there; what is of all rows is that of the first."""
    if len(parts) == 1:
        return parts[0]
    of: Any = parts[0]
    found: dict[str, Any] = {}
    for name in (f.name for f in fields(of)):
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], np.ndarray):
            found[name] = np.concatenate(values)
        elif isinstance(values[0], Rows):
            found[name] = concatenated(values, sizes)
        elif isinstance(values[0], Mapping):
            keys = dict.fromkeys(key for value in values for key in value)
            rows = [(value, np.zeros(n)) for value, n in zip(values, sizes, strict=True)]
            found[name] = {k: np.concatenate([v.get(k, none) for v, none in rows]) for k in keys}
    return replace(of, **found)
