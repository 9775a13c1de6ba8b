"""evaluate_training(batch, machines, stack): one optimizer step of n training runs.

A step is m micro-batches on the fullest pipeline stage, what the other stages make it wait while
the pipeline fills and drains, the communication that does not hide, the update of the weights, the
host, and waiting for the slowest chip. Everything that is not the model's arithmetic at the dense
peak is a loss with a name (`plan.LOSSES`); their sum is the step.
"""

from __future__ import annotations

import numpy as np

from dse.candidates import Floats
from dse.perf.machines import Machines
from dse.perf.parameters import parameters
from dse.perf.training.communication import (
    Held,
    MicroBatchTraffic,
    data_seconds,
    micro_batch_traffic,
    pipeline_seconds,
    tensor_forward,
)
from dse.perf.training.deployed import TrainingDeployed
from dse.perf.training.memory import FULL, MOMENT_BYTES, SELECTIVE, WEIGHT_BYTES, memory_of
from dse.perf.training.passes import CAST_BYTES, Pass
from dse.perf.training.pipeline import Stages, bubble_share
from dse.perf.training.plan import LOSSES, MEMORY_PARTS, TrainingBatch, TrainingMetrics
from dse.perf.training.rules import violations
from dse.perf.training.weights import Elements, elements_of
from dse.specs.tiers import TIERS
from dse.specs.training_stack import TrainingStack

HOST = TIERS.index("host")


