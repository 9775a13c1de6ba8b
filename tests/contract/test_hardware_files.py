"""Every file of `hardware/`: complete, consistent, sourced, and re-derived where possible."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dse.data import hardware_dir
from dse.errors import InputError
from dse.specs.catalog import Catalog, catalog_digest, load_catalog
from dse.specs.chip import DIMENSION, EXPECTED, Chip, Figure, load_chip
from dse.specs.efficiency import load_efficiency
from dse.specs.prices import load_prices
from dse.specs.system import TOPOLOGIES, System, load_system


def files(folder: str) -> list[Path]:
    return sorted((hardware_dir() / folder).glob("*.yaml"))


def named(path: Path) -> str:
    return path.stem


CHIPS = {path.stem: load_chip(path) for path in files("chips")}
SYSTEMS = {path.stem: load_system(path) for path in files("systems")}

# Dense FLOP a clock and compute unit of 16-bit matrix arithmetic, from the vendors' architecture
# papers: twice the fused multiply-adds of the matrix cores.
FLOP_PER_CLOCK = {
    "a100_80_sxm": 2048,
    "h100_sxm": 4096,
    "h200_sxm": 4096,
    "gb200_nvl72": 8192,
    "mi300x": 2048,
    "mi355x": 4096,
}
NOT_DERIVED = {
    "b200_sxm": "2250 TFLOP/s is a matrix clock of 1856 MHz; the listed 1965 MHz is the boost clock"
}
# Ratios of peaks that differ from two, and why.
RATIO_EXCEPTIONS = {
    ("tpu_v5p", "fp8"): (1.0, "the matrix unit runs fp8 at the bf16 rate"),
    ("b300_sxm", "int8"): (0.068, "Blackwell Ultra gave up int8 units for fp4"),
    ("b300_sxm", "nvfp4"): (6.0, "Blackwell Ultra has 1.5 times the fp4 of Blackwell"),
    ("b300_sxm", "mxfp4"): (6.0, "Blackwell Ultra has 1.5 times the fp4 of Blackwell"),
}
TO_BF16 = {"fp8": 2.0, "int8": 2.0, "nvfp4": 4.0, "mxfp4": 4.0}
QUICKSTART = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200_nvl72", "mi300x", "mi355x")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_the_first_chips_are_there() -> None:
    assert {
        "a100_80_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200_nvl72", "mi300x",
        "mi355x", "tpu_v5e", "tpu_v5p", "l40s", "rtx_pro_6000",
    } <= set(CHIPS)  # fmt: skip


@pytest.mark.parametrize("path", [*files("chips"), *files("systems")], ids=named)
def test_every_figure_says_where_it_comes_from(path: Path) -> None:
    entry = load_chip(path) if path.parent.name == "chips" else load_system(path)
    assert entry.id == path.stem
    for figure in entry.figures:
        for one in (figure, *figure.alternatives):
            assert one.source.strip()
            assert one.date[:2] == "20"
            assert one.kind in {
                "spec", "measured", "claimed", "estimated", "assumed", "fitted", "derived",
            }  # fmt: skip
            assert one.kind != "assumed" or one.note
    assert len(entry.assumed) == sum(figure.kind == "assumed" for figure in entry.figures)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_every_chip_has_what_a_roofline_needs(chip: Chip) -> None:
    chip.require("peak_bf16", "memory_capacity", "memory_bandwidth")
    assert chip.memories[0].bytes == chip.capacity_bytes > 0
    assert chip.memories[0].bytes_per_s > 0
    assert chip.peak_flops_per_s["bf16"] > 0
    present = {figure.name for figure in chip.figures}
    assert set(chip.missing) == set(EXPECTED) - present
    assert present <= set(DIMENSION)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_capacity_is_the_drivers_else_the_label(chip: Chip) -> None:
    label, driver = chip.figure("memory_capacity"), chip.figure("memory_capacity_driver_reported")
    assert label is not None
    if driver is None:
        assert (chip.capacity_bytes, chip.capacity_kind) == (label.value, "vendor_label")
    else:
        assert (chip.capacity_bytes, chip.capacity_kind) == (driver.value, "driver_reported")
        assert driver.value == pytest.approx(label.value, rel=0.08)
        assert driver.kind == "measured"


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_peaks_are_dense(chip: Chip) -> None:
    """A sparse peak, twice the dense one, would break the ratio between the formats."""
    bf16 = chip.peak_flops_per_s["bf16"]
    for dtype, ratio in TO_BF16.items():
        if dtype in chip.peak_flops_per_s:
            expected, _ = RATIO_EXCEPTIONS.get((chip.id, dtype), (ratio, ""))
            assert chip.peak_flops_per_s[dtype] / bf16 == pytest.approx(expected, rel=0.05), dtype
    for name, ratio in (("peak_fp16", 1.0), ("peak_tf32", 0.5)):
        figure = chip.figure(name)
        if figure is not None:
            assert figure.value / bf16 == pytest.approx(ratio, rel=0.05), name


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_peaks_follow_from_clock_and_units(chip: Chip) -> None:
    if chip.id in FLOP_PER_CLOCK:
        assert chip.compute_units is not None
        assert chip.clock_hz is not None
        derived = chip.compute_units * chip.clock_hz * FLOP_PER_CLOCK[chip.id]
        assert chip.peak_flops_per_s["bf16"] == pytest.approx(derived, rel=0.02)
    elif chip.id not in NOT_DERIVED:
        assert chip.compute_units is None or chip.clock_hz is None


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_sizes_are_of_their_kind(chip: Chip) -> None:
    """A slipped prefix or a bit for a byte falls out of these ranges."""
    ranges = {
        "peak_bf16": (1e13, 2e16), "memory_capacity": (8e9, 1e12), "memory_bandwidth": (1e11, 3e13),
        "sram_capacity": (4e6, 1e9), "sram_bandwidth": (1e12, 1e14), "tdp": (50, 3000),
        "system_power": (100, 5000), "compute_units": (1, 1000), "clock": (5e8, 4e9),
        "host_link_bandwidth": (8e9, 1e12),
    }  # fmt: skip
    for name, (low, high) in ranges.items():
        figure = chip.figure(name)
        if figure is not None:
            assert low <= figure.value <= high, name
            for other in figure.alternatives:
                assert 0.2 < other.value / figure.value < 5, name


@pytest.mark.parametrize(
    ("chip", "bf16", "gigabytes", "bytes_per_s"),
    [
        ("a100_80_sxm", 312e12, 80, 2.039e12),
        ("h100_sxm", 989e12, 80, 3.35e12),
        ("h200_sxm", 989e12, 141, 4.8e12),
        ("b200_sxm", 2250e12, 192.27, 8e12),
        ("b300_sxm", 2250e12, 288.4, 8e12),
        ("gb200_nvl72", 2500e12, 198.67, 8e12),
        ("mi300x", 1307e12, 192, 5.3e12),
        ("mi355x", 2500e12, 288, 8e12),
        ("tpu_v5e", 197e12, 16, 819e9),
        ("tpu_v5p", 459e12, 102.0, 2.765e12),
        ("l40s", 362e12, 48.31, 864e9),
        ("rtx_pro_6000", 467.8e12, 102.64, 1.792e12),
    ],
)
def test_published_values(chip: str, bf16: float, gigabytes: float, bytes_per_s: float) -> None:
    assert CHIPS[chip].peak_flops_per_s["bf16"] == bf16
    assert CHIPS[chip].capacity_bytes == pytest.approx(gigabytes * 1e9, rel=1e-3)
    assert CHIPS[chip].memories[0].bytes_per_s == bytes_per_s


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
        if inner.topology != "pcie":  # a 400 Gb/s port is faster than PCIe Gen4 x16
            assert inner.bytes_per_s_per_direction > outer.bytes_per_s_per_direction


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_the_links_of_a_mesh_or_torus_add_up(system: System) -> None:
    """Google's per-chip figures exceed the sum of its links by 11%."""
    for level in system.levels:
        if level.topology in ("switched", "pcie"):
            assert level.bytes_per_s_per_pair is None
            continue
        assert level.bytes_per_s_per_pair is not None
        assert level.size is not None
        links = {"ring": 2, "torus_2d": 4, "torus_3d": 6, "full_mesh": level.size - 1}
        total = level.bytes_per_s_per_pair * links[level.topology]
        tolerance = 0.01 if level.topology == "full_mesh" else 0.12
        assert total == pytest.approx(level.bytes_per_s_per_direction, rel=tolerance)


