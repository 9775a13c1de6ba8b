"""What chips send each other in a training step, and how much of it hides behind arithmetic.

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

from collections.abc import Sequence

import numpy as np

from dse.blocks import KINDS
from dse.blocks.operators import ACTIVATION_BYTES
from dse.physics.training.passes import Pass, Sends
from dse.physics.training.plan import DUALPIPE
from dse.record import record
from dse.space.candidates import Floats

WEIGHT_BYTES = 2.0
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
        kind = KINDS[block.kind]
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
