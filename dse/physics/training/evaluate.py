"""evaluate_training(batch, machines, stack): one optimizer step of n training runs.

A step is m micro-batches on the fullest pipeline stage, what the other stages make it wait while
the pipeline fills and drains, the communication that does not hide, the update of the weights, the
host, and waiting for the slowest chip. Everything that is not the model's arithmetic at the dense
peak is a loss with a name (`plan.LOSSES`); their sum is the step.

80% intervals say how far runs that no fit had seen have been off.
`hardware/efficiency/training/calibration.yaml` holds the 10th and the 90th percentile of measured
over predicted tokens a second, of rows whose group (model and chip) was left out of the fit, for
each kind of kernel efficiency. `python -m tools.fits.training` writes it.

What chips send each other in a training step, and how much of it hides behind arithmetic.

Of one micro-batch, all layers: tensor parallelism sums each output forward and each gradient
backward (with sequence parallelism a reduce-scatter and an all-gather in place of an all-reduce;
Korthikanti et al. 2022, section 4.2.2; that the input is gathered again for the weight gradient
hides behind the product before it and is not counted); context parallelism passes keys and values
around forward, and backward these and their gradients (Liu et al. 2023, arXiv 2310.01889); experts
take a dispatch and a combine forward and as many backward.

Of a step: gradients over the ranks that hold the same weights. ZeRO stage 0 all-reduces them, 1 and
2 reduce-scatter them and gather the updated weights, 2 (without pipeline stages, `deployed`) in
every micro-batch, since no rank keeps whole gradients, and 3 gathers weights in every micro-batch
twice, forward and backward (Rajbhandari et al. 2020, section 7). Each is one collective a layer.

Hiding: the device work of a micro-batch is a room that tensor, context, expert and pipeline
communication fill in that order, each as far as the stack says and context parallelism no further
than attention; what is left of it hides data parallelism: of every micro-batch where its
collectives run in every one, else of the last backward (gradients) and the first forward (weights).
What is recomputed sends again, and has a room of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.blocks import KINDS as BLOCK_KINDS
from dse.blocks.operators import ACTIVATION_BYTES
from dse.data import hardware_dir
from dse.physics.energy import Work
from dse.physics.intervals import UNKNOWN
from dse.physics.machines import Machines, worst_block_law
from dse.physics.parameters import Parameters, parameters
from dse.physics.training.memory import FULL, MOMENT_BYTES, SELECTIVE, WEIGHT_BYTES, memory_of
from dse.physics.training.passes import (
    CAST_BYTES,
    Elements,
    Pass,
    Sends,
    TrainingDeployed,
    elements_of,
)
from dse.physics.training.plan import (
    DUALPIPE,
    PRECISIONS,
    RECOMPUTES,
    Stages,
    TrainingBatch,
    TrainingMetrics,
    bubble_share,
)
from dse.record import record
from dse.schema.backend import KINDS, Calibration
from dse.schema.constants import TIERS
from dse.schema.training import CALIBRATION, TrainingStack
from dse.space.candidates import Floats

HOST = TIERS.index("host")
MLP, MOE = RECOMPUTES.index("mlp"), RECOMPUTES.index("moe")
FORWARD_OF_SENDS = 0.5  # of tensor and expert traffic; of context traffic a third


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def evaluate_training(
    batch: TrainingBatch, machines: Machines, stack: TrainingStack
) -> TrainingMetrics:
    """All (n,). `evaluate_training(batch)[i]` equals `evaluate_training(batch[i:i+1])` bit for
    bit. Chunks of about 10,000 runs keep the arrays in cache."""
    deployed = TrainingDeployed(batch, machines, stack)
    step = Pass(deployed)
    count = parameters(deployed.batch)
    elements = elements_of(deployed)
    layers = np.maximum(deployed.batch.layers, 1.0)
    stages = Stages.of(layers, deployed.pipeline_parallel, batch.virtual_stages)
    micro_batches = np.maximum(np.ceil(batch.micro_batches - 1e-6), 1.0)
    memory = memory_of(step, elements, stages, micro_batches)
    per_token, plain = _model_flops(step, count)
    losses, work = _spend(step, elements, stages, micro_batches, per_token)
    step_s = sum(losses.values(), np.zeros(deployed.n))
    ideal = losses["ideal"]
    forward = 2.0 * count.active_non_embedding * step.own_rows + step.mixing_flops
    full = batch.recompute == FULL
    again = np.where(full, forward * step.peak_s_per_flop, 0.0)
    again = again * batch.recompute_share * micro_batches / deployed.pipeline_parallel
    return TrainingMetrics(
        step_s=step_s,
        tokens_per_s_per_chip=batch.global_batch_tokens / step_s / batch.chips,
        model_flops_per_token=per_token,
        mfu=ideal / step_s,
        mfu_6n=ideal * plain / per_token / step_s,
        hfu=(ideal + again) / step_s,
        memory_bytes_per_chip=memory.total,
        memory_capacity_bytes_per_chip=deployed.capacity_bytes,
        host_memory_bytes_per_chip=memory.host,
        memory=memory.parts,
        losses=losses,
        work=work,
        parameters=count,
        deployed=deployed,
    )


def _model_flops(step: Pass, count: Parameters) -> tuple[Floats, Floats]:
    """(n,) operations a token with and without attention. A trained parameter takes 6 a token, 2
    forward and 4 backward (Kaplan et al. 2020, arXiv 2001.08361, section 2.1), a frozen one 4;
    attention three times its forward, only what the mask lets a token see."""
    tp = step.deployed.tensor_parallel
    plain = 6.0 * count.active
    plain = np.where(step.lora, 4.0 * count.active + 6.0 * step.adapter_elements * tp, plain)
    return plain + 3.0 * step.mixing_flops * tp / step.rows, plain


def _spend(
    step: Pass, elements: Elements, stages: Stages, micro_batches: Floats, per_token: Floats
) -> tuple[dict[str, Floats], Work]:
    """Of a step, (n,): seconds by cause, and what the mean chip does."""
    deployed, stack = step.deployed, step.stack
    pp, m = deployed.pipeline_parallel, micro_batches
    mean = m / pp  # micro-batches through all layers, of the time of one stage
    traffic = micro_batch_traffic(step)
    tables = tensor_sum(step).times(2.0)  # the embedding forward, the output head backward
    tensor = traffic.tensor + tables.seconds
    again, again_share = _again(step, traffic)
    layers_s = step.layers.seconds + traffic.tensor + traffic.context + traffic.expert + again
    ends_s = step.ends.seconds + tables.seconds
    whole = layers_s + ends_s
    inner = stages.middle * stages.inner
    of_layer = layers_s / np.maximum(deployed.batch.layers, 1.0)
    ends_of_pipe = of_layer * stages.last + ends_s
    # DualPipe's chips hold the stages i and p - 1 - i, so that both ends share theirs.
    dual = (deployed.runs.schedule == DUALPIPE) & (pp > 1.0)
    pair = (of_layer * stages.first + ends_of_pipe) / 2.0
    of_ends = np.where(dual, pair, ends_of_pipe)
    fullest = np.maximum(of_ends, of_layer * inner)

    ideal = per_token * step.own_rows * step.peak_s_per_flop
    higher = step.layers.higher_precision + step.ends.higher_precision
    elementwise = step.layers.elementwise + step.ends.elementwise
    uneven = step.layers.uneven
    kernels = step.layers.seconds + step.ends.seconds - ideal - higher - elementwise - uneven
    hops, hops_hidden, hops_sent = pipeline_hops(step, m, traffic.room)
    room = np.maximum(traffic.room - hops_hidden / mean, 0.0)
    data, hides, (update_s, updated), data_sent = _states(step, elements, stages, m, room)
    # The stage whose work and what shows of its collectives take longest, not each of the two.
    last = m * of_ends - hides[0] >= m * of_layer * inner - hides[1]
    shorter = fullest - np.where(last, of_ends, of_layer * inner)
    data_hidden = np.where(last, hides[0], hides[1]) + m * shorter
    launches = stack.host_s_per_layer * np.maximum(stages.last, inner)
    host = stack.host_s_per_step + m * (
        stack.host_s_per_micro_batch + np.maximum(launches - fullest, 0.0)
    )
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
        "data_communication": data - data_hidden,
        "optimizer": update_s,
        "host": host,
    }
    losses["stragglers"] = stack.straggler * sum(losses.values(), np.zeros(deployed.n))

    layers, ends = step.layers, step.ends
    sent = traffic.sends.times(1.0 + again_share * FORWARD_OF_SENDS)
    sent += tables
    sent = sent.times(mean)
    sent += hops_sent
    sent += data_sent
    once = layers.forward_peak * again_share + layers.forward_peak + layers.backward_peak
    moved = layers.forward_bytes * again_share + layers.forward_bytes + layers.backward_bytes
    work = Work(
        peak_s=mean * (once + ends.forward_peak + ends.backward_peak),
        bytes=mean * (moved + ends.forward_bytes + ends.backward_bytes) + updated,
        link_bytes=sent.link_bytes,
        network_bytes=sent.network_bytes,
    )
    return losses, work


def _again(step: Pass, traffic: MicroBatchTraffic) -> tuple[Floats, Floats]:
    """(n,) seconds of recomputation in one micro-batch, all layers, and its share of the forward
    pass: all of it with its communication, the feed-forwards (the sparse ones with dispatch and
    combine), or norms and activations."""
    forward = step.layers.forward
    recompute = step.deployed.runs.recompute
    again = np.where(recompute == FULL, forward + traffic.again, 0.0)
    again = np.where(recompute == SELECTIVE, step.layers.cheap, again)
    again = np.where(recompute == MLP, step.of["mlp"].forward, again)
    again = np.where(recompute == MOE, step.of["moe"].forward + traffic.dispatch_again, again)
    device = np.where(recompute == FULL, forward, np.minimum(again, forward))
    share = step.deployed.runs.recompute_share
    return again * share, device * share / np.maximum(forward, 1e-30)


def _bubble(
    step: Pass, traffic: MicroBatchTraffic, again: Floats, whole: Floats, fullest: Floats
) -> Floats:
    """(n,) seconds that the fullest stage waits for the others in a step. Weight gradients fill the
    wait of the schedules that split them off, but for the share that communication hides behind:
    the same work is not moved twice."""
    runs, pp = step.deployed.runs, step.deployed.pipeline_parallel
    free = traffic.room / np.maximum(step.layers.seconds, 1e-30)
    backward = step.layers.backward + step.ends.backward + traffic.tensor / 2.0
    backward = backward + traffic.context * (2.0 / 3.0) + traffic.expert / 2.0 + again
    weights = step.layers.weight_gradient * free + step.ends.weight_gradient
    share = bubble_share(runs.schedule, pp, runs.virtual_stages, backward / whole, weights / whole)
    return share * np.maximum(whole - fullest, 0.0)


def _states(
    step: Pass, elements: Elements, stages: Stages, micro_batches: Floats, room: Floats
) -> tuple[Floats, list[Floats], tuple[Floats, Floats], Sends]:
    """Data-parallel communication of a step, (n,) seconds, those that hide behind the last stage
    and behind an inner one, and the update of the fullest stage."""
    deployed = step.deployed
    alone = deployed.pipeline_parallel == 1.0
    tied = elements.tied > 0.0
    tables = np.where(alone & ~tied, 2.0 * elements.table, elements.table)
    tables = tables + np.where(alone, elements.positions, 0.0)
    inner = stages.middle * stages.inner
    layers = np.maximum(stages.last, inner)
    stored = np.maximum(elements.dense * stages.last + tables, elements.dense * inner)
    share = layers / np.maximum(deployed.batch.layers, 1.0)
    fp8 = deployed.runs.precision == PRECISIONS.index("fp8")
    each = np.where(fp8, step.stack.fp8_gather_bytes, WEIGHT_BYTES)
    gathered = elements.dense * each
    gathered = np.maximum(gathered * stages.last + tables * WEIGHT_BYTES, gathered * inner)
    dense = Held(stored, np.where(step.lora, step.adapter_elements * share, stored), gathered)
    of_experts = elements.experts * layers
    experts = Held(of_experts, np.where(step.lora, 0.0, of_experts), of_experts * each)
    rooms = [room * held / np.maximum(deployed.batch.layers, 1.0) for held in (stages.last, inner)]
    total, hidden, sent = data_traffic(step, dense, experts, layers, micro_batches, rooms)
    return total, hidden, _update(step, dense, experts), sent


def _update(step: Pass, dense: Held, experts: Held) -> tuple[Floats, Floats]:
    """(n,) seconds of the optimizer, and bytes through the device memory. Reads the gradient twice
    (its norm, then itself), reads and writes moments, master copy and weight, at the memory rate of
    large kernels; what is offloaded is updated where it lies, at the rate of the host's memory
    tier. Low formats cast each weight once a step."""
    deployed, runs = step.deployed, step.deployed.runs
    sharded = deployed.zero_stage >= 1.0
    updated = dense.trained / np.where(sharded, deployed.data_ranks, 1.0)
    updated = updated + experts.trained / np.where(sharded, deployed.expert_data_ranks, 1.0)
    each = 2.0 * runs.gradient_bytes + 2.0 * MOMENT_BYTES[runs.optimizer]
    each = each + 2.0 * runs.master_bytes + WEIGHT_BYTES
    each = each + np.where(runs.master_bytes > 0.0, 0.0, WEIGHT_BYTES)
    tiers, offload = deployed.machines.tiers, runs.offload
    host = tiers.s_per_byte[deployed.batch.chip, HOST] / tiers.reached
    casts = step.low * (dense.stored + experts.stored) * CAST_BYTES
    here = updated * each * (1.0 - offload) + casts
    there = np.where(offload > 0.0, updated * each * offload * host, 0.0)
    return here * step.bf16.s_per_byte + there, here


# What chips send each other.

BACKWARD_SHARE = 2.0 / 3.0  # of the forward and backward of one micro-batch
FORWARD_OF_ATTENTION = 1.0 / 4.0  # backward has 2.5 times the operations, at a lower rate


@record
class MicroBatchTraffic:
    """Of one micro-batch through all layers, forward and backward, (n,): seconds of each kind that
    show, and the `room` that is left of the device work; `sends` is all that a chip sends. Of what
    shows forward has a half (tensor, expert) or a third (context). `again` and `dispatch_again` are
    what shows of a forward pass that is done again, and of its dispatch and combine where only
    sparse feed-forwards are."""

    tensor: Floats
    context: Floats
    expert: Floats
    room: Floats
    sends: Sends
    again: Floats
    dispatch_again: Floats


def micro_batch_traffic(step: Pass) -> MicroBatchTraffic:
    """Tensor, context and expert parallelism. DualPipe hides all that fits of the last behind the
    other half of its pairs of micro-batches (DeepSeek-V3, section 3.2.1)."""
    stack, runs, work = step.stack, step.deployed.runs, step.layers
    dual = (runs.schedule == DUALPIPE) & (step.deployed.pipeline_parallel > 1.0)
    of_experts = np.where(dual, 1.0, stack.expert_overlap)
    tensor = tensor_sum(step).times(step.tensor_collectives)
    context, expert = _context(step), step.dispatched.times(2.0)

    def hide(passes: tuple[float, float, float], room: Floats, attention: Floats):
        """What shows of each kind, and the room that is left."""
        shown = []
        for seconds, share, most in (
            (tensor.seconds * passes[0], stack.tensor_overlap * runs.tensor_hidden, room),
            (context.seconds * passes[1], stack.context_overlap, attention),
            (expert.seconds * passes[2], of_experts, room),
        ):
            away = share * np.minimum(seconds, np.minimum(room, most))
            shown.append(seconds - away)
            room = room - away
        return shown, room

    both, room = hide((2.0, 3.0, 2.0), work.seconds, work.attention)
    forward, _ = hide((1.0, 1.0, 1.0), work.forward, work.attention * FORWARD_OF_ATTENTION)
    dispatch = expert.seconds
    sparse = dispatch - of_experts * np.minimum(dispatch, step.of["moe"].forward)
    sends = Sends(len(runs))
    for kind, passes in ((tensor, 2.0), (context, 3.0), (expert, 2.0)):
        sends += kind.times(passes)
    return MicroBatchTraffic(
        *both,
        room=room,
        sends=sends,
        again=forward[0] + forward[1] + forward[2],
        dispatch_again=sparse,
    )


def tensor_sum(step: Pass) -> Sends:
    """One sum of a layer's output over the tensor-parallel ranks, forward."""
    deployed, factor = step.deployed, step.stack.collectives
    group = deployed.tensor_group
    bytes_ = step.rows * step.hidden_size * ACTIVATION_BYTES
    several = np.where(deployed.tensor_parallel > 1.0, 1.0, 0.0)
    split = np.where(deployed.runs.sequence_parallel > 0.0, 1.0, 0.0)
    sends = Sends(deployed.n)
    sends.add(several * (1.0 - split), group.all_reduce(bytes_), factor)
    sends.add(2.0 * several * split, group.all_gather(bytes_), factor)
    return sends


