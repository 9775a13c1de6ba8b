"""What requests wait for: continuous batching in a closed loop, with or without equal lengths.

Two schedulers (the backend's `scheduler`). *mixed*: a step carries every decoding request and
prompts in what is left of its token budget. *prefill_first*: waiting prompts get steps of their
own, and decoding stands still until none waits. Either way a request that takes the place of a
finished one finds the next step already running, and queues first in, first out. Notation, for one
attention rank:

    n requests    P prompt tokens   O output tokens   B tokens of a step (`chunk_tokens`)
    s decode step     w what one prompt adds to the steps that carry it     a a step of its own

The forms are compared with a discrete-event simulation in tests/unit/test_queueing.py.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

import numpy as np

from dse.record import record
from dse.schema.backend import PREFILL_FIRST
from dse.space.candidates import Floats


@record
class Rank:
    """The requests of one attention rank; every array (n,).

    `step_s`: a decode step of all of them; `added_s`: what a prompt adds to the steps that carry
    it, on the path through all `stages`; `own_s`: a prompt prefilled alone; `chunk_tokens`: the
    most tokens of a step; `together`: share of the instance's attention ranks that carry prompts
    in a step in which any does; `others`: the other requests of the instance over its attention
    ranks (None: one rank alone); `ranks`: how many these are, `apart` as `together_share` takes it.
    """

    requests: Floats
    step_s: Floats
    added_s: Floats
    own_s: Floats
    stages: Floats
    prompt: Floats
    output: Floats
    chunk_tokens: float
    scheduler: str
    together: Floats = field(default_factory=lambda: np.ones(1))
    others: Floats | None = None
    ranks: Floats = field(default_factory=lambda: np.ones(1))
    apart: float = 0.5
    poll_steps: Floats | float = 1.0

    @cached_property
    def delaying(self) -> Floats:
        """(n,) requests whose prompts delay one of this rank, in prompts of a rank."""
        return self.requests - 1.0 if self.others is None else self.others

    @cached_property
    def each_s(self) -> Floats:
        """(n,) seconds by which a prompt delays others: stages work on several at a time."""
        return self.added_s / self.stages

    @cached_property
    def delay_s(self) -> Floats:
        """(n,) seconds by which the prompts that come with one of this rank's delay the decoding of
        others: of R ranks that wait for each other, `together` R carry prompts in the same step."""
        return self.each_s / self.together

    @cached_property
    def look_s(self) -> Floats:
        """(n,) seconds of decode steps between two looks for new requests."""
        return self.step_s * self.poll_steps

    @cached_property
    def chunks(self) -> Floats:
        return np.ceil(self.prompt / self.chunk_tokens)

    @cached_property
    def packed(self) -> Floats:
        """(n,) prompts that share a step when many wait."""
        return np.minimum(self.requests, np.maximum(self.chunk_tokens / self.prompt, 1.0))

    @cached_property
    def room(self) -> Floats:
        """(n,) prompt tokens of a step beside all decodes."""
        return np.maximum(self.chunk_tokens - self.requests / self.stages, 1.0)

    @cached_property
    def company(self) -> Floats:
        """(n,) 1 where another request keeps the steps going, else 0."""
        return np.minimum(self.delaying, 1.0)


@record
class Latency:
    """Means in seconds, (n,): from admission to the first token, and between tokens."""

    ttft_s: Floats
    tpot_s: Floats


def together_share(carrying: Floats, ranks: Floats, apart: float = 0.5) -> Floats:
    """(n,) share of an instance's attention ranks that carry prompts in a step in which any does,
    where each does in a share `carrying` of its steps.

    Ranks of one instance wait for each other. Where prompts arrive apart (`apart` 1), a step in
    which any of R ranks carries prompts is carried by q / (1 - (1 - q)^R) of them in the mean.
    Serving software holds prompts back to prefill them on several ranks at once (TensorRT-LLM's
    attention-DP balancing, SGLang's prefill delayer): half-way to all at once, 0.5, is assumed."""
    return (carrying / (1.0 - (1.0 - carrying) ** ranks)) ** apart


def decoding_limit(chunk_tokens: float, prompt: Floats, output: Floats) -> Floats:
    """(n,) requests of a micro-batch that the mixed scheduler has between admission and the end. A
    step of B tokens takes in at most (B - n) / P prompts while n / O requests end, so at most
    B O / (P + O) decode; as many as come in during the steps of one prompt are being prefilled, and
    the queue at full load adds the square root of an eighth of those that decode."""
    decoding = chunk_tokens * output / (prompt + output)
    entering = decoding / output * np.maximum(prompt / chunk_tokens, 1.0)
    return np.maximum(np.floor(decoding + entering + np.sqrt(decoding / 8.0)), 1.0)


def decoding_rows(
    requests: Floats, chunk_tokens: float, prompt: Floats, output: Floats, scheduler: str
) -> Floats:
    """(n,) requests of a micro-batch that decode in a step that a given one decodes in: itself, and
    of the others the share of their steps that are not spent before the first token."""
    if scheduler == PREFILL_FIRST:
        return requests
    steps = prompt / np.maximum(chunk_tokens - requests, 1.0)
    before = (1.0 + _before(requests, steps, output)) * steps
    return 1.0 + (requests - 1.0) * output / (output + before)


def _before(requests: Floats, steps: Floats, output: Floats) -> Floats:
    """(n,) prompts that a request of a micro-batch finds before its own; see `_apart_mixed`."""
    load = np.minimum(requests * steps / output, 1.0)
    spread = np.sqrt((1.0 - load) ** 2 + 2.0 / requests)
    return load / (2.0 * spread) * np.minimum(requests - 1.0, 1.0)


def synchronised_share(output: Floats, rounds: float, spread: Floats | float) -> Floats:
    """(n,) share of the time that requests of a benchmark which starts them at once stay in step:
    1 / (1 + 0.14 rounds spread O), with output lengths uniform within O (1 +- spread). A fit to the
    simulation; 1 where all outputs are equally long."""
    return 1.0 / (1.0 + 0.14 * spread * output * rounds)


def kept_in_step(packed: Floats, scheduler: str) -> Floats:
    """(n,) of the time that `synchronised_share` gives equal requests, what is left where a client
    gets outputs that differ by up to two tokens: a request that ends a step early leaves its group.
    `packed` prompts share a step; where prompts come first, each step carries all that wait. A fit
    to the simulation (tests/unit/test_queueing.py)."""
    return np.full_like(packed, 0.25) if scheduler == PREFILL_FIRST else packed**-0.5


def closed_loop(
    rank: Rank, rounds: float, synchronised: Floats, cold_s: Floats | float = 0.0
) -> Latency:
    """A benchmark that sends `rounds` x n prompts, the first n at once (infinite: a steady state).

    `synchronised` (1,) or (n,), 0 to 1: between requests that come and end apart from each other
    and requests that start together and, equally long, end together. `cold_s`: what the first n
    wait longer, as the server runs its kernels for the first time.
    """
    if rank.scheduler == PREFILL_FIRST:
        burst, apart = _burst_alone(rank), _apart_prefill_first(rank)
        together = _together_prefill_first
    else:
        burst, apart = _burst_mixed(rank), _apart_mixed(rank)
        together = _together_mixed
    ttft, tpot = apart.ttft_s, apart.tpot_s
    if synchronised.any():
        same = together(rank)
        ttft = ttft + synchronised * (same.ttft_s - ttft)
        tpot = tpot + synchronised * (same.tpot_s - tpot)
    return Latency(ttft + (burst + cold_s - ttft) / rounds, tpot)


def _burst_mixed(rank: Rank) -> Floats:
    """(n,) mean time to first token of n prompts at once, the first of which soon decode."""
    groups = rank.requests / rank.packed
    drained = rank.each_s * (rank.requests + rank.packed) / 2.0 + rank.step_s * groups / 2.0
    return np.maximum(drained, rank.own_s)


def _burst_alone(rank: Rank) -> Floats:
    """(n,) the same where none of them decodes before the last prompt is in."""
    return _all_prompts_s(rank) * (1.0 + rank.packed / rank.requests) / 2.0


def _all_prompts_s(rank: Rank) -> Floats:
    """(n,) seconds of the steps that prefill n prompts and nothing else."""
    steps = np.ceil(rank.requests * rank.prompt / rank.chunk_tokens)
    fixed = np.maximum(rank.own_s - rank.added_s, 0.0) / rank.chunks
    return rank.requests * rank.each_s + steps * fixed


def _together_prefill_first(rank: Rank) -> Latency:
    """All start and end together: a burst every round. A request stands still while those behind
    it are prefilled."""
    burst = _burst_alone(rank)
    return Latency(burst, rank.step_s + (_all_prompts_s(rank) - burst) / rank.output)


def _together_mixed(rank: Rank) -> Latency:
    """Groups that shared a step keep sharing it. A group waits for the step that carries the group
    before it, and its prompts reach over one more step than they fill; one group alone waits for
    nothing. The square is a fit to the simulation."""
    steps = rank.prompt / rank.room
    full = np.minimum(rank.step_s + rank.each_s / steps, _all_prompts_s(rank))
    behind = (1.0 - rank.packed / rank.requests) ** 2
    ttft = full * (np.maximum(steps, 1.0) + behind * (1.0 + np.minimum(steps, 1.0)))
    delay = rank.each_s * (rank.requests - rank.packed)
    return Latency(ttft, rank.step_s + delay / rank.output)


def _apart_mixed(rank: Rank) -> Latency:
    """A queue that is served in steps: a prompt takes S = P / (B - n) of them, a request O, so the
    queue's utilisation is u = n S / O, and of the prompts before it a request finds

        u / (2 sqrt((1 - u)^2 + 2 / n))

    as with fixed service (M/D/1), the root keeping the queue of n requests finite at u = 1. Prompts
    that came during the step before its own share that. Whenever they are prefilled, the prompts of
    the n - 1 others delay a request once each: what they add before its first token (`ahead`) they
    do not add after."""
    steps = rank.prompt / rank.room
    before = _before(np.maximum(rank.requests / rank.stages, 1.0), steps, rank.output)
    delay = rank.delay_s * rank.delaying
    running = rank.step_s + delay / rank.output  # a step, prompts of others included
    beside = (rank.requests - 1.0) * running / (rank.own_s + rank.output * running)
    shared = rank.each_s * np.minimum(beside, np.maximum(1.0 / steps - 1.0, 0.0))
    own = np.maximum(rank.own_s, rank.added_s + rank.chunks * rank.step_s * rank.company)
    looks = (rank.poll_steps - 1.0) / 2.0  # steps that a prompt waits for the next look
    before = before + looks * (rank.requests - 1.0) / rank.output  # half of what gathers until then
    ahead = before * rank.each_s + shared + (running - rank.step_s) * rank.company
    tpot = rank.step_s + np.maximum(delay - ahead, 0.0) / rank.output
    wait = (1.0 + looks + before * steps) * rank.step_s * rank.company
    return Latency(wait + ahead + own, tpot)


def _apart_prefill_first(rank: Rank) -> Latency:
    """Requests end in decode steps only, (n - 1) / O in each. Their successors wait for the next
    decode step or, if others ended one step earlier, for the prefill of these."""
    ended = np.maximum((rank.requests - 1.0) * rank.poll_steps / rank.output, 1e-12)
    some = -np.expm1(-ended)  # probability that the steps between two looks end any
    batch = ended / some
    packed = np.minimum(batch, np.maximum(rank.chunk_tokens / rank.prompt, 1.0))
    each = rank.each_s + np.maximum(rank.own_s - rank.added_s, 0.0) / packed
    behind = some / (1.0 + some)
    waited = behind * batch * each
    fit = np.clip((rank.chunk_tokens / rank.prompt - 1.0) / np.maximum(ended, 1.0), 0.0, 1.0)
    shared = rank.each_s * ended * (1.0 + fit) / 2.0
    ahead = waited + shared
    delay = each / rank.together * rank.delaying
    tpot = rank.step_s + np.maximum(delay - ahead, 0.0) / rank.output
    wait = (1.0 - behind) * (1.0 + rank.poll_steps) / 2.0 * rank.step_s * rank.company
    return Latency(wait + ahead + rank.own_s, tpot)
