"""Fits the kernel laws of `hardware/efficiency/` to measured kernel tables.

    python -m dse.validation.fit_kernels FOLDER OUT

FOLDER holds the condensed tables of aiconfigurator-core 0.12.0 (Apache-2.0) named below; OUT gets
one YAML file per chip or class, byte for byte the shipped ones. The law of every operator:

    seconds = ((flops / (compute * peak))^p + (bytes / (memory * bandwidth))^p)^(1/p) + fixed

A law is fitted to points pooled over serving backends, equal weight each. A point is measured (a
latency, or the median latency of a bucket), or condensed (a per-backend fit read on a grid of
shapes); a backend with both gives half its weight to each. docs/efficiency.md has the reasons.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

# Families of the tables' dtypes; w4a16 and w4a8 rows are divided by the 16-bit peak there.
DTYPE = {
    "bfloat16": "bf16", "half": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4",
    "w4a16_mxfp4": "w4a16", "w4a8_mxfp4_mxfp8": "mxfp4",
}  # fmt: skip
BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125, "w4a16": 0.53125}
PADDING_ROWS = 16
MAX_MISS_PCT = 35  # a per-backend fit that misses its own rows by more (median) is dropped
BLOCK_OVERHEAD = "vllm", "fp8_block"  # 77-390 us of overhead of that GEMM path
CURRENT = ("1.3.0rc20", "0.24.0", "0.5.14")  # trtllm, vllm, sglang; A100 has older rows only


class Chip(NamedTuple):
    """What the tables divided by: FLOP/s, bytes/s, bytes/s per direction. Weights of up to
    `cached` bytes stay in the cache from run to run of the benchmark, which serving does not see.
    """

    title: str
    system: str
    bandwidth: float
    link: float
    peaks: dict[str, float]
    cached: float


def _chip(title, system, bandwidth, link, *tflops, cached=0.0):
    peaks: dict[str, float] = {}
    peaks.update(zip(("bf16", "fp8", "nvfp4"), (t * 1e12 for t in tflops), strict=False))
    return Chip(f"NVIDIA {title}", system, bandwidth * 1e12, link * 1e9, peaks, cached)


CHIPS = {
    "a100_80_sxm": _chip("A100 SXM 80GB", "a100_sxm", 2.039, 300, 312),
    "h100_sxm": _chip("H100 SXM", "h100_sxm", 3.35, 450, 989, 1978),
    "h200_sxm": _chip("H200 SXM", "h200_sxm", 4.8, 450, 989, 1978),
    "b200_sxm": _chip("B200 SXM", "b200_sxm", 7.7, 900, 2250, 4500, 9000),
    "b300_sxm": _chip("B300 SXM", "b300_sxm", 7.75, 900, 2250, 4500, 14000),
    "gb200_nvl72": _chip("GB200 NVL72", "gb200", 8.0, 900, 2500, 5000, 10000),
    "gb300_nvl72": _chip("GB300 NVL72", "gb300", 8.0, 900, 2500, 5000, 15000),
    "l40s": _chip("L40S", "l40s", 0.864, 32, 362, 733, cached=96 * 2**20),
    "rtx_pro_6000": _chip("RTX PRO 6000", "rtx_pro_6000_server", 1.792, 64, 467.8, 935.6, 1871.2),
}


def law(flops, moved, peak, bandwidth, constants):
    """Seconds (n,) of the law in the module docstring; constants: compute, memory, fixed us, p."""
    compute, memory, fixed_us, p = constants
    parts = p * np.log(flops / (compute * peak)), p * np.log(moved / (memory * bandwidth))
    return np.exp(np.logaddexp(*parts) / p) + fixed_us * 1e-6


def fit(points: pd.DataFrame, peak: float, bandwidth: float) -> dict:
    """Least robust log error with compute, memory <= 1, fixed >= 0, 1 <= p <= 8.

    `error` is the weighted median over the points of |predicted / seconds - 1|, joined in
    quadrature with the median miss of the per-backend fit that a condensed point was read from.
    """
    flops, moved, seconds, miss = points[["flops", "bytes", "seconds", "miss"]].to_numpy(float).T
    kinds = points.groupby("backend").measured.transform("nunique")
    total = points.groupby(["backend", "measured"]).rows.transform("sum")
    weight = (points.rows / total / kinds).to_numpy(float)

    def predict(x):
        return law(flops, moved, peak, bandwidth, x)

    solutions = [
        least_squares(
            lambda x: np.sqrt(weight) * np.log(predict(x) / seconds),
            (0.5, 0.7, 8.0, p),
            bounds=((0.01, 0.01, 0, 1), (1, 1, 300, 8)),
            loss="soft_l1",
            f_scale=0.05 * np.sqrt(weight.mean()),
            x_scale=(0.5, 0.5, 5, 1),
        )
        for p in (1.2, 2.5, 5.0)
    ]
    best = min(solutions, key=lambda s: round(s.cost, 9)).x
    x = [float(f"{value:.3g}") for value in best]
    error = median(np.hypot(predict(x) / seconds - 1, miss), weight)
    keys = dict(zip(("compute", "memory", "fixed", "p"), x, strict=True))
    note = ", ".join(sorted(set(points.backend + " " + points.version)))
    return {**keys, "kind": "fitted", "error": round(error, 3), "note": note}


def median(values: np.ndarray, weight: np.ndarray) -> float:
    """Weighted median of (n,) values."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(share, share[-1] / 2)])


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
        peak, parts = peak or self.chip.peaks[dtype], []
        for row in fits[fits.med_abs_pct < MAX_MISS_PCT].itertuples():
            p = {"A": 50.0, "S": 1.0}.get(row.model[0]) or row.p
            shape = peak, self.chip.bandwidth, (row.eff_c, row.eff_b, row.t0_us, p)
            columns = {"flops": flops, "bytes": moved, "seconds": law(flops, moved, *shape),
                       "rows": row.n / len(flops), "backend": row.backend, "measured": False,
                       "version": row.version, "miss": row.med_abs_pct / 100}  # fmt: skip
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts) if parts else pd.DataFrame(columns=["flops", "miss"])

    def gemm(self, dtype: str) -> pd.DataFrame:
        """2mnk; weights, input and a 16-bit output. fp8: per-tensor and 128-block rows alike."""

        def usable(table):
            bad = (table.backend == BLOCK_OVERHEAD[0]) & (table.dtype == BLOCK_OVERHEAD[1])
            return table[(table.dtype.map(DTYPE) == dtype) & ~bad].copy()

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
        return pd.concat([self.measured(raw, raw.latency_us), grid])

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
        raw = raw[~((raw.system == "a100_sxm") & (raw.backend == "trtllm"))]
        raw = self.measured(raw, raw.latency_us_med)
        raw["bytes"] = raw.bw_frac_med * self.chip.bandwidth * raw.seconds
        raw["flops"] = 2 * raw.bytes / BYTES[dtype] * raw.heads_per_kv.map(group)
        return raw

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
        """6 H I operations a row, PADDING_ROWS more per expert; weights of distinct experts."""
        peak = self.chip.peaks.get(dtype, self.chip.peaks["bf16"])
        balanced = "power_law_1.01" if self.chip.system == "a100_sxm" else "balanced"
        raw, fits = self.read("moe_by_tokens_per_expert"), self.read("moe_fit")
        raw = raw[(raw.moe_dtype.map(DTYPE) == dtype) & (raw.distribution == balanced)]
        edges = raw.tokens_per_expert.str.extract(r"\((.*), (.*)\]").astype(float)
        mean = np.sqrt(edges[0].clip(lower=0.06) * edges[1].clip(upper=4096))
        raw = self.measured(raw, raw.latency_us_med, raw.n.astype(float))
        raw["bytes"] = raw.bw_frac_med * self.chip.bandwidth * raw.seconds
        raw["flops"] = raw.flop_frac_med * peak * raw.seconds
        raw["flops"] *= 1 - PADDING_ROWS * np.expm1(-mean) / mean
        # local experts, hidden size x intermediate size: gpt-oss, Qwen3, Mixtral, DeepSeek
        shapes = np.array([(128, 2880 * 2880), (128, 2048 * 768), (128, 4096 * 384),
                           (16, 4096 * 1536), (8, 4096 * 7168), (32, 7168 * 2048)])  # fmt: skip
        mean, local, weight = np.repeat(4.0 ** np.arange(-2, 6), 6), *np.tile(shapes.T, 8)
        distinct = -local * np.expm1(-mean)
        fits = fits[fits.model.str.startswith("S:") & (fits.distribution == balanced)]
        slow = (dtype == "w4a16") & fits.kernel.str.contains("sglang_fused_moe_triton")
        fits = fits[(fits.moe_dtype.map(DTYPE) == dtype) & ~slow]  # slow: unpacks, .24 of bandwidth
        moved = 3 * weight * distinct * BYTES[dtype]
        grid = self.condensed(fits, dtype, 6 * weight * local * mean, moved, peak)
        padded = 6 * weight * (local * mean + PADDING_ROWS * distinct)
        grid["flops"] = np.tile(padded, len(grid) // len(padded))
        return pd.concat([raw, grid])

    def collective(self, op: str, count: int, source: str) -> dict | None:
        """Laws of one collective between `count` chips, None where nothing was measured."""

        def usable(table):
            table = table[(table.op == op) & (table.num_gpus == count)]
            table = table[(table.dtype.map(DTYPE) == "bf16") & table.backend.str.contains(source)]
            old = ~table.version.isin(CURRENT) & (table.system != "a100_sxm")
            return table[~old | (table.backend == "nccl")]

        wire_s = {"all_reduce": 2, "alltoall": 1}[op] * (count - 1) / count / self.chip.link
        rows = usable(self.read("comm_points"))
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


def link_law(size, wire_s, seconds, miss=0.0) -> dict:
    """Constants of seconds = latency + wire_s / fraction, (n,) each, and their median error.

    Messages up to 1 MiB (decode), above 32 MiB (prefill) and between count one third each.
    """
    group = pd.Series(np.digitize(size, (1.1 * 2**20, 1.1 * 2**25)))
    weight = (1 / group.groupby(group).transform("size")).to_numpy()

    def predict(x):
        return x[0] * 1e-6 + wire_s / x[1]

    best = least_squares(
        lambda x: np.sqrt(weight) * np.log(predict(x) / seconds),
        (5.0, 0.6),
        bounds=((0, 0.01), (300, 1.2)),
        loss="soft_l1",
        f_scale=0.1 * np.sqrt(weight.mean()),
        x_scale=(5.0, 0.2),
    ).x
    latency, fraction = (float(f"{value:.3g}") for value in best)
    error = median(np.hypot(predict((latency, fraction)) / seconds - 1, miss), weight)
    return {"latency": latency, "fraction": fraction, "error": round(error, 3)}


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
WEIGHT_ONLY = "weight only: 16-bit arithmetic, compute is a fraction of the bf16 peak"
UNPACKED = "16-bit arithmetic on an fp8 cache, compute is a fraction of the bf16 peak"
Laws = dict[str, dict[str, dict]]
Links = dict[str, dict[int, dict]]


def measured_laws(tables: Tables) -> Laws:
    """Operator -> dtype -> law, for what the tables hold."""
    peaks, laws = tables.chip.peaks, {}
    dtypes = {"gemm": list(peaks), "experts": [*peaks, "mxfp4"]}
    for operator, names in OPERATORS.items():
        laws[operator] = {}
        for dtype in dtypes.get(operator, ["bf16", "fp8"]):
            unpacked = dtype == "mxfp4" and "nvfp4" not in peaks
            points = getattr(tables, operator)("w4a16" if unpacked else dtype)
            if points.empty:
                continue
            peak = peaks.get("nvfp4" if dtype == "mxfp4" else dtype, peaks["bf16"])
            row = fit(points, peak, tables.chip.bandwidth)
            row["note"] = f"{names}: {row['note']}"
            if dtype not in peaks and (unpacked or dtype == "fp8"):
                row["note"] += f"; {WEIGHT_ONLY if unpacked else UNPACKED}"
            laws[operator][dtype] = row
    return laws


def derive(law_: dict, note: str, compute: float = 1.0, kind: str = "derived") -> dict:
    """The same law under another name, its compute fraction times `compute`."""
    scaled = float(f"{min(1.0, law_['compute'] * compute):.3g}")
    kept = {k: law_[k] for k in ("memory", "fixed", "p")}
    return {"compute": scaled, **kept, "kind": kind, "note": note}


def complete(chip: Chip, laws: Laws, fp8_ratio: float, hopper_decode: dict) -> Laws:
    """Fills what was not measured by the rules of docs/efficiency.md."""
    gemm, experts = laws["gemm"], laws["experts"]
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
            table["fp8"] = derive(table["bf16"], WEIGHT_ONLY)
    rule = "as nvfp4: same peak, nearly the same bytes" if native4 else WEIGHT_ONLY
    gemm["mxfp4"] = derive(gemm["nvfp4"], rule)
    experts.setdefault("nvfp4", derive(experts["mxfp4"], f"as mxfp4; {WEIGHT_ONLY}"))
    note = "fractions of H100: the A100 rows miss their own fit by over 35%"
    laws["mla_decode_attention"].setdefault("bf16", derive(hopper_decode, note))
    for operator in ATTENTION:
        share = chip.peaks["bf16"] / chip.peaks.get("fp8", chip.peaks["bf16"])
        note = "as bf16: 16-bit arithmetic on an fp8 cache" if native8 else UNPACKED
        laws[operator].setdefault("fp8", derive(laws[operator]["bf16"], note, share))
    order = ("bf16", "fp8", "int8", "nvfp4", "mxfp4")
    return {op: {d: table[d] for d in order if d in table} for op, table in laws.items()}


def measured_links(tables: Tables) -> Links:
    """Collective -> number of chips -> latency, fraction, error."""
    system = tables.chip.system
    graph = "nccl" if system == "l40s" else "graph|:TRTLLM$"
    links: Links = {"all_reduce": {}, "all_to_all": {}}
    for n in (2, 4, 8):
        # between the trays of gb200 and gb300 only the MNNVL kernels of gb300 were measured
        trays = n == 8 and system in ("gb200", "gb300")
        source = Tables(tables.folder, CHIPS["gb300_nvl72"]) if trays else tables
        reduce = source.collective("all_reduce", n, "MNNVL_twoshot" if trays else graph)
        to_all = (tables.deepep() if n == 8 else None) or tables.collective("alltoall", n, "nccl")
        links["all_reduce"][n] = reduce or {}
        links["all_to_all"][n] = to_all or links["all_to_all"][4]
    return links


# bf16 GEMMs of vendors without kernel tables: compute fraction, fixed us, rows of measurements
CLASSES = {
    "class_gpu": ("any GPU without measurements", None, None, "median of the nine NVIDIA files"),
    "class_amd": (
        "AMD Instinct MI300X, MI325X, MI355X", 0.604, None,
        "median of 668.4/1300, 784.9/1300 and 1565/2500 TFLOP/s: best matmuls of ml-engineering "
        "compute/accelerator/README.md@744d01e, 2026-08-22",
    ),
    "class_tpu": (
        "Google TPU", 0.829, 1.62,
        "TPU7x cubes of accelerator-microbenchmarks Ironwood_Microbenchmarks_readme.md@1bd037eb^, "
        "2025-12: 956.38 of 1153.5 TFLOP/s at 32768, 2.59 TFLOP/s (1.62 us) at 128",
    ),
}  # fmt: skip
# busbw of ml-engineering network/README.md@744d01e, MI300X: 47.671 of 64, 312.912 of 448 GB/s
AMD_LINKS = {2: 0.745, 4: 0.721, 8: 0.698}
AMD_NOTE = (
    "fraction: MI300X all-reduce of 4 GiB, 47.671 of 64 GB/s between 2 chips, 312.912 of 448 "
    "between 8, 4 in the middle; latency: median of the NVLink chips"
)


def class_laws(name: str, chips: list[Laws]) -> Laws:
    """Median of the natively fitted laws; GEMM compute as measured, other compute in proportion."""
    _, compute, fixed, rows = CLASSES[name]
    out: Laws = {}
    for operator, dtype in ((op, d) for op, table in chips[0].items() for d in table):
        source = {"int8": "fp8"}.get(dtype, dtype)
        source = "nvfp4" if (operator, dtype) == ("gemm", "mxfp4") else source
        fitted = [c[operator][source] for c in chips if c[operator][source]["kind"] == "fitted"]
        kept = [law_ for law_ in fitted if not law_["note"].endswith((WEIGHT_ONLY, UNPACKED))]
        middle = {k: medians(law_[k] for law_ in kept) for k in ("compute", "memory", "fixed", "p")}
        note = f"median of {len(kept)} NVIDIA chips"
        out.setdefault(operator, {})[dtype] = derive(middle, note, kind="assumed")
    if compute:
        scale = compute / out["gemm"]["bf16"]["compute"]
        note = f", compute times {scale:.3g} (bf16 GEMM compute here over there)"
        out = {
            op: {d: derive(x, x["note"] + note, scale, "assumed") for d, x in table.items()}
            for op, table in out.items()
        }
        note = f"compute{' and fixed' if fixed else ''}: {rows}; the rest: median of NVIDIA chips"
        measured = {"compute": compute, "kind": "derived", "note": note}
        out["gemm"]["bf16"] |= measured | ({"fixed": fixed} if fixed else {})
    return out


def class_links(name: str, links: list[Links]) -> Links:
    """Median over the chips with switched links."""
    out: Links = {}
    for op, n in ((op, n) for op, table in links[0].items() for n in table):
        row = {k: medians(link[op][n][k] for link in links) for k in ("latency", "fraction")}
        out.setdefault(op, {})[n] = row | (
            {"fraction": AMD_LINKS[n]} if name == "class_amd" else {}
        )
    return out


def medians(values) -> float:
    return float(f"{np.median(list(values)):.3g}")


def write(path: Path, head: dict, laws: Laws, links: Links, notes: dict) -> None:
    """One efficiency file; `notes` has its source, and kind and note of each collective."""
    divided_by = head.get("divided_by", {})
    lines = ["# Written by dse/validation/fit_kernels.py; docs/efficiency.md says how."]
    lines += [
        f"id: {path.stem}",
        f"title: {head['title']}",
        *(["divided_by:"] if divided_by else []),
    ]
    lines += [f"  {key}: {value}" for key, value in divided_by.items()]
    lines += [f"source: {json.dumps(notes['source'])}", 'date: "2026-11-20"', "operators:"]
    for operator, table in laws.items():
        lines.append(f"  {operator}:")
        for dtype, x in table.items():
            error = f", error: {x['error']}" if "error" in x else ""
            lines.append(
                f"    {dtype}: {{compute: {x['compute']}, memory: {x['memory']}, "
                f"fixed: {x['fixed']} us, p: {x['p']}, kind: {x['kind']}{error}, "
                f"note: {json.dumps(x['note'])}}}"
            )
    lines.append(f"expert_padding_rows: {PADDING_ROWS}")
    for op, rows in links.items():
        latency = ", ".join(f"{row['latency']} us" for row in rows.values())
        fraction = ", ".join(str(row["fraction"]) for row in rows.values())
        errors = [row["error"] for row in rows.values() if "error" in row]
        error = f", error: {max(errors)}" if errors else ""
        lines.append(
            f"{op}: {{chips: [{', '.join(map(str, rows))}], latency: [{latency}], "
            f"bandwidth_fraction: [{fraction}], kind: {notes[op][0]}{error}, "
            f"note: {json.dumps(notes[op][1])}}}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def link_notes(name: str, chip: Chip) -> dict:
    """Kind and note of the two collectives of a chip, and the file's source."""
    per = f"of {chip.link / 1e9:g} GB/s per direction"
    reduce = f"{per}; vllm, sglang, trtllm under CUDA graphs; 8 KiB..512 MiB"
    to_all = f"{per}; NCCL, 8 KiB..512 MiB"
    if name == "l40s":
        reduce = f"{per}; NCCL (the custom kernels' rows are one measurement repeated)"
    if name in ("gb200_nvl72", "gb300_nvl72"):
        whose = "measured on gb300_nvl72" if name == "gb200_nvl72" else "as measured"
        reduce += f"; 8 chips: trtllm MNNVL two-shot, {whose}"
    if name == "gb300_nvl72":
        to_all += "; 8 chips: as 4"
    elif name in ("h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72"):
        to_all += "; 8 chips: DeepEP of sglang 0.5.12, bytes = tokens x top_k x hidden x element"
    return {
        "source": "aiconfigurator-core 0.12.0 (Apache-2.0), measured kernel tables of NVIDIA GPUs",
        "all_reduce": ("fitted", reduce),
        "all_to_all": ("fitted", to_all),
    }


def main(folder: str | Path, out_dir: str | Path) -> None:
    """Writes one efficiency file per chip and class of this module to `out_dir`."""
    tables = {name: Tables(Path(folder), chip) for name, chip in CHIPS.items()}
    laws = {name: measured_laws(table) for name, table in tables.items()}
    gemms = [table["gemm"] for table in laws.values() if "fp8" in table["gemm"]]
    ratio = float(np.median([gemm["fp8"]["compute"] / gemm["bf16"]["compute"] for gemm in gemms]))
    hopper = laws["h100_sxm"]["mla_decode_attention"]["bf16"]
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
        notes = link_notes(name, chip)
        write(out / f"{name}.yaml", head, laws[name], links[name], notes)
    switched = [link for name, link in links.items() if CHIPS[name].link > 100e9]
    for name, (title, _, _, rows) in CLASSES.items():
        note = AMD_NOTE if name == "class_amd" else "median of the NVLink chips"
        notes = {"source": rows, "all_reduce": ("assumed", note), "all_to_all": ("assumed", note)}
        head = {"title": f"{title}, not measured kernel by kernel"}
        class_ = class_laws(name, list(laws.values())), class_links(name, switched)
        write(out / f"{name}.yaml", head, *class_, notes)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
