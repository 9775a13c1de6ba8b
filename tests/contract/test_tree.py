"""What holds of every file of the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 700
OWN = ("root", "mnt", "work", r"tmp/\w+")  # folders of one machine
HOMES = "home"  # whose folders are one person's


def test_a_file_is_a_room() -> None:
    files = [path for part in ("dse", "tools") for path in (ROOT / part).rglob("*.py")]
    assert len(files) > 200
    lines = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in files}
    assert {path: n for path, n in lines.items() if n > MOST_LINES} == {}


def test_no_file_tells_of_the_machine_it_was_made_on() -> None:
    """Reports, tables and measured rows name files as a reader has them."""
    listed = subprocess.run(
        ["git", "ls-files"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    folders = re.compile(rf"/({'|'.join(OWN)})/|/{HOMES}/[a-z]".encode())
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    found = [str(path.relative_to(ROOT)) for path in paths if _tells(path, folders)]
    assert found == []


def _tells(path: Path, folders: re.Pattern[bytes]) -> bool:
    return path.is_file() and folders.search(path.read_bytes()) is not None


# What `make quick` runs: the files of tests/quick.txt, some of every room.


def test_the_quick_tests_exist_and_touch_every_room() -> None:
    paths = [ROOT / line for line in (ROOT / "tests" / "quick.txt").read_text("utf-8").splitlines()]
    assert [path for path in paths if not path.exists()] == []
    files = [file for path in paths for file in ([path] if path.is_file() else path.glob("*.py"))]
    text = "".join(file.read_text("utf-8") for file in files)
    rooms = [path.name for path in (ROOT / "dse").iterdir() if (path / "__init__.py").exists()]
    assert len(rooms) > 10
    assert [room for room in rooms if f"dse.{room}" not in text and room != "cli"] == []
    assert "tests.cli.conftest import dse" in text
