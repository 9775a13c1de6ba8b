"""Every shipped chip and every model of the catalog can be checked: each chip with a few models,
each model on a few chips."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dse
from dse.catalog import load_catalog
from dse.schema.model_catalog import load_models

CHIPS, MODELS = tuple(load_catalog().chips), tuple(load_models())
DEGREES: tuple[dict[str, Any], ...] = ({}, {"tp": 8}, {"tp": 3, "pp": 2})


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
        answer = dse.check(model, chip, catalog=catalog, **DEGREES[k % 3])
        document = answer.document
        json.dumps(document, allow_nan=False)
        assert answer.headline.startswith(models[model].name)
        assert answer.to_text()
        assert 1 in document["degrees"]["tp"], (chip, model)
        for step in document["steps"]:
            assert 0.0 < step["gemm_share"] <= 1.0, (chip, model)
            assert 0.0 <= step["added_share"] < 1.0, (chip, model)
        assert bool(document["steps"]) == ("products" in {table.name for table in answer.tables})
