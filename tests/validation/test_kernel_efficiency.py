"""The shipped kernel laws against measured kernels (tests/validation/data/README.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.data import hardware_dir
from dse.specs.efficiency import Efficiency, Law, load_efficiency
from dse.validation.kernel_tables import fit

DATA = Path(__file__).parent / "data"
FILES = sorted((hardware_dir() / "efficiency").glob("*.yaml"))
CHIPS = {path.stem: load_efficiency(path) for path in FILES}
DTYPE = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4"}
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
LAWS = [
    pytest.param(law, id=f"{chip}-{operator}-{dtype}")
    for chip, file in CHIPS.items()
    for operator, table in file.operators.items()
    for dtype, law in table.items()
]


def seconds(law: Law, flops, moved, peak: float, bandwidth: float):
    busy = (flops / (law.compute * peak)) ** law.p + (moved / (law.memory * bandwidth)) ** law.p
    return busy ** (1 / law.p) + law.fixed_s


def gemm_seconds(chip: Efficiency, dtype: str, m, n, k):
    moved = WEIGHT_BYTES[dtype] * (n * k + m * k) + 2 * m * n
    law, peak = chip.operators["gemm"][dtype], chip.peak_flops_per_s[dtype]
    return seconds(law, 2.0 * m * n * k, moved, peak, chip.hbm_bytes_per_s)


def row_ratio_errors(chip: str, dtype: str) -> pd.Series:
    """Law over measurement, less 1, of fraction(8,192 rows) / fraction(8 rows), by weight shape."""
    rows = pd.read_csv(DATA / "gemm_rows.csv")
    rows = rows[(rows.chip == chip) & (rows.dtype.map(DTYPE) == dtype)]
    rows["law_us"] = gemm_seconds(CHIPS[chip], dtype, rows.m, rows.n, rows.k) * 1e6
    miss = rows.assign(miss=rows.latency_us / rows.law_us).pivot_table(
        index=["n", "k"], columns="m", values="miss", aggfunc=lambda x: np.exp(np.log(x).mean())
    )
    return miss[8192] / miss[8] - 1


def bucket_ratio_errors(chip: str, dtype: str) -> np.ndarray:
    """As row_ratio_errors, from medians over shapes of about one weight size, two backends."""
    table = pd.read_csv(DATA / "gemm_buckets.csv")
    table = table[(table.chip == chip) & (table.dtype.map(DTYPE) == dtype)]
    middle_mib = {"(16.0, 64.0]": 36, "(64.0, 256.0]": 128, "(256.0, 1000000000.0]": 512}
    table["side"] = np.sqrt(
        table.weight_mib_range.map(middle_mib) * 2**20 / WEIGHT_BYTES[dtype]
    ).round()
    few, many = (table[table.m_range == name] for name in ("(1, 8]", "(4096, 8192]"))
    pairs = few.merge(many, on=["backend", "dtype", "side"], suffixes=("_few", "_many"))
    side, file = pairs.side, CHIPS[chip]
    law_bw = WEIGHT_BYTES[dtype] * (side * side + 8 * side) + 16 * side
    law_bw = law_bw / gemm_seconds(file, dtype, 8, side, side) / file.hbm_bytes_per_s
    law_flop = 2 * 8192 * side * side / gemm_seconds(file, dtype, 8192, side, side)
    law_flop = law_flop / file.peak_flops_per_s[dtype]
    return (law_flop / pairs.flop_frac_med_many / (law_bw / pairs.bw_frac_med_few) - 1).to_numpy()


@pytest.mark.parametrize("chip", ["a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm"])
def test_rows_8_against_8192_single_gemms(chip):
    errors = row_ratio_errors(chip, "bf16")
    assert len(errors) == 9
    assert errors.abs().median() < 0.15


@pytest.mark.parametrize(
    "chip", ["a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72", "l40s"]
)
def test_rows_8_against_8192_bucket_medians(chip):
    assert np.median(np.abs(bucket_ratio_errors(chip, "bf16"))) < 0.15


@pytest.mark.parametrize("chip", ["b300_sxm", "gb300_nvl72", "rtx_pro_6000"])
def test_rows_8_against_8192_per_backend_fits(chip):
    """No rows of 8 are at hand for these: each backend's own fit stands in for them."""
    fits = pd.read_csv(DATA / "gemm_fits.csv")
    file, errors = CHIPS[chip], []
    for row in fits[fits.chip == chip].itertuples():
        own = Law(row.eff_c, row.eff_b, row.t0_us * 1e-6, row.p, "fitted", "", None, None)
        for n, k in [(4096, 4096), (8192, 8192), (4096, 14336), (16384, 8192)]:
            miss = []
            for m in (8, 8192):
                work = 2.0 * m * n * k, 2.0 * (n * k + m * k + m * n)
                theirs = seconds(own, *work, file.peak_flops_per_s["bf16"], file.hbm_bytes_per_s)
                miss.append(theirs / gemm_seconds(file, "bf16", m, n, k))
            errors.append(abs(miss[1] / miss[0] - 1))
    assert len(errors) == 12
    assert np.median(errors) < 0.15


