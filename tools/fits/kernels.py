"""Fits the kernel laws of `hardware/efficiency/` to measured kernel tables.

    python -m tools.fits.kernels FOLDER OUT

FOLDER holds the condensed tables of aiconfigurator-core 0.12.0 (Apache-2.0) named below; OUT gets
one YAML file per chip or class, byte for byte the shipped ones. The law of every operator:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed

A law is fitted to points pooled over serving backends, equal weight each. A point is measured (a
latency, or the median latency of a bucket), or condensed (a per-backend fit read on a grid of
shapes); a backend with both gives half its weight to each. docs/efficiency.md has the reasons.

Kernels of AMD's CDNA3, as public tuners and benchmarks timed them, in place of NVIDIA's medians.

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

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from dse.measure.calibration import (
    WEIGHT_ONLY,
    Laws,
    Links,
    derive,
    efficiency_text,
)
from dse.measure.laws import fit, law, least, link_law

# Families of the tables' dtypes; w4a16 and w4a8 rows are divided by the 16-bit peak there.
DTYPE = {
    "bfloat16": "bf16", "half": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4",
    "w4a16_mxfp4": "w4a16", "w4a8_mxfp4_mxfp8": "mxfp4",
}  # fmt: skip
BYTES = {
    "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125, "w4a16": 0.53125,
}  # fmt: skip
PADDING_ROWS = 16
# Assumed hidden size, and expert width on one chip up to and above 1,024 tokens an expert, of the
# expert tables: under 200 one law meets the buckets of every token count; 8 wide experts above.
HIDDEN, NARROW, WIDE = 4096, 192, 2048
BUCKETS_OF = {"b300_sxm": "b200_sxm", "gb300": "gb200_nvl72"}  # without expert buckets of its own
GPT_OSS = "gptoss|^sglang_mxfp4_flashinfer"  # expert kernels that backends select for gpt-oss
# Of SGLang's expert kernels the first that the tables have is its default.
SGLANG = "sglang_flashinfer_trtllm_moe", "sglang_fused_moe_triton", "sglang_flashinfer_cutlass_moe"
# nvfp4 kernels of trtllm, of which a deployment takes the faster for its load
BY_LOAD = {"moe_torch_flow_min_latency", "moe_torch_flow_cutlass"}
MIN_SHARE = 0.3  # expert kernels that read weights at less of the bandwidth ran untuned (assumed)
MAX_MISS_PCT = 35  # a per-backend fit that misses its own rows by more (median) is dropped
# GEMM paths with overhead that no served graph has, and seconds below which their points are left
# out. vLLM's block-scaled path: 77-390 us at any size. TensorRT-LLM's with one scale a tensor: 13
# to 16 us at the smallest sizes of every chip, over twice its own block-scaled product, which does
# all that it does and finds a scale for each block too; it matters where a product takes little.
OVERHEAD = {("vllm", "fp8_block"): np.inf, ("trtllm", "fp8"): 150e-6}
CURRENT = ("1.3.0rc20", "0.24.0", "0.5.14")  # trtllm, vllm, sglang; A100 has older rows only


class Chip(NamedTuple):
    """What the tables divided by: FLOP/s, bytes/s, bytes/s per direction. Weights of up to
    `cached` bytes stay in the cache from run to run of the benchmark, which serving does not see.
    `notes` are kind and note of its collectives.
    """

    title: str
    system: str
    bandwidth: float
    link: float
    peaks: dict[str, float]
    cached: float
    notes: dict[str, tuple[str, str]]

    def peak(self, dtype: str) -> float:
        """What the tables divided rows of a format by: that of bf16 where they had no other."""
        return self.peaks.get("fp8" if dtype == "fp8_block" else dtype, self.peaks["bf16"])


def _chip(
    title: str,
    system: str,
    bandwidth: float,
    link: float,
    tflops: list[float],
    notes: dict[str, list[str]],
    cached: float = 0.0,
) -> Chip:
    peaks = {name: t * 1e12 for name, t in zip(("bf16", "fp8", "nvfp4"), tflops, strict=False)}
    said = {name: (kind, note) for name, (kind, note) in notes.items()}
    return Chip(f"NVIDIA {title}", system, bandwidth * 1e12, link * 1e9, peaks, cached, said)


CHIPS = {
    name: _chip(**of)
    for name, of in yaml.safe_load(
        Path(__file__).with_name("chips.yaml").read_text(encoding="utf-8")
    ).items()
}


def activations(flops, hidden, width):
    """Bytes of 2 (H + I) 16-bit elements for each row of 6 H I operations."""
    return 4 * flops / 6 * (1 / hidden + 1 / width)


class Tables:
    """The kernel tables of one chip. A method gives the points of one operator and dtype, columns
    flops, bytes, seconds, rows (how many measurements stand behind it), backend, measured, miss.
    """

    def __init__(self, folder: Path, chip: Chip):
        self.folder, self.chip = folder, chip

    def read(self, name: str) -> pd.DataFrame:
        table = pd.read_csv(self.folder / f"{name}.csv")
        return table[table.system == self.chip.system].copy()

    def measured(
        self, rows: pd.DataFrame, microseconds, count: float | pd.Series = 1.0
    ) -> pd.DataFrame:
        return rows.assign(seconds=microseconds * 1e-6, rows=count, measured=True, miss=0.0)

    def condensed(self, fits, dtype, flops, moved, peak=None) -> pd.DataFrame:
        """Points (n,) per row of `fits`: A is a maximum, S a sum, B a p-norm, each plus t0."""
        peak, parts = peak or self.chip.peak(dtype), []
        for row in fits[fits.med_abs_pct < MAX_MISS_PCT].itertuples():
            p = {"A": 50.0, "S": 1.0}.get(row.model[0]) or row.p
            shape = peak, self.chip.bandwidth, (row.eff_c, row.eff_b, row.t0_us, p)
            columns = {"flops": flops, "bytes": moved, "seconds": law(flops, moved, *shape),
                       "rows": row.n / len(flops), "backend": row.backend, "measured": False,
                       "version": row.version, "miss": row.med_abs_pct / 100}  # fmt: skip
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts) if parts else pd.DataFrame(columns=["flops", "miss"])

    def gemm(self, dtype: str) -> pd.DataFrame:
        """2mnk; weights, input and a 16-bit output."""

        def usable(table):
            return table[table.dtype.map(DTYPE) == dtype].copy()

        def work(m, n, k):
            return 2.0 * m * n * k, BYTES[dtype] * (n * k + m * k) + 2.0 * m * n

        raw = pd.concat([self.read(f"gemm_{t}") for t in ("samples_trtllm", "skinny", "square")])
        raw[["m", "n", "k"]] = raw[["m", "n", "k"]].apply(lambda axis: axis.fillna(raw.mnk))
        raw = usable(raw.drop_duplicates(["backend", "dtype", "m", "n", "k"]))
        raw = raw[(raw.m > 256) | (raw.n * raw.k * BYTES[dtype] > self.chip.cached)]
        raw["flops"], raw["bytes"] = work(raw.m, raw.n, raw.k)
        shapes = np.array([(4096, 4096), (8192, 8192), (8192, 1024), (1280, 8192), (7168, 8192),
                           (4096, 14336), (28672, 8192), (16384, 4096)])  # fmt: skip
        m, n, k = np.repeat(4.0 ** np.arange(8), 8), *np.tile(shapes.T, 8)
        fits = self.read("gemm_fit")
        fits = usable(fits[fits.model.str.startswith("B:")])
        grid = self.condensed(fits, dtype, *work(m, n, k))
        points = pd.concat([self.measured(raw, raw.latency_us), grid])
        least = points.backend.map(lambda name: OVERHEAD.get((str(name), dtype), 0.0))
        return points[points.seconds >= least]

    def default_kernels(self, name: str, dtype: str) -> pd.DataFrame:
        """Rows of one cache dtype, without kernels that are not a backend's default on the chip."""
        table = self.read(name)
        spare = {"triton"} if "flashinfer" in set(table.kernel) else set()
        spare |= {"flashinfer"} if "trtllm_mha" in set(table.kernel) else set()
        spare |= {k for k in table.kernel if name.startswith("prefill") and k.endswith("decode")}
        return table[~table.kernel.isin(spare) & (table.kv_dtype.map(DTYPE) == dtype)].copy()

    def prefill_attention(self, dtype: str) -> pd.DataFrame:
        """Causal 2 b L^2 h d; q, k, v, out in 16 bits, k and v of a quarter of the heads."""
        peaks = self.chip.peaks
        raw = self.default_kernels("prefill_attention_mfu", dtype)
        raw = self.measured(raw, raw.latency_us_med)
        raw["flops"] = raw.mfu_med * raw.seconds * raw.attn_dtype.map(DTYPE).map(peaks)
        raw["bytes"] = 2.5 * raw.flops / raw.isl
        length = np.tile(2.0 ** np.arange(8, 15), 4)
        flops = 2 * length**2 * 128 * np.repeat((8, 32, 64, 256), 7)  # batch x heads
        fits = self.default_kernels("prefill_attention_fit", dtype)
        fits = fits[fits.model.str.startswith("S:")]
        grids = [
            self.condensed(rows, dtype, flops, 2.5 * flops / length, peaks[DTYPE[str(arithmetic)]])
            for arithmetic, rows in fits.groupby("attn_dtype")
        ]
        return pd.concat([raw, *grids])

    def decode_attention(self, dtype: str) -> pd.DataFrame:
        """KV bytes, and two operations for each of their elements and query head of the group."""
        group = {"(0, 1]": 1, "(1, 4]": 3, "(4, 8]": 8, "(8, 16]": 14, "(16, 200]": 32}
        raw = self.default_kernels("decode_attention_bw", dtype)
        # a100 trtllm: above the HBM bandwidth; outputs that the tables mark as unusable
        # a100 sglang: FlashAttention, where flashinfer is its default on Ampere (its documentation)
        raw = raw[~((raw.system == "a100_sxm") & raw.backend.isin(("trtllm", "sglang")))]
        if dtype == "fp8":
            raw = self.fp8_cache(raw)
        raw = self.measured(raw, raw.latency_us_med)
        raw["bytes"] = raw.bw_frac_med * self.chip.bandwidth * raw.seconds
        raw["flops"] = 2 * raw.bytes / BYTES[dtype] * raw.heads_per_kv.map(group)
        return raw

    def fp8_cache(self, raw: pd.DataFrame) -> pd.DataFrame:
        """An fp8 cache is the default of TensorRT-LLM alone, and models with one have grouped
        queries: its rows for these where there are any. On Hopper the others' kernels convert the
        cache first and reach half to two thirds of the bandwidth, where these reach .9."""
        chosen = raw[(raw.backend == "trtllm") & (raw.heads_per_kv != "(0, 1]")]
        return raw if chosen.empty else chosen

    def mla_prefill_attention(self, dtype: str) -> pd.DataFrame:
        """320 b L^2 h; q, k, v, out. Without the absorbed kernels, which do 3.4 times the work."""
        fits = self.default_kernels("mla_fit", dtype)
        fits = fits[(fits.phase == "context") & fits.model.str.startswith("S:")]
        fits = fits[~fits.kernel.isin(("flash_attention", "triton"))]
        length = np.tile(2.0 ** np.arange(9, 15), 3)
        flops = 320 * length**2 * np.repeat((16, 64, 256), 6)  # batch x heads
        moved = (2 + BYTES[dtype]) * flops / length
        return self.condensed(fits, dtype, flops, moved, self.chip.peaks["bf16"])

    def mla_decode_attention(self, dtype: str) -> pd.DataFrame:
        """Absorbed: 2 (576 + 512) operations per token and head, 576 elements per token."""
        fits = self.default_kernels("mla_fit", dtype)
        fits = fits[(fits.phase == "generation") & fits.model.str.startswith("A:")]
        # sglang on Hopper rewrites an fp8 cache first: .06-.08 of the bandwidth
        fits = fits[~((fits.kernel == "flash_attention") & (dtype == "fp8"))]
        tokens = np.tile(2.0 ** np.arange(12, 22), 3)
        flops = 2 * 1088 * tokens * np.repeat((16, 64, 128), 10)
        return self.condensed(
            fits, dtype, flops, 576 * tokens * BYTES[dtype], self.chip.peaks["bf16"]
        )

    def experts(self, dtype: str) -> pd.DataFrame:
        """6 H I operations a row, PADDING_ROWS more per expert; weights of distinct experts and
        2 (H + I) 16-bit elements a row. Buckets of up to 8 tokens an expert, up to 1,024 and more
        weigh one third each; where there are any, fits are read up to 16 tokens, where weights
        rule: above, they average narrow and wide experts.
        """
        balanced = "power_law_1.01" if self.chip.system == "a100_sxm" else "balanced"
        raw = self.expert_buckets(dtype, balanced)
        # local experts, hidden size, width on one chip: gpt-oss, Qwen3, Mixtral, DeepSeek
        shapes = np.array([(128, 2880, 2880), (128, 2048, 768), (128, 4096, 384),
                           (16, 4096, 1536), (8, 4096, 7168), (32, 7168, 2048)])  # fmt: skip
        means = 4.0 ** np.arange(-2, 6 if raw.empty else 3)
        mean, local, hidden, width = np.repeat(means, 6), *np.tile(shapes.T, len(means))
        distinct, rows, weight = -local * np.expm1(-mean), local * mean, hidden * width
        hidden, width = (hidden, width) if raw.empty else (HIDDEN, NARROW)
        fits = self.expert_kernels("moe_fit", dtype, balanced)
        fits = fits[fits.model.str.startswith("S:") & ~fits.backend.isin(raw.backend)]
        fits = fits[fits.eff_b > MIN_SHARE]
        moved = 3 * weight * distinct * BYTES[dtype]
        grid = self.condensed(fits, dtype, 6 * weight * rows, moved)
        copies = len(grid) // len(mean)
        grid["flops"] = np.tile(6 * weight * (rows + PADDING_ROWS * distinct), copies)
        grid["bytes"] = np.tile(moved + activations(6 * weight * rows, hidden, width), copies)
        return pd.concat([raw, grid])

    def expert_buckets(self, dtype: str, distribution: str) -> pd.DataFrame:
        """Points of `experts` from the medians by tokens per expert, n = 0 where there are none."""
        system = self.chip.system
        chip = CHIPS[BUCKETS_OF[system]] if system in BUCKETS_OF else self.chip
        source = Tables(self.folder, chip)
        raw = source.expert_kernels("moe_by_tokens_per_expert", dtype, distribution)
        edges = raw.tokens_per_expert.str.extract(r"\((.*), (.*)\]").astype(float)
        mean = np.sqrt(edges[0].clip(lower=0.06) * edges[1].clip(upper=4096))
        if len(raw) and set(raw.kernel) >= BY_LOAD:
            fastest = raw.groupby(["tokens_per_expert", "ep"]).latency_us_med.idxmin()
            raw, mean = raw.loc[fastest], mean[fastest]
        regime = pd.Series(np.digitize(mean, (8, 1024)), raw.index)
        raw = self.measured(raw, raw.latency_us_med, 1 / regime.map(regime.value_counts()))
        flops = raw.flop_frac_med * chip.peak(dtype) * raw.seconds
        raw["bytes"] = raw.bw_frac_med * chip.bandwidth * raw.seconds
        raw["bytes"] += activations(flops, HIDDEN, np.where(mean > 1024, WIDE, NARROW))
        raw["flops"] = flops * (1 - PADDING_ROWS * np.expm1(-mean) / mean)
        return raw

    def expert_kernels(self, name: str, dtype: str, distribution: str) -> pd.DataFrame:
        """Rows of one weight format, without kernels that are not a backend's default; of mxfp4 the
        kernels that backends select for gpt-oss."""
        table = self.read(name)
        table = table[table.distribution == distribution]
        if dtype not in ("w4a16", "mxfp4"):
            table = table[table.moe_dtype.map(DTYPE) == dtype]
            default = next((k for k in SGLANG if k in set(table.kernel)), None)
            return table[~table.kernel.isin(set(SGLANG) - {default})]
        table = table[table.moe_dtype.map(DTYPE).isin(("w4a16", "mxfp4"))]
        return table[table.kernel.str.contains(GPT_OSS)]

    def collective(
        self, ops: tuple[str, ...], count: int, source: str, versions: tuple[str, ...] = CURRENT
    ) -> dict | None:
        """Constants of one collective between `count` chips from the rows of `ops`, None where
        nothing was measured. A chip of which only fits are known takes the rows of its relative."""

        def usable(table):
            table = table[table.op.isin(ops) & (table.num_gpus == count)]
            table = table[(table.dtype.map(DTYPE) == "bf16") & table.backend.str.contains(source)]
            old = ~table.version.isin(versions) & (table.system != "a100_sxm")
            return table[~old | (table.backend == "nccl")]

        wire_s = {"all_reduce": 2}.get(ops[0], 1) * (count - 1) / count / self.chip.link
        relative = CHIPS.get(BUCKETS_OF.get(self.chip.system, ""), self.chip)
        rows = usable(Tables(self.folder, relative).read("comm_points"))
        rows = rows[rows.bytes.between(2**13 * 0.99, 2**29 * 1.01)]
        size, seconds, miss = rows.bytes.to_numpy(), rows.latency_us.to_numpy() * 1e-6, 0.0
        if rows.empty:  # condensed rows only
            rows = usable(self.read("comm_fit"))
            size = np.tile(2.0 ** np.arange(13, 30), len(rows))
            fits = rows[["alpha_us", "beta_frac_of_intra", "med_abs_pct"]].to_numpy()
            alpha, beta, percent = np.repeat(fits.T, 17, axis=1)
            seconds, miss = alpha * 1e-6 + size * wire_s / beta, percent / 100
        return link_law(size, size * wire_s, seconds, miss) if len(rows) else None

    def deepep(self) -> dict | None:
        """Expert dispatch and combine on 8 chips: low latency to 128 tokens, normal above."""
        rows = self.read("alltoall_points")
        rows = rows[(rows.source == "sglang 0.5.12") & (rows.ep == 8)]
        rows = rows[(rows.backend == "deepep_ll") == (rows.tokens <= 128)]
        size, seconds = rows.bytes.to_numpy(), rows.latency_us.to_numpy() * 1e-6
        return link_law(size, size * 7 / 8 / self.chip.link, seconds) if len(rows) else None


