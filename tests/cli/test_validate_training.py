"""dse validate and dse estimate --points on rows of training."""

from __future__ import annotations

import csv
from pathlib import Path

from dse.data import hardware_dir
from tests.cli.conftest import ask, dse, fits

TRAINING = hardware_dir() / "measurements" / "training.csv"
HEAD = (
    "model,chip,n_chips,tp,pp,dp,dtype,sequence_length,global_batch_tokens,micro_batch,virtual_pp,"
    "task,engine,metric,value\n"
)
ROW = (
    "llama-3-70b,h100_sxm,64,4,8,2,fp8,8192,2097152,1,5,pretrain,NeMo,tokens_per_s_per_chip,1640\n"
)
SERVED = "model,chip,tp,engine,serving,prompt_tokens,output_tokens,concurrency,metric,value,task\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_rows_are_told_by_their_columns() -> None:
    document = ask("validate", "--data", TRAINING)
    assert document["rows"] == 577
    assert document["covered"] >= 0.95 * document["rows"]
    overall = {
        (item["metric"], item["serving"]): item
        for item in document["scores"]
        if item["by"] == "all"
    }
    assert len(overall) == sum(item["by"] == "all" for item in document["scores"])
    main = overall["tokens_per_s_per_chip", "pretrain"]
    assert main["group_median_error"] < 0.12
    backends = {item["key"] for item in document["scores"] if item["by"] == "backend"}
    assert {"megatron", "maxtext", "fsdp", "generic"} <= backends
    assert document["speed_up"]["pairs"] == 0
    # Asked for as a person would: no software, no degrees, no release.
    asked = document["asked"]
    assert asked["rows"] + asked["superseded"] == document["covered"]
    score, told = (
        next(
            one
            for one in asked[name]
            if (one["metric"], one["serving"], one["by"])
            == ("tokens_per_s_per_chip", "pretrain", "all")
        )
        for name in ("scores", "told")
    )
    assert score["rows"] == told["rows"] > 100
    assert score["median_error"] <= 1.3 * told["median_error"]
    assert score["interval_coverage"] > 0.75


def test_rows_of_both_kinds_in_one_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.csv",
        SERVED
        + "llama-3-8b,h100_sxm,1,vllm,continuous,1024,256,8,tpot_s,0.009,\n"
        + "llama-3-8b,h100_sxm,1,FSDP,,,,,tokens_per_s_per_chip,9000,pretrain\n",
    )
    document = ask("validate", "--data", path)
    assert (document["rows"], document["covered"]) == (2, 2)
    assert {item["serving"] for item in document["scores"]} == {"continuous", "pretrain"}
    assert {item["key"] for item in document["scores"] if item["by"] == "backend"} == {
        "vllm", "fsdp",
    }  # fmt: skip


def test_a_row_that_a_newer_release_has_superseded_is_not_asked_for(tmp_path: Path) -> None:
    old, new = (
        ROW.replace("NeMo", f"Megatron-Bridge {release} NeMo Container")
        for release in ("25.11", "26.04")
    )
    path = write(tmp_path / "rows.csv", HEAD + old + new + ROW.replace("llama-3-70b", "llama-3-8b"))
    asked = dse("validate", "--data", path, "--json").json()["asked"]
    assert (asked["rows"], asked["superseded"]) == (2, 1)
    assert "left out: 1 rows" in dse("validate", "--data", path, "--detail").out


def test_what_is_not_covered_is_counted_with_its_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.csv",
        HEAD + ROW + ROW.replace("64,4", "63,4") + ROW.replace("fp8", "fp7") * 2
        + ROW.replace("1640", "fast") + ROW.replace("tokens_per_s_per_chip", "watts"),
    )  # fmt: skip
    document = ask("validate", "--data", path)
    assert (document["rows"], document["covered"]) == (6, 1)
    assert {(item["reason"], item["rows"]) for item in document["not_covered"]} == {
        ("tp x cp x pp x dp is not n_chips", 1),
        ("dtype 'fp7' is not known", 2),
        ("value is not a positive number", 1),
        ("metric 'watts' is not modelled", 1),
    }


def test_text_fits_and_says_what_it_is(tmp_path: Path) -> None:
    said = dse("validate", "--data", write(tmp_path / "rows.csv", HEAD + ROW * 5))
    assert said.code == 0, said.err
    assert said.out.startswith("How far off: training tokens per second and chip (pretrain)")
    assert fits(said.out, 100)
    assert "nan" not in said.out.lower()


def test_points_of_training(tmp_path: Path) -> None:
    points, out = write(tmp_path / "points.csv", HEAD + ROW), tmp_path / "out.csv"
    assert dse("estimate", "--points", points, "--out", out).code == 0
    with out.open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["status"] == "ok"
    assert float(row["predicted_low"]) < float(row["predicted"]) < float(row["predicted_high"])
    assert "ZeRO stage 1, the habit of megatron" in row["assumed"]
