"""`dse check` below the command line: degrees, costs and nearest shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import dse
from dse.questions.check.subject import subject_of
from dse.schema.huggingface import from_config
from dse.schema.model import BlockSpec, Model
from dse.schema.model_catalog import load_model

CATALOG = dse.load_catalog()
PHASES = ("prefill", "decode")
HEADS = "heads_divide_by_tensor_parallel"
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


def check(model: Model | str, chip: str, dtype: str | None = None, **given: Any) -> dict[str, Any]:
    return dse.check(model, chip, weight_dtype=dtype, catalog=CATALOG, **given).document


def step(document: dict, phase: str) -> dict:
    return next(row for row in document["steps"] if row["phase"] == phase)


def found(document: dict, rule: str) -> list[dict]:
    return [row for row in document["rules"] if row["rule"] == rule]


def test_degrees_of_qwen2_5_7b():
    document = check("qwen2.5-7b", "h200_sxm", tp=8)
    degrees = document["degrees"]
    assert degrees["tp"] == [1, 2, 4]
    assert degrees["ep"] == [1]
    assert degrees["pp"] == list(range(1, 29))  # stages may differ
    assert {row["pipeline_parallel"] for row in document["software"]} == {"1 to 28"}


def test_degrees_of_fp8_experts_depend_on_where_they_lie():
    document = check("qwen3-30b-a3b", "h100_sxm", "fp8_block")
    assert document["degrees"]["tp"] == [1, 2]
    assert document["degrees"]["tp_with_ep"] == [1, 2, 4, 8]
    by = {row["software"]: row["expert_parallel"] for row in document["software"]}
    assert by["SGLang"] == "1, 2, 4, 8"


def test_degrees_reach_to_the_end_of_the_domain():
    one = check("deepseek-v3", "gb200_nvl72", "bf16")["degrees"]
    assert one["up_to"] == 72
    assert one["tp"] == one["ep"] == [1, 2, 4, 8, 16, 32, 64]


def test_the_cliff_costs_what_was_measured():
    """46% more time for both products of the feed-forward; nothing for widths that suit."""
    document = check(llama(intermediate_size=10922), "h100_sxm")
    for row in document["products"]:
        rate = row["step_share"] / (row["step_share"] - row["misaligned_share"])
        if "feed-forward" in row["product"] and row["phase"] == "prefill":
            assert rate == pytest.approx(398.4 / 272.7, abs=0.06)
    (alignment,) = found(document, "alignment")
    assert alignment["known"] == "measured"
    assert alignment["in_predictions"]
    assert 0.15 < alignment["prefill_share"] < 0.3
    (decode,) = found(document, "alignment_in_decode")
    assert decode["known"] == "assumed"
    assert 0.0 < decode["decode_share"] < alignment["prefill_share"]
    for width in (10880, 10944, 11008):
        assert not found(check(llama(intermediate_size=width), "h100_sxm"), "alignment")
    for chip, dtype in (("mi300x", None), ("h100_sxm", "fp8")):
        elsewhere = check(llama(intermediate_size=10922), chip, dtype)
        assert found(elsewhere, "alignment")[0]["known"] == "assumed"


def test_copies_of_kv_heads_cost_what_they_read():
    """Eight ranks hold four KV heads twice: half of the cache's time is for copies."""
    one = subject_of(
        CATALOG, load_model("qwen3-30b-a3b"), "h100_sxm", {"tensor_parallel": 8.0}, 2048, 512, 32
    )
    (copies,) = found(check("qwen3-30b-a3b", "h100_sxm", tp=8), "kv_heads_copied")
    steps = one.steps(one.batch)
    assert steps is not None
    entries = steps.decode.ledger.entries or []
    cache = sum(e.seconds[0] for e in entries if e.name == "attention over the KV cache")
    assert copies["decode_share"] == pytest.approx(cache / steps.decode.seconds[0] / 2)
    assert copies["in_predictions"]
    assert not found(check("qwen3-30b-a3b", "h100_sxm", tp=4), "kv_heads_copied")
    assert (
        "16 copies" in found(check("deepseek-v3", "tpu_v5p", tp=16), "kv_heads_copied")[0]["found"]
    )


