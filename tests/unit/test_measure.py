"""dse.measure against devices whose law is known."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.data import hardware_dir
from dse.errors import Doubt, InputError
from dse.measure import laws
from dse.measure.calibration import calibrate, chips_named, target
from dse.measure.session import QUICK, Session, Work
from dse.questions.estimate.point import Estimate, estimate
from dse.schema.efficiency import load_efficiency
from dse.schema.model_catalog import resolve_model
from tests.fake_bench import CPU, H100, FakeBench
from tests.helpers import workload

RATE = {"bf16": 4e11}
H100_RATE = {"bf16": 5e14, "fp8": 9e14}


def cpu(**changed) -> FakeBench:
    given = {"rate": RATE, "bandwidth": 4e10, "room": 3e8, "noise": 0.01} | changed
    return FakeBench(CPU, **given)


def h100(**changed) -> FakeBench:
    given = {"rate": H100_RATE, "bandwidth": 2.0e12, "room": 2e9, "fixed_s": 4e-6} | changed
    return FakeBench(H100, **given)


def session(bench: FakeBench, effort=QUICK, seed: int = 0) -> Session:
    return Session(bench, effort, seed, clock=bench.clock)


def calibrated(bench: FakeBench, out: Path, chip: str | None = None, **kwargs) -> dict[str, Any]:
    to = target(bench.device, chip, None)
    dtypes = list(bench.device.dtypes)
    texts, answer = calibrate(session(bench), dtypes, to, out, "2026-11-21", **kwargs)
    for name, text in texts.items():
        (out.parent / name).write_text(text, encoding="utf-8")
    return answer.document


def predicted(
    chip: str, files_: tuple = (), chip_files: tuple = (), model="llama-3-8b"
) -> Estimate:
    catalog = load_catalog(chips=chip_files, efficiency=files_)
    load = workload(512, 128, "continuous")
    return estimate(catalog, resolve_model(model), chip, load, {"concurrency": 1})


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An efficiency file of h100_pcie whose memory reaches half of what the law says."""
    out = tmp_path_factory.mktemp("measured") / "mine.yaml"
    calibrated(h100(bandwidth=1.0e12), out, "h100_pcie")
    return out


@pytest.mark.parametrize("p", [1.0, 1.6, 4.0])
def test_the_constants_of_a_known_law_come_back(p: float, tmp_path: Path):
    bench = cpu(p=p, fixed_s=3e-5)
    answer = calibrated(bench, tmp_path / "laws.yaml")
    gemm = load_efficiency(tmp_path / "laws.yaml").operators["gemm"]["bf16"]
    peak = {row["dtype"]: row["flops_per_s"] for row in answer["gemm"]}["bf16"]
    bandwidth = max(row["bytes_per_s"] for row in answer["memory"])
    assert gemm.compute * peak == pytest.approx(RATE["bf16"], rel=0.03)
    assert gemm.memory * bandwidth == pytest.approx(0.8 * 4e10, rel=0.05)
    assert gemm.fixed_s == pytest.approx(3e-5, rel=0.25)
    by_operator = {(one["operator"], one["dtype"]): one for one in answer["fits"]}
    assert set(by_operator) == {
        ("gemm", "bf16"), ("prefill_attention", "bf16"), ("decode_attention", "bf16"),
    }  # fmt: skip
    for one in by_operator.values():
        assert one["fit_error"] < 0.03
        assert one["held_out_error"] is None or one["held_out_error"] < 0.05


def test_a_law_that_is_wrong_shows_on_the_shapes_left_out():
    """Times that depend on the shape at random: no law predicts them, and the error says so."""
    points = laws.table(session(cpu(uneven=1.0)).measure(["bf16"]))
    rates, memory = laws.reached(points)
    for one in laws.fits(points, rates, max(memory.values()), "torch 0"):
        assert one["fit_error"] > 0.2
        assert one["held_out_error"] is None or one["held_out_error"] > 0.2


def test_shapes_that_a_device_refuses_are_told_and_left_out(tmp_path: Path):
    bench = cpu(refuses=lambda work: work.operator == "gemm" and work["k"] == 8192)
    document = calibrated(bench, tmp_path / "some.yaml")
    assert all(row["reason"] == "no kernel image" for row in document["skipped"])
    assert sum(row["works"] for row in document["skipped"]) > 3
    deaf = cpu(refuses=lambda work: work.operator == "gemm")
    with pytest.raises(InputError, match="no kernel image"):
        calibrated(deaf, tmp_path / "none.yaml")


