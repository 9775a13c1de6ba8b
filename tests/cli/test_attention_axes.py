"""A space that searches kinds of attention, as a person runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.errors import InputErrors
from dse.physics.parameters import parameters, state_bytes_per_request
from dse.physics.workload import Speculation
from dse.problem.shapes import model_at
from dse.schema.axes import AXES
from dse.schema.metrics import parse_constraint
from dse.schema.model import config_of, model_of
from dse.schema.study import Study, load_study
from dse.space.batches import DEPLOYMENT_AXES, batch_of, batch_of_values
from dse.space.candidates import CandidateBatch
from dse.space.space import Space
from dse.study.laws import rows, unseen
from tests.cli.conftest import ask, dse, fits
from tests.helpers import CHIPS, deploy, run, workload

SPACE = """\
name: kinds
workload: {prompt_tokens: 32768, output_tokens: 512, serving: continuous, backend: current,
  draft_tokens: 1, acceptance: 0.8}
price_basis: rental_3yr
model:
  vocab_size: 128256
  hidden_size: [2048, 3072]
  num_hidden_layers: 48
  head_dim: 128
  num_attention_heads: {ratio_of: hidden_size / head_dim, values: [1]}
  attention: [gqa, mla]
  linear_attention: [none, gated_delta_net, mamba2]
  full_attention_interval: [4, 8]
  num_key_value_heads: [8, 16]
  sliding_window: {values: [0, 1024], when: {linear_attention: none}}
  sliding_window_pattern: [2, 6]
  kv_lora_rank: 512
  index_topk: [0, 2048]
  intermediate_size: {ratio_of: hidden_size, values: [3.5], multiple_of: 256}
  num_nextn_predict_layers: [0, 1]
  training_tokens: [5T, 15T]
deployment:
  chip: h200_sxm
  replicas: 1
  tensor_parallel: [1, 2, 4]
  weight_dtype: fp8
  kv_dtype: [bf16, fp8]
  concurrency: {from: 4, to: 64, powers_of: 2}
objectives:
  usd_per_million_total_tokens: minimize
  tpot_s: minimize
  full_attention_share: maximize
constraints: [training_flops <= 1e24 FLOP, query_heads_per_kv_head <= 16, tpot_s <= 100 ms]
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "kinds.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return path


