"""Prefill and decode on pools of their own: workers of either, of the same or of different chips.

A request is prefilled by one of `replicas` workers of the first pool, its cache crosses the fabric,
and a worker of the second pool decodes it. The rate is what N requests in flight bring, or what the
slower pool can serve:

    X = min(mu, N / (prefill + transfer + (h + O) step(n)))        n = X O step(n)

and at most N over the time that a request takes with its waits (Little's law), with mu prompts a
second of all prefill ranks, each as full as its token budget allows; stages of a pipeline work on
different chunks of the prompts that wait. Prompts wait for a rank as in M/D/c (Sakasegawa), or,
beyond mu, by Little's law; h are the decode steps between a cache that has arrived and its first
token (`handover_steps` of the backend). Of a benchmark of `rounds`, the first N prompts come at
once and wait N / (2 mu) in the mean.

The cache leaves over each prefill chip's own link and arrives over each decode chip's, the slower
of the two: inside one scale-up domain where both pools are of one chip and fit it, else over the
network. It is not overlapped with the prefill, and a rank sends or takes one cache at a time.

Everything that a worker is by itself (`PrefillWorkers`, `DecodeWorkers`) is worked out apart from
what the pools are together (`meet`), so that a search evaluates each worker once and joins tables.

Whole numbers of workers whose rates fit together (`balance`). Decode workers that take D prompts a
second each, of which a prefill worker brings at most M, need a prefill workers for b of them with a
M >= b D, or a / b >= D / M. Chips and dollars a request grow with a / b alone, so the least waste
is the smallest fraction a / b that is not below D / M and whose a x (chips of a prefill worker) + b
x (chips of a decode worker) are allowed.

The fraction is found on the Stern-Brocot tree, without trying numbers: between neighbours
p / q < D / M <= a / b (a q - p b = 1) every fraction has the form (x a + y p) / (x b + y q) with
whole x and y, and the one with the fewest chips is the mediant (x = y = 1). Where the mediant is
not below D / M it is the better upper neighbour, else it is the better lower one; runs of moves to
one side are one step, so that the steps are those of Euclid's algorithm, O(log of the chips). The
search ends where the mediant takes too many chips: all fractions between take more; or with the
first fraction that wastes no more than TOLERANCE of the chips of pools that fit exactly, which has
the fewest workers of either pool of all that do: the tree lists the simplest first.

Of a system that is paid whole, chips that are left over would be paid too: `fill` leaves none.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS
from dse.physics.collectives import network_of
from dse.physics.deployed import Deployed, domain_of
from dse.physics.energy import PhaseEnergy, phase_energy
from dse.physics.ledger import Ledger
from dse.physics.machines import Machines
from dse.physics.memory import Memory
from dse.physics.phases import Case, case_of, decode_step, prefill_step
from dse.physics.queueing import equilibrium
from dse.physics.step import Step, layers_per_stage
from dse.physics.workload import POISSON, Workload
from dse.record import record
from dse.space.candidates import Block, CandidateBatch, Codes, Floats, Rows

MOST_STEPS = 64  # of Euclid's algorithm: more than numbers below 2^40 take
MOST_WORKERS = 1e6
TOLERANCE = 0.005


def balance(
    ratio: Floats, prefill_chips: Floats, decode_chips: Floats, chips: Floats
) -> tuple[Floats, Floats]:
    """(a, b), (n,) whole numbers: the fewest whose a / b is not below `ratio` (D / M above, more
    than 0) and that waste no more than TOLERANCE, with a x `prefill_chips` + b x `decode_chips` at
    most `chips`; where all that few waste more, the smallest a / b, in lowest terms. Where none is
    that small, the pair of fewest chips, which takes more than `chips`."""
    ratio = np.minimum(ratio, MOST_WORKERS)
    near = ratio + TOLERANCE * (ratio + decode_chips / prefill_chips)
    a: Floats = np.maximum(np.ceil(ratio), 1.0)
    b: Floats = np.ones(len(ratio))
    p: Floats = a - 1.0
    q: Floats = np.ones(len(ratio))
    steps: Floats
    rise: Floats
    for _ in range(MOST_STEPS):
        above, below = a - ratio * b, ratio * q - p
        left = chips - (a * prefill_chips + b * decode_chips)
        more = p * prefill_chips + q * decode_chips
        # Down by as many lower neighbours as the ratio and the chips allow; the quotient is
        # rounded: one more or one less may be right.
        enough = np.maximum(np.ceil((a - near * b) / (near * q - p)), 0.0)
        steps = np.maximum(np.floor(np.minimum(above / below, left / more)), 0.0)
        steps = np.minimum(steps, enough)
        next_fits = (steps + 1.0) * more <= left
        further = next_fits & (steps < enough)
        steps = steps + (further & _reaches(a, p, b, q, steps + 1.0, ratio))
        steps = steps - ((steps > 0.0) & ~_reaches(a, p, b, q, steps, ratio))
        a, b = a + steps * p, b + steps * q
        above = a - ratio * b
        # Up by as many upper neighbours as stay below the ratio; none is needed where it is met.
        rise = np.maximum(np.ceil(below / np.where(above > 0.0, above, np.inf)) - 1.0, 0.0)
        rise = rise + ~_reaches(p, a, q, b, rise + 1.0, ratio)
        rise = rise - ((rise > 0.0) & _reaches(p, a, q, b, rise, ratio))
        risen_p, risen_q = p + rise * a, q + rise * b
        fits = (a + risen_p) * prefill_chips + (b + risen_q) * decode_chips <= chips
        moved = fits & (a > near * b) & ((rise > 0.0) | (steps > 0.0))
        if not moved.any():
            break
        p, q = np.where(moved, risen_p, p), np.where(moved, risen_q, q)
    return a, b


def fill(
    ratio: Floats, prefill_chips: Floats, decode_chips: Floats, chips: Floats
) -> tuple[Floats, Floats]:
    """(a, b), (n,) whole numbers that take all `chips`, with a / b not below `ratio` and b the
    largest: chips that decode leaves over prefill. Where none do, the pair of fewest workers."""
    ratio = np.minimum(ratio, MOST_WORKERS)
    a, b = np.maximum(np.ceil(ratio), 1.0), np.ones(len(ratio))
    tried = np.floor(chips / (ratio * prefill_chips + decode_chips))
    rows = np.flatnonzero(tried >= 1.0)
    while len(rows):
        left = (chips - tried * decode_chips)[rows] / prefill_chips[rows]
        fits = (left == np.floor(left)) & (left >= np.maximum(ratio[rows] * tried[rows], 1.0))
        a[rows[fits]], b[rows[fits]] = left[fits], tried[rows[fits]]
        tried[rows] -= 1.0
        rows = rows[~fits & (tried[rows] >= 1.0)]
    return a, b


def _reaches(
    a: Floats, more_a: Floats, b: Floats, more_b: Floats, times: Floats, ratio: Floats
) -> NDArray[np.bool_]:
    """(n,) whether (a + times more_a) / (b + times more_b) is not below `ratio`."""
    return a + times * more_a >= ratio * (b + times * more_b)


# Shares of a worker's attention ranks that prefill at once, between which seconds are read.
SHARES = 5
# A step's time has jumps, at which two batches may lead to themselves. Plain substitution from
# below comes to the lower: it never passes a batch that does. It begins at a share of what secants
# find.
BELOW, SUBSTITUTIONS = 0.85, 6
HAIR = 1e-9


@record
class Workers(Rows):
    """n workers, each of one instance; every array (n,). `ranks` are its attention ranks, `domain`
    the chips of its scale-up domain, `cache_bytes` those of one prompt on the busiest chip, `sent`
    on all chips of the rank, `energy` that of one request above idle."""

    machines: Machines
    chip: Codes
    chips: Floats
    ranks: Floats
    domain: Floats
    cache_bytes: Floats
    sent: Floats
    energy: PhaseEnergy


@record
class PrefillWorkers(Workers):
    """`prompts_per_s` of a worker that always has some waiting; `beside_s` (n, SHARES) seconds of a
    prompt while `1 / ranks` to all of the ranks prefill, in equal ratios."""

    prompts_per_s: Floats
    beside_s: NDArray[np.float64]

    @property
    def alone_s(self) -> Floats:
        return self.beside_s[:, 0]

    def prompt_s(self, share: Floats) -> Floats:
        """(n,) seconds of a prompt while a `share` of the ranks prefill: between two of `beside_s`
        on a straight line."""
        if not (self.ranks > 1.0).any():
            return self.alone_s
        last = SHARES - 1.0
        several = np.maximum(self.ranks, 1.0 + 1e-9)
        place = np.clip(last * (1.0 + np.log(share) / np.log(several)), 0.0, last)
        below = np.minimum(place, last - 1.0).astype(np.intp)
        low = several ** (below / last - 1.0)
        weight = (share - low) / (low * (several ** (1.0 / last) - 1.0))
        weight = np.where(self.ranks > 1.0, np.clip(weight, 0.0, 1.0), 0.0)
        rows = np.arange(len(below))
        start = self.beside_s[rows, below]
        return start + weight * (self.beside_s[rows, below + 1] - start)


@record
class DecodeWorkers(Workers):
    """At a batch of `running` requests of a worker: `step_s` of a decode step, of which a request
    takes `steps`, `tpot_s`; `output` tokens a request. `first_token_s`, `first_token_steps` and
    `handover_steps` are what the backend takes for a first token."""

    running: Floats
    step_s: Floats
    steps: Floats
    tpot_s: Floats
    output: Floats
    first_token_s: Floats
    first_token_steps: Floats
    handover_steps: Floats

    @property
    def requests_per_s(self) -> Floats:
        return self.running / (self.steps * self.step_s)


@record
class Met:
    """What pools are together. Every array (n,), means, seconds unless named. `ttft_s` = `queue_s`
    + `prefill_s` + `transfer_s` + one decode step + the backend's own; `utilisation` is of the
    prefill pool, `sending` the share of the time that its ranks, or those that take the cache,
    spend on that. Chip-seconds are per request. `requests_per_s` x `e2e_s` is at most the requests
    in flight."""

    ttft_s: Floats
    tpot_s: Floats
    queue_s: Floats
    prefill_s: Floats
    transfer_s: Floats
    decode_step_s: Floats
    requests_per_s: Floats
    output_tokens_per_s: Floats
    utilisation: Floats
    sending: Floats
    running_requests: Floats
    prefill_chip_s: Floats
    decode_chip_s: Floats
    e2e_s: Floats


@record
class Disaggregated(Met):
    """The same with what is behind it. `decode_memory` is of the busiest chip, ledgers are
    of one prompt and of one decode step."""

    prefill_workers: PrefillWorkers
    decode_workers: DecodeWorkers
    decode_memory: Memory
    prefill_ledger: Ledger
    decode_ledger: Ledger
    inside: NDArray[np.bool_]
    in_flight: Floats

    @property
    def latency_floor_s(self) -> Floats:
        return self.decode_ledger.floor_s

    @property
    def mfu(self) -> Floats:
        """Of the prefill of one prompt alone."""
        return self.prefill_ledger.floor_compute_s / self.prefill_ledger.seconds

    @property
    def mbu(self) -> Floats:
        """Of a decode step."""
        return self.decode_ledger.floor_memory_s / self.decode_step_s


def predict_disaggregated(
    prefill: CandidateBatch,
    decode: CandidateBatch,
    workload: Workload,
    prefill_machines: Machines,
    decode_machines: Machines,
    held: Floats | None = None,
) -> Disaggregated:
    """n pairs of pools; `replicas` of each batch are its workers, `concurrency` of `decode` the
    requests in flight over both (with Poisson arrivals, `workload.requests_per_s` arrive). With
    `held`, (n,), a decode worker decodes so many at once, as far as they are admitted, and those in
    flight follow (`at_batch`)."""
    first = case_of(prefill, workload, prefill_machines)
    second = case_of(decode, workload, decode_machines)
    before, prefilling = prefill_workers(first)
    none = np.zeros(len(decode))
    takes = Workers(*_common(second, PhaseEnergy(none, none, none, none, none)))  # whatever decodes
    inside, transfer_s = transfer(before, takes, prefill.replicas, decode.replicas)
    if held is None:
        after, decoding, met = _brought(second, before, prefill.replicas, transfer_s)
        flight = decode.concurrency
    else:
        after, decoding = admitted_workers(second, held)
        inside, flight, met = at_batch(before, after, prefill.replicas, decode.replicas, workload)
    return Disaggregated(
        **{f.name: getattr(met, f.name) for f in fields(Met)},
        prefill_workers=before,
        decode_workers=after,
        decode_memory=second.memory,
        prefill_ledger=prefilling.ledger,
        decode_ledger=decoding.ledger,
        inside=inside,
        in_flight=flight,
    )


def _brought(
    second: Case, before: PrefillWorkers, workers: Floats, transfer_s: Floats
) -> tuple[DecodeWorkers, Step, Met]:
    """The decode workers at the batch that the requests in flight, or the arrivals, bring; the
    equation of the page above, solved."""
    workload, decode = second.workload, second.deployed.batch
    backend = workload.backend
    slots = _slots(second)
    stages, ranks = decode.pipeline_parallel, decode.replicas * decode.data_parallel
    most = np.minimum(
        workers * before.prompts_per_s,
        np.minimum(workers * before.ranks, ranks) / transfer_s,
    )
    fixed_s = second.host_first_s + before.alone_s + transfer_s

    def rate(step_s: Floats) -> Floats:
        if workload.serving == POISSON:
            return np.minimum(workload.requests_per_s, most)
        taken_s = fixed_s + (second.steps + backend.handover_steps) * step_s
        return np.minimum(most, decode.concurrency / taken_s)

    def leads_to(rows: Floats) -> Floats:
        step_s = decode_step(second, rows)[0]
        return np.maximum(rate(step_s) * second.steps * step_s / (ranks * stages), 1.0)

    largest = np.maximum(slots / stages, 1.0)
    rows = np.maximum(BELOW * equilibrium(leads_to, largest), 1.0)
    for _ in range(SUBSTITUTIONS):
        rows = np.minimum(leads_to(rows), largest)
    after, decoding = decode_workers(second, rows)
    per_s = np.minimum(rate(after.step_s), slots * ranks / (second.steps * after.step_s))
    met = meet(
        before,
        after,
        workers,
        decode.replicas,
        workload,
        transfer_s,
        per_s,
        np.full(len(rows), np.inf) if workload.serving == POISSON else decode.concurrency,
    )
    return after, decoding, met


def _slots(case: Case) -> Floats:
    """(n,) requests that a decode rank admits at once: as memory and the backend's cap allow."""
    admitted = case.memory.admitted / case.deployed.data_parallel
    return np.maximum(np.minimum(admitted, case.cap), 1.0)


