"""Candidates that share a part of what they are, so that the part is worked out once and gathered:
an evaluation of many points of a space meets each model, and each deployment, many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.record import record
from dse.space.candidates import Block, CandidateBatch, Floats
from dse.space.space import Ints

WORTH = 0.75  # more distinct ones of n cost more to gather than they save
_MIX, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
# Of a candidate, what no layer sees: arrays that every batch has, and such as only some have.
_UNSEEN: tuple[str, ...] = ("tied_embeddings", "replicas", "concurrency", "training_tokens")
_UNSEEN_CODES = ("trained_whole", "trained_in")
_LEFT_OUT = ("prediction_layers", "backend", "draft_tokens", "draft_gain", "max_running_requests")


@record
class Alike:
    """n candidates of k kinds: `few` has one of each kind, `kinds` (n,) says which."""

    few: CandidateBatch
    kinds: NDArray[np.intp]

    def gathered(self, found: Floats) -> Floats:
        """(k,) of each kind -> (n,) of each candidate."""
        return found.take(self.kinds)


@record
class Shared:
    """What n candidates have in common: their models in their formats, and their deployments but
    for the load that these serve."""

    models: Alike
    deployments: Alike


def shared_by(batch: CandidateBatch, models: Ints, deployments: Ints) -> Shared | None:
    """Of candidates with these codes, (n,) each, those of equal deployments having equal models;
    None where that is not worth the gathering."""
    rows, kinds = distinct([deployments])
    if len(rows) > WORTH * len(batch):
        return None
    few = batch[rows]
    first, of_few = distinct([models[rows]])
    return Shared(Alike(few[first], of_few[kinds]), Alike(few, kinds))


def layer_of(batch: CandidateBatch, block: Block | None) -> CandidateBatch:
    """The candidates as `block`, of one layer, sees them, or, without one, what comes before and
    behind all layers. What it may not read is NaN, so that nothing that it does not see can enter
    it, and candidates that differ in nothing else are alike. Only experts see how they are spread,
    and pipeline stages are seen where there are any."""
    unseen, unseen_names = np.full(len(batch), np.nan), [*_UNSEEN]
    fields: dict[str, Any] = dict.fromkeys(_LEFT_OUT)
    if block is None:
        fields["blocks"] = ()
    else:
        fields["blocks"] = (block,)
        unseen_names.append("vocab_size")
    stages = block is None and bool((batch.pipeline_parallel > 1.0).any())
    if not stages:
        unseen_names.append("pipeline_parallel")
    if block is None or "experts" not in block.sizes:
        unseen_names.append("expert_parallel")
        fields |= {"redundant_experts": None, "routing_skew": None}
        if not stages:
            unseen_names.append("data_parallel")
    fields |= dict.fromkeys(unseen_names, unseen)
    fields |= dict.fromkeys(_UNSEEN_CODES, np.zeros(len(batch), dtype=np.intp))
    return replace(batch, **fields)


def columns_of(batch: CandidateBatch) -> list[NDArray]:
    """Every array of a batch, (n,) each, once."""
    found: dict[int, NDArray] = {}
    left: list[Any] = [getattr(batch, field.name) for field in dataclass_fields(batch)][::-1]
    while left:
        value = left.pop()
        if isinstance(value, np.ndarray):
            found[id(value)] = value
        elif isinstance(value, Block):
            left += [value.sizes, value.count]
        elif isinstance(value, Mapping):
            left += [*value.values()][::-1]
        elif isinstance(value, tuple):
            left += value[::-1]
    return list(found.values())


def distinct(columns: Sequence[NDArray]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of n rows of these columns, (n,) each, of 8 bytes an element: (k,) the place of one of each
    distinct row, and (n,) which of them each is. Rows are told apart bit by bit.

    Each row is put into a table at the place that its bits are mixed to, and finds there itself or
    another: its equal, or, where two unlike ones fell together, one that it is compared with in
    vain; those go through another round."""
    n = len(columns[0])
    if not n:
        return np.arange(0), np.arange(0)
    bits = [column.view(np.int64) for column in columns]
    bits = [column for column in bits if (column != column[0]).any()]
    mixed = np.zeros(n, dtype=np.uint64)
    for column in bits:
        mixed ^= column.view(np.uint64)
        mixed *= _MIX
        mixed ^= mixed >> _HALF
    size = (4 * n).bit_length()
    table = np.empty(1 << size, dtype=np.intp)
    same = np.empty(n, dtype=np.intp)  # a row that equals each
    left, places = slice(None), np.arange(n)
    while len(places):
        mixed *= _MIX
        where = (mixed >> np.uint64(64 - size)).view(np.int64)
        table[where] = places
        found = table.take(where)
        equal = np.ones(len(places), dtype=bool)
        for column in bits:
            equal &= column.take(found) == column[left]
        same[places] = found
        if equal.all():
            break
        rest = ~equal
        left = places = places[rest]
        mixed = mixed[rest]
    rows = np.flatnonzero(same == np.arange(n))
    number = np.empty(n, dtype=np.intp)
    number[rows] = np.arange(len(rows))
    return rows, number.take(same)
