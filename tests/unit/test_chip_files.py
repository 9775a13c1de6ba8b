"""Chips that lack a figure, chips of a measured family, conflicts, and a chip of the user's own."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import dse
from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.errors import InputError, InputErrors
from dse.physics.machines import KINDS, compile_machines
from dse.physics.workload import Workload
from dse.questions.estimate.point import Estimate, estimate
from dse.schema.chip import ROOFLINE
from dse.schema.dtypes import CODE
from dse.schema.model_catalog import resolve_model
from dse.schema.own_chip import read_own_chip, template
from dse.schema.study import load_study, shipped_spaces
from tests.cli.conftest import SHORT
from tests.helpers_files import mistakes, refusal, write

LINKS = "system: {chips: 8, bandwidth_per_direction: 450 GB/s, scale_out_bandwidth: 50 GB/s}\n"
PRICE = "prices: {rental_3yr: 1.5 USD/h}\n"
MINE = "my_chip.yaml"


def one_point(catalog: Catalog, chip: str, **deployment: float) -> Estimate:
    load = Workload.of(1024, 256, "continuous", catalog.backends["generic"])
    return estimate(catalog, resolve_model("llama-3-8b"), chip, load, deployment)


@pytest.mark.parametrize(
    ("chip", "figure"),
    [
        ("crescent_island", "peak_bf16"),
        ("graphcore_bow", "memory_bandwidth"),
        ("etched_sohu", "memory_bandwidth"),
        ("qualcomm_ai200", "peak_bf16"),
    ],
)
def test_a_chip_without_a_figure_is_refused_by_name(
    catalog: Catalog, chip: str, figure: str
) -> None:
    message = str(refusal(one_point, catalog, chip))
    assert f"{chip} has no " in message
    assert figure in message
    assert "a chip file of yours with that figure" in message
    with pytest.raises(InputError, match=f"{chip} has no"):
        compile_machines(catalog, [chip])


def test_a_link_is_missed_only_where_it_is_needed(catalog: Catalog) -> None:
    alone, domain = one_point(catalog, "h200_nvl"), one_point(catalog, "mi350x", tensor_parallel=8)
    for answer in (alone, domain):
        assert all(math.isfinite(answer.metrics.values[m][0]) for m in ("tpot_s", "ttft_s"))
    replicas = one_point(catalog, "h200_nvl", replicas=4)
    assert replicas.metrics.values["chips"][0] == 4
    with pytest.raises(InputError, match=r"h200_nvl has no bandwidth_per_direction of scale-out"):
        one_point(catalog, "h200_nvl", tensor_parallel=2)
    with pytest.raises(InputError, match=r"mi350x .* which an instance of 16 chips needs"):
        one_point(catalog, "mi350x", tensor_parallel=8, pipeline_parallel=2)
    with pytest.raises(InputError, match="sn40l has no bandwidth_per_direction of links"):
        one_point(catalog, "sn40l", tensor_parallel=2)


def test_every_chip_is_either_estimated_or_refused(catalog: Catalog) -> None:
    for chip in catalog.chips:
        if catalog.refusal(chip) is None:
            values = one_point(catalog, chip).metrics.values
            assert 0 < values["tpot_s"][0] < 1, chip
            assert values["tpot_s"][0] > values["latency_floor_s"][0], chip
        else:
            assert catalog.chips[chip].lacks(*ROOFLINE)


@pytest.mark.parametrize(
    ("chip", "file", "kind"),
    [
        ("h100_sxm", "h100_sxm", "fitted"),
        ("gb300_nvl72", "gb300_nvl72", "fitted"),
        ("h100_pcie", "h100_sxm:h100_pcie", "derived"),
        ("h20", "h100_sxm:h20", "derived"),
        ("rtx5090", "rtx_pro_6000:rtx5090", "derived"),
        ("a100_40_sxm", "a100_80_sxm:a100_40_sxm", "derived"),
        ("gaudi3", "class_gaudi:gaudi3", "assumed"),
        ("vr200_nvl72", "class_gpu:vr200_nvl72", "assumed"),
    ],
)
def test_kernels_of_another_chip_are_derived(
    catalog: Catalog, chip: str, file: str, kind: str
) -> None:
    laws = catalog.efficiencies[catalog.chips[chip].efficiency]
    assert laws.id == file
    if kind == "derived":
        kinds = {law.kind for group in laws.operators.values() for law in group.values()}
        assert kinds == {"derived"}
        assert {laws.all_reduce.kind, laws.all_to_all.kind} == {"derived"}
    machines = compile_machines(catalog, [chip])
    assert KINDS[machines.law_kind[0, CODE["bf16"]]] == kind
    bandwidth = catalog.chips[chip].memories[0].bytes_per_s
    assert 1 / machines.laws["gemm"].s_per_byte.max() <= bandwidth
    answer = one_point(catalog, chip)
    assert answer.as_json()["provenance"]["tpot_s"] == kind
    assert any("never measured" in text for text in answer.assumed) is (kind != "fitted")


def test_a_relative_scales_with_its_own_figures(catalog: Catalog) -> None:
    """The laws of H100 on H20: the same fractions of 4 TB/s and 148 TFLOP/s."""
    on = compile_machines(catalog, ["h100_pcie", "h20"])
    gemm, bf16 = on.laws["gemm"], CODE["bf16"]
    np.testing.assert_allclose(
        gemm.s_per_flop[0, bf16] / gemm.s_per_flop[1, bf16], 148 / 756, rtol=1e-12
    )
    np.testing.assert_allclose(
        gemm.s_per_byte[0, bf16] / gemm.s_per_byte[1, bf16], 4 / 2, rtol=1e-12
    )


# Figures on which published sources disagree: (chip, figure, chosen, values of the others).
CONFLICTS = [
    ("b300_sxm", "peak_int8", 153.5e12, {4500e12, 150e12, 319e12}),
    ("gb300_nvl72", "peak_int8", 165e12, {5000e12}),
    ("b300_sxm", "peak_nvfp4", 13.5e15, {12.6e15, 14e15, 15e15}),
    ("b300_sxm", "peak_bf16", 2250e12, {3500e12}),
    ("b200_sxm", "memory_bandwidth", 8e12, {7.7e12, 9e12}),
    ("gb200_nvl72", "memory_bandwidth", 8e12, {7.7e12, 13.4e12}),
    ("b200_sxm", "bandwidth_per_direction", 50e9, {100e9}),
    ("gb200_nvl72", "bandwidth_per_direction", 50e9, {100e9}),
    ("b300_sxm", "host_link_bandwidth", 128e9, {63e9}),
    ("b200_sxm", "host_link_bandwidth", 63e9, {128e9}),
    ("mi355x", "bandwidth_per_direction", 535.5e9, {576e9}),
    ("mi355x", "peak_bf16", 2500e12, {2516e12}),
    ("mi455x", "peak_fp8", 10e15, {20.1e15}),
    ("mi455x", "peak_mxfp4", 20e15, {40.3e15}),
    ("mi455x", "memory_bandwidth", 23.3e12, {19.6e12}),
    ("vr200_nvl72", "peak_nvfp4", 35e15, {50e15}),
    ("tpu_8t", "peak_mxfp4", 12.6e15, {11.9538e15}),
    ("tpu_8t", "memory_capacity", 216e9, {231e9}),
    ("tpu_8i", "memory_capacity", 288e9, {309e9}),
    ("tpu_v3", "peak_bf16", 123e12, {105e12, 140e12}),
    ("tpu_v5p", "bandwidth_per_direction", 600e9, {540e9}),
    ("tpu_v4", "bandwidth_per_direction", 270e9, {300e9}),
    ("trn3_gen1", "bandwidth_per_direction", 1.28e12, {1024 * 2**30, 352e9}),
    ("trn3_gen2", "memory_bandwidth", 4.9e12, {4.7e12}),
    ("gaudi3", "peak_bf16", 1677e12, {1835e12, 1856e12}),
    ("gaudi3", "tdp", 900, {600}),
    ("ascend_910c_cm384", "peak_bf16", 752e12, {780e12, 800e12}),
    ("ascend_910c_cm384", "peak_int8", 1504e12, {1054e12}),
    ("ascend_950dt", "memory_capacity", 96e9, {144e9}),
    ("rtx5090", "peak_bf16", 209.6e12, {254e12}),
    ("groq_lpu_v1", "tdp", 215, {300}),
]


@pytest.mark.parametrize(("chip", "name", "chosen", "others"), CONFLICTS)
def test_a_conflict_stands_beside_the_choice(
    catalog: Catalog, chip: str, name: str, chosen: float, others: set[float]
) -> None:
    spec = catalog.chips[chip]
    figures = [*spec.figures, *catalog.systems[spec.system].figures]
    figure = next(f for f in figures if f.name.endswith(name) and f.value == pytest.approx(chosen))
    found = [other.value for other in figure.alternatives]
    for value in others:
        assert any(one == pytest.approx(value) for one in found), (value, found)


def test_conflicting_prices_are_kept_and_not_used(catalog: Catalog) -> None:
    for chip, usd in (("h100_sxm", 12.2875), ("h100_sxm", 10.0775), ("tpu_v5p", 0.48)):
        row = next(r for r in catalog.prices.rows if (r.chip, r.usd_per_chip_hour) == (chip, usd))
        assert row.note.startswith("superseded")
        assert row not in catalog.prices.select(row.basis)[chip].rows


def test_memory_on_the_chip_is_the_device_memory(catalog: Catalog) -> None:
    groq, corsair = catalog.chips["groq_lpu_v1"], catalog.chips["dmatrix_corsair"]
    assert (groq.memories[0].kind, groq.capacity_bytes) == ("SRAM", 230e6)
    assert groq.memories[0].bytes_per_s == 80e12
    assert not {"sram_capacity", "sram_bandwidth"} & set(groq.missing)
    assert [memory.kind for memory in corsair.memories] == ["SRAM", "LPDDR5X"]
    sambanova = catalog.chips["sn40l"].memories
    assert [memory.bytes for memory in sambanova] == [64e9, 1.5e12]


def test_six_lines_make_a_chip(tmp_path: Path) -> None:
    catalog = load_catalog(chips=[write(tmp_path, SHORT, MINE)])
    chip = catalog.chip("my_chip")
    assert (chip.capacity_bytes, chip.memories[0].bytes_per_s) == (96e9, 4e12)
    assert {f.kind for f in chip.figures} == {"assumed"}
    assert {f.source for f in chip.figures} == {str(tmp_path / "my_chip.yaml")}
    assert catalog.systems[chip.system].id == "single_chip"
    answer = one_point(catalog, "my_chip").as_json()
    assert answer["provenance"]["tpot_s"] == "assumed"
    assert answer["usd_per_million_total_tokens"] is None
    assert any("names no source" in text for text in answer["assumed"])
    with pytest.raises(InputError, match="an instance of 2 chips needs"):
        one_point(catalog, "my_chip", tensor_parallel=2)
    assert "my_chip" not in load_catalog().chips


def test_a_chip_with_links_a_price_and_measured_relatives(tmp_path: Path) -> None:
    text = SHORT.replace("class_gpu", "h100_sxm") + LINKS + PRICE
    source = "peak_fp8: {value: 2 PFLOP/s, kind: claimed, source: slides, date: 2026-11}\n"
    catalog = load_catalog(chips=[write(tmp_path, text + source, MINE)])
    chip = catalog.chip("my_chip")
    fp8 = chip.figure("peak_fp8")
    assert fp8 is not None
    assert (fp8.value, fp8.kind, fp8.source) == (2e15, "claimed", "slides")
    inner, outer = catalog.systems[chip.system].levels
    assert (inner.size, inner.bytes_per_s_per_direction) == (8, 450e9)
    assert outer.bytes_per_s_per_direction == 50e9
    answer = one_point(catalog, "my_chip", tensor_parallel=16).as_json()
    assert answer["provenance"]["tpot_s"] == "derived"
    assert answer["usd_per_million_total_tokens"] > 0
    assert catalog.prices.select("rental_3yr")["my_chip"].usd_per_chip_hour == 1.5


def test_the_template_is_refused_empty_and_accepted_filled(tmp_path: Path) -> None:
    text = template("fresh", ["class_gpu", "class_tpu"])
    empty = mistakes(read_own_chip, write(tmp_path, text))
    assert {one.field for one in empty} == {"name", "efficiency", *ROOFLINE}
    values = {"name": "Fresh", "efficiency": "class_tpu", "memory_capacity": "64 GB"}
    values |= {"memory_bandwidth": "2 TB/s", "peak_bf16": "500 TFLOP/s", "tdp": "400 W"}
    values |= {"sram_capacity": "64 MiB", "clock": "1.5 GHz", "compute_units": "64"}
    lines = []
    for line in text.splitlines():
        name = line.removeprefix("# ").split(":")[0]
        lines.append(f"{name}: {values[name]}" if name in values else line)
    chip = read_own_chip(write(tmp_path, "\n".join(lines))).chip
    assert chip.id == "fresh"
    assert (chip.tdp_w, chip.compute_units, chip.clock_hz) == (400, 64, 1.5e9)
    assert set(chip.missing) == {"sram_bandwidth", "system_power", "host_link_bandwidth"}


def test_a_space_names_a_chip_by_the_path_of_its_file(tmp_path: Path) -> None:
    write(tmp_path, SHORT + LINKS + PRICE, MINE)
    tiny = shipped_spaces()["tiny"].read_text(encoding="utf-8")
    space = write(tmp_path, tiny.replace("h200_sxm]", "my_chip.yaml]"), "space.yaml")
    study = load_study(space)
    assert study.chip_files == (str((tmp_path / "my_chip.yaml").resolve()),)
    chips = next(axis for axis in study.axes if axis.name == "chip")
    assert chips.values == ("h100_sxm", "my_chip")
    write(tmp_path, SHORT.replace("4 TB/s", "5 TB/s") + LINKS + PRICE, MINE)
    assert load_study(space).fingerprint != study.fingerprint
    write(tmp_path, SHORT.replace("4 TB/s", "4 TB") + LINKS + PRICE, MINE)
    with pytest.raises(InputErrors, match=r"my_chip\.yaml:5: memory_bandwidth: read '4 TB'"):
        load_study(space)
    write(tmp_path, SHORT + PRICE, MINE)
    left = load_study(space)
    assert left.left_out == ("my_chip",)
    assert "my_chip has no bandwidth_per_direction" in left.why_left_out["my_chip"]


def test_all_chips_leave_out_those_that_lack_a_figure(tmp_path: Path) -> None:
    tiny = shipped_spaces()["tiny"].read_text(encoding="utf-8")
    text = tiny.replace("[h100_sxm, h200_sxm]", "all").replace("rental_3yr", "market_index")
    study = load_study(write(tmp_path, text, "space.yaml"))
    reasons = study.why_left_out
    assert set(reasons) == set(study.left_out)
    assert "which an instance of 8 chips needs" in reasons["a10"]
    assert reasons["wse3"] == "wse3 has no price on basis market_index"
    text = text.replace("chip: all", "chip: a10")
    with pytest.raises(InputErrors, match="no chip here can be compared: a10 has no band"):
        load_study(write(tmp_path, text, "space.yaml"))


# A chip of a hardware folder is one file: its figures and its dated prices, rented and bought.

ROWS = """\
prices:
  - basis: rental_3yr
    usd_per_chip_hour: 1.25
    provider: Example Cloud
    date: 2026-11
    source: https://example.com/prices
  - {basis: on_demand, usd_per_chip_hour: 2, date: 2026-10, source: a quote, note: from 8 chips}
  - {basis: on_demand, usd_per_chip_hour: 3, date: 2026-11, source: another quote}