def _context(step: Pass) -> Sends:
    """Keys and values of all layers once around, forward: those of one tensor rank, over all
    context ranks. States are handed on."""
    deployed = step.deployed
    ranks = deployed.runs.context_parallel
    sends = Sends(deployed.n)
    if not (ranks > 1.0).any():
        return sends
    sequences = deployed.runs.micro_batch * ranks
    for block in deployed.batch.blocks:
        kind = BLOCK_KINDS[block.kind]
        bytes_ = kind.passed_bytes(deployed, block, step.rows * ranks, sequences)
        if bytes_ is not None:
            cost = deployed.context_group.all_gather(bytes_)
            sends.add(block.count * (ranks > 1.0), cost, step.stack.collectives)
    return sends


def pipeline_hops(step: Pass, micro_batches: Floats, room: Floats) -> tuple[Floats, Floats, Sends]:
    """(n,) seconds shown and hidden of the hops between stages: of every micro-batch and chunk one
    forward and one backward, and those of the fill and the drain, which nothing hides; and what a
    chip sends. `room` is left of one micro-batch through all layers."""
    deployed, runs = step.deployed, step.deployed.runs
    bytes_ = step.rows * step.hidden_size * ACTIVATION_BYTES / step.tensor_split
    path = Sends(deployed.n)
    for count, cost in deployed.stage_hops(bytes_):
        path.add(count, cost)
    hops = np.maximum(deployed.pipeline_parallel - 1.0, 1.0)
    steady = path.times(2.0 * micro_batches * runs.virtual_stages / hops)  # of the mean hop
    fits = np.minimum(steady.seconds, micro_batches * room / deployed.pipeline_parallel)
    hidden = step.stack.pipeline_overlap * fits
    return steady.seconds - hidden + 2.0 * path.seconds, hidden, steady


