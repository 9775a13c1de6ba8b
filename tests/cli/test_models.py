"""`dse models list / show`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.schema.model_catalog import load_models
from tests.cli.conftest import dse, fits


def test_list_has_every_model_and_fits():
    rows = dse("models", "list", "--json").json()
    assert [row["id"] for row in rows] == list(load_models())
    said = dse("models", "list")
    assert fits(said.out, 100)
    body = said.out.split("─\n")[1].split("\n\n")[0]
    assert body.count("\n") == len(rows) - 1, "a row of the table wraps"


@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v3", "gpt-oss-20b"])
def test_show(model: str):
    document = dse("models", "show", model, "--json").json()
    assert document["id"] == model
    said = dse("models", "show", model)
    assert fits(said.out, 100)
    assert f"{document['total_parameters'] / 1e9:.2f} B parameters" in said.out


def test_show_reads_a_config_file():
    path = Path(__file__).parents[1] / "data" / "configs" / "qwen3-32b.json"
    document = dse("models", "show", path, "--json").json()
    assert document["total_parameters"] == pytest.approx(32.8e9, rel=0.01)
