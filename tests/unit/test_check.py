"""`dse check` below the command line: degrees, costs and nearest shapes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.physics.parameters import parameters
from dse.questions.check.answer import Load, Subject, check, subject_of
from dse.questions.check.degrees import of_shape
from dse.questions.check.nearest import FURTHEST, MOST_CHANGES, nearest, neighbours
from dse.rules.divide import HEADS
from dse.rules.waste import added_share
from dse.schema.huggingface import from_config
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
}


def llama(**changed: int) -> Model:
    return from_config({**LLAMA, **changed}, "llama", "config.json")


def subject(model: Model | str, chip: str, dtype: str | None = None, **degrees: int) -> Subject:
    names = {"tp": "tensor_parallel", "pp": "pipeline_parallel", "dp": "data_parallel"}
    names["ep"] = "expert_parallel"
    return subject_of(
        load_catalog(),
        resolve_model(model) if isinstance(model, str) else model,
        chip,
        {names[name]: float(value) for name, value in degrees.items()},
        Load(2048, 512, 32),
        weight_dtype=dtype,
    )


def near(one: Subject) -> list[dict]:
    return nearest(one, load_catalog().backends[one.chip.backend])


def found(document: dict, rule: str) -> list[dict]:
    return [row for row in document["rules"] if row["rule"] == rule]


def test_degrees_of_qwen2_5_7b():
    degrees = check(subject("qwen2.5-7b", "h200_sxm", tp=8))["degrees"]
    assert degrees["tp"] == [1, 2, 4]
    assert degrees["ep"] == [1]
    assert degrees["by_stack"]["Megatron-LM"]["pp"] == list(range(1, 29))  # stages may differ
    assert degrees["by_stack"]["vLLM"]["pp"] == list(range(1, 29))
    assert [row["tp"] for row in degrees["refused"]] == [7, 8]


def test_degrees_of_fp8_experts_depend_on_where_they_lie():
    degrees = check(subject("qwen3-30b-a3b", "h100_sxm", "fp8_block"))["degrees"]
    assert degrees["tp"] == [1, 2]
    assert degrees["tp_with_ep"] == [1, 2, 4, 8]
    assert degrees["by_stack"]["SGLang"]["ep"] == [1, 2, 4, 8]


def test_degrees_reach_to_the_end_of_the_domain():
    one = check(subject("deepseek-v3", "gb200_nvl72", "bf16"))["degrees"]
    assert one["up_to"] == 72
    assert one["tp"] == [1, 2, 4, 8, 16, 32, 64]
    assert one["by_stack"]["SGLang"]["ep"] == [1, 2, 4, 8, 16, 32, 64]


def test_the_cliff_costs_what_was_measured():
    """46% more time for both products of the feed-forward; nothing for widths that suit."""
    document = check(subject(llama(intermediate_size=10922), "h100_sxm"))
    for row in document["gemms"]:
        rate = row["share"] / (row["share"] - row["misaligned_share"])
        if "feed-forward" in row["name"] and row["phase"] == "prefill":
            assert rate == pytest.approx(398.4 / 272.7, abs=0.06)
    (alignment,) = found(document, "alignment")
    assert alignment["known"] == "measured"
    assert alignment["in_predictions"]
    assert 0.15 < alignment["prefill_share"] < 0.3
    (decode,) = found(document, "alignment_in_decode")
    assert decode["known"] == "assumed"
    assert 0.0 < decode["decode_share"] < alignment["prefill_share"]
    for width in (10880, 10944, 11008):
        assert not found(check(subject(llama(intermediate_size=width), "h100_sxm")), "alignment")
    for chip, dtype in (("mi300x", None), ("h100_sxm", "fp8")):
        elsewhere = check(subject(llama(intermediate_size=10922), chip, dtype))
        assert found(elsewhere, "alignment")[0]["known"] == "assumed"


def test_copies_of_kv_heads_cost_what_they_read():
    """Eight ranks hold four KV heads twice: half of the cache's time is for copies."""
    one = subject("qwen3-30b-a3b", "h100_sxm", tp=8)
    (copies,) = found(check(one), "kv_heads_copied")
    steps = one.steps(one.batch)
    assert steps is not None
    entries = steps.decode.ledger.entries or []
    cache = sum(e.seconds[0] for e in entries if e.name == "attention over the KV cache")
    assert copies["decode_share"] == pytest.approx(cache / steps.decode.seconds[0] / 2)
    assert copies["in_predictions"]
    assert not found(check(subject("qwen3-30b-a3b", "h100_sxm", tp=4)), "kv_heads_copied")
    assert (
        "16 copies"
        in found(check(subject("deepseek-v3", "tpu_v5p", tp=16)), "kv_heads_copied")[0]["found"]
    )


