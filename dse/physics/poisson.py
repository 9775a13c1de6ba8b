"""Requests that arrive at random moments, one independently of the other (a Poisson process).

For one rank, lambda arrivals a second, s a decode step, w what a prompt adds, S = P / B the steps
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
tests/unit/test_poisson.py compares all of it with a simulation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dse.physics.queueing import Latency, Rank, together_share
from dse.record import record
from dse.space.candidates import Floats

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
