"""Mixture of experts: router, routed experts as one grouped GEMM, shared experts.

How often an expert is chosen varies from expert to expert with a coefficient of variation c, the
routing skew, and follows a gamma distribution. T tokens that choose k of E experts touch

    E * (1 - (1 + c^2 a T)^(-1 / c^2)),    (1 + c^2 a)^(-1 / c^2) = 1 - k / E

distinct experts in expectation, which is E (1 - (1 - k / E)^T) for uniform routing (c = 0). The
busiest of `ep` expert-parallel ranks receives, of a mean of m tokens,

    m + sqrt(2 ln ep (m + c^2 m^2 ep / (E + 9 r)))

the expected maximum of `ep` normal deviates: chance adds the variance m, the experts of a rank the
rest. r redundant experts, given to the busiest ones, divide the variance of the load of a copy by
about 1 + 9 r / E (simulated for c of 0.5 to 1.5 and r up to E: within 15%). Where there are any,
the load is balanced over the ranks too, and half of c remains (UNFORESEEN). Where the experts do
not divide, m is that of the ranks with one more.

With the optional size `expert_hidden_size` routed experts work on a narrower latent (Nemotron 3,
Kimi K3): one projection down to it and one up a layer, shared by all experts, and what travels
between the ranks has its width.

With the optional size `expert_bias` of 1 experts add biases (gpt-oss), which training pays for in
passes over their rows; they are no elements of its weights.

In training each expert lies whole on one of the expert-parallel ranks, and a chip sends its own
tokens: with tensor parallelism its share of the sequence. The routing skew is the stack's, less
than at serving, since training balances experts.
"""

from __future__ import annotations

import numpy as np

from dse.blocks.kind import Kind
from dse.blocks.mlp import feed_forward
from dse.blocks.operators import (
    ACTIVATION_BYTES,
    Block,
    Exchange,
    Experts,
    Floats,
    Operators,
    Product,
    Ranks,
    Role,
)

# Of the power-law routing of the kernel tables (docs/efficiency.md); 0 is uniform.
ROUTING_SKEW = 1.0
SPREAD_BY_A_COPY = 9.0
# Of the routing skew, what is left where experts have copies and are placed by their load (EPLB),
# for the load moves on: fitted to what LMSYS lost against even routing, 50,302 of 59,337 tokens/s
# of prefill on 32 H100 (lmsys.org/blog/2025-05-05-large-scale-ep). What placing alone leaves is
# less: 1%, 2% and 23% above the mean on 32, 72 and 144 ranks with 32 copies, simulated.
UNFORESEEN = 0.5
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


def most_deviant(ranks: Floats) -> Floats:
    """(n,) expected maximum of so many normal deviates: sqrt(2 ln(1 + (n - 1) / 4.3)), within 2.5%
    of the integral from 4 to 300 and 0 for one."""
    return np.sqrt(2.0 * np.log(1.0 + (ranks - 1.0) / 4.3))


def most_distinct(distinct: Floats, ranks: Floats, held: Floats) -> Floats:
    """(n,) experts touched on the rank where they are most, of `ranks` that hold `held` and touch
    `distinct` in the mean, (n,) each: every expert is touched with the chance distinct / held."""
    spread = distinct * np.maximum(1.0 - distinct / held, 0.0)
    return np.minimum(distinct + most_deviant(ranks) * np.sqrt(spread), held)


def busiest_rank(mean: Floats, ranks: Floats, slots: Floats, skew: Floats | float) -> Floats:
    """(n,) tokens of the busiest of `ranks` that receive `mean` each; `slots` is E + 9 r."""
    return mean + np.sqrt(2.0 * np.log(ranks) * mean * (1.0 + skew * skew * mean * ranks / slots))


def latent_size(block: Block, hidden: Floats) -> Floats:
    """(n,) width that routed experts work on: the hidden size, unless the block names another."""
    own = block.optional("expert_hidden_size")
    return np.where(own > 0.0, own, hidden)


