"""From steps to requests: static batches, continuous batching in a closed loop, offline.

Continuous batching. An instance runs r requests. A request is prefilled in chunks beside the
decoding of the others, then decodes. While it is there, each of the other r - 1 requests is
replaced once, and its successor's prompt adds w to the steps that carry it: w (r - 1) in all, of
which the part that falls before the first token, by the share of time spent there, is

    ahead = w (r - 1) * w / (r w + output * step)        (below one more prompt)
    tpot  = step + (w (r - 1) - ahead) / output

A request that takes the place of a finished one waits for the whole next step. Of a benchmark that
sends `rounds` x concurrency prompts, one in `rounds` belongs to the burst at the start, whose
prompts are prefilled chunk after chunk while the first of them already decode. Beyond the requests
that memory admits, a request waits (concurrency - r) / X, by Little's law.
Throughput is X = r / (time from admission to the last token). Attention data-parallel ranks
prefill at the same time (optimistic when their prompts arrive apart).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dse.candidates import CandidateBatch, Floats
from dse.perf.deployed import Deployed
from dse.perf.ledger import Ledger
from dse.perf.machines import Machines
from dse.perf.memory import Memory, memory
from dse.perf.step import Step
from dse.perf.workload import Workload

BOTTLENECKS = (
    "decode: compute", "decode: memory bandwidth", "decode: network",
    "decode: fixed overhead", "prefill: compute", "prefill: memory bandwidth",
    "prefill: network", "prefill: fixed overhead",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Performance:
    """What a deployment does with a workload; every array (n,), seconds unless named.

    `ttft_s` is NaN for offline serving, where it has no meaning. `prefill_chip_s` and
    `decode_chip_s` are chip-seconds per request. `bottleneck` indexes BOTTLENECKS.
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
    latency_floor_s: Floats
    mfu: Floats
    mbu: Floats
    bottleneck: Floats
    memory: Memory
    prefill_ledger: Ledger
    decode_ledger: Ledger


def predict(
    batch: CandidateBatch, workload: Workload, machines: Machines, *, keep: bool = False
) -> Performance:
    """Serves `workload` on every candidate. `keep` retains per-operator ledgers."""
    deployed = Deployed(batch, machines)
    prompt = np.broadcast_to(workload.prompt_tokens, deployed.n)
    output = np.broadcast_to(workload.output_tokens, deployed.n)
    mem = memory(deployed, prompt, output, workload.backend)
    model = _static if workload.serving == "static" else _continuous
    return model(deployed, workload, prompt, output, mem, keep)


def _step_s(device_s: Floats, workload: Workload, requests: Floats | float = 0.0) -> Floats:
    """A step is the larger of device and host time, plus the gap between two steps and the host's
    work on each decoding request."""
    backend = workload.backend
    serial = backend.gap_s_per_step + backend.host_s_per_request * requests
    return np.maximum(device_s, backend.host_s_per_step) + serial


def _stage_imbalance(deployed: Deployed) -> Floats:
    """(n,) layers of the fullest pipeline stage over the mean."""
    layers = deployed.batch.layers
    stages = deployed.pipeline_parallel
    return np.ceil(layers / stages) * stages / layers


def _prefill(
    deployed: Deployed, workload: Workload, tokens: Floats, prompt: Floats, keep: bool
) -> tuple[Floats, Step]:
    """Seconds to prefill `tokens` on every attention rank, chunk after chunk, stages overlapped."""
    chunks = np.ceil(tokens / workload.backend.chunk_tokens)
    zeros = np.zeros(deployed.n)
    step = Step(
        deployed,
        decode_rows=zeros,
        context=zeros,
        prefill_rows=tokens / chunks,
        prompt_tokens=prompt,
        keep=keep,
    )
    one = _step_s(step.seconds * _stage_imbalance(deployed), workload)
    return one * (1.0 + (chunks - 1.0) / deployed.pipeline_parallel), step


def _decode(deployed: Deployed, rows: Floats, context: Floats, keep: bool) -> Step:
    zeros = np.zeros(deployed.n)
    return Step(
        deployed,
        decode_rows=rows,
        context=context,
        prefill_rows=zeros,
        prompt_tokens=np.ones(deployed.n),
        keep=keep,
    )


def _static(
    deployed: Deployed, workload: Workload, prompt: Floats, output: Floats, mem: Memory, keep: bool
) -> Performance:
    batch = deployed.batch
    running = np.ceil(batch.concurrency / batch.replicas)
    per_rank = np.ceil(running / deployed.data_parallel)
    prefill_s, prefill = _prefill(deployed, workload, per_rank * prompt, prompt, keep)
    rows = np.maximum(per_rank / deployed.pipeline_parallel, 1.0)
    decode = _decode(deployed, rows, prompt + output / 2.0, keep)
    decode_step_s = _step_s(decode.seconds * _stage_imbalance(deployed), workload, rows)
    ttft = prefill_s  # a static batch meets no server
    e2e = ttft + (output - 1.0) * decode_step_s
    requests_per_s = batch.concurrency / e2e
    total_chip_s = batch.chips / requests_per_s
    prefill_chip_s = batch.chips * ttft / batch.concurrency
    return _performance(
        deployed, mem, prefill, decode, prefill_s, decode_step_s, ttft, decode_step_s, e2e,
        requests_per_s, output, batch.concurrency, running, prefill_chip_s, total_chip_s,
    )  # fmt: skip


