"""Shape rules against closed forms, published cases and what the software is known to refuse."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from benchmarks.temptations import published
from dse.data import hardware_dir
from dse.errors import NothingFeasible
from dse.physics import gemms
from dse.physics.alignment import MISALIGNED
from dse.physics.deployed import Deployed
from dse.physics.step import Step, Work
from dse.rules.bands import BANDS, RULES, WIDTHS, bands
from dse.rules.case import Case, split_widths
from dse.rules.deployment import mx_padding
from dse.rules.registry import findings, judge
from dse.rules.waste import tile_efficiency, wave_efficiency
from dse.schema.model_catalog import load_models
from tests.helpers import MODELS, deploy, machines
from tests.helpers_models import batch_of_models
from tests.helpers_spaces import space


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


def broken(batch, stack: str = "vLLM") -> set[str]:
    """Rules by which `stack` refuses the one shape of a batch."""
    return {
        finding.rule.name
        for finding in findings(Case(batch))
        if stack in finding.rule.stacks and finding.broken[0]
    }


# Products


def test_llama_up_projection_on_two_blackwells():
    """Llama-3-8B at 8,192 tokens: 3,584 tiles of 128 x 256 are 25 waves of 148 SMs, 24 of 152."""
    rows, out, tile = one(8192), one(14336), (128.0, 256.0)
    assert tile_efficiency(rows, out, tile)[0] == 1.0
    assert wave_efficiency(rows, out, tile, 148)[0] == pytest.approx(3584 / (25 * 148), rel=1e-15)
    assert wave_efficiency(rows, out, tile, 152)[0] == pytest.approx(3584 / (24 * 152), rel=1e-15)


@given(
    st.integers(1, 9000), st.integers(1, 9000), st.sampled_from([64, 128, 256]), st.integers(1, 304)
)
def test_tiles_and_waves_count_what_a_loop_counts(m: int, n: int, side: int, units: int):
    tiles = sum(1 for _ in range(0, m, side)) * sum(1 for _ in range(0, n, side))
    used = tile_efficiency(one(m), one(n), (side, side))[0]
    assert used == pytest.approx(m * n / (tiles * side * side))
    assert 0.0 < used <= 1.0
    busy = wave_efficiency(one(m), one(n), (side, side), units)[0]
    split = max(units // tiles, 1)
    rounds = math.ceil(tiles * split / units)
    assert busy == pytest.approx(tiles * split / (rounds * units))
    assert 0.5 < busy <= 1.0


def test_the_cliff_is_the_measured_one():
    with (hardware_dir() / "measurements" / "gemm_alignment.csv").open() as file:
        rates = {
            row["size"]: float(row["value"])
            for row in csv.DictReader(file)
            if row["quantity"] == "gemm_flops_per_s"
        }
    assert pytest.approx(rates["10922"] / rates["10944"]) == MISALIGNED


# The products of a step


@pytest.mark.parametrize("model", MODELS)
def test_noting_products_changes_no_step(model: str):
    deployed = Deployed(deploy(model, "h200_sxm", tensor_parallel=4.0), machines())
    ones = np.ones(1)
    work = Work(0 * ones, 0 * ones, prefill_rows=2048.0 * ones, prompt_tokens=2048.0 * ones)
    plain = Step(deployed, work)
    noted = gemms.prefill(deployed, 2048.0, 2048.0)
    assert noted.seconds[0] == plain.seconds[0]
    assert 0.0 < sum(float(g.seconds[0]) for g in noted.gemms) < noted.seconds[0]
    for gemm in noted.gemms:
        if gemm.count[0]:
            assert gemm.seconds_at(1.0)[0] <= gemm.seconds[0] * (1 + 1e-12)
            assert gemm.seconds_at(0.5)[0] >= gemm.seconds_at(1.0)[0]


# What software refuses


@pytest.mark.parametrize(
    ("model", "tp", "rule"),
    [
        ("qwen2.5-7b", 8, "heads_divide_by_tensor_parallel"),  # 28 heads; vLLM issue 11797
        ("qwen2-57b-a14b", 8, "heads_divide_by_tensor_parallel"),  # 28 heads; vLLM issue 2652
        ("deepseek-v4-flash", 3, "heads_divide_by_tensor_parallel"),  # 64 heads; vLLM pull 52535
        ("qwen2.5-0.5b", 4, "heads_divide_by_tensor_parallel"),  # 14 heads; vllm-ascend pull 2139
        ("qwen2.5-7b", 7, "kv_heads_fit_tensor_parallel"),
        ("qwen2.5-7b", 7, "vocabulary_divides_by_tensor_parallel"),
    ],
)
def test_published_refusals(model: str, tp: int, rule: str):
    assert rule in broken(deploy(model, "h200_sxm", tensor_parallel=float(tp)))


@pytest.mark.parametrize(
    ("model", "tp"),
    [("qwen2.5-7b", 4), ("qwen2.5-0.5b", 2), ("llama-3-70b", 8), ("gpt-oss-20b", 8)],
)
def test_what_runs_is_taken(model: str, tp: int):
    assert not broken(deploy(model, "h200_sxm", tensor_parallel=float(tp)))


@pytest.mark.parametrize(
    ("model", "tp", "ep", "refused"),
    [
        ("qwen3-30b-a3b", 4, 1, True),  # 768 / 4 = 192; vLLM issue 17569
        ("qwen3-30b-a3b", 2, 1, False),
        ("qwen3-30b-a3b", 4, 4, False),
        ("minimax-m2", 8, 1, True),  # 1,536 / 8 = 192; works with expert parallelism
        ("minimax-m2", 8, 8, False),
        ("deepseek-v3", 32, 1, True),  # 18,432 / 32 = 576; SGLang issue 3345
        ("deepseek-v3", 16, 1, False),
    ],
)
def test_fp8_blocks(model: str, tp: int, ep: int, refused: bool):
    batch = deploy(
        model, "h200_sxm", weight_dtype="fp8_block", tensor_parallel=tp, expert_parallel=ep
    )
    for stack in ("vLLM", "SGLang"):
        assert ("fp8_blocks_whole" in broken(batch, stack)) == refused


def test_int4_groups_of_qwen2_72b():
    """29,568 = 231 groups of 128: no even split, as vLLM issue 5675 met."""
    batch = deploy("qwen2-72b", "h200_sxm", weight_dtype="int4", tensor_parallel=[1, 2, 8])
    (found,) = (
        f for f in findings(Case(batch)) if f.rule.name == "int4_groups_whole" and f.broken.any()
    )
    assert found.broken.tolist() == [False, True, True]


@pytest.mark.parametrize(("tp", "blocks"), [(1, 90), (2, 45), (4, 23), (8, 12)])
def test_mxfp4_blocks_of_gpt_oss(tp: int, blocks: int):
    """2,880 is 90 blocks of 32; a rank of four holds 23 of them, one of eight 12."""
    batch = deploy("gpt-oss-120b", "h100_sxm", tensor_parallel=float(tp))
    (width,) = (w for w in split_widths(batch) if w.part == "experts")
    assert mx_padding(width)[0] == pytest.approx(blocks * tp / 90)


def test_uneven_experts_are_refused_by_some():
    batch = deploy("deepseek-v3", "h200_sxm", data_parallel=3.0, expert_parallel=3.0)
    assert not broken(batch, "vLLM")
    assert broken(batch, "SGLang") == {"experts_divide_by_expert_parallel"}


def test_uneven_stages_are_refused_by_nothing():
    """Megatron-LM takes them where first and last stage are given sizes of their own."""
    batch = deploy("deepseek-v3", "h200_sxm", tensor_parallel=8.0, pipeline_parallel=4.0)
    assert not broken(batch, "vLLM")
    assert not broken(batch, "Megatron-LM")
    more = deploy("deepseek-v3", "h200_sxm", tensor_parallel=8.0, pipeline_parallel=62.0)
    assert "stages_within_layers" in broken(more, "Megatron-LM")


def test_ordinary_models_are_inside_the_bands_and_odd_ones_out():
    def outside(model: str) -> set[str]:
        return {f.rule.name for f in bands(deploy(model, "h100_sxm")) if f.broken[0]}

    assert not outside("llama-3-70b")
    assert not outside("qwen3-30b-a3b")
    assert outside("snowflake-arctic") == {"published_width_per_layer"}  # 35 layers of 7,168
    assert "published_query_heads_per_kv_head" in outside("falcon-7b")  # 71 heads on one KV head
    assert "head_dimension" in outside("phi-2")  # 80


# Bands of published models: their ends are those of search_spaces/models.csv.


KNOWN = load_models()
# Of state-space layers the table of published measures has one row with linear attention's.
ALIKE = {"state_over_hidden": "linear_over_hidden", "chunk": "window"}
# A few published models are experiments: alone beyond the second in line.
ALONE = 14


@pytest.mark.parametrize("band", BANDS, ids=[band.name for band in BANDS])
def test_the_ends_are_those_of_published_models(band: Any) -> None:
    for sparse, ends in ((False, band.dense), (True, band.sparse)):
        found = published.bands(sparse, False).get(ALIKE.get(band.name, band.name))
        if found is None:
            assert ends == (-inf, inf)
            continue
        for mine, theirs in zip(ends, found, strict=True):
            assert np.isinf(mine) or mine == pytest.approx(theirs, rel=2e-3)


def test_hybrids_may_have_more_attention() -> None:
    for sparse, most in ((True, 0.5009), (False, 0.3999)):
        high = published.bands(sparse, True)["attention_share"][1]
        assert high == pytest.approx(most, rel=1e-3)


def test_most_published_models_are_inside() -> None:
    outside = {
        name
        for name, model in KNOWN.items()
        if any(
            finding.broken[0] and finding.rule.name.startswith("published")
            for finding in bands(batch_of_models(model))
        )
    }
    assert len(outside) <= ALONE, outside
    assert outside.isdisjoint({"llama-3-70b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"})


def test_a_note_elsewhere_and_a_refusal_in_a_search() -> None:
    """Snowflake Arctic has a width per layer of its own."""
    batch = batch_of_models(KNOWN["snowflake-arctic"])
    assert "published_width_per_layer" not in judge(Case(batch))
    assert judge(Case(batch, searched="shapes"))["published_width_per_layer"][0] > 0.0
    assert judge(Case(batch, searched="shapes"))["published_vocabulary"][0] == 0.0
    assert {rule.severity for rule in (*RULES, WIDTHS)} == {"note"}


SPACE: Mapping[str, Any] = space(
    {"replicas": [1, 8], "tensor_parallel": [4], "concurrency": [4, 64]},
    training_compute="1e24 FLOP",
    model={
        "sparse": True, "hidden_size": [4096], "num_hidden_layers": [32, 4], "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "num_experts": [64], "num_experts_per_tok": [4], "moe_intermediate_size": [64, 2048],
        "tied_embeddings": False,
    },
    objectives={"predicted_loss": "minimize", "usd_per_million_total_tokens": "minimize"},
)  # fmt: skip


def test_a_search_keeps_inside_unless_it_may_not() -> None:
    study = dse.run(SPACE, engine="exhaustive")
    inside = study.front.to_pandas()
    assert set(inside["moe_intermediate_size"]) == {2048}
    assert set(inside["num_hidden_layers"]) == {32}
    assert (inside["concurrency"] >= inside["replicas"]).all()
    study = dse.run({**SPACE, "allow_extrapolation": True}, engine="exhaustive")
    assert set(study.front.to_pandas()["num_hidden_layers"]) == {32, 4}


def test_text_is_finite() -> None:
    """1.5e24 FLOP train 5.1B active parameters on 49T tokens, more than there are unless said."""
    model = {**SPACE["model"], "num_hidden_layers": [32], "moe_intermediate_size": [2048]}
    more = {**SPACE, "training_compute": "1.5e24 FLOP", "model": model}
    with pytest.raises(NothingFeasible, match="unique_tokens"):
        dse.run(more, engine="exhaustive")
    study = dse.run({**more, "unique_tokens": "200T"}, engine="exhaustive")
    assert (study.front.to_pandas()["training_tokens"] > 40e12).all()


def test_no_search_trains_a_small_model_longer_than_published_ones() -> None:
    """1e24 FLOP train 3.5B active parameters on 13,700 tokens each."""
    model = {**SPACE["model"], "num_hidden_layers": [32], "moe_intermediate_size": [1024]}
    small = {**SPACE, "model": model, "unique_tokens": "200T"}
    with pytest.raises(NothingFeasible, match="training tokens over active parameters 13,7"):
        dse.run(small, engine="exhaustive")
    assert len(dse.run({**small, "allow_extrapolation": True}, engine="exhaustive").front)


def test_a_point_again_reads_no_more_text_than_its_study() -> None:
    study = dse.run(
        {**SPACE, "unique_tokens": "2T", "allow_extrapolation": True}, engine="exhaustive"
    )
    front = study.front.to_pandas()
    assert (front["training_tokens"] > 2e12).all()
    for point, loss in zip(front["point"], front["predicted_loss"], strict=True):
        again = dse.estimate(study, int(point))
        assert again.predicted_loss == pytest.approx(loss, rel=1e-8)