purchases:
  - {kind: purchase_street, usd_per_chip: 9000, date: 2026-11, source: a shop}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(hardware_dir(), tmp_path / "hardware")


def add(folder: Path, rows: str) -> None:
    """A new chip file with these rows."""
    text = (folder / "chips" / "l40s.yaml").read_text(encoding="utf-8")
    text = text.replace("id: l40s\n", "id: l40s_next\n")
    (folder / "chips" / "l40s_next.yaml").write_text(text + rows, encoding="utf-8")


def test_one_file_is_a_chip_with_its_prices(folder: Path) -> None:
    add(folder, ROWS)
    catalog = dse.load_catalog(folder)
    rent = catalog.prices.select("rental_3yr")["l40s_next"]
    assert (rent.usd_per_chip_hour, rent.sources) == (1.25, ("https://example.com/prices",))
    assert catalog.prices.select("on_demand")["l40s_next"].usd_per_chip_hour == 2.5
    (bought,) = (row for row in catalog.purchases if row.chip == "l40s_next")
    assert (bought.kind, bought.usd_per_chip) == ("purchase_street", 9000.0)
    assert "l40s_next" not in catalog.as_of("2026-09").prices.select("on_demand")
    answer = dse.estimate("llama-3-8b", "l40s_next", catalog=catalog)
    assert answer.document["usd_per_million_output_tokens"] > 0


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("    source: https://example.com/prices\n", "", "prices[0].source"),
        ("date: 2026-10", "date: someday", "prices[1].date"),
        ("usd_per_chip_hour: 3", "usd_per_chip_hour: 0", "prices[2].usd_per_chip_hour"),
        ("basis: rental_3yr", "basis: owned_tco", "prices[0].basis"),
        ("usd_per_chip: 9000", "usd_per_chip: free", "purchases[0].usd_per_chip"),
    ],
)
def test_rows_of_a_chip_file_are_checked(folder: Path, old: str, new: str, field: str) -> None:
    add(folder, ROWS.replace(old, new))
    error = refusal(dse.load_catalog, folder)
    assert error.field == field
    assert error.line
    assert str(error.file).endswith("l40s_next.yaml")
    assert error.accepted


def test_a_chip_of_your_own_may_give_the_same_rows(tmp_path: Path) -> None:
    catalog = dse.load_catalog(chips=write(tmp_path, SHORT + ROWS, MINE))
    assert catalog.prices.select("rental_3yr")["my_chip"].usd_per_chip_hour == 1.25
    assert [row.usd_per_chip for row in catalog.purchases if row.chip == "my_chip"] == [9000.0]