def evaluate_training(
    batch: TrainingBatch, machines: Machines, stack: TrainingStack
) -> TrainingMetrics:
    """All (n,). `evaluate_training(batch)[i]` equals `evaluate_training(batch[i:i+1])` bit for
    bit. Chunks of about 10,000 runs keep the arrays in cache."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _evaluate(batch, machines, stack)


def _evaluate(batch: TrainingBatch, machines: Machines, stack: TrainingStack) -> TrainingMetrics:
    deployed = TrainingDeployed(batch, machines, stack)
    step = Pass(deployed)
    elements = elements_of(deployed)
    layers = np.maximum(deployed.batch.layers, 1.0)
    stages = Stages.of(layers, deployed.pipeline_parallel, batch.virtual_stages)
    micro_batches = np.maximum(np.ceil(batch.micro_batches - 1e-6), 1.0)
    memory = memory_of(step, elements, stages, micro_batches)
    total = memory.total
    per_token, plain = _model_flops(step)
    losses, hidden, again = _losses(step, elements, stages, micro_batches, per_token)
    step_s = np.zeros(deployed.n)
    for cause in LOSSES:
        step_s = step_s + losses[cause]
    tokens = batch.global_batch_tokens
    ideal = losses["ideal"]
    host_capacity = machines.tiers.capacity_bytes[deployed.batch.chip, HOST]
    return TrainingMetrics(
        step_s=step_s,
        tokens_per_s_per_chip=tokens / step_s / batch.chips,
        model_flops_per_token=per_token,
        mfu=ideal / step_s,
        mfu_6n=ideal * plain / per_token / step_s,
        hfu=(ideal + again) / step_s,
        memory_bytes_per_chip=total,
        memory_capacity_bytes_per_chip=deployed.capacity_bytes,
        host_memory_bytes_per_chip=memory.host,
        memory={part: memory.parts[part] for part in MEMORY_PARTS},
        losses=losses,
        hidden_communication_s=hidden,
        micro_batches=micro_batches,
        violations=violations(deployed, total, memory.host, host_capacity),
    )


def _model_flops(step: Pass) -> tuple[Floats, Floats]:
    """(n,) operations a token with and without attention. A trained parameter takes 6 a token, 2
    forward and 4 backward (Kaplan et al. 2020, arXiv 2001.08361, section 2.1), a frozen one 4;
    attention three times its forward, only what the mask lets a token see."""
    count = parameters(step.deployed.batch)
    met = count.active_non_embedding + np.where(count.head > 0.0, count.head, count.embedding)
    tp = step.deployed.tensor_parallel
    plain = np.where(step.lora, 4.0 * met + 6.0 * step.adapter_elements * tp, 6.0 * met)
    return plain + 3.0 * step.mixing_flops * tp / step.rows, plain


def _losses(
    step: Pass, elements: Elements, stages: Stages, micro_batches: Floats, per_token: Floats
) -> tuple[dict[str, Floats], Floats, Floats]:
    """Seconds of a step by cause; of its communication what hides; and of its arithmetic what is
    done again, at the dense peak."""
    deployed, stack = step.deployed, step.stack
    pp, m = deployed.pipeline_parallel, micro_batches
    mean = m / pp  # micro-batches through all layers, of the time of one stage
    traffic = micro_batch_traffic(step)
    tables = 2.0 * tensor_forward(step)  # the embedding forward, the output head backward
    tensor = traffic.tensor + tables
    again = _again(step, traffic)
    layers_s = step.layers.seconds + traffic.tensor + traffic.context + traffic.expert + again
    ends_s = step.ends.seconds + tables
    whole = layers_s + ends_s
    of_layers = layers_s / np.maximum(deployed.batch.layers, 1.0)
    fullest = np.maximum(of_layers * stages.last + ends_s, of_layers * stages.middle * stages.inner)

    ideal = per_token * step.own_rows * step.peak_s_per_flop
    higher = step.layers.higher_precision + step.ends.higher_precision
    elementwise = step.layers.elementwise + step.ends.elementwise
    uneven = step.layers.uneven
    device = step.layers.seconds + step.ends.seconds
    kernels = device - ideal - higher - elementwise - uneven
    hops, hops_hidden = pipeline_seconds(step, m)
    data, data_hidden, update = _states(step, elements, stages, m, traffic.room)
    losses = {
        "ideal": mean * ideal,
        "higher_precision": mean * higher,
        "kernels": mean * kernels,
        "elementwise": mean * elementwise,
        "recomputation": mean * again,
        "imbalance": m * (fullest - whole / pp) + mean * uneven,
        "bubble": _bubble(step, traffic, again, whole, fullest),
        "tensor_communication": mean * tensor,
        "context_communication": mean * traffic.context,
        "expert_communication": mean * traffic.expert,
        "pipeline_communication": hops,
        "data_communication": data,
        "optimizer": update,
        "host": stack.host_s_per_step + m * stack.host_s_per_micro_batch,
    }
    busy = np.zeros(deployed.n)
    for seconds in losses.values():
        busy = busy + seconds
    losses["stragglers"] = stack.straggler * busy
    hidden = mean * traffic.hidden + hops_hidden + data_hidden
    return losses, hidden, mean * _arithmetic_again(step)


def _again(step: Pass, traffic: MicroBatchTraffic) -> Floats:
    """(n,) seconds of recomputation in one micro-batch, all layers: the forward pass with its
    communication, or its norms and activations."""
    forward = step.layers.forward + traffic.tensor / 2.0 + traffic.context / 3.0
    forward = forward + traffic.expert / 2.0
    recompute = step.deployed.runs.recompute
    cheap = np.where(recompute == SELECTIVE, step.layers.cheap, 0.0)
    return np.where(recompute == FULL, forward, cheap)


def _arithmetic_again(step: Pass) -> Floats:
    """(n,) seconds at the dense peak of what full recomputation does again in one micro-batch."""
    count = parameters(step.deployed.batch)
    forward = 2.0 * count.active_non_embedding * step.own_rows + step.mixing_flops
    return np.where(step.deployed.runs.recompute == FULL, forward * step.peak_s_per_flop, 0.0)


def _bubble(
    step: Pass, traffic: MicroBatchTraffic, again: Floats, whole: Floats, fullest: Floats
) -> Floats:
    """(n,) seconds that the fullest stage waits for the others in a step."""
    runs, pp = step.deployed.runs, step.deployed.pipeline_parallel
    backward = step.layers.backward + step.ends.backward + traffic.tensor / 2.0
    backward = backward + traffic.context * (2.0 / 3.0) + traffic.expert / 2.0 + again
    weights = step.layers.weight_gradient + step.ends.weight_gradient
    share = bubble_share(runs.schedule, pp, runs.virtual_stages, backward / whole, weights / whole)
    return share * np.maximum(whole - fullest, 0.0)


def _states(
    step: Pass, elements: Elements, stages: Stages, micro_batches: Floats, room: Floats
) -> tuple[Floats, Floats, Floats]:
    """Seconds of a step, (n,): data-parallel communication shown and hidden; the update.

    The update reads the gradient twice (its norm, then itself), reads and writes moments, master
    copy and weight, all at the memory rate of large kernels; what is offloaded is updated where it
    lies, at the rate of the host's memory tier. Low formats cast each weight once."""
    deployed, runs = step.deployed, step.deployed.runs
    alone = deployed.pipeline_parallel == 1.0
    tied = elements.tied > 0.0
    tables = np.where(alone & ~tied, 2.0 * elements.table, elements.table)
    tables = tables + np.where(alone, elements.positions, 0.0)
    inner = stages.middle * stages.inner
    layers = np.maximum(stages.last, inner)
    stored = np.maximum(elements.dense * stages.last + tables, elements.dense * inner)
    share = layers / np.maximum(deployed.batch.layers, 1.0)
    adapters = step.adapter_elements * share
    dense = Held(stored, np.where(step.lora, adapters, stored))
    of_experts = elements.experts * layers
    experts = Held(of_experts, np.where(step.lora, 0.0, of_experts))
    shown, hidden = data_seconds(step, dense, experts, layers, micro_batches, room * share)

    sharded = runs.zero_stage >= 1.0
    updated = dense.trained / np.where(sharded, deployed.data_ranks, 1.0)
    updated = updated + experts.trained / np.where(sharded, deployed.expert_data_ranks, 1.0)
    each = 2.0 * runs.gradient_bytes + 2.0 * MOMENT_BYTES[runs.optimizer]
    each = each + 2.0 * runs.master_bytes + WEIGHT_BYTES
    each = each + np.where(runs.master_bytes > 0.0, 0.0, WEIGHT_BYTES)
    tiers, offload = deployed.machines.tiers, runs.offload
    host = tiers.s_per_byte[deployed.batch.chip, HOST] / tiers.reached
    rate = step.bf16.s_per_byte * (1.0 - offload) + np.where(offload > 0.0, host * offload, 0.0)
    casts = step.low * (dense.stored + experts.stored) * CAST_BYTES
    return shown, hidden, updated * each * rate + casts * step.bf16.s_per_byte
