"""`dse rediscover` and `dse basket`, as a person uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dse.schema.rediscovery import shipped_cases
from tests.cli.conftest import dse, fits
from tests.unit.test_basket import SPACE
from tests.unit.test_rediscovery import CASE, SMALL

PAGE = Path(__file__).parents[2] / "docs" / "rediscovery.md"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "case.yaml").write_text(CASE, encoding="utf-8")
    return tmp_path / "case.yaml"


def test_a_case_of_ones_own(case: Path):
    said = dse("rediscover", case)
    assert (said.code, said.err) == (0, "")
    assert fits(said.out, 100)
    for part in ("Llama-3-8B is", "on the grid", "one parameter at a time", "quality law `abnar`"):
        assert part in said.out


def test_the_document_has_everything_and_no_nan(case: Path):
    document = dse("rediscover", case, "--json").json()
    assert document["expert"] == "llama-3-8b"
    assert document["cost_ratio"] > 0.0
    assert document["cheaper"]["price"] <= document["design"]["price"]
    assert document["cheaper"]["path"][-1]["price"] == document["cheaper"]["price"]
    assert {one["key"] for one in document["variants"]} >= {"attention", "depth", "free", "tokens"}
    assert all(one["inside"] for one in document["grid"] if one["axis"] != "intermediate_size")


def test_another_law_changes_quality_and_no_price(case: Path):
    base = dse("rediscover", case, "--json").json()
    other = dse("rediscover", case, "--law", "hoffmann", "--json").json()
    assert other["quality_law"] == "hoffmann"
    assert other["design"]["price"] == base["design"]["price"]
    assert other["design"]["predicted_loss"] != base["design"]["predicted_loss"]
    assert "law leverage" in {one["key"] for one in other["variants"]}


def test_the_page_of_a_case_is_the_same_bytes_twice(case: Path, tmp_path: Path):
    texts = []
    for name in ("a.md", "b.md"):
        assert dse("rediscover", case, "--markdown", tmp_path / name).code == 0
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert b"# Rediscovery" in texts[0]


def test_the_page_has_every_case_and_what_the_command_writes_today(tmp_path: Path):
    """One case is run again; the others take longer."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.startswith("<!-- dse rediscover --markdown docs/rediscovery.md -->")
    name = "llama-3-70b"
    assert name in shipped_cases()
    assert dse("rediscover", name, "--markdown", tmp_path / "one.md").code == 0
    one = (tmp_path / "one.md").read_text(encoding="utf-8")
    section = one[one.index("## Llama") :].rstrip()
    assert section in page
    assert page.count("\n## ") == len(shipped_cases())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rediscover", "deepseek-v4"), "did you mean deepseek-v3?"),
        (("rediscover", "llama-3-70b", "--law", "hofmann"), "did you mean 'hoffmann'?"),
        (("rediscovery",), "Did you mean rediscover?"),
        (("basket", "basket-h200-tpu-trn1"), "did you mean basket-h200-tpu-trn2?"),
        (("basket", "tiny"), "predicted_loss and one cost"),
        (("baskets", "tiny"), "Did you mean basket?"),
    ],
)
def test_wrong_words_are_refused_with_what_is_near(arguments: tuple[str, ...], said: str):
    found = dse(*arguments)
    assert found.code == 2
    assert said in found.err
    assert "Traceback" not in found.err


def test_a_file_that_cannot_be_written_is_code_4(case: Path, tmp_path: Path):
    found = dse("rediscover", case, "--markdown", tmp_path / "none" / "page.md")
    assert found.code == 4
    assert "cannot be written" in found.err


def test_a_basket_in_text_json_and_files(tmp_path: Path):
    path = tmp_path / "two-chips.yaml"
    path.write_text(SPACE, encoding="utf-8")
    said = dse("basket", path, "--out", tmp_path / "out")
    assert said.code == 0
    assert fits(said.out, 100)
    assert "One shape for h100_sxm and mi300x costs at most" in said.out
    document = dse("basket", path, "--json").json()
    assert document["answer"][0] in (tmp_path / "out" / "basket.md").read_text(encoding="utf-8")
    assert document["least_worst"]["worst_regret"] <= document["least_mean"]["worst_regret"]
    assert set(document["own"]) == {"h100_sxm", "mi300x"}
    page = (tmp_path / "out" / "basket.html").read_text(encoding="utf-8")
    assert document["answer"][1] in page
    assert 'src="http' not in page
