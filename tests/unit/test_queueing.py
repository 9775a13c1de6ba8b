"""The closed forms of queueing against the simulation of tests/simulation.py."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dse.physics.queueing import (
    Rank,
    closed_loop,
    decoding_limit,
    decoding_rows,
    equilibrium,
    kept_in_step,
    open_loop,
    percentile,
    response,
    synchronised_share,
)
from tests import simulation
from tests.helpers import deploy, run, workload
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


def served(
    prompt: int, output: int, spread: float, requests: int, n: int, **how: Any
) -> simulation.Served:
    """So many requests of lengths that spread, n in flight."""
    given = lengths(prompt, spread, requests, 1), lengths(output, spread, requests, 2)
    return simulation.closed_loop(law, *given, n, **{"budget": BUDGET, **how})


def errors(scheduler: str, spread: float, rounds: float) -> tuple[np.ndarray, np.ndarray]:
    """|form / simulation - 1| of the means of ttft and tpot over shapes and requests."""
    ttft, tpot = [], []
    for prompt, output in SHAPES:
        for n in REQUESTS:
            steady = np.isinf(rounds)
            m = n * (40 if steady else int(rounds))
            found = served(prompt, output, spread, m, n, policy=scheduler)
            kept = slice(10 * n, 39 * n) if steady else slice(None)
            one = rank(n, prompt, output, scheduler)
            share = np.zeros(1) if steady else synchronised_share(one.output, rounds, spread)
            form = closed_loop(one, rounds, share)
            ttft.append(form.ttft_s[0] / found.ttft_s[kept].mean() - 1)
            tpot.append(form.tpot_s[0] / found.tpot_s[kept].mean() - 1)
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
            found = simulation.closed_loop(
                law, np.full(10 * n, prompt), outputs, n, budget=BUDGET, policy=scheduler
            )
            one = rank(n, prompt, 256, scheduler)
            measured = found.ttft_s.mean()
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
    found = served(prompt, output, 0.3, 40 * n, n, budget=budget)
    form = closed_loop(rank(most, prompt, output, "mixed", budget), np.inf, np.zeros(1))
    residence = form.ttft_s[0] + (output - 1) * form.tpot_s[0]
    assert most / residence == pytest.approx(found.requests_per_s, rel=0.1)
    waiting = (n - most) * residence / most
    kept = slice(10 * n, 39 * n)
    assert form.ttft_s[0] + waiting == pytest.approx(found.ttft_s[kept].mean(), rel=0.1)


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
            how = {"budget": 2 * BUDGET, "policy": scheduler, "poll": poll}
            found = served(prompt, output, 0.111, 14 * n, n, **how)
            one = replace(rank(n, prompt, output, scheduler, 2 * BUDGET), poll_steps=float(poll))
            form = closed_loop(one, np.inf, np.zeros(1))
            ttft.append(abs(form.ttft_s[0] / found.ttft_s[5 * n : 13 * n].mean() - 1))
    assert np.median(ttft) < 0.12
    assert max(ttft) < 0.30


# Poisson arrivals against the simulation of tests/simulation.py, and their laws.


OPEN_SHAPES = [(256, 256), (1024, 128), (4096, 256), (8192, 1024), (32768, 512)]
LOADS = [0.2, 0.5, 0.7]
OPEN_REQUESTS = 6000


def open_rank(rows: np.ndarray, prompt: int, output: int, scheduler: str) -> Rank:
    return replace(rank(1, prompt, output, scheduler), requests=rows, step_s=FIXED + ROW * rows)


@cache
def arrived(
    scheduler: str, prompt: int, output: int, per_s: float, ranks: int, requests: int, poll: int
) -> tuple[np.ndarray, np.ndarray]:
    """Times to the first token and between tokens of arrivals at random, in the simulation."""
    found = simulation.in_step(
        law,
        lengths(prompt, 0.0, requests, 1),
        lengths(output, 0.0, requests, 2),
        simulation.poisson(ranks * per_s, requests, 3),
        ranks,
        budget=BUDGET,
        policy=scheduler,
        poll=poll,
    )
    kept = slice(requests // 5, -requests // 20)
    return found.ttft_s[kept], found.tpot_s[kept]


def against_simulation(scheduler: str, ranks: int, requests: int, poll: int) -> np.ndarray:
    """(n, 5) form over simulation: mean and percentiles 50, 90, 99 of the time to first token, mean
    time between tokens. Several ranks bear a third of the load of one, their prompts come apart."""
    ratios = []
    for prompt, output in OPEN_SHAPES:
        for load in LOADS:
            alone = load / (TOKEN * prompt + ROW * output)
            per_s = np.array([alone if ranks == 1 else alone / 3.0])

            def met(rows: np.ndarray, prompt=prompt, output=output, per_s=per_s):
                one = open_rank(rows, prompt, output, scheduler)
                one = replace(one, ranks=np.array([float(ranks)]), apart=1.0)
                return response(replace(one, poll_steps=float(poll)), per_s)

            rows = equilibrium(
                lambda rows, per_s=per_s, met=met, output=output: (
                    1 + per_s * output * met(rows).tpot_s
                ),
                np.array([4096.0]),
            )
            form = met(rows)
            at = scheduler, prompt, output, float(per_s[0]), ranks, requests, poll
            ttft, tpot = arrived(*at)
            ratios.append(
                [
                    (form.own_s + form.wait.mean)[0] / ttft.mean(),
                    *(
                        percentile(form.own_s, form.wait, share)[0] / np.quantile(ttft, share)
                        for share in (0.5, 0.9, 0.99)
                    ),
                    form.tpot_s[0] / tpot.mean(),
                ]
            )
    return np.array(ratios)


# Percentiles and token times of one rank; of ranks that wait for each other, where prompts of one
# slow the tokens of all, up to five times at these loads; of a server that looks every ten steps.
@pytest.mark.parametrize(
    ("ranks", "requests", "poll", "median", "most"),
    [
        (1, OPEN_REQUESTS, 1, [0.08, 0.10, 0.16, 0.12, 0.05], [0.15, 0.25, 0.25, 0.20, 0.20]),
        (2, 2000, 1, [0.12, 0.12, 0.20, 0.20, 0.10], [0.25, 0.35, 0.35, 0.40, 0.20]),
        (8, 2000, 1, [0.25, 0.27, 0.26, 0.22, 0.16], [0.36, 0.38, 0.45, 0.40, 0.29]),
        (1, 2000, 10, [0.13, 0.10, 0.18, 0.30, 0.05], [0.22, 0.25, 0.27, 0.55, 0.16]),
    ],
)
@pytest.mark.parametrize("scheduler", ["mixed", "prefill_first"])
def test_arrivals_at_random_are_served_as_in_the_simulation(
    scheduler, ranks, requests, poll, median, most
) -> None:
    errors = np.abs(against_simulation(scheduler, ranks, requests, poll) - 1.0)
    assert (np.median(errors, axis=0) < median).all()
    assert (np.quantile(errors, 0.9, axis=0) < most).all()


def arrivals(rates: list[float], **axes: float):
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, repeat=len(rates), **axes)
    load = replace(workload(2048, 512, "poisson"), requests_per_s=np.array(rates))
    return run(batch, load)


def test_latency_rises_with_the_rate_and_ends_at_capacity() -> None:
    metrics = arrivals([0.01, 0.5, 1, 2, 4, 6, 7, 50])
    values = metrics.values
    for name in ("ttft_mean_s", "ttft_p90_s", "ttft_p99_s", "tpot_s", "utilisation"):
        assert (np.diff(values[name]) > 0).all(), name
    saturated = metrics.violations["arrivals_within_capacity"] > 0
    assert saturated.tolist() == [False] * 7 + [True]
    assert np.isinf(values["ttft_p99_s"]).tolist() == saturated.tolist()
    assert (values["ttft_s"] <= values["ttft_p90_s"]).all()


def test_an_equilibrium_lies_between_the_least_and_the_greatest() -> None:
    """Step times that jump at every wave, so that several batches may lead to themselves. The map
    grows, so that repeating it ends at the least of them from below, at the greatest from above."""
    rng, n = np.random.default_rng(0), 20_000
    share, jump = rng.uniform(0.05, 0.95, n), rng.uniform(0.0, 0.3, n)
    wave, first = rng.integers(4, 300, n), rng.uniform(2.0, 120.0, n)
    most = np.full(n, 1024.0)

    def leads_to(rows: np.ndarray) -> np.ndarray:
        return first + share * (rows + jump * wave * np.floor(rows / wave))

    least, greatest = np.ones(n), most
    for _ in range(1_000):
        least, greatest = (np.minimum(leads_to(end), most) for end in (least, greatest))
    found = equilibrium(leads_to, most)
    assert (found >= 0.999 * least).all()
    assert (found <= 1.001 * greatest).all()
    np.testing.assert_allclose(np.minimum(leads_to(found), most), found, rtol=0.01)


@pytest.mark.parametrize(("chip", "capacity"), [("mi300x", 8.266), ("b200_sxm", 16.94)])
def test_latency_does_not_fall_near_capacity(chip: str, capacity: float) -> None:
    """Beyond a tenth, which is more than lies between two equilibria at a jump of step times."""
    rates = capacity * np.linspace(0.85, 0.995, 200)
    batch = deploy("llama-3-70b", chip, tensor_parallel=8, weight_dtype="fp8", repeat=len(rates))
    load = replace(workload(2048, 512, "poisson"), requests_per_s=rates)
    values = run(batch, load).values
    for name in ("tpot_s", "ttft_p90_s"):
        known = values[name][np.isfinite(values[name])]
        assert len(known) > 100
        assert (known >= 0.9 * np.maximum.accumulate(known)).all(), name


def test_one_request_now_and_then_meets_an_idle_server() -> None:
    alone = run(
        deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, concurrency=1), workload(2048, 512)
    ).values
    seldom = arrivals([1e-4]).values
    assert seldom["tpot_s"][0] == pytest.approx(alone["tpot_s"][0], rel=1e-3)
    assert seldom["ttft_s"][0] == pytest.approx(alone["ttft_s"][0], rel=0.1)


def test_at_full_load_poisson_arrivals_serve_what_a_closed_loop_does() -> None:
    metrics = arrivals([1e3])
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, concurrency=1e6)
    closed = run(batch, workload(2048, 512)).values
    assert metrics.values["output_tokens_per_s"][0] == pytest.approx(
        closed["output_tokens_per_s"][0]
    )


def test_replicas_share_the_arrivals() -> None:
    one, two = arrivals([2.0]).values, arrivals([4.0], replicas=2).values
    for name in ("ttft_p99_s", "tpot_s", "utilisation"):
        assert one[name][0] == pytest.approx(two[name][0])
    assert two["output_tokens_per_s"][0] == pytest.approx(2 * one["output_tokens_per_s"][0])


@pytest.mark.parametrize(("prompt", "output"), [(150_000, 10), (100, 10), (2000, 200)])
def test_what_is_called_feasible_fits(prompt: int, output: int) -> None:
    rates = np.geomspace(1e-2, 1e3, 60)
    load = replace(workload(prompt, output, "poisson"), requests_per_s=rates)
    metrics = run(deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, repeat=60), load)
    memory = metrics.values["memory_bytes_per_chip"]
    capacity = metrics.values["memory_capacity_bytes_per_chip"]
    assert metrics.feasible.any()
    assert (memory <= capacity)[metrics.feasible].all()


@pytest.mark.parametrize("scheduler", ["mixed", "prefill_first"])
def test_an_open_loop_by_the_requests_in_flight_is_that_of_the_simulation(scheduler: str) -> None:
    """The simulation is told a rate and the form only how many were in flight."""
    ratios = []
    for prompt, output in OPEN_SHAPES:
        for load in LOADS:
            per_s = load / (TOKEN * prompt + ROW * output)
            times = arrived(scheduler, prompt, output, per_s, 1, OPEN_REQUESTS, 1)
            ttft, tpot = (each.mean() for each in times)
            in_flight = np.maximum(per_s * (ttft + (output - 1) * tpot), 1.0)
            form = open_loop(open_rank(np.array([in_flight]), prompt, output, scheduler))
            ratios.append([form.ttft_s[0] / ttft, form.tpot_s[0] / tpot])
    off = np.abs(np.array(ratios) - 1.0)
    assert np.median(off, axis=0) == pytest.approx(0.0, abs=0.08)
    assert np.quantile(off, 0.9, axis=0) == pytest.approx(0.0, abs=0.25)


@example(prompt=113, output=2, requests=456.0, scheduler="mixed")
@given(
    prompt=st.integers(16, 16384), output=st.integers(2, 2000), requests=st.floats(1.0, 512.0),
    scheduler=st.sampled_from(["mixed", "prefill_first"]),
)  # fmt: skip
def test_an_open_loop_obeys_littles_law(
    prompt: int, output: int, requests: float, scheduler: str
) -> None:
    """The rate that it implies is where `response` has so many in flight, and no wait is shorter
    than its own prompt."""
    one = open_rank(np.array([requests]), prompt, output, scheduler)
    form = open_loop(one)
    rest = max(output - 1.0, 1e-9)
    per_s = requests / (form.ttft_s + rest * form.tpot_s)

    def in_flight(per_s: np.ndarray) -> float:
        with np.errstate(all="ignore"):  # beyond capacity
            found = response(one, per_s)
        return (per_s * (found.own_s + found.wait.mean + rest * found.tpot_s))[0]

    # Near capacity, a millionth of the rate is a percent of the requests.
    assert in_flight(per_s * (1.0 - 1e-5)) <= requests <= in_flight(per_s * (1.0 + 1e-5))
    assert form.ttft_s[0] >= one.own_s[0] * (1.0 - 1e-9)
    assert form.tpot_s[0] >= one.step_s[0] * (1.0 - 1e-9)
