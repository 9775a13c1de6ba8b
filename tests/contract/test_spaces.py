"""Every shipped space: it loads, has the size it promises, and keeps to the shapes of the field."""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.physics.parameters import parameters
from dse.problem.objective import pose
from dse.quality import LAWS
from dse.schema.axes import AXES, POOLS
from dse.schema.metrics import METRICS, parse_constraint
from dse.schema.model_catalog import resolve_model
from dse.schema.study import Study, load_study, shipped_spaces
from dse.schema.system import ON_PCIE
from dse.space.batches import batch_of_values
from dse.space.space import Space, deployments
from dse.study.definition import posed_study
from dse.study.document import front_items, searched_axes
from dse.study.folder import front_table

SPACES = shipped_spaces()
SEARCHED = [name for name in SPACES if load_study(SPACES[name]).model is None]
POINTS = {
    "tiny": (1_000, 100_000),
    "quickstart": (800_000, 2_500_000),
    "deploy-llama-3-70b": (1_000, 100_000),
    "deploy-deepseek-v3": (10_000, 1_000_000),
    "rack-domain": (1_000, 300_000),
    "deploy-gpt-oss-120b": (1_000, 1_000_000),
    "three-systems": (100_000, 2_000_000),
    "gpu-tpu-lpu-wafer": (500, 100_000),
    "shape-for-gpu-tpu-lpu-wafer": (100_000, 3_000_000),
    "shape-for-edge": (500_000, 10_000_000),
    "shape-for-phone": (1_000, 100_000),
    "consumer-fleet": (1_000_000, 100_000_000),
    "lifetime-dense": (10_000, 100_000),
    "lifetime-sparse": (10_000, 100_000),
    "shape-for-nvl72": (10**9, 10**10),
    "attention-kinds": (1_000, 100_000),
    "shape-for-8xh200": (10**9, 10**11),
    "shape-for-nvl72-20ms": (10**10, 10**12),
    "shape-for-nvl72-50ms": (10**10, 10**12),
    "shape-for-tpu-pod": (10**9, 10**11),
    "shape-for-workstation": (10**7, 10**9),
    "sparse-against-dense": (100_000, 3_000_000),
    "hidden-and-experts-by-chip": (100_000, 3_000_000),
}
OF_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_experts")
PAGES = Path(__file__).parents[2] / "docs"
DOCS = (PAGES / "spaces.md").read_text(encoding="utf-8")
METRICS_PAGE = (PAGES / "api.md").read_text(encoding="utf-8")


def values_of(name: str, n: int = 20_000) -> dict[str, np.ndarray]:
    space = Space.of(load_study(SPACES[name]))
    found = space.values(space.sample(np.random.default_rng(0), n))
    dense = dict.fromkeys(OF_EXPERTS, np.zeros(len(found["chip"])))
    return {**dense, **found}


def test_shipped() -> None:
    assert set(POINTS) <= set(SPACES)


@pytest.mark.parametrize("name", SPACES)
def test_loads(name: str) -> None:
    study = load_study(SPACES[name])
    space = Space.of(study)
    assert study.name == name
    assert study.title
    assert study.description
    ids = np.linspace(0, space.size - 1, 1000).astype(np.int64)
    assert np.array_equal(space.rank(space.unrank(ids)), ids)
    low, high = POINTS.get(name, (1, 10**9))
    assert low <= space.size <= high


@pytest.mark.parametrize("name", POINTS)
def test_a_sample_is_feasible_in_part(name: str) -> None:
    study = load_study(SPACES[name])
    problem = pose(study, load_catalog())
    sample = problem.space.sample(np.random.default_rng(0), 4_000)
    evaluation = problem.evaluate(sample)
    feasible = (evaluation.G <= 0.0).all(axis=1)
    assert 0.01 < feasible.mean() < 0.99
    assert np.isfinite(evaluation.F[feasible]).all()


