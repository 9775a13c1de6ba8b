"""One point from flags: a model, a chip, a deployment and a workload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.candidates import CandidateBatch
from dse.evaluate import Metrics
from dse.mix import Mix, alone, evaluate_mix
from dse.perf.machines import Machines, compile_machines
from dse.perf.operators.moe import ROUTING_SKEW
from dse.perf.workload import Workload
from dse.space.batches import DEPLOYMENT_AXES, EXPERT_AXES, batch_of
from dse.specs.calibration import KINDS
from dse.specs.catalog import Catalog
from dse.specs.model import Model
from dse.study.describe import Limit, describe_deployment, describe_metrics, describe_workloads
from dse.study.loads import load_row, one_load


@dataclass(frozen=True, slots=True)
class Estimate:
    """A batch of one, its metrics, and what it took to get them."""

    model: Model
    batch: CandidateBatch
    mix: Mix
    machines: Machines
    metrics: Metrics
    price_basis: str
    limits: tuple[Limit, ...]
    assumed: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of `dse estimate --json`: the metrics, then what was asked."""
        workloads = describe_workloads(self.metrics, 0)
        return {
            **describe_metrics(self.metrics, 0, self.batch, self.limits),
            **({"workloads": workloads} if workloads else {}),
            "assumed": list(self.assumed),
            "model": self.model.name,
            "deployment": describe_deployment(self.batch, 0, self.machines),
            "workload": one_load([load_row(share) for share in self.mix]),
            "price_basis": self.price_basis,
        }


def estimate(
    catalog: Catalog,
    model: Model,
    chip: str,
    workload: Workload | Mix,
    deployment: Mapping[str, float],
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    price_basis: str = "rental_3yr",
    limits: tuple[Limit, ...] = (),
    keep: bool = False,
) -> Estimate:
    """Evaluates one point under a workload or a mix of several. Raises InputError for an unknown
    chip, dtype or price basis, and for a chip without a figure that the point needs."""
    degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    catalog.require(chip, math.prod(float(deployment.get(axis, 1.0)) for axis in degrees))
    machines = compile_machines(catalog, [chip], price_basis)
    axes = {axis: np.array([float(deployment.get(axis, 1.0))]) for axis in DEPLOYMENT_AXES}
    axes |= {
        axis: np.array([float(deployment[axis])]) for axis in EXPERT_AXES if axis in deployment
    }
    kv = kv_dtype or model.kv_dtype or "bf16"
    batch = batch_of([model], np.zeros(1, dtype=np.intp), [weight_dtype], [kv], axes)
    mix = alone(workload) if isinstance(workload, Workload) else workload
    metrics = evaluate_mix(batch, mix, machines, keep=keep)
    assumed = assumptions(catalog, model, chip, int(metrics.provenance[0]), price_basis)
    spec = catalog.chip(chip)
    measured = max(catalog.efficiencies[spec.efficiency].all_reduce.latency_s)
    group = float(batch.tensor_parallel[0] * batch.data_parallel[0])
    if min(group, catalog.systems[spec.system].levels[0].size or math.inf) > measured:
        assumed.append(f"{chip}: collectives between more than {measured} chips are extrapolated")
    if batch.routing_skew is None and any(block.kind == "moe" for block in model.blocks):
        assumed.append(
            f"{model.name}: routing skew {ROUTING_SKEW:g}, that of measured kernels under a power "
            "law, not of this model"
        )
    return Estimate(
        model, batch, mix, machines, metrics, price_basis, tuple(limits), tuple(assumed)
    )


def assumptions(
    catalog: Catalog,
    model: Model | None,
    chip: str,
    provenance: int,
    price_basis: str,
) -> list[str]:
    """What the answer rests on beyond sourced figures, a sentence each, worst first. `provenance`
    indexes `machines.KINDS`."""
    spec = catalog.chip(chip)
    system = catalog.systems[spec.system]
    sentences = []
    kind = KINDS[provenance]
    if kind != "fitted":
        sentences.append(
            f"kernel efficiencies of {chip} are {kind} ({spec.efficiency}): no kernel of this chip "
            "and dtype was measured"
        )
    sentences += [f"{chip}: {text}" for text in spec.assumed]
    sentences += [f"{system.id}: {text}" for text in system.assumed]
    sentences += [f"{chip}: no figure for {name}" for name in spec.missing]
    sentences += [f"{system.id}: no figure for {name}" for name in system.missing]
    if chip not in catalog.prices.select(price_basis):
        sentences.append(f"{chip} has no price on basis {price_basis}: costs are null")
    if model is not None:
        sentences += [f"{model.name}: {text}" for text in model.assumed]
        if model.training_tokens is None:
            sentences.append(f"{model.name}: training tokens unknown: no loss is predicted")
    sentences.append(
        "80% intervals are how far held-out measured rows were off, by efficiency kind"
    )
    sentences.append("power is the chip's rated power, all the time")
    return sentences
