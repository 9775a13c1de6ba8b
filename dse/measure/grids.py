"""What is measured: grids of shapes, cut down to what a device can do in the time that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from dse.measure.work import Work

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# (n, k) of the projections of published models: query-key-value, output, up and gate, down.
MODEL_WEIGHTS = (
    (4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072),  # Qwen3-0.6B
    (3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192),  # Llama-3.2-1B
    (6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728),  # Qwen3-4B
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),  # Llama-3-8B
    (7168, 5120), (5120, 5120), (34816, 5120), (5120, 17408),  # Qwen3-14B
    (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),  # Llama-3-70B
    (1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584),  # the same on 8 chips
)  # fmt: skip
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
# Sizes that real models have and kernels dislike, each between its aligned neighbours: multiples of
# 128, or of 1,024 where the size is a multiple of 128 itself.
MISALIGNED = {
    5000: (4992, 5120),
    10922: (10880, 11008),
    11008: (10240, 11264),
    2880: (2816, 2944),
    4097: (4096, 4224),
}
MISALIGNED_ROWS = {129: (128, 256), 1000: (896, 1024)}
ACROSS = 2048  # the other side of a weight whose one side is misaligned
COMPARED_ROWS = (1, 16, 256)
# Heads, KV heads, head size: multi-head, grouped, one KV head.
ATTENTION_HEADS = (
    (16, 8, 128), (32, 8, 64), (32, 8, 128), (64, 8, 128), (32, 32, 128), (8, 1, 128),
)  # fmt: skip
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
BATCHES = (1, 4, 16, 64)
# Head counts of real models that divide by nothing, between even ones; every head has its own KV
# head, so that time should follow the count.
ODD_HEADS = {7: (4, 8), 9: (8, 16), 14: (8, 16), 25: (24, 32)}
ODD_LENGTH = 1024


def gemms(dtype: str) -> list[Work]:
    weights = [*MODEL_WEIGHTS, *((side, side) for side in SQUARES)]
    return [Work("gemm", dtype, (m, n, k)) for n, k in dict.fromkeys(weights) for m in ROWS]


def misaligned_gemms(dtype: str) -> list[list[Work]]:
    """Groups of (below, size, above) along one axis, each with the same other sizes."""
    groups = []

    def group(axis: str, low: int, size: int, high: int, rows: int) -> list[Work]:
        def work(value: int, role: str) -> Work:
            sizes = {"m": rows, "n": ACROSS, "k": ACROSS, axis: value}
            return Work("gemm", dtype, (sizes["m"], sizes["n"], sizes["k"]), role, axis)

        return [work(low, "aligned"), work(size, "misaligned"), work(high, "aligned")]

    for rows in COMPARED_ROWS:
        for size, (low, high) in MISALIGNED.items():
            groups += [group(axis, low, size, high, rows) for axis in ("n", "k")]
    for size, (low, high) in MISALIGNED_ROWS.items():
        groups.append(group("m", low, size, high, 0))
    return groups


def prefills(dtype: str) -> list[Work]:
    return [
        Work("prefill_attention", dtype, (batch, length, *heads))
        for heads in ATTENTION_HEADS
        for length in LENGTHS
        for batch in BATCHES[:2]
    ]


def decodes(dtype: str) -> list[Work]:
    return [
        Work("decode_attention", dtype, (batch, context, *heads))
        for heads in ATTENTION_HEADS
        for context in CONTEXTS
        for batch in BATCHES
    ]


def odd_heads(operator: str, dtype: str) -> list[list[Work]]:
    groups = []
    for head_dim in (64, 128):
        for odd, (low, high) in ODD_HEADS.items():
            counts = ((low, "aligned"), (odd, "misaligned"), (high, "aligned"))
            groups.append(
                [
                    Work(operator, dtype, (1, ODD_LENGTH, heads, heads, head_dim), role, "heads")
                    for heads, role in counts
                ]
            )
    return groups


def streams(bytes_: float) -> list[Work]:
    """The three kernels on arrays of `bytes_`."""
    return [Work(name, "fp32", (int(bytes_ / 4),)) for name in ("copy", "triad", "read")]


def affordable(
    groups: Sequence[Sequence[Work]],
    seconds_of: Callable[[Work], float],
    budget_s: float,
    runs: int,
    rng: np.random.Generator,
) -> list[Work]:
    """The works of groups whose estimated seconds, `runs` of each, fit the budget together: in
    random order, one of each number of rows (or tokens) after another, so that a small budget
    still covers all of them. A group that would take a sixth of the budget is left out."""
    strata: dict[int, list[Sequence[Work]]] = {}
    for group in (groups[k] for k in rng.permutation(len(groups))):
        if runs * sum(map(seconds_of, group)) <= budget_s / 6:
            rows = group[0].sizes[1 if group[0].operator.endswith("attention") else 0]
            strata.setdefault(rows, []).append(group)
    chosen, spent = [], 0.0
    for group in (group for layer in zip_longest(*strata.values()) for group in layer if group):
        spent += runs * sum(map(seconds_of, group))
        if spent <= budget_s:
            chosen += group
    return chosen
