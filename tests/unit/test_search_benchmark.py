"""The benchmark of the engines: what it measures, keeps and prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import search as benchmark
from benchmarks.search_tables import tables
from tools import written

ONE = ("--spaces", "deploy-llama-3-70b", "--engines", "exhaustive,pareto-local", "--seeds", "2")


def test_rows_are_measured_once_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    benchmark.main([*ONE, "--only-engines", "--rows", str(rows)])
    kept = json.loads(rows.read_text())
    assert [(row["engine"], row["seed"]) for row in kept] == [
        ("exhaustive", 0),
        ("pareto-local", 0),
        ("pareto-local", 1),
    ]
    assert kept[0]["share"] == 1.0
    assert all(0.99 <= row["share"] <= 1.0 for row in kept)
    assert all(row["evaluations"] <= row["points"] == 5_940 for row in kept)
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| deploy")]
    assert table[0].startswith("| deploy-llama-3-70b (5,940, 32) | `exhaustive` | 1 | 32 | 5,940 |")
    benchmark.main([*ONE, "--only-engines", "--rows", str(rows)])
    assert json.loads(rows.read_text()) == kept


def test_the_page_takes_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "search.md"
    begin = "<!-- written by `python -m benchmarks.search --write` -->"
    page.write_text(f"before\n{begin}\nold\n{written.END}\nafter\n")
    monkeypatch.setattr(written, "DOCS", tmp_path)
    benchmark.main([*ONE, "--only-engines", "--write"])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "`pareto-local`" in text


def test_growth_is_told_within_an_engine_only() -> None:
    rows = [
        {
            "part": "growth",
            "engine": engine,
            "asked": asked,
            "points": asked,
            "evaluations": asked,
            "cpu_s": asked / 10_000,
            "seconds": 1.0,
        }
        for engine in ("exhaustive", "pareto-local")
        for asked in (10_000, 100_000)
    ]
    lines = [line for line in tables(rows).splitlines() if line.startswith("| `")]
    assert [line.split("|")[-2].strip() for line in lines] == [
        "–",
        "10.0 for 10.0 times the points",
        "–",
        "10.0 for 10.0 times the points",
    ]