@given(slower=st.floats(1e-3, 10.0), seed=st.integers(0, 5))
@settings(max_examples=8, deadline=None)
def test_a_quick_run_ends_on_any_device_and_covers_every_section(slower: float, seed: int):
    bench = cpu(rate={"bf16": 4e11 * slower}, bandwidth=4e10 * slower)
    points = session(bench, seed=seed).measure(["bf16"])
    assert bench.now < 60.0 / min(slower, 0.5) ** 0.6
    operators = {point.work.operator for point in points}
    assert operators >= {"copy", "read", "triad", "gemm", "prefill_attention", "decode_attention"}
    assert all(len(point.samples) >= 3 for point in points)


def test_work_counts_what_the_physics_charges():
    """The fit divides by the flops and bytes that a prediction multiplies with."""
    catalog = load_catalog()
    model = resolve_model("llama-3-8b")
    load = workload(2048, 2, "static")
    deployment = {"concurrency": 4}
    answer = estimate(catalog, model, "h100_sxm", load, deployment, keep=True)
    performance = answer.metrics.performance
    prefill = {entry.name: entry for entry in performance.detail.prefill_ledger.entries or ()}
    decode = {entry.name: entry for entry in performance.detail.decode_ledger.entries or ()}
    layers = 32
    cases = [
        (decode["query-key-value projection"], Work("gemm", "bf16", (4, 6144, 4096))),
        (decode["attention over the KV cache"],
         Work("decode_attention", "bf16", (4, 2049, 32, 8, 128))),
        (prefill["attention over the prompt"],
         Work("prefill_attention", "bf16", (4, 2048, 32, 8, 128))),
    ]  # fmt: skip
    for entry, work in cases:
        assert entry.flops[0] / layers == pytest.approx(work.flops, rel=1e-9)
        assert entry.bytes[0] / layers == pytest.approx(work.bytes, rel=1e-9)


def test_the_file_says_what_was_measured_and_what_was_not(tmp_path: Path):
    out = tmp_path / "pcie.yaml"
    answer = calibrated(h100(), out)  # found by its name
    catalog = load_catalog()
    laws, parent = load_efficiency(out), catalog.efficiencies[catalog.chips["h100_pcie"].efficiency]
    assert (laws.id, laws.date) == ("h100_pcie", "2026-11-21")
    assert laws.provenance["device"] == "NVIDIA H100 PCIe"
    assert laws.source.startswith("measured here, 2026-11-21")
    kinds = {(o, d): x.kind for o, table in laws.operators.items() for d, x in table.items()}
    fitted = {key for key, kind in kinds.items() if kind == "fitted"}
    assert fitted == {
        ("gemm", "bf16"), ("gemm", "fp8"), ("prefill_attention", "bf16"),
        ("decode_attention", "bf16"),
    }  # fmt: skip
    for operator in ("experts", "mla_prefill_attention", "mla_decode_attention"):
        for dtype, one in laws.operators[operator].items():
            was = parent.operators[operator][dtype]
            assert (one.compute, one.memory, one.p) == (was.compute, was.memory, was.p)
            assert "not measured here" in (one.note or "")
    assert laws.all_reduce.bandwidth_fraction == parent.all_reduce.bandwidth_fraction
    assert laws.all_reduce.kind != "fitted"
    told = {(row["operator"], row["dtype"]) for row in answer["not_measured"]}
    assert told >= {key for key in kinds if key not in fitted}
    points = pd.read_csv(tmp_path / "pcie.csv")
    assert len(points) == answer["points"]


def test_what_a_busy_machine_measured_is_not_taken_for_a_slip_of_the_unit(tmp_path: Path):
    """An all-reduce of gloo beside other work took 1.8 ms; by hand, 1.8 us would be meant."""
    out = tmp_path / "laws.yaml"
    calibrated(cpu(), out)
    written = re.sub(r"latency: \[[^,\]]+", "latency: [1810 us", out.read_text("utf-8"))
    out.write_text(written, encoding="utf-8")
    assert 1.81e-3 in load_efficiency(out).all_reduce.latency_s.values()
    by_hand = re.sub(r"^provenance: .*\n", "", written, flags=re.MULTILINE)
    out.write_text(by_hand, encoding="utf-8")
    with pytest.warns(Doubt, match=r"1\.81 us was probably meant"):
        load_efficiency(out)


