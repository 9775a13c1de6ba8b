"""Launch settings of measured rows: their columns, and InferenceX's scripts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dse.accuracy.launches import COLD_S
from dse.accuracy.points import ROUNDS, estimate_rows

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