TIMES = Path(__file__).with_name("cdna3_kernels.csv")
GAP, ELEMENTWISE, EXPERTS, SUM = 3.0, 5.1, 28.4, 11.5  # us
PEAK, BANDWIDTH, LINK = 2615e12, 5.3e12, 64e9  # MI300X: fp8, memory, a pair of chips
TOP_MEMORY = 0.80  # of the bandwidth, as of every chip whose memory nobody streamed in full
CDNA3 = ("class_mi300x", "class_mi325x")
LATENCY_8_OVER_4 = 4.8 / 3.97  # of the NVLink chips, for all-reduces between 8


def cdna3_laws(laws: Laws) -> Laws:
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


def cdna3_all_reduce() -> dict[int, dict[str, float]]:
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

    most = (1, TOP_MEMORY, 300, top_p)
    compute, memory, fixed, p = least(lambda x: np.log(predict(x) / seconds), most)
    error = float(np.median(np.abs(predict((compute, memory, fixed, p)) / seconds - 1)))
    return {
        **{"compute": _us(compute), "memory": _us(memory), "fixed": _us(fixed), "p": _us(p)},
        "kind": "derived",
        "note": f"{len(points)} kernels of {points.source.iloc[0]}, off by {error:.2f}",
    }


def _us(value: float) -> float:
    return float(f"{value:.3g}")


