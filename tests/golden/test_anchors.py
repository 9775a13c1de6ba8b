"""Measured anchors and closed forms that the physics must reproduce."""

from __future__ import annotations

import numpy as np
import pytest

from dse.physics.deployed import Deployed
from dse.physics.step import Step, Work
from dse.rules.case import Case, Training
from dse.rules.registry import judge
from dse.schema.training import training_stack
from tests import drift
from tests.helpers import deploy, machines, run, workload
from tests.helpers_training import plan, train
from tools.fits.published import RUNS, PublicRun, estimate_run

ON = machines()


def test_llama_3_70b_decode_step_on_eight_h100() -> None:
    """12 ms at batch 32 and context 2,048 (measured kernels of three backends), within 25%."""
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, concurrency=32)
    step = run(batch, workload(2047, 2, "static")).values["decode_step_s"]
    assert step[0] == pytest.approx(12e-3, rel=0.25)


def test_llama_3_70b_prefill_on_eight_h100() -> None:
    """640 ms for 8 prompts of 2,048 tokens (measured kernels of three backends), within 25%."""
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, concurrency=8)
    seconds = run(batch, workload(2048, 2, "static")).values["prefill_s"]
    assert seconds[0] == pytest.approx(640e-3, rel=0.25)


def test_floor_of_a_decode_step_is_weights_and_cache_over_bandwidth() -> None:
    """70.55e9 - 1.05e9 (input table) 16-bit weights and 32 x 2,048 tokens of cache over 8 chips."""
    batch = deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, concurrency=32)
    floor = run(batch, workload(2047, 2, "static")).values["latency_floor_s"]
    weights = (70.55e9 - 128256 * 8192) * 2
    cache = 32 * 2048 * 80 * 2 * 8 * 128 * 2
    assert floor[0] == pytest.approx((weights + cache) / 8 / 3.35e12, rel=0.01)


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    """8 KV heads: the cache of a request on one chip stops shrinking at TP 8."""
    batch = deploy("llama-3-70b", "gb200_nvl72", tensor_parallel=[1, 2, 4, 8, 16, 32])
    per_request = run(batch, workload(1024, 1024)).performance.memory.kv_per_request
    assert per_request[0] == pytest.approx(80 * 2 * 8 * 128 * 2 * 2048)
    assert per_request / per_request[0] == pytest.approx([1, 1 / 2, 1 / 4, 1 / 8, 1 / 8, 1 / 8])


def test_latent_cache_lies_whole_on_every_tensor_parallel_rank() -> None:
    """DeepSeek-V3: 576 numbers x 61 layers a token, whatever the tensor parallelism; attention
    data-parallel ranks hold the cache of their own requests only."""
    batch = deploy(
        "deepseek-v3",
        "h200_sxm",
        tensor_parallel=[8, 16, 1],
        data_parallel=[1, 1, 8],
        expert_parallel=[1, 1, 8],
        kv_dtype="bf16",
    )
    mem = run(batch, workload(1024, 1024)).performance.memory
    assert mem.kv_per_request == pytest.approx(576 * 61 * 2 * 2048)
    assert mem.admitted[2] > 4 * mem.admitted[0]


def test_windows_bound_the_cache() -> None:
    """gpt-oss-120b: 18 layers see 128 tokens, 18 see all; 8 KV heads of 64."""
    batch = deploy("gpt-oss-120b", "h100_sxm")
    per_request = run(batch, workload(7168, 1024)).performance.memory.kv_per_request
    assert per_request[0] == pytest.approx(18 * (128 + 8192) * 2 * 8 * 64 * 2)


def test_four_bit_weights_compute_at_the_activation_formats_peak() -> None:
    """Hopper has no 4-bit arithmetic: a compute-bound prefill is as slow as in bf16, and as much
    slower as unpacking is (MARLIN: a tenth of its products)."""
    times = [
        run(
            deploy("llama-3-70b", "h100_sxm", tensor_parallel=8, weight_dtype=dtype),
            workload(32_768, 2, "static"),
        ).values["prefill_s"][0]
        for dtype in ("bf16", "int4")
    ]
    assert times[0] < times[1] < 1.11 * times[0]


def test_prefill_head_runs_on_the_last_token_of_each_prompt() -> None:
    """The output head of one prompt costs the same whatever its length."""
    batch = deploy("llama-3-8b", "h100_sxm", repeat=2)
    tokens = np.array([512.0, 8192.0])
    work = Work(np.zeros(2), np.zeros(2), prefill_rows=tokens, prompt_tokens=tokens)
    step = Step(Deployed(batch, ON), work, keep=True)
    assert step.ledger.entries is not None
    head = next(entry for entry in step.ledger.entries if entry.name == "output head")
    assert head.seconds[0] == head.seconds[1]


