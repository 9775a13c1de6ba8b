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

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from dse.blocks import FEED_FORWARD, KINDS, MIXERS
from dse.physics.parameters import parameters
from dse.questions.check.subject import Subject
from dse.rules.case import Case, expert_shards
from dse.rules.divide import HEADS, KV_HEADS
from dse.rules.registry import findings
from dse.rules.waste import added_share, misaligned_share
from dse.space.candidates import Block, CandidateBatch
from dse.space.deployments import Deployments, stacked

MOST_CHANGES = 3
CHANGE, RESIZE = 0.01, 0.1
WORTH = 0.005  # of a step, or more, has to be gained where nothing refuses the shape
MOST_SHAPES = 5
FURTHEST = 0.5  # change of a size, as a share
TILE = 128.0

# Sizes of blocks that may change, by what a configuration calls them.
SIZES = {
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "intermediate_size",
    "moe_intermediate_size": "expert_intermediate_size",
    "shared_intermediate_size": "shared_intermediate_size",
    "num_experts": "experts",
}
OF_BATCH = ("hidden_size", "vocab_size", "expert_parallel")  # that are not sizes of blocks


def _around(value: float, *steps: float) -> tuple[float, ...]:
    """Multiples of the steps next to a value, at most FURTHEST away, in order."""
    near = {k * step for step in steps for k in (np.floor(value / step), np.ceil(value / step))}
    return tuple(
        sorted(x for x in near if x > 0 and x != value and abs(x / value - 1.0) <= FURTHEST)
    )


def _has(block: Block, name: str) -> bool:
    """Whether a block has a size of SIZES; heads are those of attention."""
    attends = name != "num_attention_heads" or KINDS[block.kind].heads(block) is not None
    return SIZES.get(name) in block.sizes and attends


def moves(subject: Subject) -> dict[str, tuple[float, tuple[float, ...]]]:
    """What may change of the shape, and its expert parallelism: its value, in the largest block
    that has it, and other values for it."""
    batch = subject.batch
    tp, ep, pp, data = (
        float(getattr(batch, f"{name}_parallel")[0])
        for name in ("tensor", "expert", "pipeline", "data")
    )
    tile, group = subject.filling.matrix_unit or TILE, tp * data
    stacks = set(subject.filling.family.stacks)
    blamed = {
        finding.rule
        for finding in findings(Case(batch))
        if finding.broken[0] and stacks & set(finding.rule.stacks)
    }
    used = [block for block in batch.blocks if block.count[0] > 0.0]
    value = {name: float(getattr(batch, name)[0]) for name in OF_BATCH}
    for name, size in SIZES.items():
        if having := [block for block in used if _has(block, name)]:
            value[name] = float(max(having, key=lambda block: float(block.count[0]))[size][0])
    kinds = (MIXERS, FEED_FORWARD)
    alike = all(sum(block.kind in some for block in used) == 1 for some in kinds)
    if alike and all(block.kind in (*MIXERS, *FEED_FORWARD) for block in used):
        value["num_hidden_layers"] = float(batch.layers[0])
    rank, shard = tile * tp, tile * float(expert_shards(batch)[0])
    steps = {
        "num_attention_heads": (tp,) if HEADS in blamed else (),
        "num_key_value_heads": (),
        "intermediate_size": (rank, rank / 2.0),
        "moe_intermediate_size": (shard, shard / 2.0),
        "shared_intermediate_size": (rank,),
        "num_experts": (ep,),
        "expert_parallel": (),
        "hidden_size": (2.0 * TILE,),
        "vocab_size": (64.0 * tp,),
        "num_hidden_layers": (pp,),  # in whole stages
    }
    others = {name: _around(value[name], *step) for name, step in steps.items() if value.get(name)}
    heads, kv_heads = value.get("num_attention_heads"), value.get("num_key_value_heads")
    if kv_heads and heads and kv_heads < heads and KV_HEADS in blamed:
        powers = {2.0 ** np.floor(np.log2(kv_heads)), 2.0 ** np.ceil(np.log2(kv_heads))}
        others["num_key_value_heads"] = tuple(sorted({*powers, kv_heads * 2.0, tp} - {kv_heads}))
    if ep < group <= (experts := value.get("num_experts", 0.0)) and experts % group == 0.0:
        others["expert_parallel"] = (group,)
    others["vocab_size"] = tuple(x for x in others["vocab_size"] if x > value["vocab_size"])
    return {name: (value[name], values) for name, values in others.items() if values}