OPERATORS = {  # operator: the tables behind it
    "gemm": "gemm_samples_trtllm, gemm_skinny, gemm_square, gemm_fit",
    "prefill_attention": "prefill_attention_mfu, prefill_attention_fit",
    "decode_attention": "decode_attention_bw",
    "mla_prefill_attention": "mla_fit context",
    "mla_decode_attention": "mla_fit generation",
    "experts": "moe_by_tokens_per_expert, moe_fit; balanced routing, whose distinct experts are "
    "the uniform expectation that the law is charged for",
}
ATTENTION = tuple(name for name in OPERATORS if name.endswith("attention"))
UNPACKED = "16-bit arithmetic on an fp8 cache, compute is a fraction of the bf16 peak"


def measured_laws(tables: Tables) -> Laws:
    """Operator -> dtype -> law, for what the tables hold."""
    peaks, laws = tables.chip.peaks, {}
    block = ["fp8_block"] if "fp8" in peaks else []
    dtypes = {"gemm": [*peaks, *block], "experts": [*peaks, *block, "mxfp4"]}
    for operator, names in OPERATORS.items():
        laws[operator] = {}
        for dtype in dtypes.get(operator, ["bf16", "fp8"]):
            unpacked = dtype == "mxfp4" and "nvfp4" not in peaks
            points = getattr(tables, operator)("w4a16" if unpacked else dtype)
            if points.empty:
                continue
            sums = {"top_p": 1.0001} if operator == "experts" else {}
            peak = tables.chip.peak("nvfp4" if dtype == "mxfp4" else dtype)
            row = fit(points, peak, tables.chip.bandwidth, **sums)
            note = f"{names}: {row['note']}"
            if operator == "experts" and tables.chip.system in BUCKETS_OF and dtype != "mxfp4":
                note += f"; buckets measured on {BUCKETS_OF[tables.chip.system]}"
            if dtype not in peaks and (unpacked or dtype == "fp8"):
                note += f"; {WEIGHT_ONLY if unpacked else UNPACKED}"
            row["note"] = note
            laws[operator][dtype] = row
    return laws


