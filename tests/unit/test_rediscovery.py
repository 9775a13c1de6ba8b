"""Rediscovery: the front and distances to it, designs as axis values, paths, cases as data."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dse
from dse.catalog import load_catalog
from dse.errors import InputError, NothingFeasible
from dse.problem.mix import evaluate_mix
from dse.problem.objective import pose
from dse.problem.shapes import (
    at_price,
    axis_values,
    best_deployments,
    distance,
    exchange,
    front_of,
    metrics_of,
    price_at,
    price_metric,
    shapes_of,
    stored_as,
)
from dse.quality.quantisation import AWARE
from dse.questions.compare.designs import shapley
from dse.schema.dtypes import DTYPES
from dse.schema.study import load_case, load_study, shipped_cases
from dse.search.run import search
from dse.space.batches import batch_of
from tests.helpers_files import changed, write

CASES = shipped_cases()
SMALL = """
name: small
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous}
price_basis: rental_3yr
training_tokens: 15T
model:
  vocab_size: 128256
  sparse: [false, true]
  hidden_size: [3072, 4096, 5120]
  num_hidden_layers: [28, 36]
  head_dim: 128
  num_attention_heads: [32]
  num_key_value_heads: [4, 8]
  intermediate_size: {values: [12288, 16384], when: {sparse: false}}
  num_experts: [16, 32]
  num_experts_per_tok: [2]
  moe_intermediate_size: [2048, 4096]
deployment:
  chip: h100_sxm
  chips: 2
  tensor_parallel: [1, 2]
  expert_parallel: {values: [1, 2], when: {sparse: true}}
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: [8, 32, 128]
objectives: {predicted_loss: minimize, usd_per_million_total_tokens: minimize}
constraints: [ttft_s <= 1 s, tpot_s <= 30 ms, total_parameters <= 30B]
"""
CASE = """
name: small
title: Llama-3-8B in a small space
space: small.yaml
expert: llama-3-8b
known:
  - {what: chip, value: H100, kind: assumed, note: for a test}
hold: {axes: {sparse: [false]}, reason: for a test}
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory):
    return load_case(varied(tmp_path_factory.mktemp("case")))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory):
    return dse.compare(varied(tmp_path_factory.mktemp("found"))).document


def variants(document, *assumptions: str):
    return [row for row in document["variants"] if row["assumption"] in assumptions]


def front(loss: list[float], price: list[float]):
    every = np.ones(len(loss), dtype=bool)
    return front_of(np.array(loss), np.array(price), np.array(loss) * 1e9, every)


# --- the front and distances to it


def test_between_two_points_the_price_is_geometric_in_the_loss():
    made = front([1.8, 1.9, 2.0, 1.95], [4.0, 2.0, 1.0, 9.0])
    assert made.rows.tolist() == [0, 1, 2]
    assert price_at(made, 1.9) == pytest.approx(2.0)
    assert price_at(made, 1.85) == pytest.approx(math.sqrt(8.0))
    assert at_price(made, math.sqrt(2.0), made.loss) == pytest.approx(1.95)
    assert exchange(made, 1.9) == pytest.approx(math.log(4.0) / 0.2)


def test_beyond_its_best_quality_the_front_says_nothing_and_beyond_its_cheapest_it_stays():
    made = front([1.8, 2.0], [4.0, 1.0])
    assert price_at(made, 1.79) is None
    assert at_price(made, 0.99, made.loss) is None
    assert price_at(made, 2.5) == pytest.approx(1.0)
    assert at_price(made, 9.0, made.loss) == pytest.approx(1.8)


def test_a_design_against_the_front():
    loss, price = np.array([1.8, 1.9, 2.0]), np.array([4.0, 2.0, 1.0])
    every = np.ones(3, dtype=bool)
    made = front_of(loss, price, np.array([3e9, 2e9, 1e9]), every)
    away = distance(made, loss, price, every, (1.9, 3.0, 2e9))
    assert away["cost_ratio"] == pytest.approx(1.5)
    assert away["nats"] == pytest.approx(0.1 * math.log(1.5) / math.log(2.0))
    assert (away["cheaper"], away["better"], away["dominating"]) == (1, 1, 1)
    ahead = distance(made, loss, price, every, (1.7, 1.0, 4e9))
    assert ahead["cost_ratio"] is None
    assert ahead["nats"] == pytest.approx(-0.3)
    assert (ahead["cheaper"], ahead["dominating"]) == (None, 0)


points = st.tuples(st.floats(1.7, 2.2), st.floats(0.01, 10.0))


