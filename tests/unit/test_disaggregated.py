"""Disaggregated pools: closed forms, laws, and a simulation of the two stations."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dse
from dse.accuracy.validate import estimate_table
from dse.catalog import load_catalog
from dse.physics.disaggregated import Disaggregated, predict_disaggregated
from dse.physics.intervals import interval
from dse.physics.workload import Workload
from dse.problem.instances import (
    Subject,
    best_pairs,
    decode_pool,
    prefill_pool,
    subject_of,
    with_degrees,
)
from dse.schema.backend import KINDS, find_backend
from dse.schema.metrics import Limit
from dse.schema.model_catalog import resolve_model
from dse.space.deployments import Deployments
from tests.helpers import deploy, machines, scaled, workload

ON = machines()
LOAD = workload(8192, 1024)
ROW = {
    "model": "deepseek-v3",
    "chip": "h200_sxm",
    "weight_dtype": "fp8",
    "engine": "sglang",
    "serving": "disaggregated",
    "prompt_tokens": "4096",
    "output_tokens": "512",
    "concurrency": "16",
    "prefill_workers": "1",
    "decode_workers": "1",
    "metric": "tpot_s",
}


def row_of(words: str) -> dict[str, str]:
    """A row of measurements with other fields, each NAME=VALUE."""
    return ROW | dict(word.split("=") for word in words.split())


def pools(load=LOAD, on=ON, chips=("h200_sxm", "h200_sxm"), **axes) -> Disaggregated:
    """Workers of 8 chips of each pool, by tensor parallelism."""
    concurrency = axes.pop("concurrency", 64)
    prefill_workers, decode_workers = axes.pop("workers", (1, 1))
    n = len(np.atleast_1d(concurrency))
    prefill = deploy("llama-3-70b", chips[0], tensor_parallel=8, replicas=prefill_workers, repeat=n)
    decode = deploy(
        "llama-3-70b",
        chips[1],
        tensor_parallel=8,
        replicas=decode_workers,
        repeat=n,
        concurrency=concurrency,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return predict_disaggregated(prefill, decode, load, on, on)


def two_stations(servers: int, own_s: float, delay_s: float, in_flight: int, rounds: int) -> float:
    """Mean seconds from arrival to the end of the prefill: `in_flight` requests go round between
    `servers` that take `own_s` each and a decode of 0.8 to 1.2 times `delay_s`."""
    random = np.random.default_rng(1)
    arriving = [(0.0, k) for k in range(in_flight)]
    free = [0.0] * servers
    waited, sent = [], in_flight
    while arriving:
        arrived, _ = heapq.heappop(arriving)
        done = max(arrived, heapq.heappop(free)) + own_s
        heapq.heappush(free, done)
        waited.append(done - arrived)
        if sent < rounds * in_flight:
            heapq.heappush(arriving, (done + delay_s * random.uniform(0.8, 1.2), sent))
            sent += 1
    return float(np.mean(waited))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("concurrency", [1, 8, 32, 128, 512])
def test_prefill_waits_as_in_a_simulation_of_two_stations(workers, concurrency) -> None:
    rounds = 10
    found = pools(replace(LOAD, rounds=rounds), workers=(workers, 4), concurrency=concurrency)
    decode_s = float((found.decode_step_s * 1024 + found.transfer_s)[0])
    simulated = two_stations(workers, float(found.prefill_s[0]), decode_s, concurrency, rounds)
    form = (found.queue_s + found.prefill_s)[0]
    assert form == pytest.approx(simulated, rel=0.25)


def test_one_request_meets_no_queue() -> None:
    found = pools(concurrency=1)
    host_s = LOAD.backend.first_token_s + LOAD.prompt_tokens * LOAD.backend.prompt_token_s
    parts = found.prefill_s + found.transfer_s + found.decode_step_s + host_s
    assert found.ttft_s[0] == pytest.approx(parts[0], rel=1e-6)


def test_the_slower_pool_sets_the_rate() -> None:
    few = pools(concurrency=4096, workers=(1, 8))
    more = pools(concurrency=4096, workers=(2, 8))
    assert few.utilisation[0] == pytest.approx(1.0)
    assert more.requests_per_s[0] == pytest.approx(2 * few.requests_per_s[0], rel=0.01)
    many = pools(concurrency=1e5, workers=(64, 1))
    assert many.utilisation[0] < 0.2
    assert many.running_requests[0] <= many.decode_memory.admitted[0] * (1 + 1e-9)


def test_no_more_requests_are_in_flight_than_asked() -> None:
    """Also where ranks of one prefill worker wait for each other."""
    both = [
        deploy(
            "deepseek-v3",
            "h200_sxm",
            data_parallel=8,
            expert_parallel=8,
            concurrency=[1, 8, 32, 256, 4096],
        )
        for _ in range(2)
    ]
    found = predict_disaggregated(*both, workload(8192, 256), ON, ON)
    in_flight = found.requests_per_s * (found.ttft_s + 255 * found.tpot_s)
    assert (in_flight <= both[1].concurrency * (1 + 1e-9)).all()
    assert (in_flight >= both[1].concurrency * 0.9).all()
    assert found.e2e_s == pytest.approx(found.ttft_s + 255 * found.tpot_s)


def test_the_cache_crosses_the_slower_link() -> None:
    """80 layers x 2 x 8 heads x 128 numbers x 2 bytes a token, an eighth on each chip, over a
    400 Gbit/s card: 16 chips are no NVLink domain."""
    found = pools(concurrency=1)
    bytes_ = 80 * 2 * 8 * 128 * 2 * 8192 / 8
    network = ON.fabric.networks[0].s_per_byte[ON.code("h200_sxm")]
    assert found.transfer_s[0] == pytest.approx(bytes_ * network, rel=0.05)
    faster = pools(concurrency=1, on=scaled(ON, "links", 4.0))
    assert faster.transfer_s[0] < 0.4 * found.transfer_s[0]
    rack = pools(concurrency=1, chips=("gb200_nvl72", "gb200_nvl72"))
    assert rack.transfer_s[0] < 0.2 * found.transfer_s[0]


def test_pools_may_be_of_different_chips() -> None:
    slow, fast = pools(concurrency=1), pools(concurrency=1, chips=("b200_sxm", "h200_sxm"))
    assert fast.prefill_s[0] < 0.8 * slow.prefill_s[0]
    assert fast.tpot_s[0] == slow.tpot_s[0]


def test_arrivals_at_random_are_served_up_to_capacity() -> None:
    load = replace(workload(8192, 1024, "poisson"), requests_per_s=np.array([0.1, 1.0, 50.0]))
    found = pools(load, concurrency=[1, 1, 1], workers=(1, 2))
    assert found.requests_per_s[:2] == pytest.approx([0.1, 1.0])
    assert np.isinf(found.ttft_s).tolist() == [False, False, True]
    assert found.tpot_s[1] > found.tpot_s[0]


def test_intervals_are_of_the_worst_law_of_either_pool() -> None:
    """Mamba layers borrow their laws: derived, though the experts' own were fitted."""
    row = row_of("model=jamba-v0.1 chip=h100_sxm weight_dtype=bf16 prefill_tp=4 decode_tp=4")
    answer = estimate_table(pd.DataFrame([row])).iloc[0]
    derived = np.array([KINDS.index("derived")])
    low, high = interval("tpot_s", np.array([answer["predicted"]]), derived, ON.spread)
    assert (answer["predicted_low"], answer["predicted_high"]) == (low[0], high[0])