@pytest.mark.parametrize(
    ("model", "chip", "product", "tile", "wave"),
    [
        ("deepseek-v3", "tpu_v6e", "query and KV down-projection", 2112 / 2304, 1.0),
        ("deepseek-v3", "tpu_v5p", "query and KV down-projection", 2112 / 2176, 1.0),
        ("deepseek-v3", "gaudi3", "query and KV down-projection", 2112 / 2304, 1.0),
        ("qwen3-next-80b-a3b", "tpu_v7x", "routed experts down-projection", 64 / 256, 1.0),
        ("qwen3-next-80b-a3b", "trn2_16", "routed experts down-projection", 64 / 128, 1.0),
        # 8 x 32 tiles of 256 x 256 on 304 compute units; 16 x 56 of 128 x 128 on 132.
        ("llama-3-70b", "mi300x", "attention output projection", 1.0, 256 / 304),
        ("llama-3-70b", "h100_sxm", "feed-forward up-projection", 1.0, 896 / 924),
    ],
)
def test_what_products_fill(model: str, chip: str, product: str, tile: float, wave: float):
    document = check(model, chip, "bf16", tp=8)
    first, later = ([r for r in document["products"] if r["phase"] == p] for p in PHASES)
    row = next(r for r in first if r["product"] == product)
    assert row["tile_efficiency"] == pytest.approx(tile)
    assert row["wave_efficiency"] == pytest.approx(wave)
    if document["fills"] == "tiles":
        assert all(r["tile_efficiency"] == r["wave_efficiency"] == 1.0 for r in later)
    else:  # whatever the rows, a matrix unit takes whole weights
        assert next(r for r in later if r["product"] == product)[
            "tile_efficiency"
        ] == pytest.approx(tile)


def test_costs_add_up():
    document = check("gpt-oss-120b", "h100_sxm", tp=4)
    by_rule = sum(row["prefill_share"] for row in document["rules"] if not row["in_predictions"])
    assert step(document, "prefill")["added_share"] == pytest.approx(by_rule)
    of_products = sum(r["added_share"] for r in document["products"] if r["phase"] == "prefill")
    assert of_products == pytest.approx(by_rule)
    for phase in PHASES:
        lost = [found(document, rule) for rule in ("alignment", "column_padding")]
        by_rule = sum(row[f"{phase}_share"] for rows in lost for row in rows)
        assert step(document, phase)["misaligned_share"] == pytest.approx(by_rule)
        mine = [row for row in document["products"] if row["phase"] == phase]
        of_products = sum(row["misaligned_share"] for row in mine)
        assert of_products == pytest.approx(by_rule)
    assert found(document, "mxfp4_blocks_whole")[0]["in_predictions"]
    shares = sum(r["step_share"] for r in document["products"] if r["phase"] == "decode")
    assert shares == pytest.approx(step(document, "decode")["gemm_share"])


def test_strides_are_noted_on_the_generation_that_the_vendor_names():
    assert found(check("llama-3-70b", "mi300x", tp=8), "stride_hotspot")
    assert not found(check("llama-3-70b", "mi355x", tp=8), "stride_hotspot")
    assert not found(check("llama-3-70b", "h100_sxm", tp=8), "stride_hotspot")


@pytest.mark.parametrize(
    ("model", "chip", "dtype", "tp", "change"),
    [
        ("qwen2.5-7b", "h200_sxm", None, 8, "num_attention_heads 28 -> 24"),
        ("qwen2.5-7b", "h200_sxm", None, 8, "num_attention_heads 28 -> 32"),
        ("qwen3-30b-a3b", "h100_sxm", "fp8_block", 4, "expert_parallel 1 -> 4"),
        ("qwen3-30b-a3b", "h100_sxm", "fp8_block", 4, "moe_intermediate_size 768 -> 1,024"),
        # Qwen's own fix of its GPTQ checkpoints (docs of Qwen, quantization/gptq).
        ("qwen2-72b", "h200_sxm", "int4", 8, "intermediate_size 29,568 -> 29,696"),
    ],
)
def test_proposals(model: str, chip: str, dtype: str | None, tp: int, change: str):
    assert change in [row["shape_changes"] for row in check(model, chip, dtype, tp=tp)["nearest"]]


def test_proposals_of_the_misaligned_width_are_its_measured_neighbours():
    rows = check(llama(intermediate_size=10922), "h100_sxm")["nearest"]
    assert {row["intermediate_size"] for row in rows} == {10880, 10944, 11008}
    assert all(row["prefill_step_share"] < -0.15 for row in rows)
    assert all(row["loss_nats"] is None for row in rows)  # tokens unknown


@pytest.mark.parametrize(
    ("name", "chip", "degrees"),
    [
        ("qwen2.5-7b", "h200_sxm", {"tp": 8}),
        ("gpt-2-xl", "mi355x", {"tp": 3}),
        ("gpt-oss-120b", "h100_sxm", {"tp": 4}),
        ("qwen3-next-80b-a3b", "tpu_v6e", {"tp": 8}),
    ],
)
def test_proposals_pass_the_rules_and_waste_less(name: str, chip: str, degrees: dict[str, Any]):
    """A proposal checked by itself is what the table says of it; at most three sizes change, each
    by at most half."""
    shape = load_model(name)
    for row in check(shape, chip, **degrees)["nearest"]:
        pairs = [words.split() for words in row["shape_changes"].replace(",", "").split("; ")]
        sizes = {key: int(after) for key, _, _, after in pairs}
        assert len(sizes) <= 3
        for key, before, _, after in pairs:
            share = int(after) / int(before) - 1.0
            assert key in ("expert_parallel", "num_key_value_heads") or abs(share) <= 0.5
        spread: dict[str, Any] = (
            {"ep": sizes.pop("expert_parallel")} if "expert_parallel" in sizes else {}
        )
        alone = check(resized(shape, sizes), chip, **{**degrees, **spread})
        assert all(one["accepts"] for one in alone["software"])
        # The same numbers alone as among all neighbours.
        assert row["prefill_added_share"] == step(alone, "prefill")["added_share"]
        assert row["decode_added_share"] == step(alone, "decode")["added_share"]


