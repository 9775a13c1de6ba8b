"""Command lines as a shell reads them over several lines."""

from __future__ import annotations

import textwrap


def continued(command: str, columns: int) -> str:
    """`command` in lines of at most `columns`, each but the last ending in a backslash."""
    lines = textwrap.wrap(
        command, columns - 2, subsequent_indent="    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return " \\\n".join(lines)
