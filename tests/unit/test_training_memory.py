"""Memory of a training run against the papers that its formulas are from."""

from __future__ import annotations

import numpy as np
import pytest

from dse.physics.parameters import parameters
from dse.physics.training.memory import activation_bytes, model_states
from dse.physics.training.plan import SCHEDULES, in_flight
from tests.helpers import deploy
from tests.helpers_training import micro_batch, plan, states, train


def of_states(parameters: float, ranks: float, stage: float, **bytes_: float) -> list[float]:
    """Gigabytes of weights, gradients, moments and master."""
    one = np.ones(1)
    found = model_states(
        parameters * one,
        parameters * one,
        ranks * one,
        stage * one,
        bytes_["moments"] * one,
        bytes_["master"] * one,
        bytes_["gradient"] * one,
    )
    parts = (found.weights, found.gradients, found.optimizer, found.master)
    return [float(part[0]) / 1e9 for part in parts]


def test_the_70b_example_takes_840_gb() -> None:
    parts = of_states(70e9, 1, 0, moments=8, master=0, gradient=2)
    assert parts == [140.0, 140.0, 560.0, 0.0]
    assert sum(parts) == 840.0


def test_the_same_model_through_the_whole_path() -> None:
    runs = plan("llama-3-70b", zero_stage=0, master_bytes=0, gradient_bytes=2)
    count = parameters(deploy("llama-3-70b", "h100_sxm")).total
    assert states(train(runs)) == pytest.approx(12 * count, rel=1e-6)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_stages_of_the_paper(stage: int, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 ranks, 16 bytes each."""
    parts = of_states(7.5e9, 64, stage, moments=8, master=4, gradient=2)
    assert sum(parts) == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("tensor", "sequence_parallel", "per_sbh"),
    [(1, 0, 32.0), (8, 0, 8.0 + 24.0 / 8), (8, 1, 32.0 / 8)],
)
def test_activations_of_a_layer_are_those_of_korthikanti(
    tensor: int, sequence_parallel: int, per_sbh: float
) -> None:
    """Korthikanti et al. 2022, equations 2 and 3 and section 4.2.2: s b h (34), (10 + 24 / t) and
    34 / t, less the two masks of dropout (1 byte each, whole but for sequence parallelism) and the
    scores, which FlashAttention does not keep. OPT has the layer of the paper."""
    runs = plan(
        "opt-66b",
        sequence=2048,
        micro_batch=4,
        tensor_parallel=tensor,
        sequence_parallel=sequence_parallel,
    )
    step = micro_batch(runs)
    kept, whole = activation_bytes(step)
    assert kept == pytest.approx(2048 * 4 * 9216 * per_sbh, rel=1e-9)
    assert kept == whole


def test_full_recomputation_keeps_the_input_of_a_layer() -> None:
    """2 s b h (the same paper, table 2)."""
    kept, _ = activation_bytes(micro_batch(plan("opt-66b", sequence=2048, recompute="full")))
    assert kept == pytest.approx(2048 * 9216 * 2.0, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "alone", "other"),
    [
        ("llama-3-70b", "mlp", "moe"),
        ("mixtral-8x7b", "moe", "mlp"),
    ],
)
def test_feed_forwards_recomputed_alone(model: str, alone: str, other: str) -> None:
    """Where the model has none of a kind nothing changes; where it has, less than full drops."""
    metrics = train(plan(model, recompute=["none", alone, other, "full"]))
    kept, again = metrics.memory["activations"], metrics.losses["recomputation"]
    assert kept[0] == kept[2] > kept[1] > kept[3]
    assert again[0] == again[2] == 0.0
    assert 0.0 < again[1] < again[3]


def test_interleaving_keeps_more_micro_batches() -> None:
    """p (1 + (p - 1) / (p v)) on the first stage (Korthikanti et al. 2022, section 4.2.3)."""
    many = np.full(3, 64.0)
    schedule = np.array([SCHEDULES.index(name) for name in ("1f1b", "interleaved", "dualpipe")])
    first, _, last = in_flight(schedule, np.full(3, 8.0), np.array([1.0, 4.0, 1.0]), many)
    assert first.tolist() == [8.0, 8 * (1 + 7 / 32), 9.0]
    assert last.tolist() == [1.0, 8 - 7 / 4, 9.0]


def test_no_more_micro_batches_are_kept_than_there_are() -> None:
    first, _, _ = in_flight(np.zeros(1, np.intp), np.full(1, 8.0), np.ones(1), np.full(1, 3.0))
    assert first == 3.0


def test_experts_shard_over_the_ranks_that_expert_parallelism_leaves() -> None:
    """Mixtral on 8 data ranks: with 8 expert ranks every chip has one expert of each layer, and no
    other rank the same, so that ZeRO has only the dense part to divide."""
    metrics = train(
        plan("mixtral-8x7b", data_parallel=8, expert_parallel=[1, 8], zero_stage=1, repeat=2)
    )
    weights, optimizer = metrics.memory["weights"], metrics.memory["optimizer"]
    assert weights[0] > 5 * weights[1]
    assert optimizer[0] == pytest.approx(optimizer[1], rel=1e-6)


def test_adaptation_keeps_gradients_of_adapters_alone() -> None:
    metrics = train(plan("llama-3-70b", task=["sft", "lora"], zero_stage=0))
    for part in ("gradients", "optimizer", "master"):
        assert metrics.memory[part][1] < 0.01 * metrics.memory[part][0]
    assert metrics.memory["weights"][1] == pytest.approx(metrics.memory["weights"][0], rel=0.01)


def test_offloaded_states_move_to_the_host() -> None:
    metrics = train(plan("llama-3-8b", offload=[0.0, 1.0]))
    moved = metrics.memory["optimizer"] + metrics.memory["master"]
    assert moved[1] == 0.0
    assert metrics.host_memory_bytes_per_chip[1] == moved[0]
    assert metrics.losses["optimizer"][1] > metrics.losses["optimizer"][0]


def test_logits_are_kept_in_32_bits_on_the_last_stage() -> None:
    """4 s b v / t (Korthikanti et al. 2022, section 4.3), and two inputs of 2 s b h / t."""
    metrics = train(plan("llama-3-8b", sequence=8192, tensor_parallel=2))
    assert metrics.memory["logits"] == 8192 / 2 * (4 * 128_256 + 2 * 2 * 4096)


def test_selective_recomputation_keeps_latents_in_place_of_keys_and_values() -> None:
    """Of latent attention a token keeps its latents and its output, not 128 expanded heads of
    queries, keys (192 numbers each) and values (128)."""
    runs = plan("deepseek-v3", recompute=["none", "selective"], expert_parallel=8, data_parallel=8)
    kept, _ = activation_bytes(micro_batch(runs))
    assert kept[0] - kept[1] > 4096 * 2 * 128 * (192 + 192 + 128)
    assert kept[1] > 4096 * 2 * 128 * 128
