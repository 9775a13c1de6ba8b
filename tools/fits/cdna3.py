"""Kernels of AMD's CDNA3, as public tuners and benchmarks timed them, in place of NVIDIA's medians.

`cdna3_kernels.csv` has products with weights in blocks of 128 x 128 and routed experts (AITER's
tables of the kernels it chose on 304 compute units, MI300X and MI325X: random routing, device time
alone) and the all-reduce of vLLM on MI300X. No row of serving enters. What their times leave out:

- Rows are quantised by a kernel of its own before a product with weights in blocks: an elementwise
  kernel of a decode step takes 4.3 to 5.7 us (github:sgl-project/sglang pull 28476, MI355X).
- Between two kernels of a replayed HIP graph lie 3.0 us more than in a command buffer of Vulkan
  (3.87 and .88 us a kernel: github:ROCm/rocm-systems issue 10834, gfx1100, 941 in a row). It is
  added to the kernels named here alone: with such a gap after every kernel a dense Llama-3-70B
  came out 22% slower than AMD measured, with 5 us a norm 17%, without either 5%.
- Experts take 33.3 us for one token, with rows sorted and quantised, of which 4.9 read weights
  (github:ROCm/aiter pull 2748: Qwen3-Next-80B in blocks, 2,048 x 512, 10 chosen, MI355X).
- Partial results of latent attention are summed in 11.5 us (github:SemiAnalysisAI/InferenceX issue
  863, MI325X).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from dse.measure.calibration import Laws
from dse.measure.laws import law, link_law
from tools.fits.kernel_tables import PADDING_ROWS, activations

TIMES = Path(__file__).with_name("cdna3_kernels.csv")
GAP, ELEMENTWISE, EXPERTS, SUM = 3.0, 5.1, 28.4, 11.5  # us
PEAK, BANDWIDTH, LINK = 2615e12, 5.3e12, 64e9  # MI300X: fp8, memory, a pair of chips
TOP_MEMORY = 0.80  # of the bandwidth, as of every chip whose memory nobody streamed in full
CLASSES = ("class_mi300x", "class_mi325x")
LATENCY_8_OVER_4 = 4.8 / 3.97  # of the NVLink chips, for all-reduces between 8


def measured(laws: Laws) -> Laws:
    """The laws of CDNA3, from those of NVIDIA's median."""
    times = pd.read_csv(TIMES)
    block = _fitted(_products(times))
    laws["gemm"]["fp8_block"] = block | {
        "fixed": _us(block["fixed"] + ELEMENTWISE + 2 * GAP),
        "note": f"{block['note']}; fixed {ELEMENTWISE + 2 * GAP:.1f} us more: rows are quantised",
    }
    laws["experts"]["fp8_block"] = (experts := _fitted(_experts(times), 1.0001)) | {
        "fixed": _us(EXPERTS + 2 * GAP),
        "note": f"{experts['note']}; fixed: rows are sorted and quantised",
    }
    for x in laws["mla_decode_attention"].values():
        x["fixed"] = _us(x["fixed"] + SUM + GAP)
        x["note"] += f", partial results summed in {SUM} us"
    return laws


def all_reduce() -> dict[int, dict[str, float]]:
    """Latency, fraction and ramp between 2 and 4 chips as fitted, and the latency between 8."""
    times = pd.read_csv(TIMES)
    found = {}
    for chips in (2, 4):
        rows = times[(times.operator == "all_reduce") & (times["columns"] == chips)]
        size, link = rows.rows.to_numpy(float), LINK * (chips - 1)
        wire_s = size * 2 * (chips - 1) / chips / link
        found[chips] = link_law(size, wire_s, rows.microseconds.to_numpy() * 1e-6)
    return found | {8: {"latency": _us(found[4]["latency"] * LATENCY_8_OVER_4)}}


def _products(times: pd.DataFrame) -> pd.DataFrame:
    t = times[(times.operator == "gemm") & (times.format == "fp8_block")]
    m, n, k = t.rows, t["columns"], t.inner
    return t.assign(flops=2.0 * m * n * k, bytes=n * k + m * k + 2.0 * m * n)


def _experts(times: pd.DataFrame) -> pd.DataFrame:
    """As `Tables.experts` counts them, of tokens that choose at random."""
    t = times[times.operator == "experts"]
    distinct = t.experts * (1.0 - (1.0 - t.chosen / t.experts) ** t.rows)
    rows, weight = t.rows * t.chosen, t.inner * t["columns"]
    flops = 6 * weight * (rows + PADDING_ROWS * distinct)
    moved = 3 * weight * distinct + activations(6 * weight * rows, t.inner, t["columns"])
    return t.assign(flops=flops, bytes=moved)


def _fitted(points: pd.DataFrame, top_p: float = 8.0) -> dict:
    """A law by least squares of the logarithm: blocks that walk a long inner dimension with few
    rows are slow, and a robust fit would leave them out."""
    flops, moved = points.flops.to_numpy(float), points.bytes.to_numpy(float)
    seconds = points.microseconds.to_numpy(float) * 1e-6

    def predict(x):
        return law(flops, moved, PEAK, BANDWIDTH, x)

    found = [
        least_squares(
            lambda x: np.log(predict(x) / seconds),
            (0.5, 0.7, 8.0, min(p, (1 + top_p) / 2)),
            bounds=((0.01, 0.01, 0, 1), (1, TOP_MEMORY, 300, top_p)),
            x_scale=(0.5, 0.5, 5, 1),
        )
        for p in (1.2, 2.5, 5.0)
    ]
    compute, memory, fixed, p = min(found, key=lambda s: round(s.cost, 9)).x
    error = float(np.median(np.abs(predict((compute, memory, fixed, p)) / seconds - 1)))
    return {
        **{"compute": _us(compute), "memory": _us(memory), "fixed": _us(fixed), "p": _us(p)},
        "kind": "derived",
        "note": f"{len(points)} kernels of {points.source.iloc[0]}, off by {error:.2f}",
    }


def _us(value: float) -> float:
    return float(f"{value:.3g}")
