"""The documents name commands and options that exist, and every verb is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from dse.cli import VERBS
from tests import api_docs, command_blocks, schema_docs
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


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_the_documents_exist(path: Path):
    text = path.read_text(encoding="utf-8")
    made_here = set(re.findall(r'@click\.command\("(\w+)"\)', text))
    for line in mentioned(text):
        words = shlex.split(line, comments=True)[1:]
        if words[0].startswith("-") or words[0].isupper() or words[0] in made_here:
            continue
        verb = next(v for k in (3, 2, 1) if (v := tuple(words[:k])) in COMMANDS or k == 1)
        assert verb in COMMANDS, f"{path.name}: {line}"
        known = {"--help"} | {
            option
            for parameter in COMMANDS[verb].params
            if isinstance(parameter, click.Option)
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words[1:]:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"{path.name}: {word} in {line}"


def test_command_page_is_fresh_and_complete():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"## dse {verb}\n" in text for verb in VERBS)
    assert text == page(), "run `python -m tests.cli_docs > docs/cli.md`"


def test_page_of_fields_is_fresh():
    text = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
    assert text == schema_docs.page(), "run `python -m tests.schema_docs > docs/fields.md`"


def test_page_of_the_library_is_fresh():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert text == api_docs.page(), "run `python -m tests.api_docs > docs/api.md`"


def test_commands_stand_in_blocks_that_run():
    """A fenced block with a command is `bash` or `console`; what else shows one is its output."""
    for path in command_blocks.PAGES:
        for block in command_blocks.blocks(path.read_text(encoding="utf-8")):
            if block.language not in command_blocks.RUN and path.name != "cli.md":
                assert not re.search(r"^(dse|python|make) ", block.content, re.M), path.name


PAGE = """\
```yaml
# space.yaml
name: 1
```

```bash
cat space.yaml
```

```
name: 2
```

```console
$ dse estimate
dse: --model is missing
```
"""


def test_a_page_runs_and_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(command_blocks, "COPIED", ())
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert command_blocks.main([str(page)]) == 0
    assert "some numbers shown differ" in capfd.readouterr().out
    assert page.read_text(encoding="utf-8") == PAGE
    assert command_blocks.main([str(page), "--write"]) == 0
    written = page.read_text(encoding="utf-8")
    assert "```\n# space.yaml\nname: 1\n```" in written
    assert "--model is missing (accepted: " in written
    page.write_text(PAGE.replace("name: 2", "title: 2"), encoding="utf-8")
    assert command_blocks.main([str(page)]) == 1
    assert "not printed: title: 2" in capfd.readouterr().err
