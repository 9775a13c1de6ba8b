"""`trtllm-serve` for a point, and its options file. Options and rules: TensorRT-LLM 1.3 release
candidates, PyTorch backend: tensorrt_llm/commands/serve.py, llmapi/llm_args.py, _torch/models/
_arch_index.py (2026-11). With attention data parallelism the tensor-parallel size is the number of
its ranks: attention is not divided as well."""

from __future__ import annotations

from typing import Any

import yaml

from dse.questions.export.point import Launch, Point, Stack, refuse_layout
from dse.questions.export.vllm import cache_format

TRTLLM = Stack(
    id="trtllm",
    title="TensorRT-LLM",
    version="1.3",
    vendors=("nvidia",),
    lacks=frozenset(
        {
            "GPT2LMHeadModel",
            "OPTForCausalLM",
            "GPTNeoXForCausalLM",
            "BloomForCausalLM",
            "Dots1ForCausalLM",
            "Llama4ForCausalLM",
            "MiniMaxForCausalLM",
            "JambaForCausalLM",
            "GraniteMoeHybridForCausalLM",
        }
    ),
    windows={
        "Gemma3ForCausalLM": "any",
        "Gemma4ForCausalLM": "any",
        "GptOssForCausalLM": "turns",
    },
)
OPTIONS = "options.yaml"


def launch(point: Point, checkpoint: str) -> Launch:
    """`max_batch_size` is that of one rank where attention is data parallel."""
    if point.data > 1 and point.tensor > 1:
        reason = "does not divide attention where it is data parallel"
        raise refuse_layout(TRTLLM, reason, point)
    if point.redundant_experts:
        raise refuse_layout(TRTLLM, "is not given copies of experts here", point)
    notes: list[str] = []
    if (weights := point.format_of_weights()) is not None:
        notes.append(f"the checkpoint has to be converted to {weights} first (ModelOpt)")
    options: dict[str, Any] = {
        "tensor_parallel_size": point.group,
        "pipeline_parallel_size": point.pipeline,
    }
    if point.sparse:
        options["moe_expert_parallel_size"] = point.expert
        options["moe_tensor_parallel_size"] = point.group // point.expert
    if point.data > 1:
        options["enable_attention_dp"] = True
        notes.append("max_batch_size is that of one attention rank")
    tokens = max(int(point.backend.chunk_tokens), point.requests_per_rank)
    options |= {
        "max_batch_size": point.requests_per_rank,
        "max_num_tokens": tokens,
        "max_seq_len": point.longest,
        "enable_chunked_prefill": point.prompt > tokens,
        "cuda_graph_config": {"max_batch_size": point.requests_per_rank, "enable_padding": True},
        "kv_cache_config": {"free_gpu_memory_fraction": point.backend.memory_fraction},
    }
    if point.kv_dtype != "bf16":
        options["kv_cache_config"]["dtype"] = cache_format(point, TRTLLM, {"fp8": "fp8"})
    text = yaml.safe_dump(options, sort_keys=False)
    program = ("trtllm-serve", checkpoint)
    if point.hosts > 1:
        ranks = ("--ntasks-per-node", str(point.chips_per_host), "--mpi=pmix")
        program = ("srun", "--nodes", str(point.hosts), *ranks, "trtllm-llmapi-launch", *program)
    return Launch(
        program,
        (("--backend", "pytorch"), ("--config", OPTIONS)),
        files={OPTIONS: text},
        notes=tuple(notes),
    )
