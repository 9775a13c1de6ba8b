"""TrainingBatch: n models, each trained in one way; and what `evaluate_training` says of them.

Chips are numbered with tensor-parallel ranks next to each other, then context-parallel, then
data-parallel ranks, pipeline stages outermost (Megatron-Core's default order, tp-cp-ep-dp-pp, with
the expert-parallel ranks of a layer next to each other): a group lies inside a scale-up domain as
far as what is inside it leaves room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.physics.parameters import Parameters
from dse.physics.power import Work
from dse.record import record
from dse.schema.blocks import WEIGHT_PARTS
from dse.schema.dtypes import CODE
from dse.space.candidates import CandidateBatch, Codes, Floats, Rows

if TYPE_CHECKING:
    from dse.physics.training.deployed import TrainingDeployed

# Codes are places in these. What each means is in docs/training.md.
PRECISIONS = ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "int8")
RECOMPUTES = ("none", "selective", "mlp", "moe", "full")
SCHEDULES = ("1f1b", "interleaved", "zero_bubble", "dualpipe")
OPTIMIZERS = ("adam_fp32", "adam_bf16", "adam_8bit")
TASKS = ("pretrain", "sft", "lora")

CODES = {
    "precision": PRECISIONS,
    "recompute": RECOMPUTES,
    "schedule": SCHEDULES,
    "optimizer": OPTIMIZERS,
    "task": TASKS,
}

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


# Parts of the memory of the fullest chip, in bytes, which add up to `memory_bytes_per_chip`.
MEMORY_PARTS = (
    "weights",
    "gradients",
    "optimizer",
    "master",
    "activations",
    "logits",
    "buffers",
    "runtime",
)

# Seconds of a step by cause, in the order in which they add up to `step_s`:
LOSSES = {
    "ideal": "arithmetic of the model at the dense peak of its format",
    "higher_precision": "arithmetic kept in a format with a lower peak",
    "kernels": "matrix products and attention below the peak: reached share, tiles, launches",
    "elementwise": "norms, activations, casts, permutations: bound by memory",
    "recomputation": "forward work done again for the backward pass",
    "imbalance": "the fullest pipeline stage and the busiest experts over the mean",
    "bubble": "stages that wait while the pipeline fills and drains",
    "tensor_communication": "tensor parallelism, not hidden",
    "context_communication": "context parallelism, not hidden",
    "expert_communication": "tokens to their experts and back, not hidden",
    "pipeline_communication": "activations from stage to stage, not hidden",
    "data_communication": "gradients and weights over data-parallel ranks, not hidden",
    "optimizer": "update of weights and moments",
    "host": "launches and bookkeeping of the host",
    "stragglers": "waiting for the slowest chip",
}


@record
class TrainingMetrics:
    """n training runs; every array (n,).

    `mfu`: model FLOPs (`model_flops_per_token`: 6 a parameter that a token meets, tables left out
    but for the output head, and attention over the tokens that the mask lets it see, forward and
    backward) a second over the dense peak of `precision`; `mfu_6n` leaves attention out; `hfu`
    counts recomputed arithmetic too. `memory[part]` and `losses[cause]` (seconds) have the keys of
    MEMORY_PARTS and LOSSES and add up, in that order, to `memory_bytes_per_chip` and `step_s`.
    `work` is what the mean chip does in a step, for `dse.physics.power`; `parameters` are the
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
    micro_batches: Floats
    work: Work
    parameters: Parameters
    deployed: TrainingDeployed

    @property
    def loss_shares(self) -> dict[str, Floats]:
        """(n,) of the step by cause."""
        return {cause: seconds / self.step_s for cause, seconds in self.losses.items()}