def complete(chip: Chip, laws: Laws, fp8_ratio: float, hopper: Laws) -> Laws:
    """Fills what was not measured by the rules of docs/efficiency.md."""
    gemm, experts = laws["gemm"], laws["experts"]
    if chip.system == "a100_sxm":
        note = "fractions of H100: A100 has balanced rows for one slow kernel only"
        experts["bf16"] = derive(hopper["experts"]["bf16"], note)
    native8, native4 = "fp8" in chip.peaks, "nvfp4" in chip.peaks
    for table, four in ((gemm, "nvfp4"), (experts, "mxfp4")):
        table.setdefault(four, derive(table["bf16"], WEIGHT_ONLY))
        table["int8"] = (
            derive(table["fp8"], "as fp8: same bytes, same fraction of its own peak")
            if native8
            else derive(
                table["bf16"], "bf16 times the median fp8 to bf16 ratio of GEMMs", fp8_ratio
            )
        )
        if not native8:
            table["fp8"] = table["fp8_block"] = derive(table["bf16"], WEIGHT_ONLY)
    rule = "as nvfp4: same peak, nearly the same bytes" if native4 else WEIGHT_ONLY
    gemm["mxfp4"] = derive(gemm["nvfp4"], rule)
    experts.setdefault("nvfp4", derive(experts["mxfp4"], f"as mxfp4; {WEIGHT_ONLY}"))
    note = "fractions of H100: the A100 rows miss their own fit by over 35%"
    laws["mla_decode_attention"].setdefault(
        "bf16", derive(hopper["mla_decode_attention"]["bf16"], note)
    )
    for operator in ATTENTION:
        share = chip.peaks["bf16"] / chip.peaks.get("fp8", chip.peaks["bf16"])
        note = "as bf16: 16-bit arithmetic on an fp8 cache" if native8 else UNPACKED
        laws[operator].setdefault("fp8", derive(laws[operator]["bf16"], note, share))
    order = ("bf16", "fp8", "fp8_block", "int8", "nvfp4", "mxfp4")
    return {op: {d: table[d] for d in order if d in table} for op, table in laws.items()}


