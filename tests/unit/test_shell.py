"""Command lines over several lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dse.render.console import continued

COMMAND = "vllm bench serve --ignore-eos --max-concurrency 64 --num-prompts 640 --seed 1"


@given(st.integers(30, 90))
def test_an_option_stands_beside_its_value(columns: int) -> None:
    lines = continued(COMMAND, columns).split(" \\\n")
    assert all(len(line) + 2 <= columns for line in lines)
    assert " ".join(line.strip() for line in lines) == COMMAND
    for pair in ("--max-concurrency 64", "--num-prompts 640", "--seed 1"):
        assert any(pair in line for line in lines)
