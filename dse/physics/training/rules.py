"""What a training framework or the arithmetic refuses, by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dse.physics.training.deployed import TrainingDeployed
from dse.physics.training.plan import SCHEDULES
from dse.schema.blocks import WEIGHT_PARTS
from dse.space.candidates import Floats

RULES = {
    "memory_capacity": "weights, states and activations fit the chip",
    "host_memory_capacity": "offloaded states fit the host's share of one chip",
    "heads_divide_by_tensor_parallel": "attention heads divide by tensor parallelism",
    "kv_heads_fit_tensor_parallel": "KV heads are a multiple or a divisor of tensor parallelism",
    "feed_forward_divides_by_tensor_parallel": "feed-forward width divides by tensor parallelism",
    "experts_divide_by_expert_parallel": "experts divide by expert parallelism",
    "expert_parallel_divides_group": (
        "expert parallelism divides tensor x context x data parallelism"
    ),
    "stages_within_layers": (
        "stages x virtual stages are at most the layers, embedding and output head counted as one "
        "each where they do not divide"
    ),
    "degrees_are_whole": "every parallel degree is a whole number, at least 1",
    "batch_divides": "the global batch divides by data parallelism x micro-batch x sequence",
    "sequence_divides": "the sequence divides by 2 x context parallelism",
    "virtual_stages_need_pipeline": "virtual stages, and schedules that need stages, have stages",
    "schedule_has_micro_batches": (
        "a zero-bubble schedule has a micro-batch for each stage; DualPipe has an even number of "
        "stages and two for each"
    ),
    "sequence_parallel_experts": "experts with tensor parallelism need sequence parallelism",
    "format_has_arithmetic": "the chip multiplies in the precision of the run",
}


def violations(
    deployed: TrainingDeployed, memory: Floats, host: Floats, host_capacity: Floats
) -> dict[str, Floats]:
    """(n,) by rule, > 0 where broken: used / limit - 1 of memory, else 1. Divisions as Megatron-
    Core asks for them; context parallelism splits each sequence in two chunks a rank."""
    batch, runs = deployed.batch, deployed.runs
    tp, cp, pp = deployed.tensor_parallel, runs.context_parallel, deployed.pipeline_parallel
    ep = deployed.expert_parallel
    rules = dict.fromkeys(RULES, np.zeros(deployed.n))

    def broken(name: str, where: NDArray[np.bool_]) -> None:
        rules[name] = np.maximum(rules[name], where * 1.0)

    for block in batch.blocks:
        used = block.count > 0.0
        for heads in ("heads", "key_heads", "value_heads"):
            if heads in block.sizes:
                broken("heads_divide_by_tensor_parallel", used & (block[heads] % tp > 0.0))
        if block.kind == "gqa":
            kv = np.maximum(block["kv_heads"], 1.0)
            broken("kv_heads_fit_tensor_parallel", used & (kv % tp > 0.0) & (tp % kv > 0.0))
        elif block.kind == "mlp":
            uneven = block["intermediate_size"] % tp > 0.0
            broken("feed_forward_divides_by_tensor_parallel", used & uneven)
        elif block.kind == "moe":
            experts = np.maximum(block["experts"], 1.0)
            broken("experts_divide_by_expert_parallel", used & (experts % ep > 0.0))
            uneven = block["shared_intermediate_size"] % tp > 0.0
            broken("feed_forward_divides_by_tensor_parallel", used & uneven)
            whole = (tp > 1.0) & (runs.sequence_parallel == 0.0)
            broken("sequence_parallel_experts", used & whole)
    broken("expert_parallel_divides_group", deployed.group % ep > 0.0)
    chunks, layers = pp * runs.virtual_stages, batch.layers
    broken("stages_within_layers", (chunks > layers + 2.0) | (pp > layers))
    for degree in (tp, cp, pp, deployed.data_parallel, ep, runs.virtual_stages, runs.micro_batch):
        broken("degrees_are_whole", (degree % 1.0 > 0.0) | (degree < 1.0))
    steps = runs.micro_batches
    broken("batch_divides", (np.abs(steps - np.rint(steps)) > 1e-6) | (steps < 1.0 - 1e-6))
    broken("sequence_divides", (cp > 1.0) & (runs.sequence_length % (2.0 * cp) > 0.0))
    needs = (runs.virtual_stages > 1.0) | (runs.schedule != SCHEDULES.index("1f1b"))
    broken("virtual_stages_need_pipeline", needs & (pp == 1.0))
    zero_bubble = (runs.schedule == SCHEDULES.index("zero_bubble")) & (steps < pp)
    dual = runs.schedule == SCHEDULES.index("dualpipe")
    broken("schedule_has_micro_batches", zero_bubble | (dual & ((pp % 2.0 > 0) | (steps < 2 * pp))))
    for part in WEIGHT_PARTS:
        native = deployed.machines.native_dtype[batch.chip, batch.weight_dtype[part]]
        broken("format_has_arithmetic", ~native)
    rules["memory_capacity"] = np.maximum(memory / deployed.capacity_bytes - 1.0, 0.0)
    too_much = host / np.maximum(host_capacity, 1.0) - 1.0
    rules["host_memory_capacity"] = np.where(host > 0.0, np.maximum(too_much, 0.0), 0.0)
    return rules
