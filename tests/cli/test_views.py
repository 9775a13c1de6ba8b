"""`views:` of a space file, as a person uses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.answer.answer import Answer
from dse.catalog import load_catalog
from dse.errors import InputErrors
from dse.problem.objective import pose
from dse.quality import LAWS
from dse.schema.study import load_study, resolve_space
from tests.cli.conftest import dse
from tests.helpers_report import Page, answer_of, both

TINY = (Path(__file__).parents[2] / "search_spaces" / "tiny.yaml").read_text(encoding="utf-8")
VIEWS = """views:
  - {by: sparse, every_law: true}
  - {by: chip, map: [hidden_size, num_experts]}
  - {by: sparse, map: [weight_dtype, chip]}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dse run` of a space with three views."""
    folder = tmp_path_factory.mktemp("views")
    (folder / "space.yaml").write_text(TINY + VIEWS, encoding="utf-8")
    said = dse("run", folder / "space.yaml", "--out", folder / "study")
    assert said.code == 0, said.err
    assert "the cheapest hidden size × experts is " in " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 100
    return folder / "study"


@pytest.fixture(scope="module")
def views(study: Path) -> list[dict[str, Any]]:
    return json.loads((study / "study.json").read_text())["views"]


def test_a_study_with_views_says_them_first(study: Path, views: list[dict[str, Any]]) -> None:
    out = study
    assert [view["by"] for view in views] == ["sparse", "chip", "sparse"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "At equal predicted loss: dense against sparse" in page
    assert "Which hidden size and experts suit each chip" in page
    assert '"view-0"' in page
    assert "Under each quality law" in Page(out / "report.html").text
    text = (out / "report.md").read_text(encoding="utf-8")
    assert text.index("## At equal predicted loss") < text.index("## What the constraints removed")
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


# Views: the cheapest of each value of an axis at equal predicted loss, against all points.


PRICE = "usd_per_million_total_tokens"


@pytest.fixture(scope="module")
def points() -> dict[str, np.ndarray]:
    """Every feasible point of the space: loss, price and the values of its axes."""
    problem = pose(load_study(resolve_space("tiny")), load_catalog())
    index = problem.space.unrank(np.arange(problem.space.size, dtype=np.int64))
    found = problem.evaluate(index)
    rows = (found.G <= 0.0).all(axis=1)
    F = found.F[rows]
    return {**problem.space.values(index[rows]), "loss": F[:, 0], "price": F[:, 1]}


def test_each_level_has_the_cheapest_of_each_value(views, points) -> None:
    view = views[0]
    assert view["values"] == ["dense", "sparse"]
    found = {(row["predicted_loss_at_most"], row["case"]): row for row in view["designs"]}
    levels = {level for level, _ in found}
    assert len(levels) >= 4
    for level in levels:
        for value, name in enumerate(view["values"]):
            rows = (points["sparse"] == value) & (points["loss"] <= level)
            assert ((level, name) in found) == rows.any()
            if rows.any():
                assert found[level, name]["predicted_loss"] <= level
                assert found[level, name][PRICE] == points["price"][rows].min()


def test_a_map_divides_its_values_and_leaves_out_what_has_no_such_axis(views, points) -> None:
    """Dense points have no number of experts: they are not those of the first number."""
    view = views[1]
    sizes = {f"{size:,}": size for size in (3072, 4096, 5120, 6144)}
    assert {row["hidden_size"] for row in view["cells"]} == set(sizes)
    assert {row["num_experts"] for row in view["cells"]} == {"32", "64"}
    least: dict[tuple[float, str], float] = {}
    for row in view["cells"]:
        key = row["predicted_loss_at_most"], row["case"]
        here = (points["chip"] == view["values"].index(row["case"])) & (points["loss"] <= key[0])
        here &= points["hidden_size"] == sizes[row["hidden_size"]]
        here &= points["num_experts"] == int(row["num_experts"])
        assert row[PRICE] == (points["price"][here].min() if here.any() else None)
        if here.any():
            least[key] = min(least.get(key, np.inf), row[PRICE])
    designs = {(row["predicted_loss_at_most"], row["case"]): row for row in view["designs"]}
    assert {key: row[PRICE] for key, row in designs.items()} == least


def test_every_law_compares_at_a_loss_that_all_reach(views) -> None:
    view = views[0]
    assert list(dict.fromkeys(row["law"] for row in view["laws"])) == list(LAWS)
    curves = {
        name: [row for row in view["curves"] if row["case"] == name] for name in view["values"]
    }
    for name, own in zip(view["values"], view["laws"], strict=False):
        level = max(min(row["predicted_loss"] for row in curve) for curve in curves.values())
        assert (own["case"], own["predicted_loss_at_most"]) == (name, level)
        reached = [row[PRICE] for row in curves[name] if row["predicted_loss"] <= level]
        assert own[PRICE] == min(reached)


def told(view: dict) -> Answer:
    """The report of a study with this view alone."""
    front, study = both()
    return answer_of(front, {**study, "views": [view]})


def test_words_of_a_comparison_and_of_a_map(views) -> None:
    answer = told(views[0])
    assert "the cheapest dense design" in answer.headline
    assert "the cheapest sparse design" in answer.headline
    table = next(one for one in answer.tables if one.name == "levels-0")
    assert set(table["case"]) == {"dense", "sparse"}
    assert min(table["over_cheapest"]) == 1.0
    answer = told(views[1])
    maps = [one for one in answer.tables if one.name.startswith("map-0-")]
    assert [one.caption.split(":")[0] for one in maps] == views[1]["values"]
    assert "h200_sxm" in answer.headline


def test_a_map_over_formats_and_kinds_is_in_words(views) -> None:
    answer = told(views[2])
    table = next(one for one in answer.tables if one.name == "map-0-0")
    assert table.titles[1:] == ["h100_sxm", "h200_sxm"]
    assert [row["weight_dtype"] for row in table.rows] == ["bf16", "fp8"]
    assert "fp8 × h" in answer.headline


def test_a_view_needs_loss_and_price(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    text = TINY.replace("  predicted_loss: minimize\n", "") + "views: [{by: sparse}]\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputErrors, match="least price at a predicted loss"):
        load_study(path)