def test_every_system_serves_a_chip_and_every_chip_has_its_files() -> None:
    assert {chip.system for chip in CHIPS.values()} == set(SYSTEMS)
    efficiencies = {path.stem for path in files("efficiency")}
    assert {chip.efficiency for chip in CHIPS.values()} <= efficiencies


@pytest.mark.parametrize("path", files("efficiency"), ids=named)
def test_every_efficiency_file(path: Path) -> None:
    efficiency = load_efficiency(path)
    assert efficiency.id == path.stem
    for operator, laws in efficiency.operators.items():
        for dtype, law in laws.items():
            assert law.kind == "fitted" or law.note or law.source != efficiency.source, (
                operator, dtype,
            )  # fmt: skip
            assert 0 <= law.fixed_s < 1e-3
    for collective in (efficiency.all_reduce, efficiency.all_to_all):
        assert list(collective.latency_s) == sorted(collective.latency_s)


def test_the_catalog_joins_the_files(catalog: Catalog) -> None:
    assert set(catalog.chips) == set(CHIPS)
    for chip in catalog.chips.values():
        assert chip.system in catalog.systems
        efficiency = catalog.efficiencies[chip.efficiency]
        assert efficiency.hbm_bytes_per_s == pytest.approx(chip.memories[0].bytes_per_s, rel=0.05)
        for dtype, peak in efficiency.peak_flops_per_s.items():
            assert peak == pytest.approx(chip.peak_flops_per_s[dtype], rel=0.05), (chip.id, dtype)
    assert "generic" in catalog.backends
    assert load_catalog() is catalog


