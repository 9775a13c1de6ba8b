"""What requests wait for: continuous batching in a closed loop, with or without equal lengths.

Two schedulers (the backend's `scheduler`). *mixed*: a step carries every decoding request and
prompts in what is left of its token budget. *prefill_first*: waiting prompts get steps of their
own, and decoding stands still until none waits. Either way a request that takes the place of a
finished one finds the next step already running, and queues first in, first out. Notation, for one
attention rank:

    n requests    P prompt tokens   O output tokens   B tokens of a step (`chunk_tokens`)
    s decode step     w what one prompt adds to the steps that carry it     a a step of its own

The forms are compared with a discrete-event simulation in tests/unit/test_queueing.py.

Requests may also arrive at random moments, one independently of the other (a Poisson process). For
one rank, lambda arrivals a second, s a decode step, w what a prompt adds, S = P / B the steps
that it fills, a the fixed part of a step that carries prompts (s itself where they ride beside
decodes). The steps at work have the mean E = a / (1 - lambda w); an arrival finds a long one more
often than a short one. A server that looks for new requests every q decode steps has these q in
the place of one (`look_s`). Short prompts (S near 0) all join the next step:

    wait = E[L^2] / (2 E[L]) + lambda w E[L^2] / E[L]

long ones (S >= 1) are served one by one, each for S a + w (M/D/1 with decode steps as vacations,
Pollaczek-Khinchine and Fuhrmann-Cooper); between the two, a mean by S. Where every slot of the
instance is taken, a request waits for one (Sakasegawa's approximation of M/G/c). Mean and variance
of the sum are kept; percentiles are those of the gamma distribution with both. Attention ranks of
an instance wait for each other (`_in_step`).
tests/unit/test_queueing.py compares all of it with a simulation.
"""

from __future__ import annotations

from collections.abc import Callable
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


ITERATIONS = 8
HALVINGS = 40


@record
class Moments:
    """Mean and variance of a wait, (n,): seconds, seconds squared."""

    mean: Floats
    variance: Floats


@record
class Response:
    """Of one rank, (n,): `own_s` of a request's own prompt, what it waits before it, the time
    between tokens, and `busy`, the load of its prompts; at 1 and beyond, waits are infinite."""

    own_s: Floats
    wait: Moments
    tpot_s: Floats
    busy: Floats


def response(rank: Rank, per_s: Floats) -> Response:
    """Of a rank that `per_s` (n,) requests reach a second, of which `rank.requests` decode."""
    mixed = rank.scheduler == "mixed"
    fixed = np.maximum(rank.own_s - rank.added_s, 0.0) / rank.chunks
    over = rank.step_s if mixed else fixed
    steps = rank.prompt / (rank.room if mixed else rank.chunk_tokens)
    service = steps * over / rank.stages + rank.each_s
    busy = per_s * service
    short = np.clip(1.0 - steps, 0.0, 1.0)
    own = rank.own_s
    if mixed:
        own = np.maximum(own, rank.added_s + np.ceil(steps) * rank.step_s)
        own = own + (1.0 - short) * busy * (over + rank.each_s / np.maximum(steps, 1.0)) / 2.0
    step, alone = _steps(rank, per_s, over)
    cycle = step.mean / alone / rank.poll_steps
    cycle = np.where(steps < 1.0, cycle, rank.step_s / (1.0 - busy))
    if mixed:
        cycle = rank.step_s / np.maximum(1.0 - per_s * rank.each_s, 1e-12)
    cycle, rest = _in_step(rank, per_s, cycle, over, steps)
    joined, queued = _joined(rank, per_s, step), _queued(service, busy, rest)
    mean = joined.mean + (1.0 - short) * (queued.mean - joined.mean)
    variance = joined.variance + (1.0 - short) * (queued.variance - joined.variance)
    # Prompts that came before the first token and wait behind it delay the first of its tokens.
    carrying = np.minimum(per_s * cycle * np.maximum(steps, 1.0), 1.0) if mixed else 1.0 - alone
    behind = per_s * (own + (1.0 - short) * mean) * (1.0 - carrying)
    tpot = cycle * (1.0 + behind * rank.each_s / (rank.output * rank.step_s))
    endless = busy >= 1.0
    return Response(
        own,
        Moments(np.where(endless, np.inf, mean), np.where(endless, np.inf, variance)),
        np.where(endless, np.inf, tpot),
        busy,
    )