KINDS = """
name: kinds
title: Axes that no shipped space varies
price_basis: rental_3yr
workload: {prompt_tokens: 1024, output_tokens: 512, serving: continuous, backend: current}
training_tokens: 10T
model:
  vocab_size: 128000
  sparse: [true, false]
  hidden_size: 4096
  num_hidden_layers: 32
  head_dim: 128
  num_attention_heads: 32
  num_key_value_heads: 8
  linear_attention: [none, mamba2]
  full_attention_interval: [4, 8]
  ssm_state_size: [64, 128]
  n_groups: [1, 8]
  index_topk: [0, 2048]
  index_n_heads: [32, 64]
  index_head_dim: [64, 128]
  intermediate_size: 14336
  num_experts: 64
  num_experts_per_tok: 4
  moe_intermediate_size: 2048
  num_shared_experts: 1
  num_dense_layers: [0, 2]
  interleave_moe_layer_step: [1, 2]
deployment:
  chip: [h100_sxm]
  tensor_parallel: [4, 8]
  replicas: 1
  weight_dtype: fp8
  kv_dtype: fp8
  concurrency: [16, 32]
objectives: {predicted_loss: minimize, tpot_s: minimize}
"""


@pytest.mark.parametrize("name", [*SPACES, "kinds"])
def test_the_front_table_tells_every_axis_and_metric_once(name: str, tmp_path: Path) -> None:
    """Designs that differ in the space differ in front.csv."""
    path = tmp_path / "kinds.yaml"
    path.write_text(KINDS, encoding="utf-8")
    posed = posed_study(str(SPACES.get(name, path)), load_catalog(), "auto", 0)
    problem = posed.problem
    index = problem.space.canonical(problem.space.sample(np.random.default_rng(0), 4_000))
    index = index[(problem.evaluate(index).G <= 0.0).all(axis=1)][:20]
    metrics_of_all = problem.metrics(index, keep=True)
    items = front_items(problem, posed.catalog, metrics_of_all, index, tmp_path)
    items = [{**item, "decision": 1, "front_probability": 1.0} for item in items]
    text = front_table(items, searched_axes(problem.space, index))
    heads, *rows = csv.reader(text.splitlines())
    assert len(set(heads)) == len(heads)
    varied = {axis.name for axis in problem.space.axes if len(axis.values) > 1}
    values = items[0]["metrics"].items()
    metrics = {metric for metric, value in values if metric in METRICS or isinstance(value, float)}
    assert varied | metrics <= set(heads)
    at = [heads.index(axis) for axis in sorted(varied)]
    told = {tuple(row[k] for k in at) for row in rows}
    assert len(told) == len({tuple(one) for one in index.tolist()})


@pytest.mark.parametrize(
    ("name", "low", "high"), [("shape-for-nvl72", 200e9, 1e12), ("shape-for-edge", 1e9, 10e9)]
)
def test_shapes_reach_both_ends_of_the_sizes_asked_for(name: str, low: float, high: float) -> None:
    total = parameters(batch_of_values(values_of(name))).total
    assert total.min() < low
    assert total.max() > high
    assert ((total >= low) & (total <= high)).mean() > 0.2


def test_a_rack_of_72_is_used_whole_by_some_points() -> None:
    v = values_of("shape-for-nvl72")
    whole = v["tensor_parallel"] * v["data_parallel"] == 72
    assert (v["num_experts"][whole] % 72 == 0).any()


def test_no_card_of_the_consumer_fleet_has_nvlink() -> None:
    catalog = load_catalog()
    chips = Space.of(load_study(SPACES["consumer-fleet"])).chips
    topologies = {catalog.systems[catalog.chips[c].system].levels[0].topology for c in chips}
    assert topologies == set(ON_PCIE)
    assert "l40s" in chips
    assert any(chip.startswith("rtx") for chip in chips)


def test_deployment_covers_every_chip_with_the_price() -> None:
    study = load_study(SPACES["deploy-llama-3-70b"])
    catalog = load_catalog()
    priced = set(catalog.prices.select(study.price_basis)) & set(catalog.chips)
    assert set(Space.of(study).chips) == priced
    assert set(study.left_out) == set(catalog.chips) - priced
    assert len(priced) >= 5