def prefill_workers(case: Case) -> tuple[PrefillWorkers, Step]:
    """The workers of a batch, one of each candidate's instances, and the step of a prompt that is
    alone on its worker."""
    ranks = case.deployed.data_parallel
    alone_s, step = prefill_step(case, case.fresh, 1.0 / ranks)
    beside_s = np.repeat(alone_s[:, None], SHARES, axis=1)
    if (ranks > 1.0).any():
        for k in range(1, SHARES):
            beside_s[:, k] = prefill_step(case, case.fresh, ranks ** (k / (SHARES - 1.0) - 1.0))[0]
    return PrefillWorkers(
        *_common(case, phase_energy(case, step, alone_s)),
        prompts_per_s=ranks * _prompts_per_s(case),
        beside_s=beside_s,
    ), step


def decode_workers(case: Case, rows: Floats) -> tuple[DecodeWorkers, Step]:
    """The workers of a batch with `rows` requests in each step of each rank, and that step."""
    step_s, step = decode_step(case, rows)
    deployed, steps, backend = case.deployed, case.steps, case.workload.backend
    return DecodeWorkers(
        *_common(case, phase_energy(case, step, step_s)),
        running=rows * deployed.data_parallel * deployed.pipeline_parallel,
        step_s=step_s,
        steps=np.broadcast_to(steps, deployed.n),
        tpot_s=step_s / case.tokens_per_step,
        output=np.broadcast_to(case.output, deployed.n),
        first_token_s=np.broadcast_to(case.host_first_s, deployed.n),
        first_token_steps=np.full(deployed.n, backend.first_token_steps),
        handover_steps=np.full(deployed.n, backend.handover_steps),
    ), step


