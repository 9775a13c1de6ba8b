"""The texts that an export writes, and the flags of another tool (flags.yaml). Names come from
studies and files: they are quoted for the shell, and what stands in a comment is kept to one
printable line."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.schema.loader import load_yaml

# What each tool is told; flags.yaml says how a flag is written there.
TOOLS: Mapping[str, Any] = load_yaml(Path(__file__).with_name("flags.yaml")).data
OF_HOSTS = {"NODE_RANK": "number of this host, from 0", "MASTER_ADDR": "address of host 0"}
Flags = Sequence[tuple[str, str | None]]


class Variable(str):
    """Text with variables that each host sets in its environment: not quoted for the shell."""


def stated(table: Mapping[str, Any], facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """(name, value) of the flags of a table that are not left out."""
    found = []
    for name, said in table.items():
        flag = {"of": said} if isinstance(said, str) else said
        given = all(facts.get(one) for one in flag.get("where", ()))
        if not given or any(facts.get(one) for one in flag.get("where_not", ())):
            continue
        value = facts.get(flag["of"]) if "of" in flag else flag.get("value")
        if "text" in flag:
            value = flag["text"] % facts
        if "variable" in flag:
            value = Variable(flag["variable"])
        if value is not None and ("unless" not in flag or value != flag["unless"]):
            found.append((name, value))
    return found


def flags_of(table: Mapping[str, Any], facts: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """The same as parts of a command line; None: a switch."""

    def text(value: Any) -> str | None:
        if value is True:
            return None
        return value if isinstance(value, str) else f"{value:g}" if value % 1 else f"{value:.0f}"

    return [(name, text(value)) for name, value in stated(table, facts)]


def nested(found: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An options file: a name with dots is a key inside others."""
    options: dict[str, Any] = {}
    for name, value in found:
        *above, key = name.split(".")
        place = options
        for outer in above:
            place = place.setdefault(outer, {})
        place[key] = value
    return options


def config_text(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, allow_nan=False) + "\n"


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
    """Comment lines, a text's further lines indented; only printable characters, so that nothing
    ends a comment."""
    lines: list[str] = []
    for text in texts:
        printable = "".join(char if char.isprintable() else " " for char in text)
        wrapped = textwrap.wrap(printable, 96, break_on_hyphens=False)
        lines += [f"# {'  ' if k else ''}{line}" for k, line in enumerate(wrapped)]
    return lines


def _flag(name: str, value: str | None) -> str:
    if value is None:
        return name
    return f"{name} " + (f'"{value}"' if isinstance(value, Variable) else shlex.quote(value))
