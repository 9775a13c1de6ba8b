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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.physics.training.plan import RECOMPUTES, SCHEDULES, TrainingBatch
from dse.space.candidates import CandidateBatch, Floats

# Names of what is searched, in the order in which ties are broken: the first, plainest plan wins.
SEARCHED = (
    "tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel",
    "virtual_stages", "micro_batch", "recompute", "zero_stage",
)  # fmt: skip
MOST_TENSOR, LEAST_TENSOR, MOST_STAGES, MOST_VIRTUAL = 64, 8, 128, 8
LEAST_PIECE, MOST_MICRO_TOKENS = 1024, 65_536
FEW_CONTEXT = 4
MICRO_BATCHES = (1, 2, 4, 8)
ZERO_STAGES = (1, 3)


@dataclass(frozen=True, slots=True)
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


Columns = dict[str, NDArray[np.int64]]


def plans(shape: CandidateBatch, chips: int, setting: Setting, domain: float) -> Columns:
    """(n,) columns of SEARCHED and `data_parallel`: the plans of one shape (a batch of one) on
    `chips` chips, `domain` of them in a scale-up domain."""
    fixed = setting.fixed

    def few(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return values[(values & (values - 1)) == 0] if setting.few else values

    layers = int(shape.layers[0])
    experts = [int(b["experts"][0]) for b in shape.blocks if b.kind == "moe" and b.count[0] > 0]
    tensor = _powers(int(min(max(domain, LEAST_TENSOR), MOST_TENSOR, chips)))
    table = _product(
        {
            "tensor_parallel": fixed.get("tensor_parallel", tensor),
            "context_parallel": fixed.get("context_parallel", _powers(_most_context(setting))),
            "pipeline_parallel": fixed.get("pipeline_parallel", few(_stages(chips, layers))),
        }
    )
    used = table["tensor_parallel"] * table["context_parallel"] * table["pipeline_parallel"]
    # Fixed degrees that do not divide the chips: the plainest plan with them is the nearest miss.
    dividing = chips % used == 0
    table = _keep(table, dividing if dividing.any() else used == used.min())
    used = table["tensor_parallel"] * table["context_parallel"] * table["pipeline_parallel"]
    table["data_parallel"] = np.maximum(chips // used, 1)
    for block in shape.blocks:
        for heads in ("heads", "key_heads", "value_heads"):
            if heads in block.sizes and block.count[0] > 0.0:
                table = _keep(table, block[heads][0] % table["tensor_parallel"] == 0)
    table = _keep(table, setting.sequences % table["data_parallel"] == 0)

    table = _product(
        {
            "expert_parallel": fixed.get(
                "expert_parallel", few(_divisors(experts[0] if experts else 1))
            ),
            "micro_batch": fixed.get(
                "micro_batch", MICRO_BATCHES[:2] if setting.few else MICRO_BATCHES
            ),
        },
        table,
    )
    group = table["tensor_parallel"] * table["context_parallel"] * table["data_parallel"]
    table = _keep(table, group % table["expert_parallel"] == 0)
    tokens = table["micro_batch"] * setting.sequence_length
    small = (tokens <= MOST_MICRO_TOKENS) | (table["micro_batch"] == 1)
    table = _keep(table, small | ("micro_batch" in fixed))
    ranks = table["data_parallel"] * table["micro_batch"]
    table = _keep(table, setting.sequences % ranks == 0)

    plain = setting.schedule not in (None, "interleaved")  # has no virtual stages
    virtual = few(np.arange(1, 2 if plain else MOST_VIRTUAL + 1))
    table = _product({"virtual_stages": fixed.get("virtual_stages", virtual)}, table)
    stages, virtual = table["pipeline_parallel"], table["virtual_stages"]
    batches = setting.sequences // (table["data_parallel"] * table["micro_batch"])
    # Where layers do not divide, embedding and output head may stand for one each (Llama 3).
    pieces = stages * virtual
    even = (layers % pieces == 0) | ((layers + 2) % pieces == 0)
    table = _keep(table, (virtual == 1) | (even & (batches % stages == 0) & (stages > 1)))

    table = _product(
        {
            "recompute": fixed.get("recompute", _recomputes(bool(experts), setting.few)),
            "zero_stage": fixed.get("zero_stage", ZERO_STAGES),
        },
        table,
    )
    alone = (table["data_parallel"] == 1) & (table["context_parallel"] == 1)
    return _keep(table, ("zero_stage" in fixed) | ~alone | (table["zero_stage"] == ZERO_STAGES[0]))


def batch_of_plans(
    shapes: CandidateBatch, row: NDArray[np.intp], columns: Columns, setting: Setting
) -> TrainingBatch:
    """The training batch of plans (n,) of the shapes at `row`."""
    real = {name: values.astype(np.float64) for name, values in columns.items()}
    candidates = replace(
        shapes[row],
        tensor_parallel=real["tensor_parallel"],
        pipeline_parallel=real["pipeline_parallel"],
        data_parallel=real["data_parallel"],
        expert_parallel=real["expert_parallel"],
        replicas=np.ones(len(row)),
    )
    schedule: Any = setting.schedule
    if schedule == "interleaved":
        schedule = np.where(columns["virtual_stages"] > 1, SCHEDULES.index("interleaved"), 0)
    return TrainingBatch.of(
        candidates,
        setting.sequence_length,
        setting.sequences * setting.sequence_length,
        precision=setting.precision,
        context_parallel=real["context_parallel"],
        virtual_stages=real["virtual_stages"],
        micro_batch=real["micro_batch"],
        recompute=columns["recompute"],
        zero_stage=real["zero_stage"],
        sequence_parallel=np.where(real["tensor_parallel"] > 1.0, setting.sequence_parallel, 0),
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


def _product(axes: Mapping[str, Any], table: Columns | None = None) -> Columns:
    """Every row of `table` with every combination of the axes."""
    columns: Columns = dict(table or {})
    for name, values in axes.items():
        values = np.atleast_1d(np.asarray(values, dtype=np.int64))
        n = len(next(iter(columns.values()))) if columns else 1
        columns = {key: np.repeat(column, len(values)) for key, column in columns.items()}
        columns[name] = np.tile(values, n)
    return columns


def _keep(table: Columns, keep: NDArray[np.bool_] | Floats) -> Columns:
    """The rows that a rule allows; all where it allows none."""
    rows = np.asarray(keep, dtype=bool) & np.ones(len(table["tensor_parallel"]), dtype=bool)
    return {name: values[rows] for name, values in table.items()} if rows.any() else table


def _recomputes(sparse: bool, few: bool) -> NDArray[np.int64]:
    """Codes that differ for a model with or without experts."""
    left_out = {"mlp", "moe"} if few else set() if sparse else {"moe"}
    return np.array([k for k, name in enumerate(RECOMPUTES) if name not in left_out])


def _most_context(setting: Setting) -> int:
    pieces = max(setting.sequence_length // LEAST_PIECE, 1)
    return min(pieces, FEW_CONTEXT) if setting.few else pieces


def _powers(most: int) -> NDArray[np.int64]:
    return 2 ** np.arange(int(np.log2(most)) + 1)


def _divisors(n: int) -> NDArray[np.int64]:
    candidates = np.arange(1, n + 1)
    return candidates[n % candidates == 0]


def _stages(chips: int, layers: int) -> NDArray[np.int64]:
    most = min(layers, MOST_STAGES, chips)
    candidates = np.arange(1, most + 1)
    return candidates[chips % candidates == 0]
