"""`dse compare` of a space with a published model, and of a space by chip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import ask, dse, fits, on_page
from tests.unit.test_rediscovery import CASE, SMALL, TWO_CHIPS

COST = "usd_per_million_total_tokens"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "case.yaml").write_text(CASE, encoding="utf-8")
    return tmp_path / "case.yaml"


def test_a_case_of_ones_own(case: Path):
    said = dse("compare", case)
    assert (said.code, said.err) == (0, "")
    assert fits(said.out, 100)
    for part in ("Llama-3-8B is", "as good", "quality law `abnar`", "What each choice"):
        assert part in said.out


def test_the_document_has_everything_and_no_nan(case: Path):
    document = ask("compare", case)
    (of_case,), (row,) = document["cases"], document["designs"]
    assert of_case["expert"] == "llama-3-8b"
    assert row["cost_ratio"] > 0.0
    near = {one["which"]: one for one in document["nearest"]}
    assert near["cheaper"][COST] <= near["design"][COST] == row[COST]
    changed = {one["assumption"] for one in document["variants"]}
    assert changed >= {"attention", "depth", "free", "tokens"}


def test_another_law_changes_quality_and_no_price(case: Path):
    base = ask("compare", case)
    other = ask("compare", case, "--law", "hoffmann")
    assert other["cases"][0]["quality_law"] == "hoffmann"
    one, changed = base["nearest"][0], other["nearest"][0]
    assert changed[COST] == one[COST]
    assert changed["predicted_loss"] != one["predicted_loss"]
    assert "law leverage" in {row["assumption"] for row in other["variants"]}


def test_the_page_of_a_case_is_the_same_bytes_twice(case: Path, tmp_path: Path):
    texts = []
    for name in ("a", "b"):
        assert dse("compare", case, "--out", tmp_path / name).code == 0
        written = (tmp_path / name / "compare.md").read_bytes()
        texts.append(written.replace(str(tmp_path / name).encode(), b""))
    assert texts[0] == texts[1]
    assert b"# Llama-3-8B in a small space" in texts[0]


def test_a_space_and_a_model_are_the_same_comparison_as_a_case(case: Path):
    named = ask("compare", case.parent / "small.yaml", "llama-3-8b")
    known = ask("compare", case)
    assert (named["cases"][0]["held"], named["known"]) == ({}, [])
    assert named["nearest"][0] | {"case": ""} == known["nearest"][0] | {"case": ""}
    free = next(row for row in known["variants"] if row["assumption"] == "free")
    row = named["designs"][0]
    assert (row["cost_ratio"], row["nats"]) == (free["cost_ratio"], free["nats"])


def test_a_study_and_a_model_are_the_space_and_the_model(case: Path, tmp_path: Path):
    space, out = case.parent / "small.yaml", tmp_path / "study"
    assert dse("run", space, "--out", out, "--engine", "random", "--trials", 20).code == 0
    of_space, of_study = (ask("compare", one, "llama-3-8b") for one in (space, out))
    assert of_study == of_space


def test_a_basket_in_text_json_and_files(tmp_path: Path):
    path = tmp_path / "two-chips.yaml"
    path.write_text(TWO_CHIPS, encoding="utf-8")
    said = dse("compare", path, "--by", "chip", "--out", tmp_path / "out")
    assert said.code == 0
    assert fits(said.out, 100)
    assert "One shape for h100_sxm and mi300x costs at most" in said.out
    document = ask("compare", path, "--by", "chip")
    text = (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    assert document["answer"][0] in text.replace("\\", "")
    of = {(row["which"], row["chip"]): row["regret"] for row in document["choices"]}
    chips = ("h100_sxm", "mi300x")
    least_worst, least_mean = (
        max(of[which, chip] for chip in chips) for which in ("least worst", "least mean")
    )
    assert least_worst <= least_mean
    assert all(of[f"best for {chip}", chip] == 0.0 for chip in chips)
    page = (tmp_path / "out" / "compare.html").read_text(encoding="utf-8")
    assert on_page(document["answer"][1]) in page
    assert 'src="http' not in page