@record
class Held:
    """Elements on one chip of the fullest stage, (n,): stored and trained, before ZeRO; and the
    bytes of those stored as ranks gather them."""

    stored: Floats
    trained: Floats
    gathered_bytes: Floats


def data_traffic(
    step: Pass,
    dense: Held,
    experts: Held,
    layers: Floats,
    micro_batches: Floats,
    rooms: Sequence[Floats],
) -> tuple[Floats, list[Floats], Sends]:
    """(n,) seconds of gradients and weights over data-parallel ranks, of a stage of so many layers,
    those that hide in each of the `rooms`, and what a chip sends. A room is what is left of the
    device work of one micro-batch on a stage."""
    deployed, stage = step.deployed, step.deployed.zero_stage
    factor = step.stack.collectives
    often = np.where(stage >= 2.0, micro_batches, 1.0)  # gradients are reduced
    again = np.where(stage >= 3.0, 2.0 * micro_batches, 1.0)  # weights are gathered
    gradients, weights = Sends(deployed.n), Sends(deployed.n)
    for held, group, ranks in (
        (dense, deployed.data_group, deployed.data_ranks),
        (experts, deployed.expert_data_group, deployed.expert_data_ranks),
    ):
        several = (ranks > 1.0) * layers  # one collective a layer
        reduced = held.trained * deployed.runs.gradient_bytes / layers
        if (stage == 0.0).any():
            gradients.add(several * (stage == 0.0), group.all_reduce(reduced), factor)
        gradients.add(several * often * (stage > 0.0), group.all_gather(reduced), factor)
        adapters = step.lora & (stage < 3.0)
        moved = np.where(adapters, held.trained * WEIGHT_BYTES, held.gathered_bytes) / layers
        weights.add(several * again * (stage > 0.0), group.all_gather(moved), factor)
    total = gradients.seconds + weights.seconds

    def hides(room: Floats) -> Floats:
        """ZeRO-3 gathers weights in both passes and has the room of both for everything."""
        backward, forward = room * BACKWARD_SHARE * often, room * (1.0 - BACKWARD_SHARE)
        fits = np.where(
            stage >= 3.0,
            np.minimum(total, room * micro_batches),
            np.minimum(gradients.seconds, backward) + np.minimum(weights.seconds, forward),
        )
        return step.stack.data_overlap * fits

    hidden = [hides(room) for room in rooms]
    gradients += weights
    return total, hidden, gradients


