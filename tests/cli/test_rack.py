"""dse catalog racks list, and --domain: as a person uses them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.catalog import load_catalog
from dse.errors import InputError
from dse.physics.machines import compile_machines
from dse.physics.racks import (
    BOUNDS,
    MOST_CHIPS,
    full_of,
    largest_domain,
    rack_use,
    rack_violations,
    stages,
)
from dse.physics.workload import Workload
from dse.problem.describe import bound_columns
from dse.problem.evaluate import evaluate
from dse.problem.objective import pose
from dse.rules.registry import names
from dse.schema.model_catalog import resolve_model
from dse.schema.study import load_study, shipped_spaces
from dse.schema.system import HEIGHT_UNIT_M, OWN_SOURCE, Rack, load_rack, shipped_racks
from dse.space.batches import DEPLOYMENT_AXES, batch_of
from tests.cli.conftest import ask, dse

POINT = ("--model", "deepseek-v3", "--chip", "h100_sxm", "--tp", 8, "--dp", 16, "--ep", 128)


@pytest.mark.parametrize("rack", shipped_racks())
def test_a_rack_says_what_bounds_its_domain_within_100_columns(rack: str) -> None:
    said = dse("catalog", "racks", "show", rack)
    assert said.code == 0
    bounds, _, _ = said.out.partition("Figures")  # sources are as long as they are
    assert max(map(len, bounds.splitlines())) <= 100
    answer = ask("catalog", "racks", "show", rack)
    assert f"it ends at {answer['largest']:,} chips, stopped by {answer['bound']}" in said.out
    assert [row["rack_bound"] for row in answer["bounds"]] == list(BOUNDS)
    assert any(row["next_breaks"] for row in answer["bounds"])
    assert all(figure["source"] and figure["date"] for figure in answer["figures"])
    assert "112 kW" not in said.out
    assert rack != "gb200_nvl72" or all(
        word in said.out for word in ("111.6 kW", "assumed", "derived", "sg.news.yahoo.com")
    )


def test_an_estimate_in_a_hypothetical_domain() -> None:
    answer = ask("estimate", *POINT, "--set", "scale_up_domain=128")
    plain = ask("estimate", *POINT)
    assert answer["deployment"]["scale_up_domain"] == 128
    assert "scale_up_domain" not in plain["deployment"]
    assert answer["tpot_s"] < plain["tpot_s"]
    assert answer["feasible"]
    assert any("128 chips is hypothetical: hgx_h100 has 8" in text for text in answer["assumed"])
    assert any("no rack was named" in text for text in answer["assumed"])
    held = ask(
        "estimate", *POINT, "--set", "scale_up_domain=128", "--set", "rack=hypothetical_copper"
    )
    assert [row["constraint"] for row in held["violations"]] == ["rack_cable_reach"]
    text = dse(
        "estimate", *POINT, "--set", "scale_up_domain=128", "--set", "rack=hypothetical_copper"
    ).out
    assert "hypothetical domain 128" in text
    assert "breaks rack_cable_reach" in text


def test_a_study_of_ones_own_rack(tmp_path: Path) -> None:
    (tmp_path / "my_rack.yaml").write_text(
        OWN.replace("racks_per_domain: 2", "racks_per_domain: 1"), encoding="utf-8"
    )
    text = SPACE.replace("RACK", "rack: my_rack.yaml").replace("CHIP", "h200_sxm")
    text = text.replace("DOMAIN", "  data_parallel: [1, 2, 8]\n  scale_up_domain: [8, 16, 32, 64]")
    (tmp_path / "space.yaml").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    said = dse("run", tmp_path / "space.yaml", "--out", out)
    assert said.code == 0, said.err
    assert "The scale-up domain is hypothetical" in said.out
    study = json.loads((out / "study.json").read_text(encoding="utf-8"))
    (row,) = study["rack"]["chips"]
    assert f"stopped by {row['bound']}" in said.out
    removed = {t["constraint"]: t["violated"] for t in study["constraint_tallies"]}
    assert removed[row["bound"]] > 0
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "scale-up domain is hypothetical" in report
    assert (out / "front.csv").read_text(encoding="utf-8").splitlines()[0].count("scale_up_domain")
    items = json.loads((out / "front.json").read_text(encoding="utf-8"))["items"]
    again = ask("estimate", out, items[0]["point"])
    assert again["tpot_s"] == items[0]["metrics"]["tpot_s"]
    assert again["deployment"] == items[0]["deployment"]


def test_pools_of_one_hypothetical_domain_need_no_network() -> None:
    pools = ("--model", "deepseek-v3", "--chip", "h200_sxm", "--serving", "disaggregated")
    pools += ("--dp", 8, "--ep", 8, "--set", "prefill_tp=8", "--set", "prefill_workers=2")
    plain = ask("estimate", *pools)
    joined = ask("estimate", *pools, "--set", "scale_up_domain=64")
    assert joined["transfer_s"] < plain["transfer_s"]
    assert joined["tpot_s"] == pytest.approx(plain["tpot_s"], rel=0.01)


# Racks: published figures by hand, bounds that never fall, and a search that they stop by name.


RACKS = {name: load_rack(path) for name, path in shipped_racks().items()}
NVL72 = RACKS["gb200_nvl72"]
OWN = """\
id: my_rack
name: My rack
chip: h200_sxm
domain: 8
racks_per_domain: 2
chips_per_tray: 8
per_chip: {power: 700 W, other_power: 575 W, height_units: 1, mass: 16.3 kg}
frame: {height_units: 42, mass: 150 kg, allowed_mass: 1360 kg, width: 600 mm, depth: 1200 mm}
power_feed: 40 kW
floor_load: 12 kPa
cooling: [{kind: air, share: 1, capacity: 40 kW}]
cables: {kind: passive_copper, per_chip: 36, rate: 200 Gb/s, diameter: 2 mm, bend_multiple: 5,
  reach: 2 m, area: 300 cm2, fill: 0.5, bend_depth: 100 mm, tray_width: 440 mm, lead: 0.6 m,
  between_racks: 0.6 m}