@pytest.mark.parametrize(
    ("model", "chip", "product", "tile", "wave"),
    [
        ("deepseek-v3", "tpu_v6e", "query and KV down-projection", 2112 / 2304, 1.0),
        ("deepseek-v3", "tpu_v5p", "query and KV down-projection", 2112 / 2176, 1.0),
        ("qwen3-next-80b-a3b", "tpu_v7x", "routed experts down-projection", 64 / 256, 1.0),
        ("qwen3-next-80b-a3b", "trn2_16", "routed experts down-projection", 64 / 128, 1.0),
        # 8 x 32 tiles of 256 x 256 on 304 compute units; 16 x 56 of 128 x 128 on 132.
        ("llama-3-70b", "mi300x", "attention output projection", 1.0, 256 / 304),
        ("llama-3-70b", "h100_sxm", "feed-forward up-projection", 1.0, 896 / 924),
    ],
)
def test_what_products_fill(model: str, chip: str, product: str, tile: float, wave: float):
    document = check(subject(model, chip, "bf16", tp=8))
    row = next(r for r in document["gemms"] if r["name"] == product and r["phase"] == "prefill")
    assert row["tile_efficiency"] == pytest.approx(tile)
    assert row["wave_efficiency"] == pytest.approx(wave)
    later = [r for r in document["gemms"] if r["phase"] == "decode"]
    if document["fills"] == "tiles":
        assert all(r["tile_efficiency"] == r["wave_efficiency"] == 1.0 for r in later)
    else:  # whatever the rows, a matrix unit takes whole weights
        assert next(r for r in later if r["name"] == product)["tile_efficiency"] == pytest.approx(
            tile
        )


def test_costs_add_up():
    document = check(subject("gpt-oss-120b", "h100_sxm", tp=4))
    by_rule = sum(row["prefill_share"] for row in document["rules"] if not row["in_predictions"])
    assert document["prefill"]["added_share"] == pytest.approx(by_rule)
    of_products = sum(r["added_share"] for r in document["gemms"] if r["phase"] == "prefill")
    assert of_products == pytest.approx(by_rule)
    for phase in ("prefill", "decode"):
        lost = [found(document, rule) for rule in ("alignment", "column_padding")]
        by_rule = sum(row[f"{phase}_share"] for rows in lost for row in rows)
        assert document[phase]["misaligned_share"] == pytest.approx(by_rule)
        of_products = sum(r["misaligned_share"] for r in document["gemms"] if r["phase"] == phase)
        assert of_products == pytest.approx(by_rule)
    assert found(document, "mxfp4_blocks_whole")[0]["in_predictions"]
    shares = sum(r["share"] for r in document["gemms"] if r["phase"] == "decode")
    assert shares == pytest.approx(document["decode"]["gemm_share"])


def test_strides_are_noted_on_the_generation_that_the_vendor_names():
    assert found(check(subject("llama-3-70b", "mi300x", tp=8)), "stride_hotspot")
    assert not found(check(subject("llama-3-70b", "mi355x", tp=8)), "stride_hotspot")
    assert not found(check(subject("llama-3-70b", "h100_sxm", tp=8)), "stride_hotspot")


@pytest.mark.parametrize(
    ("model", "chip", "dtype", "tp", "change"),
    [
        ("qwen2.5-7b", "h200_sxm", None, 8, {"num_attention_heads": [28, 24]}),
        ("qwen2.5-7b", "h200_sxm", None, 8, {"num_attention_heads": [28, 32]}),
        ("qwen3-30b-a3b", "h100_sxm", "fp8_block", 4, {"expert_parallel": [1, 4]}),
        ("qwen3-30b-a3b", "h100_sxm", "fp8_block", 4, {"moe_intermediate_size": [768, 1024]}),
        # Qwen's own fix of its GPTQ checkpoints (docs of Qwen, quantization/gptq).
        ("qwen2-72b", "h200_sxm", "int4", 8, {"intermediate_size": [29568, 29696]}),
    ],
)
def test_proposals(model: str, chip: str, dtype: str | None, tp: int, change: dict):
    assert change in [row["change"] for row in near(subject(model, chip, dtype, tp=tp))]


def test_proposals_of_the_misaligned_width_are_its_measured_neighbours():
    rows = near(subject(llama(intermediate_size=10922), "h100_sxm"))
    assert {row["change"]["intermediate_size"][1] for row in rows} == {10880, 10944, 11008}
    assert all(row["prefill_step_share"] < -0.15 for row in rows)
    assert all(row["loss_nats"] is None for row in rows)  # tokens unknown


