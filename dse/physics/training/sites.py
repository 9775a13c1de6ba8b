"""Chips in several data centres, with a network between them that is thin and long. Arrays: (n,).

S sites of equal size. Each has B bytes per second each way to the others, and a message takes l
seconds from one to the next.

*data*: every site holds the whole model and trains on its own part of the batch. Gradients of G
bytes are all-reduced between the sites, each chip its own shard over the one shared link: a ring
moves 2 (S - 1) / S G over every site's link in 2 (S - 1) messages (Thakur et al. 2005). With H
local steps (DiLoCo, Douillard et al. 2023, arXiv 2311.08105) that happens once in H steps, with
differences of weights in place of gradients. What H does to the loss is not modelled; the paper
reports none at H = 500, 8 workers and 150M to 400M parameters.

*pipeline*: the stages of one pipeline lie in different sites, in order. Activations of each token
go forward, and as many gradients back in the other direction, across each border: tokens x hidden
size x 2 bytes a step each way, twice that for a site with neighbours on both sides, whose one link
carries what goes forward and what goes back. They overlap with the steps of other micro-batches as
far as the link keeps up; the first and the last micro-batch cross every border uncovered.
"""

from __future__ import annotations

from dse.space.candidates import Floats

SPLITS = ("data", "pipeline")
ACTIVATION_BYTES = 2.0


def data_sync_s(
    sites: Floats,
    gradient_bytes: Floats,
    site_bytes_per_s: Floats,
    latency_s: Floats,
    local_steps: Floats | float = 1.0,
    overlap_s: Floats | float = 0.0,
) -> Floats:
    """(n,) seconds a step that the sites' exchange adds, in the mean over `local_steps` steps;
    `overlap_s` seconds of each exchange run beside the step. 0 for one site."""
    others = sites - 1.0
    each = 2.0 * others / sites * gradient_bytes / site_bytes_per_s + 2.0 * others * latency_s
    left = each - overlap_s
    return left * (left > 0.0) / local_steps


def pipeline_s(
    step_s: Floats,
    sites: Floats,
    batch_tokens: Floats,
    micro_batch_tokens: Floats,
    hidden_size: Floats,
    site_bytes_per_s: Floats,
    latency_s: Floats,
) -> Floats:
    """(n,) seconds that a step of `step_s` is longer for a pipeline across `sites`: what the link
    takes longer than the step, and the path of one micro-batch there and back. `batch_tokens` and
    `micro_batch_tokens` are of all pipelines that cross together."""
    borders = sites - 1.0
    ways = 1.0 + (borders > 1.0)
    crossing = ways * batch_tokens * hidden_size * ACTIVATION_BYTES / site_bytes_per_s - step_s
    message = micro_batch_tokens * hidden_size * ACTIVATION_BYTES / site_bytes_per_s + latency_s
    return (borders > 0.0) * (crossing * (crossing > 0.0)) + 2.0 * borders * message
