"""Several systems in one space: values by chip, systems side by side, software of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages.journal import JournalFileBackend

import dse
from dse.answer.numbers import show
from dse.catalog import Catalog
from dse.errors import InputError
from dse.problem.mix import evaluate_mix, served_by
from dse.problem.objective import PhysicsProblem, pose
from dse.schema.axes import AXES, Axis
from dse.schema.study import Study, load_study
from dse.space.space import Space
from dse.study.folder import FRONT, JOURNAL, STUDY, read_json
from tests.helpers_files import refusal

B200 = {"name": "8 B200", "chip": "b200_sxm", "chips": 8, "backend": "trtllm"}
B200 |= {"tensor_parallel": [1, 2, 4, 8], "weight_dtype": ["fp8", "nvfp4"]}
RACK = {"name": "one rack", "chip": "gb200_nvl72", "chips": 72, "backend": "trtllm"}
RACK |= {"tensor_parallel": [2, 4, 8, 9], "weight_dtype": "nvfp4"}
AMD = {"name": "8 MI355X", "chip": "mi355x", "chips": 8, "backend": "sglang"}
AMD |= {"tensor_parallel": [1, 8], "weight_dtype": ["fp8", "mxfp4"]}
FRAME: dict[str, Any] = {
    "name": "several",
    "workload": {"prompt_tokens": 2048, "output_tokens": 256, "serving": "continuous"},
    "price_basis": "rental_3yr",
    "model": "llama-3-70b",
    "objectives": {"usd_per_million_total_tokens": "minimize", "tpot_s": "minimize"},
    "constraints": ["ttft_s <= 5 s"],
}
BELOW = {"kv_dtype": "fp8", "concurrency": [1, 16, 64, 256]}
SRAM = {"name": "LPUs", "chip": "groq_lpu_v1", "chips": 512, "weight_dtype": "int8"}


def space(*systems: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    frame = {**FRAME, **{key: value for key, value in more.items() if key in FRAME}}
    axes = {key: value for key, value in more.items() if key not in FRAME}
    return {**frame, "deployment": {"systems": [dict(one) for one in systems], **BELOW, **axes}}


@pytest.fixture(scope="module")
def study(catalog: Catalog) -> Study:
    return load_study(space(B200, RACK, AMD), catalog)


@pytest.fixture(scope="module")
def problem(study: Study, catalog: Catalog) -> PhysicsProblem:
    return pose(study, catalog)


def test_every_point_is_of_one_of_the_systems(study: Study):
    points = Space.of(study)
    values = points.values(points.unrank(np.arange(points.size)))
    chip = values["chip"].astype(int)
    degrees = [[1, 2, 4, 8], [2, 4, 8, 9], [1, 8]]
    for code, (chips, allowed) in enumerate(zip([8, 72, 8], degrees, strict=True)):
        rows = chip == code
        assert set(values["chips"][rows]) == {chips}
        assert set(values["tensor_parallel"][rows]) == set(allowed)
        assert {points.backends[int(k)] for k in values["backend"][rows]} == {
            "sglang" if code == 2 else "trtllm"
        }
        assert len(set(values["weight_dtype"][rows])) == (2, 1, 2)[code]
    assert points.size == 4 * (4 * 2 + 4 * 1 + 2 * 2)


def test_systems_are_values_by_chip(study: Study, catalog: Catalog):
    """The list of systems says no more than axes with values by chip, in whatever order."""
    systems = (B200, RACK, AMD)
    axes = {
        name: {"values_by": "chip", "of": {one["chip"]: one[name] for one in systems}}
        for name in ("chips", "backend", "tensor_parallel")
    }
    of = {"gb200_nvl72": "nvfp4", "mi355x": ["fp8", "mxfp4"], "default": ["fp8", "nvfp4"]}
    axes["weight_dtype"] = {"values_by": "chip", "of": of}
    chips = [one["chip"] for one in systems]
    written = {**FRAME, "deployment": {"chip": chips, **BELOW, **axes}}
    assert load_study(written, catalog).fingerprint == study.fingerprint
    assert study.systems == {one["chip"]: one["name"] for one in systems}


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Three chips, three axes of which each chip takes some values, and one of all chips."""
    axes = [Axis("chip", ("a", "b", "c"))]
    for name in ("chips", "tensor_parallel", "weight_dtype"):
        ordered = AXES[name].kind == "size"
        values = (1, 2, 4, 8) if ordered else ("bf16", "fp8", "int8", "nvfp4")
        some = st.sets(st.integers(0, 3), min_size=1).map(lambda found: tuple(sorted(found)))
        axes.append(Axis(name, values, by_chip=tuple(draw(some) for _ in range(3))))
    axes.append(Axis("concurrency", (1, 2, 4)))
    return Space("random", axes, "")


