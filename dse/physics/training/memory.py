"""Memory of the fullest chip of a training run by part.

Bytes of a parameter: its weight, its gradient, the moments of Adam (8 in FP32, 4 in BF16, 2 in 8
bits), a master copy. ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054, section 5) divides moments
and master (stage 1), gradients (2) and weights (3) by the ranks that hold the same weights: context
x data parallel for dense weights, those that remain of a stage beside expert parallelism for
experts. What a low-rank adaptation freezes keeps its weight alone.

Activations are what `passes` counts for one micro-batch, times the micro-batches in flight
(`pipeline.in_flight`). Full recomputation keeps the input of each layer, and one layer whole while
it is worked on; `mlp` and `moe` keep the input of every dense or sparse feed-forward; selective
recomputation drops the outputs of norms and activation functions, and the queries, keys and values
that latent attention expands. The first, the second and the last stage are sized; the fullest
counts.
"""

from __future__ import annotations

import numpy as np

from dse.blocks.operators import ACTIVATION_BYTES
from dse.physics.training.passes import LOGIT_BYTES, Elements, Pass
from dse.physics.training.plan import (
    DUALPIPE,
    OPTIMIZERS,
    RECOMPUTES,
    Stages,
    in_flight,
)
from dse.record import record
from dse.space.candidates import Floats

WEIGHT_BYTES = 2.0
# Both moments of Adam a parameter. 8-bit moments share a scale a block (Dettmers et al. 2022, arXiv
# 2110.02861): below a hundredth of a byte, left out.
_MOMENTS = {"adam_fp32": 8.0, "adam_bf16": 4.0, "adam_8bit": 2.0}
MOMENT_BYTES = np.array([_MOMENTS[name] for name in OPTIMIZERS])
GATHERED_LAYERS = 2.0  # whole on a chip under ZeRO-3: one that computes, one that arrives
SELECTIVE, FULL = RECOMPUTES.index("selective"), RECOMPUTES.index("full")


def model_states(
    parameters: Floats,
    trained: Floats,
    ranks: Floats,
    zero_stage: Floats,
    moment_bytes: Floats,
    master_bytes: Floats,
    gradient_bytes: Floats,
) -> dict[str, Floats]:
    """(n,) bytes, by part, of so many parameters, of which `trained` have gradients and moments, on
    each of `ranks` that hold the same. Without sharding 70e9 parameters with 2 bytes of gradient,
    moments in FP32 and no master take 140 + 140 + 560 = 840 GB."""

    def shared(stage: float, bytes_: Floats) -> Floats:
        return bytes_ / np.where(zero_stage >= stage, ranks, 1.0)

    return {
        "weights": shared(3.0, parameters * WEIGHT_BYTES),
        "gradients": shared(2.0, trained * gradient_bytes),
        "optimizer": shared(1.0, trained * moment_bytes),
        "master": shared(1.0, trained * master_bytes),
    }


@record
class TrainingMemory:
    """`parts[part]`, (n,) bytes on the fullest chip; `host` bytes of its states that lie in the
    host's memory."""

    parts: dict[str, Floats]
    host: Floats

    @property
    def total(self) -> Floats:
        return sum(self.parts.values(), np.zeros(len(self.host)))


def activation_bytes(step: Pass) -> tuple[Floats, Floats]:
    """(n,) bytes that one micro-batch keeps in the mean layer, as recomputation leaves them, and
    what one layer takes while it is worked on."""
    deployed = step.deployed
    layers, recompute = np.maximum(deployed.batch.layers, 1.0), deployed.runs.recompute
    stays, whole = np.zeros(deployed.n), np.zeros(deployed.n)
    for group, kept in step.kept.items():
        dropped = kept.droppable_residual / step.tensor_split
        residual = kept.residual / step.tensor_split
        everything = residual + dropped + kept.sharded + kept.droppable_sharded
        stays = stays + np.where(recompute == SELECTIVE, residual + kept.sharded, everything)
        if group in RECOMPUTES:  # keeps its input alone
            again = recompute == RECOMPUTES.index(group)
            stays = stays - np.where(again, kept.sharded + kept.droppable_sharded, 0.0)
        whole = whole + everything
    inputs = step.rows * step.hidden_size * ACTIVATION_BYTES / step.tensor_split
    share = deployed.runs.recompute_share
    left = np.where(recompute == FULL, inputs, stays / layers)
    return left * share + whole / layers * (1.0 - share), whole / layers


