"""The report of a study folder alone: its sentences, tables and pictures."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from dse.answer.answer import Answer, Table
from dse.answer.numbers import GLOSSARY, label, show
from dse.answer.sentences import spoken
from dse.errors import DseError, InputError, StorageError
from dse.problem.words import deployment_words
from dse.render.markdown import code, escape
from dse.render.page import PLOTLY, Explainer, linked, script_json, template_text
from tests.finished_reports import REPORTS, command_of
from tests.helpers_report import (
    HOSTILE,
    SAMPLE,
    Json,
    Page,
    answer_of,
    both,
    decided_sample,
    report_of,
    write_again,
    written,
)


@pytest.fixture(scope="module")
def sample() -> Answer:
    return answer_of(*both())


def table(answer: Answer, name: str) -> Table:
    return next(one for one in answer.tables if one.name == name)


# -- sentences and chosen points -------------------------------------------------------------


def test_a_chosen_point_says_what_it_costs_what_limits_it_and_how_sure_that_is(
    sample: Answer,
) -> None:
    front, study = both()
    made = {str(row["chosen"]): row for row in table(sample, "made-of").rows}
    assert set(made) == {"1, knee", "cheapest", "fastest", "best"}
    item = front["items"][study["chosen"]["cheapest"]["point"] - 1]
    metric = "usd_per_million_total_tokens"
    assert item["metrics"][metric] == min(one["metrics"][metric] for one in front["items"])
    assert made["cheapest"][metric] == item["metrics"][metric]
    rates = {row["chip"]: row["usd_per_chip_hour"] for row in study["price"]["rows"]}
    hour = rates[item["deployment"]["chip"]] * item["deployment"]["chips"]
    assert made["cheapest"]["usd_per_hour"] == pytest.approx(hour)
    for row in made.values():
        assert str(row["nearest_limit"]).endswith(("allowed", "is asked")) or "of the chip" in str(
            row["nearest_limit"]
        )
        assert row["bottleneck"]
        assert row["dense_equivalent_parameters"]
    sure = table(sample, "intervals")
    assert sure["chosen"] == list(made)
    assert all(" to " in text for text in sure["predicted_loss"])


def test_the_lead_starts_from_the_first_decision_and_says_little(sample: Answer) -> None:
    front, study = both()
    knee = front["items"][study["chosen"]["knee"]["point"] - 1]
    assert knee["deployment"]["chip"] in sample.headline
    assert show("predicted_loss", knee["metrics"]["predicted_loss"]) in sample.headline
    assert len(sample.sentences) <= 5
    assert any(text.startswith(f"{len(front['items'])} designs") for text in sample.sentences)


def test_one_point_of_two_names_is_one_row() -> None:
    front, study = both()
    study["chosen"]["knee"] = study["chosen"]["cheapest"]
    study["decisions"]["families"][0]["point"] = study["chosen"]["cheapest"]["point"]
    told = table(answer_of(front, study), "decisions")
    assert told["names"] == ["cheapest, knee", "fastest", "best"]
    assert told["decision"] == ["1", "", ""]


def test_limits_know_their_direction() -> None:
    front, study = both()
    study["constraints"] = [
        {"text": f"{metric} {sign} {limit}", "metric": metric, "limit": limit, "sign": direction}
        for metric, sign, limit, direction in (
            ("output_tokens_per_s", ">=", 100.0, -1.0),
            ("tpot_s", "<=", 0.03, 1.0),
        )
    ]
    for item in front["items"]:
        item["metrics"] |= {"output_tokens_per_s": 101.0, "tpot_s": 0.0015}
    for limit in table(answer_of(front, study), "made-of")["nearest_limit"]:
        assert "where at least 100 is asked" in str(limit)


def test_a_deployment_names_degrees_above_one() -> None:
    d = {
        "chip": "h200_sxm",
        "chips": 16,
        "tensor_parallel": 4,
        "pipeline_parallel": 1,
        "data_parallel": 2,
        "expert_parallel": 8,
        "replicas": 2,
        "weight_dtype": "fp8",
        "kv_dtype": "bf16",
        "concurrency": 2048,
    }
    text = deployment_words(d)
    assert "16 x h200_sxm (TP 4, attention DP 2, EP 8, 2 replicas" in text
    assert "PP" not in text
    assert "fp8 weights, bf16 KV, 2,048 in flight" in text


def test_more_tokens_than_any_model_had_are_told() -> None:
    front, study = both()
    for k, item in enumerate(front["items"]):
        item["metrics"]["training_tokens"] = 80e12 if k % 2 else 15e12
    assert "up to 80T" in " ".join(answer_of(front, study).sentences)
    for item in front["items"]:
        item["metrics"]["training_tokens"] = 40e12
    assert "training_tokens <=" not in " ".join(answer_of(front, study).sentences)


def test_owned_chips_state_their_terms() -> None:
    front, study = both()
    study["price"]["basis"] = "owned_tco"
    values = {"life": 4 * 31536000.0, "utilisation": 0.6, "electricity": 0.12}
    study["costs"] = {"inputs": {name: {"value": value} for name, value in values.items()}}
    text = answer_of(front, study).asked
    assert "over 4 years of which they serve 60%, at $0.12 per kWh" in text


def test_finished_reports_are_made_by_their_first_line() -> None:
    made = ["dse", "run", "tiny", "--out", "reports/tiny", "--seed", "0", "--engine", "auto"]
    assert command_of("tiny") == made
    for folder in (path for path in REPORTS.iterdir() if path.is_dir()):
        words = command_of(folder.name)
        assert words[0] == "dse"
        assert words[1] != "run" or words[2] == folder.name
        assert words[words.index("--out") + 1] == f"reports/{folder.name}"


# -- decisions -------------------------------------------------------------------------------


def test_the_headline_says_the_start_and_how_sure_it_is() -> None:
    answer = answer_of(*decided_sample())
    assert "Start with" in answer.headline
    said = "best in 62% of cases (decision 1 in 30%), and keeps the limits in 90%"
    assert said in answer.sentences[0]
    assert table(answer, "decisions")["chance_first"][:3] == [0.62, 0.3, 0.08]
    turns = table(answer, "turns")
    assert turns["decision"] == ["3", "1"]
    assert answer.opening is not None
    said = "decision 2 or a design near it is the best in 62% of cases"
    assert said in answer.opening.sure


def test_a_loss_stands_beside_those_of_published_models() -> None:
    front, study = decided_sample()
    served = {"deployment": front["items"][0]["deployment"], "best_in": "tpot_s"}
    loss = front["items"][24]["metrics"]["predicted_loss"]
    metrics = {"usd_per_million_total_tokens": 0.1, "tpot_s": 0.01}
    study["landmarks"] = [
        {"model": name, "name": name, "loss": at, "metrics": metrics | {"predicted_loss": at}}
        | served
        for name, at in (("small-1b", loss + 0.1), ("mid-9b", loss + 0.01), ("big-90b", loss - 0.1))
    ]
    huge = {"model": "huge", "name": "huge-9t", "loss": loss - 0.2, "metrics": None}
    study["landmarks"].append(huge | served | {"deployment": None})
    study["decisions"]["families"][2]["compute_multiple"] = 2.34
    answer = answer_of(front, study)
    assert answer.opening is not None
    assert "(between mid-9b and big-90b)" in answer.headline
    drawn = answer.opening.figure.plotly["data"]
    named = next(trace for trace in drawn if trace["name"] == "published")
    assert set(named["meta"]) <= {"small-1b", "mid-9b", "big-90b"}
    landmarks = table(answer, "landmarks")
    assert landmarks["name"] == ["huge-9t", "big-90b", "mid-9b", "small-1b"]
    assert landmarks["deployed"][0].startswith("no deployment of this space can serve it")
    assert table(answer, "decisions")["compute_multiple"][:3] == [None, None, 2.34]


def test_marks_of_the_opening_are_the_decisions() -> None:
    front, study = decided_sample()
    opening = answer_of(front, study).opening
    assert opening is not None
    figure = opening.figure.plotly
    others, first = figure["data"][-2:]  # the first one is drawn over the others
    assert first["text"] + others["text"] == ["2", "1", "3"]
    assert first["customdata"] + others["customdata"] == [25, 3, 50]
    assert first["marker"]["color"] != others["marker"]["color"]
    assert sum(len(trace["x"]) for trace in figure["data"][:-2]) == len(front["items"])


def test_a_wish_and_the_limits_that_it_moves() -> None:
    front, study = decided_sample()
    study["decisions"] |= {
        "wish": "cheapest at predicted_loss <= 2.0",
        "best": "usd_per_million_total_tokens",
        "regret_in": "share",
        "turns": [{"objective": "predicted_loss", "limit": 1.95, "decision": 3, "point": 50}],
    }
    answer = answer_of(front, study)
    assert "for the wish “cheapest at predicted_loss <= 2.0”" in answer.sentences[0]
    assert table(answer, "turns")["counts"] == ["limited to 1.9500"]


def test_a_function_of_the_user_has_no_errors_to_draw() -> None:
    front, study = decided_sample()
    study["decisions"]["start"] |= {"probability": None, "kept": 1.0}
    for one in study["decisions"]["families"]:
        one["probability"] = None
    answer = answer_of(front, study)
    assert "of cases" not in " ".join(answer.sentences)
    assert "chance_first" not in [column.key for column in table(answer, "decisions").columns]


# -- tables and pictures ---------------------------------------------------------------------


def test_the_bundle_is_of_the_version_whose_schema_figures_follow() -> None:
    pattern = r"plotly\.js (?:\(basic - minified\) )?v(\d+\.\d+\.\d+)"
    bundle, full = (
        re.findall(pattern, text[:300]) for text in (template_text(PLOTLY), get_plotlyjs())
    )
    assert len(bundle) == 1
    assert bundle == full


def test_figures_follow_plotlys_schema() -> None:
    for figure in answer_of(*decided_sample()).figures:
        text = json.dumps(figure.plotly)
        for ours, known in (("ink", "black"), ("grid", "grey"), ("paper", "white")):
            text = text.replace(f'"{ours}"', f'"{known}"')
        layout = json.loads(text)
        layout["layout"].pop("meta", None)
        assert go.Figure(layout).data


def decoded(column: Json) -> list[Any]:
    if "codes" in column:
        return [column["levels"][code] for code in column["codes"]]
    return column["values"]


def test_the_explorer_holds_the_whole_front(sample: Answer) -> None:
    items = both()[0]["items"]
    assert sample.explorer is not None
    data = json.loads(script_json(sample.explorer.data))
    columns = {column["key"]: decoded(column) for column in data["columns"]}
    assert data["rows"] == data["total"] == len(items)
    assert data["point"] == [item["point"] for item in items]
    assert columns["chip"] == [item["deployment"]["chip"] for item in items]
    for metric in data["objectives"]:
        expected = [item["metrics"][metric] * label(metric).scale for item in items]
        assert columns[metric] == pytest.approx(expected, rel=5.1e-4)
    axes = data["parallel"]
    assert axes[0] == "chip"
    assert axes[-3:] == data["objectives"]
    assert {"num_hidden_layers", "tensor_parallel", "concurrency", "weights"} <= set(axes)
    assert all(len(set(columns[key]) - {None}) > 1 for key in axes)
    assert columns["tensor_parallel"] == [item["deployment"]["tensor_parallel"] for item in items]


def test_a_long_front_is_thinned_openly(monkeypatch: pytest.MonkeyPatch) -> None:
    front, study = both()
    chosen = {one["point"] for one in study["chosen"].values()}
    for most in (10_000, 1):
        monkeypatch.setattr("dse.questions.study.front.DATA_BYTES", most)
        explorer = answer_of(front, study).explorer
        assert explorer is not None
        assert len(script_json(explorer.data)) <= 10_000
        assert explorer.data["rows"] < explorer.data["total"] == len(front["items"])
        assert chosen <= set(explorer.data["point"])


def test_tallies_are_ordered_shares(sample: Answer) -> None:
    found = table(sample, "constraints")
    counts = found["violated"]
    assert counts == sorted(counts, reverse=True)
    assert all(0 <= a <= n for a, n in zip(found["violated_alone"], counts, strict=True))
    assert all(0 < share <= 1 for share in found["violated_share"])


# The files of a report: one safe page, markdown that tells the same, broken folders named.


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
    start = study["decisions"]["families"][0]["point"]
    assert f"`{front['items'][start - 1]['command']}`" in text
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
    study["decisions"]["families"] = []
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
