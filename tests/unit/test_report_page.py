"""The files of a report: one safe page, markdown that tells the same, broken folders named."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.answer.numbers import GLOSSARY
from dse.answer.sentences import spoken
from dse.errors import DseError, InputError, StorageError
from dse.render.markdown import code, escape
from dse.render.page import Explainer, linked, script_json
from tests.helpers_report import (
    HOSTILE,
    SAMPLE,
    Page,
    answer_of,
    both,
    report_of,
    write_again,
    written,
)

__all__ = ["written"]


def test_the_page_is_one_file(written: Path) -> None:
    page = Page(written / "report.html")
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "object", "embed", "base")]
    assert not [attrs for tag, attrs in page.tags if tag == "script" and "src" in attrs]
    assert [attrs["href"] for tag, attrs in page.tags if tag == "link"] == ["data:,"]
    assert not re.search(r"@import|url\(", _style(written / "report.html"))
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert policy
    assert policy.startswith("default-src 'none'")
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_answer_comes_first_and_the_inputs_last(written: Path) -> None:
    _, study = both()
    page = Page(written / "report.html")
    sections = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert sections == [
        "answer",
        "designs",
        "front",
        "pairs",
        "table",
        "parallel",
        "time",
        "memory",
        "floor",
        "constraints",
        "certainty",
        "asked",
        "inputs",
        "words",
    ]
    first = page.text[: page.text.index("The designs")]
    assert "chips rented on a three-year contract" in first
    assert "Limits: time to first token at most" in first
    assert "Start with a" in first
    assert "three-year rent" in page.text
    for text in (study["data_digest"], "tpu_v5p: no price on the basis of three-year rent"):
        assert text in page.text
    for row in study["constraint_tallies"]:
        assert spoken(row["constraint"], {}) in page.text


def test_hostile_names_are_text(tmp_path: Path) -> None:
    front, study = both()
    study["title"] = study["description"] = study["engine"] = HOSTILE
    study["left_out"] = [HOSTILE]
    study["constraints"][0]["text"] = study["constraint_tallies"][0]["constraint"] = HOSTILE
    study["price"]["rows"][0] |= {"note": HOSTILE, "source": HOSTILE}
    study["sources"][0]["figure"] = study["law"]["fit_range"][0] = HOSTILE
    for detail in study["chosen"].values():
        detail["breakdown"][0]["operator"] = detail["memory"][0]["part"] = HOSTILE
    for item in front["items"]:
        item["model"]["name"] = item["deployment"]["chip"] = item["command"] = HOSTILE
        item["metrics"]["assumed"] = [HOSTILE]
    folder = report_of(tmp_path, front, study)
    page = Page(folder / "report.html")
    assert [attrs.get("id") for tag, attrs in page.tags if tag == "script"] == [
        "page-data",
        None,
        None,
    ]
    data = json.loads(page.scripts["page-data"])["front"]
    assert next(c for c in data["columns"] if c["key"] == "model")["levels"] == [HOSTILE]
    outside_code = re.sub(r"(`+).*?\1", "", (folder / "report.md").read_text(encoding="utf-8"))
    assert "<script" not in outside_code


def test_five_thousand_points_stay_below_six_megabytes(tmp_path: Path) -> None:
    front, _ = both()
    few = front["items"]
    front["items"] = []
    for i in range(5_000):
        item = copy.copy(few[i % len(few)]) | {"point": i + 1}
        item["metrics"] = {
            name: value * (1 + 1e-5 * i) if isinstance(value, float) else value
            for name, value in item["metrics"].items()
        }
        front["items"].append(item)
    folder = report_of(tmp_path, front)
    assert (folder / "report.html").stat().st_size < 6_000_000
    assert " of 5,000 points, evenly along the front" in (folder / "report.md").read_text(
        encoding="utf-8"
    )


def test_a_fixed_model_without_quality_has_a_report(tmp_path: Path) -> None:
    front, study = both()
    study["objectives"], study["law"] = study["objectives"][1:], None
    del study["chosen"]["best"]
    for item in front["items"]:
        item["metrics"] |= {"predicted_loss": None, "dense_equivalent_parameters": None}
        item["model"] = {"name": "llama-3-70b", "hidden_size": 8192, "num_hidden_layers": 80}
        item["model"]["blocks"] = []
    page = Page(report_of(tmp_path, front, study) / "report.html")
    assert "Start with llama-3-70b on" in page.text
    assert "Predicted loss" not in page.text


def test_each_word_is_explained_once() -> None:
    explain = Explainer()
    first = explain("The knee & the front; KV cache")
    assert f'title="{GLOSSARY["front"]}"' in first
    assert "&amp;" in first
    assert first.count("<abbr") == 3
    assert "<abbr" not in explain("the KNEE of the front")
    assert "<abbr" not in Explainer()("a frontal kneel")


def test_words_are_explained_in_prose_alone() -> None:
    explain = Explainer()
    first = explain.page('<p class="knee">a <code>knee</code> &amp; <b>the knee</b></p>')
    assert "<abbr" not in first
    assert 'class="knee"' in first
    second = explain.page("<dl class='x'><dd>the knee, the knee</dd></dl>")
    assert second.count("<abbr") == 1
    assert second.startswith("<dl class='x'><dd>the <abbr ")


def test_every_word_of_the_list_is_explained_where_it_first_appears(written: Path) -> None:
    html = (written / "report.html").read_text(encoding="utf-8")
    html = html[html.index("<header>") : html.index("</main>")]
    html = re.sub(r'(?s)<dl class="glossary">.*?</dl>', "", html)
    html = re.sub(r"(?s)<(a|b|button|code|h1|select|summary)\b[^>]*>.*?</\1>", "", html)
    for term in GLOSSARY:
        found = re.search(
            rf"(?i)(<abbr [^>]*>)?(?<![\w=\"-])\b{re.escape(term)}\b(?![^<>]*>)", html
        )
        longer = [t for t in GLOSSARY if term.lower() in t.lower() and t != term]
        assert found is None or found[1] or longer, term


def test_only_web_addresses_become_links() -> None:
    assert 'href="https://example.org/a"' in linked("https://example.org/a")
    for text in ("javascript:alert(1)", "https://a b", "data sheet"):
        assert "<a" not in linked(text)


VALUES = st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text())


@given(st.lists(VALUES) | st.dictionaries(st.text(), VALUES) | VALUES)
def test_json_in_a_script_is_inert_and_whole(value: object) -> None:
    text = script_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_markdown_tables_are_square(written: Path) -> None:
    width = 0
    for line in (written / "report.md").read_text(encoding="utf-8").splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width
        width = cells


def test_markdown_tells_the_same_answer(written: Path) -> None:
    front, study = both()
    text = (written / "report.md").read_text(encoding="utf-8")
    for chosen in study["chosen"].values():
        assert f"`{front['items'][chosen['point'] - 1]['command']}`" in text
    assert study["data_digest"] in text


@given(st.text())
def test_markdown_text_stays_on_its_line(text: str) -> None:
    shown = escape(text)
    assert len(shown.splitlines()) <= 1
    assert not set(shown) & set("<>")
    assert not re.search(r"(?<!\\)(\\\\)*[|`*_]", shown)


def test_code_spans_hold_backticks() -> None:
    assert code("a `b` c") == "`` a `b` c ``"


def test_a_report_is_a_function_of_the_folder(tmp_path: Path) -> None:
    before = report_of(tmp_path)
    first = {path.name: path.read_bytes() for path in before.iterdir()}
    write_again(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert sorted(first) == ["front.json", "report.html", "report.md", "study.json"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("front.json", None, "it has no front.json"),
        ("study.json", "{", "cannot be read"),
        ("study.json", "[]", "is no object"),
        ("front.json", '{"items": [NaN]}', "NaN is not JSON"),
        ("front.json", '{"items": [{"point": 1}]}', r"items\[0\] lacks 'names'"),
        ("front.json", '{"items": [3]}', r"items\[0\] is no object"),
        ("front.json", '{"items": {}}', "items is no list"),
        ("front.json", '{"items": []}', "holds no point"),
        ("study.json", "{}", "lacks 'space'"),
    ],
)
def test_a_broken_folder_is_named(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    for file in ("front.json", "study.json"):
        shutil.copy(SAMPLE / file, tmp_path)
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text)
    with pytest.raises(DseError, match=message) as caught:
        write_again(tmp_path)
    assert name in str(caught.value)
    assert isinstance(caught.value, StorageError if text else InputError)


def test_a_chosen_point_that_the_front_lacks_is_named() -> None:
    front, study = both()
    study["chosen"]["knee"]["point"] = 9_999
    with pytest.raises(StorageError, match="knee is point 9999"):
        answer_of(front, study)
    study["chosen"] = {}
    with pytest.raises(StorageError, match="no point of the front is named"):
        answer_of(front, study)


def _style(path: Path) -> str:
    found = re.search(r"<style>(.*?)</style>", path.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_the_first_line_is_the_command_that_makes_the_report(tmp_path: Path) -> None:
    front, study = both()
    folder = report_of(tmp_path, front, {**study, "command": "dse run x --out 'a --> <b>'"})
    for name in ("report.html", "report.md"):
        first = (folder / name).read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("<!-- dse run x --out ")
        assert first.endswith(" -->")
        assert first.count(">") == 1