@pytest.mark.parametrize(
    ("chip", "dtype", "limit"),
    [
        ("h100_sxm", "fp8", 0.20),
        ("h200_sxm", "fp8", 0.20),
        ("b200_sxm", "fp8", 0.20),
        ("gb200_nvl72", "fp8", 0.20),
        ("b200_sxm", "nvfp4", 0.15),
        ("gb200_nvl72", "nvfp4", 0.15),
    ],
)
def test_rows_8_against_8192_low_precision(chip, dtype, limit):
    """Per-tensor and 128-block paths differ by more than 15% from one another."""
    assert np.median(np.abs(bucket_ratio_errors(chip, dtype))) < limit


@pytest.mark.parametrize("chip", ["h100_sxm", "h200_sxm", "b200_sxm"])
@pytest.mark.parametrize(
    ("kv_mib", "limit"), [("(16.0, 64.0]", 0.25), ("(1024.0, 1000000000.0]", 0.15)]
)
def test_decode_attention_share_of_bandwidth(chip, kv_mib, limit):
    table = pd.read_csv(DATA / "decode_attention.csv")
    table = table[(table.chip == chip) & (table.kv_mib_range == kv_mib)]
    file = CHIPS[chip]
    moved = table.bw_frac_med * file.hbm_bytes_per_s * table.latency_us_med * 1e-6
    flops = moved * table.heads_per_kv.map({"(0, 1]": 1, "(1, 4]": 3, "(4, 8]": 8})
    law, peak = file.operators["decode_attention"]["bf16"], file.peak_flops_per_s["bf16"]
    took = seconds(law, flops, moved, peak, file.hbm_bytes_per_s)
    share = moved / took / file.hbm_bytes_per_s
    assert np.median(np.abs(share / table.bw_frac_med - 1)) < limit


@pytest.mark.parametrize(("chip", "link"), [("h100_sxm", 450e9), ("b200_sxm", 900e9)])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_all_reduce_of_decode_and_of_prefill(chip, link, count):
    """Two constants cannot follow the change of algorithm at 8 chips: 33% there, else 20%."""
    table = pd.read_csv(DATA / "all_reduce.csv")
    table = table[(table.chip == chip) & (table.num_gpus == count)]
    law = CHIPS[chip].all_reduce
    wire = 2 * (count - 1) / count * table.bytes / link
    took = law.latency_s[count] + wire / law.bandwidth_fraction[count]
    off = (took / (table.latency_us * 1e-6) - 1).abs()
    limit = 0.33 if count == 8 else 0.20
    assert off[table.bytes.between(16e3, 1.1e6)].median() < limit
    assert off[table.bytes > 6e7].median() < limit


EXPERT_BUCKETS = [
    # chip, dtype, tokens an expert, us, fractions of bandwidth and of peak (medians of trtllm
    # 1.3.0rc20, balanced routing, at most 8 expert-parallel ranks), expert width on one chip
    ("h100_sxm", "bf16", 0.5, 173.3, 0.6798, 0.002284, 192),
    ("h100_sxm", "bf16", 5.66, 226.2, 0.6958, 0.0137, 192),
    ("h100_sxm", "bf16", 512, 779.6, 0.2759, 0.2651, 192),
    ("h100_sxm", "bf16", 2048, 1201, 0.1219, 0.6794, 2048),
    ("h100_sxm", "fp8", 0.5, 170.2, 0.6992, 0.002361, 192),
    ("h100_sxm", "fp8", 5.66, 260.4, 0.6843, 0.01387, 192),
    ("h100_sxm", "fp8", 512, 1243, 0.1497, 0.1562, 192),
    ("h100_sxm", "fp8", 2048, 1281, 0.07813, 0.2942, 2048),
]


@pytest.mark.parametrize(("chip", "dtype", "tokens", "us", "bw", "peak", "width"), EXPERT_BUCKETS)
def test_experts_from_half_a_token_to_thousands(chip, dtype, tokens, us, bw, peak, width):
    """fp8: 128-block kernels. Activations of `width` columns on a hidden size of 4,096."""
    file = CHIPS[chip]
    flops = peak * file.peak_flops_per_s[dtype] * us * 1e-6
    moved = bw * file.hbm_bytes_per_s * us * 1e-6 + 4 * flops / 6 * (1 / 4096 + 1 / width)
    padded = flops * (1 + 16 * (1 - np.exp(-tokens)) / tokens)
    law = file.operators["experts"][dtype]
    took = seconds(law, padded, moved, file.peak_flops_per_s[dtype], file.hbm_bytes_per_s)
    assert took == pytest.approx(us * 1e-6, rel=0.20)


