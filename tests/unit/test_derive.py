"""Hypothetical chips: what changes, what stays, and what a chip needs to enter a front."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.catalog import Catalog, load_catalog, with_own_chips
from dse.physics.fabrics import pair_bytes_per_s
from dse.physics.machines import compile_machines
from dse.physics.workload import Workload
from dse.problem.objective import pose
from dse.problem.protocol import Evaluation
from dse.questions.estimate.point import estimate
from dse.schema.derive import as_yaml, derive
from dse.schema.model import model_of
from dse.schema.model_catalog import resolve_model
from dse.schema.own_chip import read_own_chip
from dse.schema.study import load_study, resolve_space
from dse.space.space import deployments
from dse.study.choices import Trials, entering
from dse.study.folder import read_study
from tests.cli.conftest import dse as command
from tests.helpers_files import refusal, write
from tests.helpers_whatif import PAIR, SPACE

MEASURED = ("h200_sxm", "b200_sxm", "gb200_nvl72", "l40s")
BORROWED = ("h20", "mi300x", "tpu_v5p", "gaudi3")


def metrics(catalog: Catalog, chip: str, model: str = "llama-3-70b", **deployment: float):
    load = Workload.of(2048, 512, "continuous", catalog.backends["generic"])
    degrees = {"tensor_parallel": 4, "concurrency": 16} | deployment
    return estimate(catalog, resolve_model(model), chip, load, degrees).metrics.values


def changed(catalog: Catalog, parent: str, *written: str, model: str = "llama-3-70b", **degrees):
    own = derive(catalog, parent, written)
    return metrics(with_own_chips(catalog, [own]), own.chip.id, model, **degrees)


@pytest.mark.parametrize("parent", [*MEASURED, *BORROWED])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-oss-120b"])
def test_a_factor_of_one_changes_no_prediction(catalog: Catalog, parent: str, model: str) -> None:
    """Laws are those of the parent, also where they were divided by other peaks (B200)."""
    one = {"tensor_parallel": 1}
    before, after = (
        metrics(catalog, parent, model, **one),
        changed(catalog, parent, "hbm_bandwidth=1x", "flops=1x", "capacity=1x", model=model, **one),
    )
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-12, err_msg=name)


def test_what_is_unchanged_keeps_its_source_and_what_is_changed_says_from_what(
    catalog: Catalog,
) -> None:
    own = derive(catalog, "h200_sxm", ["hbm_bandwidth=1.5x", "tdp=+20%", "peak_bf16=1.2PFLOP/s"])
    parent = catalog.chips["h200_sxm"]
    notes = {
        "memory_bandwidth": (7.2e12, "1.5 x 4.8 TB/s of h200_sxm"),
        "tdp": (840.0, "+20% of 700 W of h200_sxm"),
        "peak_bf16": (1.2e15, "1.2 PFLOP/s in place of 989 TFLOP/s of h200_sxm"),
    }
    for before in parent.figures:
        after = own.chip.figure(before.name)
        assert after is not None
        if before.name in notes:
            assert (after.value, after.kind, after.note) == (
                pytest.approx(notes[before.name][0]), "assumed", notes[before.name][1],
            )  # fmt: skip
        else:
            assert after == before
    assert own.chip.id.startswith("hypothetical_h200_sxm")
    assert own.chip.availability == "hypothetical"
    assert own.system is None
    assert own.chip.system == parent.system
    assert own.chip.assumed[0].startswith("hypothetical, h200_sxm with memory_bandwidth 1.5 x 4.8")


def test_every_chip_of_the_catalog_can_be_a_parent(catalog: Catalog) -> None:
    """And where it can be estimated, nothing but what was set moves a figure of it."""
    for parent in catalog.chips:
        own = derive(catalog, parent, ["price.rental_3yr=1USD/h", "scale_out_bandwidth=100GB/s"])
        both = with_own_chips(catalog, [own])
        mine, before = both.chips[own.chip.id], both.chips[parent]
        assert mine.figures == before.figures
        assert mine.memories == before.memories
        assert both.prices.select("rental_3yr")[mine.id].usd_per_chip_hour == 1.0
        system = both.systems[mine.system]
        assert system.levels[:-1] == both.systems[before.system].levels[:-1]
        assert system.levels[-1].bytes_per_s_per_direction == 100e9
        assert both.refusal(mine.id) is None or both.refusal(parent) is not None


def test_prices_are_the_parents_and_say_so(catalog: Catalog) -> None:
    own = derive(catalog, "h200_sxm", ["hbm_bandwidth=2x", "price.on_demand=3USD/h"])
    both = with_own_chips(catalog, [own])
    for basis in both.prices.bases():
        prices = both.prices.select(basis)
        if "h200_sxm" not in prices:
            assert own.chip.id not in prices
            continue
        mine = prices[own.chip.id]
        said = " ".join(mine.notes)
        assert said.startswith("assumed: ")
        if basis == "on_demand":
            assert mine.usd_per_chip_hour == 3.0
        else:
            assert mine.usd_per_chip_hour == pytest.approx(prices["h200_sxm"].usd_per_chip_hour)
            assert "that of h200_sxm" in said
    bought = [row for row in both.purchases if row.chip == own.chip.id]
    assert bought
    assert all(row.note.startswith("assumed: that of h200_sxm") for row in bought)
    load = Workload.of(1024, 256, "continuous", catalog.backends["generic"])
    answer = estimate(both, resolve_model("llama-3-8b"), own.chip.id, load, {})
    assert any("price on basis rental_3yr: assumed: that of h200_sxm" in s for s in answer.assumed)
    kinds = set(answer.as_json()["provenance"].values())
    assert "derived" in kinds
    assert "fitted" not in kinds - {answer.as_json()["provenance"].get("predicted_loss")}


def test_a_file_reads_back_as_it_was_written_and_derives_again(
    catalog: Catalog, tmp_path: Path
) -> None:
    first = derive(catalog, "h200_sxm", ["hbm_bandwidth=1.5x", "domain=72", "link=2x"])
    path = write(tmp_path, as_yaml(first, "dse catalog chips derive"))
    read = read_own_chip(path)
    chip, made = (
        replace(one, file="", prices=tuple(replace(row, line=0) for row in one.prices))
        for one in (read.chip, first.chip)
    )
    assert chip == made
    assert read.system is not None
    assert first.system is not None
    assert read.system.levels == first.system.levels
    own = load_catalog(chips=[path])
    second = derive(own, first.chip.id, ["tdp=2x"])
    assert second.chip.derived_from == "h200_sxm"
    assert second.chip.changes[:3] == first.chip.changes
    assert second.chip.changes[3] == f"tdp 2 x 700 W of {first.chip.id}"
    assert second.system is not None
    assert second.system.levels == first.system.levels


def test_links_follow_their_topology(catalog: Catalog) -> None:
    """MI300X: a full mesh of 8, 7 links of 64 GB/s. Kept total over 15 peers; twice the total over
    7; no pair limit behind a switch."""

    def level(*written: str):
        system = derive(catalog, "mi300x", written).system
        assert system is not None
        return system.levels[0]

    total = catalog.systems["mi300x_8"].levels[0].bytes_per_s_per_direction
    pair = catalog.systems["mi300x_8"].levels[0].bytes_per_s_per_pair
    assert pair is not None
    assert pair_bytes_per_s(level("domain=16")) == pytest.approx(total / 15)
    assert level("link=2x").bytes_per_s_per_pair == pytest.approx(2 * pair)
    assert level("topology=switched").bytes_per_s_per_pair is None
    assert level("topology=switched").topology == "switched"


def test_links_of_a_dragonfly_follow_its_bandwidth(catalog: Catalog) -> None:
    """Groq: seven links of 14 GB/s. How many links there are is not in a dragonfly's size."""

    def pair(written: str) -> float | None:
        system = derive(catalog, "groq_lpu_v1", (written,)).system
        assert system is not None
        return system.levels[0].bytes_per_s_per_pair

    assert pair("link=2x") == pytest.approx(28e9)
    assert pair("domain=1056") == pytest.approx(14e9)
    assert pair("topology=switched") is None


