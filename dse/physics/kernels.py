"""Tables of kernel laws: factors fitted to measured serving, applied to what the kernel laws say.

A factor multiplies a reached fraction (`compute`, `memory`, `bandwidth`) or a time (`fixed`,
`latency`); no fraction passes the chip's peak. A factor of a class of chips that nobody measured
kernel by kernel holds for all its laws, or for those of one of its kernels (FAMILIES).
Factors of backends multiply fields of their files (`dse.schema.backend`).

Weights in a format that the chip's matrix units do not multiply in are unpacked to 16 bits on the
way, at the cost that kernels which do so have. Of these there are two kinds. Fused ones read the
narrow bytes and unpack in registers (MARLIN, the w4a16 experts of vllm, sglang and trtllm). Where a
stack has none, the weights are unpacked into memory first and read again (`THROUGH_MEMORY`).
Whatever the kernel, it does no better than a native one of the same chip that reads elements no
wider: it reads as many bits and has more to do (assumed; for small batches int4 kernels on
Blackwell were seen a few percent ahead of native nvfp4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dse.data import rows_beside
from dse.physics.fabrics import Fabric
from dse.record import record
from dse.schema.chip import Chip
from dse.schema.dtypes import BITS, DTYPES, GGUF
from dse.schema.efficiency import UNPACKED_EXPERTS, Law

Table = NDArray[np.float64]


@record
class LawTable:
    """Seconds = ((flops * s_per_flop)^p + (bytes * s_per_byte)^p)^(1/p) + fixed_s; (chips, dtypes).

    `floor_of_compute` is the share of the compute time that remains at the chip's dense peak.
    """

    s_per_flop: Table
    s_per_byte: Table
    fixed_s: Table
    p: Table
    floor_of_compute: Table


@record
class Parameter:
    """`sd`: how far its logarithm may be from 0 before the fit pays for it (a ridge)."""

    name: str
    sd: float


def _parameters(of: str) -> tuple[Parameter, ...]:
    rows = rows_beside(__file__, "factors.csv")
    return tuple(Parameter(row["name"], float(row["sd"])) for row in rows if row["of"] == of)


# Kernels were measured on the chips themselves: their factors stay close to 1 (twice as much room
# fits better and predicts what was left out worse). What a backend adds was measured by nobody: its
# factors are free within a factor of two or three. What vLLM compiles hides its launches.
KERNELS, BACKENDS = _parameters("kernel"), _parameters("backend")
PARTS = ("compute", "memory", "fixed")
NARROW = np.array([float(int(BITS[dtype])) < 16.0 for dtype in DTYPES])
# MI300X and MI325X have block-scaled products and experts as AMD's tables time the kernels alone
# (tools/fits/kernels.py): what serving adds between them has a factor each, the same for both
# chips. Dense products are as on NVIDIA (H100 and MI300X at one request, DistServe/test-sample on
# Hugging Face).
FAMILIES = {"class_mi300x": "cdna3", "class_mi325x": "cdna3"}
BLOCKS = np.array([dtype == "fp8_block" for dtype in DTYPES])


def _of_class(
    table: str, classes: Sequence[str], factors: Mapping[str, float], part: str
) -> np.ndarray:
    """(chips, dtypes) factors of the chips' classes on `part` of a law."""
    kernel = "latent" if table.startswith("mla_") else table
    every = np.array([[factors.get(f"{name}.{part}", 1.0)] for name in classes])
    family = [FAMILIES.get(name, name) for name in classes]
    own = np.array([[factors.get(f"{name}_{kernel}.{part}", 1.0)] for name in family])
    if kernel == "gemm":
        block = np.array([[factors.get(f"{name}_block.{part}", 1.0)] for name in family])
        own = np.where(BLOCKS, block, own)
    return every * own


def calibrated_laws(
    laws: Mapping[str, LawTable],
    classes: Sequence[str],
    native_dtype: NDArray[np.bool_],
    floor_s_per_byte: Table,
    factors: Mapping[str, float],
) -> dict[str, LawTable]:
    """The laws of chips of these classes with every kernel factor applied; `native_dtype` is
    (chips, dtypes), `floor_s_per_byte` (chips,)."""
    floor = floor_s_per_byte[:, None]
    narrow = NARROW & native_dtype  # weights alone in a narrow format run in 16 bits
    unpacked = NARROW & ~native_dtype
    calibrated = {}
    for name, table in laws.items():
        own = {part: _of_class(name, classes, factors, part) for part in PARTS}
        if name == "experts":
            slower = factors.get("experts_unpacked.compute", 1.0)
            own["compute"] = np.where(unpacked, slower, 1.0) * own["compute"]
        # The factors of attention move latent attention too.
        calibrated[name] = _law(table, name.removeprefix("mla_"), factors, own, narrow, floor)
    return calibrated


def inherited(table: LawTable, inherits: NDArray[np.bool_]) -> LawTable:
    """The law in which formats that `inherits` marks, (chips, dtypes), reach no larger share of
    their peak than the best of the chip's others: what was fitted to other chips' kernels in that
    format may not make it more than the ratio of peaks faster."""
    best = np.where(inherits, 0.0, table.floor_of_compute).max(axis=1, keepdims=True)
    beyond = np.where(inherits, np.maximum(table.floor_of_compute / best, 1.0), 1.0)
    return replace(
        table,
        s_per_flop=table.s_per_flop * beyond,
        floor_of_compute=table.floor_of_compute / beyond,
    )


def calibrated_fabric(fabric: Fabric, factors: Mapping[str, float]) -> Fabric:
    """The fabric with every factor of its collectives applied."""
    reduce, exchange = (
        (factors.get(f"{of}.latency", 1.0), factors.get(f"{of}.bandwidth", 1.0))
        for of in ("all_reduce", "exchange")
    )
    return replace(
        fabric,
        all_reduce=fabric.all_reduce.scaled(*reduce),
        all_gather=fabric.all_gather.scaled(*exchange),
        all_to_all=fabric.all_to_all.scaled(*exchange),
    )


def _law(
    table: LawTable,
    name: str,
    factors: Mapping[str, float],
    own: Mapping[str, np.ndarray],
    narrow: np.ndarray,
    floor_s_per_byte: np.ndarray,
) -> LawTable:
    def of(part: str) -> np.ndarray:
        """(chips, dtypes) or (chips, 1); `gemm_narrow` is in place of `gemm` below 16 bits."""
        wide = factors.get(f"{name}.{part}", 1.0)
        if name != "gemm":
            return wide * own[part]
        return np.where(narrow, factors.get(f"gemm_narrow.{part}", 1.0), wide) * own[part]

    at_peak = table.s_per_flop * table.floor_of_compute
    s_per_flop = np.maximum(table.s_per_flop / of("compute"), at_peak)
    return replace(
        table,
        s_per_flop=s_per_flop,
        s_per_byte=np.maximum(table.s_per_byte / of("memory"), floor_s_per_byte),
        fixed_s=table.fixed_s * of("fixed"),
        floor_of_compute=at_peak / s_per_flop,
    )


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
