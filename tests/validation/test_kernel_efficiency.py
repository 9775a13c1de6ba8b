"""The shipped kernel laws against measured kernels (tests/validation/data/README.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.blocks.moe import ROUTING_SKEW, busiest_rank, distinct_experts, most_distinct
from dse.data import hardware_dir
from dse.measure.laws import fit
from dse.physics.step import computed_rows
from dse.schema.dtypes import arithmetic
from dse.schema.efficiency import Collective, Efficiency, Law, load_efficiency
from tests.helpers import CHIPS as CHIP_IDS
from tests.helpers import machines
from tools.fits.kernels import BANDWIDTH, CAPPED, LINK, PEAK, TIMES, activations

DATA = Path(__file__).parent / "data"
FILES = sorted((hardware_dir() / "efficiency").glob("*.yaml"))
CHIPS = {path.stem: load_efficiency(path) for path in FILES}
DTYPE = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625}
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
    law, peak = chip.operators["gemm"][dtype], chip.peak_flops_per_s[arithmetic(dtype)]
    return seconds(law, 2.0 * m * n * k, moved, peak, chip.hbm_bytes_per_s)


def link_seconds(law: Collective, count: int, wire_s):
    latency, transfer = law.latency_s[count], wire_s / law.bandwidth_fraction[count]
    return latency + transfer + law.ramp[count] * np.sqrt(latency * transfer)


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
    law_flop = law_flop / file.peak_flops_per_s[arithmetic(dtype)]
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
        own = Law(row.eff_c, row.eff_b, row.t0_us * 1e-6, row.p, "fitted")
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
        *((chip, "fp8", 0.20) for chip in ("h100_sxm", "h200_sxm", "b200_sxm", "gb200_nvl72")),
        *((chip, "fp8_block", 0.20) for chip in ("h100_sxm", "h200_sxm", "b200_sxm")),
        ("b200_sxm", "nvfp4", 0.15),
        ("gb200_nvl72", "nvfp4", 0.15),
    ],
)
def test_rows_8_against_8192_low_precision(chip, dtype, limit):
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
    table = pd.read_csv(DATA / "all_reduce.csv")
    table = table[(table.chip == chip) & (table.num_gpus == count)]
    law = CHIPS[chip].all_reduce
    wire = 2 * (count - 1) / count * table.bytes / link
    off = (link_seconds(law, count, wire) / (table.latency_us * 1e-6) - 1).abs()
    assert off[table.bytes.between(16e3, 1.1e6)].median() < 0.20
    assert off[table.bytes.between(1.1e6, 6e7)].median() < 0.20
    assert off[table.bytes > 6e7].median() < 0.10


@pytest.mark.parametrize(("chip", "link"), [("h100_sxm", 450e9), ("b200_sxm", 900e9)])
def test_all_gather_and_reduce_scatter(chip, link):
    table = pd.read_csv(DATA / "gathers.csv").query("chip == @chip")
    took = link_seconds(CHIPS[chip].all_gather, 8, 7 / 8 * table.bytes / link)
    both = table[["all_gather_us", "reduce_scatter_us"]] * 1e-6
    off = np.abs(took.to_numpy()[:, None] / both.to_numpy() - 1)
    assert np.median(off) < 0.15
    assert off.max() < 0.50  # 16 MiB on B200


# DeepEP's low-latency kernels on nodes of 8 H100 or H200 with 50 GB/s a chip: nodes, latency in us
# and GB/s of bytes sent, means of dispatch and combine (alltoall_fit, sglang 0.5.6.post2)
DEEPEP = [(2, 22.6, 92.1), (4, 26.0, 62.0), (8, 27.2, 53.1)]


@pytest.mark.parametrize(("nodes", "us", "gigabytes_per_s"), DEEPEP)
def test_expert_dispatch_between_nodes(nodes, us, gigabytes_per_s):
    fabric, code = machines().fabric, CHIP_IDS.index("h100_sxm")
    network, hops = fabric.networks[0], int(np.log2(nodes))
    latency = fabric.all_to_all.latency_s[code, 3] + network.latency_s["all_to_all"][code, hops]
    rate = 1 / ((nodes - 1) / nodes * network.ring_s_per_byte["all_to_all"][code, hops])
    assert latency == pytest.approx(us * 1e-6, rel=0.25)
    assert rate == pytest.approx(gigabytes_per_s * 1e9, rel=0.10)


@pytest.mark.parametrize(
    ("rows", "step"), [(64, 1.042), (128, 1.077), (256, 1.136), (512, 1.122), (1024, 1.048)]
)
def test_one_more_row_opens_a_tile(rows, step):
    """t(rows + 1) / t(rows) of B200 bf16, medians of three backends (gemm_M_step)."""
    law, b200 = CHIPS["b200_sxm"].operators["gemm"]["bf16"], CHIPS["b200_sxm"]
    n, k = np.array([[4096, 4096], [8192, 8192], [7168, 16384], [16384, 5120], [2048, 4096]]).T
    took = []
    for m in (rows, rows + 1):
        flops = 2.0 * computed_rows(np.full(len(n), float(m))) * n * k
        moved = 2.0 * (n * k + m * k + m * n)
        took.append(seconds(law, flops, moved, b200.peak_flops_per_s["bf16"], b200.hbm_bytes_per_s))
    assert np.median(took[1] / took[0]) == pytest.approx(step, abs=0.05)


@pytest.mark.parametrize(
    ("chip", "dtype", "tokens", "us", "bw", "peak", "width"),
    [*pd.read_csv(DATA / "experts.csv").itertuples(index=False, name=None)],
)
def test_experts_from_half_a_token_to_thousands(chip, dtype, tokens, us, bw, peak, width):
    """Activations of `width` columns on a hidden size of 4,096."""
    file = CHIPS[chip]
    divided = file.peak_flops_per_s[arithmetic(dtype)]
    flops = peak * divided * us * 1e-6
    moved = bw * file.hbm_bytes_per_s * us * 1e-6 + 4 * flops / 6 * (1 / 4096 + 1 / width)
    padded = flops * (1 + 16 * (1 - np.exp(-tokens)) / tokens)
    law = file.operators["experts"][dtype]
    took = seconds(law, padded, moved, divided, file.hbm_bytes_per_s)
    assert took == pytest.approx(us * 1e-6, rel=0.20)


def test_skewed_routing_reads_fewer_experts_and_waits_for_the_busiest_rank():
    """One skew for both; ranks of about 4 and layers of about 160 experts are assumed."""
    file, law = CHIPS["h100_sxm"], CHIPS["h100_sxm"].operators["experts"]["fp8"]
    peak, bandwidth = file.peak_flops_per_s["fp8"], file.hbm_bytes_per_s
    mean, balanced, skewed, bw, flop = pd.read_csv(DATA / "routed_experts.csv").to_numpy().T
    flops, moved = flop * peak * balanced * 1e-6, bw * bandwidth * balanced * 1e-6
    experts, ranks = np.full(len(mean), 160.0), np.full(len(mean), 4.0)
    tokens = mean * 160 / 8
    off = {}
    for skew in (0.0, ROUTING_SKEW):
        distinct = distinct_experts(experts, np.full(len(mean), 8.0), tokens, skew) / experts
        even = distinct_experts(experts, np.full(len(mean), 8.0), tokens) / experts
        busiest = busiest_rank(mean * 40, ranks, experts, skew) / (mean * 40)
        active = 4 * flops / 6 * (1 / 4096 + 1 / 192) * busiest
        padded = flops * (busiest + 16 * distinct / mean)
        took = seconds(law, padded, moved * distinct / even + active, peak, bandwidth)
        off[skew] = np.median(np.abs(took / (skewed * 1e-6) - 1))
    assert off[ROUTING_SKEW] < 0.12
    assert off[ROUTING_SKEW] < 0.6 * off[0.0]


@pytest.mark.parametrize("tokens", [4, 16, 64, 256])
@pytest.mark.parametrize("ranks", [4, 8, 32])
def test_most_distinct_experts_of_a_rank_against_drawn_popularities(tokens, ranks):
    """Tokens choose 8 of 256 experts whose popularities are drawn from a gamma distribution of
    skew 1: the rank that touches most, of ranks with as many experts each."""
    rng = np.random.default_rng(5)
    popularity = rng.gamma(1.0, 1.0, (600, 256))
    chosen = rng.poisson(popularity / popularity.mean(axis=1, keepdims=True) * tokens / 32.0)
    touched = (chosen > 0).reshape(600, ranks, -1).sum(axis=2)
    one = np.ones(1)
    found = most_distinct(touched.mean() * one, ranks * one, 256 / ranks * one)
    assert found[0] == pytest.approx(touched.max(axis=1).mean(), rel=0.12)


@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5])
def test_distinct_experts_and_busiest_rank_against_drawn_popularities(skew):
    """512 tokens choose 8 of 256 experts whose popularities are drawn from a gamma distribution."""
    rng, shape = np.random.default_rng(3), skew**-2
    popularity = rng.gamma(shape, 1 / shape, (400, 256))
    chosen = rng.poisson(popularity / popularity.mean(axis=1, keepdims=True) * 16)
    one = np.ones(1)
    distinct = distinct_experts(256 * one, 8 * one, 512 * one, skew)
    assert distinct[0] == pytest.approx((chosen > 0).sum(axis=1).mean(), rel=0.05)
    for ranks in (8.0, 32.0):
        load = chosen.reshape(400, int(ranks), -1).sum(axis=2).max(axis=1).mean()
        busiest = busiest_rank(4096 / ranks * one, ranks * one, 256 * one, skew)
        assert busiest[0] == pytest.approx(load, rel=0.12)


def test_redundant_experts_halve_the_spread_of_the_load_at_a_third_of_the_experts():
    one = np.ones(1)
    mean = 1e6 * one  # chance does not matter
    alone = busiest_rank(mean, 32 * one, 256 * one, 1.0) / mean - 1
    copied = busiest_rank(mean, 32 * one, (256 + 9 * 256 / 3) * one, 1.0) / mean - 1
    assert copied[0] == pytest.approx(alone[0] / 2, rel=0.01)


@pytest.mark.parametrize("chip", CAPPED)
def test_classes_stay_within_the_bandwidth_that_streaming_reaches(chip):
    laws = [law for table in CHIPS[chip].operators.values() for law in table.values()]
    assert max(law.memory for law in laws) <= 0.80


def llama_70b_tp8_seconds(tokens: int, attention_s: float) -> float:
    """Kernels of Llama-3-70B on 8 H100: 80 layers of 8,192, 64 heads of 128, 8 KV heads, 28,672."""
    h100 = CHIPS["h100_sxm"]
    shapes = ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584))
    gemms = sum(gemm_seconds(h100, "bf16", tokens, n, k) for n, k in shapes)
    reduce = h100.all_reduce
    reduces = 2 * link_seconds(reduce, 8, 2 * 7 / 8 * tokens * 8192 * 2 / 450e9)
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
        every = {"bf16", "fp8", "fp8_block", "int8", "nvfp4", "mxfp4"}
        assert names == (attention if operator.endswith("attention") else every)
    file = CHIPS[chip]
    for link in (file.all_reduce, file.all_to_all, file.all_gather):
        direct = {2, 4, 8, 16, 512}  # links between LPUs, in a node and beyond
        assert set(link.latency_s) in ({2, 4, 8}, {2, 4}, direct)
        assert all(0 <= ramp <= 4 for ramp in link.ramp.values())


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
    truth = Law(0.7, 0.8, 5e-6, 2.0, "fitted")
    took = seconds(truth, flops, moved, 1e15, 3e12)
    took[:40] *= 3  # a tenth of the rows are off
    points = pd.DataFrame({"flops": flops, "bytes": moved, "seconds": took})
    found = fit(points, 1e15, 3e12)
    assert found["compute"] == pytest.approx(0.7, rel=0.03)
    assert found["memory"] == pytest.approx(0.8, rel=0.03)
    assert found["fixed"] == pytest.approx(5.0, rel=0.03)
    assert found["p"] == pytest.approx(2.0, rel=0.1)


def test_kernels_of_cdna3_take_what_amd_publishes():
    """MI300X: products of 1,024 rows and more within 10% in sum, experts from 1,024 tokens (512 and
    1,024 wide) within 25% each, the all-reduce of 16 KiB and more within 12% at the median; what a
    law adds to a kernel's own time is a few microseconds of these."""
    times, chip = pd.read_csv(TIMES), CHIPS["class_mi300x"]
    rows = times[(times.operator == "gemm") & (times.format == "fp8_block") & (times.rows >= 1024)]
    m, n, k = rows.rows, rows["columns"], rows.inner
    law = chip.operators["gemm"]["fp8_block"]
    took = seconds(law, 2.0 * m * n * k, n * k + m * k + 2.0 * m * n, PEAK, BANDWIDTH)
    assert took.sum() == pytest.approx(rows.microseconds.sum() * 1e-6, rel=0.1)
    rows = times[(times.operator == "experts") & (times.rows >= 1024) & (times["columns"] > 256)]
    weight, sent = rows.inner * rows["columns"], rows.rows * rows.chosen
    padded = 6.0 * weight * (sent + 16.0 * rows.experts)
    moved = 3.0 * weight * rows.experts + activations(
        6.0 * weight * sent, rows.inner, rows["columns"]
    )
    took = seconds(chip.operators["experts"]["fp8_block"], padded, moved, PEAK, BANDWIDTH)
    assert took.to_numpy() == pytest.approx(rows.microseconds.to_numpy() * 1e-6, rel=0.25)
    for count in (2, 4):
        rows = times[(times.operator == "all_reduce") & (times["columns"] == count)]
        rows = rows[rows.rows >= 16 * 1024]
        wire_s = rows.rows * 2.0 * (count - 1) / count / (LINK * (count - 1))
        took = link_seconds(chip.all_reduce, count, wire_s)
        assert np.median(np.abs(took / (rows.microseconds * 1e-6) - 1.0)) < 0.12
