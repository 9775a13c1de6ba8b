"""Mixture of experts: router, routed experts as one grouped GEMM, shared experts.

Routing is taken as uniform. T tokens that choose k of E experts touch

    E * (1 - (1 - k / E)^T)

distinct experts in expectation; the busiest of `ep` expert-parallel ranks receives the mean number
of tokens plus sqrt(2 mean ln ep), the expected maximum of `ep` normal deviates of that variance.

With the optional size `expert_hidden_size` routed experts work on a narrower latent (Nemotron 3,
Kimi K3): one projection down to it and one up a layer, shared by all experts, and what travels
between the ranks has its width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.candidates import Block, Floats
from dse.perf.deployed import ACTIVATION_BYTES, Deployed
from dse.perf.operators.mlp import feed_forward

if TYPE_CHECKING:
    from dse.perf.step import Step


def distinct_experts(experts: Floats, experts_per_token: Floats, tokens: Floats) -> Floats:
    """(n,) expected number of experts that `tokens` touch under uniform routing."""
    missed = np.maximum(1.0 - experts_per_token / experts, 0.0)
    return experts * (1.0 - missed**tokens)


def _widths(deployed: Deployed, block: Block) -> tuple[Floats, Floats]:
    """(columns of one routed expert, of the shared experts) on one chip."""
    routed = np.ceil(block["expert_intermediate_size"] / deployed.experts_tensor_parallel)
    return routed, np.ceil(block["shared_intermediate_size"] / deployed.tensor_parallel)


def expert_hidden(block: Block, hidden: Floats) -> Floats:
    """(n,) width that routed experts work on: the hidden size, unless the block names another."""
    if "expert_hidden_size" not in block.sizes:
        return hidden
    return np.where(block["expert_hidden_size"] > 0.0, block["expert_hidden_size"], hidden)


def weight_elements(deployed: Deployed, block: Block) -> dict[str, Floats]:
    hidden = deployed.batch.hidden_size
    routed, shared = _widths(deployed, block)
    experts = np.ceil(block["experts"] / deployed.expert_parallel)
    dense = block["matrices"] * hidden * shared
    if "expert_hidden_size" in block.sizes:
        dense = dense + 2.0 * hidden * block["expert_hidden_size"]
    return {
        "experts": experts * block["matrices"] * expert_hidden(block, hidden) * routed,
        "mlp": dense,
        "router": block["experts"] * hidden,
    }


def kv_bytes_per_request(deployed: Deployed, block: Block, tokens: Floats) -> Floats:
    return np.zeros(deployed.n)


def add(step: Step, block: Block) -> None:
    deployed, count, hidden, rows = step.deployed, block.count, step.hidden_size, step.rows
    routed, shared = _widths(deployed, block)
    ranks = deployed.expert_parallel
    experts = np.maximum(block["experts"], 1.0)
    tokens = rows * deployed.data_parallel

    step.elementwise("feed-forward norm", count, 3.0 * rows * hidden)
    step.gemm("router", count, "router", rows, block["experts"], hidden)

    has_shared = (shared > 0.0) * count
    if has_shared.any():
        feed_forward(step, "shared experts", has_shared, shared, block["matrices"])

    latent = expert_hidden(block, hidden)
    if "expert_hidden_size" in block.sizes:
        narrow = count * (block["expert_hidden_size"] > 0.0)
        step.gemm("latent down-projection", narrow, "mlp", rows, latent, hidden)
        step.gemm("latent up-projection", narrow, "mlp", rows, hidden, latent)

    distinct = distinct_experts(experts, block["experts_per_token"], tokens) / ranks
    mean = tokens * block["experts_per_token"] / ranks
    busiest = mean + np.sqrt(2.0 * mean * np.log(ranks))
    weight = block["matrices"] * latent * routed
    padded = busiest + deployed.expert_padding_rows * distinct
    touched = distinct * weight * deployed.weight_bytes["experts"]
    bytes_ = touched + busiest * (latent + routed) * 2.0 * ACTIVATION_BYTES
    law = deployed.law("experts", "experts")
    step.ledger.operator("routed experts", count, law, 2.0 * padded * weight, bytes_, touched)
    _exchange(step, block, tokens, latent)


def _exchange(step: Step, block: Block, tokens: Floats, hidden: Floats) -> None:
    """Moves tokens, `hidden` wide, to their experts and back.

    Without attention data-parallel every rank already holds every token: one all-reduce of the
    outputs. With it and expert parallelism, tokens are sent to the ranks of their experts and
    back (each to at most one copy a rank); without expert parallelism all tokens are gathered and
    the outputs reduce-scattered, which moves what an all-reduce of them moves at the latency of two
    collectives.
    """
    deployed = step.deployed
    group = step.expert_group
    spread = deployed.data_parallel > 1.0
    routed = spread & (deployed.expert_parallel > 1.0)

    reduce_rows = np.where(spread, tokens, step.rows)
    latency, transfer = group.all_reduce(reduce_rows * hidden * ACTIVATION_BYTES)
    latency = np.where(spread, latency + group.gather_scatter_latency_s, latency)
    reduce_count = block.count * ~routed
    step.ledger.network("experts all-reduce", reduce_count, latency, transfer)
    if not routed.any():
        return

    copies = np.minimum(block["experts_per_token"], deployed.expert_parallel)
    sent = step.rows / deployed.tensor_parallel * copies * hidden
    route_count = block.count * routed
    for name, width in (
        ("dispatch to experts", np.minimum(deployed.weight_bytes["experts"], 2.0)),
        ("combine from experts", ACTIVATION_BYTES),
    ):
        wire = np.where(width < 1.0, 1.0, width)  # 4-bit weights still receive 8-bit activations
        latency, transfer = group.all_to_all(sent * wire)
        step.ledger.network(name, route_count, latency, transfer)
    # Every tensor-parallel rank sent its share of the tokens and needs all of them back.
    latency, transfer = step.tensor_group.all_reduce(step.rows * hidden * ACTIVATION_BYTES / 2.0)
    step.ledger.network("gather tokens", route_count, latency, transfer)