def test_a_study_from_check_to_explain(written: Path, tmp_path: Path) -> None:
    said = dse("catalog", "spaces", "check", written)
    assert said.code == 0
    assert "no law sees it: windows and chunks" in said.out
    assert fits(said.out, 100)
    assert "5T, 15T" in said.out
    hypervolumes = []
    for engine in ("pareto-local", "exhaustive"):
        out = tmp_path / engine
        said = dse("run", written, "--engine", engine, "--out", out)
        assert said.code == 0
        assert fits(said.out, 100)
        hypervolumes.append(json.loads((out / "study.json").read_text())["hypervolume"])
    assert hypervolumes[0] == pytest.approx(hypervolumes[1], rel=0.02)
    items = json.loads((out / "front.json").read_text())["items"]
    kinds = {block["kind"] for item in items for block in item["model"]["blocks"]}
    assert {"gqa", "mla"} <= kinds
    for item in items[:: max(len(items) // 8, 1)]:
        again = ask("estimate", out, item["point"])
        for name in ("tpot_s", "ttft_s", "kv_bytes_per_token", "memory_bytes_per_chip"):
            assert again[name] == item["metrics"][name]
        assert again["feasible"]
    latent = next(i for i in items if any(b["kind"] == "mla" for b in i["model"]["blocks"]))
    said = dse("estimate", "--detail", out, latent["point"])
    assert said.code == 0
    assert "latent attention (MLA, 512 numbers cached" in said.out
    header = (out / "front.csv").read_text().splitlines()[0].split(",")
    assert "layers" in header
    assert "full_attention_share" in header
    assert "training_flops" in header
    report = (out / "report.md").read_text()
    assert "no law sees it: latent attention" in report


# Attention kinds and layers as axes: published models from axes, counted layers, mistakes.


CONFIGS = Path(__file__).parents[1] / "data" / "configs"
PUBLISHED = yaml.safe_load((CONFIGS.parent / "axes.yaml").read_text(encoding="utf-8"))
REFUSED = yaml.safe_load((CONFIGS.parent / "axes_refused.yaml").read_text(encoding="utf-8"))
KIMI = PUBLISHED.pop("kimi-linear-48b-a3b")
METRICS = (
    "total_parameters", "active_parameters", "kv_bytes_per_token", "prefill_s", "tpot_s", "ttft_s",
    "decode_step_s", "memory_bytes_per_chip", "running_requests", "latency_floor_s",
)  # fmt: skip


def space_file(tmp_path, model: Mapping[str, Any], **rest: Any):
    document = {
        "name": "sample",
        "workload": {"prompt_tokens": 16384, "output_tokens": 1024, "serving": "continuous"},
        "price_basis": "rental_3yr",
        "training_tokens": "15T",
        "model": dict(model),
        "deployment": {
            "chip": "h200_sxm", "replicas": 1, "tensor_parallel": 8, "weight_dtype": "bf16",
            "kv_dtype": "bf16", "concurrency": 64,
        },
        "objectives": {"tpot_s": "minimize"},
        **rest,
    }  # fmt: skip
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def read(tmp_path, model: Mapping[str, Any], **rest: Any) -> Study:
    return load_study(space_file(tmp_path, model, **rest))


def batch(study: Study) -> CandidateBatch:
    space = Space.of(study)
    found = batch_of_values(space.values(space.unrank(np.arange(space.size))))
    return replace(found, chip=np.full(len(found), CHIPS.index("h200_sxm")))


def check_equal(ours: CandidateBatch, model: str) -> None:
    theirs = deploy(model, "h200_sxm", weight_dtype="bf16", tensor_parallel=8, concurrency=64)
    load = workload(16384, 1024)
    mine, other = run(ours, load), run(theirs, load)
    for metric in METRICS:
        assert mine.values[metric][0] == other.values[metric][0], metric
    assert state_bytes_per_request(ours)[0] == state_bytes_per_request(theirs)[0]
    for part in ("attention", "mlp", "experts", "router", "norms", "head"):
        found, wanted = (getattr(parameters(one), part)[0] for one in (ours, theirs))
        assert found == wanted, part


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_from_axes_is_that_of_the_catalog(name: str, tmp_path) -> None:
    check_equal(batch(read(tmp_path, PUBLISHED[name])), name)


def test_kimi_linear_with_a_layer_more_is_that_of_its_configuration(tmp_path) -> None:
    """The published one has attention in its last layer, too: 7 of 27, where every 4th makes 6."""
    config = json.loads((CONFIGS / "kimi-linear-48b-a3b.json").read_text())
    path = tmp_path / "config.json"
    linear = config["linear_attn_config"]
    linear["kda_layers"].append(28)
    path.write_text(json.dumps({**config, "num_hidden_layers": 28}))
    check_equal(batch(read(tmp_path, KIMI)), str(path))


BASE = {
    "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 50, "head_dim": 128,
    "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 8192,
}  # fmt: skip
KINDS = {
    **BASE,
    "attention": ["gqa", "mla"],
    "num_key_value_heads": [4, 8],
    "sliding_window": [0, 1024, 4096],
    "sliding_window_pattern": [2, 6],
    "q_lora_rank": [0, 1536],
    "kv_lora_rank": [256, 512],
    "index_topk": [0, 2048],
    "linear_attention": ["none", "gated_delta_net", "mamba2", "mamba", "kimi_delta"],
    "full_attention_interval": [4, 8],
    "linear_num_key_heads": [8, 24],
    "attn_output_gate": [False, True],
}


def counts(found: CandidateBatch, i: int = 0) -> list[tuple[str, float]]:
    return [(block.kind, block.count[i]) for block in found.blocks if block.count[i]]


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"sliding_window": 1024}, [("gqa", 50), ("mlp", 50)]),
        (
            {"sliding_window": 1024, "sliding_window_pattern": 6},
            [("gqa", 8), ("gqa", 42), ("mlp", 50)],
        ),
        ({"sliding_window": 0, "attn_output_gate": True}, [("gqa", 50), ("mlp", 50)]),
        (
            {"attention_chunk_size": 8192, "no_rope_layer_interval": 4},
            [("gqa", 12), ("gqa", 38), ("mlp", 50)],
        ),
        (
            {"linear_attention": "mamba2", "full_attention_interval": 4},
            [("gqa", 12), ("mamba", 38), ("mlp", 50)],
        ),
        (
            {
                "linear_attention": "gated_delta_net", "full_attention_interval": 4,
                "sliding_window": 512, "sliding_window_pattern": 5,
            },
            [("gqa", 2), ("gqa", 10), ("delta_net", 38), ("mlp", 50)],
        ),
        (
            {
                "sparse": True, "num_experts": 8, "num_experts_per_tok": 2,
                "moe_intermediate_size": 512, "num_dense_layers": 3,
                "interleave_moe_layer_step": 2,
            },
            [("gqa", 50), ("mlp", 27), ("moe", 23)],
        ),
    ],
)  # fmt: skip
def test_shares_of_layers_are_rounded_down(tmp_path, axes, expected) -> None:
    assert counts(batch(read(tmp_path, BASE | axes))) == expected