def open_loop(rank: Rank) -> Latency:
    """Means where requests arrive at the rate at which `rank.requests` are in flight: by Little's
    law l (first token + the rest) = n, whose left side grows with l. HALVINGS of the interval from
    0 to the rate without any wait."""
    rest = np.maximum(rank.output - 1.0, 1e-9)
    high = rank.requests / (rank.own_s + rest * rank.step_s)
    low = np.zeros_like(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        with np.errstate(all="ignore"):  # beyond capacity
            found = response(rank, middle)
        served_s = found.own_s + found.wait.mean + rest * found.tpot_s
        many = ~(middle * served_s <= rank.requests)
        low, high = np.where(many, low, middle), np.where(many, middle, high)
    found = response(rank, low)
    return Latency(found.own_s + found.wait.mean, found.tpot_s)


def _in_step(
    rank: Rank, per_s: Floats, cycle: Floats, over: Floats, steps: Floats
) -> tuple[Floats, Moments]:
    """(n,) mean time of a decode step, which were `cycle` (n,) for a rank alone, and the rest of
    the step that an arrival finds, where the ranks of an instance wait for each other.

    Of the time, a rank's own prompts take b: steps of a + c, c = w / max(S, 1) (where every step
    carries prompts, what these add). In a share A any rank has prompts (`together_share`), and the
    steps of all are as long. A decode comes with each step but the `prefill_first` ones of its own:

        1 / cycle = (A - o) / max(s, a + c) + (1 - A) / s,  o = b where decodes stand still, else 0
    """
    whole = np.maximum(steps, 1.0)
    if rank.scheduler == "mixed":
        busy, own = per_s * (whole * over / rank.stages + rank.each_s), 0.0
        longer = np.where(busy < 1.0, rank.added_s / whole, cycle - rank.step_s)
    else:
        own = busy = 1.0 - rank.step_s / cycle
        longer = rank.added_s / whole
    busy = np.clip(busy, 1e-9, 1.0)
    any_s = np.minimum(busy / together_share(busy, rank.ranks, rank.apart), 1.0)
    slow = np.maximum(over + longer, rank.step_s)
    per_second = (any_s - own) / slow + (1.0 - any_s) / rank.step_s
    several = rank.ranks > 1.0
    any_s = np.where(several, any_s, 0.0)
    mean = (rank.look_s + any_s * (slow - rank.look_s)) / 2.0
    square = (rank.look_s**2 + any_s * (slow**2 - rank.look_s**2)) / 3.0
    found = np.where(several, 1.0 / np.maximum(per_second, 1e-12), cycle)
    return found, Moments(mean, square - mean**2)


@record
class _Step:
    """Mean, variance and third cumulant of the length of a step, (n,)."""

    mean: Floats
    variance: Floats
    third: Floats


def _steps(rank: Rank, per_s: Floats, over: Floats) -> tuple[_Step, Floats]:
    """The steps where every waiting prompt joins the next, and the share of them without any."""
    load = per_s * rank.each_s
    filled = over + rank.each_s
    after_decode = np.exp(-per_s * rank.look_s)
    alone = after_decode
    for _ in range(ITERATIONS):
        after_prompts = np.exp(-per_s * filled)
        alone = after_prompts / (1.0 - after_decode + after_prompts)
        arrived = per_s * (alone * rank.look_s + (1.0 - alone) * filled)
        filled = over + rank.each_s * arrived / np.maximum(-np.expm1(-arrived), 1e-300)
    mean = (rank.look_s * alone + over * (1.0 - alone)) / (1.0 - load)
    differ = alone * (1.0 - alone) * (rank.look_s - over) ** 2
    arrived = load * mean * rank.each_s
    variance = (differ + arrived) / (1.0 - load**2)
    third = differ * (1.0 - 2.0 * alone) * (rank.look_s - over)
    third = third + rank.each_s * (arrived + 3.0 * load * rank.each_s * per_s * variance)
    third = third / (1.0 - load**3)
    return _Step(mean, variance, third), alone


def _joined(rank: Rank, per_s: Floats, step: _Step) -> Moments:
    """Rest of the running step, and prompts that share the next."""
    second = step.mean**2 + step.variance
    third = step.mean**3 + 3.0 * step.mean * step.variance + step.third
    found = second / step.mean
    found_second = third / step.mean
    beside = per_s * rank.each_s
    variance = (found_second - found**2) * (0.5 + beside) ** 2
    variance = variance + found_second / 12.0 + beside * rank.each_s * found
    return Moments(found * (0.5 + beside), variance)


def _queued(service: Floats, busy: Floats, rest: Moments) -> Moments:
    """Rest of the running step, and prompts before its own one by one."""
    idle = np.maximum(1.0 - busy, 1e-12)
    queue = busy * service / (2.0 * idle)
    variance = queue**2 + busy * service**2 / (3.0 * idle) + rest.variance
    return Moments(queue + rest.mean, variance)


def slot_wait(slots: Floats, used: Floats, requests_per_s: Floats) -> Moments:
    """Of an instance with `slots` places that serves at most `requests_per_s`, a share `used` of
    which arrives; all (n,). Half of the M/M/c wait, since services are nearly equal."""
    queued = used ** (np.sqrt(2.0 * (slots + 1.0)) - 1.0)
    mean = queued / (2.0 * (1.0 - used) * requests_per_s)
    # Those that wait at all wait exponentially.
    chance = np.minimum(queued, 1.0)
    variance = np.maximum(2.0 / np.maximum(chance, 1e-300) - 1.0, 1.0) * mean**2
    return Moments(mean, variance)


def percentile(own_s: Floats, wait: Moments, share: float) -> Floats:
    """(n,) seconds within which `share` of all requests have their first token."""
    from scipy.special import gammaincinv  # noqa: PLC0415

    scale = wait.variance / wait.mean
    return own_s + gammaincinv(wait.mean / scale, share) * scale


def equilibrium(leads_to: Callable[[Floats], Floats], most: Floats) -> Floats:
    """(n,) an n in 1..most with `leads_to`(n) = n, where n is the batch that the step times of a
    batch of n lead to; `most` where it is beyond. Secants from below, which do not pass the root of
    a convex function; step times have jumps, at which a secant points anywhere: it is held between
    the last batch that led to more and the last that led to less, or halves what lies between. A
    fixed number of evaluations."""
    before = np.ones_like(most)
    beyond = 1e3 * most
    excess_before = np.minimum(leads_to(before), beyond) - before
    now = np.minimum(before + excess_before, most)
    slope = np.ones_like(most)
    low, high = before, np.full_like(most, np.inf)
    for _ in range(ITERATIONS):
        excess = np.minimum(leads_to(now), beyond) - now
        low, high = np.where(excess > 0.0, now, low), np.where(excess > 0.0, high, now)
        moved = np.abs(now - before) > 1e-6 * now
        secant = (excess_before - excess) / np.where(moved, now - before, 1.0)
        slope = np.where(moved, secant, slope)
        before, excess_before = now, excess
        now = now + excess / np.maximum(slope, 1e-3)
        astray = (slope <= 0.0) | (now < low) | (now > high)
        now = np.minimum(np.where(astray, (low + high) / 2.0, now), most)
    return now