@given(st.lists(points, min_size=1, max_size=30), points)
def test_what_is_beaten_costs_more_than_the_front_and_what_beats_it_does_not(rivals, design):
    loss, price = (np.array(column) for column in zip(*rivals, strict=True))
    every = np.ones(len(loss), dtype=bool)
    made = front_of(loss, price, -loss, every)
    away = distance(made, loss, price, every, (*design, 1.0))
    assert (np.diff(made.loss) > 0).all()
    assert (np.diff(made.price) < 0).all()
    if away["dominating"]:
        assert away["cost_ratio"] >= 1.0 - 1e-12
        assert away["nats"] >= -1e-12
        assert away["cheaper"] is not None
    if (loss > design[0]).all():
        assert away["cost_ratio"] is None
    for row in made.rows:  # every point of the front lies on it
        own = distance(made, loss, price, every, (loss[row], price[row], 1.0))
        assert own["cost_ratio"] == pytest.approx(1.0)
        assert own["dominating"] == 0


# --- shapes outside, deployments inside


def test_the_table_of_shapes_has_the_front_of_an_exhaustive_search(case):
    problem = pose(case.study, load_catalog())
    served = best_deployments(problem, shapes_of(problem))
    loss = metrics_of(problem, served.values).values["predicted_loss"]
    made = front_of(loss, served.price, loss, served.feasible)
    true = search(problem, "exhaustive").front.F
    assert len(made.rows) > 3
    assert np.array_equal(np.stack([made.loss, made.price], axis=1), true)


def test_other_objectives_and_a_fixed_model_are_refused(tmp_path: Path):
    def posed(old: str, new: str, text: str = SMALL):
        return pose(load_study(write(tmp_path, text.replace(old, new))), load_catalog())

    with pytest.raises(InputError, match="predicted_loss, chips"):
        price_metric(posed("usd_per_million_total_tokens: min", "chips: min"))
    many = SMALL.replace("[28, 36]", "{from: 2, to: 200, multiple_of: 2}")
    large = posed("[8, 32, 128]", "{from: 1, to: 100000, multiple_of: 10}", many)
    with pytest.raises(InputError, match=r"are [0-9,]+ points"):
        shapes_of(large)
    model = SMALL[SMALL.index("model:") : SMALL.index("deployment:")]
    dense = SMALL.replace("  expert_parallel: {values: [1, 2], when: {sparse: true}}\n", "")
    fixed = posed(model, "model: llama-3-8b\n", dense)
    with pytest.raises(InputError, match="the model is fixed"):
        shapes_of(fixed)


# --- designs as axis values


@cache
def published(name: str):
    """A shipped case, its problem without limits, the design's own axis values, and its metrics on
    its best deployment."""
    case = load_case(CASES[name])
    free = replace(pose(case.study, load_catalog()), limits=())
    own, adapt = axis_values(case.expert, case.study.model_axes), stored_as(case.expert)
    served = best_deployments(free, own, adapt=adapt)
    return case, free, own, served, metrics_of(free, served.values, adapt)