def test_proposals_pass_the_rules_and_waste_less():
    for model, chip, degrees in (
        ("qwen2.5-7b", "h200_sxm", {"tp": 8}),
        ("gpt-2-xl", "mi355x", {"tp": 3}),
        ("gpt-oss-120b", "h100_sxm", {"tp": 4}),
        ("qwen3-next-80b-a3b", "tpu_v6e", {"tp": 8}),
    ):
        one = subject(model, chip, **degrees)
        rows = near(one)
        assert rows, model
        everything = neighbours(one)
        for row in rows:
            changes = {name: tuple(map(float, pair)) for name, pair in row["change"].items()}
            assert len(changes) <= MOST_CHANGES
            every = range(len(everything.batch))
            [i] = [i for i in every if everything.changes(i) == changes]
            alone = everything.batch[np.array([i])]
            assert not any(
                f.broken[0] for f in of_shape(alone) if set(f.rule.stacks) & set(one.family.stacks)
            )
            steps = one.steps(alone)
            assert steps is not None
            # The same numbers alone as among all neighbours.
            prefill, decode = added_share(steps)
            assert row["prefill_added_share"] == prefill[0]
            assert row["decode_added_share"] == decode[0]
            share = parameters(alone).total / parameters(one.batch).total - 1.0
            assert row["parameters_share"] == share[0]
            for name, (before, after) in changes.items():
                if name not in ("expert_parallel", "num_key_value_heads"):
                    assert abs(after / before - 1.0) <= FURTHEST


def test_a_clean_shape_gets_no_proposal():
    assert near(subject("llama-2-7b", "h100_sxm")) == []


def test_a_chip_without_figures_is_judged_by_degrees():
    document = check(subject("qwen2.5-7b", "max1550", tp=1))
    assert document["ok"]
    assert document["prefill"] is None
    assert document["gemms"] == []
    assert any("peak_bf16" in text for text in document["assumed"])
    json.dumps(document, allow_nan=False)


def test_a_source_speaks_of_the_software_of_the_chip():
    """TensorRT-LLM does not run on TPUs, and is no source for what they refuse."""
    for row in found(check(subject("llama-3-70b", "tpu_v5p", tp=7)), HEADS.name):
        assert row["refused_by"] == ["vLLM"]
        assert "TensorRT" not in row["source"]
        assert "Megatron" not in row["source"]
    (row,) = found(check(subject("llama-2-7b", "tpu_v6e", tp=8)), "matrix_unit")
    assert "scaling-book" in row["source"]
    assert "AWS" not in row["source"]
    (row,) = found(check(subject("llama-3-70b", "h100_sxm", tp=7)), HEADS.name)
    assert "TensorRT-LLM asserts the same" in row["source"]


def test_measured_is_said_of_the_chip_that_was_measured():
    """H200 is of H100's family, and its misaligned widths were not measured."""
    known = {}
    for chip in ("h100_sxm", "h200_sxm", "b200_sxm"):
        document = check(subject(llama(intermediate_size=10922), chip))
        known[chip] = found(document, "alignment")[0]["known"]
    assert known == {"h100_sxm": "measured", "h200_sxm": "assumed", "b200_sxm": "assumed"}


@pytest.mark.parametrize(("chip", "side"), [("tpu_v4", 128), ("tpu_v6e", 256)])
def test_few_rows_leave_a_matrix_unit_idle(chip: str, side: int):
    """Of 32 requests 32 rows are busy, whatever the widths; a prompt of 2,048 fills either unit."""
    document = check(subject("llama-3-8b", chip))
    busy = {(one["phase"], one["name"]): one["row_efficiency"] for one in document["gemms"]}
    assert busy["decode", "feed-forward up-projection"] == 32 / side
    assert busy["prefill", "feed-forward up-projection"] == 1.0
    (row,) = found(document, "matrix_unit_rows")
    assert row["known"] == "assumed"


@pytest.mark.parametrize("requests", [1, 32, 4096])
def test_idle_rows_of_experts_cost_at_most_full_rows_of_all_of_them(requests: int):
    """256 rows of each of the 8 experts that a rank holds, at the peak of TPU v6e in bf16."""
    degrees = {"tensor_parallel": 32.0, "expert_parallel": 32.0}
    load = Load(2048, 512, requests)
    one = subject_of(
        load_catalog(), resolve_model("deepseek-v3"), "tpu_v6e", degrees, load, weight_dtype=None
    )
    document = check(one)
    for phase in ("prefill", "decode"):
        rows = [
            row
            for row in document["gemms"]
            if row["phase"] == phase and row["name"].startswith("routed experts")
        ]
        added_s = sum(row["added_share"] for row in rows) * document[phase]["seconds"]
        layers, weight = 58, 3 * 7168 * 2048
        assert 0.0 <= added_s <= layers * 8 * weight * 2 * 256 / 918e12
        if phase == "decode" and requests <= 32:
            assert added_s > 0.0
