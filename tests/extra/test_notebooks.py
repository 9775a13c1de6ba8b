"""The notebooks of docs/ run, are short, and hold what they print today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import notebooks
from tests.command_blocks import unprinted

pytestmark = pytest.mark.extra


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_fresh(path: Path, tmp_path: Path):
    kept = notebooks.read(path)
    assert len(kept.cells) < notebooks.CELLS
    assert path.stat().st_size < notebooks.BYTES
    found = notebooks.stored(notebooks.executed(path, tmp_path))
    for shown, now in zip(notebooks.printed(kept), notebooks.printed(found), strict=True):
        assert unprinted(shown, now) == [], "run `python -m tests.notebooks`"
        assert bool(shown) == bool(now), "run `python -m tests.notebooks`"


def test_every_page_of_the_library_names_the_notebooks():
    page = (notebooks.ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert len(notebooks.NOTEBOOKS) == 3
    assert all(f"(notebooks/{path.name})" in page for path in notebooks.NOTEBOOKS)
