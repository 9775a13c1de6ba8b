"""Bands of published models: their ends are those of search_spaces/models.csv, and a search keeps
inside them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
import pytest

import dse
from benchmarks.temptations import published
from dse.errors import NothingFeasible
from dse.rules.bands import BANDS, RULES, WIDTHS, bands
from dse.rules.case import Case
from dse.rules.registry import judge
from dse.schema.model_catalog import load_models
from tests.helpers_models import batch_of_models

MODELS = load_models()
# Of state-space layers the table of published measures has one row with linear attention's.
ALIKE = {"state_over_hidden": "linear_over_hidden", "chunk": "window"}
# A few published models are experiments: alone beyond the second in line.
ALONE = 14


@pytest.mark.parametrize("band", BANDS, ids=[band.name for band in BANDS])
def test_the_ends_are_those_of_published_models(band: Any) -> None:
    for sparse, ends in ((False, band.dense), (True, band.sparse)):
        found = published.bands(sparse, False).get(ALIKE.get(band.name, band.name))
        if found is None:
            assert ends == (-inf, inf)
            continue
        for mine, theirs in zip(ends, found, strict=True):
            assert np.isinf(mine) or mine == pytest.approx(theirs, rel=2e-3)


def test_hybrids_may_have_more_attention() -> None:
    for sparse, most in ((True, 0.5009), (False, 0.3999)):
        high = published.bands(sparse, True)["attention_share"][1]
        assert high == pytest.approx(most, rel=1e-3)


def test_most_published_models_are_inside() -> None:
    outside = {
        name
        for name, model in MODELS.items()
        if any(
            finding.broken[0] and finding.rule.name.startswith("published")
            for finding in bands(batch_of_models(model))
        )
    }
    assert len(outside) <= ALONE, outside
    assert outside.isdisjoint({"llama-3-70b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"})


def test_a_note_elsewhere_and_a_refusal_in_a_search() -> None:
    """Snowflake Arctic has a width per layer of its own."""
    batch = batch_of_models(MODELS["snowflake-arctic"])
    assert "published_width_per_layer" not in judge(Case(batch))
    assert judge(Case(batch, searched="shapes"))["published_width_per_layer"][0] > 0.0
    assert judge(Case(batch, searched="shapes"))["published_vocabulary"][0] == 0.0
    assert {rule.severity for rule in (*RULES, WIDTHS)} == {"note"}


SPACE: Mapping[str, Any] = {
    "name": "slivers",
    "title": "Slivers of experts",
    "workload": {"prompt_tokens": 1024, "output_tokens": 512, "serving": "continuous"},
    "price_basis": "rental_3yr",
    "training_compute": "1e24 FLOP",
    "model": {
        "sparse": True,
        "hidden_size": [4096],
        "num_hidden_layers": [32, 4],
        "head_dim": 128,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "num_experts": [64],
        "num_experts_per_tok": [4],
        "moe_intermediate_size": [64, 2048],
        "tied_embeddings": False,
    },
    "deployment": {
        "chip": "h100_sxm",
        "replicas": [1, 8],
        "tensor_parallel": [4],
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "concurrency": [4, 64],
    },
    "objectives": {"predicted_loss": "minimize", "usd_per_million_total_tokens": "minimize"},
}


def test_a_search_keeps_inside_unless_it_may_not() -> None:
    study = dse.run(SPACE, engine="exhaustive")
    inside = study.front.to_pandas()
    assert set(inside["moe_intermediate_size"]) == {2048}
    assert set(inside["num_hidden_layers"]) == {32}
    assert (inside["concurrency"] >= inside["replicas"]).all()
    study = dse.run({**SPACE, "allow_extrapolation": True}, engine="exhaustive")
    assert set(study.front.to_pandas()["num_hidden_layers"]) == {32, 4}


def test_text_is_finite() -> None:
    """1.5e24 FLOP train 5.1B active parameters on 49T tokens, more than there are unless said."""
    model = {**SPACE["model"], "num_hidden_layers": [32], "moe_intermediate_size": [2048]}
    space = {**SPACE, "training_compute": "1.5e24 FLOP", "model": model}
    with pytest.raises(NothingFeasible, match="unique_tokens"):
        dse.run(space, engine="exhaustive")
    study = dse.run({**space, "unique_tokens": "200T"}, engine="exhaustive")
    assert (study.front.to_pandas()["training_tokens"] > 40e12).all()


def test_no_search_trains_a_small_model_longer_than_published_ones() -> None:
    """1e24 FLOP train 3.5B active parameters on 13,700 tokens each."""
    model = {**SPACE["model"], "num_hidden_layers": [32], "moe_intermediate_size": [1024]}
    space = {**SPACE, "model": model, "unique_tokens": "200T"}
    with pytest.raises(NothingFeasible, match="training tokens over active parameters 13,7"):
        dse.run(space, engine="exhaustive")
    assert len(dse.run({**space, "allow_extrapolation": True}, engine="exhaustive").front)


def test_a_point_again_reads_no_more_text_than_its_study() -> None:
    study = dse.run(
        {**SPACE, "unique_tokens": "2T", "allow_extrapolation": True}, engine="exhaustive"
    )
    front = study.front.to_pandas()
    assert (front["training_tokens"] > 2e12).all()
    for point, loss in zip(front["point"], front["predicted_loss"], strict=True):
        again = dse.estimate(study, int(point))
        assert again.predicted_loss == pytest.approx(loss, rel=1e-8)
