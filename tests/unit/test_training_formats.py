"""Formats of training: no product beats its peak, fewer bits never take longer where the chip
computes with them, and what stays in bf16 takes its share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dse.data import hardware_dir
from dse.errors import InputError
from dse.physics.training.passes import TrainingDeployed, narrow_heads
from dse.physics.training.plan import ARITHMETIC, PRECISIONS, RECOMPUTES
from dse.schema.dtypes import CODE
from dse.schema.training import (
    Constants,
    TrainingStack,
    training_stacks,
)
from tests.helpers import machines
from tests.helpers_training import PLAIN, micro_batch, plan, train

ON = machines()


def native(chip: str, precision: str) -> bool:
    return bool(ON.native_dtype[ON.code(chip), CODE[ARITHMETIC[precision]]])


@pytest.mark.parametrize("model", ["llama-3-70b", "qwen3-30b-a3b"])
def test_no_product_beats_the_peak_of_its_format(model: str) -> None:
    """Whatever a stack's factors are: device work is at least the arithmetic at the peak."""
    for stack in training_stacks().values():
        for chip in ON.ids:
            formats = [name for name in PRECISIONS if native(chip, name)]
            losses = train(plan(model, chip, precision=formats), stack).losses
            assert (losses["kernels"] > -1e-9 * losses["ideal"]).all(), (chip, formats)


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3-70b", "qwen3-30b-a3b", "deepseek-v3"])
def test_four_bits_never_take_longer_than_eight(model: str) -> None:
    chips = [chip for chip in ON.ids if native(chip, "nvfp4") and native(chip, "fp8")]
    assert {"b200_sxm", "gb300_nvl72"} <= set(chips)
    for stack in training_stacks().values():
        for chip in chips:
            runs = plan(model, chip, precision=["mxfp8", "nvfp4"], bf16_share=0.0)
            eight, four = train(runs, stack).step_s
            assert four <= eight * (1.0 + 1e-9), (stack.id, chip)


def test_layers_left_in_bf16_take_the_mean_of_both() -> None:
    runs = plan("llama-3-70b", "gb200_nvl72", precision="nvfp4", bf16_share=[0.0, 0.25, 1.0])
    seconds = micro_batch(runs).layers.seconds
    assert seconds[0] < seconds[1] < seconds[2]
    assert seconds[1] == pytest.approx(0.75 * seconds[0] + 0.25 * seconds[2], rel=1e-9)


@pytest.mark.parametrize("chip", ["a100_80_sxm", "tpu_v5p"])
def test_int8_pays_where_the_chip_has_it(chip: str) -> None:
    """Twice the peak of bf16: faster, by less than twice, for nobody measured int8 there and it
    reaches no larger a share of its peak than bf16."""
    bf16, int8 = train(plan("llama-3-70b", chip, precision=["bf16", "int8"])).step_s
    assert bf16 / 2.0 < int8 < bf16


@pytest.mark.parametrize("precision", ["fp8", "int8"])
def test_a_format_nobody_measured_gains_less_than_its_peak(precision: str) -> None:
    code, law = CODE[precision], ON.laws["gemm"]
    peak = 1.0 / (law.s_per_flop * law.floor_of_compute)
    chips = np.flatnonzero(ON.inherits["gemm"][:, code] & ON.native_dtype[:, CODE["bf16"]])
    assert len(chips) > 5
    for stack in training_stacks().values():
        for chip in chips:
            both = ["bf16", precision]
            wide, narrow = train(plan("llama-3-70b", ON.ids[chip], precision=both), stack).step_s
            gain = max(peak[chip, code] / peak[chip, CODE["bf16"]], 1.0)
            assert wide / gain < narrow * (1.0 + 1e-9), (ON.ids[chip], stack.id)


@pytest.mark.parametrize("recompute", RECOMPUTES)
def test_recomputing_a_share_of_layers_takes_that_share(recompute: str) -> None:
    runs = plan("qwen3-30b-a3b", recompute=recompute, recompute_share=[0.0, 0.25, 1.0])
    found, kept = train(runs), train(plan("qwen3-30b-a3b"))
    again = found.losses["recomputation"]
    assert again[0] == 0.0
    assert again[1] == pytest.approx(0.25 * again[2], rel=1e-9)
    held = found.memory["activations"]
    assert held[0] == pytest.approx(kept.memory["activations"][0], rel=1e-9)
    assert held[0] >= held[1] >= held[2]