"""


def sizes(*chips: float) -> np.ndarray:
    return np.array(chips, dtype=np.float64)


def use_at(rack: Rack, chips: float) -> dict[str, float]:
    return {name: float(u[0]) for name, u in rack_use(rack, sizes(chips)).items()}


def own(folder: Path, text: str) -> Path:
    path = folder / "my_rack.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# The published figures of NVL72.


def test_nvl72_has_5184_cables_of_two_thirds_of_a_metre() -> None:
    assert NVL72.cables is not None
    assert NVL72.domain * NVL72.cables.per_chip == 5184
    # Mean way up the rack: half of 9 units of switches and half of 9 of trays on either side.
    mean_m = NVL72.cables.lead_m + 9 * HEIGHT_UNIT_M
    assert 5184 * mean_m == pytest.approx(2 * 1609.344, rel=0.01)


def test_nvl72_draws_132_kw_and_weighs_1360_kg() -> None:
    use = use_at(NVL72, 72)
    assert use["rack_power"] * NVL72.feed_w == pytest.approx(132e3, rel=0.001)
    assert use["rack_weight"] * NVL72.allowed_kg == pytest.approx(1360, rel=0.001)
    floor = use["rack_floor_load"] * NVL72.floor_kg_per_m2
    assert floor == pytest.approx(1360 / (0.6 * 1.068), rel=0.001)


def test_nvl72_by_hand() -> None:
    use = use_at(NVL72, 72)
    pair_m2 = math.pi / 4 * 0.002**2
    assert use["rack_cables"] == pytest.approx(2592 * pair_m2 / (0.5 * 0.0315))
    assert use["rack_cable_reach"] == pytest.approx((0.22 + 18 * 0.04445) / 1.5)
    # 288 cables of 2 mm over 440 mm lie in two layers around a radius of five diameters.
    assert use["rack_bend_radius"] == pytest.approx((5 + 2) * 0.002 / 0.06)
    assert use["rack_cooling"] == pytest.approx(0.8 * use["rack_power"] * 140e3 / 111.6e3)
    assert use["rack_space"] == pytest.approx((18 + 9) / 38)


@pytest.mark.parametrize("name", RACKS)
def test_a_product_fits_its_own_rack(name: str) -> None:
    rack = RACKS[name]
    assert max(use_at(rack, rack.domain).values()) <= 1.0
    assert largest_domain(rack)[0] >= rack.domain


@pytest.mark.parametrize("name", RACKS)
def test_a_rack_is_that_of_its_chip(name: str) -> None:
    rack, catalog = RACKS[name], load_catalog()
    assert rack.id == name
    level = catalog.systems[catalog.chip(rack.chip).system].levels[0]
    if not rack.hypothetical:
        assert rack.domain == level.size
    full = full_of(rack, None, level.bytes_per_s_per_direction)
    if rack.cables is not None and full.cables is not None:
        assert full.cables.per_chip == pytest.approx(rack.cables.per_chip, rel=0.15)
    assert full.chip_w == rack.chip_w


@pytest.mark.parametrize("name", RACKS)
def test_every_figure_has_a_source_of_its_own(name: str) -> None:
    for figure in RACKS[name].figures:
        assert figure.source != OWN_SOURCE
        assert figure.date != "undated"
        if figure.kind == "derived":
            assert figure.note, figure.name


# Laws.


@given(
    name=st.sampled_from(sorted(RACKS)),
    chips=st.lists(st.integers(1, MOST_CHIPS), min_size=2, max_size=20),
    racks=st.integers(1, 64),
)
def test_a_larger_domain_relaxes_no_bound(name: str, chips: list[int], racks: int) -> None:
    rack = replace(RACKS[name], racks=racks)
    for bound, use in rack_use(rack, sizes(*sorted(chips))).items():
        assert np.all(np.diff(use) >= 0.0), bound


@given(
    name=st.sampled_from(sorted(RACKS)),
    chips=st.integers(1, MOST_CHIPS),
    field=st.sampled_from(["feed_w", "allowed_kg", "floor_kg_per_m2"]),
)
def test_more_of_what_a_bound_limits_never_hurts(name: str, chips: int, field: str) -> None:
    rack = RACKS[name]
    better = replace(rack, **{field: 1.5 * getattr(rack, field)})
    before, after = use_at(rack, chips), use_at(better, chips)
    assert all(after[bound] <= before[bound] for bound in BOUNDS)


@pytest.mark.parametrize(
    ("chips", "expected"), [(8, 1), (72, 1), (73, 2), (2592, 2), (2593, 3), (93_312, 3)]
)
def test_stages_of_a_folded_clos(chips: int, expected: int) -> None:
    assert stages(NVL72, sizes(chips))[0] == expected
    assert stages(replace(NVL72, stage_chips=math.inf), sizes(chips))[0] == 1


def test_a_second_stage_doubles_the_cables_and_triples_the_switches() -> None:
    flat = replace(NVL72, stage_chips=math.inf)
    once, twice = use_at(flat, 76), use_at(NVL72, 76)
    assert twice["rack_cables"] == pytest.approx(2 * once["rack_cables"])
    more_w = (twice["rack_power"] - once["rack_power"]) * NVL72.feed_w
    assert more_w == pytest.approx(76 * 2 * NVL72.stage_w)
    more_units = (twice["rack_space"] - once["rack_space"]) * NVL72.frame_units
    assert more_units == pytest.approx(76 * 2 * 0.125)


def test_a_second_rack_adds_its_width_to_the_reach() -> None:
    rack = replace(RACKS["hypothetical_copper"], stage_chips=math.inf)
    use = rack_use(rack, sizes(104, 108))["rack_cable_reach"] * 1.5  # in one rack, and in two
    assert use[1] - use[0] == pytest.approx(0.6 + 4 * 0.25 * HEIGHT_UNIT_M)


# Where the domain ends, and why: claim 12.


def test_the_domain_of_nvl72_ends_at_72() -> None:
    largest, bound = largest_domain(NVL72)
    assert largest == 72
    assert bound in ("rack_cable_reach", "rack_cooling", "rack_power", "rack_space")
    rows = bound_columns(NVL72)
    broken = {n for n, use in zip(BOUNDS, rows["next_breaks"], strict=True) if use > 1.0}
    assert broken == {*BOUNDS} - {"rack_bend_radius"}
    assert max(rows["rack_use"]) <= 1.0
    # No single bound holds it there, and bending never does.
    for name in BOUNDS:
        others = [other for other in BOUNDS if other != name]
        assert largest_domain(NVL72, others)[0] == 72
    assert math.isnan(rows["bound_chips"][BOUNDS.index("rack_bend_radius")])


def test_with_one_stage_power_and_cooling_end_the_domain_first() -> None:
    flat = replace(NVL72, stage_chips=math.inf)
    ends = dict(zip(BOUNDS, bound_columns(NVL72)["one_stage_chips"], strict=True))
    del ends["rack_bend_radius"]
    least = largest_domain(flat)[0]
    assert min(ends.values()) == ends["rack_power"] == ends["rack_cooling"] == least
    assert ends["rack_power"] == 4 * math.floor(140e3 / (1200 + 383 + 250) / 4)
    assert ends["rack_space"] == 4 * math.floor(38 / 0.375 / 4)


@pytest.mark.parametrize("name", RACKS)
def test_the_first_bound_ends_the_domain(name: str) -> None:
    rack = RACKS[name]
    largest, bound = largest_domain(rack)
    assert largest == min(largest_domain(rack, (name,))[0] for name in BOUNDS)
    assert bound is not None
    assert use_at(rack, largest)[bound] <= 1.0
    after = use_at(rack, largest + rack.tray_chips)
    assert after[bound] == max(after.values()) > 1.0
    others = [other for other in BOUNDS if other != bound]
    assert largest_domain(rack, others)[0] >= largest


def test_a_printed_backplane_has_no_bound_of_cables() -> None:
    use = use_at(RACKS["rubin_ultra_nvl576"], 16_000)
    assert use["rack_cables"] == use["rack_cable_reach"] == use["rack_bend_radius"] == 0.0


def test_power_and_cables_follow_the_chip() -> None:
    rack = RACKS["hypothetical_copper"]
    racks = full_of(rack, 700.0, 450e9), full_of(rack, None, math.nan)
    assert [one.cables and one.cables.per_chip for one in racks] == [36.0, 72.0]
    assert [one.chip_w for one in racks] == [700.0, 1200.0]
    less, more = (use_at(one, 96) for one in racks)
    assert less["rack_power"] < more["rack_power"]
    assert 2 * less["rack_cables"] == pytest.approx(more["rack_cables"])
    over = rack_violations(racks, sizes(96, 72, 96), np.array([1, 0, 0]))
    for name in BOUNDS:
        wanted = [more[name], use_at(racks[0], 72)[name], less[name]]
        assert over[name].tolist() == [use - 1.0 for use in wanted]


# Files.


def test_a_rack_file_of_values_alone(tmp_path: Path) -> None:
    rack = load_rack(own(tmp_path, OWN))
    assert len(rack.assumed) == len(rack.figures)
    assert rack.floor_kg_per_m2 == pytest.approx(12_000 / 9.80665)
    assert rack.cables is not None
    assert rack.cables.power_w == 0.0
    assert rack.stage_chips == math.inf
    assert use_at(rack, 8)["rack_power"] == pytest.approx(8 * 1275 / 40e3)


# In a search.


def batch(chip: str, domain: float | None, dp: float = 16.0):
    deployment = {axis: np.ones(1) for axis in DEPLOYMENT_AXES}
    deployment |= {"data_parallel": sizes(dp), "expert_parallel": sizes(dp)}
    if domain is not None:
        deployment["scale_up_domain"] = sizes(domain)
    model = resolve_model("deepseek-v3")
    return batch_of([model], np.zeros(1, dtype=np.intp), ["fp8"], ["fp8"], deployment)


def test_the_domain_of_the_product_changes_nothing() -> None:
    catalog = load_catalog()
    on = compile_machines(catalog, ["h100_sxm"])
    load = Workload.of(1024, 256, "continuous", catalog.backends["generic"])
    given, own_domain = (evaluate(batch("h100_sxm", d), load, on) for d in (8.0, None))
    for metric, values in given.values.items():
        assert np.array_equal(values, own_domain.values[metric], equal_nan=True), metric
    assert tuple(given.violations) == names()  # no rack, no bound
    wide = evaluate(batch("h100_sxm", 16.0), load, on)
    assert wide.values["tpot_s"][0] < given.values["tpot_s"][0]


def test_the_bounds_stop_a_candidate_by_name() -> None:
    catalog = load_catalog()
    rack = RACKS["hypothetical_copper"]
    on = compile_machines(catalog, ["h100_sxm"], None, rack)
    load = Workload.of(1024, 256, "continuous", catalog.backends["generic"])
    small, large = (evaluate(batch("h100_sxm", d), load, on) for d in (64.0, 128.0))
    assert tuple(small.violations) == names(rack=True)
    assert small.feasible[0]
    assert [name for name, amount in large.violations.items() if amount[0] > 0] == [
        "rack_cable_reach"
    ]


def test_the_shipped_space_is_stopped_by_name() -> None:
    study = load_study(shipped_spaces()["rack-domain"])
    problem = pose(study, load_catalog())
    index = problem.space.unrank(np.arange(problem.space.size))
    found = problem.evaluate(index)
    assert found.G.shape[1] == len(problem.constraints)
    domain = problem.space.values(index)["scale_up_domain"]
    names = [k for k, name in enumerate(problem.constraints) if name in BOUNDS]
    assert len(names) == len(BOUNDS)
    fits = (found.G[:, names] <= 0.0).all(axis=1)
    assert np.unique(domain[fits]).max() == 96.0
    assert np.unique(domain[~fits]).min() == 128.0
    reach = found.G[:, problem.constraints.index("rack_cable_reach")] > 0.0
    others = (found.G[:, [k for k in names if problem.constraints[k] != "rack_cable_reach"]]) > 0
    assert (reach & ~others.any(axis=1)).any()


SPACE = """\
name: own
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous, backend: current}
price_basis: rental_3yr
RACK
model: deepseek-v3
deployment:
  chip: CHIP
  replicas: 1
  tensor_parallel: 8
