"""From steps to requests: static batches, continuous batching in a closed loop, offline.

Continuous batching: `dse.physics.queueing` has what a request waits for. Of a benchmark that sends
`rounds` x concurrency prompts, one in `rounds` belongs to the burst at the start. Beyond the
requests that memory, the backend's cap and its token budget admit, a request waits
(concurrency - r) / X, by Little's law. Throughput is X = r / (time from admission to the last
token).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from dse.physics.energy import Energy, request_energy
from dse.physics.ledger import Ledger
from dse.physics.machines import Machines
from dse.physics.memory import Memory
from dse.physics.phases import Case, case_of, decode_step, prefill_step, rank_of
from dse.physics.queueing import (
    Moments,
    Rank,
    Response,
    closed_loop,
    decoding_limit,
    decoding_rows,
    equilibrium,
    open_loop,
    percentile,
    response,
    slot_wait,
)
from dse.physics.step import Step
from dse.physics.workload import POISSON, Workload
from dse.record import record
from dse.space.alike import Shared
from dse.space.candidates import CandidateBatch, Floats

BOTTLENECKS = (
    "decode: compute",
    "decode: memory bandwidth",
    "decode: network",
    "decode: fixed overhead",
    "prefill: compute",
    "prefill: memory bandwidth",
    "prefill: network",
    "prefill: fixed overhead",
    "decode: memory tier",
    "prefill: memory tier",
    "decode: power cap",
    "prefill: power cap",
)
TIER = BOTTLENECKS.index("decode: memory tier")
POWER = BOTTLENECKS.index("decode: power cap")


@record
class Performance:
    """What a deployment does with a workload; every array (n,), seconds unless named.

    `ttft_s` is NaN for offline serving, where it has no meaning. `prefill_chip_s` and
    `decode_chip_s` are chip-seconds per request. `arrivals` is None but for Poisson arrivals. What
    the two steps are made of (`detail`) and `energy` are worked out when first asked for: few
    searches ask.
    """

    prefill_s: Floats
    decode_step_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats
    output_tokens_per_s: Floats
    requests_per_s: Floats
    running_requests: Floats
    running_per_instance: Floats
    prefill_chip_s: Floats
    decode_chip_s: Floats
    memory: Memory
    look: Callable[[], Detail]
    count_energy: Callable[[], Energy]
    arrivals: Arrivals | None = None

    @property
    def detail(self) -> Detail:
        """Of the steps of either phase."""
        return self.look()

    @property
    def energy(self) -> Energy:
        """Joules of a request."""
        return self.count_energy()


@record
class Detail:
    """A step of either phase, part by part: what bounds it, (n,) each, and the ledgers.
    `bottleneck` indexes BOTTLENECKS."""

    latency_floor_s: Floats
    mfu: Floats
    mbu: Floats
    bottleneck: Floats
    prefill_ledger: Ledger
    decode_ledger: Ledger


@record
class Arrivals:
    """Of Poisson arrivals, (n,): mean and percentiles of the time to first token, and the rate of
    arrival over the most that can be served. At 1 and beyond, the times are infinite."""

    ttft_mean_s: Floats
    ttft_p90_s: Floats
    ttft_p99_s: Floats
    utilisation: Floats


def predict(
    batch: CandidateBatch,
    workload: Workload,
    machines: Machines,
    *,
    keep: bool = False,
    shared: Shared | None = None,
) -> Performance:
    """Serves `workload` on every candidate. `keep` retains per-operator ledgers; what deployments
    have in common by `shared` is worked out once."""
    alike = None if shared is None else shared.deployments
    case = case_of(batch, workload, machines, keep=keep, alike=alike)
    if workload.serving == "static":
        return _static(case)
    return _poisson(case) if workload.serving == POISSON else _closed_loop(case)


def _static(case: Case) -> Performance:
    deployed, batch, output = case.deployed, case.deployed.batch, case.output
    running = np.ceil(batch.concurrency / batch.replicas)
    per_rank = np.ceil(running / deployed.data_parallel)
    rows = np.maximum(per_rank / deployed.pipeline_parallel, 1.0)
    prompts = per_rank * case.fresh
    prefill_s, _ = prefill_step(case, prompts, parts=False)
    decode_step_s, decode = decode_step(case, rows, parts=False)
    tpot = decode_step_s / case.tokens_per_step
    ttft = prefill_s  # a static batch meets no server
    e2e = ttft + (output - 1.0) * tpot
    requests_per_s = batch.concurrency / e2e
    prefill_chip_s = batch.chips * ttft / batch.concurrency
    return _performance(
        case,
        partial(prefill_step, case, prompts),
        decode,
        requests_per_s=requests_per_s,
        prefill_chip_s=prefill_chip_s,
        prefill_s=prefill_s,
        decode_step_s=decode_step_s,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=e2e,
        running_requests=batch.concurrency,
        running_per_instance=running,
    )


def prompt_alone(case: Case, *, parts: bool = True) -> tuple[Floats, Step]:
    """The prefill of a prompt that is alone on its instance, as `prefill_step`."""
    return prefill_step(case, case.fresh, 1.0 / case.deployed.data_parallel, parts=parts)


def _slots(case: Case) -> Floats:
    """(n,) requests of an instance that memory and the cap of its attention ranks admit at once."""
    cap = case.cap * case.deployed.data_parallel
    return np.maximum(np.minimum(case.memory.admitted, cap), 1.0)


def _fits(case: Case) -> Floats:
    """(n,) the same, by the token budget of a step too."""
    deployed, backend = case.deployed, case.workload.backend
    if backend.scheduler != "mixed":
        return _slots(case)
    decoding = decoding_limit(backend.chunk_tokens, case.fresh, case.steps)
    ranks = deployed.pipeline_parallel * deployed.data_parallel
    return np.minimum(_slots(case), decoding * ranks)


def _full_rank(case: Case, running: Floats, prefill_s: Floats) -> tuple[Rank, Step]:
    """An attention rank of an instance that always has `running` (n,) requests."""
    per_rank = np.ceil(running / case.deployed.data_parallel)
    backend = case.workload.backend
    rows = decoding_rows(
        np.maximum(per_rank / case.deployed.pipeline_parallel, 1.0),
        backend.chunk_tokens,
        case.fresh,
        case.steps,
        backend.scheduler,
    )
    others = (running - 1.0) / case.deployed.data_parallel
    return rank_of(case, per_rank, rows, prefill_s, others)


def _prefill_chip_s(case: Case, rank: Rank) -> Floats:
    """(n,) chip-seconds by which a prompt lengthens the steps of its rank."""
    return case.deployed.batch.chips_per_instance * rank.delay_s / case.deployed.data_parallel


def first_token_s(case: Case, rank: Rank) -> Floats:
    """(n,) what a backend adds to the time to first token."""
    backend = case.workload.backend
    return case.host_first_s + backend.first_token_steps * rank.step_s


def evened(queued: Floats, fits: Floats) -> Floats:
    """(n,) requests that run in the mean of a benchmark that ends: `queued` ones of equal length go
    through in whole rounds of at most `fits`, and the last is seldom full. 0 queued: no end."""
    rounds = np.maximum(np.ceil(queued / fits), 1.0)
    return np.where(queued > 0.0, np.maximum(queued / rounds, 1.0), fits)


def _closed_loop(case: Case) -> Performance:
    deployed, workload, output = case.deployed, case.workload, case.output
    batch = deployed.batch
    offline = workload.serving == "offline"
    fits = case.once(_fits)
    if offline:
        waiting = running = evened(workload.queued / batch.replicas, fits)
    else:
        waiting = np.ceil(batch.concurrency / batch.replicas)
        running = np.minimum(waiting, fits)
    prefill_s = case.once(lambda one: prompt_alone(one, parts=False)[0])
    rank, decode = _full_rank(case, running, prefill_s)
    if workload.open_loop:
        latency = open_loop(rank)
    else:
        cold_s = workload.backend.cold_s
        latency = closed_loop(rank, workload.rounds, workload.synchronised, cold_s)
    tpot = latency.tpot_s / case.tokens_per_step
    first_token = first_token_s(case, rank) + latency.ttft_s
    residence = first_token + (output - 1.0) * tpot
    per_instance = running / residence
    # No open loop lasts whose queue stands: what is in flight beyond `running` is a miss of memory.
    queue = np.zeros(deployed.n) if workload.open_loop else (waiting - running) / per_instance
    ttft = np.full(deployed.n, np.nan) if offline else first_token + queue
    active = batch.replicas if offline else np.minimum(batch.replicas, batch.concurrency)
    requests_per_s = per_instance * active
    in_flight = running * active
    if not offline:
        in_flight = np.minimum(in_flight, batch.concurrency)
    return _performance(
        case,
        partial(prompt_alone, case),
        decode,
        requests_per_s=requests_per_s,
        prefill_chip_s=_prefill_chip_s(case, rank),
        prefill_s=prefill_s,
        decode_step_s=rank.step_s,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=queue + residence,
        running_requests=in_flight,
        running_per_instance=running,
    )


def _poisson(case: Case) -> Performance:
    """What an instance can serve is what a closed loop with as many requests as fit serves."""
    deployed, workload, output = case.deployed, case.workload, case.output
    batch, stages = deployed.batch, deployed.pipeline_parallel
    arriving = np.broadcast_to(workload.requests_per_s, deployed.n) / batch.replicas
    per_rank = arriving / deployed.data_parallel
    prefill_s = case.once(lambda one: prompt_alone(one, parts=False)[0])
    fits = case.once(_fits)
    full_rank, _ = _full_rank(case, fits, prefill_s)
    full = closed_loop(full_rank, np.inf, np.zeros(1))
    full_s = full.ttft_s + (case.steps - 1.0) * full.tpot_s
    most = fits / (first_token_s(case, full_rank) + full_s)

    def met(rows: Floats) -> tuple[Rank, Step, Response]:
        others = rows * stages - 1.0 / deployed.data_parallel
        rank, decode = rank_of(case, rows * stages, rows, prefill_s, others)
        return rank, decode, response(rank, per_rank)

    def leads_to(rows: Floats) -> Floats:
        return 1.0 + per_rank / stages * case.steps * met(rows)[2].tpot_s

    rank, decode, found = met(
        equilibrium(leads_to, np.maximum(fits / (stages * deployed.data_parallel), 1.0))
    )
    first_s = first_token_s(case, rank)
    tpot = found.tpot_s / case.tokens_per_step
    rest = np.maximum(output - 1.0, 1e-9)  # 0 tokens after the first, at an endless time for each
    served_s = first_s + found.own_s + found.wait.mean + rest * tpot
    # Load of prompts, of the closed loop's throughput, and of the places that memory has.
    utilisation = np.maximum(np.maximum(arriving / most, found.busy), arriving * served_s / fits)
    over = utilisation >= 1.0
    slot = slot_wait(_slots(case), np.minimum(utilisation, 1.0), most)
    wait = Moments(found.wait.mean + slot.mean, found.wait.variance + slot.variance)

    def endless(seconds: Floats) -> Floats:
        return np.where(over, np.inf, seconds)

    p50, p90, p99 = (
        endless(first_s + percentile(found.own_s, wait, share)) for share in (0.5, 0.9, 0.99)
    )
    mean = endless(first_s + found.own_s + wait.mean)
    tpot = endless(tpot)
    running = np.where(over, fits, arriving * served_s)
    requests_per_s = np.minimum(arriving, most) * batch.replicas
    return _performance(
        case,
        partial(prompt_alone, case),
        decode,
        requests_per_s=requests_per_s,
        prefill_chip_s=_prefill_chip_s(case, rank),
        prefill_s=prefill_s,
        decode_step_s=rank.step_s,
        ttft_s=p50,
        tpot_s=tpot,
        e2e_s=mean + rest * tpot,
        running_requests=running * batch.replicas,
        running_per_instance=running,
        arrivals=Arrivals(mean, p90, p99, utilisation),
    )


def _performance(
    case: Case,
    prompts: Callable[..., tuple[Floats, Step]],
    decoded: Step,
    *,
    requests_per_s: Floats,
    prefill_chip_s: Floats,
    decode_step_s: Floats,
    **more: Any,
) -> Performance:
    """`prompts` runs the prefill step, `decoded` is a decode step without parts; `more` fields of
    the answer."""
    alone = case.workload.serving == "static"
    total_chip_s = case.deployed.batch.chips / requests_per_s
    if not alone:  # prompts take no more than all of it
        prefill_chip_s = np.minimum(prefill_chip_s, total_chip_s)
    decode_chip_s = total_chip_s - prefill_chip_s

    @cache
    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def steps() -> tuple[Step, Step]:
        return prompts()[1], decode_step(case, decoded.requests)[1]

    @cache
    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def detail() -> Detail:
        prefill, decode = steps()
        return Detail(
            latency_floor_s=decode.ledger.floor_s,
            mfu=prefill.ledger.floor_compute_s / prefill.seconds,
            mbu=decode.ledger.floor_memory_s / decode_step_s,
            bottleneck=_bottleneck(prefill, decode, decode_step_s, prefill_chip_s > decode_chip_s),
            prefill_ledger=prefill.ledger,
            decode_ledger=decode.ledger,
        )

    return Performance(
        decode_step_s=decode_step_s,
        output_tokens_per_s=requests_per_s * case.output,
        requests_per_s=requests_per_s,
        prefill_chip_s=prefill_chip_s,
        decode_chip_s=decode_chip_s,
        memory=case.memory,
        look=detail,
        count_energy=cache(
            lambda: request_energy(case, *steps(), decode_step_s, total_chip_s, alone=alone)
        ),
        **more,
    )


def _bottleneck(
    prefill: Step, decode: Step, decode_step_s: Floats, prefill_dominates: np.ndarray
) -> Floats:
    """(n,) index into BOTTLENECKS: the largest part of the phase that takes most chip-seconds. Time
    of a decode step beyond the device's own counts as overhead."""
    best = np.zeros(len(decode_step_s), dtype=np.intp)
    for offset, ledger, extra in (
        (0, decode.ledger, decode_step_s - decode.seconds),
        (4, prefill.ledger, 0.0),
    ):
        compute_s = ledger.compute_s if ledger.clock is None else ledger.compute_s * ledger.clock
        parts = (compute_s, ledger.memory_s, ledger.network_s, ledger.fixed_s + extra)
        largest, where = parts[0], np.full(len(best), offset, dtype=np.intp)
        for k, part in enumerate(parts[1:], start=1):
            where = np.where(part > largest, offset + k, where)
            largest = np.maximum(part, largest)
        if ledger.tier is not None:  # waits for it are a part of memory time
            tier_s = ledger.tier_s
            waiting = (where == offset + 1) & (tier_s > ledger.memory_s - tier_s)
            where = np.where(waiting, TIER + offset // 4, where)
        if ledger.power_s is not None:
            where = np.where(ledger.power_s > largest, POWER + offset // 4, where)
        chosen = prefill_dominates if offset else ~prefill_dominates
        best = np.where(chosen, where, best)
    return best
