"""The documents name commands and options that exist, and every verb is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from dse.cli import VERBS
from tests import readme_commands
from tests.cli_docs import commands, page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = dict(commands())


def mentioned(text: str) -> list[str]:
    """`dse ...` in backticks, and the lines of code blocks that begin with it."""
    inline = re.findall(r"`(dse [^`\n]*)`", text)
    fenced = [
        line.strip().removeprefix("$ ")
        for block in re.findall(r"^```\w*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    indented = re.findall(r"^    (dse .*)$", text, flags=re.MULTILINE)
    return inline + [line for line in fenced if re.match(r"dse [a-z-]", line)] + indented


def test_mentions_are_found():
    text = (
        "`dse run tiny` and\n\n```bash\nmake study\ndse spaces list\n```\n\n    dse models list\n"
    )
    assert mentioned(text) == ["dse run tiny", "dse spaces list", "dse models list"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_the_documents_exist(path: Path):
    for line in mentioned(path.read_text(encoding="utf-8")):
        words = shlex.split(line, comments=True)[1:]
        if words[0].startswith("-") or words[0].isupper():
            continue
        verb = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else (words[0],)
        assert verb in COMMANDS, f"{path.name}: {line}"
        known = {"--help"} | {
            option
            for parameter in COMMANDS[verb].params
            if isinstance(parameter, click.Option)
            for option in parameter.opts
        }
        for word in words[1:]:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"{path.name}: {word} in {line}"


def test_command_page_is_fresh_and_complete():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"## dse {verb}\n" in text for verb in VERBS)
    assert text == page(), "run `python -m tests.cli_docs > docs/cli.md`"


def test_readme_blocks_are_read_as_commands():
    text = "```bash\nmake test\n# a comment\ndse run tiny \\\n  --seed 1\n```\n```\ndse x\n```\n"
    assert readme_commands.lines(text) == ["dse run tiny    --seed 1"]


def test_readme_has_a_command_block():
    assert readme_commands.blocks(readme_commands.README.read_text(encoding="utf-8"))


def test_readme_run_stops_at_the_first_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    page = tmp_path / "README.md"
    page.write_text("```bash\ndse --version\nfalse\necho never\n```\n", encoding="utf-8")
    monkeypatch.setattr(readme_commands, "README", page)
    assert readme_commands.main() == 1
    said = capfd.readouterr()
    assert "dse 0." in said.out
    assert "never" not in said.out
    assert "failed with exit code 1: false" in said.err
