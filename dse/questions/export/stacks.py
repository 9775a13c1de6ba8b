"""The servers that a point is exported to: what each runs, and its flags as a table.

Read in their sources of 2026-11. vLLM 0.33.0: vllm/engine/arg_utils.py, vllm/config/parallel.py and
scheduler.py, vllm/model_executor/models/registry.py. SGLang 0.5.23: sglang/srt/arg_groups (fields,
choices, parallel_hook), sglang/srt/models. TensorRT-LLM 1.3 release candidates, PyTorch backend:
tensorrt_llm/commands/serve.py, llmapi/llm_args.py, _torch/models/_arch_index.py; copies of experts:
pull request 9002. Pools: vLLM's docs/features/nixl_connector_usage.md and
nixl_connector_compatibility.md, issue 52913 (pipeline stages), vllm-router's README.md; SGLang's
docs/advanced_features/pd_disaggregation.md and router.md; TensorRT-LLM's
examples/disaggregated/README.md. Drafts: vLLM's docs/features/speculative_decoding/mtp.md, SGLang's
docs/advanced_features/speculative_decoding.md and pull request 39378 (pipeline stages),
TensorRT-LLM's MTPDecodingConfig.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dse.blocks import KINDS
from dse.blocks.kind import State
from dse.questions.export.files import HEAD, RANK, Flag, Flags, Variable, switch

if TYPE_CHECKING:
    from dse.questions.export.point import Point

When = Callable[["Point"], bool]
Urls = Sequence[str]
ANYWHERE = "0.0.0.0"  # noqa: S104 - a worker listens to its router, which is on another host
PREFILL, DECODE = "prefill", "decode"  # `Point.pool` of a worker; "" of one pool for both phases


@dataclass(frozen=True, slots=True)
class Router:
    """What hands requests to the workers of two pools: `program` and `flags`, of the addresses of
    the workers of prefill and of decode, or `options`, a file in place of these. Workers listen on
    `port`. `needs` are variables that the script of a worker takes, with their meaning; `cannot`
    says of two workers what they cannot do together."""

    program: tuple[str, ...]
    port: int
    flags: Callable[[Urls, Urls], Flags]
    options: Callable[[Urls, Urls], Mapping[str, Any]] | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    cannot: tuple[tuple[Callable[[Point, Point], bool], str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stack:
    """Serving software of one version.

    `lacks` are classes of `dse.schema.architectures` that it has no model for. `windows` are those
    in which it has sliding windows: "all" of the layers alone, "turns" with full layers (a windowed
    one first), or "any". `caches` are its names of formats of the KV cache, `loads_as` those of
    formats that it brings 16-bit weights into while it loads them, `converter` what converts the
    checkpoint otherwise. `others` are flags that hosts other than the first add; `cannot` says what
    it cannot do. With `file_flags`, the table is written to a file, and the command has these.
    """

    id: str
    title: str
    version: str
    lacks: frozenset[str]
    windows: Mapping[str, str]
    program: Callable[[Point], tuple[str, ...]]
    flags: tuple[Flag, ...]
    caches: Mapping[str, str]
    router: Router
    loads_as: Mapping[str, str] = field(default_factory=dict)
    converter: str = ""
    notes: tuple[tuple[When, str], ...] = ()
    others: tuple[str, ...] = ()
    cannot: tuple[tuple[When, str], ...] = ()
    file_flags: tuple[Flag, ...] = ()


def _spread(point: Point) -> bool:
    return point.data > 1


def _of_hosts(name: str, value: str) -> Flag:
    return Flag(name, lambda point: value if point.hosts > 1 else None)


def _of_pools(name: str, prefill: Any, decode: Any) -> Flag:
    """A flag of workers of two pools, None in one that has it not."""
    return Flag(name, lambda point: {PREFILL: prefill, DECODE: decode}.get(point.pool))


def _drafting(name: str, value: Callable[[int], Any]) -> Flag:
    """A flag of drafts by the modules of the model, from how many tokens are drafted."""
    return Flag(name, lambda point: value(point.drafted) if point.drafted else None)


def _listed(flag: str, urls: Urls, *more: str) -> Flags:
    return [pair for url in urls for pair in ((flag, f"http://{url}"), *((m, None) for m in more))]


def _keeps_state(point: Point) -> bool:
    return any(isinstance(KINDS[block.kind], State) for block in point.model.blocks)


def _anywhere(port: int) -> tuple[Flag, Flag]:
    """Where a worker listens, for the router and the other pool."""
    return _of_pools("--host", ANYWHERE, ANYWHERE), _of_pools("--port", port, port)


def _nixl(role: str) -> str:
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": role})


# Expert parallelism is a switch: experts lie on all tensor x data ranks, or are all cut. Which
# data-parallel ranks a host has follows from its number.
VLLM = Stack(
    id="vllm",
    title="vLLM",
    version="0.33.0",
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
    program=lambda point: ("vllm", "serve", point.checkpoint),
    flags=(
        Flag("--tensor-parallel-size", "tensor"),
        Flag("--pipeline-parallel-size", "pipeline", unless=1),
        Flag("--data-parallel-size", "data", unless=1),
        switch("--enable-expert-parallel", lambda point: point.expert > 1),
        switch("--enable-eplb", lambda point: point.redundant_experts),
        Flag(
            "--eplb-config",
            lambda point: (
                json.dumps({"num_redundant_experts": point.redundant_experts})
                if point.redundant_experts
                else None
            ),
        ),
        Flag("--quantization", "loaded_as"),
        Flag("--kv-cache-dtype", "cache"),
        Flag("--max-model-len", "longest"),
        Flag("--max-num-seqs", "requests_per_rank"),
        Flag("--max-num-batched-tokens", "tokens_per_step"),
        Flag("--gpu-memory-utilization", "backend.memory_fraction"),
        Flag("--nnodes", "hosts", unless=1),
        _of_hosts("--node-rank", RANK),
        _of_hosts("--master-addr", HEAD),
        _drafting(
            "--speculative-config",
            lambda tokens: json.dumps({"method": "mtp", "num_speculative_tokens": tokens}),
        ),
        _of_pools("--kv-transfer-config", _nixl("kv_producer"), _nixl("kv_consumer")),
        *_anywhere(8000),
    ),
    caches={"fp8": "fp8", "nvfp4": "nvfp4"},
    router=Router(
        ("vllm-router", "--vllm-pd-disaggregation"),
        8000,
        lambda first, second: [
            *_listed("--prefill", first),
            *_listed("--decode", second),
            *(("--host", ANYWHERE), ("--port", "8080")),
        ],
        needs={"VLLM_NIXL_SIDE_CHANNEL_HOST": "address of this host, for the other pool"},
        cannot=(
            (
                lambda *workers: any(one.pipeline > 1 for one in workers),
                "hands over no cache of pipeline stages (NixlConnector)",
            ),
            (
                lambda *workers: _keeps_state(workers[0]) and len({w.tensor for w in workers}) > 1,
                "hands over a recurrent state between equal tensor parallelism alone",
            ),
        ),
    ),
    loads_as={"fp8": "fp8_per_tensor", "fp8_block": "fp8_per_block"},
    notes=((_spread, "--max-num-seqs is that of one data-parallel rank"),),
    others=("--headless",),
)
_LATENT = ("Deepseek", "GlmMoeDsa")
# The tensor-parallel size counts all chips of a stage; --attn-dp-size takes the place of --dp-size
# with --enable-dp-attention, which is deprecated. Attention ranks take their share of requests and
# chunk, rounded down. Hosts meet on the port of SGLang's own examples.
SGLANG = Stack(
    id="sglang",
    title="SGLang",
    version="0.5.23",
    lacks=frozenset(
        {
            "NemotronForCausalLM",
            "GPTNeoXForCausalLM",
            "BloomForCausalLM",
            "Dots1ForCausalLM",
            "MiniMaxForCausalLM",
            "JambaForCausalLM",
        }
    ),
    windows={
        "Gemma3ForCausalLM": "any",
        "Gemma4ForCausalLM": "any",
        "GptOssForCausalLM": "any",
    },
    program=lambda point: ("python", "-m", "sglang.launch_server"),
    flags=(
        Flag("--model-path", "checkpoint"),
        Flag("--tp-size", "group"),
        Flag("--pp-size", "pipeline", unless=1),
        Flag("--attn-dp-size", "data", unless=1),
        Flag("--ep-size", "expert", unless=1),
        switch("--enable-eplb", lambda point: point.redundant_experts),
        Flag("--ep-num-redundant-experts", "redundant_experts", unless=0),
        Flag("--quantization", "loaded_as"),
        Flag("--kv-cache-dtype", "cache"),
        Flag("--context-length", "longest"),
        Flag("--max-running-requests", lambda point: point.requests_per_rank * point.data),
        Flag("--chunked-prefill-size", lambda point: point.chunk * point.data),
        Flag("--mem-fraction-static", "backend.memory_fraction"),
        Flag("--nnodes", "hosts", unless=1),
        _of_hosts("--node-rank", RANK),
        _of_hosts("--dist-init-addr", Variable(f"{HEAD}:20000")),
        _drafting("--speculative-algorithm", lambda tokens: "EAGLE"),
        _drafting("--speculative-num-steps", lambda tokens: tokens),
        _drafting("--speculative-eagle-topk", lambda tokens: 1),
        _drafting("--speculative-num-draft-tokens", lambda tokens: tokens + 1),
        Flag("--disaggregation-mode", "pool", unless=""),
        _of_pools("--disaggregation-transfer-backend", "nixl", "nixl"),
        _of_pools("--disaggregation-bootstrap-port", 8998, None),
        *_anywhere(30000),
    ),
    router=Router(
        ("python", "-m", "sglang_router.launch_router", "--pd-disaggregation"),
        30000,
        lambda first, second: [
            *_listed("--prefill", first, "8998"),
            *_listed("--decode", second),
            *(("--host", ANYWHERE), ("--port", "8000")),
        ],
    ),
    cannot=(
        (
            lambda point: (
                point.drafted > 0
                and point.pipeline > 1
                and not (point.pool == PREFILL and point.written.architecture.startswith(_LATENT))
            ),
            "drafts in pipeline stages for prefill workers of DeepSeek's and GLM's class alone",
        ),
    ),
    caches={"fp8": "fp8_e4m3", "nvfp4": "nvfp4"},
    loads_as={"fp8": "fp8"},
    notes=(
        (
            _spread,
            "--tp-size counts all chips of a stage; --attn-dp-size divides --max-running-requests "
            "and --chunked-prefill-size",
        ),
    ),
)


def _trtllm(point: Point) -> tuple[str, ...]:
    program = ("trtllm-serve", point.checkpoint)
    if point.hosts == 1:
        return program
    ranks = ("--ntasks-per-node", f"{point.chips_per_host}", "--mpi=pmix")
    return ("srun", "--nodes", f"{point.hosts}", *ranks, "trtllm-llmapi-launch", *program)


# With attention data parallelism the tensor-parallel size is the number of its ranks: attention is
# not divided as well.
TRTLLM = Stack(
    id="trtllm",
    title="TensorRT-LLM",
    version="1.3",
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
    program=_trtllm,
    flags=(
        Flag("tensor_parallel_size", "group"),
        Flag("pipeline_parallel_size", "pipeline"),
        Flag("moe_expert_parallel_size", lambda point: point.expert if point.sparse else None),
        Flag(
            "moe_tensor_parallel_size",
            lambda point: point.group // point.expert if point.sparse else None,
        ),
        switch("enable_attention_dp", _spread),
        Flag("moe_config.load_balancer.num_slots", "expert_slots"),
        Flag(
            "moe_config.load_balancer.layer_updates_per_iter",
            lambda point: 1 if point.redundant_experts else None,
        ),
        Flag("max_batch_size", "requests_per_rank"),
        Flag("max_num_tokens", "tokens_per_step"),
        Flag("max_seq_len", "longest"),
        Flag("enable_chunked_prefill", lambda point: point.prompt > point.tokens_per_step),
        Flag("cuda_graph_config.max_batch_size", "requests_per_rank"),
        Flag("cuda_graph_config.enable_padding", lambda point: True),
        Flag("kv_cache_config.free_gpu_memory_fraction", "backend.memory_fraction"),
        Flag("kv_cache_config.dtype", "cache"),
        _drafting("speculative_config.decoding_type", lambda tokens: "MTP"),
        _drafting("speculative_config.num_nextn_predict_layers", lambda tokens: tokens),
        _of_pools("disable_overlap_scheduler", True, None),
        _of_pools("cache_transceiver_config.backend", "DEFAULT", "DEFAULT"),
        Flag(
            "cache_transceiver_config.max_tokens_in_buffer",
            lambda point: point.prompt if point.pool else None,
        ),
    ),
    router=Router(
        ("trtllm-serve", "disaggregated"),
        8001,
        lambda *urls: [("-c", "router.yaml")],
        options=lambda first, second: {
            "hostname": ANYWHERE,
            "port": 8000,
            "backend": "pytorch",
            **{
                f"{phase}_servers": {"num_instances": len(urls), "urls": list(urls)}
                for phase, urls in (("context", first), ("generation", second))
            },
        },
    ),
    caches={"fp8": "fp8", "nvfp4": "nvfp4"},
    converter=" (ModelOpt)",
    notes=((_spread, "max_batch_size is that of one attention rank"),),
    file_flags=(
        Flag("--backend", lambda point: "pytorch"),
        Flag("--config", "options_file"),
        *_anywhere(8001),
    ),
)
STACKS: Mapping[str, Stack] = {stack.id: stack for stack in (VLLM, SGLANG, TRTLLM)}
