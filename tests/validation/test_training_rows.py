"""Training rows: what is read, what is filled in, and the published FLOPs of a token."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dse.accuracy.training_row import COUNTS, TEXTS, TrainingRow, read_training_row
from dse.accuracy.training_rows import TRAINED, runs_of
from dse.accuracy.validate import training_rows
from dse.catalog import MEASUREMENTS, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.problem.training import with_prediction_layer
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model

SHIPPED = hardware_dir() / MEASUREMENTS / "training.csv"
ROW = {
    "model": "llama-3-70b", "chip": "h100_sxm", "n_chips": "64", "tp": "4", "pp": "8", "cp": "1",
    "dp": "2", "dtype": "fp8", "sequence_length": "8192", "global_batch_tokens": "2097152",
    "micro_batch": "1", "virtual_pp": "5", "task": "pretrain", "metric": "tokens_per_s_per_chip",
    "engine": "Megatron-Bridge 26.04 NeMo Container",
}  # fmt: skip


def read(**changed: str) -> TrainingRow:
    cells = dict.fromkeys((*COUNTS, *TEXTS), "") | ROW | changed
    models: dict[str, Model | str] = {}
    return read_training_row(cells, load_catalog(), models)


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return pd.read_csv(SHIPPED, dtype=str, keep_default_na=False)


def test_a_whole_row_assumes_little() -> None:
    row = read()
    assert row.degrees == {
        "tp": 4, "pp": 8, "cp": 1, "ep": 1, "dp": 2, "virtual_pp": 5, "micro_batch": 1,
    }  # fmt: skip
    assert (row.plan["precision"], row.stack, row.plan["zero_stage"], row.plan["recompute"]) == (
        "fp8", "megatron", 1.0, "none",
    )  # fmt: skip
    assert row.assumed == (
        "ZeRO stage 1, the habit of megatron; recomputation none, the habit of megatron"
    )


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("mxfp8", "mxfp8"), ("FP8-MX", "mxfp8"), ("fp8-cs", "fp8"), ("fp8_full", "fp8"),
        ("float8", "fp8"), ("nvfp4", "nvfp4"), ("amp_bf16", "bf16"), ("", "bf16"),
    ],
)  # fmt: skip
def test_names_of_precisions(dtype: str, precision: str) -> None:
    row = read(dtype=dtype)
    assert row.plan["precision"] == precision
    assert ("precision" in row.assumed) == (dtype == "")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "llama-9"}, "no model 'llama-9'"),
        ({"chip": "h1000"}, "no chip 'h1000'"),
        ({"task": "distil"}, "task 'distil' is not modelled"),
        ({"metric": "watts"}, "metric 'watts' is not modelled"),
        ({"dtype": "fp7"}, "dtype 'fp7' is not known"),
        ({"n_chips": "63"}, "tp x cp x pp x dp is not n_chips"),
        ({"n_chips": "sixty"}, "n_chips is no whole number up to 100,000: 'sixty'"),
        ({"tp": "-4"}, "tp is no whole number up to 100,000: '-4'"),
        ({"ep": "3"}, "ep does not divide tp x cp x dp"),
        ({"sequence_length": "nan"}, "sequence_length is no whole number .*: 'nan'"),
        ({"metric": "chip_hours"}, "on how many tokens"),
    ],
)
def test_what_is_not_covered_says_why(changed: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(**changed)


def test_a_public_recipe_fills_what_its_table_leaves_open() -> None:
    """MaxText's recipe for 131,072 tokens on TPU7x has context parallelism 8 over cores, two a
    chip; that of Llama 4 Scout on v5p has 8 sequences a chip, hence 512 chips."""
    empty = dict.fromkeys(("tp", "pp", "cp", "dp", "micro_batch", "virtual_pp", "dtype"), "")
    tpu = empty | {"engine": "MaxText", "chip": "tpu_v7x", "n_chips": "256"}
    row = read(**tpu, sequence_length="131072", global_batch_tokens="8388608")
    assert (row.degrees["cp"], row.degrees["dp"], row.degrees["micro_batch"]) == (4, 64, 1)
    assert row.plan["zero_stage"] == 3.0
    assert "context parallelism 4 as in its recipe" in row.assumed
    scout = tpu | {"model": "llama-4-scout", "chip": "tpu_v5p", "n_chips": ""}
    row = read(**scout, sequence_length="", global_batch_tokens="33554432")
    assert (row.degrees["dp"], row.plan["sequence_length"]) == (512, 8192)
    assert "512 chips: 8 sequences a chip" in row.assumed


def test_expert_layers_are_fused_from_the_version_that_says_so() -> None:
    sparse = {
        "model": "qwen3-30b-a3b", "chip": "gb200_nvl72", "n_chips": "8", "tp": "1", "pp": "1",
        "dp": "8", "ep": "8", "virtual_pp": "", "dtype": "mxfp8", "sequence_length": "4096",
    }  # fmt: skip
    newer, older = (
        read(**sparse, engine=f"Megatron-Bridge {version} NeMo Container")
        for version in ("26.06.01", "26.04.01")
    )
    assert (newer.stack, older.stack) == ("megatron-fused", "megatron")
    assert read(**sparse | {"dtype": "bf16"}).stack == "megatron"


def test_deepseek_trains_its_prediction_layer_unless_the_notes_say_not() -> None:
    plain = resolve_model("deepseek-v3")
    longer = with_prediction_layer(plain)
    assert [block.count for block in longer.blocks] == [62, 3, 59]
    changed = {"model": "deepseek-v3", "ep": "8", "virtual_pp": ""}
    assert read(**changed).model.num_hidden_layers == 62
    assert read(**changed, notes="MBS 1; w/o MTP; VP 4").model.num_hidden_layers == 61
    assert read(**changed, engine="MaxText").model.num_hidden_layers == 61


def test_nemotron_super_goes_through_its_prediction_layer_twice() -> None:
    """One attention and one sparse feed-forward a pass, no state; and the head again."""
    plain = resolve_model("nemotron-3-super-120b-a12b")
    longer = with_prediction_layer(plain, 2)
    counts = {block.kind: block.count for block in plain.blocks}
    assert {block.kind: block.count for block in longer.blocks} == counts | {
        "gqa": counts["gqa"] + 2,
        "moe": counts["moe"] + 2,
    }
    assert longer.vocab_size == 3 * plain.vocab_size


def test_four_bit_rows_keep_in_bf16_what_their_recipe_keeps() -> None:
    four = {"chip": "gb300_nvl72", "dtype": "nvfp4"}
    assert read(model="llama-3-70b", **four).plan["bf16_share"] == 0.0
    assert read(model="llama-3-8b", engine="", **four).plan["bf16_share"] == 0.15
    assert read(model="llama-3-70b", chip="gb300_nvl72", dtype="mxfp8").plan["bf16_share"] == 0.0


def test_tensor_traffic_hides_where_the_recipe_does_not_switch_it_off() -> None:
    assert read(model="nemotron-3-super-120b-a12b", chip="gb200_nvl72").plan["tensor_hidden"] == 0.0
    assert read(model="qwen3-235b-a22b", chip="h100_sxm").plan["tensor_hidden"] == 0.0
    assert read(model="qwen3-235b-a22b", chip="gb200_nvl72").plan["tensor_hidden"] == 1.0


def test_maxtext_says_sequences_a_chip() -> None:
    tpu = {
        "engine": "MaxText", "model": "llama-4-maverick", "chip": "tpu_v5p", "n_chips": "128",
        "tp": "", "pp": "", "cp": "", "dp": "", "virtual_pp": "", "dtype": "bf16",
        "sequence_length": "8192", "global_batch_tokens": "4194304", "micro_batch": "4",
        "notes": "ici_fsdp_parallelism 32; ici_tensor_parallelism 4",
    }  # fmt: skip
    row = read(**tpu)
    assert (row.degrees["tp"], row.degrees["dp"], row.degrees["micro_batch"]) == (4, 32, 16)


def test_gradients_of_speed_benchmarks_are_reduced_in_16_bits() -> None:
    assert read().plan["gradient_bytes"] == 2.0
    assert read(engine="MaxText", micro_batch="").plan["gradient_bytes"] == 4.0


def test_a_whole_run_has_its_tokens_from_its_notes() -> None:
    open_ = dict.fromkeys((*COUNTS, "dtype", "engine"), "")
    row = read(**open_ | {"metric": "chip_hours", "notes": "pretraining tokens ~22T multimodal"})
    assert row.run_tokens == 22e12
    assert row.stack == "generic"
    assert "1024 chips" in row.assumed


def test_every_shipped_row_is_read_or_says_why_it_is_left_out(shipped: pd.DataFrame) -> None:
    assert len(shipped) == 604
    assert training_rows(shipped).all()
    for column in ("source", "licence"):
        assert (shipped[column] != "").all()
    assert (shipped["group"] == shipped["model"] + "|" + shipped["chip"]).all()
    counted = shipped[shipped["exclude"] == ""].reset_index(drop=True)
    readout = TRAINED.read(counted, load_catalog())
    assert set(readout.status) == {"ok"}


def test_published_flops_of_a_token(shipped: pd.DataFrame) -> None:
    """Where a source prints tokens and FLOPs of the same run, their ratio is its convention's
    FLOPs of a token: within half a percent for dense and sparse models, windows and LoRA; 2.5% for
    DeepSeek-V3, whose second output head is left out."""
    rows = shipped[shipped["exclude"] == ""].reset_index(drop=True)
    readout = TRAINED.read(rows, load_catalog())
    ours = np.full(len(rows), np.nan)
    for group in readout.groups:
        ours[group.position] = group.posed.flops[group.configuration]
    rows = rows.assign(run=runs_of(readout), ours=ours, value=rows["value"].astype(float))
    pairs = rows.pivot_table(index="run", columns="metric", values="value", aggfunc="first")
    printed = pairs["model_flops_per_s_per_chip"] / pairs["tokens_per_s_per_chip"]
    first = rows.groupby("run").first()
    ratio = (first["ours"] / printed).dropna()
    models = first["model"].loc[ratio.index]
    for name, room in (
        ("llama-3-8b", 0.005), ("llama-3-70b", 0.005), ("qwen3-30b-a3b", 0.01),
        ("qwen3-235b-a22b", 0.005), ("deepseek-v3", 0.025), ("llama-4-scout", 0.005),
        ("gpt-oss-120b", 0.005), ("gemma-4-26b-a4b", 0.005),
    ):  # fmt: skip
        assert np.median(np.abs(ratio[models == name] - 1.0)) < room, name
    said = rows[rows["metric"] == "mfu"]
    tokens = said["notes"].str.extract(r"T/s/GPU (\d+)", expand=False).astype(float)
    flops = said["notes"].str.extract(r"model TFLOP/s/GPU (\d+)", expand=False).astype(float)
    assert np.abs(tokens * said["ours"] / (flops * 1e12) - 1.0).median() < 0.005


def test_rows_are_told_apart_by_their_columns() -> None:
    table = pd.DataFrame(
        {
            "task": ["", "sft", "", ""],
            "serving": ["offline", "", "", "continuous"],
            "metric": ["tokens_per_s", "step_s", "tokens_per_s_per_chip", "tpot_s"],
        }
    )
    assert training_rows(table).tolist() == [False, True, True, False]
    assert training_rows(table.drop(columns="serving")).all()
    assert not training_rows(table.drop(columns="task")).any()