class Moe(Kind):
    words = "experts"
    sizes = (
        "experts",
        "experts_per_token",
        "expert_intermediate_size",
        "shared_intermediate_size",
        "matrices",
    )
    optional = (("expert_hidden_size",), ("expert_bias",))
    may_be_zero = frozenset({"shared_intermediate_size"})
    order = 6
    laws = ("experts",)
    recomputed_as = "moe"

    def _copies(self, ranks: Ranks, block: Block) -> Floats:
        """(n,) experts of a layer over all ranks, redundant ones included."""
        redundant = ranks.redundant_experts
        return block["experts"] if redundant is None else block["experts"] + redundant

    def _widths(self, ranks: Ranks, block: Block) -> tuple[Floats, Floats]:
        """(columns of one routed expert, of the shared experts) on one chip."""
        routed = np.ceil(block["expert_intermediate_size"] / ranks.experts_tensor_parallel)
        return routed, np.ceil(block["shared_intermediate_size"] / ranks.tensor_parallel)

    def weight_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        """Matrices h width an expert; the projections to a latent that routed experts work on
        count with the shared experts."""
        experts = np.ceil(self._copies(ranks, block) / ranks.expert_parallel)
        return self._elements(ranks, block, experts)

    def active_elements(self, ranks: Ranks, block: Block) -> dict[str, Floats]:
        return self._elements(ranks, block, block["experts_per_token"])

    def _elements(self, ranks: Ranks, block: Block, experts: Floats) -> dict[str, Floats]:
        hidden = ranks.batch.hidden_size
        routed, shared = self._widths(ranks, block)
        latent = 2.0 * hidden * block.optional("expert_hidden_size")
        dense = block["matrices"] * hidden * shared + latent
        return {
            "experts": experts * block["matrices"] * latent_size(block, hidden) * routed,
            "mlp": dense,
            "router": block["experts"] * hidden,
        }

    def norm_elements(self, hidden: Floats, block: Block) -> Floats:
        return hidden

    def activation_width(self, ranks: Ranks, block: Block) -> Floats:
        routed = block["expert_intermediate_size"] * block["experts_per_token"]
        return routed / ranks.experts_tensor_parallel

    def add(self, step: Operators, block: Block) -> None:
        has_shared = self._dense(step, block)
        if step.backward:
            step.tensor_all_reduce("shared experts all-reduce", has_shared)
            _dispatch(step, block, self._trained(step, block))
        else:
            _exchange(step, block, self._served(step, block))

    def _dense(self, step: Operators, block: Block) -> Floats:
        """What every token meets; returns (n,) layers with shared experts."""
        count, hidden, rows = block.count, step.hidden_size, step.rows
        _, shared = self._widths(step.deployed, block)
        step.elementwise(Role.NORM, "feed-forward norm", count, 3.0 * rows * hidden)
        experts = block["experts"]
        step.gemm(Product(Role.ROUTER, "router", count, "router", rows, experts, hidden))

        has_shared = (shared > 0.0) * count
        if has_shared.any():
            label = "shared experts"
            feed_forward(step, Role.SIDE_UP, label, has_shared, shared, block["matrices"])

        if "expert_hidden_size" in block.sizes:
            latent, narrow = latent_size(block, hidden), count * (block["expert_hidden_size"] > 0.0)
            down, up = "latent down-projection", "latent up-projection"
            step.gemm(Product(Role.SIDE, down, narrow, "mlp", rows, latent, hidden))
            step.gemm(Product(Role.PROJECTION, up, narrow, "mlp", rows, hidden, latent))
        return has_shared

    def _served(self, step: Operators, block: Block) -> Experts:
        """Adds the grouped products of a step of serving, and returns them."""
        deployed, ranks, skew = step.deployed, step.deployed.expert_parallel, step.routing_skew
        tokens = step.mean_rows * deployed.data_parallel
        experts = np.maximum(block["experts"], 1.0)
        copies = np.maximum(self._copies(deployed, block), 1.0)
        distinct = distinct_experts(experts, block["experts_per_token"], tokens, skew)
        distinct = distinct * copies / (experts * ranks)  # copies are read on their own ranks
        mean = tokens * block["experts_per_token"] / ranks
        slots = experts + SPREAD_BY_A_COPY * (copies - experts)
        skew = skew * np.where(copies > experts, UNFORESEEN, 1.0)
        most = tokens * np.minimum(block["experts_per_token"], experts / ranks)
        fullest = np.ceil(copies / ranks) * ranks / copies  # above 1 where they do not divide
        busiest = np.minimum(busiest_rank(mean * fullest, ranks, slots, skew), most)
        distinct = most_distinct(distinct * fullest, ranks, np.ceil(copies / ranks))
        return self._grouped(step, block, tokens, mean, busiest, distinct)

    def _trained(self, step: Operators, block: Block) -> Experts:
        """The same of a pass of training."""
        ranks, skew = step.deployed.expert_parallel, step.routing_skew
        experts = np.maximum(block["experts"], 1.0)
        chosen = np.minimum(block["experts_per_token"], experts)
        mean = step.own_rows * chosen
        tokens = step.own_rows * ranks
        most = tokens * np.minimum(chosen, experts / ranks)
        busiest = np.minimum(busiest_rank(mean, ranks, experts, skew), most)
        distinct = distinct_experts(experts, chosen, tokens, skew) / ranks
        return self._grouped(step, block, tokens, mean, busiest, distinct)

    def _grouped(
        self,
        step: Operators,
        block: Block,
        tokens: Floats,
        mean: Floats,
        busiest: Floats,
        distinct: Floats,
    ) -> Experts:
        deployed, latent = step.deployed, latent_size(block, step.hidden_size)
        width, _ = self._widths(deployed, block)
        weight = block["matrices"] * latent * width
        padded = busiest + deployed.expert_padding_rows * distinct
        one = Experts(block, tokens, width, latent, weight, mean, busiest, padded, distinct)
        step.experts(one)
        return one