def test_requests_that_do_not_fit_wait() -> None:
    """Llama-3-70B in bf16 on one H200: nothing fits; in fp8 a few do and the others queue."""
    fits = deploy("llama-3-70b", "h200_sxm", weight_dtype="fp8", concurrency=[1, 512])
    got = run(fits, workload(2048, 512))
    assert got.feasible.all()
    assert got.values["running_requests"][1] < 512
    behind = (512 - got.values["running_requests"][1]) / got.performance.requests_per_s[1]
    assert got.values["ttft_s"][1] > behind > 1.0
    too_big = run(deploy("llama-3-70b", "h200_sxm"), workload(2048, 512))
    assert not too_big.feasible[0]
    assert too_big.violations["memory_capacity"][0] > 0


def test_capacity_is_shared_as_the_memory_model_says() -> None:
    """Admitted requests times their cache, plus everything else, stays within the chip, and one
    more request would not."""
    mem = run(deploy("llama-3-8b", "h100_sxm"), workload(1000, 24)).performance.memory
    used = mem.base + mem.admitted * mem.kv_reserved
    assert used[0] <= mem.capacity[0] < used[0] + mem.kv_reserved[0]


# Published training runs that no constant is fitted to: within 15% of what they report.


def test_a_530b_model_on_2240_a100_with_and_without_recomputation() -> None:
    """Korthikanti et al. 2022, arXiv 2205.05198, abstract: 54.2% of the peak, 29% faster than the
    42.1% with full recomputation. Megatron-Turing's 8-way tensor and 35-way pipeline parallelism
    in three chunks a stage (table 3), one sequence a micro-batch, 2,240 sequences a step. The paper
    counts attention without the causal mask, which adds less than 1% at its width."""
    runs = plan(
        "mt-nlg-530b",
        "a100_80_sxm",
        sequence=2048,
        batch=2048 * 2240,
        tensor_parallel=8,
        pipeline_parallel=35,
        data_parallel=8,
        virtual_stages=3,
        zero_stage=0,
        recompute=["none", "full"],
    )
    metrics = train(runs, training_stack("generic"))
    assert metrics.mfu == pytest.approx([0.542, 0.421], rel=0.15)
    assert metrics.step_s[1] / metrics.step_s[0] == pytest.approx(1.29, rel=0.05)
    broken = judge(Case.of_training(Training(metrics)))
    assert not any(amount[1] > 0.0 for amount in broken.values())


# Three public training runs from their published configuration, none of which a fit has seen.


@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_chip_hours_within_15_percent_of_the_published_total(run: PublicRun) -> None:
    found = estimate_run(run)
    assert found["predicted_chip_hours"] == pytest.approx(run.published, rel=0.15)
    low, high = found["interval"]
    assert low < run.published < high


def test_their_published_figures_agree_with_each_other() -> None:
    """Llama 3.1: 30.84M hours on 16,384 chips are 78 days, of the 54 days' snapshot and the rest;
    DeepSeek-V3: 180K hours a trillion tokens, and 0.119M + 0.005M after pre-training; PaLM: 6ND and
    attention at 238.3k tokens a second are 46.2% of 275 TFLOP/s."""
    llama, deepseek, palm = RUNS
    assert llama.published / 16384 / 24 == pytest.approx(78.4, abs=0.1)
    assert deepseek.published == pytest.approx(180e3 * 14.8 + 0.119e6 + 0.005e6, rel=1e-3)
    per_token = 6.0 * 540.35e9 + 12.0 * 118 * 48 * 256 * 2048
    rate = palm.tokens / palm.published / 3600.0
    assert rate * per_token == pytest.approx(0.462 * 275e12, rel=0.01)


# Headline predictions move only with the file that holds them, and with a word in CHANGELOG.md.


def test_predictions_are_those_of_the_file() -> None:
    written = drift.written()
    changes = drift.moved(written, drift.predicted(written))
    lines = "\n".join(f"{change:+.1%}  {line}" for change, line in changes)
    assert not changes, f"{lines}\npython -m tests.drift --write, and say so in {drift.CHANGELOG}"


def test_every_headline_has_a_value() -> None:
    written = drift.written()
    assert len(written) >= 40
    assert all(value is not None and value > 0.0 for value in written.values())


def test_a_move_is_in_the_changelog() -> None:
    """Against the last commit; nothing to compare in a clean checkout, or without one."""
    last, log = drift.committed(drift.FILE), drift.committed(drift.CHANGELOG)
    if last is None or not drift.moved(drift.read(last), drift.written()):
        pytest.skip("the last commit has the same headlines, or none")
    now = (drift.ROOT / drift.CHANGELOG).read_text(encoding="utf-8")
    top = now.split("\n## ")[1]
    assert now != log, f"{drift.CHANGELOG} does not say that predictions moved"
    assert "headline predictions" in top.lower()
