"""Low-precision weights come in blocks that share a scale: a rank's share of a width has to be
whole blocks.

    fp8_block   128 x 128 (DeepSeek-V3, Qwen3-FP8)      refused
    int4        128 along the input (AWQ, GPTQ)         refused
    nvfp4        16 along the input                     refused
    mxfp4        32 along the input                     the last block of a rank is shared out whole
    fp8, int8    16 (tensor cores take 16 bytes)        refused

Split widths alone are looked at: heads, feed-forwards and experts of grouped-query and latent
attention. Linear attention and state-space layers are not. A width that does not divide over its
ranks at all is left to `dse.rules.divide`.
"""

from __future__ import annotations

import numpy as np

from dse.physics.alignment import MX_BLOCK
from dse.rules.case import Case, Width
from dse.rules.kinds import Found, Part, rule, rule_of, whole
from dse.schema.dtypes import BITS, CODE, DTYPES
from dse.space.candidates import Floats

FOUR_BITS = np.array([int(bits) == 4 for bits in BITS.values()])


def _blocks(case: Case, dtype: str, size: float, inner_only: bool) -> Found:
    """Widths in `dtype` that are no multiple of a block of `size`, a power of two."""
    code = CODE[dtype]
    if not any(code in codes for codes in case.dtypes.values()):
        return
    for width in case.widths:
        if code not in case.dtypes[width.part] or (inner_only and not width.inner):
            continue
        share, mine = width.value / size, case.batch.weight_dtype[width.part] == code
        even = width.used & mine & (width.value == np.floor(width.value))

        def words(i: int, w: Width = width) -> str:
            of = f"{w.title}: {whole(w.total[i])} over {whole(w.ranks[i])} ranks"
            return f"{of} is {whole(w.value[i])}, no multiple of {whole(size)}"

        yield Part(even & (share != np.floor(share)), words)


def _whole_blocks(name: str, dtype: str, size: float) -> None:
    """Enters the rule of a format; of a format of 4 bits only the input of a product counts."""

    @rule(name)
    def entered(case: Case) -> Found:
        return _blocks(case, dtype, size, inner_only=bool(FOUR_BITS[CODE[dtype]]))


_whole_blocks("fp8_blocks_whole", "fp8_block", 128.0)
_whole_blocks("int4_groups_whole", "int4", 128.0)
_whole_blocks("nvfp4_blocks_whole", "nvfp4", 16.0)
_whole_blocks("fp8_widths", "fp8", 16.0)
_whole_blocks("int8_widths", "int8", 16.0)


MX = rule_of("mxfp4_blocks_whole")


def mx_padding(width: Width) -> Floats:
    """(n,) columns that the fullest rank holds over an even share: whole blocks of 32."""
    blocks = np.ceil(np.ceil(width.total / MX_BLOCK) / width.ranks)
    return blocks * MX_BLOCK * width.ranks / np.maximum(width.total, 1.0)


def _no_kernel(case: Case, formats: dict[str, tuple[str, ...]]) -> Found:
    """Weights in a format on families of chips for which there is neither a kernel that multiplies
    in it nor one that unpacks it (`dse.physics.unpacked`)."""
    for dtype, families in formats.items():
        code, lacks = CODE[dtype], np.array([family in families for family in case.families])
        for part, codes in case.dtypes.items():
            if code not in codes or not lacks.any():
                continue
            mine = (case.batch.weight_dtype[part] == code) & lacks[case.batch.chip]

            def words(i: int, of: str = f"{part} weights in {dtype}") -> str:
                return f"{of} on {case.families[case.batch.chip[i]]}"

            yield Part(mine, words)


@rule("trtllm_format_kernels")
def TRTLLM_KERNELS(case: Case) -> Found:
    old = ("volta", "ampere")
    return _no_kernel(case, {"fp8": old, "fp8_block": old, "nvfp4": (*old, "ada", "hopper")})


@rule("sglang_format_kernels")
def SGLANG_KERNELS(case: Case) -> Found:
    return _no_kernel(case, {"nvfp4": ("cdna2", "cdna3", "cdna4", "cdna5")})


@rule("cache_format")
def CACHE(case: Case) -> Found:
    cache = case.batch.kv_dtype
    if case.machines is None or not (narrow := FOUR_BITS[cache]).any():
        return
    computed = case.machines.native_dtype[case.batch.chip, cache]
    yield Part(
        narrow & ~computed,
        lambda i: (
            f"a cache in {DTYPES[cache[i]]} on {case.machines.ids[case.batch.chip[i]]}"
            if case.machines
            else ""
        ),
    )
