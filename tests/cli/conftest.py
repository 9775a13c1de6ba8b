"""The command line in this process: what it prints and how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import pytest

from dse.answer.sentences import spoken
from dse.catalog import load_catalog
from dse.cli import main


@dataclass(frozen=True, slots=True)
class Said:
    """Exit code, standard output and standard error of one command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one document on standard output; NaN and Infinity are no JSON."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} in a JSON document")

        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=refuse)


def dse(*arguments: object) -> Said:
    """Runs `dse ARGUMENTS`, of which the first may be several words; any exception but the exit
    itself fails the test."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = [str(argument) for argument in arguments]
    given = [*" ".join(words[:1]).split(), *words[1:]]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["dse", *given]),
    ):
        try:
            main(given)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def ask(*arguments: object) -> Any:
    """The document that `dse ARGUMENTS --json` prints."""
    return dse(*arguments, "--json").json()


@pytest.fixture(autouse=True)
def hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def few_futures() -> Iterator[None]:
    """Eight futures of a fleet in place of 250: for what does not ask how many are served."""
    with mock.patch("dse.questions.fleet.fleet.PLAIN", 8):
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished study `dse run tiny --seed 1`; nobody writes into it."""
    folder = tmp_path_factory.mktemp("studies") / "tiny"
    said = dse("run", "tiny", "--seed", 1, "--out", folder)
    assert said.code == 0, said.err
    return folder


# A chip of one's own, in short form.
SHORT = """\
id: my_chip
name: My chip
efficiency: class_gpu
memory_capacity: 96 GB
memory_bandwidth: 4 TB/s
peak_bf16: 1000 TFLOP/s
"""
SMALL = """\
name: small
title: A dense model on one server
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous, backend: current}
price_basis: rental_3yr
model: llama-3-8b
deployment:
  chip: h100_sxm
  replicas: 1
  tensor_parallel: [1, 2, 4]
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: [1, 16, 64]
objectives: {usd_per_million_total_tokens: minimize, tpot_s: minimize}
constraints: [ttft_s <= 2 s]
"""


@pytest.fixture
def space(tmp_path: Path) -> Callable[..., Path]:
    """Writes the space SMALL of 18 points, with `old` replaced by `new`, and gives its path."""

    def write(old: str = "", new: str = "", name: str = "small.yaml") -> Path:
        assert old in SMALL
        path = tmp_path / name
        path.write_text(SMALL.replace(old, new) if old else SMALL, encoding="utf-8")
        return path

    return write


def on_page(text: str) -> str:
    """A text of an answer as a page says it: chips by their makers' names."""
    return spoken(text, load_catalog().names)


def unmarked(page: str) -> str:
    """A page without the marks of words that it explains."""
    return re.sub(r"</?abbr[^>]*>", "", page)


def sheets(book: Path) -> list[str]:
    """The names of the sheets of a workbook."""
    with zipfile.ZipFile(book) as parts:
        root = ElementTree.fromstring(parts.read("xl/workbook.xml"))  # noqa: S314
    return [str(one.get("name")) for one in root.iter() if one.tag.endswith("}sheet")]


def fits(text: str, columns: int) -> bool:
    """Whether no line is wider, long words (paths, addresses) apart; ` \\` goes on below."""
    lines = (line.removesuffix(" \\") for line in text.splitlines())
    return all(len(line) <= columns or " " not in line.strip() for line in lines)
