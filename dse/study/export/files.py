"""The texts that an export writes. Names come from studies and files: they are quoted for the
shell, and what stands in a comment is kept to one printable line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

Flags = Sequence[tuple[str, str | None]]


def config_text(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, allow_nan=False) + "\n"


def script(comments: Iterable[str], program: Sequence[str], flags: Flags) -> str:
    """A shell script of one command, a flag a line."""
    lines = ["#!/bin/sh", *(f"# {one_line(text)}" for text in comments)]
    command = [shlex.join(program), *(_flag(*flag) for flag in flags)]
    return "\n".join([*lines, " \\\n  ".join(["exec " + command[0], *command[1:]])]) + "\n"


def argument_list(comments: Iterable[str], name: str, flags: Flags) -> str:
    """A bash array of arguments, to be sourced by a training script."""
    lines = [f"# {one_line(text)}" for text in comments]
    return "\n".join([*lines, f"{name}=(", *(f"  {_flag(*flag)}" for flag in flags), ")"]) + "\n"


def _flag(name: str, value: str | None) -> str:
    return name if value is None else f"{name} {shlex.quote(value)}"


def one_line(text: str) -> str:
    """Printable characters on one line: nothing in it ends a comment."""
    return "".join(char if char.isprintable() else " " for char in text)
