"""`dse --help`, `dse --version` and what it costs to start."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

import dse.cli as verbs
from dse.cli import VERBS, moved
from tests import api_docs, cli_docs, command_blocks, schema_docs
from tests.cli.conftest import dse, fits
from tests.cli_docs import commands

HEAVY = ("numpy", "pandas", "optuna", "plotly", "scipy", "yaml", "rich", "jinja2")


def test_version_is_one_line():
    said = dse("--version")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("dse ")
    assert said.out.count("\n") == 1


def test_help_names_every_verb_and_the_exit_codes():
    said = dse("--help")
    assert said.code == 0
    assert all(verb in said.out and what in said.out for verb, what in VERBS.items())
    assert "Exit codes: 0 done, 2 bad input, 3" in said.out


@pytest.mark.parametrize("path", [path for path, _ in commands()])
def test_help_of_every_command_fits_and_names_every_option(path: tuple[str, ...]):
    said = dse(*path, "--help")
    assert said.code == 0
    assert fits(said.out, 100)
    command = dict(commands())[path]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in said.out
            assert parameter.help, f"{path} {parameter.opts[0]} has no help"


def test_a_verb_has_at_most_seventeen_options_of_its_own():
    """Beside those that verbs share, and an argument that may be given as an option."""
    shared = {"out", "as_json", "set", "prices", "as_of", "costs", "chip_files", "efficiency"}
    for path, command in commands():
        options = [one for one in command.params if isinstance(one, click.Option)]
        own = [one.name for one in options if not (one.name or "").endswith("_option")]
        assert len(set(own) - shared - {"detail"}) <= 17, path


def test_every_module_with_a_command_is_a_verb_of_its_name():
    for module in pkgutil.iter_modules(verbs.__path__):
        found = importlib.import_module(f"dse.cli.{module.name}")
        assert hasattr(found, "command") == (module.name in VERBS)
        assert not hasattr(found, "command") or found.command.name == module.name


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]):
    assert loads(arguments) == []


def loads(arguments: list[str]) -> list[str]:
    """Which of HEAVY a command imports."""
    program = f"""
import sys
import dse.cli
try:
    dse.cli.main({arguments!r})
except SystemExit:
    pass
print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return ast.literal_eval(ended.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "--model", "llama-3-8b", "--chip", "h100_sxm"],
        ["check", "llama-3-8b", "--chip", "h100_sxm"],
        ["catalog", "models", "list"],
        ["catalog", "racks", "list"],
        ["compare", "h100_sxm", "b200_sxm"],
        ["train", "llama-3-8b", "--chip", "h100_sxm", "--chips", "8", "--tokens", "1B"],
    ],
)
def test_a_short_answer_imports_what_it_needs(arguments: list[str]):
    """NumPy is what these count with; YAML is read by the first command after a change."""
    assert {*loads(arguments)} - {"yaml"} == {"numpy"}


@pytest.mark.parametrize("what", ["chips", "prices"])
def test_a_list_of_figures_counts_nothing(what: str):
    assert {*loads(["catalog", what, "list"])} <= {"yaml"}


@pytest.mark.parametrize("old", moved())
def test_a_verb_that_moved_says_its_new_name(old: str):
    assert tuple(old.split()) not in dict(commands())
    said = dse(*old.split(), "llama-3-8b", "--json")
    assert (said.code, said.out) == (2, "")
    assert f"dse {old} is now dse {moved()[old]}" in said.err


def test_python_dash_m_is_the_same_command():
    ended = subprocess.run(
        [sys.executable, "-m", "dse", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == dse("--version").out


# The documents name commands and options that exist, and every verb is documented.


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
    made_here = set(re.findall(r"command = verb\((\w+),", text))
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


@pytest.mark.parametrize(
    ("name", "maker"), [("cli", cli_docs), ("fields", schema_docs), ("api", api_docs)]
)
def test_a_page_that_is_made_is_fresh(name: str, maker: ModuleType):
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert text == maker.page(), f"run `python -m {maker.__name__} > docs/{name}.md`"
    assert name != "cli" or all(f"## dse {verb}\n" in text for verb in VERBS)


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
