"""Every file of `hardware/`: complete, consistent, sourced, and re-derived where possible."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import yaml

from dse.catalog import MEASUREMENTS, Catalog, catalog_digest, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError
from dse.schema.chip import DIMENSION, EXPECTED, ROOFLINE, Chip, load_chip
from dse.schema.efficiency import UNPACKED_EXPERTS, load_efficiency
from dse.schema.prices import load_prices, load_purchases
from dse.schema.system import ON_PCIE, TOPOLOGIES, System, load_system


def files(folder: str) -> list[Path]:
    return sorted((hardware_dir() / folder).glob("*.yaml"))


def named(path: Path) -> str:
    return path.stem


CHIPS = {path.stem: load_chip(path) for path in files("chips")}
SYSTEMS = {path.stem: load_system(path) for path in files("systems")}

# Clocks, widths of matrix units, ratios that are exceptions, published values: see the file.
PEAKS = yaml.safe_load((Path(__file__).parents[1] / "data/peaks.yaml").read_text("utf-8"))
FLOP_PER_CLOCK, TPU_WIDTH, PUBLISHED = (
    PEAKS[name] for name in ("flop_per_clock", "tpu_width", "published")
)
RATIO_EXCEPTIONS = {
    (chip, name): ratio
    for chips in PEAKS["ratios"].values()
    for chip, ratios in chips.items()
    for name, ratio in ratios.items()
}
# 16-bit peaks that nobody published as bf16: each note says from which figure they follow.
ASSUMED_BF16 = {"groq_lpu_v1", "groq3_lp30", "wse2", "wse3"}
# No bf16 of their own: they compute in the best format that they have (`sixteen_bits`), and of
# these two a relative says it.
OF_A_RELATIVE = {"m2_ultra", "m5", "h200_nvl"}
IN_ANOTHER = {
    chip.id
    for chip in CHIPS.values()
    if (peak := chip.figure("peak_bf16"))
    and (peak.note or "").endswith(("16-bit arithmetic", "both"))
}
TO_BF16 = {"fp8": 2.0, "int8": 2.0, "nvfp4": 4.0, "mxfp4": 4.0}
LINK_EXCEPTIONS = {
    "trn2_ultra64": "four links of a 4 x 4 torus and one of a ring of four instances",
}
MODELLED = {chip.id: chip for chip in CHIPS.values() if not chip.lacks(*ROOFLINE)}


@pytest.mark.parametrize(
    ("chip", "tflops", "why"),
    [
        ("v100_sxm2_32", 125.0, "fp16 is the chip's 16-bit arithmetic"),
        ("m4_max", 18.4, "fp16 is the chip's 16-bit arithmetic"),
        ("qualcomm_ai100_ultra", 290.0, "fp16 is the chip's 16-bit arithmetic"),
        ("jetson_agx_orin", 68.75, "half of int8"),
        ("dgx_spark", 125.0, "a quarter of 4 bits"),
    ],
)
def test_a_chip_without_bf16_computes_in_the_best_that_it_has(
    catalog: Catalog, chip: str, tflops: float, why: str
) -> None:
    """And says so: with what is assumed of it, and in the figure's own note."""
    one = catalog.chip(chip)
    peak = one.figure("peak_bf16")
    assert peak is not None
    assert (peak.value, peak.kind) == (pytest.approx(tflops * 1e12), "assumed")
    assert why in (peak.note or "")
    assert peak.source
    assert any(said.startswith("peak_bf16: ") for said in one.assumed)
    assert catalog.refusal(chip) is None
    assert {chip} <= IN_ANOTHER


def test_every_chip_is_there() -> None:
    assert len(CHIPS) >= 82
    vendors = {chip.vendor.split("/")[0] for chip in CHIPS.values()}
    assert {"NVIDIA", "AMD", "Google", "AWS", "Intel", "Groq", "Cerebras", "Apple"} <= vendors
    assert len(MODELLED) >= 53


