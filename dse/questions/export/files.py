"""The texts that an export writes. Names come from studies and files: they are quoted for the
shell, and what stands in a comment is kept to one printable line."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.questions.export.flags import Flags


def config_text(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, allow_nan=False) + "\n"


class Variable(str):
    """Text with variables that each host sets in its environment: not quoted for the shell."""


RANK, HEAD = Variable("$NODE_RANK"), Variable("$MASTER_ADDR")
OF_HOSTS = {"NODE_RANK": "number of this host, from 0", "MASTER_ADDR": "address of host 0"}


def script(
    comments: Iterable[str],
    program: Sequence[str],
    flags: Flags,
    others: Sequence[str] = (),
    needs: Mapping[str, str] | None = None,
) -> str:
    """A shell script of one command, a flag a line. `others`: flags of hosts beside the first;
    `needs`: variables that the caller of a worker's script sets, with their meaning. What these are
    called with comes behind their flags."""
    command = [shlex.join(program), *(_flag(*flag) for flag in flags)]
    lines = ["#!/bin/sh", *_comment(comments)]
    hosts = OF_HOSTS if any(isinstance(value, Variable) for _, value in flags) else {}
    lines += [f': "${{{name}:?{what}}}"' for name, what in {**hosts, **(needs or {})}.items()]
    if others:
        lines.append(f'[ "$NODE_RANK" = 0 ] || set -- {shlex.join(others)} "$@"')
    if others or needs is not None:
        command.append('"$@"')
    return "\n".join([*lines, "exec " + " \\\n  ".join(command)]) + "\n"


def argument_list(comments: Iterable[str], name: str, flags: Flags) -> str:
    """A bash array of arguments, to be sourced by a training script."""
    lines = [*_comment(comments), f"{name}=(", *(f"  {_flag(*flag)}" for flag in flags), ")"]
    return "\n".join(lines) + "\n"


def _comment(texts: Iterable[str]) -> list[str]:
    """Comment lines, a text's further lines indented."""
    lines: list[str] = []
    for text in texts:
        wrapped = textwrap.wrap(one_line(text), 96, break_on_hyphens=False)
        lines += [f"# {'  ' if k else ''}{line}" for k, line in enumerate(wrapped)]
    return lines


def _flag(name: str, value: str | None) -> str:
    if value is None:
        return name
    return f"{name} " + (f'"{value}"' if isinstance(value, Variable) else shlex.quote(value))


def one_line(text: str) -> str:
    """Printable characters on one line: nothing in it ends a comment."""
    return "".join(char if char.isprintable() else " " for char in text)
