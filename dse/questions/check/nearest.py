"""Shapes near one that software refuses or that wastes a chip: all small changes at once.

Each size that a rule can blame has a few other values: the next ones that divide into the ranks and
fill the tiles. Heads change only where they are what is refused. All sets of up to three such
changes are judged in one batch. A shape's distance is

    |change of parameters| + time added in prefill and decode, and lost to alignment
        + the sum over changed sizes of (1% + |change| / 10)

all as shares: one percent of parameters counts as one percent of a step, and as a size changed by a
tenth (assumed: no law of quality says what a head or a KV head is worth).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from dse.answer.numbers import number
from dse.blocks import KINDS
from dse.physics.parameters import parameters
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate
from dse.questions.check.answer import Subject, refusals
from dse.record import record
from dse.rules.case import expert_shards
from dse.rules.divide import HEADS, KV_HEADS
from dse.rules.waste import Steps, added_share, misaligned_share
from dse.schema.backend import Backend
from dse.schema.blocks import FEED_FORWARD, MIXERS
from dse.space.candidates import Block, CandidateBatch, Floats
from dse.space.deployments import Deployments, stacked

MOST_CHANGES = 3
CHANGE, RESIZE = 0.01, 0.1
WORTH = 0.005  # of a step, or more, has to be gained where nothing refuses the shape
SHOWN = 5
FURTHEST = 0.5  # change of a size, as a share
TILE = 128.0
PHASES = ("prefill", "decode")

Setter = Callable[[CandidateBatch, Floats], CandidateBatch]


@record
class Move:
    """A size with its value and other values for it."""

    name: str
    value: float
    others: tuple[float, ...]
    set_to: Setter


def _around(value: float, *steps: float) -> tuple[float, ...]:
    """Multiples of the steps next to a value, at most FURTHEST away, in order."""
    near = {k * step for step in steps for k in (np.floor(value / step), np.ceil(value / step))}
    return tuple(
        sorted(x for x in near if x > 0 and x != value and abs(x / value - 1.0) <= FURTHEST)
    )


def _attends(block: Block) -> bool:
    return KINDS[block.kind].heads(block) is not None


def _size(
    batch: CandidateBatch, size: str, of: Callable[[Block], bool] = lambda block: True
) -> tuple[float, Setter] | None:
    """The value of a size in the largest block that has it (of those that `of` takes), and what
    sets it in all alike."""

    def has(block: Block) -> bool:
        return size in block.sizes and of(block)

    having = [block for block in batch.blocks if has(block) and block.count[0] > 0.0]
    if not having:
        return None
    value = float(max(having, key=lambda block: float(block.count[0]))[size][0])

    def set_to(many: CandidateBatch, values: Floats) -> CandidateBatch:
        def changed(block: Block) -> Block:
            if not has(block):
                return block
            new = np.where(block[size] == value, values, block[size])
            return Block(block.kind, block.count, {**block.sizes, size: new})

        return replace(many, blocks=tuple(changed(block) for block in many.blocks))

    return value, set_to


def _with_kv_heads(heads: tuple[float, Setter]) -> Setter:
    """Sets the heads, and the KV heads of multi-head attention with them."""

    def set_to(many: CandidateBatch, values: Floats) -> CandidateBatch:
        def changed(block: Block) -> Block:
            if "kv_heads" not in block.sizes:
                return block
            own = (block["heads"] == heads[0]) & (block["kv_heads"] == heads[0])
            new = np.where(own, values, block["kv_heads"])
            return Block(block.kind, block.count, {**block.sizes, "kv_heads": new})

        both = replace(many, blocks=tuple(changed(block) for block in many.blocks))
        return heads[1](both, values)

    return set_to


def _field(name: str) -> Setter:
    return lambda many, values: replace(many, **{name: values})


def moves(subject: Subject) -> list[Move]:
    """What may change of the shape, and its expert parallelism."""
    batch = subject.batch
    tp, tile = float(batch.tensor_parallel[0]), subject.filling.matrix_unit or TILE
    blamed = {finding.rule for finding in refusals(subject, batch) if finding.broken[0]}
    found: list[Move] = []

    def add(name: str, sized: tuple[float, Setter] | None, others: tuple[float, ...]) -> None:
        if sized is not None and others:
            found.append(Move(name, sized[0], others, sized[1]))

    heads = _size(batch, "heads", _attends)
    if heads is not None and HEADS in blamed:
        add("num_attention_heads", (heads[0], _with_kv_heads(heads)), _around(heads[0], tp))
    kv = _size(batch, "kv_heads")
    if kv is not None and heads is not None and kv[0] < heads[0] and KV_HEADS in blamed:
        near = {2.0 ** np.floor(np.log2(kv[0])), 2.0 ** np.ceil(np.log2(kv[0])), kv[0] * 2.0, tp}
        add("num_key_value_heads", kv, tuple(sorted(near - {kv[0]})))
    width = _size(batch, "intermediate_size")
    if width is not None:
        add("intermediate_size", width, _around(width[0], tile * tp, tile * tp / 2.0))
    expert = _size(batch, "expert_intermediate_size")
    if expert is not None:
        shards = float(expert_shards(batch)[0])
        others = _around(expert[0], tile * shards, tile * shards / 2.0)
        add("moe_intermediate_size", expert, others)
        shared = _size(batch, "shared_intermediate_size")
        if shared is not None and shared[0] > 0.0:
            add("shared_intermediate_size", shared, _around(shared[0], tile * tp))
        found += _expert_moves(batch)
    hidden = float(batch.hidden_size[0])
    add("hidden_size", (hidden, _field("hidden_size")), _around(hidden, 2.0 * TILE))
    vocabulary = float(batch.vocab_size[0])
    above = tuple(x for x in _around(vocabulary, 64.0 * tp) if x > vocabulary)
    add("vocab_size", (vocabulary, _field("vocab_size")), above)
    add("num_hidden_layers", *_layers(batch))
    return found


def _expert_moves(batch: CandidateBatch) -> list[Move]:
    """Experts that divide over their ranks, and experts whole on the ranks of the group."""
    experts, ep = _size(batch, "experts"), float(batch.expert_parallel[0])
    group = float(batch.tensor_parallel[0] * batch.data_parallel[0])
    assert experts is not None
    found = []
    others = _around(experts[0], ep)
    if others:
        found.append(Move("num_experts", experts[0], others, experts[1]))
    if ep < group <= experts[0] and experts[0] % group == 0.0:
        found.append(Move("expert_parallel", ep, (group,), _field("expert_parallel")))
    return found


def _layers(batch: CandidateBatch) -> tuple[tuple[float, Setter] | None, tuple[float, ...]]:
    """Layers in whole stages, of models whose layers are all alike."""
    kinds = (MIXERS, FEED_FORWARD)
    used = [block for block in batch.blocks if block.count[0] > 0.0]
    alike = all(sum(block.kind in some for block in used) == 1 for some in kinds)
    if not alike or any(block.kind not in (*MIXERS, *FEED_FORWARD) for block in used):
        return None, ()
    value = float(batch.layers[0])

    def set_to(many: CandidateBatch, values: Floats) -> CandidateBatch:
        blocks = (
            Block(block.kind, np.where(block.count > 0.0, values, 0.0), block.sizes)
            for block in many.blocks
        )
        return replace(many, blocks=tuple(blocks))

    return (value, set_to), _around(value, float(batch.pipeline_parallel[0]))


@record
class Neighbours:
    """The shape (row 0) and n - 1 shapes near it: `table` holds the sizes that may change, (n,)
    each, and `own` what they are."""

    batch: CandidateBatch
    table: Deployments
    own: Mapping[str, float]

    def changes(self, i: int) -> dict[str, tuple[float, float]]:
        """The sizes that shape `i` changes, before and after."""
        return {
            name: (before, float(self.table[name][i]))
            for name, before in self.own.items()
            if self.table[name][i] != before
        }

    def resized(self) -> Floats:
        """(n,) what the changes of sizes count; expert parallelism is no size of the shape."""
        total = np.zeros(len(self.batch))
        for name, before in self.own.items():
            after, weight = self.table[name], 0.0 if name == "expert_parallel" else RESIZE
            count = CHANGE + weight * np.abs(after / before - 1.0)
            total = total + np.where(after != before, count, 0.0)
        return total


def neighbours(subject: Subject) -> Neighbours:
    """All sets of up to MOST_CHANGES changes."""
    possible = moves(subject)
    own = {move.name: move.value for move in possible}
    sets = [
        Deployments.of(**{**own, **{move.name: move.others for move in some}})
        for count in range(MOST_CHANGES + 1)
        for some in combinations(possible, count)
    ]
    table = stacked(sets)
    batch = subject.batch[np.zeros(len(table), dtype=np.intp)]
    for move in possible:
        batch = move.set_to(batch, table[move.name])
    return Neighbours(batch, table, own)


def nearest(subject: Subject, backend: Backend) -> list[dict[str, Any]]:
    """The best few shapes that every stack takes and that waste less, the nearest first."""
    near = neighbours(subject)
    refused = np.zeros(len(near.batch), dtype=bool)
    for finding in refusals(subject, near.batch):
        refused = refused | finding.broken
    steps = subject.steps(near.batch)
    count = parameters(near.batch).total
    change = count / count[0] - 1.0
    waste = np.zeros(len(change))
    if steps is not None:
        for shares in (added_share(steps), misaligned_share(steps)):
            waste = waste + shares[0] + shares[1]
    changed = near.resized()
    distance = np.abs(change) + waste + changed
    better = ~refused & (changed > 0.0)
    if not refused[0]:
        better = better & (waste < waste[0] - WORTH) & (distance < distance[0])
    chosen: list[int] = []
    order = np.lexsort((np.abs(change), distance))
    for i in order[better[order]]:
        # Further changes than those of a shape nearer by have to be worth it.
        idle = any(
            near.changes(k).items() <= near.changes(i).items() and waste[i] > waste[k] - WORTH
            for k in chosen
        )
        if not idle:
            chosen.append(int(i))
        if len(chosen) == SHOWN:
            break
    return _rows(subject, near, chosen, steps, change, backend) if chosen else []


def _rows(
    subject: Subject,
    near: Neighbours,
    chosen: list[int],
    steps: Steps | None,
    change: Floats,
    backend: Backend,
) -> list[dict[str, Any]]:
    rows = [0, *chosen]
    loss = np.full(len(rows), np.nan)
    if subject.machines is not None:
        load = subject.load
        workload = Workload.of(
            float(load.prompt_tokens), float(load.output_tokens), "continuous", backend
        )
        metrics = evaluate(near.batch[np.array(rows)], workload, subject.machines)
        loss = metrics.values["predicted_loss"]

    def against(i: int) -> dict[str, float | None]:
        """What the changes do to the time of either step."""
        if steps is None:
            keys = (f"{p}_{s}" for p in PHASES for s in ("step_share", "added_share"))
            return dict.fromkeys(keys)
        found = {}
        seconds = (steps.prefill_s, steps.decode_s)
        for phase, alone, share in zip(PHASES, seconds, added_share(steps), strict=True):
            whole = alone * (1.0 + share)
            found[f"{phase}_step_share"] = float(whole[i] / whole[0] - 1.0)
            found[f"{phase}_added_share"] = float(share[i])
        return found

    return [
        {
            "change": {
                name: [int(before), int(after)] for name, (before, after) in near.changes(i).items()
            },
            "parameters_share": float(change[i]),
            "loss_nats": number(loss[k] - loss[0]),
            **against(i),
        }
        for k, i in enumerate(chosen, start=1)
    ]
