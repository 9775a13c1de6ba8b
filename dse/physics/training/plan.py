"""TrainingBatch: n models, each trained in one way; what `evaluate_training` says of them; and
every way to divide a training run over its chips that a framework would accept (`plans`).

Chips are numbered with tensor-parallel ranks next to each other, then context-parallel, then
data-parallel ranks, pipeline stages outermost (Megatron-Core's default order, tp-cp-ep-dp-pp, with
the expert-parallel ranks of a layer next to each other): a group lies inside a scale-up domain as
far as what is inside it leaves room.

Pipeline stages. p stages, v chunks of layers on each, m micro-batches; f, b and w are forward, the
whole backward and its weight gradients of one micro-batch on one stage. Idle time of a step:

    1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)   (p - 1) (f + b)
    interleaved (the same, section 2.2.2)                         (p - 1) (f + b) / v
    zero bubble ZB-H1 (Qi et al. 2024, arXiv 2401.10241, table 2) (p - 1) (f + b - 2 w)
    DualPipe (DeepSeek-V3, arXiv 2412.19437, table 2)             (p / 2 - 1) (f + 2 b - 3 w)

The last two count b with w inside, so that ZB-H1's T_F + T_B - T_W, whose T_B has none, is
f + b - 2 w.

Plans. chips = tensor x context x pipeline x data parallel. What is fixed is taken as it is; the
rest is enumerated: tensor and context parallelism in powers of two, stages and expert parallelism
among the divisors, micro-batches in powers of two, virtual stages that divide a stage's layers,
recomputation and ZeRO stage. Left out, as never best: tensor parallelism beyond the scale-up domain
(or 8 chips), pieces of a sequence below 1,024 tokens, micro-batches above 65,536 tokens, ZeRO stage
2 (its memory is stage 1's or 3's but for the gradients, its time stage 1's).

A rule that would leave nothing is not applied, so that the evaluation can name what is broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dse.blocks import WEIGHT_PARTS
from dse.physics.energy import Work
from dse.physics.parameters import Parameters
from dse.record import record
from dse.schema.dtypes import CODE
from dse.schema.training import NAMES
from dse.space.candidates import CandidateBatch, Codes, Floats, Rows
from dse.space.deployments import Deployments, divides, divisors, powers_of_two

if TYPE_CHECKING:
    from dse.physics.training.passes import TrainingDeployed

# Codes are places in these. What each means is in docs/training.md.
CODES = {name: NAMES[name] for name in ("precision", "recompute", "schedule", "optimizer", "task")}
PRECISIONS, RECOMPUTES, SCHEDULES, OPTIMIZERS, TASKS = CODES.values()

# The arithmetic of the linear layers' products. Embedding, output head, router, attention scores
# and norms stay at 16 bits or more.
ARITHMETIC = {
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "mxfp8": "fp8",
    "nvfp4": "nvfp4",
    "int8": "int8",  # all three products, as AQT in MaxText
}


# Linear layers that a 4-bit recipe keeps in bf16: "about 15%" (NVIDIA, arXiv 2509.25149, section
# 4.1). Speed benchmarks keep none.
BF16_SHARE = 0.15
# Of a run of which nothing else is said.
USUAL: Mapping[str, Any] = {
    "precision": "bf16",
    "context_parallel": 1.0,
    "virtual_stages": 1.0,
    "micro_batch": 1.0,
    "recompute": "none",
    "recompute_share": 1.0,
    "zero_stage": 1.0,
    "sequence_parallel": 1.0,
    "schedule": None,
    "optimizer": "adam_fp32",
    "master_bytes": 4.0,
    "gradient_bytes": 4.0,
    "task": "pretrain",
    "lora_rank": 16.0,
    "offload": 0.0,
    "bf16_share": BF16_SHARE,
    "tensor_hidden": 1.0,
}


@record
class TrainingBatch(Rows):
    """n training runs; every array (n,).

    `candidates` holds shape and chip, and chips = tensor x context x pipeline x data parallel:
    `data_parallel` counts all data-parallel ranks, `expert_parallel` divides tensor x context x
    data (expert tensor parallelism 1), `replicas` is 1. `weight_dtype` follows from `precision`
    and keys and values are in bf16 (`of` sets both). `concurrency` is not read.

    `micro_batch` is in sequences, `virtual_stages` in chunks of layers a stage; `zero_stage` 0..3
    (3: weights are sharded too, as FSDP does); `master_bytes` and `gradient_bytes` are of one
    parameter; `offload` is the share of optimizer states and master weights in the host's memory.
    `recompute_share` is the share of the layers that are recomputed, `bf16_share` that of the
    linear layers that `nvfp4` keeps in bf16, `tensor_hidden` 0 where the stack's overlap of
    tensor-parallel traffic is switched off, else 1.
    `precision, recompute, schedule, optimizer, task` are codes, places in the tuples of this file.
    """

    candidates: CandidateBatch
    precision: Codes
    context_parallel: Floats
    virtual_stages: Floats
    micro_batch: Floats
    sequence_length: Floats
    global_batch_tokens: Floats
    recompute: Codes
    recompute_share: Floats
    zero_stage: Floats
    sequence_parallel: Floats
    schedule: Codes
    optimizer: Codes
    master_bytes: Floats
    gradient_bytes: Floats
    task: Codes
    lora_rank: Floats
    offload: Floats
    bf16_share: Floats
    tensor_hidden: Floats

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, rows: slice | Codes) -> TrainingBatch:
        """The runs at `rows`, as a batch."""
        return self.take(rows)

    @classmethod
    def of(
        cls,
        candidates: CandidateBatch,
        sequence_length: Any,
        global_batch_tokens: Any,
        **settings: Any,
    ) -> TrainingBatch:
        """With `settings`, fields of this class, in place of USUAL: each is one for all or (n,); a
        code may be given by name. Without a schedule: interleaved where there are virtual stages,
        else 1F1B. Raises ValueError for an unknown name."""
        n = len(candidates)

        def codes(value: Any, names: tuple[str, ...]) -> Codes:
            places = np.asarray(value)
            if places.dtype.kind in "US":
                unknown = set(places.ravel().tolist()) - set(names)
                if unknown:
                    raise ValueError(f"{min(unknown)!r} is none of {', '.join(names)}")
                found = [names.index(name) for name in places.ravel().tolist()]
                places = np.array(found, dtype=np.intp).reshape(places.shape)
            return np.broadcast_to(places.astype(np.intp), n).copy()

        lengths = {"sequence_length": sequence_length, "global_batch_tokens": global_batch_tokens}
        columns: dict[str, Any] = {}
        for name, value in {**USUAL, **settings, **lengths}.items():
            if name in CODES and value is not None:
                columns[name] = codes(value, CODES[name])
            elif name not in CODES:
                columns[name] = np.broadcast_to(np.asarray(value, dtype=np.float64), n).copy()
        if "schedule" not in columns:
            interleaved = SCHEDULES.index("interleaved")
            columns["schedule"] = np.where(columns["virtual_stages"] > 1.0, interleaved, 0)
        deployed = replace(
            candidates,
            weight_dtype=weight_dtype_of(columns["precision"]),
            kv_dtype=np.full(n, CODE["bf16"], dtype=np.intp),
        )
        return cls(deployed, **columns)

    @property
    def chips(self) -> Floats:
        """(n,) tensor x context x pipeline x data parallel."""
        candidates = self.candidates
        inside = candidates.tensor_parallel * self.context_parallel
        return inside * candidates.pipeline_parallel * candidates.data_parallel

    @property
    def micro_batches(self) -> Floats:
        """(n,) micro-batches of a step on each data-parallel rank, not rounded."""
        sequences = self.global_batch_tokens / self.sequence_length
        return sequences / (self.candidates.data_parallel * self.micro_batch)


def weight_dtype_of(precision: Codes) -> Mapping[str, Codes]:
    """Codes of `dse.schema.dtypes` by weight part, (n,): the arithmetic of the linear layers;
    embedding and output head in bf16."""
    table = np.array([CODE[ARITHMETIC[name]] for name in PRECISIONS], dtype=np.intp)
    low, bf16 = table[precision], np.full(len(precision), CODE["bf16"], dtype=np.intp)
    return {part: bf16 if part == "embedding" else low for part in WEIGHT_PARTS}


# Seconds of a step by cause, in the order in which they add up to `step_s`, as answers name them.
# Communication is what is not hidden.
LOSSES = {
    "ideal": "model's arithmetic at the peak",  # the dense one of its format
    "higher_precision": "arithmetic in a wider format",  # which has a lower peak
    # Matrix products and attention: reached share, tiles, launches.
    "kernels": "kernels below the peak",
    # Norms, activations, casts, permutations: bound by memory.
    "elementwise": "element-wise kernels",
    "recomputation": "recomputation",  # forward work done again for the backward pass
    # The fullest pipeline stage and the busiest experts over the mean.
    "imbalance": "uneven stages and experts",
    "bubble": "pipeline bubble",  # stages that wait while the pipeline fills and drains
    "tensor_communication": "tensor-parallel traffic",
    "context_communication": "context-parallel traffic",
    "expert_communication": "expert traffic",  # tokens to their experts and back
    "pipeline_communication": "traffic between stages",  # activations
    "data_communication": "data-parallel traffic",  # gradients and weights
    "optimizer": "optimizer",  # update of weights and moments
    "host": "host",  # its launches and bookkeeping
    "stragglers": "stragglers",  # waiting for the slowest chip
}


@record
class TrainingMetrics:
    """n training runs; every array (n,).

    `mfu`: model FLOPs (`model_flops_per_token`: 6 a parameter that a token meets, tables left out
    but for the output head, and attention over the tokens that the mask lets it see, forward and
    backward) a second over the dense peak of `precision`; `mfu_6n` leaves attention out; `hfu`
    counts recomputed arithmetic too. `memory[part]` (weights, gradients, optimizer, master,
    activations, logits, buffers, runtime) and `losses[cause]` (seconds, by LOSSES) add up, in that
    order, to `memory_bytes_per_chip`, of the fullest chip, and `step_s`.
    `work` is what the mean chip does in a step, for `dse.physics.energy`; `parameters` are the
    model's. `deployed` is what they were worked out on, for `dse.rules`.
    """

    step_s: Floats
    tokens_per_s_per_chip: Floats
    model_flops_per_token: Floats
    mfu: Floats
    mfu_6n: Floats
    hfu: Floats
    memory_bytes_per_chip: Floats
    memory_capacity_bytes_per_chip: Floats
    host_memory_bytes_per_chip: Floats
    memory: Mapping[str, Floats]
    losses: Mapping[str, Floats]
    work: Work
    parameters: Parameters
    deployed: TrainingDeployed


INTERLEAVED, ZERO_BUBBLE, DUALPIPE = (SCHEDULES.index(name) for name in SCHEDULES[1:])


@record
class Stages:
    """Layers of the first, a middle and the last pipeline stage, (n,). Where layers divide by
    stages and chunks all have the same; else embedding and output head count as a layer each and
    chunks are filled up (Megatron-Core's account_for_embedding_in_pipeline_split and
    account_for_loss_in_pipeline_split)."""

    first: Floats
    middle: Floats
    last: Floats
    inner: Floats  # 1 where there is a stage between first and last

    @classmethod
    def of(cls, layers: Floats, stages: Floats, virtual: Floats) -> Stages:
        chunks = stages * virtual
        even = (layers % chunks == 0.0) | (stages == 1.0)
        padded = np.minimum(np.ceil((layers + 2.0) / chunks) * virtual, layers)
        fullest = np.where(even, layers / stages, padded)
        ends = np.where(even, fullest, np.maximum(fullest - 1.0, 1.0))
        return cls(ends, fullest, ends, np.where(stages > 2.0, 1.0, 0.0))


def in_flight(
    schedule: Codes, stages: Floats, virtual: Floats, micro_batches: Floats
) -> tuple[Floats, Floats, Floats]:
    """(n,) micro-batches whose activations the first, the second and the last stage keep at once,
    in units of all layers of a stage.

    1F1B: p - i of stage i (Narayanan et al. 2021); interleaved: p (1 + (p - 1) / (p v)) of the
    first (Korthikanti et al. 2022, section 4.2.3), 2 / v fewer of each next; ZB-H1 as 1F1B;
    DualPipe p + 1 of every stage (DeepSeek-V3, table 2)."""
    several = virtual > 1.0
    first = np.where(several, stages + (stages - 1.0) / virtual, stages)
    next_ = np.where(several, first - 2.0 / virtual, stages - 1.0)
    last = np.where(several, stages - (stages - 1.0) / virtual, 1.0)
    dual = (schedule == DUALPIPE) & (stages > 1.0)

    def kept(count: Floats) -> Floats:
        return np.minimum(np.where(dual, stages + 1.0, np.maximum(count, 1.0)), micro_batches)

    return kept(first), kept(next_), kept(last)


def bubble_share(
    schedule: Codes, stages: Floats, virtual: Floats, backward: Floats, weight_gradient: Floats
) -> Floats:
    """(n,) of the forward and backward of one micro-batch on the p - 1 other stages, what a stage
    stands idle in a step. `backward` and `weight_gradient` are shares of f + b."""
    plain = 1.0 / np.where(schedule == INTERLEAVED, virtual, 1.0)
    split = np.maximum(1.0 - 2.0 * weight_gradient, 0.0)
    others = np.maximum(stages - 1.0, 1.0)
    halves = np.maximum(stages / 2.0 - 1.0, 0.0) / others
    dual = halves * np.maximum(1.0 + backward - 3.0 * weight_gradient, 0.0)
    share = np.where(schedule == ZERO_BUBBLE, split, plain)
    return np.where(schedule == DUALPIPE, dual, share)


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
    gradient_bytes: float = 4.0
    lora_rank: float = 16.0
    offload: float = 0.0
    schedule: str | None = None
    bf16_share: float = BF16_SHARE
    tensor_hidden: float = 1.0
    recompute_share: float = 1.0
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
    pieces = max(setting.sequence_length // LEAST_PIECE, 1)
    context = powers_of_two(min(pieces, FEW_CONTEXT) if setting.few else pieces)
    stages = divisors(chips)
    stages = few(stages[stages <= min(layers, MOST_STAGES)])
    table = Deployments.of(
        tensor_parallel=fixed.get("tensor_parallel", tensor),
        context_parallel=fixed.get("context_parallel", context),
        pipeline_parallel=fixed.get("pipeline_parallel", stages),
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
    # Codes that differ for a model with or without experts.
    left_out = {"mlp", "moe"} if setting.few else set() if experts else {"moe"}
    recomputes = [k for k, name in enumerate(RECOMPUTES) if name not in left_out]
    table = table.cross(
        recompute=fixed.get("recompute", recomputes),
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
    common = {name: value for name, value in vars(setting).items() if name in USUAL}
    if setting.schedule == "interleaved":
        common["schedule"] = np.where(table["virtual_stages"] > 1, INTERLEAVED, 0)
    return TrainingBatch.of(
        table.with_columns(replicas=1).placed(shapes, row),
        setting.sequence_length,
        setting.sequences * setting.sequence_length,
        sequence_parallel=table["tensor_parallel"] > 1,
        **common,
        **{axis: table[axis] for axis in SEARCHED if axis in USUAL},
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
