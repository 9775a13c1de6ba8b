"""`vllm serve` for a point. Flags and rules: vLLM 0.33.0, vllm/engine/arg_utils.py, vllm/config/
parallel.py and scheduler.py, vllm/model_executor/models/registry.py (2026-11)."""

from __future__ import annotations

import json

from dse.errors import InputError
from dse.questions.export.files import HEAD, RANK
from dse.questions.export.point import Launch, Point, Stack, refuse_layout

VLLM = Stack(
    id="vllm",
    title="vLLM",
    version="0.33.0",
    vendors=("nvidia", "amd", "intel"),  # others have plugins with flags of their own
    lacks=frozenset({"Dots1ForCausalLM", "MiniMaxForCausalLM"}),
    # Classes without windows of their own have the configuration's in all of the layers; Qwen2 and
    # Qwen3 refuse two sorts of layers, gpt-oss has the window in every second one.
    windows={
        "MistralForCausalLM": "any",
        "Gemma3ForCausalLM": "any",
        "Gemma4ForCausalLM": "any",
        "MixtralForCausalLM": "all",
        "Qwen3MoeForCausalLM": "all",
        "GptOssForCausalLM": "turns",
    },
)
# Formats that 16-bit weights are brought into while they are loaded.
_ONLINE = {"fp8": "fp8_per_tensor", "fp8_block": "fp8_per_block"}
_CACHES = {"fp8": "fp8", "nvfp4": "nvfp4"}


def launch(point: Point, checkpoint: str) -> Launch:
    """Expert parallelism is a switch: experts lie on all tensor x data ranks, or are all cut."""
    flags: list[tuple[str, str | None]] = [("--tensor-parallel-size", str(point.tensor))]
    if point.pipeline > 1:
        flags.append(("--pipeline-parallel-size", str(point.pipeline)))
    if point.data > 1:
        flags.append(("--data-parallel-size", str(point.data)))
    if point.expert > 1:
        if point.expert != point.group:
            reason = "divides experts over all tensor x data ranks, or not at all"
            raise refuse_layout(VLLM, reason, point)
        flags.append(("--enable-expert-parallel", None))
    if point.redundant_experts:
        copies = json.dumps({"num_redundant_experts": point.redundant_experts})
        flags += [("--enable-eplb", None), ("--eplb-config", copies)]
    notes: list[str] = []
    if (weights := point.format_of_weights()) is not None:
        online = _ONLINE.get(weights) if _sixteen_bits(point) else None
        if online is None:
            notes.append(f"the checkpoint has to be converted to {weights} first")
        else:
            flags.append(("--quantization", online))
    if point.kv_dtype != "bf16":
        flags.append(("--kv-cache-dtype", cache_format(point, VLLM, _CACHES)))
    flags += [
        ("--max-model-len", str(point.longest)),
        ("--max-num-seqs", str(point.requests_per_rank)),
        ("--max-num-batched-tokens", str(_batched(point))),
        ("--gpu-memory-utilization", f"{point.backend.memory_fraction:g}"),
    ]
    if point.data > 1:
        notes.append("--max-num-seqs is that of one data-parallel rank")
    others: tuple[str, ...] = ()
    if point.hosts > 1:
        # Which data-parallel ranks a host has follows from its number (vllm/engine/arg_utils.py).
        flags += [
            ("--nnodes", str(point.hosts)),
            ("--node-rank", RANK),
            ("--master-addr", HEAD),
        ]
        others = ("--headless",)
    program = ("vllm", "serve", checkpoint)
    return Launch(program, tuple(flags), notes=tuple(notes), others=others)


def _batched(point: Point) -> int:
    """vLLM asks for as many tokens a step as sequences, or more."""
    return max(int(point.backend.chunk_tokens), point.requests_per_rank)


def _sixteen_bits(point: Point) -> bool:
    return set(point.model.weight_dtypes.values()) == {"bf16"}


def cache_format(point: Point, stack: Stack, names: dict[str, str]) -> str:
    """The stack's name of the format of the KV cache. Raises InputError where it has none."""
    if point.kv_dtype not in names:
        raise InputError(
            f"{stack.title} {stack.version} has no KV cache in {point.kv_dtype}",
            field="--kv-dtype",
            accepted=", ".join(("bf16", *names)),
        )
    return names[point.kv_dtype]