@pytest.mark.parametrize("name", SEARCHED)
def test_shapes_keep_the_hard_rules(name: str) -> None:
    """64-element alignment (128 bytes at 16 bits, NVIDIA's matrix multiplication guide), whole
    head groups, head widths near the model's."""
    v = values_of(name)
    sparse = v["num_experts"] > 0
    for width in ("hidden_size", "intermediate_size", "moe_intermediate_size", "vocab_size"):
        assert not (v.get(width, np.zeros(1)) % 64).any()
    grouped = v["num_key_value_heads"] > 0  # 0 with latent attention
    assert not (v["num_attention_heads"][grouped] % v["num_key_value_heads"][grouped]).any()
    heads = v["num_attention_heads"] * v["head_dim"] / v["hidden_size"]
    assert ((heads >= 0.67) & (heads <= 2.0)).all()
    assert not (v["num_experts"][sparse] % 8).any()
    assert (v["num_experts_per_tok"] <= v["num_experts"]).all()
    assert not (v["num_hidden_layers"] % 2).any()


@pytest.mark.parametrize("name", SEARCHED)
def test_shapes_stay_where_the_law_was_fitted(name: str) -> None:
    v = values_of(name)
    sparse = v["num_experts"] > 0
    shared = v["num_shared_experts"]
    ratio = ((v["num_experts_per_tok"] + shared) / (v["num_experts"] + shared + ~sparse))[sparse]
    granularity = 2 * v["hidden_size"][sparse] / v["moe_intermediate_size"][sparse]
    assert not LAWS["leverage"].fit["activation_ratio"].excludes(ratio).any()
    assert not LAWS["leverage"].fit["granularity"].excludes(granularity).any()
    assert ratio.max(initial=0.0) <= 0.3
    width_per_layer = v["hidden_size"] / v["num_hidden_layers"]
    assert width_per_layer.min() >= 40
    assert width_per_layer.max() <= 200


def test_docs_name_every_axis() -> None:
    missing = [name for name in AXES if f"`{name}`" not in DOCS]
    assert not missing


def test_the_units_of_the_metrics_page_are_read() -> None:
    """A limit on every metric with a star, in the unit that its row shows."""
    starred = dict(re.findall(r"^\| `(\w+)`\* \| ([^|]*?)\|", METRICS_PAGE, re.MULTILINE))
    assert list(starred) == list(METRICS)
    words = {"seconds": "s", "joules": "J", "watts": "W", "nats": "", "bytes": "GB", "flop": "FLOP"}
    for name, unit in starred.items():
        limit = f"{name} <= 2 {words.get(unit.strip(), unit.strip())}".strip()
        assert parse_constraint(limit).metric == name


def test_the_example_of_the_docs_loads(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(DOCS.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert Space.of(load_study(path)).size > 1_000


def test_the_limits_of_the_docs_are_read() -> None:
    limits = re.findall(r"`([a-z0-9_]+ [<>]= [^`]+)`", DOCS)
    assert len(limits) > 6
    assert {parse_constraint(limit).metric for limit in limits} <= set(METRICS)


def _listed(study: Study) -> bool:
    """Whether the deployments of a given shape are listed: of pools, the workers are."""
    return study.model is not None and all(axis.name != POOLS for axis in study.axes)


FIXED = [name for name in SPACES if _listed(load_study(SPACES[name]))]


@pytest.mark.parametrize("name", FIXED)
def test_the_deployments_of_a_shape_are_those_of_the_space(name: str) -> None:
    """What questions list for a given shape is the space itself, every axis of it."""
    study = load_study(SPACES[name])
    assert study.model is not None
    model = resolve_model(study.model)
    space = Space.of(study)
    values = space.values(space.unrank(np.arange(space.size)))
    first = {axis: found[values["chip"] == 0] for axis, found in values.items()}
    expected, found = batch_of_values(first, model=model), deployments(study, [model], [{}], chip=0)
    assert len(found) == len(expected)
    for field in dataclasses.fields(expected):
        wanted, got = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(wanted, np.ndarray):
            assert np.array_equal(wanted, got, equal_nan=True), field.name
    for part, wanted in expected.weight_dtype.items():
        assert np.array_equal(wanted, found.weight_dtype[part])
