"""A sparse feed-forward layer in training: router, dispatch, experts, combine, shared experts.

Each expert lies whole on one of the expert-parallel ranks; a chip sends its own tokens, and with
tensor parallelism those are its share of the sequence. As in serving (`dse.physics.blocks.moe`)
the busiest rank sets the pace; the routing skew is the stack's, less than at serving, since
training balances experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dse.physics.blocks.mlp import feed_forward
from dse.physics.blocks.moe import busiest_rank, distinct_experts, expert_hidden, leaving_share
from dse.physics.deployed import ACTIVATION_BYTES
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.training.passes import Pass


def add(step: Pass, block: Block) -> None:
    """One sparse layer, `block.count` times, forward and backward."""
    deployed, count, hidden = step.deployed, block.count, step.hidden_size
    step.elementwise("feed-forward norm", count, 3.0 * step.rows * hidden)
    step.gemm("router", count, "router", step.rows, block["experts"], hidden)
    shared = np.ceil(block["shared_intermediate_size"] / deployed.tensor_parallel)
    has_shared = (shared > 0.0) * count
    if has_shared.any():
        stands_for: Any = step  # a `Step`, for operators
        feed_forward(stands_for, "shared experts", has_shared, shared, block["matrices"])
        step.tensor_all_reduce("shared experts all-reduce", has_shared)
    latent = expert_hidden(block, hidden)
    if "expert_hidden_size" in block.sizes:
        narrow = count * (block["expert_hidden_size"] > 0.0)
        step.gemm("latent down-projection", narrow, "mlp", step.rows, latent, hidden)
        step.gemm("latent up-projection", narrow, "mlp", step.rows, hidden, latent)
    load = _routed(step, block, latent)
    _exchange(step, block, latent, load)


def _routed(step: Pass, block: Block, latent: Floats) -> Floats:
    """The grouped products; returns (n,) tokens of the busiest rank over the mean."""
    deployed, count, ranks = step.deployed, block.count, step.deployed.expert_parallel
    experts = np.maximum(block["experts"], 1.0)
    skew = step.stack.routing_skew
    chosen = np.minimum(block["experts_per_token"], experts)
    mean = step.own_rows * chosen
    tokens = step.own_rows * ranks
    most = tokens * np.minimum(chosen, experts / ranks)
    busiest = np.minimum(busiest_rank(mean, ranks, experts, skew), most)
    distinct = distinct_experts(experts, chosen, tokens, skew) / ranks
    width, matrices = block["expert_intermediate_size"], block["matrices"]
    weight = matrices * latent * width
    padded = busiest + deployed.expert_padding_rows * distinct
    moved = busiest * (latent + width) * 2.0 * ACTIVATION_BYTES
    held = distinct * weight
    step.grouped(
        count,
        flops=2.0 * padded * weight,
        useful=2.0 * mean * weight,
        bytes_=held * deployed.weight_bytes["experts"] + moved,
        gradient_bytes=2.0 * held * deployed.runs.gradient_bytes + moved,
        uneven=(busiest - mean) / np.maximum(padded, 1e-9),
    )
    # Tokens to the order of their experts and back, and the activation between the products.
    step.elementwise("expert permutation", count, 4.0 * busiest * latent)
    step.elementwise("expert activation", count, matrices * busiest * width)
    step.keep_experts(count, mean, latent, width, matrices)
    return busiest / np.maximum(mean, 1e-9)


def _exchange(step: Pass, block: Block, latent: Floats, load: Floats) -> None:
    """Dispatch and combine, each an all-to-all of 16-bit rows: one copy of a token to each rank
    that holds one of its experts and one to each other domain (DeepEP), or, as far as the stack
    sends every slot, one for each of its experts. Of k experts over r ranks, evenly spread,
    r (1 - (1 - 1/r)^k) ranks hold one."""
    deployed = step.deployed
    ranks, group = deployed.expert_parallel, deployed.expert_group
    if not (ranks > 1.0).any():
        return
    chosen = block["experts_per_token"]
    once, slots = ranks * (1.0 - (1.0 - 1.0 / ranks) ** chosen), step.stack.slots_sent
    copies = once + slots * (chosen - once)
    shares = (np.minimum(leaving_share(each, chosen, once), 1.0) for each in group.domains)
    leaving = [share + slots * (1.0 - share) for share in shares]
    sent = step.own_rows * copies * load * latent * ACTIVATION_BYTES
    cost = group.all_to_all(sent, leaving)
    step.dispatched.add(block.count * (ranks > 1.0), cost, step.stack.dispatch)
