"""`dse catalog spaces list / show / check`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest

from dse.schema.study import shipped_spaces
from tests.cli.conftest import dse, fits


def test_list_has_every_shipped_space():
    rows = dse("catalog", "spaces", "list", "--json").json()
    assert [row["name"] for row in rows] == list(shipped_spaces())
    said = dse("catalog", "spaces", "list")
    assert fits(said.out, 100)
    assert all(f"{row['size']:,}" in said.out for row in rows)


@pytest.mark.parametrize("columns", [100, 60])
@pytest.mark.parametrize("name", shipped_spaces())
def test_show_fits(monkeypatch: pytest.MonkeyPatch, name: str, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    said = dse("catalog", "spaces", "show", name)
    assert said.code == 0
    assert fits(said.out, columns)
    assert "objectives: minimize" in said.out


def test_show_writes_ratios_as_fractions():
    said = dse("catalog", "spaces", "show", "quickstart")
    assert "1/160, 1/120, 1/90 x hidden_size" in said.out


def test_size_of_a_space_without_conditions_is_the_product(space: Callable[..., Path]):
    row = dse("catalog", "spaces", "show", space(), "--json").json()
    assert row["size"] == prod(axis["values"] for axis in row["axes"]) == 18
    assert row["constraints"] == ["ttft_s <= 2 s"]


def test_check(space: Callable[..., Path]):
    said = dse("catalog", "spaces", "check", space())
    assert (said.code, said.out) == (0, "small: 18 points, no mistake found\n")
