"""The enumeration of training plans, and the best of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.catalog import load_catalog
from dse.physics.training import plan
from dse.physics.training.at_scale import LOSSES_AT_SCALE, SPLITS
from dse.physics.training.plan import SEARCHED, Setting, default_batch_tokens, plans
from dse.problem.training import shape_of, trainer_of
from dse.questions.train import LOSSES
from dse.schema.model_catalog import resolve_model
from dse.schema.training import NAMES, training_terms
from dse.space.batches import DEPLOYMENT_AXES, batch_of

CASES = [("llama-3.1-405b", 16_384), ("deepseek-v3", 2048), ("llama-3-8b", 1), ("gpt-oss-120b", 72)]


def table(model: str, chips: int, **setting: Any):
    tokens = default_batch_tokens(chips, 8192)
    shape = shape_of(resolve_model(model))
    return plans(shape, chips, Setting(global_batch_tokens=tokens, **setting), 8.0)


@pytest.mark.parametrize(("model", "chips"), CASES)
def test_every_plan_uses_every_chip_once(model: str, chips: int):
    found = table(model, chips)
    used = np.ones(len(found["tensor_parallel"]), dtype=np.int64)
    for name in ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel"):
        used = used * found[name]
    assert (used == chips).all()
    rows = np.stack([found[name] for name in (*SEARCHED, "data_parallel")], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_published_plans_are_among_them():
    """Llama 3 405B (arXiv 2407.21783, table 4) and DeepSeek-V3 (arXiv 2412.19437, section 3.2)."""
    found = table("llama-3.1-405b", 16_384)
    assert (
        (found["tensor_parallel"] == 8)
        & (found["context_parallel"] == 1)
        & (found["pipeline_parallel"] == 16)
        & (found["data_parallel"] == 128)
        & (found["virtual_stages"] == 8)
    ).any()
    found = table("deepseek-v3", 2048)
    assert (
        (found["tensor_parallel"] == 1)
        & (found["pipeline_parallel"] == 16)
        & (found["expert_parallel"] == 64)
        & (found["zero_stage"] == 1)
    ).any()


@pytest.mark.parametrize(("model", "chips"), CASES)
def test_few_are_some_of_all(model: str, chips: int):
    def rows(found: dict) -> set:
        return set(zip(*(found[name].tolist() for name in SEARCHED), strict=True))

    few, every = rows(table(model, chips, few=True)), rows(table(model, chips))
    assert few <= every
    assert len(few) < len(every) or chips == 1


def test_what_is_fixed_stays_and_is_not_refused():
    found = table("llama-3-8b", 64, fixed={"tensor_parallel": 3, "zero_stage": 2})
    assert set(found["tensor_parallel"]) == {3}
    assert set(found["zero_stage"]) == {2}


def test_an_odd_cluster_has_data_parallel_plans():
    assert default_batch_tokens(72, 8192) % (9 * 8192) == 0
    assert table("llama-3-8b", 72)["data_parallel"].max() == 72


def test_the_best_of_many_shapes_is_the_best_of_each_alone():
    names = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b")
    models = [resolve_model(name) for name in names]
    ones = {axis: np.ones(3) for axis in DEPLOYMENT_AXES}
    together = batch_of(models, np.zeros(3, np.intp), ["bf16"] * 3, ["bf16"] * 3, ones)
    terms = training_terms(chip="h200_sxm", chips=128)
    trainer = trainer_of(load_catalog(), terms, None, few=True)
    ranked = trainer.ranked(together)
    best = ranked.best()
    assert ranked.row[best].tolist() == [0, 1, 2]
    for k, model in enumerate(models):
        alone = trainer.ranked(shape_of(model))
        fits = alone.miss <= 0.0
        assert ranked.rate[best[k]] == alone.rate[fits].max()


def test_more_memory_never_slows_the_best_plan():
    rates = []
    for chip in ("h100_sxm", "h200_sxm"):
        trainer = trainer_of(load_catalog(), training_terms(chip=chip, chips=64), None)
        ranked = trainer.ranked(shape_of(resolve_model("llama-3-70b")))
        rates.append(ranked.rate[ranked.best()[0]])
    assert rates[0] < rates[1]


def test_a_file_knows_every_name_that_a_plan_knows():
    assert NAMES["precision"] == plan.PRECISIONS
    assert NAMES["task"] == plan.TASKS
    assert NAMES["optimizer"] == plan.OPTIMIZERS
    assert NAMES["recompute"] == plan.RECOMPUTES
    assert NAMES["schedule"] == plan.SCHEDULES
    assert NAMES["site_split"] == SPLITS
    assert set(LOSSES) == set(LOSSES_AT_SCALE)