# Spreads: of steps whose plan is known, of whole runs of which little is, of steps whose plan keeps
# to the habits of the software.
RATE, RUN, HABIT = "rate", "run", "habit"
WHOLE = ("whole_run", "whole_run_least", "whole_run_most")
# Metrics that grow with the speed; all others shrink with it.
RATES = ("tokens_per_s_per_chip", "tokens_per_s", "model_flops_per_s_per_chip", "mfu")
WHOLE_RUNS = ("chip_hours", "days", "usd")
Spread = Mapping[str, NDArray[np.float64]]  # class -> (kinds, 2): low, high of a rate


@cache
def training_spread(path: Path | None = None) -> Spread:
    """Of the shipped file, or of `path`; a factor of two either way where there is none."""
    file = hardware_dir() / CALIBRATION if path is None else path
    found = Calibration.load(file).spread if file.exists() else {}
    return {
        name: np.array([found.get(name, {}).get(kind, UNKNOWN) for kind in KINDS])
        for name in (RATE, RUN, HABIT)
    }


@cache
def whole_runs() -> tuple[float, float, float]:
    """Chip-hours of published pre-training runs over those that their usual plan would take
    (`python -m tools.fits.published`): mean, least and most; 1 where no figure is shipped."""
    file = hardware_dir() / CALIBRATION
    found = Calibration.load(file).factors if file.exists() else {}
    mean, least, most = (found.get(name, 1.0) for name in WHOLE)
    return mean, least, most


def training_interval(
    metric: str, value: Floats, kind: NDArray[np.intp], spread: Spread
) -> tuple[Floats, Floats]:
    """(low, high), (n,) each, of a metric of a training run; `kind` (n,) indexes KINDS. Whole runs,
    whose configuration and interruptions are seldom published, have a spread of their own."""
    low, high = spread[RUN if metric in WHOLE_RUNS else RATE][kind].T
    if metric in RATES:
        return value * low, value * high
    return value / high, value / low


def law_kind(batch: TrainingBatch, machines: Machines) -> NDArray[np.intp]:
    """(n,) index of KINDS: the worst of the kernel laws that a run uses, those that its layers
    borrow from other kernels included."""
    worst = np.zeros(len(batch), dtype=np.intp)
    for codes in batch.candidates.weight_dtype.values():
        worst = np.maximum(worst, machines.law_kind[batch.candidates.chip, codes])
    return np.maximum(worst, worst_block_law(batch.candidates, machines))