@settings(max_examples=60, deadline=None)
@given(spaces(), st.integers(0, 2**32 - 1))
def test_ranks_of_values_by_chip(points: Space, seed: int):
    """Every id is one point and back; an index off the grid goes to a point on it, and stays."""
    ids = np.arange(points.size)
    index = points.unrank(ids)
    assert (points.rank(index) == ids).all()
    assert (points.canonical(index) == index).all()
    size = sum(
        3 * np.prod([len(axis.positions(chip)) for axis in points.axes[1:4]]) for chip in range(3)
    )
    assert points.size == size
    rng = np.random.default_rng(seed)
    wild = rng.integers(points.cardinalities, size=(64, len(points.axes)))
    home = points.canonical(wild)
    assert (points.unrank(points.rank(home)) == home).all()
    assert (points.rank(wild) == points.rank(home)).all()
    for row, there in zip(wild, home, strict=True):
        for j, axis in enumerate(points.axes):
            assert there[j] == axis.nearest(int(row[j]), int(row[0]))
            assert there[j] in axis.positions(int(there[0]))
    assert points.active(index).all()
    near = points.neighbours(index[:1])
    assert (points.canonical(near) == near).all()


def test_each_chip_is_served_by_its_own_software(problem: PhysicsProblem):
    """A row of a batch of many backends is, bit for bit, that of its backend alone."""
    index = problem.space.unrank(np.arange(problem.space.size))
    batch = problem.batch(index)
    assert batch.backend is not None
    together = problem.metrics(index)
    for code, backend in enumerate(problem.machines.backends):
        rows = np.flatnonzero(batch.backend == code)
        alone = evaluate_mix(
            replace(batch[rows], backend=None),
            served_by(problem.mix, backend),
            problem.machines,
            searched=problem.searched,
        )
        for name, values in alone.values.items():
            assert together.values[name][rows].tobytes() == values.tobytes(), name
        for rule, amounts in alone.violations.items():
            assert together.violations[rule][rows].tobytes() == amounts.tobytes(), rule
        metrics, row = together.at(int(rows[-1]))
        assert metrics.case.backend == backend.id
        assert row == len(rows) - 1


def test_current_software_is_the_chips_own(catalog: Catalog):
    """An LPU has no memory for the buffers of a GPU's software; its file names another."""
    lpu = {**SRAM, "tensor_parallel": 64, "pipeline_parallel": 8, "kv_dtype": "int8"}
    gpu = {**B200, "pipeline_parallel": 1, "kv_dtype": "fp8"}
    del gpu["backend"]
    text = space(lpu, gpu, price_basis="owned_tco")
    del text["deployment"]["kv_dtype"]
    posed = pose(load_study(text, catalog), catalog)
    assert posed.space.backends == ("compiled", "generic")
    metrics = posed.metrics(posed.space.unrank(np.arange(posed.space.size)))
    chips = posed.batch(posed.space.unrank(np.arange(posed.space.size))).chip
    assert metrics.feasible[chips == posed.machines.code("groq_lpu_v1")].any()
    named = {**text, "workload": {**text["workload"], "backend": "generic"}}
    posed = pose(load_study(named, catalog), catalog)
    index = posed.space.unrank(np.arange(posed.space.size))
    lpus = posed.batch(index).chip == posed.machines.code("groq_lpu_v1")
    assert not posed.metrics(index).feasible[lpus].any()


