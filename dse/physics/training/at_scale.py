"""A run from its step: the input pipeline, stragglers, sites and interruptions around it.

    step = max(step of the chips + slowest rank + other sites, delivery of its tokens)
    wall clock = tokens / global batch x step / goodput

Every array is (n,). What is added to the losses of `TrainingMetrics` is named in LOSSES_AT_SCALE.

Synchronous ranks wait for the slowest of them: each takes its step and a delay, of mean
`straggler` x step, independent of the others' and new in every step, and all wait for the expected
maximum of half-normal delays (`dse.physics.collectives`), of which the mean of one rank is part.

Batches are read, tokenised and sent to the chips beside the step that runs (prefetch, assumed to
hide completely what it can), so that a step takes the longer of its own time and of its tokens'
delivery.

Interruptions come at random (exponentially distributed), and a run of N chips has one every
M = chip-hours between interruptions / N. Between checkpoints, each of which takes w seconds during
which no step runs, lie t seconds of steps; after an interruption r seconds pass before the run
stands again where its last checkpoint was. Daly 2006 (Future Generation Computer Systems 22(3),
equation 20): a second of progress takes

    W = M e^(r / M) (e^((t + w) / M) - 1) / t        goodput = 1 / W

of wall clock, an interruption while writing or restarting included. It is least near

    t = sqrt(2 w M) (1 + sqrt(w / 2M) / 3 + w / 18M) - w        (equation 37; M where w >= 2M)

whose first term is Young 1974 (Communications of the ACM 17(9)).

Sites. Chips may stand in several data centres, with a network between them that is thin and long:
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

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dse.physics.collectives import expected_half_normal_maximum
from dse.physics.training.memory import MOMENT_BYTES, WEIGHT_BYTES
from dse.physics.training.plan import LOSSES, TASKS, TrainingBatch, TrainingMetrics
from dse.record import record
from dse.space.candidates import Floats

# Beyond this many failures in one interval nothing gets done, and the exponential overflows.
HOPELESS = 300.0


def optimal_interval_s(write_s: Floats, between_s: Floats) -> Floats:
    """(n,) seconds of steps between two checkpoints that waste least; `write_s` seconds of a
    checkpoint, `between_s` mean seconds between interruptions of the whole run."""
    ratio = write_s / (2.0 * between_s)
    root = np.sqrt(ratio)
    near = 2.0 * between_s * root * (1.0 + root / 3.0 + ratio / 9.0) - write_s
    return np.where(ratio < 1.0, near, between_s)


@record
class Goodput:
    """Of a run, (n,) each. `goodput` is the share of the wall clock in which steps are made that
    last; `writing`, `lost` (steps made again) and `restarting` are the other shares, and the four
    add up to 1. `interval_s` between checkpoints, `write_s` of one, `between_s` interruptions."""

    goodput: Floats
    writing: Floats
    lost: Floats
    restarting: Floats
    interval_s: Floats
    write_s: Floats
    between_s: Floats


def goodput(
    chips: Floats,
    chip_s_between: Floats | float,
    checkpoint_bytes: Floats,
    storage_bytes_per_s: Floats,
    restart_s: Floats | float,
    interval_s: Floats | float | None = None,
) -> Goodput:
    """(n,) of runs on `chips` chips with `chip_s_between` chip-seconds between interruptions, which
    write `checkpoint_bytes` at `storage_bytes_per_s` every `interval_s` (None: at the best one)."""
    between = chip_s_between / chips
    write = checkpoint_bytes / storage_bytes_per_s
    best = np.maximum(optimal_interval_s(write, between), 1e-9 * between)
    interval = best if interval_s is None else interval_s + np.zeros(len(between))
    failures = np.minimum((interval + write) / between, HOPELESS)
    # Wall clock of a second of progress without restarts, and with them.
    run = between * np.expm1(failures) / interval
    whole = run * np.exp(np.minimum(restart_s / between, HOPELESS))
    share = 1.0 / whole
    writing = share * write / interval
    return Goodput(
        goodput=share,
        writing=writing,
        lost=np.maximum(share * run - share - writing, 0.0),
        restarting=share * (whole - run),
        interval_s=interval,
        write_s=write,
        between_s=between,
    )


ACTIVATION_BYTES = 2.0


def data_sync_s(
    sites: Floats | float,
    gradient_bytes: Floats,
    site_bytes_per_s: Floats | float,
    latency_s: Floats | float,
    local_steps: Floats | float = 1.0,
) -> Floats:
    """(n,) seconds a step that the sites' exchange adds, in the mean over `local_steps` steps. 0
    for one site."""
    others = sites - 1.0
    each = 2.0 * others / sites * gradient_bytes / site_bytes_per_s + 2.0 * others * latency_s
    return each / local_steps


def pipeline_s(
    step_s: Floats,
    sites: Floats | float,
    batch_tokens: Floats,
    micro_batch_tokens: Floats,
    hidden_size: Floats,
    site_bytes_per_s: Floats | float,
    latency_s: Floats | float,
) -> Floats:
    """(n,) seconds that a step of `step_s` is longer for a pipeline across `sites`: what the link
    takes longer than the step, and the path of one micro-batch there and back. `batch_tokens` and
    `micro_batch_tokens` are of all pipelines that cross together."""
    borders = sites - 1.0
    ways = 1.0 + (borders > 1.0)
    crossing = ways * batch_tokens * hidden_size * ACTIVATION_BYTES / site_bytes_per_s - step_s
    message = micro_batch_tokens * hidden_size * ACTIVATION_BYTES / site_bytes_per_s + latency_s
    return (borders > 0.0) * (crossing * (crossing > 0.0)) + 2.0 * borders * message


LOSSES_AT_SCALE = {
    **LOSSES,
    "sites": "traffic between sites",  # gradients or activations between data centres
    "input_pipeline": "input pipeline",  # chips that wait for their tokens
}


@record
class Conditions:
    """What surrounds the steps of a run. `chip_s_between` interruptions, `restart_s` after one;
    `storage_bytes_per_s_per_chip` takes checkpoints, every `checkpoint_interval_s` (None: the best
    interval). `straggler`: mean delay of a rank as a share of its step, beyond what the stack's own
    constant holds. `input_tokens_per_s` of the whole pipeline. `sites` data centres that share the
    chips, `site_bytes_per_s` each way for each; `site_split` is data or pipeline;
    `local_steps` between two exchanges of data-parallel sites."""

    chip_s_between: float
    restart_s: float
    storage_bytes_per_s_per_chip: float
    checkpoint_interval_s: float | None = None
    straggler: float = 0.0
    input_tokens_per_s: float = np.inf
    sites: float = 1.0
    site_split: str = "data"
    site_bytes_per_s: float = np.inf
    site_latency_s: float = 0.0
    local_steps: float = 1.0


@record
class Run:
    """(n,) each: seconds of a step with everything around it, by cause of LOSSES_AT_SCALE, which
    add up to it; `goodput`."""

    step_s: Floats
    losses: Mapping[str, Floats]
    goodput: Goodput
    checkpoint_bytes: Floats

    def wall_s(self, batch: TrainingBatch, tokens: Floats | float) -> Floats:
        """(n,) seconds from the first step to the last of a run over so many tokens."""
        return tokens / batch.global_batch_tokens * self.step_s / self.goodput.goodput


def of_one_site(batch: TrainingBatch, conditions: Conditions) -> TrainingBatch:
    """(n,) the runs as one data centre sees them. Where sites split the batch, each holds the whole
    model: nothing is sharded or gathered across them."""
    if conditions.sites == 1.0 or conditions.site_split != "data":
        return batch
    every = batch.candidates.data_parallel
    ranks = np.maximum(np.floor(every / conditions.sites), 1.0)
    return replace(
        batch,
        candidates=replace(batch.candidates, data_parallel=ranks),
        global_batch_tokens=batch.global_batch_tokens * ranks / every,
    )


def straggler_s(step_s: Floats, ranks: Floats, straggler: Floats | float) -> Floats:
    """(n,) seconds that a step of `step_s` waits for the slowest of `ranks`, whose mean delay is
    the share `straggler` of the step; 0 where it is 0."""
    return step_s * straggler * expected_half_normal_maximum(ranks)


def starved_s(step_s: Floats, batch_tokens: Floats, tokens_per_s: Floats | float) -> Floats:
    """(n,) seconds of each step in which the chips wait for their input; infinite `tokens_per_s`
    is a pipeline that always keeps up."""
    return np.maximum(batch_tokens / tokens_per_s - step_s, 0.0)


def at_scale(batch: TrainingBatch, metrics: TrainingMetrics, conditions: Conditions) -> Run:
    """(n,) runs around the steps of `metrics`, which are those of `of_one_site`."""
    chips, trained = batch.chips, _trained(of_one_site(batch, conditions), metrics)
    slowest = straggler_s(metrics.step_s, chips, conditions.straggler)
    between = _between_sites(batch, metrics.step_s + slowest, trained, conditions)
    running = metrics.step_s + slowest + between
    starved = starved_s(running, batch.global_batch_tokens, conditions.input_tokens_per_s)
    state = trained * (WEIGHT_BYTES + batch.master_bytes + MOMENT_BYTES[batch.optimizer])
    interrupted = goodput(
        chips,
        conditions.chip_s_between,
        state,
        conditions.storage_bytes_per_s_per_chip * chips,
        conditions.restart_s,
        conditions.checkpoint_interval_s,
    )
    return Run(
        step_s=running + starved,
        losses={
            **metrics.losses,
            "stragglers": metrics.losses["stragglers"] + slowest,
            "sites": between,
            "input_pipeline": starved,
        },
        goodput=interrupted,
        checkpoint_bytes=state,
    )


def _trained(batch: TrainingBatch, metrics: TrainingMetrics) -> Floats:
    """(n,) parameters that have gradients: all, or the adapters of LoRA, from what the fullest chip
    keeps of them."""
    runs = batch.candidates
    share = np.where(batch.zero_stage >= 2.0, runs.data_parallel * batch.context_parallel, 1.0)
    adapters = metrics.memory["gradients"] / batch.gradient_bytes * share
    adapters = adapters * runs.tensor_parallel * runs.pipeline_parallel
    whole = metrics.parameters.total
    return np.where(batch.task == TASKS.index("lora"), np.minimum(adapters, whole), whole)


def _between_sites(
    batch: TrainingBatch, step_s: Floats, trained: Floats, conditions: Conditions
) -> Floats:
    """(n,) seconds a step that data centres apart add."""
    sites, bandwidth = conditions.sites, conditions.site_bytes_per_s
    latency, runs = conditions.site_latency_s, batch.candidates
    if sites == 1.0:
        return np.zeros(len(batch))
    if conditions.site_split == "data":
        gradient = trained * batch.gradient_bytes
        return data_sync_s(sites, gradient, bandwidth, latency, conditions.local_steps)
    micro, tokens = batch.micro_batch * batch.sequence_length, batch.global_batch_tokens
    micro = micro * runs.data_parallel
    return pipeline_s(step_s, sites, tokens, micro, runs.hidden_size, bandwidth, latency)
