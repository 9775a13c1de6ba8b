"""One point from flags: a model, a chip, a deployment and a workload."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.candidates import CandidateBatch
from dse.evaluate import Metrics
from dse.mix import Mix, alone, evaluate_mix
from dse.perf.jitter import with_jitter
from dse.perf.machines import Machines, compile_machines
from dse.perf.operators.moe import ROUTING_SKEW
from dse.perf.workload import POISSON, Workload
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
    jitter: tuple[float, str] | None = None,
) -> Estimate:
    """Evaluates one point under a workload or a mix of several; `jitter`, mean seconds and a
    distribution, takes the place of what the chip's system states. Raises InputError for an unknown
    chip, dtype or price basis, and for a chip without a figure that the point needs."""
    degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    catalog.require(chip, math.prod(float(deployment.get(axis, 1.0)) for axis in degrees))
    machines = compile_machines(catalog, [chip], price_basis)
    if jitter is not None:
        machines = with_jitter(machines, *jitter)
    axes = {axis: np.array([float(deployment.get(axis, 1.0))]) for axis in DEPLOYMENT_AXES}
    axes |= {
        axis: np.array([float(deployment[axis])]) for axis in EXPERT_AXES if axis in deployment
    }
    kv = kv_dtype or model.kv_dtype or "bf16"
    batch = batch_of([model], np.zeros(1, dtype=np.intp), [weight_dtype], [kv], axes)
    mix = alone(workload) if isinstance(workload, Workload) else workload
    metrics = evaluate_mix(batch, mix, machines, keep=keep)
    written = describe_deployment(batch, 0, machines)
    assumed = assumptions(catalog, model, written, mix, int(metrics.provenance[0]), price_basis)
    if jitter is not None:
        assumed.insert(0, f"{jitter[1]} delays of {jitter[0] * 1e6:g} us in collectives, as given")
    return Estimate(
        model, batch, mix, machines, metrics, price_basis, tuple(limits), tuple(assumed)
    )


def assumptions(
    catalog: Catalog,
    model: Model,
    deployment: Mapping[str, Any],
    mix: Mix,
    provenance: int,
    price_basis: str,
) -> list[str]:
    """What the answer rests on beyond sourced figures, a sentence each, worst first. `deployment`
    as `describe_deployment` gives it; `provenance` indexes `machines.KINDS`."""
    chip = deployment["chip"]
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
    drafts = any(_drafts(share.workload) for share in mix)
    texts = _drafting(model.assumed) if drafts else model.assumed
    sentences += [f"{model.name}: {text}" for text in texts]
    if model.training_tokens is None:
        sentences.append(f"{model.name}: training tokens unknown: no loss is predicted")
    measured = max(catalog.efficiencies[spec.efficiency].all_reduce.latency_s)
    group = deployment["tensor_parallel"] * deployment["data_parallel"]
    if min(group, system.levels[0].size or math.inf) > measured:
        sentences.append(f"{chip}: collectives between more than {measured} chips are extrapolated")
    if "routing_skew" not in deployment and any(block.kind == "moe" for block in model.blocks):
        sentences.append(
            f"routing skew {ROUTING_SKEW:g}, that of measured kernels under a power law, not of "
            "this model"
        )
    sentences += _unmeasured(mix)
    sentences.append(
        "80% intervals are how far held-out measured rows were off, by efficiency kind"
    )
    sentences.append("power is the chip's rated power, all the time")
    return sentences


def _drafts(load: Workload) -> bool:
    """Whether a multi-token-prediction module drafts."""
    return load.speculation is not None and load.speculation.draft_share is None


def _drafting(texts: Sequence[str]) -> list[str]:
    """What a model that drafts with such a module assumes: not that this is left out."""
    texts = [text.replace("the multi-token-prediction module and ", "") for text in texts]
    return [text for text in texts if not re.search("multi-token.prediction", text)]


def _unmeasured(mix: Mix) -> list[str]:
    """What of the workloads no measured row has, so that no interval was tested on it."""
    loads = [share.workload for share in mix]
    sentences, parts = [], []
    if any(load.serving == POISSON for load in loads):
        parts.append("Poisson arrivals")
        sentences.append(
            "below capacity the arrivals set output rate, cost and energy: these have no interval"
        )
    if any(load.speculation is not None for load in loads):
        parts.append("speculative decoding")
        sentences.append("the acceptance of drafted tokens is as given: nothing predicts it")
    if any(_drafts(load) for load in loads):
        sentences.append(
            "drafts are those of a multi-token-prediction module of one mean layer of the model, "
            "a projection and the model's own output head, whether or not it has one (assumed)"
        )
    if any(load.prefix_hit_rate for load in loads):
        parts.append("cached prefixes")
        sentences.append(
            "the share of cached prefixes is as given; memory that requests share is not credited"
        )
    if any(load.network_overlap for load in loads):
        parts.append("an overlap of network and compute")
        sentences.append(
            "the overlap of network and compute is as given; that each micro-batch reads the "
            "weights is not charged"
        )
    if len(loads) > 1:
        parts.append("a mix of workloads")
    if parts:
        sentences.append(
            f"no measured row has {', '.join(parts)}: intervals are those of closed loops without"
        )
    return sentences
