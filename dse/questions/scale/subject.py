"""What is scaled: one model on one chip under one workload, and the ways to divide an instance.

`divided` lists every (tensor, pipeline, data, expert) parallelism of an instance of so many chips;
`evaluated` puts any number of them through the physics at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dse.catalog import Catalog
from dse.physics.machines import Machines, compile_machines
from dse.physics.workload import Workload
from dse.problem.evaluate import Metrics, evaluate
from dse.schema.model import Model
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from dse.space.candidates import CandidateBatch, Floats

CHUNK = 10_000  # candidates whose arrays stay in cache
BOUNDS = ("compute", "memory", "network", "fixed")
MEMORY = "memory_capacity"
UNCAPPED = np.inf


@dataclass(frozen=True, slots=True)
class Subject:
    """One model in one format on one chip under one workload; `machines` holds that chip alone.

    `domain` is the chips of one scale-up domain, `one` the model on one chip, a batch of one.
    """

    catalog: Catalog
    model: Model
    chip: str
    workload: Workload
    machines: Machines
    price_basis: str
    domain: int
    one: CandidateBatch

    @property
    def experts(self) -> tuple[int, ...]:
        """Experts of each kind of sparse layer; empty for a dense model."""
        return tuple(int(b.sizes["experts"]) for b in self.model.blocks if b.kind == "moe")


def scale_subject(
    catalog: Catalog,
    model: Model,
    chip: str,
    workload: Workload,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    price_basis: str = "rental_3yr",
    routing_skew: float | None = None,
) -> Subject:
    """The subject of every function of this package. Formats are the checkpoint's own where they
    are not given. The backend's cap on running requests of one instance is a setting that larger
    instances would raise, so it is lifted. Raises InputError for an unknown chip or price basis,
    and for a chip without a figure that every estimate needs."""
    catalog.require(chip)
    axes = {axis: np.ones(1) for axis in DEPLOYMENT_AXES}
    kv = kv_dtype or model.kv_dtype or "bf16"
    subject = Subject(
        catalog=catalog,
        model=model,
        chip=chip,
        workload=replace(
            workload, backend=replace(workload.backend, max_running_requests=UNCAPPED)
        ),
        machines=compile_machines(catalog, [chip], price_basis),
        price_basis=price_basis,
        domain=catalog.systems[catalog.chip(chip).system].levels[0].size or 1,
        one=batch_of([model], np.zeros(1, dtype=np.intp), [weight_dtype], [kv], axes),
    )
    return subject if routing_skew is None else with_routing_skew(subject, routing_skew)


def with_routing_skew(subject: Subject, skew: float) -> Subject:
    """The same with experts chosen as evenly as `skew` says, the standard deviation of how often an
    expert is chosen over its mean."""
    return replace(subject, one=replace(subject.one, routing_skew=np.full(1, skew)))


@dataclass(frozen=True, slots=True)
class Degrees:
    """How n instances are divided; every array (n,). `copies` are the redundant experts that make
    the experts of a layer divide by the expert parallelism."""

    tensor: Floats
    pipeline: Floats
    data: Floats
    expert: Floats
    copies: Floats

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: NDArray[np.intp]) -> Degrees:
        return Degrees(*(getattr(self, f.name)[rows] for f in fields(self)))

    @property
    def chips(self) -> Floats:
        return self.tensor * self.pipeline * self.data


def degrees_of(rows: Sequence[Sequence[float]]) -> Degrees:
    """From (tensor, pipeline, data, expert, copies) of each instance."""
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return Degrees(*(table[:, k].copy() for k in range(5)))


def divided(subject: Subject, chips: int) -> Degrees:
    """Every way to divide one instance of `chips` chips, legal or not.

    A dense model has no attention data parallelism: its ranks would share nothing, so they are
    replicas. With attention data parallelism the experts are spread over the whole group or not at
    all, as expert-parallel kernels want it; without, every rank holds every token and any divisor
    will do. Busy experts may have copies (`copies_for`).
    """
    layers = sum(int(b.count) for b in subject.model.blocks if b.kind not in ("mlp", "moe"))
    rows: list[tuple[float, ...]] = []
    for pipeline in divisors(chips):
        if pipeline > layers:
            continue
        group = chips // pipeline
        for tensor in divisors(group):
            data = group // tensor
            if data > 1 and not subject.experts:
                continue
            spread = divisors(group) if data == 1 else [1, group]
            for expert in spread if subject.experts else [1]:
                rows += [
                    (tensor, pipeline, data, expert, copies)
                    for copies in copies_for(subject, expert)
                ]
    return degrees_of(rows)


def copies_for(subject: Subject, expert_parallel: int) -> list[int]:
    """Redundant experts to try at an expert parallelism: the fewest with which every sparse layer
    divides by it, and one more a rank, which evens out busy experts; never more than experts. None
    to try where layers of unlike sizes need unlike numbers."""
    needed = {-count % expert_parallel for count in subject.experts} or {0}
    fewest, most = min(needed), min(subject.experts, default=0)
    if len(needed) > 1:
        return []
    more = [fewest + expert_parallel] if expert_parallel > 1 else []
    return [copies for copies in (fewest, *more) if copies <= most]


def divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """n points; every array (n,). Seconds; tokens per second; `usd` per million tokens, input and
    output, NaN without a price. `network_share` is that of the decode step, `bound` indexes BOUNDS
    for its largest part. `memory` is used / capacity - 1 with the cache of one request, `rule`
    is the place of the first other rule that is broken, -1 for none. `admitted` are the requests
    that memory takes at once."""

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
    rule: NDArray[np.intp]
    admitted: Floats
    provenance: NDArray[np.intp]


def batch_at(
    subject: Subject,
    degrees: Degrees,
    concurrency: Floats,
    replicas: Floats | None = None,
) -> CandidateBatch:
    """The candidates: `degrees` with `concurrency` (n,) requests in flight over all replicas."""
    n = len(degrees)
    return replace(
        subject.one[np.zeros(n, dtype=np.intp)],
        tensor_parallel=degrees.tensor,
        pipeline_parallel=degrees.pipeline,
        data_parallel=degrees.data,
        expert_parallel=degrees.expert,
        redundant_experts=degrees.copies if subject.experts else None,
        concurrency=concurrency,
        replicas=np.ones(n) if replicas is None else replicas,
    )


def evaluated(
    subject: Subject,
    degrees: Degrees,
    concurrency: Floats,
    *,
    replicas: Floats | None = None,
    machines: Machines | None = None,
) -> Evaluated:
    """Puts n instances through the physics, on other `machines` of the same chip where given."""
    batch = batch_at(subject, degrees, concurrency, replicas)
    edges = [*range(0, len(batch), CHUNK), len(batch)]
    parts = [
        _columns(subject, batch[np.arange(a, b)], machines or subject.machines)
        for a, b in pairwise(edges if len(edges) > 1 else [0, 0])
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
        bottleneck=np.asarray(performance.bottleneck, dtype=np.intp),
        memory_bytes=values["memory_bytes_per_chip"],
        memory=metrics.violations[MEMORY],
        rule=_broken(metrics),
        admitted=performance.memory.admitted,
        provenance=metrics.provenance,
    )


def step_shares(metrics: Metrics, batch: CandidateBatch) -> tuple[Floats, ...]:
    """(n,) share of the decode step by BOUNDS. Compute and memory overlap, so that shares may add
    to more than 1, as does network time that is overlapped; what the host adds to the device's time
    counts as fixed."""
    performance = metrics.performance
    ledger, step = performance.decode_ledger, performance.decode_step_s
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
