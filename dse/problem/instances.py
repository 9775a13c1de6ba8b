"""One model on one chip under one workload, and instances of it on any number of deployments at
once. The deployments are a table of `dse.space.deployments`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dse.catalog import Catalog
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.record import record
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, DRAFT_AXIS, batch_of
from dse.space.candidates import CandidateBatch, Floats, Rows
from dse.space.deployments import Deployments, instances

CHUNK = 10_000  # candidates whose arrays stay in cache
BOUNDS = ("compute", "memory", "network", "fixed")
MEMORY = "memory_capacity"
UNCAPPED = np.inf


@record
class Subject:
    """One model in one format on one chip under one workload; `machines` holds that chip alone.

    `domain` is the chips of one scale-up domain, `one` the model on one chip, a batch of one;
    `copies` of busy experts are those to try, empty for those of `with_redundant_experts`.
    """

    catalog: Catalog
    model: Model
    chip: str
    workload: Workload
    machines: Machines
    price_basis: str
    domain: int
    one: CandidateBatch
    copies: tuple[int, ...] = ()

    @property
    def experts(self) -> tuple[int, ...]:
        """As `Model.experts`."""
        return self.model.experts

    def divided(self, chips: ArrayLike) -> Deployments:
        """Every way to divide an instance of each of these sizes, legal or not."""
        return instances(chips, int(self.one.layers[0]), self.experts, self.copies)


def subject_of(
    catalog: Catalog,
    model: Model,
    chip: str,
    workload: Workload,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    price_basis: str = "rental_3yr",
    routing_skew: float | None = None,
    capped: bool = False,
    axes: Mapping[str, Any] | None = None,
    draft_tokens: int | None = None,
    redundant_experts: Sequence[int] = (),
) -> Subject:
    """Formats are the checkpoint's own where they are not given; `axes` (1,) each, as `batch_of`
    takes them, hold what no table of deployments changes. Drafts are accepted as the workload says,
    else as published of the model. The backend's cap on running requests of
    one instance is a setting that larger instances would raise, so it is lifted unless `capped`.
    Raises InputError for an unknown chip or price basis, and for a chip without a figure that every
    estimate needs."""
    catalog.require(chip)
    axes = axes or {axis: np.ones(1) for axis in DEPLOYMENT_AXES}
    if draft_tokens is not None:
        axes = {**axes, DRAFT_AXIS: np.array([float(draft_tokens)])}
    if not capped:
        backend = replace(workload.backend, max_running_requests=UNCAPPED)
        workload = replace(workload, backend=backend)
    kv = kv_dtype or model.kv_dtype or "bf16"
    subject = Subject(
        catalog=catalog,
        model=model,
        chip=chip,
        workload=workload,
        machines=compile_machines(catalog, [chip], price_basis),
        price_basis=price_basis,
        domain=catalog.systems[catalog.chip(chip).system].levels[0].size or 1,
        one=batch_of([model], np.zeros(1, dtype=np.intp), [weight_dtype], [kv], axes),
        copies=tuple(redundant_experts),
    )
    return subject if routing_skew is None else with_routing_skew(subject, routing_skew)


def with_routing_skew(subject: Subject, skew: float) -> Subject:
    """The same with experts chosen as evenly as `skew` says, the standard deviation of how often an
    expert is chosen over its mean."""
    return replace(subject, one=replace(subject.one, routing_skew=np.full(1, skew)))


@record
class Evaluated(Rows):
    """n points; every array (n,). Seconds; tokens per second; `usd` per million tokens, input and
    output, NaN without a price. `network_share` is that of the decode step, `bound` indexes BOUNDS
    for its largest part. `memory_share` is used / capacity with the cache of one request, `memory`
    that less 1. `rule` is the place of the first other rule that is broken, -1 for none. `admitted`
    are the requests that memory takes at once."""

    tpot_s: Floats
    ttft_s: Floats
    decode_step_s: Floats
    output_tokens_per_s: Floats
    usd: Floats
    network_share: Floats
    bound: NDArray[np.intp]
    bottleneck: NDArray[np.intp]
    memory_bytes: Floats
    memory: Floats
    memory_share: Floats
    rule: NDArray[np.intp]
    admitted: Floats
    provenance: NDArray[np.intp]

    @property
    def runs(self) -> NDArray[np.bool_]:
        """(n,) whether no rule is broken and one request fits the memory."""
        return (self.rule < 0) & (self.memory <= 0.0)


def batch_at(
    subject: Subject,
    table: Deployments,
    concurrency: ArrayLike,
    replicas: ArrayLike = 1.0,
) -> CandidateBatch:
    """The candidates: n deployments with `concurrency` requests in flight over all `replicas`, (n,)
    or one number each."""
    if not subject.experts:
        table = table.without("redundant_experts")
    return table.with_columns(concurrency=concurrency, replicas=replicas).placed(subject.one)


def evaluated(
    subject: Subject,
    table: Deployments,
    concurrency: ArrayLike = 1.0,
    *,
    replicas: ArrayLike = 1.0,
    machines: Machines | None = None,
) -> Evaluated:
    """Puts n instances through the physics, on other `machines` of the same chip where given."""
    batch = batch_at(subject, table, concurrency, replicas)
    parts = [
        _columns(subject, batch[start : start + CHUNK], machines or subject.machines)
        for start in range(0, max(len(batch), 1), CHUNK)
    ]
    return Evaluated(
        *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Evaluated))
    )


def _columns(subject: Subject, batch: CandidateBatch, machines: Machines) -> Evaluated:
    metrics = evaluate(batch, subject.workload, machines)
    performance, values = metrics.performance, metrics.values
    shares = step_shares(metrics, batch)
    return Evaluated(
        tpot_s=values["tpot_s"],
        ttft_s=values["ttft_s"],
        decode_step_s=values["decode_step_s"],
        output_tokens_per_s=values["output_tokens_per_s"],
        usd=values["usd_per_million_total_tokens"],
        network_share=shares[BOUNDS.index("network")],
        bound=np.argmax(np.stack(shares), axis=0),
        bottleneck=np.asarray(performance.detail.bottleneck, dtype=np.intp),
        memory_bytes=values["memory_bytes_per_chip"],
        memory=metrics.violations[MEMORY],
        memory_share=values["memory_bytes_per_chip"] / values["memory_capacity_bytes_per_chip"],
        rule=_broken(metrics),
        admitted=performance.memory.admitted,
        provenance=metrics.provenance,
    )


def step_shares(metrics: Metrics, batch: CandidateBatch) -> tuple[Floats, ...]:
    """(n,) share of the decode step by BOUNDS. Compute and memory overlap, so that shares may add
    to more than 1, as does network time that is overlapped; what the host adds to the device's time
    counts as fixed."""
    performance = metrics.performance
    ledger, step = performance.detail.decode_ledger, performance.decode_step_s
    layers, stages = batch.layers, batch.pipeline_parallel
    fullest = np.ceil(layers / stages) * stages / layers
    host = np.maximum(step - ledger.seconds * fullest, 0.0)
    parts = (ledger.compute_s, ledger.memory_s, ledger.network_s, ledger.fixed_s)
    shares = [part * fullest / step for part in parts]
    shares[-1] = shares[-1] + host / step
    return tuple(shares)


def _broken(metrics: Metrics) -> NDArray[np.intp]:
    """(n,) the first rule but that of memory that is broken, by its place; -1 where none is."""
    found = np.full(len(metrics.provenance), -1, dtype=np.intp)
    for k, (name, amount) in enumerate(metrics.violations.items()):
        if name != MEMORY:
            found = np.where((found < 0) & (amount > 0.0), k, found)
    return found
