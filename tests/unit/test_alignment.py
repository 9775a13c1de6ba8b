"""Alignment in kernel times: what a search, an estimate and a training run pay for misaligned
sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.physics import gemms
from dse.physics.alignment import (
    CLIFF_BYTES,
    ELEMENT_BITS,
    GRAINS,
    MISALIGNED,
    aligned_bytes,
    alignment_efficiency,
    grain_of,
)
from dse.physics.deployed import Deployed
from dse.physics.machines import Machines
from dse.physics.training.plan import TrainingBatch
from dse.schema.dtypes import CODE
from dse.schema.model_catalog import resolve_model
from dse.space.candidates import CandidateBatch
from tests.helpers import CHIPS, MODELS, deploy, machines, run, workload
from tests.helpers_models import batch_of_models
from tests.helpers_training import train

# Of every family with a grain, one chip, and one of none.
SOME = (
    "h100_sxm",
    "b200_sxm",
    "mi300x",
    "tpu_v5p",
    "tpu_v6e",
    "trn2_16",
    "gaudi3",
    "ascend_910c_cm384",
)
LOAD = workload(2048.0, 512.0)


def without(on: Machines) -> Machines:
    """Chips on which nothing is padded and nothing is slow."""
    ones = np.ones(len(on.ids))
    none = on.grain._replace(
        columns=ones, lines=ones, heads=ones, wide_heads=ones, cliff=ones < 0.0
    )
    return replace(on, grain=none)


def sized(batch: CandidateBatch, *, hidden: object = None, **sizes: object) -> CandidateBatch:
    """A batch with other sizes: the hidden one, and those of blocks, one number or (n,)."""
    n = len(batch)

    def of(value: object) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, dtype=float), n).copy()

    blocks = tuple(
        replace(
            block,
            sizes={
                name: of(sizes[name]) if name in sizes else size
                for name, size in block.sizes.items()
            },
        )
        for block in batch.blocks
    )
    if hidden is not None:
        batch = replace(batch, hidden_size=of(hidden))
    return replace(batch, blocks=blocks)


def steps(batch: CandidateBatch, on: Machines | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a prefill and of a decode step."""
    deployed = Deployed(batch, on or machines())
    first = gemms.prefill(deployed, 2048.0, 2048.0).seconds
    return first, gemms.decode(deployed, 16.0, 2048.0).seconds


@pytest.mark.parametrize("model", [model for model in MODELS if model != "hunyuan-large"])
def test_sizes_that_fit_cost_nothing(model: str):
    """Bit for bit, on all NVIDIA and AMD chips, of all models whose sizes on a rank fit (heads
    of hunyuan-large are 80 wide)."""
    off = without(machines())
    for chip in ("h100_sxm", "b200_sxm", "mi300x"):
        batch = deploy(model, chip, tensor_parallel=[1.0, 8.0])
        deployed = Deployed(batch, machines())
        noted = gemms.prefill(deployed, 2048.0, 2048.0)
        ones = np.ones(2)
        fits = np.all([g.filled * g.reached == ones for g in noted.gemms], axis=0)
        plain = steps(batch, off)
        for mine, bare in zip(steps(batch), plain, strict=True):
            assert (mine[fits] == bare[fits]).all()
            assert (mine >= bare).all()


@given(
    size=st.integers(65, 9000),
    chip=st.sampled_from(SOME),
    dtype=st.sampled_from(["bf16", "fp8", "nvfp4", "mxfp4", "int4"]),
    where=st.sampled_from(["hidden", "intermediate_size", "expert_intermediate_size"]),
    tp=st.sampled_from([1.0, 2.0, 8.0]),
)
def test_a_misaligned_size_is_never_faster_than_the_next_that_fits(
    size: int, chip: str, dtype: str, where: str, tp: float
):
    lines = grain_of(load_catalog().chip(chip).family).lines
    # Ranks share widths, and gate and up-projection lie side by side: half the step will do.
    fits = lines if where == "hidden" else lines / 2.0 * tp
    sizes = np.array([float(size), np.ceil(size / fits) * fits])
    model = "qwen3-30b-a3b" if "expert" in where else "llama-2-7b"
    batch = deploy(model, chip, weight_dtype=dtype, repeat=2, tensor_parallel=tp)
    batch = sized(batch, **{where: sizes})
    # Element-wise kernels and collectives have no grain: they move the columns that there are.
    deployed = Deployed(batch, machines())
    for step in (gemms.prefill(deployed, 2048.0, 2048.0), gemms.decode(deployed, 16.0, 2048.0)):
        for gemm in step.gemms:
            assert gemm.seconds[0] >= gemm.seconds[1] * (1.0 - 1e-12), gemm.name


