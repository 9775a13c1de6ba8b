"""Low-precision weights come in blocks that share a scale: a rank's share of a width has to be
whole blocks.

    fp8_block   128 x 128 (DeepSeek-V3, Qwen3-FP8)      refused
    int4        128 along the input (AWQ, GPTQ)         refused
    nvfp4        16 along the input                     refused
    mxfp4        32 along the input                     the last block of a rank is shared out whole
    fp8, int8    16 (tensor cores take 16 bytes)        refused

Split widths alone are looked at: heads, feed-forwards and experts of grouped-query and latent
attention. Linear attention and state-space layers are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dse.rules.divide import expert_shards, whole
from dse.rules.kinds import SGLANG, TRTLLM, VLLM, Finding, Flags, Rule
from dse.schema.dtypes import CODE
from dse.space.candidates import Block, CandidateBatch, Floats


@dataclass(frozen=True, slots=True)
class Format:
    """A block of `size` elements; `both`: of outputs as well as of inputs."""

    dtype: str
    size: float
    both: bool
    rule: Rule


FORMATS = (
    Format("fp8_block", 128.0, True, Rule(
        "fp8_blocks_whole", "error",
        "a rank's width is a multiple of the 128 x 128 block of fp8 weights",
        "vLLM quantization/fp8.py, issues 17569, 39046, 54178",
        "spec", (VLLM, SGLANG, TRTLLM),
        {
            SGLANG: "SGLang issue 3345",
            TRTLLM: "TensorRT-LLM skips its own tests of such experts",
        },
    )),
    Format("int4", 128.0, False, Rule(
        "int4_groups_whole", "error",
        "a rank's input width is a multiple of the group of 128 of int4 weights (AWQ, GPTQ)",
        "vLLM quantization/awq.py, gptq.py, issue 5675 (Qwen2-72B: 29,568)",
        "spec", (VLLM, SGLANG),
    )),
    Format("nvfp4", 16.0, False, Rule(
        "nvfp4_blocks_whole", "error",
        "a rank's input width is a multiple of the 16 elements that share a scale in nvfp4",
        "vLLM quantization/modelopt",
        "spec", (VLLM, SGLANG), {SGLANG: "SGLang the same"},
    )),
    Format("fp8", 16.0, True, Rule(
        "fp8_widths", "error",
        "a rank's width is a multiple of 16, as fp8 matrix products take it",
        "Transformer Engine documentation (recalled, not read again)",
        "assumed", (VLLM, SGLANG),
    )),
    Format("int8", 16.0, True, Rule(
        "int8_widths", "error",
        "a rank's width is a multiple of 16, as int8 matrix products take it",
        "taken as for fp8: the same 16 bytes",
        "assumed", (VLLM, SGLANG),
    )),
)  # fmt: skip

MX_BLOCK = 32.0
MX = Rule(
    "mxfp4_blocks_whole", "waste",
    "a rank holds whole blocks of 32 elements of mxfp4: the fullest one sets the time",
    "vLLM models/gpt_oss.py, SGLang models/gpt_oss.py (blocks rounded up a rank); OCP "
    "Microscaling v1.0",
    "derived",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Width:
    """A width that is split over ranks: `value` (n,) on one of them, of `total` over `ranks`.
    `inner`: it is the input of a product, not the output of one alone."""

    title: str
    part: str
    value: Floats
    total: Floats
    ranks: Floats
    used: Flags
    inner: bool = True


def split_widths(batch: CandidateBatch) -> Iterator[Width]:
    """The widths of attention, feed-forwards and experts on one rank."""
    tp = batch.tensor_parallel
    for block in batch.blocks:
        used = block.count > 0.0
        if not used.any():
            continue
        if block.kind in ("gqa", "mla"):
            yield from _attention(block, tp, used)
        elif block.kind == "mlp":
            width = block["intermediate_size"]
            yield Width("feed-forward", "mlp", width / tp, width, tp, used)
        elif block.kind == "moe":
            shards, width = expert_shards(batch), block["expert_intermediate_size"]
            shared = block["shared_intermediate_size"]
            yield Width("experts", "experts", width / shards, width, shards, used)
            yield Width("shared experts", "mlp", shared / tp, shared, tp, used & (shared > 0.0))


def _attention(block: Block, tp: Floats, used: Flags) -> Iterator[Width]:
    heads, part = block["heads"], "attention"
    values = heads * block["v_head_dim"]
    if block.kind == "mla":
        query = heads * (block["qk_nope_head_dim"] + block["qk_rope_head_dim"])
        yield Width("queries", part, query / tp, query, tp, used, inner=False)
    else:
        kv = block["kv_heads"] * block["head_dim"]
        held = np.ceil(block["kv_heads"] / tp) * block["head_dim"]
        yield Width("keys of one rank", part, held, kv, tp, used, inner=False)
    yield Width("heads", part, values / tp, values, tp, used)


def blocks_of_formats(batch: CandidateBatch) -> Iterator[Finding]:
    """Every format's rule on the widths that have it; those that do not divide at all are left to
    `dse.rules.divide`."""
    for width in split_widths(batch):
        code = batch.weight_dtype[width.part]
        even = width.used & (width.value % 1.0 == 0.0)
        for form in FORMATS:
            if not (form.both or width.inner):
                continue
            broken = even & (code == CODE[form.dtype]) & (width.value % form.size > 0.0)

            def words(i: int, w: Width = width, size: float = form.size) -> str:
                of = f"{w.title}: {whole(w.total[i])} over {whole(w.ranks[i])} ranks"
                return f"{of} is {whole(w.value[i])}, no multiple of {whole(size)}"

            yield Finding(form.rule, broken, words)


def mx_padding(width: Width) -> Floats:
    """(n,) columns that the fullest rank holds over an even share: whole blocks of 32."""
    blocks = np.ceil(np.ceil(width.total / MX_BLOCK) / width.ranks)
    return blocks * MX_BLOCK * width.ranks / np.maximum(width.total, 1.0)
