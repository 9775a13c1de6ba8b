"""`python -m sglang.launch_server` for a point. Flags and rules: SGLang 0.5.23, sglang/srt/
arg_groups (fields, choices, parallel_hook), sglang/srt/models (2026-11). There the tensor-parallel
size counts all chips of a stage, and `--attn-dp-size` takes the place of `--dp-size` with
`--enable-dp-attention`, which is deprecated."""

from __future__ import annotations

from dse.questions.export.files import HEAD, RANK, Variable
from dse.questions.export.point import Launch, Point, Stack
from dse.questions.export.vllm import cache_format

SGLANG = Stack(
    id="sglang",
    title="SGLang",
    version="0.5.23",
    vendors=("nvidia", "amd", "intel"),
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
)
PORT = 20000  # on which hosts meet, as in SGLang's own examples
_CACHES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def launch(point: Point, checkpoint: str) -> Launch:
    """`--tp-size` is tensor x data; `--max-running-requests` is that of all ranks together."""
    flags: list[tuple[str, str | None]] = [
        ("--model-path", checkpoint),
        ("--tp-size", str(point.group)),
    ]
    if point.pipeline > 1:
        flags.append(("--pp-size", str(point.pipeline)))
    if point.data > 1:
        flags.append(("--attn-dp-size", str(point.data)))
    if point.expert > 1:
        flags.append(("--ep-size", str(point.expert)))
    if point.redundant_experts:
        copies = str(point.redundant_experts)
        flags += [("--enable-eplb", None), ("--ep-num-redundant-experts", copies)]
    notes: list[str] = []
    if (weights := point.format_of_weights()) is not None:
        if weights == "fp8" and set(point.model.weight_dtypes.values()) == {"bf16"}:
            flags.append(("--quantization", "fp8"))
        else:
            notes.append(f"the checkpoint has to be converted to {weights} first")
    if point.kv_dtype != "bf16":
        flags.append(("--kv-cache-dtype", cache_format(point, SGLANG, _CACHES)))
    # Attention ranks take their share of both, rounded down.
    chunk = int(point.backend.chunk_tokens) * point.data
    flags += [
        ("--context-length", str(point.longest)),
        ("--max-running-requests", str(point.requests_per_rank * point.data)),
        ("--chunked-prefill-size", str(chunk)),
        ("--mem-fraction-static", f"{point.backend.memory_fraction:g}"),
    ]
    if point.data > 1:
        notes.append(
            "--tp-size counts all chips of a stage; --attn-dp-size divides --max-running-requests "
            "and --chunked-prefill-size"
        )
    if point.hosts > 1:
        flags += [
            ("--nnodes", str(point.hosts)),
            ("--node-rank", RANK),
            ("--dist-init-addr", Variable(f"{HEAD}:{PORT}")),
        ]
    return Launch(("python", "-m", "sglang.launch_server"), tuple(flags), notes=tuple(notes))
