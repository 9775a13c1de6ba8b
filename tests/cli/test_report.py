"""`dse run STUDY` of a finished study."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.conftest import ask, dse


def test_the_report_is_written_again_and_nothing_else(tiny: Path, tmp_path: Path):
    folder = tmp_path / "study"
    shutil.copytree(tiny, folder)
    kept = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.startswith("report")
    }
    for name in ("report.html", "report.md"):
        (folder / name).write_text("gone", encoding="utf-8")
    said = dse("run", folder)
    assert said.code == 0
    assert "knee" in said.out
    assert said.out.endswith(f"Report: {folder / 'report.html'}\n")
    for name in ("report.html", "report.md"):
        assert "A small space to try things on" in (folder / name).read_text(encoding="utf-8")
    assert {name: (folder / name).read_bytes() for name in kept} == kept


def test_the_document_of_a_finished_study_is_its_own(tiny: Path, tmp_path: Path):
    folder = tmp_path / "study"
    shutil.copytree(tiny, folder)
    said = ask("run", folder)
    assert said == json.loads((folder / "study.json").read_text(encoding="utf-8"))
