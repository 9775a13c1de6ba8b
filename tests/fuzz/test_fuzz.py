"""A few hundred inputs with mistakes in every run, and those that were once taken badly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import dse
from tests.fuzz import KINDS, SAMPLE, complaint, spoiled

EACH = 40
CHIP = "id: mine\nname: mine\nmemory_capacity: 96 GB\nmemory_bandwidth: 4 TB/s\n"
# {what was once a traceback or an echo: (end of a chip file, part of the message)}
ONCE = {
    "a tag that its text is not": ("peak_bf16: !!bool maybe\n", "'maybe' as bool"),
    "a day that is no day": ("peak_bf16: !!timestamp 2026-13-99, 1\n", "as timestamp"),
    "a name too long for a file": (f"efficiency: {'a' * 3000}\n", "aaa"),
    "a control character": ('peak_bf16: "\\e[31mred"\n', "\\x1b[31mred"),
}


@pytest.mark.parametrize("kind", [*KINDS, "flags"])
def test_mistakes_are_answered_in_words(kind: str, tmp_path: Path) -> None:
    found = {}
    for seed in range(EACH):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found[seed] = complaint(kind, seed, folder)
    assert {seed: said for seed, said in found.items() if said} == {}


@pytest.mark.parametrize("what", ONCE)
def test_what_was_once_taken_badly(what: str, tmp_path: Path) -> None:
    end, part = ONCE[what]
    path = tmp_path / "chip.yaml"
    path.write_text(CHIP + end, encoding="utf-8")
    said = dse("estimate", "--model", "llama-3-8b", "--chip", path)
    assert said.code in (2, 4)
    assert part in said.err
    assert "\x1b" not in said.err


def test_an_input_can_be_made_again() -> None:
    import random

    text = (SAMPLE / "study.json").read_text(encoding="utf-8")
    twice = [spoiled(text, random.Random(3)) for _ in range(2)]  # noqa: S311
    assert twice[0] == twice[1] != text
