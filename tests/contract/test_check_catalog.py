"""Every shipped chip and every model of the catalog can be checked: each chip with a few models,
each model on a few chips."""

from __future__ import annotations

import json

import pytest

from dse.catalog import load_catalog
from dse.questions.check.answer import Load, check, subject_of
from dse.questions.check.ask import check_answer
from dse.questions.check.nearest import nearest
from dse.schema.model_catalog import load_models

CHIPS, MODELS = tuple(load_catalog().chips), tuple(load_models())
DEGREES = ({}, {"tensor_parallel": 8.0}, {"tensor_parallel": 3.0, "pipeline_parallel": 2.0})


def _pairs() -> list[tuple[str, str, int]]:
    longest = max(len(CHIPS), len(MODELS))
    return [
        (CHIPS[(k * step) % len(CHIPS)], MODELS[(k + 17 * turn) % len(MODELS)], turn)
        for turn, step in enumerate((1, 3))
        for k in range(longest)
    ]


@pytest.mark.parametrize("turn", [0, 1])
def test_every_chip_and_every_model(turn: int):
    catalog, models = load_catalog(), load_models()
    pairs = [pair for pair in _pairs() if pair[2] == turn]
    assert {model for _, model, _ in pairs} == set(MODELS)
    if turn == 0:
        assert {chip for chip, _, _ in pairs} == set(CHIPS)
    for k, (chip, model, _) in enumerate(pairs):
        load = Load(2048, 512, 32)
        one = subject_of(catalog, models[model], chip, DEGREES[k % 3], load)
        document = check(one)
        document["nearest"] = nearest(one, catalog.backends[one.chip.backend])
        json.dumps(document, allow_nan=False)
        answer = check_answer(document, load)
        assert answer.headline.startswith(models[model].name)
        assert answer.to_text()
        assert 1 in document["degrees"]["tp"], (chip, model)
        for phase in ("prefill", "decode"):
            if document[phase] is not None:
                assert 0.0 < document[phase]["gemm_share"] <= 1.0, (chip, model)
                assert 0.0 <= document[phase]["added_share"] < 1.0, (chip, model)
        tables = {table.name: table for table in answer.tables}
        assert len(tables["nearest"].rows if "nearest" in tables else ()) == len(
            document["nearest"]
        )
        assert {f"{phase} products" for phase in ("prefill", "decode") if document[phase]} <= set(
            tables
        )
