"""Files that a test writes, and what is said of their mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dse.errors import InputError, InputErrors


def write(folder: Path, text: str, name: str = "file.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def refusal(call: Callable[..., Any], *given: Any, **named: Any) -> InputError:
    """What a call with bad input raises."""
    with pytest.raises(InputError) as caught:
        call(*given, **named)
    return caught.value


def mistakes(call: Callable[..., Any], *given: Any) -> list[InputError]:
    """Each mistake of a file that is read."""
    error = refusal(call, *given)
    return error.errors if isinstance(error, InputErrors) else [error]
