"""A discrete-event simulation of a continuous-batching engine: the check of the closed forms.

Requests queue first in, first out. A step carries one token of every decoding request, prompt
tokens of others, or both, and lasts `step_s(decode_rows, prefill_tokens)`. A step that ends the
prefill of a request gives its first token. Policies:

    mixed          decodes first, then prompts in what is left of the token budget, split to fill it
    prefill_first  while prompts wait, steps of prompt tokens alone; decoding stands still

The engine looks for new requests every `poll` decode steps and after every step with prompts.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

POLICIES = ("mixed", "prefill_first")
StepLaw = Callable[[int, float], float]


@dataclass(frozen=True)
class Served:
    """Seconds by request in order of arrival, (m,): arrival, to the first token, between tokens,
    at the last token. `tpot_s` is NaN for one output token."""

    arrival_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]

    @property
    def requests_per_s(self) -> float:
        """Between the first and the last tenth of all finishes."""
        low, high = np.quantile(self.finish_s, [0.1, 0.9])
        return 0.8 * len(self.finish_s) / float(high - low)


def lengths(mean: float, spread: float, requests: int, seed: int) -> NDArray[np.int64]:
    """Uniform within mean (1 +- spread), at least one token."""
    draw = np.random.default_rng(seed).uniform(-spread, spread, requests)
    return np.maximum(np.rint(mean * (1.0 + draw)), 1).astype(np.int64)


def poisson(requests_per_s: float, requests: int, seed: int) -> NDArray[np.float64]:
    """Arrival times, (requests,) seconds."""
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / requests_per_s, requests))


def closed_loop(
    step_s: StepLaw,
    prompts: Sequence[int] | NDArray[np.int64],
    outputs: Sequence[int] | NDArray[np.int64],
    in_flight: int,
    **engine: Any,
) -> Served:
    """The first `in_flight` requests arrive at once, each other when one has finished."""
    arrivals = np.zeros(len(prompts))
    arrivals[in_flight:] = np.inf
    return _Engine(step_s, prompts, outputs, arrivals, in_flight, **engine).run()


def open_loop(
    step_s: StepLaw,
    prompts: Sequence[int] | NDArray[np.int64],
    outputs: Sequence[int] | NDArray[np.int64],
    arrivals: NDArray[np.float64],
    **engine: Any,
) -> Served:
    """Requests arrive at given times, (m,) seconds, rising."""
    return _Engine(step_s, prompts, outputs, arrivals, len(prompts), **engine).run()


def in_step(
    step_s: StepLaw,
    prompts: Sequence[int] | NDArray[np.int64],
    outputs: Sequence[int] | NDArray[np.int64],
    arrivals: NDArray[np.float64],
    ranks: int,
    **engine: Any,
) -> Served:
    """Requests that arrive at given times, dealt to `ranks` ranks at random, whose steps begin
    together and last as long as the longest of them."""
    prompts, outputs = np.asarray(prompts), np.asarray(outputs)
    rank = np.random.default_rng(0).integers(ranks, size=len(arrivals))
    dealt = [np.flatnonzero(rank == k) for k in range(ranks)]
    engines = [
        _Engine(step_s, prompts[own], outputs[own], arrivals[own], len(arrivals[own]), **engine)
        for own in dealt
    ]
    left = len(arrivals)
    while left:
        for one in engines:
            one._receive()
        if not any(one.queue or one.prefilling or one.decoding for one in engines):
            now = min(one.arriving[0][0] for one in engines if one.arriving)
            for one in engines:
                one.now = now
            continue
        chosen = [one._chosen(len(one.decoding)) for one in engines]
        seconds = max(
            one._seconds(taken) if taken or one.decoding else 0.0
            for one, (taken, _) in zip(engines, chosen, strict=True)
        )
        steps = 1
        if not any(taken for taken, _ in chosen):
            steps = min(one._alike(0, seconds) for one in engines if one.decoding)
            until = [one.arriving[0][0] for one in engines if one.arriving]
            if until:
                steps = int(min(steps, max(np.ceil((min(until) - engines[0].now) / seconds), 1)))
        for one, (taken, ended) in zip(engines, chosen, strict=True):
            left -= one._end(taken, ended, seconds, steps)
    served = [one.served() for one in engines]
    order = np.argsort(np.concatenate(dealt))
    columns = ("arrival_s", "ttft_s", "tpot_s", "finish_s")
    return Served(
        *(np.concatenate([getattr(one, name) for one in served])[order] for name in columns)
    )


class _Engine:
    def __init__(
        self,
        step_s: StepLaw,
        prompts: Sequence[int] | NDArray[np.int64],
        outputs: Sequence[int] | NDArray[np.int64],
        arrivals: NDArray[np.float64],
        sent: int,
        *,
        budget: int = 8192,
        policy: str = "mixed",
        poll: int = 1,
    ) -> None:
        assert policy in POLICIES
        self.poll, self.looked = poll, 0  # decode steps between two looks, and those of the last
        self.step_s, self.policy, self.budget = step_s, policy, budget
        self.prompts, self.outputs = list(map(int, prompts)), list(map(int, outputs))
        self.arrival = arrivals.copy()
        self.first = np.zeros(len(arrivals))
        self.finish = np.zeros(len(arrivals))
        self.now = 0.0
        self.sent = sent  # requests whose arrival time is known
        self.arriving = [(float(arrivals[k]), k) for k in range(sent)]  # of these, soonest first
        heapq.heapify(self.arriving)
        self.queue: deque[int] = deque()
        self.prefilling: list[list[int]] = []  # [request, tokens left], oldest first
        self.decoding: list[tuple[int, int]] = []  # heap of (decode steps done at the end, request)
        self.decoded = 0  # decode steps so far

    def run(self) -> Served:
        done, total = 0, len(self.prompts)
        while done < total:
            self._receive()
            if not (self.queue or self.prefilling or self.decoding):
                self.now = self.arriving[0][0]
                continue
            done += self._step()
        return self.served()

    def served(self) -> Served:
        tokens = np.array(self.outputs) - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            between = np.where(tokens > 0, (self.finish - self.first) / tokens, np.nan)
        return Served(self.arrival, self.first - self.arrival, between, self.finish)

    def _receive(self) -> None:
        if self.decoding and self.decoded - self.looked < self.poll:
            return
        self.looked = self.decoded
        while self.arriving and self.arriving[0][0] <= self.now:
            self.queue.append(heapq.heappop(self.arriving)[1])

    def _chosen(self, rows: int) -> tuple[int, list[int]]:
        """Prompt tokens of the next step, and the requests whose prefill ends in it."""
        room, ended = self.budget - (0 if self.policy == "prefill_first" else rows), []
        taken = 0
        while room > 0:
            if not self.prefilling:
                if not self.queue:
                    break
                request = self.queue.popleft()
                self.prefilling.append([request, self.prompts[request]])
            part = self.prefilling[0]
            tokens = min(part[1], room)
            part[1] -= tokens
            room -= tokens
            taken += tokens
            if part[1]:
                break
            ended.append(self.prefilling.pop(0)[0])
        return taken, ended

    def _step(self) -> int:
        """Runs a step, or as many alike as pass before anything changes; returns the finishes."""
        taken, ended = self._chosen(len(self.decoding))
        seconds = self._seconds(taken)
        return self._end(taken, ended, seconds, self._alike(taken, seconds))

    def _decodes(self, taken: int) -> bool:
        return bool(self.decoding) and not (taken and self.policy == "prefill_first")

    def _seconds(self, taken: int) -> float:
        return self.step_s(len(self.decoding) if self._decodes(taken) else 0, taken)

    def _alike(self, taken: int, seconds: float) -> int:
        """Steps that pass before anything changes."""
        if taken or not self.decoding:
            return 1
        steps = self.decoding[0][0] - self.decoded
        if self.poll > 1:
            steps = min(steps, max(self.poll - (self.decoded - self.looked), 1))
        elif self.arriving:
            until = (self.arriving[0][0] - self.now) / seconds
            steps = int(min(steps, max(np.ceil(until), 1)))
        return steps

    def _end(self, taken: int, ended: list[int], seconds: float, steps: int) -> int:
        """What `steps` steps end; returns the finishes."""
        self.now += steps * seconds
        if self._decodes(taken):
            self.decoded += steps
        if taken:
            self.looked = self.decoded - self.poll
        finished = 0
        while self.decoding and self.decoding[0][0] <= self.decoded:
            self._finish(heapq.heappop(self.decoding)[1])
            finished += 1
        for request in ended:
            self.first[request] = self.now
            if self.outputs[request] == 1:
                self._finish(request)
                finished += 1
            else:
                last = self.decoded + self.outputs[request] - 1
                heapq.heappush(self.decoding, (last, request))
        return finished

    def _finish(self, request: int) -> None:
        self.finish[request] = self.now
        if self.sent < len(self.prompts):
            # The client answers while the next step already runs.
            arrival = np.nextafter(self.now, np.inf)
            self.arrival[self.sent] = arrival
            heapq.heappush(self.arriving, (arrival, self.sent))
            self.sent += 1
