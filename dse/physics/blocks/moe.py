"""Mixture of experts: router, routed experts as one grouped GEMM, shared experts.

How often an expert is chosen varies from expert to expert with a coefficient of variation c, the
routing skew, and follows a gamma distribution. T tokens that choose k of E experts touch

    E * (1 - (1 + c^2 a T)^(-1 / c^2)),    (1 + c^2 a)^(-1 / c^2) = 1 - k / E

distinct experts in expectation, which is E (1 - (1 - k / E)^T) for uniform routing (c = 0). The
busiest of `ep` expert-parallel ranks receives, of a mean of m tokens,

    m + sqrt(2 ln ep (m + c^2 m^2 ep / (E + 9 r)))

the expected maximum of `ep` normal deviates: chance adds the variance m, the experts of a rank the
rest. r redundant experts, given to the busiest ones, divide the variance of the load of a copy by
about 1 + 9 r / E (simulated for c of 0.5 to 1.5 and r up to E: within 15%).

With the optional size `expert_hidden_size` routed experts work on a narrower latent (Nemotron 3,
Kimi K3): one projection down to it and one up a layer, shared by all experts, and what travels
between the ranks has its width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.physics.blocks.mlp import feed_forward
from dse.physics.deployed import ACTIVATION_BYTES, Deployed
from dse.space.candidates import Block, Floats

if TYPE_CHECKING:
    from dse.physics.step import Step


# Of the power-law routing of the kernel tables (docs/efficiency.md); 0 is uniform.
ROUTING_SKEW = 1.0
SPREAD_BY_A_COPY = 9.0
SMALLEST_SKEW = 1e-3  # below it, rounding
FEW_ROWS = 128.0  # tokens a rank that DeepEP's low-latency kernels take


def distinct_experts(
    experts: Floats, experts_per_token: Floats, tokens: Floats, skew: Floats | float = 0.0
) -> Floats:
    """(n,) expected number of experts that `tokens` touch, by the routing skew."""
    missed = np.maximum(1.0 - experts_per_token / experts, 0.0)
    if isinstance(skew, float) and skew == 0.0:
        return experts * (1.0 - missed**tokens)
    square = np.maximum(skew, SMALLEST_SKEW) ** 2
    grown = 1.0 + (np.maximum(missed, 1e-9) ** -square - 1.0) * tokens
    return experts * (1.0 - grown ** (-1.0 / square))


def busiest_rank(mean: Floats, ranks: Floats, slots: Floats, skew: Floats | float) -> Floats:
    """(n,) tokens of the busiest of `ranks` that receive `mean` each; `slots` is E + 9 r."""
    return mean + np.sqrt(2.0 * np.log(ranks) * mean * (1.0 + skew * skew * mean * ranks / slots))


def _copies(deployed: Deployed, block: Block) -> Floats:
    """(n,) experts of a layer over all ranks, redundant ones included."""
    redundant = deployed.batch.redundant_experts
    return block["experts"] if redundant is None else block["experts"] + redundant


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
    experts = np.ceil(_copies(deployed, block) / deployed.expert_parallel)
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
    tokens = step.mean_rows * deployed.data_parallel

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

    skew = ROUTING_SKEW if deployed.batch.routing_skew is None else deployed.batch.routing_skew
    copies = np.maximum(_copies(deployed, block), 1.0)
    distinct = distinct_experts(experts, block["experts_per_token"], tokens, skew)
    distinct = distinct * copies / (experts * ranks)  # copies of an expert are read on their ranks
    mean = tokens * block["experts_per_token"] / ranks
    slots = experts + SPREAD_BY_A_COPY * (copies - experts)
    most = tokens * np.minimum(block["experts_per_token"], experts / ranks)
    busiest = np.minimum(busiest_rank(mean, ranks, slots, skew), most)
    weight = block["matrices"] * latent * routed
    padded = busiest + deployed.expert_padding_rows * distinct
    touched = distinct * weight * deployed.weight_bytes["experts"]
    bytes_ = touched + busiest * (latent + routed) * 2.0 * ACTIVATION_BYTES
    law = deployed.law("experts", "experts")
    useful = mean / np.maximum(padded, 1e-9)  # no 0 / 0 in dense candidates
    step.ledger.operator(
        "routed experts", count, law, 2.0 * padded * weight, bytes_, touched, useful=useful,
        held="experts",
        elsewhere=step.idle_ranks,
        mean=1.0 - (busiest - mean) / np.maximum(padded, 1e-9),
    )  # fmt: skip
    _exchange(step, block, tokens, latent, busiest / np.maximum(mean, 1e-9))


def leaving_share(domains: Floats, chosen: Floats, copies: Floats) -> Floats:
    """(n,) of the `copies` of a token that are sent for its `chosen` experts, spread evenly over so
    many domains, the share that is left where each domain gets one at most."""
    return domains * (1.0 - (1.0 - 1.0 / domains) ** chosen) / np.maximum(copies, 1.0)


def _exchange(step: Step, block: Block, tokens: Floats, hidden: Floats, load: Floats) -> None:
    """Moves tokens, `hidden` wide, to their experts and back; `load` is what the busiest rank
    receives over the mean.

    Without attention data-parallel every rank already holds every token: one all-reduce of the
    outputs. With it and whole experts on every rank (expert_parallel is all of the group), tokens
    are sent to the ranks of their experts and back, each to at most one copy a rank. Where ranks
    share an expert (less expert parallelism, or none), all tokens are gathered and the outputs
    reduce-scattered, since no all-to-all kernel serves that (SGLang's page on expert parallelism:
    DeepEP and Mooncake for ep_size = tp_size only, below it all-reduce or all-gather). Of more than
    FEW_ROWS tokens a rank, one copy goes to each other domain and is copied there (DeepEP's normal
    kernels); fewer go straight to each expert.
    """
    deployed = step.deployed
    group = step.expert_group
    spread = deployed.data_parallel > 1.0
    routed = spread & (deployed.expert_parallel >= deployed.group)

    if not spread.all():
        cost = group.all_reduce(step.rows * hidden * ACTIVATION_BYTES)
        step.ledger.network("experts all-reduce", block.count * ~spread, cost)
    gathered = spread & ~routed
    if gathered.any():
        cost = group.all_gather(tokens * hidden * ACTIVATION_BYTES)
        both = 2.0 * block.count * gathered
        step.ledger.network("gather tokens, scatter outputs", both, cost)
    if not routed.any():
        return

    chosen = block["experts_per_token"]
    copies = np.minimum(chosen, deployed.expert_parallel)
    own_rows = step.rows / deployed.tensor_parallel
    leaving = None
    if any((domains > 1.0).any() for domains in group.domains):
        if id(block) not in deployed.leaving:
            deployed.leaving[id(block)] = [
                leaving_share(domains, chosen, copies) for domains in group.domains
            ]
        few = FEW_ROWS / own_rows
        leaving = [np.minimum(np.maximum(x, few), 1.0) for x in deployed.leaving[id(block)]]
    route_count = block.count * routed
    for name, width in (
        ("dispatch to experts", np.minimum(deployed.weight_bytes["experts"], 2.0)),
        ("combine from experts", ACTIVATION_BYTES),
    ):
        wire = np.where(width < 1.0, 1.0, width)  # 4-bit weights still receive 8-bit activations
        cost = group.all_to_all(own_rows * copies * load * hidden * wire, leaving)
        step.ledger.network(name, route_count, cost)
    # Every tensor-parallel rank sent its share of the tokens and needs all of them back.
    cost = step.tensor_group.all_gather(step.rows * hidden * ACTIVATION_BYTES)
    step.ledger.network("gather tokens", route_count, cost)