def leaving_share(domains: Floats, chosen: Floats, copies: Floats) -> Floats:
    """(n,) of the `copies` of a token that are sent for its `chosen` experts, spread evenly over so
    many domains, the share that is left where each domain gets one at most."""
    return domains * (1.0 - (1.0 - 1.0 / domains) ** chosen) / np.maximum(copies, 1.0)


def _exchange(step: Operators, block: Block, experts: Experts) -> None:
    """Moves tokens to their experts and back.

    Without attention data-parallel every rank already holds every token: one all-reduce of the
    outputs. With it and whole experts on every rank (expert_parallel is all of the group), tokens
    are sent to the ranks of their experts and back, each to at most one copy a rank. Where ranks
    share an expert (less expert parallelism, or none), all tokens are gathered and the outputs
    reduce-scattered, since no all-to-all kernel serves that (SGLang's page on expert parallelism:
    DeepEP and Mooncake for ep_size = tp_size only, below it all-reduce or all-gather), and over
    the host's lanes alone, where none runs (TensorRT-LLM's fused_moe_wide_ep.py: an all-to-all
    needs MNNVL or DeepEP, and more ranks than experts of a token). Of more than FEW_ROWS tokens a
    rank, one copy goes to each other domain and is copied there (DeepEP's normal kernels); fewer go
    straight to each expert.
    """
    deployed, hidden = step.deployed, experts.latent
    spread = deployed.data_parallel > 1.0
    routed = spread & (deployed.expert_parallel >= deployed.group) & ~deployed.host_lanes

    if not spread.all():
        bytes_ = step.rows * hidden * ACTIVATION_BYTES
        count, label = block.count * ~spread, "experts all-reduce"
        step.exchange(Exchange(Role.REDUCE, label, count, "all_reduce", "expert", bytes_))
    gathered = spread & ~routed
    if gathered.any():
        both, label = 2.0 * block.count * gathered, "gather tokens, scatter outputs"
        bytes_ = experts.tokens * hidden * ACTIVATION_BYTES
        step.exchange(Exchange(Role.GATHER, label, both, "all_gather", "expert", bytes_))
    if not routed.any():
        return

    chosen = block["experts_per_token"]
    copies = np.minimum(chosen, deployed.expert_parallel)
    leaving = None
    if any((domains > 1.0).any() for domains in step.expert_domains):
        if id(block) not in deployed.leaving:
            deployed.leaving[id(block)] = [
                leaving_share(domains, chosen, copies) for domains in step.expert_domains
            ]
        few = FEW_ROWS / step.own_rows
        leaving = [np.minimum(np.maximum(x, few), 1.0) for x in deployed.leaving[id(block)]]
    count, load = block.count * routed, experts.load
    for role, label, width in (
        (Role.DISPATCH, "dispatch to experts", deployed.dispatched_bytes),
        (Role.COMBINE, "combine from experts", ACTIVATION_BYTES),
    ):
        bytes_ = step.own_rows * copies * load * hidden * width
        step.exchange(Exchange(role, label, count, "all_to_all", "expert", bytes_, leaving))
    # Every tensor-parallel rank sent its share of the tokens and needs all of them back.
    bytes_ = step.rows * hidden * ACTIVATION_BYTES
    step.exchange(Exchange(Role.GATHER, "gather tokens", count, "all_gather", "tensor", bytes_))


def _dispatch(step: Operators, block: Block, experts: Experts) -> None:
    """Dispatch and combine, each an all-to-all of 16-bit rows: one copy of a token to each rank
    that holds one of its experts and one to each other domain (DeepEP), or, as far as the stack
    sends every slot, one for each of its experts. Of k experts over r ranks, evenly spread,
    r (1 - (1 - 1/r)^k) ranks hold one."""
    ranks = step.deployed.expert_parallel
    if not (ranks > 1.0).any():
        return
    chosen = block["experts_per_token"]
    once, slots = ranks * (1.0 - (1.0 - 1.0 / ranks) ** chosen), step.slots_sent
    copies = once + slots * (chosen - once)
    shares = (np.minimum(leaving_share(each, chosen, once), 1.0) for each in step.expert_domains)
    leaving = [share + slots * (1.0 - share) for share in shares]
    sent = step.own_rows * copies * experts.load * experts.latent * ACTIVATION_BYTES
    count, label = block.count * (ranks > 1.0), "dispatch to experts"
    step.exchange(Exchange(Role.DISPATCH, label, count, "all_to_all", "expert", sent, leaving))


KIND = Moe()