@pytest.mark.parametrize(
    ("parent", "written", "words"),
    [
        ("h200_sxm", "hbm_bandwith=2x", "'hbm_bandwith'; did you mean hbm_bandwidth"),
        ("h200_sxm", "hbm_bandwidth=0x", "a factor above zero"),
        ("h200_sxm", "hbm_bandwidth=-2x", "read '-2x'"),
        ("h200_sxm", "hbm_bandwidth=-100%", "more than -100%"),
        ("h200_sxm", "hbm_bandwidth=0TB/s", "zero (accepted: more than zero"),
        ("h200_sxm", "hbm_bandwidth=2", "its unit is missing"),
        ("h200_sxm", "hbm_bandwidth=80GB", "a size, not a bandwidth"),
        ("h200_sxm", "hbm_bandwidth", "not NAME=VALUE"),
        ("h200_sxm", "hbm_bandwidth=nanx", "read 'nanx'"),
        ("h200_sxm", "hbm_bandwidth=1e99x", "from 1e-6 to 1e6"),
        ("h200_sxm", "peak_nvfp4=2x", "h200_sxm has no peak_nvfp4 that could be multiplied"),
        ("h200_sxm", "jitter=2x", "no factor changes it"),
        ("h200_sxm", "domain=1.1x", "whole number"),
        ("h200_sxm", "topology=swiched", "did you mean switched"),
        ("h200_sxm", "price.rental_3y=2USD/h", "did you mean price.rental_3yr"),
        ("h200_sxm", "price=2USD/h", "a price on which basis"),
        ("v100_sxm2_32", "flops=2PFLOP/s", "has no peak_bf16"),
    ],
)  # fmt: skip
def test_bad_settings(catalog: Catalog, parent: str, written: str, words: str) -> None:
    assert words in str(refusal(derive, catalog, parent, [written]))