# Groups that reach less of the link do not use it: the tables of L40S have 20 of 32 GB/s between 2
# cards, 5 between 4 and 2 between 8 with NCCL, vLLM and SGLang 0.5.10 and 0.5.14 alike, but 20 GB/s
# between 4 and 8 with the kernels of SGLang 0.5.12, which ran on another server.
LEAST_OF_LINK = 0.2
SECOND_SERVER = {"l40s": ("SGLang_CustomAllReduce_graph", ("0.5.12",))}


def second_server(tables: Tables, links: Links) -> Links:
    """The collectives of a chip's other server: its all-reduce, and of the rest what reached the
    link; elsewhere a gather is half of the all-reduce, in latency and in what it moves."""
    source, versions = SECOND_SERVER[tables.chip.system]
    reduce = {n: tables.collective(("all_reduce",), n, source, versions) or {} for n in (2, 4, 8)}
    halves = {n: row | {"latency": float(f"{row['latency'] / 2:.3g}")} for n, row in reduce.items()}
    found: Links = {"all_reduce": reduce}
    for name in ("all_gather", "all_to_all"):
        reached = {n: row["fraction"] >= LEAST_OF_LINK for n, row in links[name].items()}
        found[name] = {n: links[name][n] if reached[n] else halves[n] for n in reached}
    return found


