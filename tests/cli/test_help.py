"""`dse --help`, `dse --version` and what it costs to start."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys

import click
import pytest

import dse.cli as verbs
from dse.cli import VERBS, moved
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


@pytest.mark.parametrize(
    ("typed", "meant"), [("rnu", "run"), ("estimat", "estimate"), ("catalogue", "catalog")]
)
def test_a_misspelt_verb_gets_the_near_one(typed: str, meant: str):
    said = dse(typed)
    assert said.code == 2
    assert f"Did you mean {meant}?" in said.err


@pytest.mark.parametrize("old", moved())
def test_a_verb_that_moved_says_its_new_name(old: str):
    assert tuple(old.split()) not in dict(commands())
    said = dse(*old.split(), "llama-3-8b", "--json")
    assert (said.code, said.out) == (2, "")
    assert f"dse {old} is now dse {moved()[old]}" in said.err


def test_a_misspelt_subcommand_gets_the_near_one():
    said = dse("catalog", "spaces", "sohw")
    assert said.code == 2
    assert "show" in said.err


def test_python_dash_m_is_the_same_command():
    ended = subprocess.run(
        [sys.executable, "-m", "dse", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == dse("--version").out
