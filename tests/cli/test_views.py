"""`views:` of a space file, as a person uses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.conftest import dse
from tests.helpers_report import Page

TINY = (Path(__file__).parents[2] / "search_spaces" / "tiny.yaml").read_text(encoding="utf-8")
VIEWS = """views:
  - by: sparse
    every_law: true
  - by: chip
    map: [hidden_size, num_experts]
"""


def test_a_study_with_views_says_them_first(tmp_path: Path) -> None:
    space, out = tmp_path / "space.yaml", tmp_path / "study"
    space.write_text(TINY + VIEWS, encoding="utf-8")
    said = dse("run", space, "--out", out)
    assert said.code == 0, said.err
    assert "the cheapest hidden size × number of experts is " in " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 100
    study = json.loads((out / "study.json").read_text())
    assert [view["by"] for view in study["views"]] == ["sparse", "chip"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "At equal predicted loss: dense against sparse" in page
    assert "Which hidden size and number of experts suit each chip" in page
    assert '"view-0"' in page
    assert "Under each quality law" in Page(out / "report.html").text
    text = (out / "report.md").read_text(encoding="utf-8")
    assert text.index("## At equal predicted loss") < text.index("## Where the time goes")
    again = dse("run", out)
    assert again.code == 0, again.err
    assert "At equal predicted loss" in (out / "report.html").read_text(encoding="utf-8")


def test_views_decide_nothing_of_the_search(tiny: Path, tmp_path: Path) -> None:
    space, out = tmp_path / "space.yaml", tmp_path / "study"
    shutil.copytree(tiny, out)
    front = (out / "front.csv").read_bytes()
    space.write_text(TINY + "views: [{by: sparse}]\n", encoding="utf-8")
    said = dse("run", space, "--seed", 1, "--out", out)
    assert said.code == 0, said.err
    assert (out / "front.csv").read_bytes() == front
    assert "views" in json.loads((out / "study.json").read_text())


def test_a_space_too_large_for_views_is_refused_before_the_search(tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    large = TINY.replace("multiple_of: 1024}", "multiple_of: 8}", 1) + "views: [{by: sparse}]\n"
    space.write_text(large, encoding="utf-8")
    said = dse("run", space, "--out", tmp_path / "study")
    assert said.code == 2
    assert "views evaluate every point" in said.err
    assert "3,000,000" in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not (tmp_path / "study").exists()


def test_a_wrong_view_is_named_with_its_line(tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(TINY + "views:\n  - by: chipp\n", encoding="utf-8")
    said = dse("catalog", "spaces", "check", space)
    assert said.code == 2
    assert "views[0].by" in said.err or "views.0.by" in said.err
    assert "did you mean chip" in said.err