@pytest.mark.parametrize(
    ("chip", "backend", "dtype", "refused"),
    [
        ("mi355x", "trtllm", "fp8", "backend_serves_chip"),
        ("h100_sxm", "compiled", "fp8", "backend_serves_chip"),
        ("h100_sxm", "neuron", "fp8", "backend_serves_chip"),
        ("tpu_v7x", "trtllm", "fp8", "backend_serves_chip"),
        ("mi355x", "sglang", "nvfp4", "sglang_format_kernels"),
        ("h100_sxm", "trtllm", "nvfp4", "trtllm_format_kernels"),
    ],
)
def test_no_chip_borrows_software_or_formats(
    chip: str, backend: str, dtype: str, refused: str, catalog: Catalog
):
    """Software that takes less time or memory, and narrow formats, tempt a search on every chip."""
    basis = "on_demand" if chip == "tpu_v7x" else "rental_3yr"
    deployed = {"chip": chip, "chips": 8, "backend": backend, "tensor_parallel": 8, **BELOW}
    text = {**FRAME, "price_basis": basis, "deployment": {**deployed, "weight_dtype": dtype}}
    posed = pose(load_study(text, catalog), catalog)
    metrics = posed.metrics(posed.space.unrank(np.arange(posed.space.size)))
    assert (metrics.violations[refused] > 0.0).all()


def test_mistakes_are_told(catalog: Catalog):
    def said(written: Mapping[str, Any]) -> str:
        return str(refusal(load_study, written, catalog))

    assert "b200_sxm stands in two systems" in said(space(B200, {**B200, "name": "more"}))
    assert "'8 B200' is the name of two systems" in said(space(B200, {**AMD, "name": "8 B200"}))
    assert "chips is missing in 8 MI355X" in said(
        space(B200, {key: value for key, value in AMD.items() if key != "chips"})
    )
    assert "chips stands below the systems" in said(space(B200, AMD, chips=8))
    assert "beside the axis chip" in said(space(B200, chip="b200_sxm"))
    busy = {**FRAME["workload"], "backend": "vllm"}
    assert "the workload says it already" in said(space(B200, AMD, workload=busy))
    tensor = {"values_by": "chip", "of": {"b200": [1]}}
    plain = {"chip": "b200_sxm", "chips": 8, "weight_dtype": "fp8", **BELOW}
    wrong = said({**FRAME, "deployment": {**plain, "tensor_parallel": tensor}})
    assert "'b200' is no chip of this space; did you mean b200_sxm?" in wrong
    assert "no values for b200_sxm" in wrong
    nothing = {"values_by": "chip", "of": 3}
    assert "of: 3" in said({**FRAME, "deployment": {**plain, "tensor_parallel": nothing}})
    assert "unknown" in said(space({**B200, "tensr": 3}, {**AMD, "tensr": 4})).lower()
    assert "read 'vlm'; did you mean vllm?" in said(space({**B200, "backend": "vlm"}, AMD))
    both = {**B200, "backend": ["current", "trtllm"]}
    assert "generic is no software to choose" in said(space(both, AMD))
    fixed = {**FRAME, "deployment": {"tensor_parallel": tensor, **plain}}
    assert "need the axis chip above them" in said(fixed)


def test_a_system_without_a_price_is_left_out_by_name(catalog: Catalog, tmp_path: Path):
    tpu = {**AMD, "name": "8 TPU", "chip": "tpu_v7x", "backend": "vllm", "weight_dtype": "fp8"}
    dse.run(space(B200, AMD, tpu), catalog=catalog, out=tmp_path, trials=20)
    (lacks,) = read_json(tmp_path, STUDY)["systems"]["left_out"]
    assert lacks["name"] == "8 TPU"
    assert "no price on basis rental_3yr" in lacks["why"]
    page = dse.Study(tmp_path).report()
    said = " ".join([page.headline, *page.sentences])
    assert "Left out: 8 TPU, tpu_v7x has no price" in said


def load_trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    (name,) = (one.study_name for one in storage.get_all_studies())
    return optuna.load_study(study_name=name, storage=storage).trials