@pytest.mark.parametrize("path", [*files("chips"), *files("systems")], ids=named)
def test_every_figure_says_where_it_comes_from(path: Path) -> None:
    entry = load_chip(path) if path.parent.name == "chips" else load_system(path)
    assert entry.id == path.stem
    others = entry.not_chosen if isinstance(entry, Chip) else ()
    for figure in (*entry.figures, *others):
        for one in (figure, *figure.alternatives):
            assert one.source.strip()
            assert one.date[:2] == "20"
            assert one.kind in {
                "spec",
                "measured",
                "claimed",
                "estimated",
                "assumed",
                "fitted",
                "derived",
            }
            assert one.kind != "assumed" or one.note
    assert len(entry.assumed) == sum(figure.kind == "assumed" for figure in entry.figures)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_a_chip_lists_what_it_lacks(chip: Chip) -> None:
    present = {figure.name for figure in chip.figures}
    expected = {name for name in EXPECTED if not (name[:4] == "sram" and chip.memory_is_sram)}
    assert set(chip.missing) == expected - present
    extra = {f"{m.kind} {name}" for m in chip.memories[1:] for name in ("capacity", "bandwidth")}
    assert present <= set(DIMENSION) | extra
    assert not present & {figure.name for figure in chip.not_chosen}


@pytest.mark.parametrize("chip", MODELLED.values(), ids=MODELLED)
def test_what_a_roofline_needs(chip: Chip) -> None:
    assert chip.memories[0].bytes == chip.capacity_bytes > 0
    assert chip.memories[0].bytes_per_s > 0
    assert chip.peak_flops_per_s["bf16"] > 0
    for name in ROOFLINE:
        figure = chip.figure(name)
        assert figure is not None
        known = {*ASSUMED_BF16, *OF_A_RELATIVE, *IN_ANOTHER}
        if (chip.id, name) not in {(one, "peak_bf16") for one in known}:
            assert figure.kind != "assumed", name


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_capacity_is_the_drivers_else_the_label(chip: Chip) -> None:
    label, driver = chip.figure("memory_capacity"), chip.figure("memory_capacity_driver_reported")
    if label is None:
        assert driver is None
        assert math.isnan(chip.capacity_bytes)
    elif driver is None:
        assert (chip.capacity_bytes, chip.capacity_kind) == (label.value, "vendor_label")
    else:
        assert (chip.capacity_bytes, chip.capacity_kind) == (driver.value, "driver_reported")
        assert driver.value == pytest.approx(label.value, rel=0.08)
        assert driver.kind == "measured"


@pytest.mark.parametrize("chip", MODELLED.values(), ids=MODELLED)
def test_peaks_are_dense(chip: Chip) -> None:
    """A sparse peak, twice the dense one, would break the ratio between the formats."""
    if chip.id in IN_ANOTHER:  # bf16 follows from one of them
        return
    bf16 = chip.peak_flops_per_s["bf16"]
    for dtype, ratio in TO_BF16.items():
        if dtype in chip.peak_flops_per_s:
            expected = RATIO_EXCEPTIONS.get((chip.id, dtype), ratio)
            assert chip.peak_flops_per_s[dtype] / bf16 == pytest.approx(expected, rel=0.05), dtype
    for name, ratio in (("peak_fp16", 1.0), ("peak_tf32", 0.5)):
        figure = chip.figure(name)
        if figure is not None:
            expected = RATIO_EXCEPTIONS.get((chip.id, name), ratio)
            assert figure.value / bf16 == pytest.approx(expected, rel=0.05), name


@pytest.mark.parametrize("chip", MODELLED.values(), ids=MODELLED)
def test_peaks_follow_from_clock_and_units(chip: Chip) -> None:
    if chip.id in FLOP_PER_CLOCK:
        assert chip.compute_units is not None
        assert chip.clock_hz is not None
        derived = chip.compute_units * chip.clock_hz * FLOP_PER_CLOCK[chip.id]
        assert chip.peak_flops_per_s["bf16"] == pytest.approx(derived, rel=0.02)
    elif chip.id not in PEAKS["not_derived"]:
        assert chip.compute_units is None or chip.clock_hz is None