def admitted_workers(case: Case, held: Floats) -> tuple[DecodeWorkers, Step]:
    """The workers of a batch at `held` requests of each, (n,), as far as memory and the backend's
    cap for a rank admit them, and their step."""
    ranks, stages = case.deployed.data_parallel, case.deployed.pipeline_parallel
    running = np.minimum(held, _slots(case) * ranks)
    workers, step = decode_workers(case, np.maximum(running / (ranks * stages), 1.0))
    return replace(workers, running=running), step


def _common(case: Case, energy: PhaseEnergy) -> tuple[Any, ...]:
    deployed, batch = case.deployed, case.deployed.batch
    bytes_ = cache_bytes(deployed, case.prompt)
    return (
        deployed.machines,
        batch.chip,
        batch.chips_per_instance,
        deployed.data_parallel,
        domain_of(batch, deployed.machines),
        bytes_,
        bytes_ * deployed.tensor_parallel * deployed.pipeline_parallel,
        energy,
    )


def in_flight(
    before: PrefillWorkers, after: DecodeWorkers, transfer_s: Floats, per_s: Floats
) -> Floats:
    """(n,) requests in flight that bring `per_s`: N of the equation above, less a HAIR, so that
    rounding does not put the batch beyond a jump of the step's time at which it stands."""
    fixed_s = after.first_token_s + before.alone_s + transfer_s
    taken_s = fixed_s + (after.steps + after.handover_steps) * after.step_s
    return per_s * taken_s * (1.0 - HAIR)