def measured_links(tables: Tables) -> Links:
    """Collective -> number of chips -> latency, fraction, ramp, error."""
    system = tables.chip.system
    graph = "nccl" if system in SECOND_SERVER else "graph|:TRTLLM$"
    links: Links = {"all_reduce": {}, "all_gather": {}, "all_to_all": {}}
    for n in (2, 4, 8):
        to_all = (tables.deepep() if n == 8 else None) or tables.collective(
            ("alltoall",), n, "nccl"
        )
        links["all_to_all"][n] = to_all or links["all_to_all"][4]
        if gather := tables.collective(("all_gather", "reduce_scatter"), n, "nccl"):
            links["all_gather"][n] = gather
        # between the trays of gb200 and gb300 only the MNNVL kernels of gb300 were measured
        trays = n == 8 and system in ("gb200", "gb300")
        source = Tables(tables.folder, CHIPS["gb300_nvl72"]) if trays else tables
        reduce = source.collective(("all_reduce",), n, "MNNVL_twoshot" if trays else graph)
        links["all_reduce"][n] = reduce or {}
    return links


class Class(NamedTuple):
    """Chips without kernel tables. `compute`: measured fractions of GEMMs by format, whose ratio to
    those of NVIDIA chips, or else `scale`, multiplies every other compute."""

    title: str
    source: str
    compute: Mapping[str, float] = MappingProxyType({})
    fixed: float | None = None
    scale: float | None = None


