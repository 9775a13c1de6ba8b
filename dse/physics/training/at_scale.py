"""A run from its step: the input pipeline, stragglers, sites and interruptions around it.

    step = max(step of the chips + slowest rank + other sites, delivery of its tokens)
    wall clock = tokens / global batch x step / goodput

Every array is (n,). What is added to the losses of `TrainingMetrics` is named in LOSSES_AT_SCALE.

Synchronous ranks wait for the slowest of them: each takes its step and a delay, of mean
`straggler` x step, independent of the others' and new in every step, and all wait for the expected
maximum of half-normal delays (`dse.physics.jitter`), of which the mean of one rank is part.

Batches are read, tokenised and sent to the chips beside the step that runs (prefetch, assumed to
hide completely what it can), so that a step takes the longer of its own time and of its tokens'
delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dse.physics.jitter import expected_half_normal_maximum
from dse.physics.training.memory import MOMENT_BYTES, WEIGHT_BYTES
from dse.physics.training.plan import LOSSES, TASKS, TrainingBatch, TrainingMetrics
from dse.physics.training.reliability import Goodput, goodput
from dse.physics.training.sites import data_sync_s, pipeline_s
from dse.record import record
from dse.space.candidates import Floats

LOSSES_AT_SCALE = {
    **LOSSES,
    "sites": "gradients or activations between data centres",
    "input_pipeline": "chips that wait for their tokens",
}


@record
class Conditions:
    """What surrounds the steps of a run. `chip_s_between` interruptions, `restart_s` after one;
    `storage_bytes_per_s_per_chip` takes checkpoints, every `checkpoint_interval_s` (None: the best
    interval). `straggler`: mean delay of a rank as a share of its step, beyond what the stack's own
    constant holds. `input_tokens_per_s` of the whole pipeline. `sites` data centres that share the
    chips, `site_bytes_per_s` each way for each; `site_split` is one of `sites.SPLITS`;
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


def starved_s(step_s: Floats, batch_tokens: Floats, tokens_per_s: Floats) -> Floats:
    """(n,) seconds of each step in which the chips wait for their input; infinite `tokens_per_s`
    is a pipeline that always keeps up."""
    return np.maximum(batch_tokens / tokens_per_s - step_s, 0.0)


def at_scale(batch: TrainingBatch, metrics: TrainingMetrics, conditions: Conditions) -> Run:
    """(n,) runs around the steps of `metrics`, which are those of `of_one_site`."""
    chips, trained = batch.chips, _trained(of_one_site(batch, conditions), metrics)
    slowest = straggler_s(metrics.step_s, chips, conditions.straggler)
    between = _between_sites(batch, metrics.step_s + slowest, trained, conditions)
    running = metrics.step_s + slowest + between
    delivered = np.full(len(chips), conditions.input_tokens_per_s)
    starved = starved_s(running, batch.global_batch_tokens, delivered)
    state = trained * (WEIGHT_BYTES + batch.master_bytes + MOMENT_BYTES[batch.optimizer])
    interrupted = goodput(
        chips,
        np.full(len(chips), conditions.chip_s_between),
        state,
        conditions.storage_bytes_per_s_per_chip * chips,
        np.full(len(chips), conditions.restart_s),
        None
        if conditions.checkpoint_interval_s is None
        else np.full(len(chips), conditions.checkpoint_interval_s),
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
    n = len(batch)
    if conditions.sites == 1.0:
        return np.zeros(n)
    sites = np.full(n, conditions.sites)
    bandwidth = np.full(n, conditions.site_bytes_per_s)
    latency = np.full(n, conditions.site_latency_s)
    if conditions.site_split == "data":
        gradient = trained * batch.gradient_bytes
        return data_sync_s(sites, gradient, bandwidth, latency, conditions.local_steps)
    micro = batch.micro_batch * batch.sequence_length * batch.candidates.data_parallel
    return pipeline_s(
        step_s,
        sites,
        batch.global_batch_tokens,
        micro,
        batch.candidates.hidden_size,
        bandwidth,
        latency,
    )