def at_batch(
    before: PrefillWorkers,
    after: DecodeWorkers,
    prefill_workers: Floats,
    decode_workers: Floats,
    workload: Workload,
) -> tuple[NDArray[np.bool_], Floats, Met]:
    """Whether the pools are inside one scale-up domain, the requests in flight and what the pools
    are together, (n,) each, where every decode worker keeps its batch."""
    inside, transfer_s = transfer(before, after, prefill_workers, decode_workers)
    per_s = decode_workers * after.requests_per_s
    flight = in_flight(before, after, transfer_s, per_s)
    counts = prefill_workers, decode_workers
    return inside, flight, meet(before, after, *counts, workload, transfer_s, per_s, flight)


def meet(
    before: PrefillWorkers,
    after: DecodeWorkers,
    prefill_workers: Floats,
    decode_workers: Floats,
    workload: Workload,
    transfer_s: Floats,
    per_s: Floats,
    in_flight: Floats,
) -> Met:
    """So many workers of either, (n,), that `in_flight` requests keep at their batch and at `per_s`
    requests a second before waits (infinite: as many arrive); `transfer_s` as of `transfer`."""
    ranks = prefill_workers * before.ranks
    sending_per_s = np.minimum(ranks, decode_workers * after.ranks) / transfer_s
    most = np.minimum(prefill_workers * before.prompts_per_s, sending_per_s)
    used = np.minimum(per_s / most, 1.0)
    decode_s = after.steps * after.step_s
    own_s, lockstep_s = _in_lockstep(before, used)
    fixed_s = after.first_token_s + own_s + transfer_s + after.handover_steps * after.step_s
    queue_s = _queue_s(ranks, used, most, in_flight) + lockstep_s
    if workload.serving == POISSON:
        endless = per_s < workload.requests_per_s * (1.0 - 1e-9)
        queue_s = np.where(endless, np.inf, queue_s)
    else:
        # What the rate and the slots of the pools leave over.
        queue_s = np.maximum(queue_s, in_flight / per_s - fixed_s - decode_s)
        if np.isfinite(workload.rounds):
            burst_s = np.maximum(in_flight / (2.0 * most), queue_s)
            queue_s = queue_s + (burst_s - queue_s) / workload.rounds
    ttft_s = queue_s + fixed_s + (1.0 + after.first_token_steps) * after.step_s
    e2e_s = ttft_s + (after.output - 1.0) * after.tpot_s
    if workload.serving != POISSON:
        # Waits for other ranks and for the prefills before one's own, which `rate` does not know.
        per_s = np.minimum(per_s, in_flight / e2e_s)
    return Met(
        ttft_s=ttft_s,
        tpot_s=after.tpot_s,
        queue_s=queue_s,
        prefill_s=own_s,
        transfer_s=transfer_s,
        decode_step_s=after.step_s,
        requests_per_s=per_s,
        output_tokens_per_s=per_s * after.output,
        utilisation=per_s / most,
        sending=per_s / sending_per_s,
        running_requests=per_s * decode_s,
        prefill_chip_s=prefill_workers * before.chips / per_s,
        decode_chip_s=decode_workers * after.chips / per_s,
        e2e_s=e2e_s,
    )