CLASSES = {
    name: Class(**of)
    for name, of in yaml.safe_load(
        Path(__file__).with_name("classes.yaml").read_text(encoding="utf-8")
    ).items()
}
# Assumed: streaming reaches 0.40 to 0.60 on MI300X (untuned copies, scalarlm.ghost.io, 2025), 0.68
# at 100 MB on TPU7x (a planning curve, accelerator-microbenchmarks system.py@6a306a8); nothing is
# known of the other vendors.
CAPPED = ("class_amd", "class_mi300x", "class_mi325x", "class_tpu")
# busbw of ml-engineering network/README.md@744d01e, MI300X: 47.671 of 64, 312.912 of 448 GB/s
AMD = "class_amd", "class_mi300x", "class_mi325x"
AMD_LINKS = {2: 0.745, 4: 0.721, 8: 0.698}
AMD_NOTE = (
    "fraction: MI300X all-reduce of 4 GiB, 47.671 of 64 GB/s between 2 chips, 312.912 of 448 "
    "between 8, 4 in the middle; latency: median of the NVLink chips"
)
AMD_REDUCE = (
    "2 and 4 chips fitted to vLLM's all-reduce on MI300X (github:ROCm/aiter pull 801, 4 KiB..512 "
    "MiB; github:vllm-project/vllm pull 19744, 2 KiB..16 MiB); 8: 312.912 of 448 GB/s at 4 GiB, "
    "latency in proportion"
)


def class_laws(name: str, chips: list[Laws]) -> Laws:
    """Median of the natively fitted laws; GEMM compute as measured, other compute in proportion."""
    _, source, compute, fixed, scale = CLASSES[name]
    out: Laws = {}
    for operator, dtype in ((op, d) for op, table in chips[0].items() for d in table):
        like = {"int8": "fp8"}.get(dtype, dtype)
        like = "nvfp4" if (operator, dtype) == ("gemm", "mxfp4") else like
        fitted = [c[operator][like] for c in chips if c[operator][like]["kind"] == "fitted"]
        kept = [law_ for law_ in fitted if not law_["note"].endswith((WEIGHT_ONLY, UNPACKED))]
        middle = {k: medians(law_[k] for law_ in kept) for k in ("compute", "memory", "fixed", "p")}
        note = f"median of {len(kept)} NVIDIA chips"
        out.setdefault(operator, {})[dtype] = derive(middle, note, kind="assumed")
    if not (compute or scale):
        return out
    reason = "the source's ratio" if scale else "bf16 GEMM compute here over there"
    scale = scale or compute["bf16"] / out["gemm"]["bf16"]["compute"]
    for table in out.values():
        for dtype, x in table.items():
            note = f"{x['note']}, compute times {scale:.3g} ({reason})"
            if name in CAPPED and x["memory"] > TOP_MEMORY:
                x = x | {"memory": TOP_MEMORY}
                note += f", memory at most {TOP_MEMORY:.2f}"
            table[dtype] = derive(x, note, scale, "assumed")
    note = f"compute{' and fixed' if fixed else ''}: {source}; the rest: median of NVIDIA chips"
    for dtype, value in compute.items():
        measured = {"compute": value, "kind": "derived", "note": note}
        out["gemm"][dtype] |= measured | ({"fixed": fixed} if fixed else {})
    return cdna3_laws(out) if name in CDNA3 else out


