"""Which degrees of parallelism a shape admits: every degree is put to the rules at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.rules.case import Case
from dse.rules.divide import EXPERTS, GROUP, STAGES
from dse.rules.kinds import Finding, Flags, Rule
from dse.rules.registry import findings
from dse.space.candidates import CandidateBatch, Floats

MOST = 1024  # no shape has so many heads


def of_shape(batch: CandidateBatch) -> list[Finding]:
    """What any stack refuses of n shapes with their degrees, of which no more is known."""
    return findings(Case(batch))


def with_degrees(batch: CandidateBatch, n: int, **axes: Floats) -> CandidateBatch:
    """The one shape of `batch` n times, with degrees of its own."""
    many = batch[np.zeros(n, dtype=np.intp)]
    return replace(many, **axes)


def degrees(batch: CandidateBatch, stacks: Sequence[str], domain: float) -> dict[str, Any]:
    """Degrees that all `stacks` admit, up to the chips of a scale-up `domain` (pipeline stages: up
    to the layers), and those of each stack. Tensor parallelism is that of one instance without
    data or expert parallelism; `tp_with_ep`: with its experts whole on their ranks. `refused`: why
    powers of two, and divisors of the heads, are not among them."""
    largest = int(min(max(domain, batch.chips_per_instance[0]), MOST))
    every = np.arange(1.0, largest + 1.0)
    one = np.ones(largest)
    alone = {"data_parallel": one, "pipeline_parallel": one, "expert_parallel": one}
    tensor = with_degrees(batch, largest, **(alone | {"tensor_parallel": every}))
    sparse = any(block.kind == "moe" and block.count[0] > 0.0 for block in batch.blocks)
    whole = replace(tensor, expert_parallel=every)
    spread = replace(tensor, tensor_parallel=one, data_parallel=every, expert_parallel=every)
    layers = np.arange(1.0, min(float(batch.layers[0]), MOST) + 1.0)
    ones = np.ones(len(layers))
    deep = with_degrees(
        batch, len(layers), tensor_parallel=ones, data_parallel=ones, expert_parallel=ones,
        pipeline_parallel=layers,
    )  # fmt: skip
    found: dict[str, dict[str, list[int]]] = {
        "tp": _admitted(tensor, stacks, every),
        "pp": _admitted(deep, stacks, layers, (STAGES,)),
    }
    if sparse:
        found["ep"] = _admitted(spread, stacks, every, (EXPERTS, GROUP))
        found["tp_with_ep"] = _admitted(whole, stacks, every)
    return {
        "tp": found["tp"]["all"],
        "ep": found["ep"]["all"] if sparse else [1],
        "pp": found["pp"]["all"],
        "tp_with_ep": found["tp_with_ep"]["all"] if sparse else None,
        "up_to": largest,
        "by_stack": {
            stack: {
                "tp": found["tp"][stack],
                "ep": found["ep"][stack] if sparse else [1],
                "pp": found["pp"][stack],
            }
            for stack in stacks
        },
        "refused": _refused(tensor, every),
    }


def _admitted(
    batch: CandidateBatch,
    stacks: Sequence[str],
    values: Floats,
    rules: tuple[Rule, ...] | None = None,
) -> dict[str, list[int]]:
    """The values that each stack, and all of them ("all"), admit by `rules` (None: all rules)."""
    refused: dict[str, Flags] = {name: np.zeros(len(batch), bool) for name in (*stacks, "all")}
    for finding in of_shape(batch):
        if rules is not None and finding.rule not in rules:
            continue
        for stack in finding.rule.stacks:
            if stack in stacks:
                refused[stack] = refused[stack] | finding.broken
                refused["all"] = refused["all"] | finding.broken
    return {name: [int(v) for v in values[~broken]] for name, broken in refused.items()}


def _refused(batch: CandidateBatch, tensor: Floats) -> list[dict[str, Any]]:
    """Why the degrees that a person would try are refused."""
    tried = np.log2(tensor) % 1.0 == 0.0
    for block in batch.blocks:
        heads = block.sizes.get("heads", np.zeros(1))
        if block.count[0] > 0.0 and heads[0] > 0.0:
            tried = tried | ((heads % tensor == 0.0) & (tensor <= 8.0))
    reasons: dict[int, list[str]] = {}
    for finding in of_shape(batch):
        for i in np.flatnonzero(finding.broken & tried):
            said = reasons.setdefault(int(tensor[i]), [])
            words = finding.words(int(i))
            if words not in said:
                said.append(words)
    return [{"tp": tp, "because": reasons[tp]} for tp in sorted(reasons)]


def nearest_degrees(batch: CandidateBatch, stack: str) -> list[dict[str, int]]:
    """What `stack` admits nearest by: another tensor-parallel degree, each expert whole on one
    rank, or another number of stages; one of each at most, as the axes that change. Experts that
    are whole on their ranks stay so."""
    sparse = any(block.kind == "moe" and block.count[0] > 0.0 for block in batch.blocks)
    data, expert = float(batch.data_parallel[0]), float(batch.expert_parallel[0])
    group = float(batch.tensor_parallel[0]) * data
    every = np.arange(1.0, MOST + 1.0)
    whole = expert == group if sparse else False
    tried: list[dict[str, Floats]] = [
        {"tensor_parallel": every, **({"expert_parallel": every * data} if whole else {})},
        {"pipeline_parallel": every},
    ]
    if sparse and expert != group:
        tried.insert(1, {"expert_parallel": np.array([group])})
    found = []
    for axes in tried:
        values = next(iter(axes.values()))
        taken = _admitted(with_degrees(batch, len(values), **axes), [stack], values)[stack]
        name = next(iter(axes))
        own = float(getattr(batch, name)[0])
        near = min(taken, key=lambda value: (abs(np.log2(value / own)), value), default=None)
        if near is not None:
            column = int(np.searchsorted(values, near))
            found.append({axis: int(column_of[column]) for axis, column_of in axes.items()})
    return found