def _prompts_per_s(case: Case) -> Floats:
    """(n,) prompts a second of one rank that always has as many as its token budget takes. The
    stages of a pipeline work on as many chunks at a time, of one prompt or of several."""
    budget, stages = case.workload.backend.chunk_tokens, case.deployed.pipeline_parallel
    packed = np.maximum(np.floor(budget / case.fresh), 1.0)
    chunks = np.ceil(packed * case.fresh / budget)
    seconds = prefill_step(case, packed * case.fresh)[0]
    return packed / (seconds * ((chunks / stages) / (1.0 + (chunks - 1.0) / stages)))


def _in_lockstep(before: PrefillWorkers, used: Floats) -> tuple[Floats, Floats]:
    """(n,) seconds of a prompt's own prefill beside those on other ranks of its worker, each busy a
    share `used` of the time, and the mean wait for the prefill that they are in the middle of."""
    ranks = before.ranks
    if not (ranks > 1.0).any():
        return before.alone_s, np.zeros(len(used))
    idle = 1.0 - used
    any_busy = 1.0 - idle**ranks
    own_s = before.prompt_s(used / any_busy)
    return own_s, own_s / 2.0 * (1.0 - idle ** (ranks - 1.0))


def _queue_s(ranks: Floats, used: Floats, most: Floats, in_flight: Floats) -> Floats:
    """(n,) mean wait for one of `ranks` that together serve `most` a second, a share `used` of it
    taken by `in_flight` requests; half of M/M/c, since prompts take nearly equal time. The root
    keeps the queue of so many requests finite at full use (`dse.physics.queueing`)."""
    idle = np.sqrt((1.0 - used) ** 2 + 2.0 / in_flight)
    waiting = used ** (np.sqrt(2.0 * (ranks + 1.0)) - 1.0) / (2.0 * idle * most)
    return waiting * (1.0 - 1.0 / in_flight)