def test_less_power_slows_what_computes(catalog: Catalog) -> None:
    """A prompt waits for arithmetic, a decode step of few requests for the memory."""
    before = metrics(catalog, "h200_sxm", concurrency=4)
    after = changed(catalog, "h200_sxm", "tdp=0.5x", concurrency=4)
    assert after["prefill_s"][0] > 1.1 * before["prefill_s"][0]
    assert after["decode_step_s"][0] == pytest.approx(before["decode_step_s"][0], rel=0.02)
    assert after["watts_per_chip"][0] < before["watts_per_chip"][0]


@pytest.mark.parametrize(
    ("written", "matmul_w"),
    [
        (["tdp=0.5x"], 700.0),
        (["tdp=0.5x", "matmul_power=500W"], 500.0),
        (["tdp=0.9x", "flops=2x"], 700.0),
        (["tdp=0.5x", "flops=0.5x"], 115.0 + 585.0 / 2),  # idle power does not halve
        (["tdp=0.6x", "flops=0.5x"], None),  # enough for half of the multipliers
        (["tdp=+20%"], None),
        (["flops=2x"], None),
    ],
)
def test_what_a_derived_chip_draws(
    catalog: Catalog, written: list[str], matmul_w: float | None
) -> None:
    own = derive(catalog, "h200_sxm", written)
    assert own.chip.matmul_w == (None if matmul_w is None else pytest.approx(matmul_w))
    assert any("matmul_power" in change for change in own.chip.changes) == (matmul_w is not None)