def memory_of(
    step: Pass, elements: Elements, stages: Stages, micro_batches: Floats
) -> TrainingMemory:
    """Sizes the first, the second and the last stage of every run, and keeps the fullest."""
    deployed, runs = step.deployed, step.deployed.runs
    flying = in_flight(
        runs.schedule, deployed.pipeline_parallel, runs.virtual_stages, micro_batches
    )
    alone, zeros = deployed.pipeline_parallel == 1.0, np.zeros(deployed.n)
    head, buffers = _head(step), _buffers(step, elements)
    stays, worked = activation_bytes(step)
    full = (runs.recompute == FULL) & (runs.recompute_share > 0.0)
    again = np.where(full, worked, 0.0)

    def stage(layers: Floats, kept: Floats, tables: Floats, logits: Floats) -> TrainingMemory:
        states = states_of(step, elements, layers, tables)
        offloaded = {part: states[part] for part in ("optimizer", "master")}
        parts = {
            **states,
            **{part: bytes_ * (1.0 - runs.offload) for part, bytes_ in offloaded.items()},
            "activations": layers * kept * stays + again,
            "logits": logits,
            "buffers": buffers,
            "runtime": np.full(deployed.n, step.stack.runtime_bytes),
        }
        return TrainingMemory(parts, sum(offloaded.values()) * runs.offload)

    entrance = elements.table + elements.positions
    both = entrance + np.where(elements.tied > 0.0, 0.0, elements.table)
    tables = np.where(alone, both, entrance)
    first = stage(stages.first, flying[0], tables, np.where(alone, head, 0.0))
    middle = stage(stages.middle * stages.inner, flying[1], zeros, zeros)
    last = stage(stages.last, flying[2], elements.table, head)
    return _fuller(last, _fuller(middle, first))


def states_of(step: Pass, elements: Elements, layers: Floats, tables: Floats) -> dict[str, Floats]:
    """Model states of a stage on one chip by part. DualPipe keeps two stages a chip."""
    deployed, runs = step.deployed, step.deployed.runs
    dense, experts = elements.dense * layers + tables, elements.experts * layers
    adapters = step.adapter_elements * (layers / np.maximum(deployed.batch.layers, 1.0))
    twice = (runs.schedule == DUALPIPE) & (deployed.pipeline_parallel > 1.0)
    copies = np.where(twice, 2.0, 1.0)

    trained_experts = np.where(step.lora, 0.0, experts)
    trained_dense = np.where(step.lora, adapters, dense)

    def states(stored: Floats, trained: Floats, ranks: Floats) -> dict[str, Floats]:
        return model_states(
            stored,
            trained,
            ranks,
            deployed.zero_stage,
            MOMENT_BYTES[runs.optimizer],
            runs.master_bytes,
            runs.gradient_bytes,
        )

    of_dense = states(dense * copies + adapters, trained_dense, deployed.data_ranks)
    of_experts = states(experts * copies, trained_experts, deployed.expert_data_ranks)
    return {part: bytes_ + of_experts[part] for part, bytes_ in of_dense.items()}


def _head(step: Pass) -> Floats:
    """(n,) bytes of the logits of one micro-batch in FP32, and of the inputs of the last norm and
    of the output head (Korthikanti et al. 2022, section 4.3)."""
    rows, hidden = step.rows, step.hidden_size
    inputs = 2.0 * rows * hidden * ACTIVATION_BYTES / step.tensor_split
    return rows * step.deployed.vocabulary * LOGIT_BYTES + inputs


def _buffers(step: Pass, elements: Elements) -> Floats:
    """(n,) bytes of what is on its way: two hidden states, with pipeline stages two more, and
    whole layers under ZeRO-3 with the gradient of one."""
    deployed, runs = step.deployed, step.deployed.runs
    piped = np.where(deployed.pipeline_parallel > 1.0, 4.0, 2.0)
    rows = piped * step.rows * step.hidden_size * ACTIVATION_BYTES
    layer = elements.dense + elements.experts
    trained = np.where(step.lora, 0.0, runs.gradient_bytes)
    gathered = layer * (GATHERED_LAYERS * WEIGHT_BYTES + trained)
    several = (deployed.zero_stage >= 3.0) & (deployed.group > deployed.tensor_parallel)
    return rows + np.where(several, gathered, 0.0)


def _fuller(one: TrainingMemory, other: TrainingMemory) -> TrainingMemory:
    first = one.total > other.total

    def pick(a: Floats, b: Floats) -> Floats:
        return np.where(first, a, b)

    parts = {part: pick(bytes_, other.parts[part]) for part, bytes_ in one.parts.items()}
    return TrainingMemory(parts, pick(one.host, other.host))
