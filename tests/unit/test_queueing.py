"""The closed forms of queueing against the simulation of tests/simulation.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.physics.queueing import (
    Rank,
    closed_loop,
    decoding_limit,
    decoding_rows,
    kept_in_step,
    synchronised_share,
)
from tests import simulation
from tests.simulation import lengths

# A step of 8 ms that reads weights, 20 us a decoding request, 25 us a prompt token.
FIXED, ROW, TOKEN = 8e-3, 2e-5, 2.5e-5
SHAPES = [(256, 256), (1024, 1024), (1024, 128), (4096, 256), (8192, 1024), (32768, 2000)]
REQUESTS = [1, 2, 4, 16, 64, 256]
BUDGET = 8192


def law(rows: int, tokens: float) -> float:
    return FIXED + ROW * rows + TOKEN * tokens


def rank(requests: float, prompt: int, output: int, scheduler: str, budget: int = BUDGET) -> Rank:
    def one(value: float) -> np.ndarray:
        return np.array([float(value)])

    return Rank(
        requests=one(requests),
        step_s=FIXED
        + ROW * decoding_rows(one(requests), budget, one(prompt), one(output), scheduler),
        added_s=one(TOKEN * prompt),
        own_s=one(FIXED * np.ceil(prompt / budget) + TOKEN * prompt),
        stages=one(1),
        prompt=one(prompt),
        output=one(output),
        chunk_tokens=float(budget),
        scheduler=scheduler,
    )


def errors(scheduler: str, spread: float, rounds: float) -> tuple[np.ndarray, np.ndarray]:
    """|form / simulation - 1| of the means of ttft and tpot over shapes and requests."""
    ttft, tpot = [], []
    for prompt, output in SHAPES:
        for n in REQUESTS:
            steady = np.isinf(rounds)
            m = n * (40 if steady else int(rounds))
            served = simulation.closed_loop(
                law,
                lengths(prompt, spread, m, 1),
                lengths(output, spread, m, 2),
                n,
                budget=BUDGET,
                policy=scheduler,
            )
            kept = slice(10 * n, 39 * n) if steady else slice(None)
            one = rank(n, prompt, output, scheduler)
            share = np.zeros(1) if steady else synchronised_share(one.output, rounds, spread)
            form = closed_loop(one, rounds, share)
            ttft.append(form.ttft_s[0] / served.ttft_s[kept].mean() - 1)
            tpot.append(form.tpot_s[0] / served.tpot_s[kept].mean() - 1)
    return np.abs(ttft), np.abs(tpot)


@pytest.mark.parametrize("scheduler", ["mixed", "prefill_first"])
@pytest.mark.parametrize(
    ("spread", "rounds", "median", "p90"),
    [(0.3, np.inf, 0.03, 0.10), (0.111, 10.0, 0.05, 0.15), (0.0, 10.0, 0.05, 0.30)],
    ids=["steady state", "benchmark of random lengths", "benchmark of equal lengths"],
)
def test_first_token_and_token_times_are_those_of_the_simulation(
    scheduler, spread, rounds, median, p90
) -> None:
    ttft, tpot = errors(scheduler, spread, rounds)
    assert np.median(ttft) < median
    assert np.quantile(ttft, 0.9) < p90
    assert np.median(tpot) < 0.02
    assert np.quantile(tpot, 0.9) < 0.08


@pytest.mark.parametrize("n", [4, 64, 256])
def test_equal_requests_that_prefill_first_stay_in_step(n) -> None:
    """n chunks one after the other: the k-th prompt waits for k of them."""
    form = closed_loop(rank(n, BUDGET, 1024, "prefill_first"), 10.0, np.ones(1))
    chunk = FIXED + TOKEN * BUDGET
    assert form.ttft_s[0] == pytest.approx(chunk * (n + 1) / 2)
    assert form.tpot_s[0] == pytest.approx(FIXED + ROW * n + chunk * (n - 1) / 2 / 1024)


@pytest.mark.parametrize("scheduler", ["mixed", "prefill_first"])
def test_a_token_or_two_takes_equal_requests_out_of_step(scheduler) -> None:
    """Outputs within two tokens of each other: nearer to the simulation than requests that stay in
    step, and than those that never are."""
    kept, ever, never = [], [], []
    for prompt in (512, 1024, 2048, 4096):
        for n in (8, 16, 32, 64):
            outputs = np.random.default_rng(n).integers(254, 259, 10 * n)
            served = simulation.closed_loop(
                law, np.full(10 * n, prompt), outputs, n, budget=BUDGET, policy=scheduler
            )
            one = rank(n, prompt, 256, scheduler)
            measured = served.ttft_s.mean()
            for errors, share in (
                (kept, kept_in_step(one.packed, scheduler)),
                (ever, np.ones(1)),
                (never, np.zeros(1)),
            ):
                errors.append(abs(closed_loop(one, 10.0, share).ttft_s[0] / measured - 1))
    assert np.median(kept) < 0.25
    assert np.median(kept) < 0.5 * min(np.median(ever), np.median(never))


@pytest.mark.parametrize(("prompt", "output", "budget"), [(32768, 512, 8192), (4096, 256, 2048)])
def test_the_token_budget_bounds_the_requests_that_decode(prompt, output, budget) -> None:
    n = 256
    most = decoding_limit(budget, np.array([float(prompt)]), np.array([float(output)]))[0]
    assert most < n
    served = simulation.closed_loop(
        law, lengths(prompt, 0.3, 40 * n, 1), lengths(output, 0.3, 40 * n, 2), n, budget=budget
    )
    form = closed_loop(rank(most, prompt, output, "mixed", budget), np.inf, np.zeros(1))
    residence = form.ttft_s[0] + (output - 1) * form.tpot_s[0]
    assert most / residence == pytest.approx(served.requests_per_s, rel=0.1)
    waiting = (n - most) * residence / most
    kept = slice(10 * n, 39 * n)
    assert form.ttft_s[0] + waiting == pytest.approx(served.ttft_s[kept].mean(), rel=0.1)


@pytest.mark.parametrize("scheduler", ["mixed", "prefill_first"])
def test_a_request_alone_waits_for_its_own_prompt(scheduler) -> None:
    one = rank(1, 1024, 128, scheduler)
    form = closed_loop(one, 10.0, np.zeros(1))
    assert form.ttft_s[0] == pytest.approx(one.own_s[0])
    assert form.tpot_s[0] == pytest.approx(one.step_s[0])


@pytest.mark.parametrize("scheduler", ["mixed", "prefill_first"])
@pytest.mark.parametrize("poll", [10, 30])
def test_requests_wait_for_the_next_look(scheduler, poll) -> None:
    ttft = []
    for prompt, output in [(1024, 1024), (8192, 1024), (1024, 8192)]:
        for n in (4, 16, 64):
            m = n * 14
            served = simulation.closed_loop(
                law,
                lengths(prompt, 0.111, m, 1),
                lengths(output, 0.111, m, 2),
                n,
                budget=2 * BUDGET,
                policy=scheduler,
                poll=poll,
            )
            one = replace(rank(n, prompt, output, scheduler, 2 * BUDGET), poll_steps=float(poll))
            form = closed_loop(one, np.inf, np.zeros(1))
            ttft.append(abs(form.ttft_s[0] / served.ttft_s[5 * n : 13 * n].mean() - 1))
    assert np.median(ttft) < 0.12
    assert max(ttft) < 0.30