def test_an_axis_counts_only_with_its_kind(tmp_path) -> None:
    study = read(tmp_path, KINDS)
    space = Space.of(study)
    grouped = 2 * (1 + 2 * 2)  # KV heads, then no window or two with two patterns
    latent = 2 * 2  # ranks
    linear = 1 + 2 * (2 + 1 + 1 + 1)  # intervals; key heads of gated delta-net
    assert space.size == (grouped + latent) * linear * 2 * 2
    values = space.values(space.unrank(np.arange(space.size)))
    mla = values["attention"] == 1.0
    for name in ("num_key_value_heads", "sliding_window", "sliding_window_pattern"):
        assert not values[name][mla].any()
    assert not values["kv_lora_rank"][~mla].any()
    assert (values["v_head_dim"][mla] == 128).all()
    mamba = values["linear_attention"] == 4.0
    assert set(values["mamba_num_heads"][mamba]) == {2 * 2048 / 64}
    assert not values["mamba_num_heads"][~mamba].any()
    assert not next(axis for axis in study.axes if axis.name == "mamba_num_heads").given


def test_a_head_size_that_sets_the_heads_counts_with_every_kind(tmp_path) -> None:
    axes = KINDS | {
        "head_dim": [64, 128],
        "num_attention_heads": {"ratio_of": "hidden_size / head_dim", "values": [1]},
    }
    found = Space.of(read(tmp_path, axes))
    values = found.values(found.unrank(np.arange(found.size)))
    assert set(values["num_attention_heads"][values["attention"] == 1.0]) == {16.0, 32.0}
    without = Space.of(read(tmp_path, KINDS | {"head_dim": [64, 128]}))
    values = without.values(without.unrank(np.arange(without.size)))
    assert not values["head_dim"][values["attention"] == 1.0].any()


def test_a_shape_written_into_a_front_and_read_again_is_the_same(tmp_path) -> None:
    """Its configuration leaves out the layers that it does not have, and predicts the same."""
    found = batch(read(tmp_path, KINDS))
    load = workload(8192, 512)
    rows = np.arange(0, len(found), 17)
    models = [model_at(found, int(i), f"m-{i}", 15e12) for i in rows]
    again = [model_of(json.loads(json.dumps(config_of(model))), "front.json") for model in models]
    assert [model.blocks for model in again] == [model.blocks for model in models]
    deployment = {axis: getattr(found, axis)[rows] for axis in DEPLOYMENT_AXES}
    theirs = batch_of(
        again, found.chip[rows], ["bf16"] * len(rows), ["bf16"] * len(rows), deployment
    )
    mine, other = run(found, load), run(theirs, load)
    for name in METRICS:
        assert np.array_equal(mine.values[name][rows], other.values[name]), name