@pytest.mark.parametrize("chip", [c for c in CHIPS if c.startswith("tpu")])
def test_the_peak_of_a_tpu_implies_a_clock_that_it_can_have(chip: str) -> None:
    (side, count), cores = TPU_WIDTH[chip], CHIPS[chip].figure("compute_units")
    assert cores is not None
    assert f"{side}x{side} x{count}" in str(cores.note)
    clock = CHIPS[chip].peak_flops_per_s["bf16"] / (2 * side**2 * count * cores.value)
    assert (0.9e9 < clock < 2.2e9) is (chip not in PEAKS["tpu_too_few_units"])


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_sizes_are_of_their_kind(chip: Chip) -> None:
    """A slipped prefix or a bit for a byte falls out of these ranges."""
    ranges = {
        "peak_bf16": (1e13, 2e16),
        "memory_capacity": (8e9, 1e12),
        "memory_bandwidth": (1e11, 3e13),
        "sram_capacity": (4e6, 1e9),
        "sram_bandwidth": (1e12, 1e14),
        "tdp": (50, 3000),
        "system_power": (100, 5000),
        "compute_units": (1, 1100),
        "clock": (5e8, 4e9),
        "host_link_bandwidth": (8e9, 1e12),
    }
    if chip.family == "hexagon":  # of phones
        ranges |= {"memory_bandwidth": (3e10, 3e11), "tdp": (2, 20)}
    if chip.memory_is_sram:
        ranges |= {"memory_capacity": (2e8, 5e10), "memory_bandwidth": (4e13, 3e16)}
        ranges |= {"compute_units": (1, 1e6), "tdp": (50, 3e4)}
    for name, (low, high) in ranges.items():
        figure = chip.figure(name)
        if figure is not None:
            assert low <= figure.value <= high, name
            for other in figure.alternatives:
                assert 0.2 < other.value / figure.value < 5, name


@pytest.mark.parametrize("chip", PUBLISHED)
def test_published_values(chip: str) -> None:
    teraflops, gigabytes, gigabytes_per_s = PUBLISHED[chip]
    assert CHIPS[chip].peak_flops_per_s["bf16"] == teraflops * 1e12
    assert CHIPS[chip].capacity_bytes == pytest.approx(gigabytes * 1e9, rel=1e-3)
    assert CHIPS[chip].memories[0].bytes_per_s == gigabytes_per_s * 1e9


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_levels_grow_and_links_add_up(system: System) -> None:
    sizes = [level.size or float("inf") for level in system.levels]
    assert sizes == sorted(set(sizes))
    assert len(system.levels) >= 2
    assert system.levels[-1].size is None
    for level in system.levels:
        assert level.topology in TOPOLOGIES
        assert 0 < level.latency_s < 1e-3
        assert 0 <= level.jitter_s < 1e-3
    for inner, outer in zip(system.levels, system.levels[1:], strict=False):
        assert inner.latency_s <= outer.latency_s
        known = not math.isnan(inner.bytes_per_s_per_direction + outer.bytes_per_s_per_direction)
        if inner.topology != "pcie" and known:  # a 400 Gb/s port is faster than PCIe Gen4 x16
            assert inner.bytes_per_s_per_direction > outer.bytes_per_s_per_direction


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_the_links_of_a_mesh_or_torus_add_up(system: System) -> None:
    """Google's per-chip figures exceed the sum of its links by 11%."""
    for level in system.levels:
        if level.topology in ("switched", *ON_PCIE):
            assert level.bytes_per_s_per_pair is None
            continue
        if system.id in LINK_EXCEPTIONS:
            assert level.bytes_per_s_per_direction == 5 * (level.bytes_per_s_per_pair or 0)
            continue
        assert level.bytes_per_s_per_pair is not None
        assert level.size is not None
        if level.topology == "dragonfly":  # its size does not say how many links a chip has
            number = level.bytes_per_s_per_direction / level.bytes_per_s_per_pair
            assert number == pytest.approx(round(number))
            continue
        links = {"ring": 2, "torus_2d": 4, "torus_3d": 6, "full_mesh": level.size - 1}
        total = level.bytes_per_s_per_pair * links[level.topology]
        tolerance = 0.01 if level.topology == "full_mesh" else 0.12
        assert total == pytest.approx(level.bytes_per_s_per_direction, rel=tolerance)