DOMAIN
  weight_dtype: fp8
  kv_dtype: fp8
  concurrency: 64
objectives: {tpot_s: minimize}
"""


def space(folder: Path, rack: str, domain: str, chip: str = "h200_sxm") -> Path:
    text = SPACE.replace("RACK", rack).replace("DOMAIN", domain).replace("CHIP", chip)
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("rack", "domain", "field", "words"),
    [
        ("", "  scale_up_domain: 16", "deployment.scale_up_domain", "stands in a rack"),
        ("rack: gb200_nvl72", "", "rack", "the axis scale_up_domain"),
        ("rack: gb200_nvl27", "  scale_up_domain: 16", "rack", "did you mean gb200_nvl72?"),
        ("rack: none.yaml", "  scale_up_domain: 16", "rack", "no such file"),
    ],
)
def test_a_space_names_both_or_neither(
    tmp_path: Path, rack: str, domain: str, field: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_study(space(tmp_path, rack, domain))
    errors = [error for error in caught.value.errors if error.field == field]  # type: ignore[attr-defined]
    assert errors
    assert words in str(errors[0])


def test_only_chips_behind_switches_take_another_domain(tmp_path: Path) -> None:
    path = space(
        tmp_path, "rack: hypothetical_copper", "  scale_up_domain: 16", "[h200_sxm, mi300x]"
    )
    study = load_study(path)
    assert study.left_out == ("mi300x",)
    assert "full_mesh" in study.why_left_out["mi300x"]


def test_what_is_in_the_rack_decides_the_study(tmp_path: Path) -> None:
    own(tmp_path, OWN)
    path = space(tmp_path, "rack: my_rack.yaml", "  scale_up_domain: [8, 16]")
    before = load_study(path).fingerprint
    own(tmp_path, OWN.replace("power_feed: 40 kW", "power_feed: 50 kW"))
    assert load_study(path).fingerprint != before
