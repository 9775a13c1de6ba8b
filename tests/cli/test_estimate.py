"""`dse estimate`: one point, a point of a study, a file of points."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ask, dse, fits

POINT = ("--model", "llama-3-70b", "--chip", "h100_sxm", "--tp", "8")
KEYS = (
    "ttft_s", "tpot_s", "prefill_s", "decode_step_s", "output_tokens_per_s",
    "output_tokens_per_s_per_chip", "output_tokens_per_s_per_user", "running_requests",
    "usd_per_million_output_tokens", "usd_per_million_input_tokens",
    "usd_per_million_total_tokens", "joules_per_output_token", "memory_bytes_per_chip",
    "memory_capacity_bytes_per_chip", "latency_floor_s", "bottleneck", "mfu", "mbu",
    "predicted_loss", "dense_equivalent_parameters", "total_parameters", "active_parameters",
    "kv_bytes_per_token", "feasible", "violations", "intervals", "provenance", "assumed",
)  # fmt: skip


def test_json_has_the_promised_keys():
    document = ask("estimate", *POINT)
    assert set(KEYS) <= set(document)
    assert document["output_tokens_per_s_per_user"] == pytest.approx(1 / document["tpot_s"])
    assert sum(document["memory_bytes_per_chip_parts"].values()) == pytest.approx(
        document["memory_bytes_per_chip"]
    )
    assert document["feasible"]
    for low, high in document["intervals"].values():
        assert low < high


def test_what_does_not_apply_is_null():
    document = ask("estimate", "--model", "kimi-k2", "--chip", "tpu_v5e")
    assert not document["feasible"]
    assert document["usd_per_million_total_tokens"] is None
    assert [row["constraint"] for row in document["violations"]] == ["memory_capacity"]


@pytest.mark.parametrize("columns", [100, 60])
def test_text_fits_and_says_what_the_numbers_are(monkeypatch: pytest.MonkeyPatch, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = dse("estimate", *POINT)
    assert said.code == 0
    assert fits(said.out, columns)
    for words in ("Llama-3-70B on 8 x h100_sxm", "prices: rental_3yr", "ms", "GB", "Feasible."):
        assert words in said.out
    assert "Known as: fitted:" in said.out


def test_an_infeasible_point_is_an_answer():
    said = dse("estimate", "--model", "llama-3-70b", "--chip", "l40s", "--tp", "3")
    assert said.code == 0
    assert "Infeasible: breaks memory_capacity" in said.out
    assert "Infeasible: breaks heads_divide_by_tensor_parallel: query heads" in said.out
    assert "100.0%" not in said.out


def test_flags_reach_the_answer():
    document = ask(
        "estimate",
        *POINT,
        "--replicas",
        2,
        "--weight-dtype",
        "FP8",
        "--kv-dtype",
        "fp8",
        "--prompt-tokens",
        100,
        "--output-tokens",
        10,
        "--concurrency",
        4,
        "--serving",
        "static",
        "--backend",
        "vllm",
        "--set",
        "price_basis=on_demand",
        "--set",
        "training_tokens=3T",
    )
    deployment, load = document["deployment"], document["workload"]
    assert (deployment["chips"], deployment["weight_dtype"], deployment["kv_dtype"]) == (
        16, "fp8", "fp8",
    )  # fmt: skip
    assert (load["prompt_tokens"], load["output_tokens"]) == (100, 10)
    assert (load["serving"], load["backend"]) == ("static", "vllm")
    assert document["price_basis"] == "on_demand"
    assert document["training_tokens"] == 3e12


def test_a_config_file_is_a_model():
    path = Path(__file__).parents[1] / "data" / "configs" / "llama-3-8b.json"
    mine = ask("estimate", "--model", path, "--chip", "h100_sxm")
    known = ask("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm")
    assert mine["tpot_s"] == known["tpot_s"]
    assert mine["predicted_loss"] is None


def test_a_point_of_a_study_cites_the_study(tiny: Path):
    assumed = ask("estimate", tiny, "cheapest")["assumed"]
    assert assumed[-1].startswith(f"from {tiny / 'front.json'}, point")


def test_files_of_a_point_hold_raw_numbers(tmp_path: Path):
    said = dse("estimate", *POINT, "--detail", "--json", "--out", tmp_path)
    document = said.json()
    assert json.loads((tmp_path / "estimate.json").read_text(encoding="utf-8"))["command"]
    rows = csv.DictReader((tmp_path / "estimate.csv").read_text(encoding="utf-8").splitlines())
    values = {row["metric"]: row for row in rows}
    assert float(values["tpot_s"]["value"]) == pytest.approx(document["tpot_s"], rel=1e-8)
    low, high = document["intervals"]["tpot_s"]
    assert float(values["tpot_s"]["low"]) == pytest.approx(low, rel=1e-8)
    assert float(values["tpot_s"]["high"]) == pytest.approx(high, rel=1e-8)
    page = (tmp_path / "estimate.html").read_text(encoding="utf-8")
    assert "Where the time goes" in page


HEADER = (
    "model,chip,serving,metric,prompt_tokens,output_tokens,tp,concurrency,engine,weight_dtype\n"
)
ROWS = HEADER + (
    "llama-3-8b,h100_sxm,continuous,tpot_s,1024,256,1,16,vllm,bf16\n"
    "llama-3-8b,h100_sxm,continuous,output_tokens_per_s,1024,256,1,16,vllm,bf16\n"
    "llama-9,h100_sxm,continuous,tpot_s,1024,256,1,16,vllm,bf16\n"
    "llama-3-8b,abacus,continuous,tpot_s,1024,256,1,16,vllm,bf16\n"
    "llama-3-8b,h100_sxm,continuous,tpot_s,-1,256,1,16,vllm,bf16\n"
)


def test_points_of_a_file(tmp_path: Path):
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    path.write_text(ROWS, encoding="utf-8")
    said = ask("estimate", "--points", path, "--out", out)
    assert said == {"rows": 5, "ok": 2, "infeasible": 0}
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    for row in rows[:2]:
        low, mid, high = (float(row[f"predicted{end}"]) for end in ("_low", "", "_high"))
        assert low < mid < high
        assert row["status"] == "ok"
    assert float(rows[0]["floor"]) < float(rows[0]["predicted"])
    for row, reason in zip(rows[2:], ("llama-9", "abacus", "prompt_tokens"), strict=True):
        assert reason in row["status"]
        assert row["predicted"] == ""
    one = ask(
        "estimate --model llama-3-8b --chip h100_sxm --prompt-tokens 1024 --output-tokens 256 "
        "--concurrency 16 --backend vllm"
    )
    # The row is a benchmark that starts all its requests at once, the estimate a steady state.
    assert float(rows[0]["predicted"]) == pytest.approx(one["tpot_s"], rel=0.05)
    said = dse("estimate", "--points", path, "--out", out)
    assert " ".join(said.out.split()) == f"2 of 5 rows predicted, written to {out}"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_console_without_unicode_is_enough(encoding: str):
    ended = subprocess.run(
        [sys.executable, "-m", "dse", "estimate", *POINT],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == b""
