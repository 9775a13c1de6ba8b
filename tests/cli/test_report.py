"""`dse report STUDY`."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cli.conftest import dse


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
    said = dse("report", folder)
    assert said.code == 0
    assert said.out == f"{folder / 'report.html'}\n"
    for name in ("report.html", "report.md"):
        assert "A small space to try things on" in (folder / name).read_text(encoding="utf-8")
    assert {name: (folder / name).read_bytes() for name in kept} == kept
