"""Which degrees of parallelism a shape divides into: what serving and training software refuses.

Sources, read in part in 2026-11: vLLM config/model.py, distributed/utils.py, fused_moe/
expert_map_manager.py, vocab_parallel_embedding.py; SGLang models/gpt_oss.py; TensorRT-LLM
_torch/modules/attention.py; Megatron-LM arguments.py. That SGLang and TensorRT-LLM take uneven
stages, and TensorRT-LLM the KV heads that vLLM takes, is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dse.rules.kinds import (
    MEGATRON,
    SGLANG,
    STACKS,
    TRTLLM,
    VLLM,
    Finding,
    Flags,
    Rule,
)
from dse.schema.blocks import MIXERS
from dse.space.candidates import Block, CandidateBatch, Floats

VOCABULARY_MULTIPLE = 64.0

HEADS = Rule(
    "heads_divide_by_tensor_parallel",
    "error",
    "heads divide evenly over the tensor-parallel ranks",
    "vLLM ModelConfig.verify_with_parallel_config (issues 414, 2652)",
    "spec",
    STACKS,
    {TRTLLM: "TensorRT-LLM asserts the same", MEGATRON: "Megatron-LM asserts the same"},
)
KV_HEADS = Rule(
    "kv_heads_fit_tensor_parallel",
    "error",
    "tensor parallelism divides the KV heads, or is a multiple of them (copies)",
    "vLLM models/qwen2.py",
    "spec",
    STACKS,
    {
        TRTLLM: "TensorRT-LLM rounds up (taken as the same)",
        MEGATRON: "Megatron-LM arguments.py",
    },
)
GROUPS = Rule(
    "kv_heads_divide_heads",
    "error",
    "query heads are a multiple of the KV heads",
    "grouped-query attention, arXiv 2305.13245",
    "spec",
    STACKS,
)
WIDTH = Rule(
    "feed_forward_divides_by_tensor_parallel",
    "error",
    "feed-forward widths divide evenly over their ranks",
    "vLLM distributed/utils.py divide()",
    "spec",
    STACKS,
    {MEGATRON: "Megatron-LM the same"},
)
EXPERTS = Rule(
    "experts_divide_by_expert_parallel",
    "error",
    "experts divide evenly over the expert-parallel ranks",
    "vLLM gives the first ranks one more unless its load balancer is on",
    "spec",
    (SGLANG, TRTLLM, MEGATRON),
    {
        SGLANG: "SGLang models/gpt_oss.py",
        TRTLLM: "TensorRT-LLM's tests of experts (uneven ones take its load balancer)",
        MEGATRON: "Megatron-LM arguments.py",
    },
)
GROUP = Rule(
    "expert_parallel_divides_group",
    "error",
    "expert parallelism divides tensor x data parallelism and is at most the experts",
    "it adds no chips",
    "spec",
    STACKS,
)
STAGES = Rule(
    "stages_within_layers",
    "error",
    "pipeline stages are at most the layers",
    "a stage holds a layer or more",
    "spec",
    STACKS,
)
OUTPUT_GROUPS = Rule(
    "output_groups_divide_by_tensor_parallel",
    "error",
    "groups of the output projection (DeepSeek-V4) divide over the tensor-parallel ranks",
    "TensorRT-LLM _torch/modules/attention.py",
    "spec",
    (TRTLLM,),
)
VOCABULARY = Rule(
    "vocabulary_divides_by_tensor_parallel",
    "error",
    "the vocabulary, padded to a multiple of 64, divides over the tensor-parallel ranks",
    "vLLM layers/vocab_parallel_embedding.py",
    "spec",
    (VLLM, SGLANG),  # Megatron-LM pads to 128 x ranks
    {SGLANG: "SGLang has the same layer"},
)


def whole(value: float) -> str:
    return f"{value:,.0f}"


def divisibility(batch: CandidateBatch) -> Iterator[Finding]:
    """Every rule of this file on n shapes with their degrees, one finding for each size."""
    for block in batch.blocks:
        used = block.count > 0.0
        if not used.any():
            continue
        yield from _heads(batch, block, used)
        if block.kind == "gqa":
            yield from _kv_heads(batch, block, used)
        elif block.kind == "mlp":
            yield _width(batch, "feed-forward width", block["intermediate_size"], used)
        elif block.kind == "mamba":
            yield _width(batch, "state-space width", block["inner_size"], used)
        elif block.kind == "moe":
            yield from _experts(batch, block, used)
    yield from _group(batch)
    yield _stages(batch)
    tp = batch.tensor_parallel
    padded = np.ceil(batch.vocab_size / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    yield Finding(
        VOCABULARY,
        padded % tp > 0.0,
        lambda i: f"vocabulary of {whole(padded[i])} (padded) over {whole(tp[i])} ranks",
    )


def _heads(batch: CandidateBatch, block: Block, used: Flags) -> Iterator[Finding]:
    tp = batch.tensor_parallel
    for size, title, rule in (
        ("heads", "heads", HEADS),
        ("key_heads", "linear-attention key heads", HEADS),
        ("value_heads", "linear-attention value heads", HEADS),
        ("output_groups", "output groups", OUTPUT_GROUPS),
    ):
        if size in block.sizes:
            heads = block[size]

            def words(i: int, heads: Floats = heads, title: str = title) -> str:
                return f"{whole(heads[i])} {title} over {whole(tp[i])} ranks"

            yield Finding(rule, used & (heads % tp > 0.0), words)


def _kv_heads(batch: CandidateBatch, block: Block, used: Flags) -> Iterator[Finding]:
    tp, kv = batch.tensor_parallel, np.maximum(block["kv_heads"], 1.0)
    heads = block["heads"]
    yield Finding(
        KV_HEADS,
        used & (kv % tp > 0.0) & (tp % kv > 0.0),
        lambda i: f"{whole(kv[i])} KV heads over {whole(tp[i])} ranks",
    )
    yield Finding(
        GROUPS,
        used & (heads % kv > 0.0),
        lambda i: f"{whole(heads[i])} heads in groups of {whole(kv[i])} KV heads",
    )


def _width(
    batch: CandidateBatch, title: str, width: Floats, used: Flags, over: Floats | None = None
) -> Finding:
    ranks = batch.tensor_parallel if over is None else over
    return Finding(
        WIDTH,
        used & (width % ranks > 0.0),
        lambda i: f"{title} of {whole(width[i])} over {whole(ranks[i])} ranks",
    )


def expert_shards(batch: CandidateBatch) -> Floats:
    """(n,) ranks that share one expert."""
    group = batch.tensor_parallel * batch.data_parallel
    return np.maximum(np.ceil(group / batch.expert_parallel), 1.0)


def _experts(batch: CandidateBatch, block: Block, used: Flags) -> Iterator[Finding]:
    ep, experts = batch.expert_parallel, block["experts"]
    shards = expert_shards(batch)
    width, shared = block["expert_intermediate_size"], block["shared_intermediate_size"]
    yield Finding(
        EXPERTS,
        used & (experts % ep > 0.0),
        lambda i: f"{whole(experts[i])} experts over {whole(ep[i])} ranks",
    )
    yield Finding(
        GROUP,
        used & (ep > experts),
        lambda i: f"{whole(ep[i])} expert-parallel ranks for {whole(experts[i])} experts",
    )
    yield _width(batch, "expert width", width, used, shards)
    yield _width(batch, "shared-expert width", shared, used)


def _group(batch: CandidateBatch) -> Iterator[Finding]:
    group, ep = batch.tensor_parallel * batch.data_parallel, batch.expert_parallel
    yield Finding(
        GROUP,
        group % ep > 0.0,
        lambda i: (
            f"expert parallelism {whole(ep[i])} in a group of {whole(group[i])} "
            "(tensor x data parallelism)"
        ),
    )


def _stages(batch: CandidateBatch) -> Finding:
    layers, stages = np.zeros(len(batch)), batch.pipeline_parallel
    for block in batch.blocks:
        if block.kind in MIXERS:
            layers = layers + block.count
    return Finding(
        STAGES, stages > layers, lambda i: f"{whole(layers[i])} layers in {whole(stages[i])} stages"
    )
