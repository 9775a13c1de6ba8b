"""Command lines as a shell reads them over several lines."""

from __future__ import annotations

import re
import textwrap

_HELD = "\0"  # in place of a space that no line ends at


def continued(command: str, columns: int) -> str:
    """`command` in lines of at most `columns`, each but the last ending in a backslash; an option
    stands beside its value."""
    held = re.sub(r"(?<=\s)(--[\w-]+) (?=[^\s-])", rf"\1{_HELD}", command)
    lines = textwrap.wrap(
        held,
        columns - 2,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return " \\\n".join(lines).replace(_HELD, " ")
