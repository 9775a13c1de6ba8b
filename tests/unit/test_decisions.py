"""Decisions in a report: how sure they are, what moves them, and where they stand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from tests.helpers_report import Page, decided_sample, report_of


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
    assert "Start: decision 1 (point 25)" in page.text
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