@pytest.mark.parametrize("name", CASES)
def test_a_design_from_axes_is_the_model_of_the_catalog(name: str):
    """Parameters, cache and every time and price of the design, rebuilt from axis values, are those
    of the catalog's blocks on the same deployment."""
    case, problem, _, served, rebuilt = published(name)
    degrees = {
        axis: served.values[axis]
        for axis in ("tensor_parallel", "data_parallel", "expert_parallel", "concurrency")
        if axis in served.values
    }
    chips = degrees["tensor_parallel"] * degrees.get("data_parallel", 1.0)
    axes = ("tensor_parallel", "data_parallel", "expert_parallel", "replicas", "pipeline_parallel")
    deployment = {**dict.fromkeys(axes, 1.0), **degrees}
    batch = batch_of(
        [case.expert],
        np.zeros(1, dtype=np.intp),
        [DTYPES[int(served.values["weight_dtype"][0])]],
        [DTYPES[int(served.values["kv_dtype"][0])]],
        deployment,
    )
    own = evaluate_mix(batch, problem.mix, problem.machines)
    assert rebuilt.values["chips"][0] == chips[0]
    for metric in (
        "total_parameters",
        "active_parameters",
        "kv_bytes_per_token",
        "ttft_s",
        "tpot_s",
        "usd_per_million_total_tokens",
        "memory_bytes_per_chip",
    ):
        assert rebuilt.values[metric][0] == pytest.approx(own.values[metric][0], rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_budgets_are_those_of_the_design(name: str):
    """Rivals have the design's tokens, at most 6% more active parameters, and so training compute,
    and at most 5% more parameters in all."""
    case, *_, metrics = published(name)
    values = metrics.values
    assert case.expert.training_tokens in (None, case.study.training_tokens)
    limits = {(c.metric, c.operator): c.limit for c in case.study.constraints}
    for metric, most in (("active_parameters", 1.06), ("total_parameters", 1.05)):
        ratio = limits[metric, "<="] / values[metric][0]
        assert 1.0 <= ratio <= most
    assert limits["total_parameters", ">="] < values["total_parameters"][0]


def test_native_four_bit_weights_are_not_quantised_again():
    """Shapes of gpt-oss's case end their training in the format that they are served in."""
    *_, metrics = published("gpt-oss-120b")
    loss = metrics.quality.predicted_loss[0]
    assert metrics.formats.deployed[0] == 0.0
    added = metrics.values["predicted_loss"][0] - loss
    assert 0.0 < added <= AWARE.share * loss


def test_a_model_that_the_axes_cannot_say_is_refused(case):
    from dse.schema.model_catalog import resolve_model

    for name, why in (("deepseek-v3", "kv_lora_rank"), ("qwen3-next-80b-a3b", "delta_net")):
        with pytest.raises(InputError, match=why):
            axis_values(resolve_model(name), case.study.model_axes)


# --- one whole case


def test_what_is_held_binds_the_front_and_its_release_is_a_variant(found):
    assert not any(row["sparse"] for row in found["front"])
    design, (free,) = found["designs"][0], variants(found, "free")
    assert free["dominating"] >= design["dominating"]
    assert free["cost_ratio"] is None or free["cost_ratio"] >= design["cost_ratio"] - 1e-12


def test_a_limit_on_rivals_never_brings_the_front_farther(found):
    design = found["designs"][0]
    for row in variants(found, "attention", "depth"):
        assert row["cost_ratio"] is None or row["cost_ratio"] <= design["cost_ratio"] * (1 + 1e-12)
        assert row["dominating"] <= design["dominating"]


def test_every_law_has_its_row_and_other_laws_leave_prices_alone(found):
    laws = {"law hoffmann", "law cautious", "law joint", "law abnar", "tokens"}
    assert laws <= {row["assumption"] for row in found["variants"]}
    # A dense front: under laws of one dense form the order of shapes is the same.
    (hoffmann,) = variants(found, "law hoffmann")
    assert hoffmann["dominating"] == found["designs"][0]["dominating"]


def varied(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    write(tmp_path, changed(SMALL, *changes), "small.yaml")
    return write(tmp_path, CASE, "case.yaml")


def test_a_design_that_cannot_be_served_has_no_distance(tmp_path: Path):
    slow = dse.compare(varied(tmp_path, ("tpot_s <= 30 ms", "tpot_s <= 4 ms")))
    (row,) = slow.document["designs"]
    assert row["served_shapes"] > 0
    assert row["cost_ratio"] is row["usd_per_million_total_tokens"] is None
    assert row["standing"] == "not servable"
    assert slow.headline == (
        "Llama-3-8B cannot be served within the limits on any deployment of the space."
    )
    assert "cannot be served" in slow.to_markdown()
    json.dumps(slow.document, allow_nan=False)


def test_a_case_has_one_chip(tmp_path: Path):
    with pytest.raises(InputError, match="2 chips: h100_sxm, h200_sxm"):
        dse.compare(varied(tmp_path, ("chip: h100_sxm", "chip: [h100_sxm, h200_sxm]")))


# --- case files


# What a published design costs, by cause: the shares add up, and mean what they say.


def score_of(gains: list[float]) -> np.ndarray:
    """Of choices that do not depend on each other: what each set leaves of nothing."""
    n = len(gains)
    return np.array([-sum(gains[k] for k in range(n) if s >> k & 1) for s in range(1 << n)])


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=5))
def test_independent_choices_have_their_own_gain(gains: list[float]) -> None:
    assert shapley(score_of(gains), len(gains)) == pytest.approx(gains, abs=1e-12)


@given(arrays(float, 16, elements=st.floats(-3, 3)))
def test_shares_add_up_to_the_whole(score: np.ndarray) -> None:
    found = shapley(score, 4)
    assert found is not None
    assert found.sum() == pytest.approx(score[0] - score[15], abs=1e-9)


def test_two_choices_that_only_work_together_share_alike() -> None:
    assert shapley(np.array([0.0, 0.0, 0.0, -1.0]), 2) == pytest.approx([0.5, 0.5])