def class_links(name: str, links: list[Links]) -> Links:
    """Median over the chips with switched links."""
    out: Links = {}
    for op, n in ((op, n) for op, table in links[0].items() for n in table):
        rows = [link[op][n] for link in links if n in link[op]]
        row = {k: medians(row[k] for row in rows) for k in ("latency", "fraction", "ramp")}
        out.setdefault(op, {})[n] = row | ({"fraction": AMD_LINKS[n]} if name in AMD else {})
    if name in AMD:
        out["all_reduce"] = {n: out["all_reduce"][n] | x for n, x in cdna3_all_reduce().items()}
    return out


def medians(values) -> float:
    return float(f"{np.median(list(values)):.3g}")


def write(
    path: Path, head: dict, laws: Laws, links: Links, notes: dict, beside: Links | None = None
) -> None:
    """One efficiency file; `notes` has its source, and kind and note of each collective; `beside`
    are collectives of a server whose cards do not reach each other."""
    made_by = "Written by tools/fits/kernels.py; docs/efficiency.md says how."
    head = {"id": path.stem, **head, "source": notes["source"], "date": "2026-11-20"}
    slow = (beside, THROUGH_HOST) if beside else None
    text = efficiency_text(made_by, head, laws, PADDING_ROWS, links, notes, slow)
    path.write_text(text, encoding="utf-8")


THROUGH_HOST = (
    "of 32 GB/s per direction; NCCL, 8 KiB..512 MiB, on a server whose cards reach 20 GB/s in "
    "pairs, 5 between 4 and 2 between 8: no link of theirs, so no law of L40S"
)


SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0), measured kernel tables of NVIDIA GPUs"


def main(folder: str | Path, out_dir: str | Path) -> None:
    """Writes one efficiency file per chip and class of this module to `out_dir`."""
    tables = {name: Tables(Path(folder), chip) for name, chip in CHIPS.items()}
    laws = {name: measured_laws(table) for name, table in tables.items()}
    gemms = [table["gemm"] for table in laws.values() if "fp8" in table["gemm"]]
    ratio = float(np.median([gemm["fp8"]["compute"] / gemm["bf16"]["compute"] for gemm in gemms]))
    hopper = laws["h100_sxm"]
    laws = {name: complete(CHIPS[name], table, ratio, hopper) for name, table in laws.items()}
    links = {name: measured_links(table) for name, table in tables.items()}
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    for name, chip in CHIPS.items():
        divided = {dtype: f"{peak / 1e12:g} TFLOP/s" for dtype, peak in chip.peaks.items()}
        if "nvfp4" in divided:
            divided["mxfp4"] = divided["nvfp4"]
        divided["memory_bandwidth"] = f"{chip.bandwidth / 1e12:g} TB/s"
        head = {"title": f"{chip.title}, fitted to measured kernels", "divided_by": divided}
        notes = {"source": SOURCE, **chip.notes}
        beside = links[name] if chip.system in SECOND_SERVER else None
        used = second_server(tables[name], links[name]) if beside else links[name]
        write(out / f"{name}.yaml", head, laws[name], used, notes, beside)
    switched = [link for name, link in links.items() if CHIPS[name].link > 100e9]
    for name, (title, source, *_) in CLASSES.items():
        note = AMD_NOTE if name in AMD else "median of the NVLink chips"
        notes: dict = {"source": source} | dict.fromkeys(links["h100_sxm"], ("assumed", note))
        if name in AMD:
            notes["all_reduce"] = ("derived", AMD_REDUCE)
        head = {"title": f"{title}, not measured kernel by kernel"}
        class_ = class_laws(name, list(laws.values())), class_links(name, switched)
        write(out / f"{name}.yaml", head, *class_, notes)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
