"""Reports from a study folder alone: the answer in words, one safe file, nothing lost."""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from dse.answer.glossary import GLOSSARY
from dse.answer.labels import label
from dse.answer.numbers import show, significant
from dse.answer.roofline import operators_of
from dse.answer.sentences import spoken
from dse.cli import cli
from dse.errors import DseError, InputError, StorageError
from dse.problem.words import deployment_words, shape_words
from dse.questions.study import write_report
from dse.questions.study.cards import cards, quantisation
from dse.questions.study.chosen import StudyFolder
from dse.questions.study.explorer import front_data
from dse.questions.study.figures import (
    floor_figure,
    roof_figures,
    roofs,
    time_figures,
)
from dse.questions.study.tables import compared, elsewhere, tallies
from dse.questions.study.words import lead, limits, price_basis, summary
from dse.render.markdown import code, escape
from dse.render.page import PLOTLY, Explainer, linked, script_json, template_text
from dse.schema.metrics import EVERY
from tests.finished_reports import REPORTS, command_of

SAMPLE = Path(__file__).parents[1] / "data" / "study_sample"
HOSTILE = "<script>alert(1)</script>|`]]>\u2028&amp;"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def sample() -> StudyFolder:
    return StudyFolder.read(SAMPLE)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_of(tmp_path_factory.mktemp("sample"))


def report_of(folder: Path, front: Json | None = None, study: Json | None = None) -> Path:
    """Writes the sample, or what is given in its place, and its report into `folder`."""
    for name, content in (("front.json", front), ("study.json", study)):
        if content is None:
            shutil.copy(SAMPLE / name, folder)
        else:
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    write_report(folder)
    return folder


def both() -> tuple[Json, Json]:
    return tuple(json.loads((SAMPLE / f"{name}.json").read_text()) for name in ("front", "study"))


