"""What a backend's file decides: host work beside the device, whole caches of windowed layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dse
from dse.accuracy.validate import estimate_table
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from dse.schema.backend import Calibration
from tests.helpers import deploy, run

BACKEND = load_catalog().backends["trtllm"]


def metrics(backend, model="llama-3-8b", **axes):
    load = Workload.of(1024, 256, "continuous", backend)
    return run(deploy(model, "h100_sxm", **({"concurrency": 64} | axes)), load)


def test_overlapped_host_work_hides_behind_the_device() -> None:
    """A step is the larger of device and host, not their sum, until the host is the larger."""
    quick = replace(BACKEND, host_s_per_request=0.0)
    busy = replace(BACKEND, host_s_per_request=2e-5)
    slow = replace(BACKEND, host_s_per_request=1e-2)
    step = [metrics(b).values["decode_step_s"][0] for b in (quick, busy, slow)]
    assert step[0] == step[1]
    # A few of the 64 are being prefilled.
    np.testing.assert_allclose(step[2], 64 * 1e-2, rtol=0.01)
    apart = metrics(replace(busy, overlapped=False)).values["decode_step_s"][0]
    np.testing.assert_allclose(apart - step[1], 64 * 2e-5, rtol=0.05)


def test_a_step_with_prompts_is_launched_by_the_hand_that_works_on_requests() -> None:
    """Where the host is the slower, what a launch takes is added to its work on requests; behind a
    slow device neither is seen."""
    bound = replace(BACKEND, host_s_per_request=1e-2, host_s_per_step=0.0, gap_s_per_step=0.0)
    tpot = [
        metrics(replace(bound, launch_s=launch)).values["tpot_s"][0] for launch in (0.0, 1e-5, 2e-5)
    ]
    assert tpot[0] < tpot[1] < tpot[2]
    np.testing.assert_allclose(tpot[2] - tpot[0], 2.0 * (tpot[1] - tpot[0]), rtol=0.05)
    free = replace(bound, host_s_per_request=0.0)
    quick, hidden = (
        metrics(replace(free, launch_s=launch)).values["tpot_s"][0] for launch in (0.0, 1e-6)
    )
    assert quick == hidden


def test_without_window_caches_every_layer_keeps_the_whole_length() -> None:
    kept, whole = (
        metrics(replace(BACKEND, window_cache=own), "gpt-oss-120b").performance.memory
        for own in (True, False)
    )
    # Half of its layers have a window of 128 tokens.
    ratio = whole.kv_per_request / kept.kv_per_request
    assert 1.6 < ratio[0] < 2.0
    same = [metrics(replace(BACKEND, window_cache=own)) for own in (True, False)]
    assert same[0].performance.memory.kv_per_request == same[1].performance.memory.kv_per_request


@pytest.mark.parametrize("concurrency", [1, 64, 4096])
def test_a_stock_launch_is_slower_on_the_device_alone(concurrency: int) -> None:
    """By its factor where the host adds nothing, by less where it does, and never faster."""
    bare = replace(
        BACKEND,
        host_s_per_step=0.0,
        gap_s_per_step=0.0,
        host_s_per_request=0.0,
        first_token_s=0.0,
        prompt_token_s=0.0,
        launch_s=0.0,
        stock_steps=1.5,
    )
    times = ("decode_step_s", "tpot_s", "ttft_s")

    def ratio(backend, name):
        load = Workload.of(1024, 256, "static", backend)
        loads = (load, replace(load, tuning="stock"))
        batch = deploy("llama-3-8b", "h100_sxm", concurrency=concurrency)
        tuned, stock = (run(batch, one).values[name] for one in loads)
        return float(stock[0] / tuned[0])

    for name in times:
        assert ratio(bare, name) == pytest.approx(1.5)
        assert 1.0 < ratio(replace(bare, gap_s_per_step=0.02), name) < 1.5


def test_a_stock_launch_says_so_and_is_less_sure() -> None:
    tuned = dse.estimate("llama-3-8b", "h100_sxm")
    stock = dse.estimate("llama-3-8b", "h100_sxm", tuning="stock")
    assert tuned.tpot_s == dse.estimate("llama-3-8b", "h100_sxm", tuning="tuned").tpot_s
    assert stock.tpot_s > tuned.tpot_s
    assert any("a stock launch takes" in text for text in stock.assumed)
    assert not any("stock" in text for text in tuned.assumed)
    wide, narrow = ((high / low) for low, high in (e.interval("tpot_s") for e in (stock, tuned)))
    assert wide > narrow


def test_the_host_takes_time_for_each_token_of_a_prompt_even_if_it_is_cached() -> None:
    batch = deploy("llama-3-8b", "h100_sxm", concurrency=8)
    backend = replace(BACKEND, prompt_token_s=0.0)

    def first(prompt: int, backend, cached: float) -> float:
        load = Workload.of(prompt, 256, "continuous", backend, prefix_hit_rate=cached)
        return float(run(batch, load).values["ttft_s"][0])

    for prompt in (512, 8192):
        for cached in (0.0, 0.9):
            slow = first(prompt, replace(backend, prompt_token_s=1e-5), cached)
            assert slow - first(prompt, backend, cached) == pytest.approx(1e-5 * prompt)


def test_a_backend_has_the_factors_of_what_it_is_calibrated_as() -> None:
    """And those of every backend on top, so that two factors on one field multiply."""
    factors = {"vllm.gap_s_per_step": 3.0, "backend.gap_s_per_step": 2.0, "other.launch_s": 9.0}
    known = Calibration(factors, {})
    same = replace(BACKEND, id="mine", calibrated_as="vllm", gap_s_per_step=0.001)
    assert known.backend(same).gap_s_per_step == pytest.approx(0.006)
    assert known.backend(replace(same, calibrated_as="")).gap_s_per_step == pytest.approx(0.002)
    assert known.backend(same).launch_s == same.launch_s


# Launch settings of measured rows: their columns, and InferenceX's scripts.


ROW = {
    "model": "deepseek-v3",
    "chip": "h200_sxm",
    "n_chips": "8",
    "tp": "8",
    "ep": "",
    "dp": "",
    "engine": "sglang",
    "serving": "continuous",
    "metric": "ttft_s",
    "prompt_tokens": "4096",
    "output_tokens": "512",
    "concurrency": "64",
    "notes": "",
}


def estimated(*changes: dict[str, str]) -> pd.DataFrame:
    rows = pd.DataFrame([ROW | change for change in changes]).fillna("")
    return estimate_table(rows)


def test_rarer_looks_delay_the_first_token_and_not_the_rest() -> None:
    found = estimated(*({"poll_steps": steps} for steps in ("1", "10", "30")))
    assert (np.diff(found.predicted.astype(float)) > 0).all()
    token = estimated(*({"poll_steps": steps, "metric": "tpot_s"} for steps in ("1", "30")))
    slow, seldom = token.predicted.astype(float)
    assert seldom <= slow  # prompts that come together delay each other, not the decoding


def test_a_cap_makes_requests_wait() -> None:
    free, capped = estimated({}, {"max_running_requests": "16"}).predicted.astype(float)
    rate = estimated({"metric": "tpot_s", "max_running_requests": "16"}).predicted.astype(float)[0]
    assert capped - free > 2 * 512 * rate  # three rounds of sixteen go before the last sixteen


@pytest.mark.parametrize("text", ["0", "-3", "many", "inf"])
def test_a_setting_that_is_no_number_is_named(text) -> None:
    status = estimated({"chunk_tokens": text}).status[0]
    assert "chunk_tokens" in status
    assert text in status


def test_scripts_fill_what_the_row_leaves_open_and_say_so() -> None:
    notes = {"notes": "from InferenceX DB export", "engine": "trtllm 1.1.0rc2.post2"}
    read, told = estimated(notes, notes | {"chunk_tokens": "4096"}).assumed
    assert "chunk_tokens 8320" in read
    assert "first_token_steps 10" in read
    assert "chunk_tokens" not in told


IX = {"notes": "from InferenceX DB export; measured=2026-01-14T00:00:00", "speculative": "unknown"}
MTP = IX | {"engine": "trtllm 1.1.0rc2.post2", "chip": "b200_sxm", "metric": "tpot_s"}


@pytest.mark.parametrize(
    ("change", "drafted"),
    [
        ({}, 3),
        ({"tp": "1", "dp": "8", "ep": "8"}, 1),
        ({"engine": "trtllm 1.2.0rc6.post3", "notes": "InferenceX DB; measured=2026-02-06"}, 3),
        ({"speculative": "off"}, 0),
        ({"notes": "InferenceX DB; measured=2025-12-15"}, 0),
        ({"engine": "trtllm 1.2.0rc6.post2"}, 0),
        ({"notes": "measured=2026-01-14"}, 0),
        ({"model": "gpt-oss-120b"}, 0),
    ],
)
def test_scripts_that_draft_are_told_by_release_and_day(
    change: dict[str, str], drafted: int
) -> None:
    (text,) = estimated(MTP | change).assumed
    assert ("drafted" in text) == bool(drafted)
    assert not drafted or f"{drafted} drafted" in text


def test_drafts_shorten_a_token_by_less_than_what_they_gain() -> None:
    found = estimated(MTP, MTP | {"speculative": "off"}).predicted.astype(float)
    assert 1.0 < found[1] / found[0] < 2.44


@pytest.mark.parametrize(
    ("change", "cache"),
    [
        ({"engine": "vllm", "model": "llama-3-70b", "chip": "b200_sxm"}, "fp8"),
        ({"engine": "vllm", "model": "llama-3-70b", "chip": "h100_sxm"}, ""),
        ({"engine": "vllm 0.15.1", "model": "gpt-oss-120b", "chip": "b200_sxm"}, "fp8"),
        ({"engine": "vllm", "model": "gpt-oss-120b", "chip": "b200_sxm"}, ""),
        ({"engine": "vllm 0.15.1", "model": "gpt-oss-120b"}, ""),
        ({"engine": "trtllm 1.2.0rc2", "model": "gpt-oss-120b"}, ""),
        ({"engine": "sglang 0.5.9", "chip": "b200_sxm", "weight_dtype": "fp8"}, "fp8"),
        ({"engine": "sglang 0.5.9", "chip": "b200_sxm", "weight_dtype": "bf16"}, ""),
        ({"engine": "vllm", "model": "llama-3-70b", "chip": "b200_sxm", "kv_dtype": "bf16"}, ""),
    ],
)
def test_the_cache_is_that_of_the_script_unless_the_row_says_it(
    change: dict[str, str], cache: str
) -> None:
    (text,) = estimated(IX | change).assumed
    assert ("by its script KV cache" in text) == bool(cache)
    assert not cache or f"by its script KV cache {cache}" in text


def test_four_bit_experts_of_tensorrt_llm_have_a_wide_cache_on_hopper_alone() -> None:
    """Its overview says so (docs/source/developer-guide/perf-overview.md: kv_cache_config)."""
    row = {"engine": "TensorRT-LLM v1.2", "model": "gpt-oss-120b", "serving": "offline"}
    row |= {"metric": "output_tokens_per_s", "tp": "1", "n_chips": "1", "concurrency": ""}
    found = estimated(row, row | {"chip": "b200_sxm"}, row | {"kv_dtype": "fp8"}).assumed
    assert ["KV cache bf16" in text for text in found] == [True, False, False]
    assert "KV cache fp8" in found[1]


def test_early_launch_is_on_by_default_from_release_1_2_on() -> None:
    rows = [
        {**IX, "engine": f"trtllm {release}", "chip": chip, "metric": "tpot_s", "concurrency": "4"}
        for chip in ("b200_sxm", "h200_sxm")
        for release in ("1.1.0rc0", "1.2.0rc6")
    ]
    old, new, old_hopper, new_hopper = estimated(*rows).predicted.astype(float)
    assert old > 1.05 * new
    assert old_hopper == new_hopper  # its kernels know no early launch


def test_requests_cost_time_between_steps_only_where_scheduling_waits() -> None:
    row = {"model": "llama-3-8b", "n_chips": "1", "tp": "1", "metric": "tpot_s"}
    row |= {"chip": "h200_sxm", "prompt_tokens": "128", "concurrency": "256"}
    old, new = estimated(*(row | {"engine": f"vllm 0.{n}.0"} for n in (12, 14))).predicted
    assert float(old) > 1.05 * float(new)


def test_a_client_that_warms_up_meets_no_cold_server() -> None:
    notes = {"notes": "from InferenceX DB export"}
    cold, warm = estimated(notes | {"date": "2026-01-14"}, notes | {"date": "2026-03-25"}).predicted
    assert cold - warm == pytest.approx(3.0 / 10.0)  # a cold burst of 3 s, one of ten rounds
    engine = {"engine": "vllm 0.13.0"}
    first, last = estimated(
        notes | engine | {"date": "2026-01-14"}, notes | engine | {"date": "2026-03-25"}
    ).predicted
    assert first == last


def test_amd_s_server_rows_of_mlperf_look_every_ten_steps() -> None:
    server = {"model": "llama-2-70b", "weight_dtype": "fp8", "engine": "vLLM 0.6.5", "tp": "1"}
    server |= {"n_chips": "8", "dp": "8", "prompt_tokens": "294", "output_tokens": "301"}
    server |= {"serving": "poisson", "concurrency": "3000", "chip": "mi300x"}
    known = server | {"notes": "MLPerf Inference v5.1, closed"}
    found = estimated(server, known, known | {"chip": "h200_sxm"})
    assert ["poll_steps 10" in assumed for assumed in found.assumed] == [False, True, False]
    assert found.predicted[1] > 2 * found.predicted[0]