def test_gradients_of_16_bits_take_half_as_long_to_reduce() -> None:
    stack = replace(PLAIN, data_overlap=0.0)
    runs = plan("llama-3-70b", data_parallel=64, zero_stage=0, gradient_bytes=[2.0, 4.0])
    half, whole = train(runs, stack).losses["data_communication"]
    assert half == pytest.approx(whole / 2.0, rel=0.05)


def test_only_fp8_with_one_scale_gathers_its_weights_in_8_bits() -> None:
    stack = replace(PLAIN, data_overlap=0.0, fp8_gather_bytes=1.0)
    runs = plan(
        "llama-3-70b",
        data_parallel=64,
        zero_stage=3,
        gradient_bytes=2.0,
        precision=["bf16", "fp8", "fp8_block"],
    )
    wide, narrow, blocks = train(runs, stack).losses["data_communication"]
    assert blocks == wide  # two gathers and a reduction, as long each
    assert narrow == pytest.approx(wide * 2.0 / 3.0, rel=0.05)  # latency, embedding
    assert train(runs, replace(stack, fp8_gather_bytes=2.0)).losses["data_communication"][1] == wide


# Forward, causal: TFLOP/s at heads of 128 over those at 64. H100 by FlashAttention-3 (arXiv
# 2407.08608, figure 5, 16k tokens), B200 by FlashAttention-4 (Dao-AILab/flash-attention pull
# request 2605, 4k tokens).
@pytest.mark.parametrize(("chip", "published"), [("h100_sxm", 648 / 473), ("b200_sxm", 1393 / 902)])
def test_narrow_heads_wait_for_exponentials(chip: str, published: float) -> None:
    deployed = TrainingDeployed(plan("gpt-oss-120b", chip), ON, PLAIN)
    law, own = deployed.law("prefill_attention", "kv"), ON.exponential_s[deployed.batch.chip]
    found = narrow_heads(law, np.array([64.0, 128.0, 256.0]), own)
    assert found[0] == pytest.approx(published, rel=0.15)
    assert list(found[1:]) == [1.0, 1.0]
    # Nothing is known of the exponentials of other chips.
    assert narrow_heads(law, np.array([64.0]), np.zeros(1)) == [1.0]


def test_biases_of_experts_cost_passes_over_their_rows() -> None:
    """The same layers with and without biases: longer by the bytes that biases move, as heavy."""
    runs = plan("gpt-oss-120b", "gb200_nvl72")
    bare = tuple(
        replace(block, sizes={n: x for n, x in block.sizes.items() if n != "expert_bias"})
        for block in runs.candidates.blocks
    )
    without = replace(runs, candidates=replace(runs.candidates, blocks=bare))

    def more(stack: TrainingStack) -> float:
        found = (
            train(runs, stack).losses["elementwise"] - train(without, stack).losses["elementwise"]
        )
        return float(found[0])

    own, further = more(PLAIN), more(replace(PLAIN, expert_bias_bytes=62.0))
    # 6 bytes of each of 3 x 2,880 numbers, and 62 more of each of 2,880.
    assert further / own == pytest.approx((6 * 3 + 62) / (6 * 3), rel=0.05)
    assert train(runs).memory["weights"][0] == train(without).memory["weights"][0]


# Files of training software: complete, sourced, and refused with a reason where they are wrong.


SHIPPED = hardware_dir() / "training" / "generic.yaml"


def test_shipped_stacks_are_complete_and_sourced() -> None:
    stacks = training_stacks()
    assert {"generic", "megatron", "fsdp", "maxtext"} <= set(stacks)
    for name, stack in stacks.items():
        assert stack.id == name
        assert set(stack.kinds) == set(stack.sources) == set(Constants.table.names)
        assert all(stack.sources.values())


def test_two_stacks_of_one_id_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="the id of another stack"):
        training_stacks(tmp_path)