def test_less_power_of_a_chip_without_a_16_bit_peak(catalog: Catalog) -> None:
    chip = next(
        one for one in catalog.chips.values()
        if "bf16" not in one.peak_flops_per_s and one.tdp_w is not None
    )  # fmt: skip
    assert derive(catalog, chip.id, ["tdp=0.5x"]).chip.matmul_w == chip.tdp_w


FACTOR = st.floats(1.0, 16.0)


@settings(max_examples=15, deadline=None)
@given(factor=FACTOR, name=st.sampled_from(["hbm_bandwidth", "flops", "link", "capacity"]))
def test_more_of_a_figure_is_never_slower_with_the_same_requests(factor: float, name: str) -> None:
    catalog = load_catalog()
    before = metrics(catalog, "h100_sxm", concurrency=4)
    after = changed(catalog, "h100_sxm", f"{name}={factor:.6f}x", concurrency=4)
    for metric in ("tpot_s", "ttft_s", "usd_per_million_total_tokens", "latency_floor_s"):
        assert after[metric][0] <= before[metric][0] * (1 + 1e-12)


@settings(max_examples=50, deadline=None)
@given(factor=st.floats(0.1, 1.0), seed=st.integers(0, 2**32 - 1))
def test_cheaper_is_never_worse(factor: float, seed: int) -> None:
    """What enters a front of (cost, time) enters it at a lower cost too."""
    rng = np.random.default_rng(seed)
    front, F = rng.random((8, 2)) + 0.1, rng.random((20, 2)) + 0.1
    G = rng.random((20, 1)) - 0.8
    dear = entering(front, Evaluation(F, G))
    cheap = entering(front, Evaluation(F * np.array([factor, 1.0]), G))
    by_hand = [
        bool((g <= 0).all()) and not any((p <= f).all() for p in front)
        for f, g in zip(F, G, strict=True)
    ]
    alone = np.array(
        [entering(front, Evaluation(F[k : k + 1], G[k : k + 1]))[0] for k in range(20)]
    )
    assert alone.tolist() == by_hand
    assert dear.any() <= cheap.any()
    assert not (dear & ~alone).any()


def test_a_point_of_the_front_does_not_enter_again() -> None:
    front = np.array([[1.0, 2.0], [2.0, 1.0]])
    G = np.zeros((2, 1))
    assert not entering(front, Evaluation(front, G)).any()
    assert not entering(front, Evaluation(front * (1 - 1e-12), G)).any()
    assert entering(front, Evaluation(front * 0.99, G)).all()


def test_half_the_time_of_memory_at_twice_the_bandwidth(catalog: Catalog) -> None:
    own = derive(catalog, "h200_sxm", ["hbm_bandwidth=2x"])
    machines = compile_machines(with_own_chips(catalog, [own]), ["h200_sxm", own.chip.id])
    for law in machines.laws.values():
        np.testing.assert_allclose(law.s_per_byte[1], law.s_per_byte[0] / 2, rtol=1e-12)
        np.testing.assert_allclose(law.s_per_flop[1], law.s_per_flop[0], rtol=1e-2)
        np.testing.assert_array_equal(law.fixed_s[1], law.fixed_s[0])