SIZES = {
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "moe_intermediate_size": "expert_intermediate_size",
    "num_experts": "experts",
}


def resized(model: Model, sizes: dict[str, int]) -> Model:
    """The model with other sizes; KV heads of multi-head attention follow its heads."""
    own = {SIZES.get(name, name): value for name, value in sizes.items()}
    blocks = []
    for block in model.blocks:
        new = {**block.sizes, **{k: v for k, v in own.items() if k in block.sizes}}
        if "heads" in own and block.sizes.get("kv_heads") == block.sizes.get("heads"):
            new["kv_heads"] = own["heads"]
        count = own.get("num_hidden_layers", block.count)
        blocks.append(BlockSpec(block.kind, count, new))
    fields = {name: own[name] for name in ("hidden_size", "vocab_size") if name in own}
    return replace(model, blocks=tuple(blocks), **fields)


def test_a_clean_shape_gets_no_proposal():
    assert check("llama-2-7b", "h100_sxm")["nearest"] == []


def test_a_chip_without_figures_is_judged_by_degrees():
    document = check("qwen2.5-7b", "max1550", tp=1)
    assert document["ok"]
    assert document["steps"] == []
    assert document["products"] == []
    assert any("peak_bf16" in text for text in document["assumed"])
    json.dumps(document, allow_nan=False)


def test_a_source_speaks_of_the_software_of_the_chip():
    """TensorRT-LLM does not run on TPUs, and is no source for what they refuse."""
    for row in found(check("llama-3-70b", "tpu_v5p", tp=7), HEADS):
        assert row["refused_by"] == "vLLM"
        assert "TensorRT" not in row["source"]
        assert "Megatron" not in row["source"]
    (row,) = found(check("llama-2-7b", "tpu_v6e", tp=8), "matrix_unit")
    assert "scaling-book" in row["source"]
    assert "AWS" not in row["source"]
    (row,) = found(check("llama-3-70b", "h100_sxm", tp=7), HEADS)
    assert "TensorRT-LLM asserts the same" in row["source"]


def test_measured_is_said_of_the_chip_that_was_measured():
    """H200 is of H100's family, and its misaligned widths were not measured."""
    known = {}
    for chip in ("h100_sxm", "h200_sxm", "b200_sxm"):
        document = check(llama(intermediate_size=10922), chip)
        known[chip] = found(document, "alignment")[0]["known"]
    assert known == {"h100_sxm": "measured", "h200_sxm": "assumed", "b200_sxm": "assumed"}


@pytest.mark.parametrize(("chip", "side"), [("tpu_v4", 128), ("tpu_v6e", 256)])
def test_few_rows_leave_a_matrix_unit_idle(chip: str, side: int):
    """Of 32 requests 32 rows are busy, whatever the widths; a prompt of 2,048 fills either unit."""
    document = check("llama-3-8b", chip)
    busy = {(one["phase"], one["product"]): one["row_efficiency"] for one in document["products"]}
    assert busy["decode", "feed-forward up-projection"] == 32 / side
    assert busy["prefill", "feed-forward up-projection"] == 1.0
    (row,) = found(document, "matrix_unit_rows")
    assert row["known"] == "assumed"


@pytest.mark.parametrize("requests", [1, 32, 4096])
def test_idle_rows_of_experts_cost_at_most_full_rows_of_all_of_them(requests: int):
    """256 rows of each of the 8 experts that a rank holds, at the peak of TPU v6e in bf16."""
    answer = dse.check("deepseek-v3", "tpu_v6e", tp=32, ep=32, concurrency=requests)
    document = answer.document
    for phase in ("prefill", "decode"):
        rows = [
            row
            for row in document["products"]
            if row["phase"] == phase and row["product"].startswith("routed experts")
        ]
        added_s = sum(row["added_share"] for row in rows) * step(document, phase)["seconds"]
        layers, weight = 58, 3 * 7168 * 2048
        assert 0.0 <= added_s <= layers * 8 * weight * 2 * 256 / 918e12
        if phase == "decode" and requests <= 32:
            assert added_s > 0.0
