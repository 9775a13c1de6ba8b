"""Time of a training step against closed forms and published bubbles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dse.physics.parameters import parameters
from dse.physics.training.memory import activation_bytes, model_states
from dse.physics.training.plan import SCHEDULES, Stages, bubble_share, in_flight
from tests.helpers import deploy
from tests.helpers_training import PLAIN, micro_batch, plan, states, train

THIRD = np.full(1, 1.0 / 3.0)


def bubble(schedule: str, stages: float, virtual: float = 1.0) -> float:
    """In units of the forward and backward of one micro-batch on a stage, forward, gradient of the
    input and gradient of the weights as long as each other."""
    share = bubble_share(
        np.array([SCHEDULES.index(schedule)]),
        np.full(1, stages),
        np.full(1, virtual),
        2 * THIRD,
        THIRD,
    )
    return float(share[0]) * (stages - 1)


def test_published_bubbles() -> None:
    """Narayanan et al. 2021, section 2.2; Qi et al. 2024: a third of 1F1B's with equal parts;
    DeepSeek-V3, table 2: (p / 2 - 1) (F&B + B - 3 W) with F&B = F + B = 3, B = 2, W = 1."""
    assert bubble("1f1b", 8) == pytest.approx(7)
    assert bubble("interleaved", 8, 4) == pytest.approx(7 / 4)
    assert bubble("zero_bubble", 8) == pytest.approx(7 / 3)
    assert bubble("dualpipe", 8) == pytest.approx(3 * (3 + 2 - 3) / 3)


def test_the_bubble_of_a_step_is_that_of_megatron() -> None:
    """(p - 1) / (m v) of the time of m micro-batches, but for the output head, which only the last
    stage has and which makes the others wait less."""
    runs = plan(
        "llama-3-70b",
        pipeline_parallel=8,
        virtual_stages=[1, 5, 10],
        batch=4096 * 32,
        tensor_parallel=8,
    )
    metrics = train(runs)
    idle = metrics.losses["bubble"]
    assert idle[0] == pytest.approx(5 * idle[1], rel=1e-12)
    assert idle[0] == pytest.approx(10 * idle[2], rel=1e-12)
    busy = metrics.step_s - idle - metrics.losses["optimizer"]
    busy = busy - metrics.losses["pipeline_communication"]
    assert 0.85 * 7 / 32 < idle[0] / busy[0] <= 7 / 32


def test_layers_of_a_stage() -> None:
    """80 over 8; 126 over 16, where Llama 3 405B takes one layer from the first and the last stage
    (arXiv 2407.21783, section 3.3.2); 61 over 4 in chunks of 4; one stage holds all."""
    layers = np.array([80.0, 126.0, 61.0, 61.0])
    stages = Stages.of(layers, np.array([8.0, 16.0, 4.0, 1.0]), np.array([1.0, 1.0, 4.0, 3.0]))
    assert stages.middle.tolist() == [10.0, 8.0, 16.0, 61.0]
    assert stages.last.tolist() == [10.0, 7.0, 15.0, 61.0]


def test_model_flops_are_six_a_parameter_and_causal_attention() -> None:
    """PaLM's convention (arXiv 2204.02311, appendix B), 6 N + 12 L H Q T, with half of attention,
    which a causal mask leaves."""
    metrics = train(plan("llama-3-70b", sequence=8192))
    active = parameters(deploy("llama-3-70b", "h100_sxm")).active
    assert metrics.model_flops_per_token == 6 * active + 6 * 80 * 64 * 128 * 8192
    assert metrics.mfu_6n / metrics.mfu == pytest.approx(6 * active / metrics.model_flops_per_token)


def test_sharding_changes_no_model_flops() -> None:
    runs = plan(
        "llama-3-70b", tensor_parallel=[1, 8], pipeline_parallel=[1, 4], context_parallel=[1, 2]
    )
    flops = train(runs).model_flops_per_token
    assert flops[0] == pytest.approx(flops[1], rel=1e-12)


def test_utilisation_is_the_share_of_the_ideal() -> None:
    runs = plan("llama-3-8b", data_parallel=8, tensor_parallel=2, chip="h100_sxm")
    metrics = train(runs)
    rate = metrics.tokens_per_s_per_chip * metrics.model_flops_per_token
    assert metrics.mfu == pytest.approx(rate / 989.4e12, rel=1e-3)


def test_full_recomputation_is_one_more_forward() -> None:
    """A third more arithmetic, but for the output head, which is not done again."""
    runs = plan("llama-3-70b", "gb300_nvl72", recompute=["none", "full"])
    metrics = train(runs)
    assert 1.30 < metrics.hfu[1] / metrics.mfu[1] < 4 / 3
    assert metrics.hfu[0] == metrics.mfu[0]
    forward = micro_batch(plan("llama-3-70b", "gb300_nvl72")).layers.forward
    more = metrics.step_s[1] - metrics.step_s[0]
    assert more == pytest.approx(forward[0] * runs.micro_batches[0], rel=1e-9)


def test_backward_of_products_takes_twice_the_forward() -> None:
    """As many operations again for the rows, and for the weights; attention 2.5 times."""
    work = micro_batch(plan("llama-3-70b", sequence=8192, micro_batch=4)).layers
    assert work.backward_peak == pytest.approx(2.03 * work.forward_peak, rel=0.01)
    assert 1.9 < work.backward / work.forward < 2.2


def test_frozen_weights_have_no_gradient() -> None:
    metrics = train(plan("llama-3-70b", "gb300_nvl72", task=["sft", "lora"]))
    assert metrics.step_s[1] < 0.8 * metrics.step_s[0]
    assert metrics.model_flops_per_token[1] == pytest.approx(
        metrics.model_flops_per_token[0] * 2 / 3, rel=0.03
    )


def test_lower_formats_save_products_and_cost_casts() -> None:
    formats = ["bf16", "mxfp8", "nvfp4"]
    metrics = train(plan("llama-3-70b", "gb300_nvl72", sequence=8192, precision=formats))
    assert (np.diff(metrics.step_s) < 0.0).all()
    assert metrics.losses["elementwise"][1] > metrics.losses["elementwise"][0]
    assert metrics.losses["higher_precision"][0] == 0.0
    assert (metrics.losses["higher_precision"][1:] > 0.0).all()


def test_zero_3_gathers_weights_in_every_micro_batch() -> None:
    """Of m micro-batches two gathers and a scatter each, against one of each a step: with weights
    and gradients of 2 bytes 3 m against 2 (Rajbhandari et al. 2020, section 7.2: half as much
    again for one micro-batch)."""
    stack = replace(PLAIN, data_overlap=0.0)
    common = {"data_parallel": 8, "gradient_bytes": 2.0, "zero_stage": [1, 3]}
    for micro_batches in (1, 4):
        runs = plan("llama-3-8b", batch=8192 * 8 * micro_batches, sequence=8192, **common)
        once, often = train(runs, stack).losses["data_communication"]
        assert often == pytest.approx(1.5 * micro_batches * once, rel=1e-9)


def test_a_group_far_apart_leaves_the_domain() -> None:
    """8 data ranks next to each other share a domain of 8; with 8 tensor ranks between them they do
    not, and an eighth of the gradients takes longer than all of them inside."""
    stack = replace(PLAIN, data_overlap=0.0)
    runs = plan("llama-3-8b", data_parallel=8, tensor_parallel=[1, 8], repeat=2)
    inside, outside = train(runs, stack).losses["data_communication"]
    assert outside > 0.5 * inside


def test_communication_hides_no_further_than_the_stack_says() -> None:
    runs = plan("llama-3-70b", tensor_parallel=8, data_parallel=8)
    shown = [
        train(runs, replace(PLAIN, tensor_overlap=share)).losses["tensor_communication"][0]
        for share in (0.0, 0.5, 1.0)
    ]
    assert shown[0] > shown[1] > shown[2]
    assert shown[1] - shown[2] == pytest.approx(shown[0] - shown[1], rel=1e-9)
    off = plan("llama-3-70b", tensor_parallel=8, data_parallel=8, tensor_hidden=0.0)
    whole = train(off, replace(PLAIN, tensor_overlap=1.0)).losses["tensor_communication"][0]
    assert whole == shown[0]


def test_launches_show_where_the_device_is_faster() -> None:
    small = plan("llama-3-8b", "gb300_nvl72", sequence=512, batch=512)
    slow = replace(PLAIN, host_s_per_layer=5e-3)
    assert train(small, slow).step_s > 32 * 5e-3
    large = plan("llama-3-8b", "gb300_nvl72", sequence=8192, micro_batch=4, batch=2**20)
    assert train(large, slow).losses["host"] == 0.0


def test_a_layer_is_summed_four_times_over_tensor_ranks() -> None:
    """Twice forward, twice backward (Shoeybi et al. 2019, arXiv 1909.08053, figure 4), and once for
    the embedding and once for the output head; a ring sends 7 / 4 of 16-bit hidden states."""
    runs = plan("llama-3-8b", tensor_parallel=8, sequence=8192, batch=8192)
    once = 2 * 7 / 8 * 8192 * 4096 * 2
    assert train(runs).work.link_bytes == pytest.approx((4 * 32 + 2) * once, rel=1e-9)


def test_data_ranks_send_gradients_and_weights_once() -> None:
    """(g - 1) / g of 4 bytes of gradient and of 2 of weight (Rajbhandari et al. 2020, section 7.1).
    The padded vocabulary is that of the model."""
    metrics = train(plan("llama-3-8b", data_parallel=8))
    expected = 7 / 8 * (4 + 2) * metrics.parameters.total
    assert metrics.work.link_bytes == pytest.approx(expected, rel=1e-6)
    assert metrics.work.network_bytes == 0.0


def test_keys_and_values_go_around_three_times() -> None:
    """Forward, backward and their gradients: 32 layers of 8 heads of 128 keys and values."""
    runs = plan(
        "llama-3-8b",
        context_parallel=8,
        sequence=65_536,
        batch=65_536,
        zero_stage=0,
        task="lora",
        lora_rank=0,
    )
    around = 7 / 8 * 65_536 * 8 * 2 * 128 * 2
    assert train(runs).work.link_bytes == pytest.approx(3 * 32 * around, rel=1e-9)


def test_arithmetic_for_energy_is_that_of_the_model_and_of_scores_again() -> None:
    """Half of attention's forward more than the model's own: 3.5 times for 3."""
    metrics = train(plan("llama-3-70b", sequence=8192, batch=8192))
    attention = (1.0 - metrics.mfu_6n / metrics.mfu) * metrics.losses["ideal"]
    assert metrics.work.peak_s == pytest.approx(
        metrics.losses["ideal"] + attention * 0.5 / 3, rel=1e-3
    )


# Memory of a training run against the papers that its formulas are from.


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
    return [float(part[0]) / 1e9 for part in found.values()]


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
