"""Which degrees of parallelism a shape admits: every degree is put to the rules at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.rules.case import Case
from dse.rules.divide import EXPERTS, GROUP, STAGES
from dse.rules.kinds import Finding, Flags, Rule
from dse.rules.registry import findings
from dse.space.candidates import CandidateBatch
from dse.space.deployments import Deployments, Ints

MOST = 1024  # no shape has so many heads
ALONE = {
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "data_parallel": 1,
    "expert_parallel": 1,
}


def of_shape(batch: CandidateBatch) -> list[Finding]:
    """What any stack refuses of n shapes with their degrees, of which no more is known."""
    return findings(Case(batch))


def degrees(batch: CandidateBatch, stacks: Sequence[str], domain: float) -> dict[str, Any]:
    """Degrees that all `stacks` admit, up to the chips of a scale-up `domain` (pipeline stages: up
    to the layers), and those of each stack. Tensor parallelism is that of one instance without
    data or expert parallelism; `tp_with_ep`: with its experts whole on their ranks. `refused`: why
    powers of two, and divisors of the heads, are not among them."""
    largest = int(min(max(domain, batch.chips_per_instance[0]), MOST))
    every = np.arange(1, largest + 1)
    layers = np.arange(1, int(min(batch.layers[0], MOST)) + 1)
    tensor = Deployments.of(**{**ALONE, "tensor_parallel": every})
    deep = Deployments.of(**{**ALONE, "pipeline_parallel": layers})
    sparse = bool(batch.sparse[0])
    found: dict[str, dict[str, list[int]]] = {
        "tp": _admitted(tensor.placed(batch), stacks, every),
        "pp": _admitted(deep.placed(batch), stacks, layers, (STAGES,)),
    }
    if sparse:
        whole = tensor.with_columns(expert_parallel=every)
        spread = whole.with_columns(tensor_parallel=1, data_parallel=every)
        found["ep"] = _admitted(spread.placed(batch), stacks, every, (EXPERTS, GROUP))
        found["tp_with_ep"] = _admitted(whole.placed(batch), stacks, every)
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
        "refused": _refused(tensor.placed(batch), every),
    }


def _admitted(
    batch: CandidateBatch,
    stacks: Sequence[str],
    values: Ints,
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


def _refused(batch: CandidateBatch, tensor: Ints) -> list[dict[str, Any]]:
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
    sparse = bool(batch.sparse[0])
    data, expert = int(batch.data_parallel[0]), int(batch.expert_parallel[0])
    group = int(batch.tensor_parallel[0]) * data
    every = np.arange(1, MOST + 1)
    tensor = Deployments.of(tensor_parallel=every)
    tried = {"tensor_parallel": tensor}
    if sparse and expert == group:
        tried["tensor_parallel"] = tensor.with_columns(expert_parallel=every * data)
    elif sparse:
        tried["expert_parallel"] = Deployments.of(expert_parallel=group)
    tried["pipeline_parallel"] = Deployments.of(pipeline_parallel=every)
    found = []
    for name, table in tried.items():
        taken = _admitted(table.placed(batch), [stack], table[name])[stack]
        own = float(getattr(batch, name)[0])
        near = min(taken, key=lambda value: (abs(np.log2(value / own)), value), default=None)
        if near is not None:
            row = int(np.searchsorted(table[name], near))
            found.append({axis: int(column[row]) for axis, column in table.columns.items()})
    return found
