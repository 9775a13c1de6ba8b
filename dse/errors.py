"""Typed errors. Each carries the exit code that the command line ends with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# A terminal acts on these, or writes what follows from right to left, whoever wrote them; an end of
# a line and a tabulator are text.
ACTING = (
    *(k for k in (*range(32), *range(127, 160)) if chr(k) not in "\n\r\t"),
    *(0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
)
_ESCAPED = {k: f"\\x{k:02x}" if k < 256 else f"\\u{k:04x}" for k in (*ACTING, 13)}
_LONG = re.compile(r"(\S{80})\S{120,}")  # a word that nobody reads to its end
ACTS = re.compile(f"[{''.join(map(chr, ACTING))}]")


def acting(text: str) -> str:
    """The first character of a text that a terminal acts on, as U+001B; nothing without one."""
    found = ACTS.search(text)
    return f"U+{ord(found[0]):04X}" if found else ""


def printable(text: str) -> str:
    """The text with the characters escaped that a terminal acts on."""
    return text.translate(_ESCAPED)


class Doubt(UserWarning):
    """A figure that can be read and is far from any of its kind: a unit has probably slipped."""


class DseError(Exception):
    """A failure that the user can act on; never shown as a traceback."""

    exit_code = 2


class InputError(DseError):
    """Bad input: names the file, the field, what was read, and what would be accepted."""

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        accepted: str | None = None,
    ) -> None:
        message = _LONG.sub(r"\1...", message)  # what was read may be of any length
        place = ":".join(str(part) for part in (file, line) if part is not None)
        text = ": ".join(part for part in (place, field, message) if part)
        super().__init__(f"{text} (accepted: {accepted})" if accepted else text)
        self.message, self.file, self.line = message, file, line
        self.field, self.accepted = field, accepted


class InputErrors(InputError):
    """Several mistakes of one file, reported together."""

    def __init__(self, errors: list[InputError]) -> None:
        Exception.__init__(self, "\n".join(str(error) for error in errors))
        self.errors = errors

    def __reduce__(self) -> tuple[type[InputErrors], tuple[list[InputError]]]:
        return type(self), (self.errors,)


@contextmanager
def of_field(field: str | Mapping[str, str]) -> Iterator[None]:
    """An InputError within is one of `field`, by its own field where that is a mapping; its file
    and line are left out."""
    try:
        yield
    except InputError as error:
        named = field if isinstance(field, str) else field[error.field or ""]
        raise InputError(error.message, field=named, accepted=error.accepted) from None


class NothingFeasible(DseError):
    """A search that found no feasible point: the message counts the reasons."""

    exit_code = 3


class StorageError(DseError):
    """A study folder or storage that cannot be read, written or continued."""

    exit_code = 4