def _continuous(
    deployed: Deployed, workload: Workload, prompt: Floats, output: Floats, mem: Memory, keep: bool
) -> Performance:
    batch, backend = deployed.batch, workload.backend
    stages = deployed.pipeline_parallel
    fits = np.maximum(np.minimum(mem.admitted, backend.max_running_requests), 1.0)
    offline = workload.serving == "offline"
    waiting = fits if offline else np.ceil(batch.concurrency / batch.replicas)
    running = np.minimum(waiting, fits)
    per_rank = np.ceil(running / deployed.data_parallel)
    rows = np.maximum(per_rank / stages, 1.0)
    context = prompt + output / 2.0
    imbalance = _stage_imbalance(deployed)

    prefill_s, prefill = _prefill(deployed, workload, prompt, prompt, keep)
    decode = _decode(deployed, rows, context, keep)
    decode_device_s = decode.seconds * imbalance
    decode_step_s = _step_s(decode_device_s, workload, rows)
    carried = np.minimum(prompt * np.maximum(rows / output, 1.0), backend.chunk_tokens)
    mixed = Step(
        deployed,
        decode_rows=rows,
        context=context,
        prefill_rows=carried,
        prompt_tokens=prompt,
        parts=False,
    )
    added = np.maximum(mixed.seconds * imbalance - decode_device_s, 0.0) * prompt / carried

    arriving = added / stages
    delay = arriving * (per_rank - 1.0)
    ahead = delay * arriving / (per_rank * arriving + output * decode_step_s)
    tpot = decode_step_s + (delay - ahead) / output
    others = 1.0 - 1.0 / per_rank
    chunks = np.ceil(prompt / backend.chunk_tokens)
    own = np.maximum(prefill_s, added + chunks * decode_step_s * others)
    service = backend.first_token_s + tpot * others + own + ahead
    residence = service + (output - 1.0) * tpot
    per_instance = running / residence
    queue = (waiting - running) / per_instance
    packed = np.minimum(per_rank, np.maximum(backend.chunk_tokens / prompt, 1.0))
    drained = arriving * (per_rank + packed) / 2.0 + decode_step_s * per_rank / packed / 2.0
    burst = backend.first_token_s + np.maximum(drained, own)
    first_token = service + (burst - service) / workload.rounds
    ttft = np.full(deployed.n, np.nan) if offline else first_token + queue
    active = batch.replicas if offline else np.minimum(batch.replicas, batch.concurrency)
    requests_per_s = per_instance * active
    total_chip_s = batch.chips / requests_per_s
    prefill_chip_s = np.minimum(
        batch.chips_per_instance * added / (stages * deployed.data_parallel), total_chip_s
    )
    in_flight = running * active
    if not offline:
        in_flight = np.minimum(in_flight, batch.concurrency)
    return _performance(
        deployed, mem, prefill, decode, prefill_s, decode_step_s, ttft, tpot, queue + residence,
        requests_per_s, output, in_flight, running, prefill_chip_s, total_chip_s,
    )  # fmt: skip


def _performance(
    deployed: Deployed,
    mem: Memory,
    prefill: Step,
    decode: Step,
    prefill_s: Floats,
    decode_step_s: Floats,
    ttft: Floats,
    tpot: Floats,
    e2e: Floats,
    requests_per_s: Floats,
    output: Floats,
    in_flight: Floats,
    running: Floats,
    prefill_chip_s: Floats,
    total_chip_s: Floats,
) -> Performance:
    decode_chip_s = total_chip_s - prefill_chip_s
    floor = decode.ledger.floor_s
    return Performance(
        prefill_s=prefill_s,
        decode_step_s=decode_step_s,
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=e2e,
        output_tokens_per_s=requests_per_s * output,
        requests_per_s=requests_per_s,
        running_requests=in_flight,
        running_per_instance=running,
        prefill_chip_s=prefill_chip_s,
        decode_chip_s=decode_chip_s,
        latency_floor_s=floor,
        mfu=prefill.ledger.floor_compute_s / prefill.seconds,
        mbu=decode.ledger.floor_memory_s / decode_step_s,
        bottleneck=_bottleneck(prefill, decode, decode_step_s, prefill_chip_s > decode_chip_s),
        memory=mem,
        prefill_ledger=prefill.ledger,
        decode_ledger=decode.ledger,
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
        parts = (ledger.compute_s, ledger.memory_s, ledger.network_s, ledger.fixed_s + extra)
        largest, where = parts[0], np.full(len(best), offset, dtype=np.intp)
        for k, part in enumerate(parts[1:], start=1):
            where = np.where(part > largest, offset + k, where)
            largest = np.maximum(part, largest)
        chosen = prefill_dominates if offset else ~prefill_dominates
        best = np.where(chosen, where, best)
    return best
