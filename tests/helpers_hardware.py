"""The chip files of `hardware/`, as their tests read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.catalog import Catalog, load_catalog
from dse.data import hardware_dir
from dse.schema.chip import load_chip


def files(folder: str) -> list[Path]:
    return sorted((hardware_dir() / folder).glob("*.yaml"))


CHIPS = {path.stem: load_chip(path) for path in files("chips")}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()