@pytest.mark.parametrize("chip", SOME)
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4", "int4"])
def test_more_factors_of_two_never_cost_more(chip: str, dtype: str):
    """The mean over widths from 2,048 to 4,096 that are odd multiples of a power of two: what is
    used of a product rises, or stays, with the power."""
    used = []
    for power in 2.0 ** np.arange(9):
        widths = power * np.arange(2048.0 // power, 4096.0 // power)
        widths = widths[(widths / power) % 2.0 == 1.0]
        batch = deploy("llama-2-7b", chip, weight_dtype=dtype, repeat=len(widths))
        step = gemms.prefill(
            Deployed(sized(batch, intermediate_size=widths), machines()), 2048.0, 2048.0
        )
        down = next(g for g in step.gemms if g.name == "feed-forward down-projection")
        assert (down.reached == down.reached[0]).all()
        used.append((down.reached[0], float(np.mean(down.filled))))
    reached, filled = np.array(used).T
    assert (np.diff(reached) >= 0.0).all()
    assert (np.diff(filled) >= -1e-12).all()
    assert reached[-1] == filled[-1] == 1.0


def test_the_cliff_is_at_16_bytes_of_every_format():
    for dtype, elements in (("bf16", 8), ("fp8", 16), ("nvfp4", 32), ("int4", 32)):
        bits = ELEMENT_BITS[np.full(2, CODE[dtype])]
        bytes_ = aligned_bytes(np.array([elements * 3.0, elements * 1.5]), bits)
        assert bytes_[0] == CLIFF_BYTES
        assert alignment_efficiency(bytes_).tolist() == [1.0, MISALIGNED]


def test_the_whole_kernel_is_slowed_in_prefill_and_decode():
    batch = sized(deploy("llama-2-7b", "h100_sxm", repeat=2), intermediate_size=[10922.0, 10944.0])
    deployed = Deployed(batch, machines())
    for step in (
        gemms.prefill(deployed, 2048.0, 2048.0),
        gemms.decode(Deployed(batch, machines()), 16.0, 2048.0),
    ):
        for gemm in step.gemms:
            if "feed-forward" not in gemm.name:
                continue
            busy = gemm.seconds - gemm.fixed_s
            assert busy[0] / busy[1] == pytest.approx(1.0 / MISALIGNED, rel=1e-12)


def test_padding_is_no_useful_arithmetic():
    """Neither the floor nor the model's arithmetic counts it; the memory it takes is as stored."""
    batch = sized(deploy("llama-2-7b", "h100_sxm", concurrency=16.0), hidden=4100.0)
    mine, bare = run(batch, LOAD).values, run(batch, LOAD, without(machines())).values
    assert mine["latency_floor_s"][0] == pytest.approx(bare["latency_floor_s"][0], rel=1e-12)
    assert mine["memory_bytes_per_chip"][0] == bare["memory_bytes_per_chip"][0]
    assert mine["mfu"][0] < bare["mfu"][0]


@pytest.mark.parametrize(
    ("chip", "size", "computed"),
    [
        ("h100_sxm", 80, 96),
        ("h100_sxm", 100, 128),
        ("h100_sxm", 128, 128),
        ("h100_sxm", 144, 192),
        ("mi300x", 112, 128),
        ("tpu_v5p", 64, 128),
        ("tpu_v5p", 192, 256),
        ("ascend_910c_cm384", 100, 100),
    ],
)
def test_heads_are_padded_to_what_kernels_are_compiled_for(chip: str, size: int, computed: int):
    batch = sized(deploy("llama-2-7b", chip), head_dim=size, v_head_dim=size)
    like = sized(batch, head_dim=computed, v_head_dim=computed)

    def attention(one: CandidateBatch) -> list[float]:
        entries = [
            entry
            for step in (gemms.prefill, gemms.decode)
            for entry in step(Deployed(one, machines()), 64.0, 2048.0).ledger.entries or []
        ]
        return [float(e.seconds[0]) for e in entries if e.name.startswith("attention over")]

    assert attention(batch) == pytest.approx(attention(like), rel=1e-12)


def test_training_pays_too():
    """Forward, and both gradients: the step of a misaligned model is longer than that of the next
    that fits, and one that fits costs what it did."""

    def runs(hidden: float, width: float) -> TrainingBatch:
        batch = sized(deploy("llama-2-7b", "h100_sxm"), hidden=hidden, intermediate_size=width)
        return TrainingBatch.of(batch, 4096, 2**22, micro_batch=1.0)

    fits = train(runs(4096.0, 11008.0))
    assert fits.step_s[0] == train(runs(4096.0, 11008.0), on=without(machines())).step_s[0]
    for hidden, width in ((4095.0, 11008.0), (4090.0, 11008.0), (4096.0, 10922.0)):
        assert train(runs(hidden, width)).step_s[0] > 1.1 * fits.step_s[0]
    bare = train(runs(4095.0, 11008.0), on=without(machines()))
    mine = train(runs(4095.0, 11008.0))
    for name, bytes_ in bare.memory.items():
        assert mine.memory[name][0] == bytes_[0], name


def test_grains_are_of_families_that_exist():
    named = [family for grain in GRAINS.values() for family in grain.chips]
    assert len(named) == len(set(named))
    assert set(named) <= {chip.family for chip in load_catalog().chips.values()}
    for grain in GRAINS.values():
        assert grain.columns % grain.lines == 0.0
        assert grain.columns % 32.0 == 0.0  # blocks of mxfp4 lie inside


@pytest.mark.parametrize("chip", SOME)
def test_layers_that_a_model_lacks_are_not_padded(chip: str) -> None:
    """Dense and sparse models of misaligned hidden sizes in one batch have what each has alone."""
    models = [
        resolve_model(name) for name in ("falcon-7b", "gpt-oss-20b", "gpt-2-xl", "olmoe-1b-7b")
    ]
    together = replace(batch_of_models(*models), chip=np.full(len(models), CHIPS.index(chip)))
    found = run(together, LOAD)
    for i, model in enumerate(models):
        alone = run(replace(batch_of_models(model), chip=np.array([CHIPS.index(chip)])), LOAD)
        for name in ("latency_floor_s", "mfu", "mbu", "tpot_s", "prefill_s"):
            assert found.values[name][i] == pytest.approx(alone.values[name][0], rel=1e-12), name
