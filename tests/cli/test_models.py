"""`dse catalog models list / show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.answer.numbers import show
from dse.schema.model_catalog import load_models
from tests.cli.conftest import dse, fits


def test_list_has_every_model_and_fits():
    rows = dse("catalog", "models", "list", "--json").json()
    assert [row["id"] for row in rows] == list(load_models())
    said = dse("catalog", "models", "list")
    assert fits(said.out, 100)
    body = said.out.split("─\n")[1].split("\n\n")[0]
    assert body.count("\n") == len(rows) - 1, "a row of the table wraps"


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3", "gpt-oss-20b"])
def test_show(model: str):
    document = dse("catalog", "models", "show", model, "--json").json()
    assert document["id"] == model
    said = dse("catalog", "models", "show", model)
    assert fits(said.out, 100)
    assert f"{show('total_parameters', document['total_parameters'])} parameters" in said.out


def test_show_reads_a_config_file():
    path = Path(__file__).parents[1] / "data" / "configs" / "qwen3-32b.json"
    document = dse("catalog", "models", "show", path, "--json").json()
    assert document["total_parameters"] == pytest.approx(32.8e9, rel=0.01)