def test_every_system_serves_a_chip_and_every_chip_has_its_files() -> None:
    # The same boxes on another network: named by `dse scale --collectives` or a file of one's own.
    alone = {"hgx_b200_efa"}
    assert {chip.system for chip in CHIPS.values()} | alone == set(SYSTEMS)
    efficiencies = {path.stem for path in files("efficiency")}
    assert {chip.efficiency for chip in CHIPS.values()} <= efficiencies


@pytest.mark.parametrize("path", files("efficiency"), ids=named)
def test_every_efficiency_file(path: Path) -> None:
    efficiency = load_efficiency(path)
    assert efficiency.id == path.stem
    for operator, laws in efficiency.operators.items():
        for dtype, law in laws.items():
            assert law.kind == "fitted" or law.note or law.source != efficiency.source, (
                operator,
                dtype,
            )
            assert 0 <= law.fixed_s < 1e-3
    for collective in (efficiency.all_reduce, efficiency.all_to_all):
        assert list(collective.latency_s) == sorted(collective.latency_s)


@pytest.mark.parametrize("name", [path.stem for path in files("efficiency")])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all"])
def test_a_fitted_collective_uses_the_link_and_no_more_than_it(
    catalog: Catalog, name: str, collective: str
) -> None:
    """Below a fifth of the link data took another way; above it, the switches added (a reduction in
    the network sends (1 + 1 / n) for every 2 (n - 1) / n of a ring) or DeepEP sent a token with two
    experts on a rank once. What is beyond is kept beside, as `through_host`."""
    law = getattr(catalog.laws[name], collective)
    if law.kind != "fitted":
        return
    level = catalog.systems[catalog.chips[name].system].levels[0]
    for n, fraction in law.bandwidth_fraction.items():
        most = 1.0
        if collective == "all_reduce" and level.in_network_reduction:
            most = 2.0 * (n - 1) / (n + 1)
        if "DeepEP" in law.note and n == 8:
            most = 1.1
        assert 0.2 <= fraction <= max(most, 1.0), (name, collective, n)


def test_tables_that_no_link_explains_are_kept_beside(catalog: Catalog) -> None:
    beside = {name: laws for name, laws in catalog.laws.items() if laws.through_host}
    assert set(beside) == {"l40s"}
    law = beside["l40s"].through_host["all_reduce"]
    assert max(law.bandwidth_fraction[n] for n in (4, 8)) < 0.2
    assert "no link" in (law.note or "")


@pytest.mark.parametrize("chip", ["h100_pcie", "a100_80_pcie", "l40s", "l4", "rtx_pro_6000"])
def test_on_pcie_no_chip_has_the_collectives_of_nvlink(catalog: Catalog, chip: str) -> None:
    """H100 PCIe borrows its kernels from H100 SXM, whose all-reduce the switches help along: 1.11
    of its link."""
    law = catalog.fabric_laws(catalog.chip(chip)).all_reduce
    assert all(fraction <= 0.7 for fraction in law.bandwidth_fraction.values())
    measured = chip in ("l40s", "rtx_pro_6000")
    assert law.kind == ("fitted" if measured else "derived")


def test_four_bits_follow_the_arithmetic_of_the_chip_that_borrows() -> None:
    """Laws of a chip with 4-bit arithmetic reach a share of what 16 bits do on one without, and
    laws of 4-bit weights alone reach what fp8 does on a chip that computes in 4 bits."""
    catalog = load_catalog()
    blackwell, hopper = catalog.efficiencies["b200_sxm"], catalog.efficiencies["h100_sxm"]
    on_hopper = blackwell.of_chip(catalog.chips["h200_sxm"]).operators["experts"]
    wide = blackwell.operators["experts"]["bf16"].compute
    assert on_hopper["nvfp4"].compute == UNPACKED_EXPERTS * wide
    on_blackwell = hopper.of_chip(catalog.chips["b200_sxm"])
    for operator in ("gemm", "experts"):
        laws = on_blackwell.operators[operator]
        assert laws["nvfp4"].compute == laws["fp8"].compute