@pytest.mark.parametrize("chip", ["class_amd", "class_mi300x", "class_mi325x", "class_tpu"])
def test_classes_stay_within_the_bandwidth_that_streaming_reaches(chip):
    laws = [law for table in CHIPS[chip].operators.values() for law in table.values()]
    assert max(law.memory for law in laws) <= 0.80


def llama_70b_tp8_seconds(tokens: int, attention_s: float) -> float:
    """Kernels of Llama-3-70B on 8 H100: 80 layers of 8,192, 64 heads of 128, 8 KV heads, 28,672."""
    h100 = CHIPS["h100_sxm"]
    shapes = ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584))
    gemms = sum(gemm_seconds(h100, "bf16", tokens, n, k) for n, k in shapes)
    reduce = h100.all_reduce
    wire = 2 * 7 / 8 * tokens * 8192 * 2 / 450e9
    reduces = 2 * (reduce.latency_s[8] + wire / reduce.bandwidth_fraction[8])
    # two norms, activation and rotary embedding: 3 us and a pass over their bytes each
    small = 4 * 3e-6 + tokens * 2 * (2 * 3 * 8192 + 3 * 3584) / (0.8 * 3.35e12)
    return 80 * (gemms + reduces + small + attention_s)


def test_llama_70b_decode_and_prefill_on_8_h100():
    """Measured kernels of three backends: 12 ms a step of 32 x 2,048, 640 ms for 8 x 2,048."""
    h100 = CHIPS["h100_sxm"]
    peak, bandwidth = h100.peak_flops_per_s["bf16"], h100.hbm_bytes_per_s
    cache = 32 * 2048 * 2 * 128 * 2.0
    decode = seconds(h100.operators["decode_attention"]["bf16"], 8 * cache, cache, peak, bandwidth)
    assert llama_70b_tp8_seconds(32, decode) == pytest.approx(12e-3, rel=0.25)
    flops, moved = 2 * 8 * 2048**2 * 8 * 128.0, 16384 * 18 * 128 * 2.0
    prefill = seconds(h100.operators["prefill_attention"]["bf16"], flops, moved, peak, bandwidth)
    assert llama_70b_tp8_seconds(16384, prefill) == pytest.approx(640e-3, rel=0.25)


@pytest.mark.parametrize("law", LAWS)
def test_law_is_physical_and_says_where_it_comes_from(law):
    assert 0 < law.compute <= 1
    assert 0 < law.memory <= 1
    assert 0 <= law.fixed_s < 300e-6
    assert 1 <= law.p <= 8
    assert law.note
    assert (law.error is not None) == (law.kind == "fitted")


@pytest.mark.parametrize("chip", CHIPS)
def test_every_file_answers_for_every_format_and_link(chip):
    formats = {name: set(table) for name, table in CHIPS[chip].operators.items()}
    for operator, names in formats.items():
        attention = {"bf16", "fp8"}
        every = {"bf16", "fp8", "int8", "nvfp4", "mxfp4"}
        assert names == (attention if operator.endswith("attention") else every)
    for link in (CHIPS[chip].all_reduce, CHIPS[chip].all_to_all):
        assert set(link.latency_s) == {2, 4, 8}


@given(
    st.sampled_from([param.values[0] for param in LAWS]),
    st.floats(1e6, 1e15),
    st.floats(1e3, 1e11),
    st.floats(1, 100),
)
def test_more_work_never_takes_less_time_nor_beats_the_roofline(law, flops, moved, factor):
    peak, bandwidth = 1e15, 3e12
    base = seconds(law, flops, moved, peak, bandwidth)
    assert base >= max(flops / peak, moved / bandwidth) * (1 - 1e-9)
    assert seconds(law, flops * factor, moved, peak, bandwidth) >= base * (1 - 1e-9)
    assert seconds(law, flops, moved * factor, peak, bandwidth) >= base * (1 - 1e-9)


def test_fit_finds_the_constants_that_made_the_points():
    rng = np.random.default_rng(1)
    flops, moved = 10 ** rng.uniform(7, 14, 400), 10 ** rng.uniform(4, 10, 400)
    truth = Law(0.7, 0.8, 5e-6, 2.0, "fitted", "", None, None)
    took = seconds(truth, flops, moved, 1e15, 3e12)
    took[:40] *= 3  # a tenth of the rows are off
    points = pd.DataFrame(
        {"flops": flops, "bytes": moved, "seconds": took, "rows": 1.0, "backend": "x",
         "version": "1", "measured": True, "miss": 0.0}
    )  # fmt: skip
    found = fit(points, 1e15, 3e12)
    assert found["compute"] == pytest.approx(0.7, rel=0.03)
    assert found["memory"] == pytest.approx(0.8, rel=0.03)
    assert found["fixed"] == pytest.approx(5.0, rel=0.03)
    assert found["p"] == pytest.approx(2.0, rel=0.1)