class Page(HTMLParser):
    """Tags, ids, and the text outside script and style of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts: dict[str | None, str] = {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self.tags[-1][1].get("id")] = data
        elif self.open and self.open[-1] != "style":
            self.text += data


# -- numbers in words ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0812345, "0.0812"),
        (9.996, "10.0"),
        (1234.5, "1,230"),
        (0.00535, "0.00535"),
        (2.1, "2.10"),
        (1.5e6, "1,500,000"),
        (0.0, "0.00"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(1e-9, 1e15))
def test_significant_digits_are_near_and_plain(value: float) -> None:
    text = significant(value)
    assert "e" not in text.lower()
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001e-3)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("usd_per_million_total_tokens", 0.021415, "$0.0214"),
        ("tpot_s", 0.0294, "29.4 ms"),
        ("ttft_s", 1.25, "1.25 s"),
        ("latency_floor_s", 5.7e-4, "570 µs"),
        ("predicted_loss", 1.9123, "1.9123"),
        ("dense_equivalent_parameters", 61.2e9, "61.2B"),
        ("total_parameters", 1.026e12, "1.03T"),
        ("memory_bytes_per_chip", 141e9, "141 GB"),
        ("mfu", 0.413, "41%"),
        ("running_requests", 1024.0, "1,024"),
        ("predicted_loss", None, "–"),
    ],
)
def test_metrics_in_words(metric: str, value: float | None, text: str) -> None:
    assert show(metric, value) == text


def test_a_metric_that_is_not_listed_is_shown_by_its_own_name() -> None:
    assert "gap_s" not in EVERY
    assert label("gap_s").text == "gap"
    assert show("gap_s", 0.5) == "500 ms"


# -- the answer ------------------------------------------------------------------------------


def test_cards_say_what_to_build_and_what_it_costs(sample: StudyFolder) -> None:
    names = [chosen.label for chosen in sample.chosen]
    assert names == ["cheapest", "fastest", "best", "knee"]
    by_name = dict(zip(names, cards(sample), strict=True))
    metric = "usd_per_million_total_tokens"
    least = min(item["metrics"][metric] for item in sample.items)
    text = dict(by_name["cheapest"].rows)
    assert f"${significant(least)} total" in text["It costs"]
    assert "rental_3yr" in text["It costs"]
    chips = sample.chosen[0].item["deployment"]
    rate = next(
        row["usd_per_chip_hour"]
        for row in sample.study["price"]["rows"]
        if row["chip"] == chips["chip"]
    )
    assert f"${significant(rate * chips['chips'])} an hour" in text["It costs"]


def test_every_card_states_bound_interval_and_extrapolation(sample: StudyFolder) -> None:
    for card in cards(sample):
        text = dict(card.rows)
        assert re.search(r"(Memory bandwidth|Compute|Network|Fixed overhead) in", text["Bound by"])
        assert "80% interval" in text["Certainty"]
        assert "Extrapolated: predicted loss" in text["Certainty"]
        assert re.search(r"rests \d+% on \w+ efficiencies", text["Certainty"])
        assert "dense-equivalent" in text["It gives"]
        assert card.command.startswith("dse estimate ")
        assert ("Against the start" in text) == ("Knee" not in card.title)


def test_the_lead_starts_from_the_knee(sample: StudyFolder) -> None:
    first, second, third = lead(sample)
    knee = next(chosen for chosen in sample.chosen if "knee" in chosen.names)
    assert knee.item["deployment"]["chip"] in first
    assert show("predicted_loss", knee.metrics["predicted_loss"]) in first
    assert second.startswith("Bound by ")
    assert third.startswith(f"{len(sample.items)} designs make the front, out of")


def test_one_point_of_two_names_is_one_card() -> None:
    front, study = both()
    study["chosen"]["knee"] = study["chosen"]["cheapest"]
    names = [tuple(chosen.names) for chosen in _folder(front, study).chosen]
    assert ("cheapest", "knee") in names
    assert len(names) == 3


def test_limits_know_their_direction(sample: StudyFolder) -> None:
    front, study = both()
    study["constraints"] = [
        {"text": f"{metric} {sign} {limit}", "metric": metric, "limit": limit, "sign": direction}
        for metric, sign, limit, direction in (
            ("output_tokens_per_s", ">=", 100.0, -1.0),
            ("tpot_s", "<=", 0.03, 1.0),
            ("ttft_s", "<=", 2.0, 1.0),
        )
    ]
    metrics = {"output_tokens_per_s": 400.0, "tpot_s": 0.015, "ttft_s": None}
    found = dict(limits(_folder(front, study), {"metrics": metrics}))
    assert sorted(found.values()) == [0.25, 0.5]
    assert "at least" in min(found, key=lambda sentence: found[sentence])


def test_a_shape_is_told_from_the_keys_it_has() -> None:
    sparse = {
        "name": "searched-7",
        "hidden_size": 4096,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "num_shared_experts": 1,
        "vocab_size": 128256,
    }
    counts = {"total_parameters": 30.5e9, "active_parameters": 3.4e9}
    text = shape_words({"point": 7, "model": sparse, "metrics": counts})
    assert text.startswith("sparse model, 48 layers")
    assert "128 experts of width 768, 8 of them used per token beside 1 shared" in text
    assert "30.5B in all, 3.4B active" in text
    dense = {"name": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
    text = shape_words({"point": 7, "model": dense, "metrics": {}})
    assert text == "llama: dense model, 32 layers of hidden size 4,096."


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
    assert "16 x h200_sxm: TP 4, attention DP 2, EP 8, 2 replicas" in text
    assert "PP" not in text
    assert "fp8 weights, bf16 KV, 2,048 in flight" in text


def test_the_summary_has_a_row_for_each_point(sample: StudyFolder) -> None:
    rows = summary(sample).texts()
    assert len(rows) == len(sample.chosen)
    for row, chosen in zip(rows, sample.chosen, strict=True):
        assert row[0] == f"{chosen.label} ({chosen.item['point']})"
        assert show("tpot_s", chosen.metrics["tpot_s"]) in row
        assert chosen.item["deployment"]["chip"] in row[-1]


def test_more_tokens_than_any_model_had_are_told() -> None:
    front, study = both()
    for k, item in enumerate(front["items"]):
        item["metrics"]["training_tokens"] = 80e12 if k % 2 else 15e12
    assert len(lead(_folder(front, study))) == 4
    assert "up to 80T" in lead(_folder(front, study))[2]
    for item in front["items"]:
        item["metrics"]["training_tokens"] = 40e12
    assert len(lead(_folder(front, study))) == 3
    item = {**front["items"][0], "metrics": {"training_tokens": 15e12}}
    assert shape_words(item).endswith("Trained on 15T tokens.")
    item["metrics"]["training_tokens"] = 80e12
    assert "more than any published model" in shape_words(item)


def test_what_quantising_costs_is_told_apart() -> None:
    assert quantisation({"predicted_loss": 2.0, "quantisation_loss": 0.0}) == 0.0
    assert quantisation({"predicted_loss": 2.0, "quantisation_loss": 0.0004}) == 0.0
    assert quantisation({"predicted_loss": 2.25, "quantisation_loss": 0.25}) == 0.25
    assert quantisation({"predicted_loss": None, "quantisation_loss": None}) == 0.0


@pytest.mark.parametrize("dtype", ["bf16", "int4"])
def test_the_interval_of_the_loss_holds_the_loss(dtype: str) -> None:
    flags = f"--model llama-3-8b --chip h100_sxm --weight-dtype {dtype} --concurrency 8 --json"
    workload = "--prompt-tokens 1024 --output-tokens 256"
    result = CliRunner().invoke(cli, ["estimate", *flags.split(), *workload.split()])
    answer = json.loads(result.stdout)
    low, high = answer["intervals"]["predicted_loss"]
    assert low < answer["predicted_loss"] < high


def test_owned_chips_state_their_terms() -> None:
    front, study = both()
    study["price"]["basis"] = "owned_tco"
    values = {"life": 4 * 31536000.0, "utilisation": 0.6, "electricity": 0.12}
    study["costs"] = {"inputs": {name: {"value": value} for name, value in values.items()}}
    text = price_basis(_folder(front, study))
    assert "over 4 years of which they serve 60%, at $0.12 per kWh" in text


def test_finished_reports_are_made_by_their_first_line() -> None:
    assert command_of("tiny") == [
        "dse",
        "run",
        "tiny",
        "--out",
        "reports/tiny",
        "--seed",
        "0",
        "--engine",
        "auto",
    ]
    for folder in (path for path in REPORTS.iterdir() if path.is_dir()):
        words = command_of(folder.name)
        assert words[0] == "dse"
        assert words[1] != "run" or words[2] == folder.name
        assert words[words.index("--out") + 1] == f"reports/{folder.name}"


# -- figures and columns ---------------------------------------------------------------------


def test_the_bundle_is_of_the_version_whose_schema_figures_follow() -> None:
    pattern = r"plotly\.js (?:\(basic - minified\) )?v(\d+\.\d+\.\d+)"
    bundle, full = (
        re.findall(pattern, text[:300]) for text in (template_text(PLOTLY), get_plotlyjs())
    )
    assert len(bundle) == 1
    assert bundle == full


def test_figures_follow_plotlys_schema(sample: StudyFolder) -> None:
    drawn = [*time_figures(sample), floor_figure(sample)]
    for figure in (*drawn, *roof_figures(sample)):
        text = json.dumps(figure.plotly).replace('"ink"', '"black"').replace('"grid"', '"grey"')
        assert go.Figure(json.loads(text)).data


def test_segments_of_a_bar_add_up(sample: StudyFolder) -> None:
    for key, figure in zip(("prefill_s", "decode_s"), time_figures(sample), strict=True):
        for chosen in sample.chosen:
            length = sum(
                x
                for trace in figure.plotly["data"]
                for x, y in zip(trace["x"], trace["y"], strict=True)
                if y == "<br>".join(chosen.names) and x is not None
            )
            total = sum(row[key] for row in chosen.detail["breakdown"])
            assert length == pytest.approx(1e3 * total)


def decoded(column: Json) -> list[Any]:
    if "codes" in column:
        return [column["levels"][code] for code in column["codes"]]
    return column["values"]


def test_columns_hold_the_whole_front(sample: StudyFolder) -> None:
    data = json.loads(script_json(front_data(sample)))
    columns = {column["key"]: decoded(column) for column in data["columns"]}
    assert data["rows"] == data["total"] == len(sample.items)
    assert data["point"] == [item["point"] for item in sample.items]
    assert columns["chip"] == [item["deployment"]["chip"] for item in sample.items]
    for metric in data["objectives"]:
        expected = [item["metrics"][metric] * label(metric).scale for item in sample.items]
        assert columns[metric] == pytest.approx(expected, rel=5.1e-4)


def test_a_long_front_is_thinned_openly(sample: StudyFolder) -> None:
    data = front_data(sample, data_bytes=10_000)
    assert len(script_json(data)) <= 10_000
    assert data["rows"] == len(data["point"]) < data["total"] == len(sample.items)
    chosen = {chosen.item["point"] for chosen in sample.chosen}
    assert chosen < set(data["point"])
    assert chosen <= set(front_data(sample, data_bytes=1)["point"])


def test_tallies_are_ordered_shares(sample: StudyFolder) -> None:
    rows = tallies(sample).rows
    counts = [row["violated"] for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert all(0 <= row["only"] <= row["violated"] for row in rows)
    assert all(0 < row["share"] <= 1 for row in rows)


def test_axes_run_from_choices_to_results(sample: StudyFolder) -> None:
    data = front_data(sample)
    columns = {column["key"]: column for column in data["columns"]}
    axes = data["parallel"]
    assert axes[0] == "chip"
    assert axes[-3:] == data["objectives"]
    assert {"num_hidden_layers", "tensor_parallel", "concurrency", "weights"} <= set(axes)
    assert all(len(set(decoded(columns[key])) - {None}) > 1 for key in axes)
    assert decoded(columns["tensor_parallel"]) == [
        item["deployment"]["tensor_parallel"] for item in sample.items
    ]


def test_no_operator_is_above_its_roof(sample: StudyFolder) -> None:
    for chosen in sample.chosen:
        found = operators_of(chosen.detail)
        assert {operator.phase for operator in found} == {"prefill", "decode"}
        peaks = [peak for _, peak in roofs(chosen)]
        for operator in found:
            slope = operator.intensity * chosen.detail["hbm_bytes_per_s"]
            assert operator.attainable == pytest.approx(min(slope, operator.attainable))
            assert operator.achieved <= operator.attainable <= max(peaks)
    assert len(roof_figures(sample)) == len(sample.chosen)


def test_a_study_without_flops_or_other_chips_still_has_a_report(tmp_path: Path) -> None:
    front, study = both()
    for detail in study["chosen"].values():
        del detail["hbm_bytes_per_s"], detail["elsewhere"]
    page = Page(report_of(tmp_path, front, study) / "report.html")
    sections = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert "roofline" not in sections
    assert "elsewhere" not in sections


def test_other_chips_come_with_ratio_or_reason(sample: StudyFolder) -> None:
    for chosen in sample.chosen:
        table = elsewhere(sample, chosen)
        rows = table.rows
        own = chosen.item["deployment"]["chip"]
        assert rows[0]["chip"] == own
        assert rows[0]["verdict"].startswith("its own chip")
        chips = {row["chip"] for row in chosen.detail["elsewhere"]}
        assert {row["chip"] for row in rows} == chips - {"small_chip"}
        assert table.notes == ["Not evaluated: no figure for memory_bandwidth: small_chip."]
        feasible = [not row["verdict"].startswith("no: ") for row in rows[1:]]
        assert feasible == sorted(feasible, reverse=True)
        metrics = [objective["metric"] for objective in compared(sample, chosen)]
        assert metrics == ["usd_per_million_total_tokens", "tpot_s"]
        for row in rows[1:]:
            for metric in metrics:
                ratio = row[metric] / chosen.metrics[metric]
                assert row[f"{metric}_ratio"] == pytest.approx(ratio)


# -- the page --------------------------------------------------------------------------------


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


def test_the_answer_comes_first_and_the_inputs_last(written: Path, sample: StudyFolder) -> None:
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
        "roofline",
        "memory",
        "floor",
        "elsewhere",
        "constraints",
        "certainty",
        "asked",
        "inputs",
        "words",
    ]
    first = page.text[: page.text.index("One design at a time")]
    assert "Chips rented on a three-year contract" in first
    assert "time to first token at most" in first
    assert "Start with a" in first
    assert "three-year rent" in page.text
    for text in (sample.study["data_digest"], "tpu_v5p: no price on the basis of three-year rent"):
        assert text in page.text
    for row in sample.study["constraint_tallies"]:
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
    html = re.sub(r'(?s)<div class="bar" aria-hidden.*?</div>', "", html)  # a key says it again
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


# -- markdown --------------------------------------------------------------------------------


def test_markdown_tables_are_square(written: Path) -> None:
    width = 0
    for line in (written / "report.md").read_text(encoding="utf-8").splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width
        width = cells


def test_markdown_tells_the_same_answer(written: Path, sample: StudyFolder) -> None:
    text = (written / "report.md").read_text(encoding="utf-8")
    for card in cards(sample):
        assert f"## {card.title}" in text
        assert f"`{card.command}`" in text
    assert sample.study["data_digest"] in text


@given(st.text())
def test_markdown_text_stays_on_its_line(text: str) -> None:
    shown = escape(text)
    assert len(shown.splitlines()) <= 1
    assert not set(shown) & set("<>")
    assert not re.search(r"(?<!\\)(\\\\)*[|`*_]", shown)


def test_code_spans_hold_backticks() -> None:
    assert code("a `b` c") == "`` a `b` c ``"


# -- files -----------------------------------------------------------------------------------


def test_a_report_is_a_function_of_the_folder(tmp_path: Path) -> None:
    before = report_of(tmp_path)
    first = {path.name: path.read_bytes() for path in before.iterdir()}
    write_report(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert sorted(first) == ["front.json", "report.html", "report.md", "study.json"]


def test_a_failed_write_leaves_the_old_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_of(tmp_path)
    old = (tmp_path / "report.html").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StorageError, match=r"report\.html: cannot be written: No space"):
        write_report(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == old
    assert len(list(tmp_path.iterdir())) == 4


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
        write_report(tmp_path)
    assert name in str(caught.value)
    assert isinstance(caught.value, StorageError if text else InputError)


def test_a_chosen_point_that_the_front_lacks_is_named() -> None:
    front, study = both()
    study["chosen"]["knee"]["point"] = 9_999
    with pytest.raises(StorageError, match="knee is point 9999"):
        _folder(front, study)
    study["chosen"] = {}
    with pytest.raises(StorageError, match="no point of the front is named"):
        _folder(front, study)


def _folder(front: Json, study: Json) -> StudyFolder:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for file, content in (("front.json", front), ("study.json", study)):
            (Path(name) / file).write_text(json.dumps(content))
        return StudyFolder.read(Path(name))


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


def decided_sample() -> tuple[Json, Json]:
    """The sample with a start that is not the knee, and three decisions."""
    front, study = both()
    items = front["items"]
    for item in items:
        item["decision"] = 1 + (item["point"] > 20) + (item["point"] > 40)
    items[24]["names"].append("start")
    study["chosen"]["start"] = {**study["chosen"]["knee"], "point": 25}
    study["decisions"] = {
        "wish": "all objectives alike", "draws": 200, "best": None,
        "regret_in": "share of the range of the front",
        "start": {"point": 25, "probability": 0.62, "regret": 0.034, "kept": 0.9},
        "families": [
            {"decision": k, "point": point, "designs": 20, "probability": share, "regret": 0.1}
            for k, point, share in ((2, 25, 0.62), (1, 3, 0.3), (3, 50, 0.08))
        ],
        "turns": [
            {"objective": "predicted_loss", "factor": 2.0, "decision": 3, "point": 50},
            {"objective": "predicted_loss", "factor": 4.0, "decision": 1, "point": 3},
        ],
    }  # fmt: skip
    return front, study


def test_the_first_sentence_says_the_start_and_how_sure_it_is(tmp_path: Path) -> None:
    front, study = decided_sample()
    text = (report_of(tmp_path, front, study) / "report.md").read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if "Start with" in line)
    assert "best in 62% of cases, keeps the limits in 90%, and gives away 3.4% of" in first
    order = [text.index(part) for part in ("Start with", "The decisions of this front", "cheapest")]
    assert order == sorted(order)
    assert (
        "as the weight grows: of predicted loss, from × 2.0 decision 3, from × 4.0 decision 1"
        in text
    )
    page = Page(tmp_path / "report.html")
    assert "chance best" in page.text
    assert "Start (point 25)" in page.text
    first = page.text[: page.text.index("One design at a time")]
    assert "decision 2 or a design near it is the best in 62% of cases" in first


def test_a_loss_stands_beside_those_of_published_models(tmp_path: Path) -> None:
    front, study = decided_sample()
    served = {"deployment": front["items"][0]["deployment"], "best_in": "tpot_s"}
    loss = front["items"][24]["metrics"]["predicted_loss"]
    metrics = {"usd_per_million_total_tokens": 0.1, "tpot_s": 0.01}
    study["landmarks"] = [
        {"model": name, "name": name, "loss": at, "metrics": metrics | {"predicted_loss": at}}
        | served
        for name, at in (("small-1b", loss + 0.1), ("mid-9b", loss + 0.01), ("big-90b", loss - 0.1))
    ]
    study["landmarks"].append(
        {"model": "huge", "name": "huge-9t", "loss": loss - 0.2, "metrics": None} | served
        | {"deployment": None}
    )  # fmt: skip
    study["decisions"]["families"][2]["compute_multiple"] = 2.34
    folder = report_of(tmp_path, front, study)
    page = Page(folder / "report.html")
    first = page.text[: page.text.index("One design at a time")]
    assert "(between mid-9b and big-90b)" in first
    assert first.count("Diamonds: published models") == 1
    drawn = json.loads(page.scripts["page-data"])["figures"]["opening-plot"]["data"]
    named = next(trace for trace in drawn if trace["name"] == "published")
    assert named["meta"] == ["small-1b", "mid-9b", "big-90b"]
    text = (folder / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert "no deployment of this space can serve it within the limits" in text
    assert "the loss of decision 3 by more training alone, the model of decision 2" in text
    assert "would take 2.3 times its compute" in text


def test_marks_of_the_opening_are_the_decisions(tmp_path: Path) -> None:
    front, study = decided_sample()
    page = Page(report_of(tmp_path, front, study) / "report.html")
    figure = json.loads(page.scripts["page-data"])["figures"]["opening-plot"]
    others, first = figure["data"][-2:]  # the first one is drawn over the others
    assert first["text"] + others["text"] == ["2", "1", "3"]
    assert first["customdata"] + others["customdata"] == [25, 3, 50]
    assert first["marker"]["color"] != others["marker"]["color"]
    for axis, along in (("xaxis", "x"), ("yaxis", "y")):
        low, high = figure["layout"][axis]["range"]
        log = figure["layout"][axis].get("type") == "log"
        at = [math.log10(value) if log else value for value in first[along] + others[along]]
        assert low < min(at) <= max(at) < high
    outside = re.search(r"Outside the picture: (\d+) designs", page.text)
    points = sum(len(trace["x"]) for trace in figure["data"][:-2])
    assert points == len(front["items"])
    assert outside is None or int(outside[1]) <= 0.05 * points


def test_a_wish_and_the_limits_that_it_moves(tmp_path: Path) -> None:
    front, study = decided_sample()
    study["decisions"] |= {
        "wish": "cheapest at predicted_loss <= 2.0",
        "best": "usd_per_million_total_tokens",
        "regret_in": "share",
        "turns": [{"objective": "predicted_loss", "limit": 1.95, "decision": 3, "point": 50}],
    }
    text = (report_of(tmp_path, front, study) / "report.md").read_text(encoding="utf-8")
    text = text.replace("\\", "").replace("&lt;", "<")
    assert "for the wish “cheapest at predicted_loss <= 2.0”" in text
    assert "3.4% of cost per million tokens on average" in text
    assert "as the limit moves: of predicted loss, from 1.9500 decision 3" in text


def test_a_function_of_the_user_has_no_errors_to_draw(tmp_path: Path) -> None:
    front, study = decided_sample()
    study["decisions"]["start"] |= {"probability": None, "kept": 1.0}
    for one in study["decisions"]["families"]:
        one["probability"] = None
    text = (report_of(tmp_path, front, study) / "report.md").read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if "Start with" in line)
    assert "draws" not in first
    assert "| chance best |" not in text