def test_rows_of_the_format_are_predicted_or_refused_with_a_reason() -> None:
    row = row_of("concurrency=64 prefill_tp=8 decode_workers=2 decode_tp=1 decode_dp=8 decode_ep=8")
    table = pd.DataFrame([row, row | {"metric": "ttft_s"}, row | {"prefill_workers": ""}])
    answer = estimate_table(table)
    assert answer["status"].tolist() == ["ok", "ok", "prefill_workers is empty"]
    assert (answer["predicted"][:2] > answer["floor"][:2]).all()
    assert np.isnan(answer["predicted"][2])


def test_what_a_decode_worker_does_not_admit_waits_for_a_slot() -> None:
    """Half of the requests decode, half wait: N / slots - 1 = 1 residence (Little's law). The row
    says the slots, or its public recipe does, else nothing does."""
    row = row_of(
        "chip=h100_sxm engine=trtllm prompt_tokens=921.6 output_tokens=921.6 concurrency=6 "
        "prefill_dp=16 prefill_ep=16 decode_workers=3 decode_tp=16 decode_ep=16 metric=ttft_s"
    )
    said = row | {"prefill_workers": "2", "decode_max_running_requests": "1"}
    rows = [row, row | {"prefill_workers": "2"}, said, said | {"metric": "tpot_s"}]
    answer = estimate_table(pd.DataFrame(rows).fillna(""))
    recipe, unknown, told, tpot = answer["predicted"]
    residence = 921.6 * tpot
    assert told == pytest.approx(residence, rel=0.15)
    assert recipe == pytest.approx(told, rel=0.05)
    assert unknown < residence / 4.0
    assert "at most 1 requests a decode rank" in answer["assumed"][0]