def test_an_unknown_chip_is_answered_with_near_spellings(catalog: Catalog) -> None:
    with pytest.raises(InputError) as caught:
        catalog.chip("h100_smx")
    assert "did you mean h100_sxm?" in str(caught.value)
    assert "mi300x" in str(caught.value)


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


def test_a_superseded_price_is_kept_and_not_used() -> None:
    table = load_prices()
    aws = [row for row in table.rows if row.chip == "h100_sxm" and "p5.48xlarge" in row.provider]
    assert {row.usd_per_chip_hour for row in aws} == {12.2875, 10.0775, 6.88}
    used = table.select("on_demand")["h100_sxm"].rows
    assert {row.usd_per_chip_hour for row in aws} & {row.usd_per_chip_hour for row in used} == {
        6.88
    }


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(hardware_dir(), tmp_path / "hardware")


def test_a_chip_of_the_users_own(copied: Path, tmp_path: Path) -> None:
    text = (copied / "chips" / "h100_sxm.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("id: h100_sxm", "id: mine"), encoding="utf-8")
    assert load_catalog(extra_chip_files=[mine]).chip("mine").capacity_bytes == 80e9
    assert "mine" not in load_catalog().chips
    mine.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"mine\.yaml: id: 'h100_sxm' is the id of .* too"):
        load_catalog(copied, [mine])


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


def test_figures_keep_the_vendors_words_and_the_conflicts() -> None:
    figure: Figure | None = CHIPS["b200_sxm"].figure("memory_capacity")
    assert figure is not None
    assert figure.text == "180 GB"
    assert {other.text for other in figure.alternatives} == {"180 GiB", "192 GB"}
    bandwidth = CHIPS["b200_sxm"].figure("memory_bandwidth")
    assert bandwidth is not None
    assert 7.7e12 in {other.value for other in bandwidth.alternatives}
