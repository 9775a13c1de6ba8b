"""Typed errors. Each carries the exit code that the command line ends with."""

from __future__ import annotations

# A terminal acts on these, whoever wrote them; a new line and a tabulator are text.
_CONTROL = {k: f"\\x{k:02x}" for k in (*range(32), *range(127, 160)) if chr(k) not in "\n\t"}


def printable(text: str) -> str:
    """The text with its control characters escaped."""
    return text.translate(_CONTROL)


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


class NothingFeasible(DseError):
    """A search that found no feasible point: the message counts the reasons."""

    exit_code = 3


class StorageError(DseError):
    """A study folder or storage that cannot be read, written or continued."""

    exit_code = 4