def test_no_shipped_figure_is_far_from_those_of_its_kind() -> None:
    catalog = load_catalog()
    known = (*catalog.chips.values(), *catalog.systems.values())
    assert [text for one in known for text in one.assumed if "is far from" in text] == []


# The catalog joins its files, and says what is wrong between them.


def test_the_catalog_joins_the_files(catalog: Catalog) -> None:
    assert set(catalog.chips) == set(CHIPS)
    for chip in catalog.chips.values():
        assert chip.system in catalog.systems
        efficiency = catalog.efficiencies[chip.efficiency]
        assert efficiency.hbm_bytes_per_s == pytest.approx(
            chip.memories[0].bytes_per_s, rel=0.05, nan_ok=True
        )
        for dtype, peak in efficiency.peak_flops_per_s.items():
            assert peak == pytest.approx(chip.peak_flops_per_s[dtype], rel=0.05), (chip.id, dtype)
    assert "generic" in catalog.backends
    assert load_catalog() is catalog


def test_an_unknown_chip_is_answered_with_near_spellings(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        catalog.chip("h100_smx")
    assert "did you mean h100_sxm?" in str(caught.value)
    assert "dse catalog chips list" in str(caught.value)
    assert "mi300x" not in str(caught.value)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(hardware_dir(), tmp_path / "hardware")


@pytest.mark.parametrize("field", ["system", "efficiency"])
def test_a_dangling_reference_is_refused(copied: Path, field: str) -> None:
    path = copied / "chips" / "h200_sxm.yaml"
    text = path.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"{field}:"))
    path.write_text(text.replace(line, f"{line}x"), encoding="utf-8")
    number = text.splitlines().index(line) + 1
    with pytest.raises(InputError) as caught:
        load_catalog(copied)
    assert f"{path}:{number}: {field}: read" in str(caught.value)
    assert "did you mean" in str(caught.value)


def test_the_digest_sees_every_byte_and_name(copied: Path, tmp_path: Path) -> None:
    digest = catalog_digest(copied)
    assert digest == catalog_digest(hardware_dir())
    prices = copied / "prices.csv"
    prices.write_bytes(prices.read_bytes() + b"\n")
    assert catalog_digest(copied) != digest
    prices.write_bytes(prices.read_bytes()[:-1])
    assert catalog_digest(copied) == digest
    prices.rename(copied / "prices2.csv")
    assert catalog_digest(copied) != digest
    prices.with_name("prices2.csv").rename(prices)
    (copied / MEASUREMENTS / "of_my_own.csv").write_text("model\n", encoding="utf-8")
    assert catalog_digest(copied) == digest


# The tables of prices: complete, plausible, of known chips.


QUICKSTART = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200_nvl72", "mi300x", "mi355x")


def test_every_price_row() -> None:
    table = load_prices()
    for row in table.rows:
        assert 0.05 < row.usd_per_chip_hour < 100, row
        assert row.date[:2] == "20", row
    keys = [(row.chip, row.basis) for row in table.rows]
    assert keys == sorted(keys)
    for basis in table.bases():
        for price in table.select(basis).values():
            assert min(r.usd_per_chip_hour for r in price.rows) <= price.usd_per_chip_hour
            assert price.newest_date in {row.date for row in price.rows}


def test_three_year_rental_covers_the_quickstart_and_shows_its_placeholders() -> None:
    prices = load_prices().select("rental_3yr")
    assert set(QUICKSTART) <= set(prices)
    assert prices["h100_sxm"].usd_per_chip_hour == 1.3
    assert prices["h100_sxm"].notes == ()
    for chip, predecessor in (("b300_sxm", "b200_sxm"), ("gb300_nvl72", "gb200_nvl72")):
        assert "1.2 times" in prices[chip].notes[0]
        expected = 1.2 * prices[predecessor].usd_per_chip_hour
        assert prices[chip].usd_per_chip_hour == pytest.approx(expected)


def test_every_purchase_row() -> None:
    rows = load_purchases()
    assert {row.chip for row in rows} <= set(CHIPS)
    for row in rows:
        assert 100 < row.usd_per_chip < 5e6, row
        assert row.date[:2] == "20", row
    assert [(row.chip, row.kind) for row in rows] == sorted((row.chip, row.kind) for row in rows)