def transfer(
    first: Workers,
    second: Workers,
    prefill_workers: Floats,
    decode_workers: Floats,
) -> tuple[NDArray[np.bool_], Floats]:
    """(n,) whether so many workers of both pools are of one chip and fit one scale-up domain, so
    that the cache crosses its links and not the network; and seconds for the cache of one prompt
    from the chips that filled it to those that read. A link whose bandwidth is not known takes no
    time: `link_known` says so."""
    chips = prefill_workers * first.chips + decode_workers * second.chips
    inside = same_chip(first, second) & (chips <= np.minimum(first.domain, second.domain))
    seconds = np.zeros(len(chips))
    for one in (first, second):
        fabric = one.machines.fabric
        hop_s, s_per_byte = network_of(fabric, one.chip, chips)
        link_s = one.cache_bytes / fabric.link_bytes_per_s[one.chip]
        seconds = np.maximum(
            seconds, np.where(inside, link_s, one.cache_bytes * s_per_byte + hop_s)
        )
    return inside, seconds


def link_known(
    first: Workers, second: Workers, chips: Floats, inside: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(n,) whether what the cache crosses between pools of `chips` in all has a bandwidth."""
    known = np.ones(len(chips), dtype=bool)
    for one in (first, second):
        fabric = one.machines.fabric
        outside = network_of(fabric, one.chip, chips)[1] > 0.0
        known &= np.where(inside, np.isfinite(fabric.link_bytes_per_s)[one.chip], outside)
    return known


def same_chip(first: Workers, second: Workers) -> NDArray[np.bool_]:
    """(n,) whether both are of one chip: two kinds of chip share no scale-up domain."""
    if first.machines is second.machines:
        return first.chip == second.chip
    names = [np.array(one.machines.ids)[one.chip] for one in (first, second)]
    return np.asarray(names[0] == names[1])


def transfer_j(first: Workers, inside: NDArray[np.bool_]) -> Floats:
    """(n,) joules of the cache of one prompt between the pools, over links or over the network."""
    draw = first.machines.power.of(first.chip)
    return first.sent * np.where(inside, draw.link_j_per_byte, draw.network_j_per_byte)


def cache_bytes(deployed: Deployed, tokens: Floats) -> Floats:
    """(n,) bytes of cache of one request of `tokens` on the busiest chip."""

    def of(block: Block) -> Floats:
        layers = layers_per_stage(block, deployed.pipeline_parallel)
        return layers * KINDS[block.kind].kv_bytes_per_request(deployed, block, tokens)

    return deployed.batch.total(of)
