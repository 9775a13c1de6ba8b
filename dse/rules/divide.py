"""What has to fit a chip and its host, and which degrees of parallelism a shape divides into.

Sources, read in part in 2026-11: vLLM config/model.py, distributed/utils.py, fused_moe/
expert_map_manager.py, vocab_parallel_embedding.py; SGLang models/gpt_oss.py; TensorRT-LLM
_torch/modules/attention.py; Megatron-LM arguments.py. That SGLang and TensorRT-LLM take uneven
stages, and TensorRT-LLM the KV heads that vLLM takes, is assumed.
"""

from __future__ import annotations

import numpy as np

from dse.rules.case import Case, expert_shards
from dse.rules.kinds import (
    Found,
    Part,
    rule,
    said,
    uneven,
    whole,
)
from dse.schema.constants import TIERS

HOST = TIERS.index("host")


@rule("memory_capacity")
def MEMORY(case: Case) -> Found:
    if case.training is not None:
        step = case.training.step
        over = step.memory_bytes_per_chip / step.memory_capacity_bytes_per_chip - 1.0
        yield Part(np.maximum(over, 0.0))
    elif case.performance is not None:
        memory = case.performance.memory
        used = memory.base + case.requests * memory.kv_per_request
        yield Part(used / memory.capacity - 1.0)


@rule("host_memory_capacity")
def HOST_MEMORY(case: Case) -> Found:
    assert case.training is not None
    assert case.machines is not None
    host = case.training.step.host_memory_bytes_per_chip
    capacity = case.machines.tiers.capacity_bytes[case.batch.chip, HOST]
    over = np.maximum(host / np.maximum(capacity, 1.0) - 1.0, 0.0)
    yield Part(np.where(host > 0.0, over, 0.0))


VOCABULARY_MULTIPLE = 64.0


@rule("heads_divide_by_tensor_parallel")
def HEADS(case: Case) -> Found:
    tp = case.batch.tensor_parallel
    titles = {
        "heads": "heads",
        "key_heads": "linear-attention key heads",
        "value_heads": "linear-attention value heads",
    }
    for block, used in case.blocks:
        for heads, title in ((block[size], titles[size]) for size in titles if size in block.sizes):
            yield Part(used & uneven(heads, tp), said(f"{{}} {title} over {{}} ranks", heads, tp))


@rule("kv_heads_divide_heads")
def GROUPS(case: Case) -> Found:
    for block, used in case.having("kv_heads"):
        heads, kv = block["heads"], np.maximum(block["kv_heads"], 1.0)
        yield Part(used & uneven(heads, kv), said("{} heads in groups of {} KV heads", heads, kv))


@rule("kv_heads_fit_tensor_parallel")
def KV_HEADS(case: Case) -> Found:
    tp = case.batch.tensor_parallel
    for block, used in case.having("kv_heads"):
        kv = np.maximum(block["kv_heads"], 1.0)
        yield Part(
            used & uneven(kv, tp) & uneven(tp, kv), said("{} KV heads over {} ranks", kv, tp)
        )


@rule("linear_key_heads_divide_value_heads")
def LINEAR_HEADS(case: Case) -> Found:
    for block, used in case.having("key_heads"):
        values, keys = block["value_heads"], np.maximum(block["key_heads"], 1.0)
        words = said("{} value heads in groups of {} key heads", values, keys)
        yield Part(used & uneven(values, keys), words)


@rule("feed_forward_divides_by_tensor_parallel")
def WIDTH(case: Case) -> Found:
    tp = case.batch.tensor_parallel
    sizes = {
        "mlp": ("intermediate_size", "feed-forward width"),
        "moe": ("shared_intermediate_size", "shared-expert width"),
        "mamba": ("inner_size", "state-space width"),
    }
    for block, used in case.blocks:
        if block.kind in sizes:
            size, title = sizes[block.kind]
            words = said(f"{title} of {{}} over {{}} ranks", block[size], tp)
            yield Part(used & uneven(block[size], tp), words)


@rule("experts_divide_by_expert_parallel")
def EXPERTS(case: Case) -> Found:
    ep, copies = case.batch.expert_parallel, case.batch.redundant_experts
    for block, used in case.having("experts"):
        held = np.maximum(block["experts"], 1.0)
        broken, title = used & uneven(held, ep), "experts"
        if copies is not None:
            held, title = held + copies, "experts and copies"
            broken = used & (uneven(held, ep) | ((copies > 0.0) & (ep == 1.0)))
        yield Part(broken, said(f"{{}} {title} over {{}} ranks", held, ep))


@rule("experts_per_token_within_experts")
def TOP_K(case: Case) -> Found:
    for block, used in case.having("experts"):
        chosen, of = block["experts_per_token"], np.maximum(block["experts"], 1.0)
        yield Part(used & (chosen > of), said("{} of {} experts", chosen, of))


@rule("expert_width_divides")
def EXPERT_WIDTH(case: Case) -> Found:
    for block, used in case.having("experts"):
        width, shards = block["expert_intermediate_size"], expert_shards(case.batch)
        words = said("expert width of {} over {} ranks", width, shards)
        yield Part(used & uneven(width, shards), words)


@rule("expert_parallel_divides_group")
def GROUP(case: Case) -> Found:
    ep, copies = case.batch.expert_parallel, case.batch.redundant_experts
    group = case.group
    words = said("expert parallelism {} in a group of {} chips", ep, group)
    yield Part(uneven(group, ep), words)
    for block, used in case.having("experts"):
        held = block["experts"] if copies is None else block["experts"] + copies
        words = said("{} expert-parallel ranks for {} experts", ep, held)
        yield Part(used & (ep > held), words)


@rule("stages_within_layers")
def STAGES(case: Case) -> Found:
    layers, stages = case.batch.layers, case.batch.pipeline_parallel
    virtual = np.ones(1)
    broken = stages > layers
    if case.training is not None:
        virtual = case.training.step.deployed.runs.virtual_stages
        broken = broken | (stages * virtual > layers + 2.0)

    def words(i: int) -> str:
        each = float(np.broadcast_to(virtual, len(layers))[i])
        more = f" of {whole(each)} virtual ones" if each > 1.0 else ""
        return f"{whole(layers[i])} layers in {whole(stages[i])} stages{more}"

    yield Part(broken, words)


@rule("output_groups_divide_by_tensor_parallel")
def OUTPUT_GROUPS(case: Case) -> Found:
    tp = case.batch.tensor_parallel
    for block, used in case.having("output_groups"):
        groups = block["output_groups"]
        yield Part(used & uneven(groups, tp), said("{} output groups over {} ranks", groups, tp))


@rule("vocabulary_divides_by_tensor_parallel")
def VOCABULARY(case: Case) -> Found:
    """Not of Megatron-LM, which pads to 128 x ranks."""
    tp = case.batch.tensor_parallel
    padded = np.ceil(case.batch.vocab_size / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    words = said("vocabulary of {} (padded) over {} ranks", padded, tp)
    yield Part(uneven(padded, tp), words)
