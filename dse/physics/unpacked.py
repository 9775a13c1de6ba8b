"""Weights in a format that the chip's matrix units do not multiply in: they are unpacked to 16 bits
on the way, at the cost that kernels which do so have.

Two kinds of kernels. Fused ones read the narrow bytes and unpack in registers (MARLIN, the w4a16
experts of vllm, sglang and trtllm). Where a stack has none, the weights are unpacked into memory
first and read again (`THROUGH_MEMORY`). Whatever the kernel, it does no better than a native one of
the same chip that reads elements no wider: it reads as many bits and has more to do (assumed; for
small batches int4 kernels on Blackwell were seen a few percent ahead of native nvfp4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dse.physics.calibrated import LawTable
from dse.schema.chip import Chip
from dse.schema.dtypes import BITS, DTYPES, GGUF
from dse.schema.efficiency import UNPACKED_EXPERTS, Law

# Of what 16-bit products reach, (arithmetic, bandwidth): the measured experts; of GEMMs MARLIN,
# about a tenth slower than 16 bits above 1,024 rows and within 5% of the ideal gain up to 32 rows
# (Frantar et al. 2024, arXiv 2408.11743, on A10; claimed, and taken for every chip).
UNPACKED = {"gemm": (0.9, 0.95), "experts": (UNPACKED_EXPERTS, 1.0)}
# The same of llama.cpp's kernels, fitted to decode steps on H100 PCIe, A100, RTX 4090, M2 Ultra and
# Jetson AGX Orin together with the backend's gap (hardware/backends/llama-cpp.yaml); a prefill in
# Q4_K_M takes 1.2 to 1.3 times as long as one in F16 there (github:XiongjieDai/
# GPU-Benchmarks-on-LLM-Inference@00dd2bd).
UNPACKED_GGUF = (0.78, 0.78)
# Families of chips and formats whose products have no fused kernel: vLLM unpacks dense NVFP4
# weights into memory at every call on AMD Instinct (pull requests 35733 and 40033, March and April
# 2026); its experts are fused since 44667 (June 2026).
THROUGH_MEMORY = {("cdna2", "nvfp4"), ("cdna3", "nvfp4"), ("cdna4", "nvfp4"), ("cdna5", "nvfp4")}
WIDE_BYTES = 2.0  # of an unpacked weight, written and read again
ELEMENT_BITS = np.array([float(int(bits)) for bits in BITS.values()])
# [own, other]: formats that are at least as narrow and not bf16, and their stored bits over one's
# own, at least 1.
NO_WIDER = (ELEMENT_BITS[None, :] <= ELEMENT_BITS[:, None]) & (np.array(DTYPES) != "bf16")
_STORED_BITS = np.array(list(BITS.values()))
STORED_RATIO = np.maximum(_STORED_BITS[None, :] / _STORED_BITS[:, None], 1.0)


def unpacked_law(operator: str, chip: Chip, laws: Mapping[str, Law], dtype: str) -> Law:
    """The law of products with weights of `dtype`, which `chip` unpacks to 16 bits; its `compute`
    is a fraction of the 16-bit peak."""
    if operator == "experts" and int(BITS[dtype]) == 4 and dtype not in GGUF:
        like = dtype if dtype in laws else "mxfp4"
        if like in laws and not chip.computes(like):  # a law of w4a16 kernels already
            return laws[like] if like == dtype else _at_best(laws[like], "derived")
    wide = laws["bf16"]
    if operator not in UNPACKED:
        return wide
    compute, memory = UNPACKED_GGUF if dtype in GGUF else UNPACKED[operator]
    law = replace(wide, compute=wide.compute * compute, memory=wide.memory * memory)
    if operator == "gemm" and (chip.family, dtype) in THROUGH_MEMORY:
        narrow = BITS[dtype] / 8.0
        moved = narrow / (narrow + 2.0 * WIDE_BYTES)
        return _at_best(replace(law, memory=law.memory * moved), "assumed")
    return _at_best(law, "derived")


def _at_best(law: Law, kind: str) -> Law:
    order = ("fitted", "derived", "assumed")
    return replace(law, kind=max(law.kind, kind, key=order.index), error=None)


def native_first(laws: Mapping[str, LawTable], native: NDArray[np.bool_]) -> dict[str, LawTable]:
    """The laws with none of a format that is unpacked better than that of a native format whose
    elements are no wider; `native` is (chips, dtypes)."""
    return {
        name: _behind(table, native) if name in UNPACKED else table for name, table in laws.items()
    }


def _behind(table: LawTable, native: NDArray[np.bool_]) -> LawTable:
    # (chips, unpacked format, native format)
    behind = ~native[:, :, None] & native[:, None, :] & NO_WIDER
    found = {}
    for name, factor in (("s_per_flop", 1.0), ("s_per_byte", STORED_RATIO), ("fixed_s", 1.0)):
        mine = getattr(table, name)
        bound = np.where(behind, mine[:, None, :] * factor, -np.inf).max(axis=2)
        found[name] = np.maximum(mine, bound)
    sharp = np.where(behind, table.p[:, None, :], np.inf).min(axis=2)
    found["p"] = np.minimum(table.p, sharp)
    at_peak = table.s_per_flop * table.floor_of_compute
    return replace(table, **found, floor_of_compute=at_peak / found["s_per_flop"])