@pytest.fixture(scope="module")
def tiny_front(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tiny")
    dse.run("tiny", out=folder, catalog=load_catalog())
    return read_study(folder)[1]


@pytest.mark.parametrize("chip", ["h100_sxm", "h200_sxm"])
def test_candidates_hold_every_point_of_the_front_on_their_chip(
    catalog: Catalog, tiny_front: list[dict], chip: str
) -> None:
    """The deployments of the front's shapes, enumerated, give the very numbers of the search."""
    problem = pose(load_study(resolve_space("tiny")), catalog)
    configs = [item["model"] for item in tiny_front]
    models = [model_of(config, "front.json") for config in configs]
    batch = deployments(problem.study, models, configs)
    front = np.array(
        [[o.sign * item["metrics"][o.metric] for o in problem.objectives] for item in tiny_front]
    )
    trials = Trials(problem, catalog, chip, batch, front)
    tried = trials.try_(trials.machines(None))
    mine = [k for k, item in enumerate(tiny_front) if item["deployment"]["chip"] == chip]
    assert mine
    for point in front[mine]:
        assert np.isclose(tried.found.F, point, rtol=1e-12).all(axis=1).any()


# What twice each figure of a chip does for training and serving (`dse whatif --sensitivities`).


CATALOG = load_catalog()
ASKED = {"model": "llama-3-8b", "chips": ("h100_sxm",), "tp": 1, "training_chips": 64}


@pytest.fixture(scope="module")
def document():
    return dse.whatif(sensitivities=True, **ASKED).document


def by_figure(document, task: str, key: str) -> dict[str, float | None]:
    return {row["figure"]: row[key] for row in document["doubled"] if row["task"] == task}


def test_the_elasticities_of_a_token_add_up_to_less_than_one(document) -> None:
    """Fixed costs stay: no figure shortens them."""
    token = by_figure(document, "one user's token", "elasticity")
    assert -1.0 < sum(e for name, e in token.items() if name != "power" and e is not None) < 0.0


def test_changes_are_those_of_estimate(document) -> None:
    at = {"weight_dtype": "fp8", "concurrency": 1, "prompt_tokens": 2048, "output_tokens": 512}
    now = dse.estimate("llama-3-8b", "h100_sxm", **at).tpot_s
    more = dse.estimate("llama-3-8b", "h100_sxm", settings=("bandwidth=2x",), **at).tpot_s
    (row,) = (
        row
        for row in document["doubled"]
        if (row["task"], row["figure"]) == ("one user's token", "memory bandwidth")
    )
    assert row["seconds"] == now
    assert row["change"] == pytest.approx(more / now - 1.0)
    assert row["elasticity"] == pytest.approx(math.log2(more / now))
    # At this price and with the figure doubled, a token costs what it did.
    price = CATALOG.prices.select("rental_3yr")["h100_sxm"].usd_per_chip_hour
    assert more * (price + row["worth_usd_per_chip_hour"]) == pytest.approx(now * price)


def test_one_chip_has_no_link_to_use(document) -> None:
    assert by_figure(document, "one user's token", "elasticity")["link bandwidth"] == 0.0
    assert by_figure(document, "training", "elasticity")["power"] is None  # not modelled there


def test_unit_prices(document) -> None:
    rows = {(row["chip"], row["basis"]): row for row in document["unit_prices"]}
    row, chip = rows["h100_sxm", "rental_3yr"], CATALOG.chips["h100_sxm"]
    bandwidth = chip.memories[0].bytes_per_s
    assert bandwidth is not None
    assert row["usd_per_tb_per_s"] * bandwidth / 1e12 == pytest.approx(row["usd_per_chip_hour"])
    assert {basis for _, basis in rows} == {*CATALOG.prices.bases(), "owned_tco"}


def test_the_command_says_the_same_beside_the_sensitivities_of_serving(document) -> None:
    asked = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--sensitivities")
    said = command("whatif", *asked, "--set", "tp=1", "--set", "training_chips=64", "--json").json()
    assert said["doubled"] == document["doubled"]
    assert said["doubled_mean"] == document["doubled_mean"]
    assert said["sensitivities"] == document["sensitivities"]
    wrong = command("whatif", "--chip", "no_such_chip", "--sensitivities")
    assert (wrong.code, wrong.out) == (2, "")
    wrong = command("whatif", "--chip", "h100_sxm", "--sensitivities", "--set", "tpot_limit=0s")
    assert "above 0 s" in wrong.err


def test_a_study_is_not_trained() -> None:
    document = dse.whatif(yaml.safe_load(SPACE.format(**PAIR)), sensitivities=True).document
    assert "doubled" not in document
