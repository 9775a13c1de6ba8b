"""Files are replaced whole, together and where they lead to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dse.errors import InputError
from dse.files import text_of, write_files, write_text


def test_a_link_is_kept_and_what_it_leads_to_is_replaced(tmp_path: Path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    write_text(tmp_path, "link.csv", "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_standard_output_is_written_itself(tmp_path: Path):
    stand_in = tmp_path / "stdout"
    stand_in.symlink_to("/proc/self/fd/1")
    code = f"from pathlib import Path; from dse.files import write_text\n\
write_text(Path({str(tmp_path)!r}), 'stdout', 'said')"
    with (tmp_path / "said.txt").open("w") as file:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
    assert stand_in.is_symlink()
    assert (tmp_path / "said.txt").read_text() == "said"


def test_the_last_file_is_renamed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """study.json says that a study is finished."""
    order = []
    rename = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (order.append(Path(to).name), rename(self, to))[1]
    )
    write_files(tmp_path, {"front.csv": b"1", "front.json": b"2", "study.json": b"3"})
    assert order == ["front.csv", "front.json", "study.json"]


@pytest.mark.parametrize("escape", [r"\u001b", r"\u202E", r"\b", r"\f"])
def test_what_a_string_of_json_escapes_is_seen_too(escape: str):
    text = f'{{"a": "x",\n "b": "{escape}"}}'.encode()
    assert text_of(text, "x.json")
    with pytest.raises(InputError, match=r"x\.json:2: read the character U\+"):
        text_of(text, "x.json", escapes=True)
    assert text_of(text.replace(b'"\\', b'"\\\\'), "x.json", escapes=True)
