"""Figures and columns of a report: what they show adds up, and nothing is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from dse.answer.labels import label
from dse.answer.plots import operators_of
from dse.questions.study.chosen import StudyFolder
from dse.questions.study.explorer import front_data
from dse.questions.study.figures import (
    floor_figure,
    roof_figures,
    roofs,
    time_figures,
)
from dse.questions.study.tables import compared, elsewhere, tallies
from dse.render.page import PLOTLY, script_json, template_text
from tests.helpers_report import Json, Page, both, report_of, sample

__all__ = ["sample"]


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
