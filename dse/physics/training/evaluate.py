"""evaluate_training(batch, machines, stack): one optimizer step of n training runs.

A step is m micro-batches on the fullest pipeline stage, what the other stages make it wait while
the pipeline fills and drains, the communication that does not hide, the update of the weights, the
host, and waiting for the slowest chip. Everything that is not the model's arithmetic at the dense
peak is a loss with a name (`plan.LOSSES`); their sum is the step.

80% intervals say how far runs that no fit had seen have been off.
`hardware/efficiency/training/calibration.yaml` holds the 10th and the 90th percentile of measured
over predicted tokens a second, of rows whose group (model and chip) was left out of the fit, for
each kind of kernel efficiency. `python -m tools.fits.training` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dse.data import hardware_dir
from dse.physics.energy import Work
from dse.physics.intervals import UNKNOWN
from dse.physics.machines import Machines, worst_block_law
from dse.physics.parameters import Parameters, parameters
from dse.physics.training.communication import (
    Held,
    MicroBatchTraffic,
    data_traffic,
    micro_batch_traffic,
    pipeline_hops,
    tensor_sum,
)
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
    LOSSES,
    MEMORY_PARTS,
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
    count = parameters(deployed.batch)
    elements = elements_of(deployed)
    layers = np.maximum(deployed.batch.layers, 1.0)
    stages = Stages.of(layers, deployed.pipeline_parallel, batch.virtual_stages)
    micro_batches = np.maximum(np.ceil(batch.micro_batches - 1e-6), 1.0)
    memory = memory_of(step, elements, stages, micro_batches)
    total = memory.total
    per_token, plain = _model_flops(step, count)
    losses, work = _spend(step, elements, stages, micro_batches, per_token)
    step_s = np.zeros(deployed.n)
    for cause in LOSSES:
        step_s = step_s + losses[cause]
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
        memory_bytes_per_chip=total,
        memory_capacity_bytes_per_chip=deployed.capacity_bytes,
        host_memory_bytes_per_chip=memory.host,
        memory={part: memory.parts[part] for part in MEMORY_PARTS},
        losses=losses,
        micro_batches=micro_batches,
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
    device = step.layers.seconds + step.ends.seconds
    kernels = device - ideal - higher - elementwise - uneven
    hops, hops_hidden, hops_sent = pipeline_hops(step, m, traffic.room)
    room = np.maximum(traffic.room - hops_hidden / mean, 0.0)
    data, hides, update, data_sent = _states(step, elements, stages, m, room)
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
        "optimizer": update.seconds,
        "host": host,
    }
    busy = np.zeros(deployed.n)
    for seconds in losses.values():
        busy = busy + seconds
    losses["stragglers"] = stack.straggler * busy

    layers, ends = step.layers, step.ends
    sent = traffic.sends
    forward_sent = again_share * FORWARD_OF_SENDS
    once = layers.forward_peak * again_share + layers.forward_peak + layers.backward_peak
    moved = layers.forward_bytes * again_share + layers.forward_bytes + layers.backward_bytes
    work = Work(
        peak_s=mean * (once + ends.forward_peak + ends.backward_peak),
        bytes=mean * (moved + ends.forward_bytes + ends.backward_bytes) + update.bytes_,
        link_bytes=mean * (sent.link_bytes * (1.0 + forward_sent) + tables.link_bytes)
        + hops_sent.link_bytes
        + data_sent.link_bytes,
        network_bytes=mean * (sent.network_bytes * (1.0 + forward_sent) + tables.network_bytes)
        + hops_sent.network_bytes
        + data_sent.network_bytes,
    )
    return losses, work


def _again(step: Pass, traffic: MicroBatchTraffic) -> tuple[Floats, Floats]:
    """(n,) seconds of recomputation in one micro-batch, all layers, and its share of the forward
    pass: all of it with its communication, the feed-forwards (the sparse ones with dispatch and
    combine), or norms and activations."""
    forward = step.layers.forward
    full = forward + traffic.again
    recompute = step.deployed.runs.recompute
    again = np.where(recompute == FULL, full, 0.0)
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


@record
class Update:
    """The optimizer, (n,): seconds, and bytes through the device memory."""

    seconds: Floats
    bytes_: Floats


def _states(
    step: Pass, elements: Elements, stages: Stages, micro_batches: Floats, room: Floats
) -> tuple[Floats, list[Floats], Update, Sends]:
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


def _update(step: Pass, dense: Held, experts: Held) -> Update:
    """Reads the gradient twice (its norm, then itself), reads and writes moments, master copy and
    weight, at the memory rate of large kernels; what is offloaded is updated where it lies, at the
    rate of the host's memory tier. Low formats cast each weight once a step."""
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
    return Update(here * step.bf16.s_per_byte + there, here)


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