def test_what_cannot_be_served_is_no_way() -> None:
    """Where the first choice alone cannot be served, it comes last."""
    assert shapley(np.array([0.0, np.inf, -0.2, -1.0]), 2) == pytest.approx([0.8, 0.2])
    assert shapley(np.array([0.0, np.inf, np.inf, -1.0]), 2) is None


# One shape for several chips: regrets, and what they do not depend on.


COST = "usd_per_million_total_tokens"
TWO_CHIPS = """
name: two-chips
title: Two chips
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous}
price_basis: rental_3yr
training_tokens: 15T
model:
  vocab_size: 128256
  hidden_size: [3072, 4096, 5120]
  num_hidden_layers: [28, 36, 44]
  head_dim: 128
  num_attention_heads: 32
  num_key_value_heads: [4, 8]
  intermediate_size: [12288, 16384]
deployment:
  chip: [h100_sxm, mi300x]
  chips: 2
  tensor_parallel: [1, 2]
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: [8, 32, 128]
objectives: {predicted_loss: minimize, usd_per_million_total_tokens: minimize}
constraints: [ttft_s <= 1 s, tpot_s <= 30 ms, dense_equivalent_parameters >= 6B]
"""


@pytest.fixture
def study(tmp_path: Path):
    return lambda *change: write(tmp_path, changed(TWO_CHIPS, *change))


@pytest.fixture(scope="module")
def basket(tmp_path_factory: pytest.TempPathFactory):
    return dse.compare(write(tmp_path_factory.mktemp("basket"), TWO_CHIPS), by="chip")


def choices(answer, which: str) -> dict[str, dict]:
    """The rows of one shape, by chip."""
    return {row["chip"]: row for row in answer.document["choices"] if row["which"] == which}


def test_regret_is_over_each_chips_own_cheapest_shape(basket):
    best = choices(basket, "least worst")
    own = {chip: choices(basket, f"best for {chip}")[chip] for chip in ("h100_sxm", "mi300x")}
    for chip, row in own.items():
        assert row["regret"] == 0.0
        ratio = best[chip][COST] / row[COST] - 1.0
        assert best[chip]["regret"] == pytest.approx(ratio, abs=1e-12)


def test_at_the_loosest_quality_the_answer_is_that_of_the_whole_space(basket):
    levels = basket.document["levels"]
    worst = max(row["regret"] for row in choices(basket, "least worst").values())
    assert levels[0]["worst_regret"] == pytest.approx(worst, abs=0.02)
    assert all(row["worst_regret"] >= 0.0 for row in levels)
    losses = [row["predicted_loss_at_most"] for row in levels]
    assert losses == sorted(losses, reverse=True)


def test_the_price_level_of_a_chip_cancels(study, basket):
    catalog = load_catalog()
    rows = tuple(
        replace(row, usd_per_chip_hour=3.0 * row.usd_per_chip_hour) if row.chip == "mi300x" else row
        for row in catalog.prices.rows
    )
    dearer = replace(catalog, prices=replace(catalog.prices, rows=rows))
    other = dse.compare(study(), by="chip", catalog=dearer)
    for chip, factor in (("h100_sxm", 1.0), ("mi300x", 3.0)):
        one, more = (choices(answer, "least worst")[chip] for answer in (basket, other))
        assert more[COST] == pytest.approx(factor * one[COST])
        assert more["regret"] == pytest.approx(one["regret"], abs=1e-12)


def test_two_of_the_same_chip_have_no_regret(study):
    """Where all chips agree, one shape costs nothing."""
    catalog = load_catalog()
    twin = replace(catalog.chips["h100_sxm"], id="mi300x")
    same = replace(catalog, chips={**catalog.chips, "mi300x": twin})
    alike = choices(dse.compare(study(), by="chip", catalog=same), "least worst")
    assert all(row["regret"] == pytest.approx(0.0, abs=1e-12) for row in alike.values())


def test_one_chip_no_floor_and_nothing_for_all_are_refused(study):
    with pytest.raises(InputError, match="one chip: h100_sxm"):
        dse.compare(study(("[h100_sxm, mi300x]", "h100_sxm")), by="chip")
    with pytest.raises(InputError, match="no limit on quality"):
        dse.compare(study((", dense_equivalent_parameters >= 6B", "")), by="chip")
    with pytest.raises(NothingFeasible, match="h100_sxm 0, mi300x 0"):
        dse.compare(study(("tpot_s <= 30 ms", "tpot_s <= 100 us")), by="chip")
