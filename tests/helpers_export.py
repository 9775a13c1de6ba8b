"""Points to export, and the flags that a script holds."""

from __future__ import annotations

import subprocess
from typing import Any

from dse.catalog import load_catalog
from dse.problem.mix import mix_of
from dse.questions.estimate.point import Estimate, estimate
from dse.questions.export import STACKS, Export, export_command
from dse.schema.model import Model
from dse.schema.model_catalog import resolve_model

SERVERS = tuple(STACKS)
LOAD = {"prompt_tokens": 4000, "output_tokens": 1000, "serving": "continuous"}


def answer(
    model: str | Model = "llama-3-70b",
    chip: str = "h200_sxm",
    *,
    backend: str = "vllm",
    load: dict[str, Any] | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
    **deployment: Any,
) -> Estimate:
    catalog = load_catalog()
    shape = resolve_model(model) if isinstance(model, str) else model
    axes = {"concurrency": 64, **deployment}
    mix = mix_of([{**LOAD, "backend": backend, **(load or {})}], catalog.backends)
    return estimate(catalog, shape, chip, mix, axes, weight_dtype=weight_dtype, kv_dtype=kv_dtype)


def export(format_: str, point: Estimate, **options: Any) -> Export:
    return export_command(point, format_, load_catalog(), **options)


def read_by_a_shell(text: str) -> list[str]:
    """The words of a script's one command, as sh sees them."""
    assert text.count("\nexec ") == 1
    printed = text.replace("\nexec ", "\nprintf '%s\\0' ")
    ended = subprocess.run(["sh", "-c", printed], capture_output=True, check=True)
    assert not ended.stderr
    return ended.stdout.decode().split("\0")[:-1]


def flags(made: Export) -> dict[str, str | None]:
    """Flags of the script; a switch has no value."""
    words = read_by_a_shell(made.files["serve.sh"])
    assert words == made.document["command"]
    found: dict[str, str | None] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = None if after.startswith("--") else after
    return found


MOE = {"model": "deepseek-v3", "tensor_parallel": 1, "data_parallel": 8, "expert_parallel": 8}


DEGREES = {"tensor": 1, "pipeline": 1, "data": 1, "expert": 1}
