"""What `make quick` runs: the files of tests/quick.txt, some of every room."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_quick_tests_exist_and_touch_every_room() -> None:
    paths = [ROOT / line for line in (ROOT / "tests" / "quick.txt").read_text("utf-8").splitlines()]
    assert [path for path in paths if not path.exists()] == []
    files = [file for path in paths for file in ([path] if path.is_file() else path.glob("*.py"))]
    text = "".join(file.read_text("utf-8") for file in files)
    rooms = [path.name for path in (ROOT / "dse").iterdir() if (path / "__init__.py").exists()]
    assert len(rooms) > 10
    assert [room for room in rooms if f"dse.{room}" not in text and room != "cli"] == []
    assert "tests.cli.conftest import dse" in text
