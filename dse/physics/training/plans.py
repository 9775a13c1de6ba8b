"""Every way to divide a training run over its chips that a framework would accept.

chips = tensor x context x pipeline x data parallel. What is fixed is taken as it is; the rest is
enumerated: tensor and context parallelism in powers of two, stages and expert parallelism among the
divisors, micro-batches in powers of two, virtual stages that divide a stage's layers, recomputation
and ZeRO stage. Left out, as never best: tensor parallelism beyond the scale-up domain (or 8 chips),
pieces of a sequence below 1,024 tokens, micro-batches above 65,536 tokens, ZeRO stage 2 (its memory
is stage 1's or 3's but for the gradients, its time stage 1's).

A rule that would leave nothing is not applied, so that the evaluation can name what is broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.physics.training.plan import RECOMPUTES, SCHEDULES, TrainingBatch
from dse.record import record
from dse.space.candidates import CandidateBatch
from dse.space.deployments import Deployments, divides, divisors, powers_of_two

# Names of what is searched, in the order in which ties are broken: the first, plainest plan wins.
SEARCHED = (
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "virtual_stages",
    "micro_batch",
    "recompute",
    "zero_stage",
)
MOST_TENSOR, LEAST_TENSOR, MOST_STAGES, MOST_VIRTUAL = 64, 8, 128, 8
LEAST_PIECE, MOST_MICRO_TOKENS = 1024, 65_536
FEW_CONTEXT = 4
MICRO_BATCHES = (1, 2, 4, 8)
ZERO_STAGES = (1, 3)


@record
class Setting:
    """What is the same in every plan of a run; `fixed` holds values of SEARCHED that are not
    searched (recompute by its place in RECOMPUTES). `few` leaves out most plans, for a
    search over shapes: powers of two alone, context parallelism up to 4, one or two
    sequences a micro-batch, feed-forwards or experts never recomputed alone (of 11 models
    and clusters, nine lost nothing by it, the others 1% and 4%).
    """

    sequence_length: int = 8192
    global_batch_tokens: int = 2048 * 8192
    precision: str = "bf16"
    task: str = "pretrain"
    optimizer: str = "adam_fp32"
    master_bytes: float = 4.0
    gradient_bytes: float = 4.0
    lora_rank: float = 16.0
    offload: float = 0.0
    schedule: str | None = None
    sequence_parallel: int = 1
    fixed: Mapping[str, int] = field(default_factory=dict)
    few: bool = False

    @property
    def sequences(self) -> int:
        """Of a global batch."""
        return max(self.global_batch_tokens // self.sequence_length, 1)


def plans(shape: CandidateBatch, chips: int, setting: Setting, domain: float) -> Deployments:
    """A table of SEARCHED and `data_parallel`: the plans of one shape (a batch of one) on
    `chips` chips, `domain` of them in a scale-up domain."""
    fixed = setting.fixed

    def few(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values[(values & (values - 1)) == 0] if setting.few else values

    layers = int(shape.layers[0])
    experts = [int(b["experts"][0]) for b in shape.blocks if b.kind == "moe" and b.count[0] > 0]
    tensor = powers_of_two(int(min(max(domain, LEAST_TENSOR), MOST_TENSOR, chips)))
    table = Deployments.of(
        tensor_parallel=fixed.get("tensor_parallel", tensor),
        context_parallel=fixed.get("context_parallel", powers_of_two(_most_context(setting))),
        pipeline_parallel=fixed.get("pipeline_parallel", few(_stages(chips, layers))),
    )
    # Fixed degrees that do not divide the chips: the plainest plan with them is the nearest miss.
    dividing = table.filling(chips)
    if not len(dividing):
        dividing = table.where(lambda t: t.chips == t.chips.min())
        dividing = dividing.with_columns(data_parallel=np.maximum(chips // dividing.chips, 1))
    table = dividing
    for block in shape.blocks:
        for heads in ("heads", "key_heads", "value_heads"):
            if heads in block.sizes and block.count[0] > 0.0:
                table = table.where_any(divides("tensor_parallel", block[heads][0]))
    table = table.where_any(divides("data_parallel", setting.sequences))

    table = table.cross(
        expert_parallel=fixed.get("expert_parallel", few(divisors(experts[0] if experts else 1))),
        micro_batch=fixed.get("micro_batch", MICRO_BATCHES[:2] if setting.few else MICRO_BATCHES),
    )
    table = table.where_any(lambda t: t.group % t["expert_parallel"] == 0)
    if "micro_batch" not in fixed:
        most = MOST_MICRO_TOKENS // setting.sequence_length
        table = table.where_any(lambda t: t["micro_batch"] <= max(most, 1))
    table = table.where_any(lambda t: setting.sequences % _at_once(t) == 0)

    plain = setting.schedule not in (None, "interleaved")  # has no virtual stages
    virtual = few(np.arange(1, 2 if plain else MOST_VIRTUAL + 1))
    table = table.cross(virtual_stages=fixed.get("virtual_stages", virtual))
    table = table.where_any(
        lambda t: (t["virtual_stages"] == 1) | _stages_alternate(t, layers, setting)
    )
    table = table.cross(
        recompute=fixed.get("recompute", _recomputes(bool(experts), setting.few)),
        zero_stage=fixed.get("zero_stage", ZERO_STAGES),
    )
    if "zero_stage" not in fixed:
        table = table.where_any(
            lambda t: (
                (t["data_parallel"] > 1)
                | (t["context_parallel"] > 1)
                | (t["zero_stage"] == ZERO_STAGES[0])
            )
        )
    return table


def _at_once(table: Deployments) -> NDArray[np.int64]:
    """(n,) sequences of one micro-batch over all data-parallel ranks."""
    return table["data_parallel"] * table["micro_batch"]


def _stages_alternate(table: Deployments, layers: int, setting: Setting) -> NDArray[np.bool_]:
    """(n,) whether virtual stages are of equal layers, and micro-batches go round the stages. Where
    layers do not divide, embedding and output head may stand for one each (Llama 3)."""
    stages = table["pipeline_parallel"]
    pieces = stages * table["virtual_stages"]
    even = (layers % pieces == 0) | ((layers + 2) % pieces == 0)
    return even & (setting.sequences // _at_once(table) % stages == 0) & (stages > 1)


def batch_of_plans(
    shapes: CandidateBatch, row: NDArray[np.intp], table: Deployments, setting: Setting
) -> TrainingBatch:
    """The training batch of plans (n,) of the shapes at `row`."""
    schedule: Any = setting.schedule
    if schedule == "interleaved":
        schedule = np.where(table["virtual_stages"] > 1, SCHEDULES.index("interleaved"), 0)
    return TrainingBatch.of(
        table.with_columns(replicas=1).placed(shapes, row),
        setting.sequence_length,
        setting.sequences * setting.sequence_length,
        precision=setting.precision,
        context_parallel=table["context_parallel"],
        virtual_stages=table["virtual_stages"],
        micro_batch=table["micro_batch"],
        recompute=table["recompute"],
        zero_stage=table["zero_stage"],
        sequence_parallel=np.where(table["tensor_parallel"] > 1, setting.sequence_parallel, 0),
        schedule=schedule,
        optimizer=setting.optimizer,
        master_bytes=setting.master_bytes,
        gradient_bytes=setting.gradient_bytes,
        task=setting.task,
        lora_rank=setting.lora_rank,
        offload=setting.offload,
    )


def default_batch_tokens(chips: int, sequence_length: int, tokens: int = 2048 * 8192) -> int:
    """About `tokens`, in whole sequences that divide by `chips`, or by what of its powers of two
    leaves eight such parts, so that a cluster of 72 or 1,536 chips has data-parallel plans too;
    as it is where that would more than double it."""
    power = chips & -chips
    odd, sequences = chips // power, max(tokens // sequence_length, 1)
    while power > 1 and 8 * odd * power > sequences:
        power //= 2
    found = max(round(sequences / (odd * power)), 1) * odd * power
    return (found if found <= 2 * sequences else sequences) * sequence_length


def _recomputes(sparse: bool, few: bool) -> NDArray[np.int64]:
    """Codes that differ for a model with or without experts."""
    left_out = {"mlp", "moe"} if few else set() if sparse else {"moe"}
    return np.array([k for k, name in enumerate(RECOMPUTES) if name not in left_out])


def _most_context(setting: Setting) -> int:
    pieces = max(setting.sequence_length // LEAST_PIECE, 1)
    return min(pieces, FEW_CONTEXT) if setting.few else pieces


def _stages(chips: int, layers: int) -> NDArray[np.int64]:
    stages = divisors(chips)
    return stages[stages <= min(layers, MOST_STAGES)]
