"""A shape on a chip: its steps with every product judged, and the degrees of parallelism that the
software of the chip accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.physics import gemms
from dse.physics.alignment import columns_of
from dse.physics.deployed import Deployed
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.record import record
from dse.rules.case import Case, stack_of
from dse.rules.divide import EXPERTS, GROUP, STAGES
from dse.rules.kinds import Flags, Rule, family_of
from dse.rules.registry import findings
from dse.rules.waste import Filling, Steps, judge_products
from dse.schema.axes import DEGREES
from dse.schema.backend import Backend
from dse.schema.chip import Chip
from dse.schema.model import Model
from dse.space.batches import one_of
from dse.space.candidates import CandidateBatch
from dse.space.deployments import Deployments, Ints

MOST = 1024  # no shape has so many heads
AXES = tuple(DEGREES.values())


@record
class Subject:
    """What is checked. `machines` is None where the chip lacks a figure (`refusal` says which), and
    then no step has a time. `domain` counts the chips of a scale-up domain."""

    model: Model
    chip: Chip
    filling: Filling
    filling_source: str
    batch: CandidateBatch
    machines: Machines | None
    refusal: str | None
    workload: Workload
    domain: float

    def metrics(self, batch: CandidateBatch) -> Metrics | None:
        """What n shapes do under the load; None where the chip lacks a figure."""
        if self.machines is None:
            return None
        return evaluate(batch, self.workload, self.machines)

    @property
    def case(self) -> Case:
        """What rules see of the shape: with its memory, where the chip has every figure."""
        if metrics := self.metrics(self.batch):
            return metrics.case
        return Case(self.batch, (self.chip.family,), stack_of(self.workload.backend.id))

    def steps(self, batch: CandidateBatch) -> Steps | None:
        """A prefill and a decode step of n shapes on the chip, and their products judged."""
        if self.machines is None:
            return None
        deployed, load = Deployed(batch, self.machines), self.workload
        prompt, output = float(load.prompt_tokens[0]), float(load.output_tokens[0])
        chunks = np.ceil(prompt / load.backend.chunk_tokens)
        requests = np.ceil(self.batch.concurrency[0] / batch.data_parallel)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            first = gemms.prefill(deployed, prompt / chunks, prompt)
            then = gemms.decode(deployed, requests, prompt + output / 2.0)
            return Steps(
                batch,
                self.filling,
                first,
                then,
                judge_products(first, self.filling, tiled=True),
                judge_products(then, self.filling, tiled=False),
            )


def subject_of(
    catalog: Catalog,
    model: Model,
    chip_id: str,
    deployment: Mapping[str, float],
    prompt_tokens: int,
    output_tokens: int,
    concurrency: int,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    backend: Backend | None = None,
) -> Subject:
    """Gathers a model, a chip and degrees; `concurrency` requests are in flight. Raises InputError
    for an unknown chip."""
    chip = catalog.chip(chip_id)
    family = family_of(chip.family)
    unit = columns_of(chip) if family.grain.is_unit else None
    units = None if chip.compute_units is None or unit is not None else float(chip.compute_units)
    held = {**deployment, "concurrency": concurrency}
    batch = one_of(model, held, weight_dtype, kv_dtype)
    served = backend or catalog.backends[chip.backend]
    refusal = catalog.refusal(chip_id, float(batch.chips_per_instance[0]))
    system, figure = catalog.systems[chip.system], chip.figure("compute_units")
    known = "measured" if chip.id in family.grain.measured else "assumed"
    return Subject(
        model=model,
        chip=chip,
        filling=Filling(family, units, None if unit is None else unit[0], known),
        filling_source=unit[1] if unit else figure.source if figure and units else "",
        batch=batch,
        machines=None if refusal else compile_machines(catalog, [chip_id]),
        refusal=refusal,
        workload=Workload.of(prompt_tokens, output_tokens, "continuous", served),
        domain=float(system.levels[0].size or batch.chips_per_instance[0]),
    )


def degrees(
    batch: CandidateBatch, stacks: Sequence[str], domain: float
) -> tuple[dict[str, Any], dict[str, dict[str, list[int]]]]:
    """(degrees that all `stacks` accept, those of each stack), up to the chips of a scale-up
    `domain` (pipeline stages: up to the layers). Tensor parallelism is that of
    one instance without data or expert parallelism; `tp_with_ep`: with its experts whole on their
    ranks."""
    largest = int(min(max(domain, batch.chips_per_instance[0]), MOST))
    every = np.arange(1, largest + 1)
    layers = np.arange(1, int(min(batch.layers[0], MOST)) + 1)
    alone = dict.fromkeys(AXES, 1)
    tensor = Deployments.of(**{**alone, "tensor_parallel": every})
    deep = Deployments.of(**{**alone, "pipeline_parallel": layers})
    found = {
        "tp": _accepted(tensor.placed(batch), stacks, every),
        "pp": _accepted(deep.placed(batch), stacks, layers, (STAGES,)),
        "ep": {name: [1] for name in (*stacks, "all")},
    }
    if batch.sparse[0]:
        whole = tensor.with_columns(expert_parallel=every)
        spread = whole.with_columns(tensor_parallel=1, data_parallel=every)
        found["ep"] = _accepted(spread.placed(batch), stacks, every, (EXPERTS, GROUP))
        found["tp_with_ep"] = _accepted(whole.placed(batch), stacks, every)
    accepted: dict[str, Any] = {name: by_stack["all"] for name, by_stack in found.items()}
    return {"tp_with_ep": None, **accepted, "up_to": largest}, found


def _accepted(
    batch: CandidateBatch,
    stacks: Sequence[str],
    values: Ints,
    rules: tuple[Rule, ...] | None = None,
) -> dict[str, list[int]]:
    """The values that each stack, and all of them ("all"), accept by `rules` (None: all rules)."""
    refused: dict[str, Flags] = {name: np.zeros(len(batch), bool) for name in (*stacks, "all")}
    for finding in findings(Case(batch)):
        if rules is None or finding.rule in rules:
            own = [stack for stack in finding.rule.stacks if stack in stacks]
            for name in (*own, "all") if own else ():
                refused[name] = refused[name] | finding.broken
    return {name: [int(v) for v in values[~broken]] for name, broken in refused.items()}


def nearest_degrees(batch: CandidateBatch, stack: str) -> list[dict[str, int]]:
    """What `stack` accepts nearest by: another tensor-parallel degree, each expert whole on one
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
        accepted = _accepted(table.placed(batch), [stack], table[name])[stack]
        own = float(getattr(batch, name)[0])
        near = min(accepted, key=lambda value: (abs(np.log2(value / own)), value), default=None)
        if near is not None:
            row = int(np.searchsorted(table[name], near))
            found.append({axis: int(column[row]) for axis, column in table.columns.items()})
    return found