def test_neighbours_reach_the_other_kinds(tmp_path) -> None:
    """A move to latent attention drops the window; what counts there starts at its first value."""
    space = Space.of(read(tmp_path, KINDS))
    index = space.unrank(np.arange(space.size))
    values = space.values(index)
    windowed = np.flatnonzero((values["sliding_window"] > 0) & (values["linear_attention"] == 0))
    near = space.values(space.neighbours(index[windowed[:1]]))
    assert {0.0, 1.0} == set(near["attention"])
    assert set(near["linear_attention"]) == {0.0, 1.0, 2.0, 3.0, 4.0}
    moved = near["attention"] == 1.0
    assert not near["sliding_window"][moved].any()
    assert (near["kv_lora_rank"][moved] == 256).all()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([128, 1024, 4096]), st.integers(1, 8), st.integers(1, 60), st.integers(64, 9000)
)
def test_windows_save_cache_and_time(window: int, pattern: int, layers: int, context: int) -> None:
    """Never more cache, nor a longer step, than full attention; all of it where all layers are."""
    values = {name: np.array([float(value)] * 3) for name, value in BASE.items()}
    values |= {
        "num_hidden_layers": np.full(3, float(layers)),
        "tied_embeddings": np.zeros(3),
        "sliding_window": np.array([0.0, window, window]),
        "sliding_window_pattern": np.array([0.0, pattern, 1.0]),
        "chip": np.full(3, CHIPS.index("h200_sxm")),
        "replicas": np.ones(3),
        "concurrency": np.full(3, 16.0),
        "training_tokens": np.full(3, 1e12),
    }
    found = run(batch_of_values(values), workload(context, 64)).values
    for name in ("memory_kv_cache_bytes_per_chip", "decode_step_s", "prefill_s"):
        assert found[name][1] <= found[name][0] * (1 + 1e-12)
        assert found[name][2] == found[name][0]
    full, share = found["full_attention_layers"], found["full_attention_share"]
    assert full.tolist() == [layers, layers // pattern, layers]
    assert share[1] == full[1] / layers


def test_what_limits_may_bound(tmp_path) -> None:
    ours = run(batch(read(tmp_path, PUBLISHED["gpt-oss-120b"])), workload(1024, 256)).values
    assert ours["num_attention_heads"][0] == 64
    assert ours["num_key_value_heads"][0] == 8
    assert ours["query_heads_per_kv_head"][0] == 8
    assert ours["full_attention_share"][0] == 0.5
    latent = run(batch(read(tmp_path, PUBLISHED["deepseek-v3"])), workload(1024, 256)).values
    assert latent["query_heads_per_kv_head"][0] == 1
    assert latent["full_attention_layers"][0] == 61
    assert latent["kv_bytes_per_token"][0] == 61 * (512 + 64) * 2  # DeepSeek-V2, table 1


def test_training_tokens_as_an_axis(tmp_path) -> None:
    path = space_file(tmp_path, BASE | {"training_tokens": ["1.5T", 15e12]})
    document = yaml.safe_load(path.read_text())
    del document["training_tokens"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    found = run(batch(load_study(path)), workload(1024, 256)).values
    assert found["training_tokens"].tolist() == [1.5e12, 15e12]
    assert found["predicted_loss"][0] > found["predicted_loss"][1]
    assert found["training_flops"][1] / found["training_flops"][0] == pytest.approx(10.0)


def test_a_module_drafts_only_where_there_is_one(tmp_path) -> None:
    """With 0 modules plain decoding to the bit; with one, as where the model does not say."""
    rest = {"prompt_tokens": 16384, "output_tokens": 1024, "serving": "continuous"}
    drafting = {**rest, "draft_tokens": 2, "acceptance": 0.8}
    axes = BASE | {"num_nextn_predict_layers": [0, 1, 2]}
    found = batch(read(tmp_path, axes, workload=drafting))
    plain = workload(16384, 1024)
    drafted = replace(plain, speculation=Speculation(2, 0.8))
    silent = batch(read(tmp_path, BASE))
    modules, said = run(found, drafted).values, run(silent, drafted).values
    without = run(silent, plain).values
    for name in METRICS:
        assert modules[name][0] == without[name][0], name
        assert modules[name][1] == said[name][0], name
    assert modules["tpot_s"][1] < modules["tpot_s"][0]
    one, two = (modules["memory_weights_bytes_per_chip"][i + 1] for i in range(2))
    assert two - one == pytest.approx(one - modules["memory_weights_bytes_per_chip"][0])
    config = config_of(model_at(found, 2, "m-3", None))
    assert model_of(config, "front.json").prediction_layers == 2


@pytest.mark.parametrize(("axes", "field", "said"), REFUSED)
def test_mistakes(tmp_path, axes, field, said) -> None:
    with pytest.raises(InputErrors) as caught:
        read(tmp_path, BASE | axes)
    errors = [e for e in caught.value.errors if str(e.field).split(".")[-1] == field]
    errors = errors or [e for e in caught.value.errors if field in str(e)]
    assert any(said in str(error) for error in errors), caught.value.errors
    assert all(error.line for error in errors)


def test_value_heads_that_key_heads_do_not_divide_are_counted(tmp_path) -> None:
    found = batch(read(tmp_path, KINDS))
    broken = run(found, workload(1024, 256)).violations["linear_key_heads_divide_value_heads"]
    delta = next(block for block in found.blocks if block.kind == "delta_net")
    uneven = (delta.count > 0) & (delta["key_heads"] == 24)  # of 32 value heads
    assert np.array_equal(broken > 0, uneven)
    assert uneven.any()


def test_a_space_says_what_no_law_sees_of_what_it_searches(tmp_path) -> None:
    assert unseen(read(tmp_path, BASE).model_axes) == ()
    said = " ".join(unseen(read(tmp_path, KINDS).model_axes))
    for axis in ("num_key_value_heads", "kv_lora_rank", "sliding_window", "linear_attention"):
        assert axis in said
    assert "head_dim" not in said
    assert {name for row in rows() for name in row["axes"].split()} <= set(AXES)
    limits = [row["limit"] for row in rows() if " <= " in row["limit"] or " >= " in row["limit"]]
    assert len([parse_constraint(limit) for limit in limits]) >= 3