def test_steps_between_a_cache_and_its_first_token_delay_it() -> None:
    """By as many steps as the rest of a step's batch is alike."""
    steps = 40.0
    plain, late = (
        pools(replace(LOAD, backend=replace(LOAD.backend, handover_steps=n)), concurrency=4)
        for n in (0.0, steps)
    )
    assert late.ttft_s - plain.ttft_s == pytest.approx(steps * late.decode_step_s, rel=0.02)


# Pools of tables of workers: what `dse estimate --serving disaggregated` says of the same.


SIZES = (1, 2, 4, 8)
LIMITS = (Limit("ttft_s", "<=", 2.0, ""), Limit("tpot_s", "<=", 0.05, ""))
FLAGS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "ep": "expert_parallel",
}


def subject(model: str, chip: str) -> Subject:
    catalog = load_catalog()
    backend = find_backend(catalog.backends, "vllm")
    load = Workload.of(2048, 512, "continuous", backend)
    return subject_of(
        catalog, resolve_model(model), chip, load, capped=True, redundant_experts=(0,)
    )


def degrees(table: Deployments, row: int) -> dict[str, Any]:
    return {flag: int(table[axis][row]) for flag, axis in FLAGS.items()}


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [("llama-3-70b", "h100_sxm", "h200_sxm"), ("deepseek-v3", "b200_sxm", "b200_sxm")],
)
def test_a_pair_is_what_estimate_says_of_the_same_workers(model: str, first: str, second: str):
    before, after = subject(model, first), subject(model, second)
    ahead = prefill_pool(before, before.divided(SIZES), LIMITS)
    behind = decode_pool(after, after.divided(SIZES), LIMITS)
    for pair in best_pairs(ahead, behind, (16, 32), LIMITS):
        assert pair is not None
        prefill = degrees(ahead.table, pair["prefill"])
        said = dse.estimate(
            model,
            second,
            **degrees(behind.table, pair["decode"]),
            **{f"prefill_{flag}": degree for flag, degree in prefill.items()},
            prefill_chip=first,
            prefill_workers=pair["prefill_workers"],
            decode_workers=pair["decode_workers"],
            concurrency=round(pair["concurrency"]),
            serving="disaggregated",
            backend="vllm",
        )
        assert said.feasible
        assert said.chips == pair["chips"]
        assert said.tpot_s == pytest.approx(pair["tpot_s"], rel=0.02)
        assert said.output_tokens_per_s == pytest.approx(pair["output_tokens_per_s"], rel=0.02)


def test_more_chips_are_never_worse_and_degrees_bind():
    one = subject("llama-3-70b", "h200_sxm")
    table = one.divided(SIZES)
    behind = decode_pool(one, table, LIMITS)

    def rates(chosen: Deployments, chips: Sequence[int]) -> list[float]:
        pairs = best_pairs(prefill_pool(one, chosen, LIMITS), behind, chips, LIMITS)
        return [0.0 if p is None else p["output_tokens_per_s"] / p["chips"] for p in pairs]

    free = rates(table, (4, 8, 16, 32, 64))
    assert free == sorted(free)
    bound = with_degrees(table, {"tensor_parallel": [8], "chip": ["h200_sxm"]})
    assert set(bound["tensor_parallel"]) == {8}
    assert np.all(np.array(rates(bound, (16, 64))) <= np.array(free)[[2, 4]])
    assert rates(with_degrees(table, {"tensor_parallel": 3}), (16,)) == [0.0]