@pytest.fixture(scope="module")
def ran(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    dse.run(space(B200, RACK, AMD), catalog=catalog, out=folder)
    return folder


def test_every_axis_of_a_point_is_stored(study: Study, catalog: Catalog, tmp_path: Path):
    """Whatever the chip takes of an axis, its trial has a value of it."""
    dse.run(space(B200, RACK, AMD), catalog=catalog, out=tmp_path, engine="random", trials=20)
    trials = load_trials(tmp_path)
    several = [axis.name for axis in study.axes if len(axis.values) > 1]
    assert all(set(several) <= set(trial.params) for trial in trials)
    software = {"b200_sxm": "trtllm", "gb200_nvl72": "trtllm", "mi355x": "sglang"}
    assert all(trial.params["backend"] == software[trial.params["chip"]] for trial in trials)


def test_the_report_has_the_best_of_each_system(ran: Path, problem: PhysicsProblem):
    """Against every point of the space, looked at one by one."""
    systems = read_json(ran, STUDY)["systems"]
    names = [row["system"] for row in systems["rows"]]
    assert names == ["8 B200", "one rack", "8 MI355X"]
    index = problem.space.unrank(np.arange(problem.space.size))
    metrics, chips = problem.metrics(index), problem.batch(index).chip
    feasible = (problem.judge(metrics).G <= 0.0).all(axis=1)
    cost, tpot = (metrics.values[o.metric] for o in problem.objectives)
    found = {
        (row["output_tokens_per_s_per_user"], row["system"]): row for row in systems["designs"]
    }
    assert found
    for speed in {speed for speed, _ in found}:
        fast = feasible & (1.0 / tpot >= speed)
        for code, name in enumerate(names):
            there = cost[fast & (chips == code)]
            assert ((speed, name) in found) is bool(len(there))
            if len(there):
                assert found[speed, name]["usd_per_million_total_tokens"] == there.min()


def test_merged_studies_are_the_study_of_all(ran: Path, catalog: Catalog, tmp_path: Path):
    """The front of three studies of one system each is the front of the three systems."""
    folders = []
    for one in (B200, RACK, AMD):
        folders.append(tmp_path / str(one["chip"]))
        text = {**space(one), "resolution": 0}
        dse.run(text, catalog=catalog, out=folders[-1])
    dse.run({**space(B200, RACK, AMD), "resolution": 0}, catalog=catalog, out=tmp_path / "all")
    found = dse.compare(*folders)
    document = found.document
    metrics = ("usd_per_million_total_tokens", "tpot_s")

    def points(rows: list[dict[str, Any]]) -> list[tuple[float, ...]]:
        return sorted(tuple(row[name] for name in metrics) for row in rows)

    items = read_json(tmp_path / "all", FRONT)["items"]
    assert points(document["front"]) == points([item["metrics"] for item in items])
    counted = {row["study"]: row["on_front"] for row in document["studies"]}
    assert sum(counted.values()) == len(document["front"])
    for row in document["studies"]:
        mine = [one for one in document["front"] if one["study"] == row["study"]]
        assert row["on_front"] == len(mine)
        assert all(one["chip"] == row["study"] for one in mine)
        assert 0.0 <= row["adds"] <= row["share"] <= 1.0
        assert (row["adds"] > 0.0) is (row["on_front"] > 0)


def test_what_does_not_merge_is_refused(ran: Path, catalog: Catalog, tmp_path: Path):
    """Cheaper for another model, another load or another kind of dollar is no better design."""
    owned = {"price_basis": "owned_tco"}
    short = {"workload": {**FRAME["workload"], "prompt_tokens": 128}}
    small = {"model": "llama-3-8b"}
    for more, said in ((owned, "do not compare"), (short, "workload"), (small, "llama-3-8b")):
        other = tmp_path / said.replace(" ", "-")
        dse.run(space(B200, **more), catalog=catalog, out=other, trials=20)
        with pytest.raises(InputError, match=said):
            dse.compare(ran, other, merge=True)
    with pytest.raises(InputError, match="no study"):
        dse.compare(ran, ran, tmp_path)


def test_the_answer_names_who_is_cheapest_at_a_speed(ran: Path):
    """The first and the last of the speeds that the table has, with their systems and prices."""
    designs = read_json(ran, STUDY)["systems"]["designs"]
    first = [row for row in designs if row["over_cheapest"] == 1.0]
    headline = dse.Study(ran).report().headline
    for row in (first[0], first[-1]):
        assert row["system"] in headline
        assert f"{row['output_tokens_per_s_per_user']:,}" in headline
        assert show("usd_per_million_total_tokens", row["usd_per_million_total_tokens"]) in headline