def test_measured_laws_take_the_place_of_shipped_ones(mine: Path):
    before, after = predicted("h100_pcie"), predicted("h100_pcie", (mine,))
    ratio = after.metrics.values["decode_step_s"] / before.metrics.values["decode_step_s"]
    assert ratio[0] > 1.4
    assert predicted("h100_sxm", (mine,)).as_json() == predicted("h100_sxm").as_json()
    assert any(str(mine) in line for line in after.assumed)
    # Experts were not measured, whatever the rest was.
    sparse = predicted("h100_pcie", (mine,), model="qwen3-30b-a3b")
    assert sparse.as_json()["provenance"]["decode_step_s"] in ("derived", "assumed")
    assert any("experts" in line and "not measured here" in line for line in sparse.assumed)


def test_an_answer_says_that_the_machine_was_busy(tmp_path: Path):
    for noise in (0.01, 0.6):
        calibrated(h100(noise=noise), tmp_path / "busy.yaml", "h100_pcie")
        told = predicted("h100_pcie", (tmp_path / "busy.yaml",)).assumed
        assert any("not idle" in line for line in told) == (noise > 0.5)


def test_relatives_follow_as_derived(tmp_path: Path):
    out = tmp_path / "sxm.yaml"
    calibrated(h100(), out, "h100_sxm")
    catalog = load_catalog(efficiency=out)
    assert catalog.chips["h20"].efficiency == "h100_sxm:h20"
    assert catalog.efficiencies["h100_sxm:h20"].operators["gemm"]["bf16"].kind == "derived"
    line = predicted("h20", (out,)).assumed[0]
    assert "derived" in line
    assert str(out) in line


def test_laws_of_a_chip_need_their_peaks(tmp_path: Path):
    text = (hardware_dir() / "efficiency" / "class_gpu.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("id: class_gpu", "id: h100_pcie"), encoding="utf-8")
    with pytest.raises(InputError, match="without the peaks"):
        load_catalog(efficiency=path)


def test_two_files_of_one_chip_are_refused(mine: Path, tmp_path: Path):
    other = tmp_path / "other.yaml"
    other.write_text(mine.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="is the id of"):
        load_catalog(efficiency=[mine, other])


@pytest.mark.parametrize(
    ("name", "chips"),
    [
        ("NVIDIA H100 PCIe", ["h100_pcie"]),
        ("NVIDIA A100-SXM4-80GB", ["a100_80_sxm"]),
        ("AMD Instinct MI300X", ["mi300x"]),
        ("NVIDIA GeForce RTX 4090", ["rtx4090"]),
        ("NVIDIA H100 80GB HBM3", ["h100_pcie", "h100_sxm"]),
        ("NVIDIA T4", []),
    ],
)
def test_chips_by_the_name_of_a_device(name: str, chips: list[str]):
    assert chips_named(name, load_catalog().chips) == chips


def test_a_device_that_could_be_two_chips_is_asked_about():
    device = replace(H100, name="NVIDIA H100 80GB HBM3")
    with pytest.raises(InputError, match="--chip h100_pcie or h100_sxm"):
        target(device, None, None)


def test_another_chip_than_named_is_noticed(tmp_path: Path):
    document = calibrated(h100(), tmp_path / "wrong.yaml", "b200_sxm")
    assert any("is it this chip" in line for line in document["warnings"])


@given(
    latency=st.floats(5.0, 200.0), fraction=st.floats(0.3, 1.1), ramp=st.floats(0.0, 3.0),
    n=st.sampled_from([2, 4, 8]),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_a_known_collective_comes_back(latency: float, fraction: float, ramp: float, n: int):
    size, link = 2.0 ** np.arange(13, 30), 450e9
    transfer = 2 * (n - 1) / n * size / link / fraction
    seconds = latency * 1e-6 + transfer + ramp * np.sqrt(latency * 1e-6 * transfer)
    found = laws.link_law(size, 2 * (n - 1) / n * size / link, seconds)
    assert found["error"] < 0.02
    assert found["latency"] == pytest.approx(latency, rel=0.1)


def test_a_fit_reads_points_and_not_their_order():
    points = laws.table(session(cpu(noise=0.05)).measure(["bf16"]))
    rows = points[points.operator == "gemm"]
    one, two = laws.fit(rows, 4e11, 4e10), laws.fit(rows.iloc[::-1], 4e11, 4e10)
    names = ("compute", "memory", "fixed", "p")
    flops, moved = rows.flops.to_numpy(), rows.bytes.to_numpy()
    predictions = [laws.law(flops, moved, 4e11, 4e10, [x[k] for k in names]) for x in (one, two)]
    assert np.allclose(*predictions, rtol=0.02)