def changed(batch: CandidateBatch, own: Mapping[str, float], table: Deployments) -> CandidateBatch:
    """n times the shape with the sizes of `table`, (n,) each, in place of `own`. KV heads of
    multi-head attention follow its heads."""

    def block_of(block: Block) -> Block:
        sizes, heads = dict(block.sizes), own.get("num_attention_heads")
        if heads is not None and "kv_heads" in sizes:
            multi = (block["heads"] == heads) & (block["kv_heads"] == heads)
            sizes["kv_heads"] = np.where(multi, table["num_attention_heads"], sizes["kv_heads"])
        for name, before in own.items():
            if _has(block, name):
                size = SIZES[name]
                sizes[size] = np.where(sizes[size] == before, table[name], sizes[size])
        count = block.count
        if "num_hidden_layers" in own:
            count = np.where(count > 0.0, table["num_hidden_layers"], 0.0)
        return Block(block.kind, count, sizes)

    many = batch[np.zeros(len(table), dtype=np.intp)]
    fields = {name: table[name] for name in OF_BATCH if name in own}
    return replace(many, blocks=tuple(map(block_of, many.blocks)), **fields)


def nearest(subject: Subject) -> dict[str, Any]:
    """Columns of the best few shapes that every stack accepts and that waste less, the nearest
    first: `shape_changes` in words, the sizes that any of them changes, and what that does to
    parameters, loss (None where no law knows it) and the steps (None where no step has a time).
    Nothing where there are none."""
    possible = moves(subject)
    own = {name: value for name, (value, _) in possible.items()}
    sets = [
        Deployments.of(**{**own, **{name: possible[name][1] for name in some}})
        for count in range(MOST_CHANGES + 1)
        for some in combinations(possible, count)
    ]
    table = stacked(sets)  # row 0 is the shape itself
    batch = changed(subject.batch, own, table)
    refused = np.zeros(len(batch), dtype=bool)
    for finding in findings(Case(batch)):
        if set(finding.rule.stacks) & set(subject.filling.family.stacks):
            refused = refused | finding.broken
    steps = subject.steps(batch)
    parameters_share = parameters(batch).total / parameters(batch).total[0] - 1.0
    waste, resized = np.zeros(len(batch)), np.zeros(len(batch))
    for shares in (added_share(steps), misaligned_share(steps)) if steps else ():
        waste = waste + shares[0] + shares[1]
    for name, before in own.items():  # expert parallelism is no size of the shape
        after, weight = table[name], 0.0 if name == "expert_parallel" else RESIZE
        count = CHANGE + weight * np.abs(after / before - 1.0)
        resized = resized + np.where(after != before, count, 0.0)
    distance = np.abs(parameters_share) + waste + resized
    better = ~refused & (resized > 0.0)
    if not refused[0]:
        better = better & (waste < waste[0] - WORTH) & (distance < distance[0])

    def changes(i: int) -> dict[str, tuple[int, int]]:
        pairs = ((name, int(before), int(table[name][i])) for name, before in own.items())
        return {name: (before, after) for name, before, after in pairs if before != after}

    chosen: list[int] = []
    order = np.lexsort((np.abs(parameters_share), distance))
    for i in map(int, order[better[order]]):
        # Further changes than those of a shape nearer by have to be worth it.
        idle = any(
            changes(k).items() <= changes(i).items() and waste[i] > waste[k] - WORTH for k in chosen
        )
        chosen += [] if idle else [i]
        if len(chosen) == MOST_SHAPES:
            break
    if not chosen:
        return {}
    rows = np.array(chosen)
    metrics = subject.metrics(batch[np.array([0, *chosen])])
    loss = None if metrics is None else metrics.values["predicted_loss"]
    columns: dict[str, Any] = {
        "shape_changes": [
            "; ".join(f"{name} {pair[0]:,} -> {pair[1]:,}" for name, pair in changes(i).items())
            for i in chosen
        ],
        **{name: table[name][rows].astype(int) for i in chosen for name in changes(i)},
        "parameters_share": parameters_share[rows],
        "loss_nats": None if loss is None else loss[1:] - loss[0],
    }
    for k, phase in enumerate(("prefill", "decode")):
        step = added = None
        if steps is not None:
            added = added_share(steps)[k]
            seconds = steps.seconds[k] * (1.0 + added)
            step, added = seconds[rows] / seconds[0] - 1.0, added[rows]
        columns |= {f"{phase}_step_share": step, f"{phase}_added_share": added}
    return columns
