"""Laws that every training run obeys, whatever the model, the chip and the plan."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dse.physics.training.plan import (
    LOSSES,
    OPTIMIZERS,
    PRECISIONS,
    RECOMPUTES,
    SCHEDULES,
    TASKS,
    TrainingBatch,
    TrainingMetrics,
)
from dse.schema.constants import TIERS
from dse.schema.model_catalog import resolve_model
from dse.schema.training import training_stack
from dse.space.batches import batch_of
from dse.space.candidates import Floats
from tests.helpers import CHIPS, MODELS, machines, scaled
from tests.helpers_training import plan, states, train

STACK = training_stack("megatron")
ROUNDING = 1e-12
SHARDED = st.sampled_from([1.0, 2.0, 4.0, 8.0])


@st.composite
def runs(draw, **fixed) -> TrainingBatch:
    drawn = {
        "tensor_parallel": SHARDED,
        "pipeline_parallel": SHARDED,
        "data_parallel": SHARDED,
        "expert_parallel": st.sampled_from([1.0, 2.0]),
        "context_parallel": SHARDED,
        "virtual_stages": st.sampled_from([1.0, 2.0]),
        "micro_batch": st.sampled_from([1.0, 2.0]),
        "recompute": st.sampled_from(RECOMPUTES),
        "zero_stage": st.sampled_from([0.0, 1, 2, 3]),
        "sequence_parallel": st.sampled_from([0.0, 1.0]),
        "schedule": st.sampled_from(SCHEDULES),
        "precision": st.sampled_from(PRECISIONS),
        "task": st.sampled_from(TASKS),
    }
    chosen = {name: draw(kind) for name, kind in drawn.items() if name not in fixed}
    return plan(draw(st.sampled_from(MODELS)), draw(st.sampled_from(CHIPS)), **chosen, **fixed)


def leaves(metrics: TrainingMetrics) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name in metrics.__match_args__:
        if name == "deployed":  # what was evaluated, not what came out
            continue
        value = getattr(metrics, name)
        if isinstance(value, np.ndarray):
            found[name] = value
        elif isinstance(value, dict):
            found |= {f"{name} {key}": item for key, item in value.items()}
        else:
            found |= {f"{name} {one.name}": getattr(value, one.name) for one in fields(value)}
    return found


def test_a_run_alone_is_the_same_run_among_others() -> None:
    rng, n = np.random.default_rng(7), 64

    def two(most: int) -> Floats:
        return np.exp2(rng.integers(0, most, n).astype(np.float64))

    degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    axes = {name: two(4) for name in degrees}
    axes |= {"replicas": np.ones(n), "concurrency": np.ones(n)}
    models = [resolve_model(MODELS[k]) for k in rng.integers(0, len(MODELS), n)]
    chips = rng.integers(0, len(CHIPS), n)
    code = {
        name: rng.integers(0, len(names), n)
        for name, names in (
            ("precision", PRECISIONS),
            ("recompute", RECOMPUTES),
            ("schedule", SCHEDULES),
            ("optimizer", OPTIMIZERS),
            ("task", TASKS),
        )
    }
    batch = TrainingBatch.of(
        batch_of(models, chips, [None] * n, ["bf16"] * n, axes),
        2.0**13,
        2.0**22,
        context_parallel=two(3),
        virtual_stages=two(3),
        micro_batch=two(3),
        zero_stage=rng.integers(0, 4, n),
        sequence_parallel=rng.integers(0, 2, n),
        offload=rng.integers(0, 3, n) / 2,
        **code,
    )
    together = leaves(train(batch, STACK))
    for i in range(n):
        alone = leaves(train(batch[i : i + 1], STACK))
        for name, values in together.items():
            assert values[i] == alone[name][0], name
    # Without a memory of the host, states kept there never come (`dse.rules.divide` refuses it).
    tiers = machines().tiers.capacity_bytes[chips, TIERS.index("host")]
    there = (batch.offload == 0.0) | (tiers > 0.0)
    for name, values in together.items():
        assert np.isfinite(values[there]).all(), name


@given(runs())
def test_parts_add_up_and_none_is_negative(batch) -> None:
    metrics = train(batch, STACK)
    assert list(metrics.losses) == list(LOSSES)
    parts = "weights gradients optimizer master activations logits buffers runtime"
    assert list(metrics.memory) == parts.split()
    step, memory = np.zeros(1), np.zeros(1)
    for seconds in metrics.losses.values():
        step = step + seconds
    for bytes_ in metrics.memory.values():
        memory = memory + bytes_
        assert bytes_ >= 0.0
    assert step == metrics.step_s
    assert memory == metrics.memory_bytes_per_chip
    for cause, seconds in metrics.losses.items():
        # Kernels are what is left: a law with a better format than the run's would make it less.
        assert seconds >= -1e-9 * step or cause == "kernels"
    assert 0.0 < metrics.mfu < 1.0
    assert metrics.mfu <= metrics.hfu


@given(
    runs(),
    st.sampled_from(["bandwidth", "flops", "links"]),
    st.floats(1.0, 8.0),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=5, max_size=5),
)
def test_better_hardware_never_slows_a_step(batch, field, factor, shares) -> None:
    """Whatever hides, and however far: no two hide behind the same work."""
    names = ("tensor", "context", "expert", "data", "pipeline")
    overlaps = {f"{name}_overlap": each for name, each in zip(names, shares, strict=True)}
    stack = replace(STACK, **overlaps)
    before = train(batch, stack).step_s
    after = train(batch, stack, scaled(machines(), field, factor)).step_s
    assert after <= before * (1 + ROUNDING)


@given(runs(zero_stage=[0.0, 1.0, 2.0, 3.0], repeat=4))
def test_every_stage_of_zero_holds_less_of_the_states(batch) -> None:
    assert (np.diff(states(train(batch, STACK))) <= 0.0).all()


@given(
    runs(
        task="pretrain",
        zero_stage=3.0,
        expert_parallel=1.0,
        pipeline_parallel=1.0,
        data_parallel=[1.0, 2.0, 4.0, 8.0],
        context_parallel=1.0,
        repeat=4,
    )
)
def test_zero_3_divides_states_by_the_ranks(batch) -> None:
    shares = states(train(batch, STACK)) * batch.candidates.data_parallel
    np.testing.assert_allclose(shares, shares[0], rtol=1e-12)


@given(runs(recompute=["none", "selective", "full"]))
def test_recomputation_trades_time_for_memory(batch) -> None:
    metrics = train(batch, STACK)
    assert (np.diff(metrics.step_s) >= -ROUNDING * metrics.step_s[:-1]).all()
    one_layer = metrics.memory["activations"] - metrics.memory["activations"][0]
    assert one_layer[1] <= 0.0


@given(runs(schedule="1f1b", virtual_stages=1.0, pipeline_parallel=8.0), st.integers(1, 6))
def test_more_micro_batches_waste_a_smaller_share(batch, doublings) -> None:
    more = replace(batch, global_batch_tokens=batch.global_batch_tokens * 2.0**doublings)
    runs = (train(one, STACK) for one in (batch, more))
    few, many = (run.losses["bubble"] / run.step_s for run in runs)
    assert many <= few * (1 + ROUNDING)
