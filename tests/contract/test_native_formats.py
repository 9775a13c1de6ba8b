"""Every chip, every format of weights: one that the matrix units multiply in is at least as fast as
one that they do not and whose elements are no narrower, in prefill and in decode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.physics.machines import compile_machines, compute_dtype
from dse.physics.workload import Workload
from dse.problem.evaluate import evaluate
from dse.schema.chip import ROOFLINE, Chip
from dse.schema.dtypes import BITS, CODE, DTYPES, GGUF, arithmetic
from dse.schema.model_catalog import resolve_model
from dse.space.batches import batch_of

CATALOG = load_catalog()
CHIPS = tuple(CATALOG.chips.values())
RATED = tuple(chip for chip in CHIPS if not chip.lacks(*ROOFLINE))
ELEMENT = {name: int(bits) for name, bits in BITS.items()}
# Files of llama.cpp hold the output head in their format too, which others leave at 16 bits.
PAIRS = [
    (native, unpacked)
    for native in DTYPES
    for unpacked in DTYPES
    if not {"bf16", *GGUF} & {native, unpacked} and ELEMENT[native] <= ELEMENT[unpacked]
]


def test_every_chip_is_asked() -> None:
    assert len(CHIPS) == 83
    assert len(RATED) > 50


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.id)
def test_a_format_is_computed_or_unpacked_to_16_bits(chip: Chip) -> None:
    """None falls back to another narrow format, nor is any computed without a peak."""
    for dtype in DTYPES:
        runs_on = compute_dtype(chip, dtype)
        if chip.computes(dtype):
            assert runs_on == arithmetic(dtype)
            figure = chip.figure(f"peak_{runs_on}")
            assert figure is not None
            assert figure.source
            assert figure.kind
        else:
            assert runs_on == "bf16"


def _times(name: str, chip: str, prompt: float, concurrency: float) -> dict[str, tuple[float, ...]]:
    """Seconds of a prefill and of a decode step by format of the weights."""
    model = resolve_model(name)
    plain = replace(model, weight_dtypes=dict.fromkeys(model.weight_dtypes, "bf16"))
    n = len(DTYPES)
    one = np.ones(n)
    axes = {
        **{f"{kind}_parallel": one for kind in ("pipeline", "data", "expert")},
        "tensor_parallel": 4.0 * one,
        "replicas": one,
        "concurrency": concurrency * one,
    }
    chips = np.zeros(n, dtype=np.intp)
    batch = batch_of([plain] * n, chips, list(DTYPES), ["bf16"] * n, axes)
    machines = compile_machines(CATALOG, [chip])
    load = Workload(np.array([prompt]), np.array([64.0]), "continuous", CATALOG.backends["generic"])
    found = evaluate(batch, load, machines).values
    steps = zip(found["prefill_s"], found["decode_step_s"], strict=True)
    return dict(zip(DTYPES, steps, strict=True))


@pytest.mark.parametrize("chip", RATED, ids=lambda chip: chip.id)
@pytest.mark.parametrize("model", ["llama-3-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize(("prompt", "concurrency"), [(256.0, 1.0), (4096.0, 64.0)])
def test_native_comes_out_at_least_as_fast(
    chip: Chip, model: str, prompt: float, concurrency: float
) -> None:
    times = _times(model, chip.id, prompt, concurrency)
    for native, unpacked in PAIRS:
        if chip.computes(native) and not chip.computes(unpacked):
            for fast, slow in zip(times[native], times[unpacked], strict=True):
                assert fast <= slow * (1.0 + 1e-9), (native, unpacked)


def test_the_formats_of_mi355x() -> None:
    """Its matrix cores have MXFP4 and no NVFP4, which vLLM unpacks into memory there."""
    chip = CATALOG.chips["mi355x"]
    computed = {dtype for dtype in DTYPES if chip.computes(dtype)}
    assert computed == {"bf16", "fp8", "fp8_block", "int8", "mxfp4"}
    times = _times("llama-3-8b", "mi355x", 2048.0, 16.0)
    assert times["mxfp4"] < times["fp8"] < times["nvfp4"]


def test_units_slower_than_those_of_16_bits_are_left_alone() -> None:
    assert CATALOG.chips["b300_sxm"].peak_flops_per_s["int8"] < 1e15
    assert not CATALOG.chips["b300_sxm"].computes("int8")
    assert CATALOG.chips["b200_sxm"].computes("int8")


def test_unpacked_weights_reach_less_than_16_bit_ones() -> None:
    machines = compile_machines(CATALOG, ["h100_sxm", "a100_80_sxm"])
    law = machines.laws["gemm"]
    for chip, dtype in ((0, "int4"), (0, "nvfp4"), (1, "fp8"), (1, "int4")):
        cell, wide = (chip, CODE[dtype]), (chip, CODE["bf16"])
        assert law.s_per_flop[cell] == pytest.approx(law.s_per_flop[wide] / 0.9, rel=1e-9)
        assert law.s_per_byte[cell] == pytest.approx(law.s_per_byte[wide] / 0.95, rel=1e-9)


def test_chips_of_one_family_say_the_same_of_their_formats() -> None:
    """What a relative has a peak of is listed, or said to be without one."""
    for family in ("hopper", "ada", "ampere", "blackwell"):
        chips = [chip for chip in CHIPS if chip.family == family]
        for chip in chips:
            listed = {*chip.peak_flops_per_s, *(one.format for one in chip.without_peak)}
            assert set(chip.peak_flops_per_s).isdisjoint(one.format for one in chip.without_peak)
            assert {name for one in chips for name in one.peak_flops_per_s} == listed, chip.id


def test_a_format_without_a_peak_is_unpacked_and_said_so() -> None:
    chip = CATALOG.chips["h100_nvl"]
    assert not chip.computes("fp8")
    assert "no dense peak" in chip.not_computed("fp8")
    assert "does not multiply in mxfp4" in chip.not_computed("mxfp4")
    assert "more slowly" in CATALOG.chips["b300_sxm"].not_computed("int8")
    assert chip.not_computed("bf16") == ""
