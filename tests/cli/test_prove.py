"""`dse run`: how sure the front is, in study.json, the report and on the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dse.study.folder import FRONT, read_json
from tests.cli.conftest import dse

LOCAL = ("run", "tiny", "--engine", "pareto-local", "--seed", 3)


def test_a_small_space_is_enumerated_after_a_search(tiny: Path, tmp_path: Path) -> None:
    said = dse(*LOCAL, "--out", tmp_path)
    assert said.code == 0
    study = json.loads((tmp_path / "study.json").read_text())
    proof = study["proof"]
    assert study["evaluations"] <= study["size"] / 10
    assert proof["enumerated"]["evaluations"] == study["size"]
    assert 0.999 <= study["true_hypervolume_share"] <= 1.0
    every = json.loads((tiny / "study.json").read_text())
    assert every["engine"] == "exhaustive"
    assert proof["enumerated"]["found"] <= proof["enumerated"]["true_front_size"]
    assert proof["enumerated"]["true_front_size"] == every["exact_front_size"]
    assert every["front_size"] < every["exact_front_size"]
    # what the enumeration met beyond the search is on the front, and the same when reported again
    front = (tmp_path / "front.csv").read_bytes()
    items, true = (read_json(out, FRONT)["items"] for out in (tmp_path, tiny))
    designs = [(item["model"], item["deployment"]) for item in items]
    assert designs == [(item["model"], item["deployment"]) for item in true]
    again = dse(*LOCAL, "--out", tmp_path, "--json").json()
    assert again["proof"] == proof
    assert again["trials"] == study["trials"]
    assert (tmp_path / "front.csv").read_bytes() == front
    assert 0.0 <= proof["enumerated"]["additive_epsilon"] < 0.05
    whole = " ".join(said.out.split())
    assert "How sure is this front Against all 32,256 points of the space" in whole
    page = (tmp_path / "report.html").read_text()
    section = page.split('<section id="sure">')[1].split("</section>")[0]
    assert "How sure is this front" in section
    assert "one parameter away from the front" in section
    assert "optimal" not in section
    assert "## How sure is this front" in (tmp_path / "report.md").read_text()


def test_an_enumeration_needs_no_other_proof(tmp_path: Path) -> None:
    study = dse("run", "deploy-llama-3-70b", "--out", tmp_path, "--json").json()
    assert study["engine"] == "exhaustive"
    assert study["why_engine"] == "5,940 points are few enough to enumerate"
    assert study["true_hypervolume_share"] == 1.0
    assert set(study["proof"]) == {"history", "enumerated"}


def test_nothing_is_said_where_nothing_is_asked(tmp_path: Path) -> None:
    study = dse(*LOCAL, "--no-prove", "--out", tmp_path, "--json").json()
    assert study["proof"] is None
    assert study["true_hypervolume_share"] is None
    assert study["command"].endswith("--no-prove")
    assert 'id="sure"' not in (tmp_path / "report.html").read_text()


def test_a_large_space_gets_evidence_and_no_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32,256 points, as if they were too many to enumerate; of them, 4,032 make the part."""
    monkeypatch.setattr("dse.search.run.ENUMERATE", 10_000)
    monkeypatch.setattr("dse.study.run.ENUMERATE", 10_000)
    monkeypatch.setattr("dse.study.run.SUBGRID", 5_000)
    study = dse("run", "tiny", "--out", tmp_path, "--json").json()
    assert study["engine"] == "pareto-local"
    assert study["true_hypervolume_share"] is None
    proof = study["proof"]
    assert "enumerated" not in proof
    assert len(proof["restarts"]) == 4
    assert all(0.99 < run["share"] <= 1.0 for run in proof["restarts"])
    assert 1_000 < proof["subgrid"]["size"] <= 5_000
    assert proof["subgrid"]["true_hypervolume_share"] > 0.9
    page = " ".join((tmp_path / "report.md").read_text().split())
    assert "evidence, not proof" in page
    asked = dse("run", "tiny", "--prove", "--fresh", "--out", tmp_path, "--json").json()
    assert asked["proof"]["enumerated"]["evaluations"] == 32_256
