"""Launch settings of measured rows: their columns, and InferenceX's scripts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dse.accuracy.serving_points import ROUNDS, estimate_rows
from dse.accuracy.serving_rows import COLD_S

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
    return estimate_rows(rows)


def test_an_empty_setting_is_that_of_the_backend() -> None:
    without = estimate_rows(pd.DataFrame([ROW])).predicted
    assert estimated({"poll_steps": ""}).predicted.tolist() == without.tolist()


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
    assert cold - warm == pytest.approx(COLD_S / ROUNDS)
    engine = {"engine": "vllm 0.13.0"}
    first, last = estimated(
        notes | engine | {"date": "2026-01-14"}, notes | engine | {"date": "2026-03-25"}
    ).predicted
    assert first == last


def test_llama_waits_for_company_as_its_script_says() -> None:
    llama = {"model": "llama-3-70b", "weight_dtype": "fp8", "engine": "trtllm", "tp": "4"}
    llama |= {"n_chips": "4", "prompt_tokens": "1024", "output_tokens": "1024"}
    known = llama | {"notes": "from InferenceX DB export"}
    found = estimated(known, known | {"output_tokens": "8192"}, known | {"tp": "8", "n_chips": "8"})
    waits = ["first_token_steps 20" in assumed for assumed in found.assumed]
    assert waits == [True, False, False]


def test_amd_s_server_rows_of_mlperf_look_every_ten_steps() -> None:
    server = {"model": "llama-2-70b", "weight_dtype": "fp8", "engine": "vLLM 0.6.5", "tp": "1"}
    server |= {"n_chips": "8", "dp": "8", "prompt_tokens": "294", "output_tokens": "301"}
    server |= {"serving": "poisson", "concurrency": "3000", "chip": "mi300x"}
    known = server | {"notes": "MLPerf Inference v5.1, closed"}
    found = estimated(server, known, known | {"chip": "h200_sxm"})
    assert ["poll_steps 10" in assumed for assumed in found.assumed] == [False, True, False]
    assert found.predicted[1] > 2 * found.predicted[0]
