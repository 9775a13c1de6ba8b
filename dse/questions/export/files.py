"""The texts that an export writes, and the tables of flags of another tool. Names come from studies
and files: they are quoted for the shell, and what stands in a comment is kept to one printable
line."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any


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


Flags = Sequence[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag (or key of an options file) of another tool, and what of ours it says.

    `of` names an attribute (`backend.memory_fraction`) or, of a mapping, a key; or it is a function
    of what is exported. The flag is left out where that is None or `unless`; True is a switch.
    """

    name: str
    of: str | Callable[[Any], Any]
    unless: Any = None

    def value(self, subject: Any) -> Any:
        """What the flag says of `subject`; None where it is left out."""
        if callable(self.of):
            found = self.of(subject)
        elif isinstance(subject, Mapping):
            found = subject.get(self.of)
        else:
            found = attrgetter(self.of)(subject)
        return None if found == self.unless else found


def switch(name: str, where: Callable[[Any], Any]) -> Flag:
    """A flag without a value, given where `where` holds."""
    return Flag(name, lambda subject: bool(where(subject)) or None)


def stated(table: Iterable[Flag], subject: Any) -> list[tuple[str, Any]]:
    """(name, value) of the flags that are not left out."""
    return [(flag.name, value) for flag in table if (value := flag.value(subject)) is not None]


def flags_of(table: Iterable[Flag], subject: Any) -> list[tuple[str, str | None]]:
    """The same as parts of a command line; None: a switch."""
    return [(name, _text(value)) for name, value in stated(table, subject)]


def _text(value: Any) -> str | None:
    if value is True:
        return None
    return value if isinstance(value, str) else f"{value:g}" if value % 1 else f"{value:.0f}"


def nested(found: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An options file: a name with dots is a key inside others."""
    options: dict[str, Any] = {}
    for name, value in found:
        *above, key = name.split(".")
        place = options
        for one in above:
            place = place.setdefault(one, {})
        place[key] = value
    return options
