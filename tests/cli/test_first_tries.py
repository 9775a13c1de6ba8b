"""What a first-time user tries: a chip, a model or a kind of layer that does not exist, in
`estimate`, `explain` and `run`. Each message says what was read and what would be accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import dse

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
UNKNOWN_LAYER = ["config.json: layer_types: 'hyena'", "full_attention, sliding_attention"]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A config.json in the working directory, one of whose layers is of an unknown type."""
    monkeypatch.chdir(tmp_path)
    content = json.loads((CONFIGS / "gemma-3-1b.json").read_text(encoding="utf-8"))
    content["layer_types"] = ["hyena"] + ["full_attention"] * (content["num_hidden_layers"] - 1)
    Path("config.json").write_text(json.dumps(content), encoding="utf-8")
    return "config.json"


@pytest.mark.parametrize("more", [(), ("--detail",)])
@pytest.mark.parametrize(
    ("model", "chip", "said"),
    [
        ("llama-3-8b", "h100", ["'h100'", "did you mean h100_sxm?", "dse catalog chips list"]),
        ("llama-3-8b", "zz9000", ["'zz9000'", "dse catalog chips list", "path of a chip file"]),
        ("llama-9", "h100_sxm", ["'llama-9'", "near: llama-3-8b", "dse catalog models list"]),
        ("config.json", "h100_sxm", UNKNOWN_LAYER),
    ],
)
def test_one_point(
    config: str, more: tuple[str, ...], model: str, chip: str, said: list[str]
) -> None:
    answer = dse("estimate", *more, "--model", model, "--chip", chip)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert all(words in answer.err for words in said), answer.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("h100_sxm", "h100", ["deployment.chip", "did you mean h100_sxm?"]),
        ("h100_sxm", "zz9000", ["deployment.chip", "dse catalog chips list"]),
        ("llama-3-8b", "llama-9", ["small.yaml", "near: llama-3-8b"]),
        ("llama-3-8b", "config.json", UNKNOWN_LAYER),
    ],
)
def test_a_space(
    config: str, space: Callable[..., Path], old: str, new: str, said: list[str]
) -> None:
    answer = dse("run", space(old, new))
    assert (answer.code, answer.out) == (2, "")
    assert all(words in answer.err for words in said), answer.err
