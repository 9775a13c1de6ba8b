"""Finds the shipped data, from a wheel, an editable install or a checkout."""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path


@cache
def data_root() -> Path:
    """Folder that holds `hardware/` and `search_spaces/`."""
    package = Path(__file__).resolve().parent
    wheel = package / "_data"
    return wheel if wheel.is_dir() else package.parent


def hardware_dir() -> Path:
    return data_root() / "hardware"


def search_spaces_dir() -> Path:
    return data_root() / "search_spaces"


@cache
def _shipped_folders() -> tuple[str, ...]:
    folders = (hardware_dir(), search_spaces_dir(), Path(__file__).resolve().parent)
    return tuple(f"{folder}{os.sep}" for folder in folders)


def is_shipped(file: str) -> bool:
    """Whether a file, by its full path, is of the data that is shipped, here or in the package."""
    return file.startswith(_shipped_folders())


def rows_beside(module: str, name: str) -> list[dict[str, str]]:
    """The rows of the CSV file `name` beside a module of the package, which gives its `__file__`;
    cells are texts."""
    with Path(module).with_name(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
